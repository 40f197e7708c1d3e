r"""Exact numbers and what is made of them, read without computer algebra (R7)."""

import subprocess
import sys
import time
from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from olr_cli.answers.classes import Form, number
from olr_cli.answers.notation import tidy
from olr_cli.answers.reading import NeedsAlgebra, exact_number, read

NUMBERS = {
    "0": [
        "0",
        "-0",
        "0.0",
        "000",
        r"\frac{0}{5}",
    ],
    "1/4": [
        "1/4",
        "0.25",
        ".25",
        "0.250",
        r"\frac{1}{4}",
        r"\dfrac{1}{4}",
        r"\tfrac14",
        r"\frac1{4}",
        r"\frac{1}4",
        r"\frac 14",
        r"0.25\ ",
        r"\frac{-1}{-4}",
        r"\frac{0.5}{2}",
        "$1/4$",
        r"\(\frac14\)",
        r"\[ 0.25 \]",
        "0.25.",
        "2.5e-1",
        r"25 \times 10^{-2}",
        "**1/4**",
        r"\boxed{1/4}",
    ],
    "-5": [
        "-5",
        "- 5",
        "−5",
        "-5.0",
        "$-5$",
        r"-\frac{10}{2}",
        r"\frac{10}{-2}",
        r"\text{-5}",
        "{-5}",
    ],
    "5": [
        "5",
        "+5",
        "5.",
        "005",
        "5\x00",
        "5\u200b",
    ],
    "1234": [
        "1234",
        "1,234",
        "1{,}234",
        r"1\,234",
        "1 234",
        r"1,\!234",
        "1234.0",
        "1.234e3",
        r"1.234\text{ thousand}",
    ],
    "1234567": ["1234567", "1,234,567", r"1\,234\,567", "1,234,567.00", r"1.234567 \cdot 10^6"],
    "3/2": ["3/2", "1.5", r"1\frac{1}{2}", r"1 \frac12", "1 1/2"],
    "-1/8": ["-.125", "-1/8"],
    "1/3": [r"0.\overline{3}", r"0.3\overline{33}", r"0.\dot{3}", "1/3"],
    "-7/6": [r"-1.1\overline{6}"],
    "602000000000000000000000": [r"6.02 \times 10^{23}", "6.02e23", r"602 \cdot 10^{21}", r"6.02×10^{23}"],
}


@pytest.mark.parametrize(("value", "spelling"), [(v, s) for v, each in NUMBERS.items() for s in each])
def test_every_spelling_of_a_number_is_that_number(value, spelling):
    assert exact_number(tidy(spelling)) == Fraction(value)


NO_PLAIN_NUMBERS = (
    (
        "",
        "x",
        "x=5",
        "5x",
        "5!",
        "%",
        "--5",
        "5 6",
        "1.2.3",
        "1_000",
        "٣",
        "1,23",
        "0,125",
        "1, 234",
        "1e999999999",
    ),
    ("1/0", "1/2/3", r"\frac{1}{0}", r"\frac123", r"2\frac{3}{2}", r"2\frac{-1}{2}"),
    ("1e999999999", "1e123456789012", r"2 \times 10^{-123456789012}"),
    (r"\infty", r"10^{9}", r"\sqrt{4}", r"5\text{"),
)


@pytest.mark.parametrize("answer", [answer for answers in NO_PLAIN_NUMBERS for answer in answers])
def test_what_is_no_plain_number_is_left_to_computer_algebra(answer):
    assert exact_number(tidy(answer)) is None


def test_four_hundred_digits_are_exact():
    digits = "7" * 400
    assert exact_number(digits) == int(digits)
    assert read(digits) == read(f"{digits}.0") != read("7" * 399 + "8")


@given(st.integers(-(10**12), 10**12), st.integers(1, 10**6))
def test_a_rational_is_read_from_each_of_its_spellings(p, q):
    value = Fraction(p, q)
    minus = "-" if p < 0 else ""
    for spelling in (
        f"{p}/{q}",
        f"{minus}\\frac{{{abs(p)}}}{{{q}}}",
        f"\\dfrac{{{p}}}{{{q}}}",
        f"{{{p}}}/{q}",
    ):
        read_value = exact_number(tidy(spelling))
        assert read_value in (value, None) if spelling.startswith("{") else read_value == value
    assert exact_number(f"{p:,}") == p
    assert read(f"${p}.50\\%$") == Form("percent", parts=(number(Fraction(f"{p}.50")),))


@given(st.text(alphabet="0123456789.,+-/ %\\{}()eE^frac tximes$", max_size=40))
def test_any_text_is_read_quickly(answer):
    with suppress(NeedsAlgebra):
        read(answer)


@pytest.mark.parametrize(
    "piece", ["\\,", " ", "1 ", "1,", "1,234", "1e", "(", "{", "-", "\\frac", "1/", "5\\%", "\\text{"]
)
def test_reading_takes_no_longer_than_linear_time(piece):
    started = time.process_time()
    for end in ("", "x", "5"):
        with suppress(NeedsAlgebra):
            read("5" + piece * (1000 // len(piece)) + end)
    assert time.process_time() - started < 2


def numbers(*values):
    return tuple(number(Fraction(value)) for value in values)


@pytest.mark.parametrize(
    ("answer", "form"),
    [
        ("(1,2)", Form("tuple", parts=numbers(1, 2))),
        (r"\left( \frac12, 0.5, 4/8 \right)", Form("tuple", parts=numbers("1/2", "1/2", "1/2"))),
        (r"\langle 1, 2 \rangle", Form("tuple", parts=numbers(1, 2))),
        ("2,1", Form("set", parts=numbers(1, 2))),
        (r"\{2,1,2\}", Form("set", parts=numbers(1, 2))),
        ("$1$, $2$", Form("set", parts=numbers(1, 2))),
        ("5, 5", number(Fraction(5))),
        ("[0, 1)", Form("interval", "[)", numbers(0, 1))),
        (r"(-\infty, 3]", Form("interval", "(]", (Form("value", "-oo"), *numbers(3)))),
        (r"(3, \infty)", Form("tuple", parts=(*numbers(3), Form("value", "oo")))),
        (
            "(1,2),(3,4)",
            Form("set", parts=(Form("tuple", parts=numbers(1, 2)), Form("tuple", parts=numbers(3, 4)))),
        ),
        ("(1{,}234, 5)", Form("tuple", parts=numbers(1234, 5))),
        ("1,234, 5", Form("set", parts=numbers(1, 234, 5))),
    ],
)
def test_tuples_lists_and_intervals_of_numbers_need_no_algebra_either(answer, form):
    assert read(answer) == form


@pytest.mark.parametrize(
    "answer", ["(1,x^2)", "(,)", "(1,2", "1,2)", "2x,1", "(1,2]3,4", "x+1", r"\sqrt2\text{ cm}"]
)
def test_other_answers_are_left_to_computer_algebra(answer):
    with pytest.raises(NeedsAlgebra):
        read(answer)


def test_plain_numbers_need_neither_workers_nor_sympy():
    program = """
import sys
from olr_cli.answers import Judge, extract, vote
with Judge() as judge:
    answers = [extract(f"\\\\boxed{{{x}}}") for x in ("12", "12.0", "1,200", "25\\\\%", "(1,2)", "7" * 400, "no")]
    assert vote(answers, judge.keys(answers)).majority_count == 2
    assert judge.matches([("12", "12.0")]) == {("12", "12.0"): True}
    assert judge._pool.process_ids == []
heavy = {"sympy", "math_verify", "antlr4", "latex2sympy2_extended", "torch", "numpy"} & sys.modules.keys()
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True)
