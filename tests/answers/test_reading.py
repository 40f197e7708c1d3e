r"""Exact numbers and what is made of them, read without computer algebra (R7)."""

import json
import subprocess
import sys
import time
from contextlib import suppress
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest
from cases import each

from olr_cli.answers.algebra import clear_caches
from olr_cli.answers.classes import Form, number
from olr_cli.answers.notation import LONGEST_CACHED, tidied_before, tidy
from olr_cli.answers.numbers import exact_number
from olr_cli.answers.reading import NeedsAlgebra, read

FILE = Path(__file__).parents[1] / "fixtures" / "grading" / "numbers.jsonl"
NUMBERS = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]
"""A number and its spellings in a row; null and what is left to computer algebra in the last."""


@pytest.mark.parametrize(
    ("value", "spelling"), [(row[0], text) for row in NUMBERS for text in row[1:]]
)
def test_every_spelling_of_a_number_is_that_number_and_nothing_else_is_one(value, spelling):
    assert exact_number(tidy(spelling)) == (None if value is None else Fraction(value))


def test_four_hundred_digits_are_exact():
    digits = "7" * 400
    assert exact_number(digits) == int(digits)
    assert read(digits) == read(f"{digits}.0") != read("7" * 399 + "8")


REPEATED = ["\\,", " ", "1 ", "1,", "1,234", "1e", "(", "{", "-", "\\frac", "1/", "5\\%", "\\text{", r"\$", "(A) ",
            r"5\text{ m}", "x = ", "1:", r"\frac{1}{2}", r"\text{is }", "2 million "]  # fmt: skip


@pytest.mark.parametrize("piece", REPEATED)
def test_repetition_takes_neither_quadratic_time_nor_as_many_steps_of_recursion(piece):
    started = time.process_time()
    for start, end in product(("", "5"), ("", "x", "5")):
        with suppress(NeedsAlgebra):
            read(start + piece * (1000 // len(piece)) + end)
    assert time.process_time() - started < 2


@pytest.mark.parametrize("signs", [6, 12, 24, 160])
@pytest.mark.parametrize("answer", ["({})", r"\{{({}), 1\}}", "{}"])
def test_signs_that_stand_for_two_make_no_more_of_a_text_than_its_length(answer, signs):
    text = answer.format(", ".join(rf"\pm{n % 10}" for n in range(1, signs + 1)))
    started = time.process_time()
    form = read(text)
    assert time.process_time() - started < 2
    assert form.kind == ("set" if answer == "{}" else "text")


def numbers(*values):
    return tuple(number(Fraction(value)) for value in values)


def tuple_of(*values):
    return Form("tuple", parts=numbers(*values))


@each(
    "answer, form",
    ("(1,2)", tuple_of(1, 2)),
    (r"\left( \frac12, 0.5, 4/8 \right)", tuple_of("1/2", "1/2", "1/2")),
    (r"\langle 1, 2 \rangle", tuple_of(1, 2)),
    ("2,1", Form("set", parts=numbers(1, 2))),
    (r"\{2,1,2\}", Form("set", parts=numbers(1, 2))),
    ("$1$, $2$", Form("set", parts=numbers(1, 2))),
    ("5, 5", number(Fraction(5))),
    ("[0, 1)", Form("interval", "[)", numbers(0, 1))),
    (r"(-\infty, 3]", Form("interval", "(]", (Form("value", "-oo"), *numbers(3)))),
    (r"(3, \infty)", Form("tuple", parts=(*numbers(3), Form("value", "oo")))),
    ("(1,2),(3,4)", Form("set", parts=(tuple_of(1, 2), tuple_of(3, 4)))),
    ("(1{,}234, 5)", tuple_of(1234, 5)),
    ("1,234, 5", Form("set", parts=numbers(1, 234, 5))),
)
def test_tuples_lists_and_intervals_of_numbers_need_no_algebra_either(answer, form):
    assert read(answer) == form


@each(
    "answer",
    "(1,x^2)",
    "(,)",
    "(1,2",
    "1,2)",
    "2x,1",
    "(1,2]3,4",
    "x+1",
    r"\sqrt2\text{ cm}",
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
    assert judge.matches([("12", "12.0")]) == [True]
    assert judge._pool.process_ids == []
heavy = {"sympy", "math_verify", "antlr4", "latex2sympy2_extended", "torch", "numpy"} & sys.modules.keys()
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@each("length, is_kept", (LONGEST_CACHED, True), (LONGEST_CACHED + 1, False))
def test_what_is_kept_of_answers_is_short_and_a_worker_forgets_it(length, is_kept):
    clear_caches()
    read("7" * length)
    assert tidied_before.cache_info().currsize == is_kept
    clear_caches()  # or the calls of a task would depend on the tasks before it (R8)
    assert tidied_before.cache_info().currsize == 0
