r"""Which part of a response is its answer (R6)."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from olr_cli.answers import EXTRACTORS, default_extractor, extract
from olr_cli.errors import UserError


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"so \boxed{42}.", "42"),
        (r"\boxed{1} or rather \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed {7}", "7"),
        ("\\boxed\n{7}", "7"),
        (r"\boxed{ 7 }", "7"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ x : x > 0 \right\}}", r"\left\{ x : x > 0 \right\}"),
        (r"\boxed{[0, 1\}}", r"[0, 1\}"),
        (r"\boxed{a \\{b}}", r"a \\{b}"),
        (r"\\boxed{5}", "5"),
        (r"\\boxed{5} then \boxed{34", "5"),
        (r"\boxed{a \\boxed{b} c} \boxed{", "b"),
        (r"$\boxed{\boxed{5}}$", "5"),
        (r"\boxed{first} and \boxed{second \boxed{third}", "third"),
        (r"\boxed{12} then \boxed{34", "12"),
        (r"\frac{1}{ \boxed{3}", "3"),
        (r"} \boxed{3} }", "3"),
        ("\\boxed{\ud800}", "\ud800"),
    ],
)
def test_the_answer_is_the_content_of_the_last_complete_box(response, answer):
    assert extract(response) == answer


@pytest.mark.parametrize(
    "response",
    ["", "no box", r"\boxed", r"\boxed 5", r"\boxed{", r"\boxed{}", "\\boxed{ \n }", r"\fbox{5}", "The answer is 42.",
     r"\boxed{5} no: \boxed{}"],
)  # fmt: skip
def test_a_response_whose_last_box_is_not_filled_has_no_answer(response):
    assert extract(response) is None


@pytest.mark.parametrize(
    "response",
    [
        "\\boxed{" * 40_000,
        "\\boxed{" * 40_000 + "5}",
        "\\boxed{" + "{" * 10_000 + "}" * 10_000 + "}",
        "\\boxed{" + "x" * 1_000_000 + "}",
        "x" * 1_000_000,
        "\\boxed " * 150_000,
        "\\boxed{5}" + "\\boxed{" * 40_000,
        "\\" * 1_000_000,
        "{}" * 500_000,
    ],
    ids=lambda response: response[:16],
)
def test_a_megabyte_is_searched_in_linear_time(response):
    started = time.process_time()
    extract(response)
    assert time.process_time() - started < 5


@given(st.text(alphabet="\\{}bx ", max_size=30), st.text(alphabet="ab \\{}", max_size=30))
def test_what_follows_a_closed_box_without_another_box_changes_nothing(before, after):
    assert extract(f"{before} \\boxed{{5}} {after}") == "5"


@given(st.text(max_size=50))
def test_any_text_can_be_searched(response):
    for name in EXTRACTORS:
        answer = extract(response, name)
        assert answer is None or (answer and answer == answer.strip())


@pytest.mark.parametrize(
    ("response", "answer"),
    [("975", "579"), ("5-", "-5"), ("0", "0"), ("0-", "0"), ("021", "120"), ("970", "79"), (" 975\n", "579")],
)
def test_arithmetic_answers_are_read_from_the_least_significant_digit(response, answer):
    assert extract(response, "reversed_digits") == answer


@pytest.mark.parametrize("response", ["", "-", "-5", "5-1", "9 7", "97a", "5.", "٣", "--5"])
def test_anything_but_digits_is_no_arithmetic_answer(response):
    assert extract(response, "reversed_digits") is None


def test_logs_may_hold_the_answer_itself():
    assert extract(" 42 \n", "text") == "42"
    assert extract(" \n", "text") is None


@pytest.mark.parametrize(
    ("source", "extractor"),
    [("arithmetic", "reversed_digits"), ("arithmetic-addition", "reversed_digits"),
     ("arithmetic-subtraction", "reversed_digits"), ("arithmetic-word-problems", "boxed"), ("arithmetics", "boxed"),
     ("local/arithmetic", "boxed"), ("aime", "boxed"), ("", "boxed")],
)  # fmt: skip
def test_the_arithmetic_task_has_its_own_extractor(source, extractor):
    assert default_extractor(source) == extractor


def test_an_unknown_extractor_is_named():
    with pytest.raises(UserError, match=r"'boxd'.*did you mean 'boxed'"):
        extract("5", "boxd")
