r"""Whether an answer is right, given a gold: a verdict about the pair alone (R7, *matches*)."""

import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from samples import SHARED, needs_shared

from olr_cli.answers import (
    Judge,
    extract,
    guesses,
    is_match,
    notation,
    other_readings,
    reading,
)
from olr_cli.answers.matching import PLAIN_NUMBER, decide

FIXTURES = Path(__file__).parents[1] / "fixtures"
PAIRS, EXAMPLES = (
    [
        json.loads(line)
        for line in (FIXTURES / "grading" / name).read_text("utf-8").splitlines()
    ]
    for name in ("pairs.jsonl", "examples.jsonl")
)
"""Verdict, kind, gold and answer: what a fair grader accepts and rejects, and what is undecided (null)."""
ALL = [(gold, answer) for _, _, gold, answer in PAIRS]


def test_verdicts_are_a_fair_graders(judge):
    found = zip(PAIRS, judge.matches(ALL), strict=True)
    assert [(*case, now) for case, now in found if now is not case[0]] == []


def test_every_example_beside_the_code_is_decided_as_it_says(judge):
    verdicts = judge.matches((gold, answer) for *_, gold, answer in EXAMPLES)
    found = zip(EXAMPLES, verdicts, strict=True)
    assert [(*case, now) for case, now in found if now is not case[0]] == []


@settings(max_examples=40)
@given(st.lists(st.sampled_from(ALL), min_size=1, max_size=8), st.randoms())
def test_a_verdict_depends_on_its_pair_alone(judge, asked, rng):
    alone = [verdict for pair in asked for verdict in judge.matches([pair])]
    company = [(rng.choice(ALL)[0], rng.choice(ALL)[1]) for _ in range(4)]
    assert judge.matches([*company, *asked])[4:] == alone


def test_every_answer_is_right_where_it_is_the_gold(judge):
    texts = {text for pair in ALL for text in pair}
    assert set(judge.matches((text, text) for text in texts)) == {True}


@pytest.mark.parametrize(
    "gold, answer", [(r"17.5\%", "17.5"), (r"\text{odd}", r"\text{odd function}")]
)
def test_a_pair_that_some_grader_accepts_in_one_order_may_match_in_both(
    judge, gold, answer
):
    assert judge.matches([(gold, answer)]) == [True]
    assert judge.matches([(answer, gold)]) != [True]
    assert judge.may_match([(gold, answer), (answer, gold)]) == [True, True]


def test_is_match_is_for_one_pair():
    assert is_match(r"\frac{1}{2}", "0.5") and is_match(r"\sqrt{8}", r"2\sqrt{2}")
    assert not is_match("25", "25.5")


JUDGED = [
    FIXTURES / f"{name}.jsonl"
    for name in ("judged_answers", "hardverify", "judged_responses")
]
NOVEMBER = SHARED.parent / "cases/november/answers.jsonl"
"""Kinds beside the usual ones, a few rows each."""

each_corpus = pytest.mark.parametrize(
    "file, name",
    [
        *((file, file.stem) for file in JUDGED),
        pytest.param(NOVEMBER, "kinds", marks=needs_shared),
    ],
)


def stored_misses(name):
    """Return the file with a corpus's misses, relative to the fixtures."""
    return f"grading/misses/{name}.jsonl"


def judged(file):
    """Return the pairs of a corpus that somebody judged: gold, answer, and whether the answer is right."""
    rows = map(json.loads, file.read_text("utf-8").splitlines())
    pairs = [
        (row["gold"], row.get("answer") or extract(row["response"]), row["right"])
        for row in rows
        if row["right"] is not None
    ]
    return [pair for pair in pairs if pair[1]]


def misses(judge, pairs):
    """Return a line for each right answer that is missed, with its verdict, and each wrong one that is accepted.

    The answers are asked for in another order than the file's, on which no verdict may depend.
    """
    order = random.Random(0).sample(range(len(pairs)), len(pairs))
    verdicts = dict(zip(order, judge.matches(pairs[i][:2] for i in order), strict=True))
    return [
        json.dumps([verdicts[i], *pair[:2]], ensure_ascii=False)
        for i, pair in enumerate(pairs)
        if (verdicts[i] is True) != pair[2]
    ]


@pytest.mark.slow
@each_corpus
def test_verdicts_differ_from_a_mathematicians_on_the_stored_pairs_alone(
    judge, is_as_stored, file, name
):
    is_as_stored(stored_misses(name), "\n".join([*misses(judge, judged(file)), ""]))


