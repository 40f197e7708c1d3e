"""Slope and historical majority are what the paper's equations say, exactly (R11 to R13)."""

from fractions import Fraction

import pytest
from cases import each
from hypothesis import given, strategies as st
from scipy.stats import linregress

from olr_cli.answers import Vote
from olr_cli.supervision import History, Past


def visits_of(*counts, k=8):
    """Visits whose majority is `a`, with so many of k rollouts; 0: no majority."""
    return [
        Vote.stored("a", "a", count, k) if count else Vote.stored(None, None, 0, k)
        for count in counts
    ]


visits = st.lists(
    st.integers(1, 16).flatmap(
        lambda k: st.integers(0, k).map(lambda count: visits_of(count, k=k)[0])
    ),
    min_size=2,
    max_size=40,
)


@given(visits)
def test_slope_is_the_least_squares_slope(history):
    rates = [visit.majority_count / visit.rollouts for visit in history]
    slope = linregress(range(1, len(history) + 1), rates).slope
    assert float(Fraction(*Past.of(history).slope_ratio)) == pytest.approx(slope, abs=1e-12)
    assert Past.of(history[:1]).slope_ratio == Past().slope_ratio == (0, 1)


def test_slope_meets_a_decimal_threshold_exactly():
    # 2, 2, 4 of 8: a rise of 1/4 over two epochs is a slope of exactly 1/8, which floating point may miss.
    assert Fraction(*Past.of(visits_of(2, 2, 4)).slope_ratio) == Fraction("0.125")


def test_a_visit_without_majority_counts_as_pass_rate_zero():
    past = Past.of(visits_of(8, 0, 8))
    assert (past.slope_ratio[0], past.historical_majority) == (0, "a")


@each(
    "majorities, expected",
    ("", None), ("a", "a"), ("ab", None), ("abb", "b"), ("aabbc", None), ("ABa", "a"), ("abAB", None),
)  # fmt: skip
def test_historical_majority_is_one_class_however_spelled_or_none(majorities, expected):
    past = Past.of(Vote.stored(spelling.lower(), spelling, 3, 8) for spelling in majorities)
    assert past.historical_majority == expected


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "A", "b", None]), st.integers(1, 4), st.integers(4, 6)
        )
    )
)
def test_visits_that_are_added_together_are_the_same_past(history):
    votes, sums = [], {}
    for number, (answer, count, rollouts) in enumerate(history, start=1):
        count = 0 if answer is None else count
        votes.append(Vote.stored(answer and answer.lower(), answer, count, rollouts))
        visits, total, moment = sums.get((answer, rollouts), (0, 0, 0))
        sums[answer, rollouts] = visits + 1, total + count, moment + number * count
    past = Past()
    for (answer, rollouts), (visits, total, moment) in sums.items():
        vote = Vote.stored(answer and answer.lower(), answer, total, rollouts)
        past = past.plus(vote, visits, moment)
    assert past == Past.of(votes)


def test_a_prompt_that_was_never_seen_has_no_past():
    history = History({"p": Past.of(visits_of(3))})
    assert history.of("p").visits == 1
    assert history.of("never seen") == Past()


def test_a_prompts_past_does_not_grow_with_its_visits():
    past = Past.of(Vote.stored(str(n % 3), str(n % 3), 1 + n % 8, 8) for n in range(5000))
    assert past.visits == sum(
        times for spellings in past.majorities.values() for times in spellings.values()
    )
    assert (past.visits, len(past.majorities), past.scale) == (5000, 3, 8)
