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

from olr_cli.answers.algebra import clear_caches, leaf
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


@each(
    "text, kind, parts",
    (r"3\text{ apples}, 2\text{ kg}", "set", "quantity quantity"), ("x = 1", "assignment", "number equation"),
    (r"3\text{ apples}, 2\text{ pears}", "system", "quantity quantity"), ("x = 1, x = 1", "number", ""),
    (r"3\text{ kg}, 2\text{ m}", "system", "quantity quantity"), ("x = 1, x = 2", "set", "number number"),
    (r"3\text{ kg}, 2\text{ kg}", "set", "quantity quantity"), ("x = 3, 5", "set", "number number"),
    (r"x = 3, 5\text{ cm}", "system", "assignment quantity"), ("x = 1, y = 2; x = 3, y = 4", "set", "system system"),
    ("x = 1, y = 2; x = 3, z = 4", "set", "number number number number"),
    ("x = 1; y = 2; x = 3", "set", "number number number"),
    ("x = 1; y = 2", "system", "assignment assignment"), ("(5)", "number", ""), ("[5]", "number", ""),
    (r"(p \lor q)", "other", ""), (r"p \lor q", "other", ""), (r"p \land q", "set", "word word"),
    ("(1, 2]", "interval", "number number"), ("[1, 2, 3]", "tuple", "number number number"), ("(1,)", "text", ""),
    (r"\{\{1\}\}", "text", ""), (r"\{1\}", "number", ""), (r"\{\}", "set", ""),
    (r"\{\pm 1, 2\}", "set", "number number number"),
    (r"(\pm 1, 2)", "set", "tuple tuple"), (r"1 \mp 2", "set", "number number"), (r"2 \pm 1", "set", "number number"),
    ("1:2:3", "tuple", "number number"), ("1:2", "number", ""), ("(A) 5 cm", "choice", "quantity"),
    ("(A) (B) 5", "value", ""),
    ("x = 5 cm", "assignment", "quantity"), (r"5\text{ cm}", "quantity", "number"), ("3-1", "word", ""),
    ("1/2/3", "word", ""),
    (r"x = 3\%", "assignment", "percent"), ("A = B", "text", ""), ("answer = B", "equation", "word text"),
    ("2 = 3", "text", ""),
    ("2 = 2", "equation", "number text"), (r"\frac13 = 0.333", "equation", "number text"),
    (r"\frac13 = 0.34", "text", ""),
    ("0.3 = 0.34", "equation", "number text"), ("0.34 = 0.4", "text", ""), ("2.5 = 3", "text", ""),
    ("2 + 2 = 4 = 5", "text", ""),
    ("3 = x", "assignment", "number equation"), (r"x \in \{1\}", "assignment", "number"), ("2x = 5", "equation", ""),
    ("2x + y = 5", "equation", "number text"), ("|x| = 5", "equation", "number text"), ("x = 2x - 3", "equation", ""),
    ("Alice = Bob", "equation", ""), ("a = 1 or b = 2", "other", ""), ("a = 1 or a = 2", "set", "number number"),
    ("x^2 = 1 or y = 2", "other", ""), ("red or blue", "word", ""), (r"2k, k \in \mathbb{Z}", "value", ""),
    (r"(1, 2)^T", "matrix", "number number"), ("((1, 2), (3, 4))^T", "text", ""), ("(1, 2)", "tuple", "number number"),
    (r"17 \bmod 5", "congruence", "number number"), (r"x \equiv \frac12 \pmod 4", "text", ""),
    (r"x \equiv 1, 3 \pmod 4", "set", "congruence congruence"), (r"3x \equiv 1 \pmod 7", "text", ""),
    ("not 5", "text", ""),
    ("f = ab", "assignment", "value equation"), (r"\text{f} = ab", "assignment", "word"),
    (r"x < 1, y", "set", "other word"),
    (r"(0, 1) \cup [2, 3]", "union", "interval interval"), (r"(0, 1) \cup \{2\}", "union", "interval number"),
    (r"\{x\}", "word", ""), (r"\sqrt2\text{ cm}", "quantity", "value"), (r"(1, 2)\text{ cm}", "text", ""),
)  # fmt: skip
def test_a_text_is_read_as_its_kind(text, kind, parts):
    form = read(text, leaf)
    assert (form.kind, " ".join(part.kind for part in form.parts)) == (kind, parts)


@each(
    "text, guesses",
    ("3-1", ["parts"]), ("x + 1", []), ("abc + 1", ["abc"]), (r"\text{abc} + 1", []), ("answer + 1", ["answer"]),
    ("red and blue", ["?red and blue"]), ("red", []), ("2x + C", ["?2x + C"]), ("2n + 1", []),
    ("5 = 6", ["a contradiction"]), ("10^{10^{9}}", ["too large"]),
)  # fmt: skip
def test_a_form_says_what_was_guessed(text, guesses):
    found = read(text, leaf).guesses
    assert sorted(guess for guess in found if guess in guesses) == guesses
    assert bool(found) == bool(guesses)


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