@each_corpus
def test_every_tenth_verdict_differs_from_a_mathematicians_where_that_is_stored(
    judge, file, name
):
    pairs = judged(file)[::10]
    asked = {(gold, answer) for gold, answer, _ in pairs}
    stored = (FIXTURES / stored_misses(name)).read_text("utf-8").splitlines()
    known = [line for line in stored if tuple(json.loads(line)[1:]) in asked]
    assert sorted(misses(judge, pairs)) == sorted(known)


@pytest.mark.parametrize("file", JUDGED, ids=lambda file: file.stem)
def test_few_of_the_stored_pairs_are_missed_and_hardly_any_is_accepted(file):
    right = {(gold, answer): is_right for gold, answer, is_right in judged(file)}
    stored = (FIXTURES / stored_misses(file.stem)).read_text("utf-8").splitlines()
    amiss = Counter(right[gold, answer] for _, gold, answer in map(json.loads, stored))
    made = Counter(right.values())
    assert amiss[True] <= 0.04 * made[True] and amiss[False] <= 0.005 * made[False]


def test_a_tolerance_is_for_numbers_that_are_no_integers_and_changes_no_class(judge):
    pairs = {(r"\frac{600}{7}", "85.71"): True, ("85.71", r"\frac{600}{7}"): True, ("1.414", r"x=\sqrt2"): True,
             (r"5.1\text{ cm}", r"5.12\text{ cm}"): True, ("(0.33, 2)", r"(\frac13, 2)"): True, ("100", "101"): False,
             ("85.71", "87"): False, (r"5.1\text{ cm}", r"5.1\text{ m}"): False, ("x", "1.01x"): False}  # fmt: skip
    with Judge(workers=1, tolerance=0.011) as tolerant:
        assert tolerant.matches(pairs) == judge.matches(pairs, 0.011) == [*pairs.values()]
        assert tolerant.matches(pairs, 0) == judge.matches(pairs) != [*pairs.values()]
        keys = tolerant.keys(["85.71", r"\frac{600}{7}"])
    assert len(set(keys.values())) == 2


def test_plain_numbers_match_if_they_are_the_same_text(judge):
    numbers = ["0", "1", "7", "10", "70", "100", "1000", "999999999999999", "2024"]
    assert all(re.fullmatch(PLAIN_NUMBER, number) for number in numbers)
    assert not any(
        re.fullmatch(PLAIN_NUMBER, text)
        for text in ["07", "1/2", "7\n", "-7", "", "٣", "1" * 16]
    )
    pairs = [(one, other) for one in numbers for other in numbers]
    assert judge.matches(pairs) == [one == other for one, other in pairs]


def test_verdicts_are_in_the_order_of_the_pairs(judge):
    pairs = [
        ("x+1", "1+x"),
        ("5", "5.0"),
        ("5", "6"),
        ("x+1", "1+x"),
        ("6", "5"),
        (r"\foo{", "5"),
    ]
    assert judge.matches(iter(pairs)) == [True, True, False, True, False, None]


DIGITS = st.text("0123456789.,-", max_size=8) | st.decimals(-99, 99, places=2).map(str)
SPELLED = st.sampled_from(
    (
        "{}",
        "${}",
        "{}$",
        r"\boxed{{{}}}",
        "{} cm",
        r"{}\%",
        "x = {}",
        r"{} \approx 3.1",
        r"\mathcal{{A}}{}",
        "~{}",
    )
)
NUMBERS = st.builds(str.format, SPELLED, DIGITS)


def decided(gold, answer):
    """Return the verdict, or the name of what is raised where only algebra knows it."""
    try:
        return decide("matches", gold, answer), decide("key", answer)
    except reading.NeedsAlgebra as error:
        return type(error).__name__


@settings(max_examples=500)
@given(NUMBERS, NUMBERS)
def test_plain_decimals_and_what_was_read_before_change_no_verdict(gold, answer):
    first = decided(gold, answer)
    with pytest.MonkeyPatch.context() as patch:
        for module in (guesses, other_readings):
            patch.setattr(module, "PLAIN_DECIMAL", re.compile("(?!)"))
        for module in (notation, reading):
            patch.setattr(module, "LONGEST_CACHED", -1)
        assert decided(gold, answer) == first
    assert decided(gold, answer) == first
