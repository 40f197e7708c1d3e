"""What `verify` says of an answer: right, wrong, or why it cannot be scored."""

from decimal import Decimal

import numpy as np
from cases import each

from olr_cli.answers import Verdict, is_match, judge, parse, verify


@each(
    "gold, answer, verdict",
    ("0.5", r"\frac{1}{2}", Verdict.RIGHT), (["1", "2"], "2", Verdict.RIGHT),
    (r"(x+1)^2", "x^2+2x+1", Verdict.RIGHT), (r"\frac{1}{", r"\frac{1}{", Verdict.RIGHT), ("5", "6", Verdict.WRONG),
    (["1", "2"], "3", Verdict.WRONG), ("5", "five or so", Verdict.WRONG), ("5", None, Verdict.NO_ANSWER),
    (r"\frac{1}{", None, Verdict.NO_GOLD), (r"\frac{1}{", "1", Verdict.NO_GOLD), (None, "1", Verdict.NO_GOLD),
    ([], "1", Verdict.NO_GOLD), ([r"\frac{1}{", "2"], "2", Verdict.RIGHT),
    ([r"\frac{1}{", "2"], None, Verdict.NO_ANSWER), ("5", "1" * 2000, Verdict.UNREAD),
    ("5", r"\frac{1}{", Verdict.UNREAD), ("5", "10^{10^{10}}", Verdict.TOO_LARGE),
    ("23,5", "23.5", Verdict.TWO_READINGS), ("5", "5 = 6", Verdict.UNDECIDED),
    (r"\infty", r"not \infty", Verdict.UNDECIDED), ("mv", "MV", Verdict.UNDECIDED),
)  # fmt: skip
def test_a_verdict_is_right_wrong_or_names_why_there_is_none(gold, answer, verdict):
    found = verify(gold, answer)
    assert found is verdict
    assert bool(found) is (verdict is Verdict.RIGHT)
    assert (found.reason is None) is (verdict in (Verdict.RIGHT, Verdict.WRONG))


@each(
    "label", "None", "N/A", "n/a", "NA", "nan", "NaN", "<NA>", "NaT", "null", "NULL", "notfound", "Not found", "proof",
    "Proof.", "#REF!", "#DIV/0!", "#VALUE!", "#NAME?", "#NUM!", "#N/A", "#NULL!", "#WERT!", "Err:502", "####", "TBD",
    "todo", "???", "-", "...", "", " ", " None ", r"$\text{N/A}$", "no answer", "see the solution",
    "__NoCorrectAnswer__", "N.A.", "—", "#REF", "<null>", "(None)", r"$\text{None}$", "None.",
    "k.A.", "k. A.", "unbekannt", "Unbekannt.", "inconnu", "desconocido", "неизвестно", "н/д", "未知", "不明", "略。",
    "#NV", "#N/D", "#¡VALOR!", "#¿NOMBRE?", "#ЗНАЧ!", "Loading...",
)  # fmt: skip
def test_who_repeats_a_placeholder_is_never_right(label):
    for answer in (label, label.strip(), "7"):
        assert verify(label, answer) is verify([label, label], answer) is Verdict.NO_GOLD
    assert (
        verify([label, "7"], "7") is Verdict.RIGHT
        and verify([label, "7"], label) is not Verdict.RIGHT
    )


@each(
    "label",
    "none",
    "unknown",
    "undefined",
    "DNE",
    "no solution",
    r"\infty",
    "Na",
    "error",
    "not given",
    "нет",
    "无解",
    "nil",
    "True",
    "0",
)
def test_words_that_are_answers_too_are_no_placeholders(label):
    assert verify(label, label) is Verdict.RIGHT


@each(
    "gold, answer",
    (7, "7"), ("7", 7), (7, 7.0), (0, "0"), ([7, 8], 8), ((None, "7"), 7), (np.int64(7), "7"), (np.array([7, 8]), "8"),
    (np.float32(0.1), "0.1"), (0.5, r"\frac12"), (Decimal("0.50"), "1/2"), (1e16, "10000000000000000"),
)  # fmt: skip
def test_a_number_counts_as_it_is_written(gold, answer):
    assert verify(gold, answer) is Verdict.RIGHT and verify(gold, "6") is Verdict.WRONG
    assert is_match(7, answer) is (answer in ("7", 7))  # type: ignore[arg-type]


def test_a_response_that_is_missing_claims_nothing():
    assert parse(None) is None and verify(7, parse(None)) is Verdict.NO_ANSWER


def test_a_verdict_that_takes_too_much_work_is_given_up(monkeypatch):
    with judge.Judge(workers=1, time_limit=0.2) as impatient:
        monkeypatch.setattr("olr_cli.answers.graded.shared_judge", lambda: impatient)
        assert verify("1", r"\sum_{k=1}^{10^9} \frac{1}{k^2+1}") is Verdict.TOO_MUCH_WORK


def test_what_the_question_asks_for_and_a_tolerance_may_be_given():
    assert verify("30", r"30\%", in_percent=True)
    assert not verify("30", r"30\%")
    assert verify(r"\frac{600}{7}", "85.71", tolerance=0.01)
    assert not verify(r"\frac{600}{7}", "85.71")


def test_an_answer_is_parsed_from_whatever_marks_it():
    assert (
        parse(r"so \boxed{7}")
        == parse("#### 7")
        == parse("so **7**")
        == parse("Answer: 7")
        == "7"
    )
    assert parse("#### 7", "boxed") is parse("I think 7") is None
