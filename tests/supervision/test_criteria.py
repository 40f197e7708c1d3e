"""Slope and historical majority are what the paper's equations say, exactly (R11 to R13)."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import linregress

from olr_cli.supervision.criteria import historical_majority, slope
from olr_cli.supervision.history import History, Past, Visit

visits = st.lists(
    st.integers(1, 16).flatmap(
        lambda k: st.builds(
            lambda count: Visit("a" if count else None, "a" if count else None, count, k), st.integers(0, k)
        )
    ),
    min_size=2,
    max_size=40,
)


@given(visits)
def test_slope_is_the_least_squares_slope(history):
    rates = [visit.majority_count / visit.rollouts for visit in history]
    expected = linregress(range(1, len(history) + 1), rates).slope
    assert float(slope(Past.of(history))) == pytest.approx(expected, abs=1e-12)


def test_slope_of_one_visit_is_zero():
    assert slope(Past.of([Visit("a", "a", 8, 8)])) == 0
    assert slope(Past()) == 0


def test_slope_meets_a_decimal_threshold_exactly():
    # 2, 2, 4 of 8: a rise of 1/4 over two epochs is a slope of exactly 1/8, which floating point may miss.
    history = [Visit("a", "a", 2, 8), Visit("a", "a", 2, 8), Visit("a", "a", 4, 8)]
    assert slope(Past.of(history)) == Fraction("0.125")


@given(visits)
def test_the_stored_double_compares_with_a_decimal_as_the_fraction_does(history):
    exact = slope(Past.of(history))
    for text in ("0.05", "0.02", "0.1", "-0.05", "0", "0.125"):
        assert (float(exact) > float(text)) == (exact > Fraction(text))


def test_a_visit_without_majority_counts_as_pass_rate_zero():
    with_gap = Past.of([Visit("a", "a", 8, 8), Visit(None, None, 0, 8), Visit("a", "a", 8, 8)])
    assert slope(with_gap) == 0
    assert historical_majority(with_gap.majorities) == "a"


@pytest.mark.parametrize(
    ("majorities", "expected"),
    [
        ([], None),
        (["a"], "a"),
        (["a", "b"], None),
        (["a", "b", "b"], "b"),
        (["a", "a", "b", "b", "c"], None),
        ([1, 2, 1], 1),
    ],
)
def test_historical_majority_is_unique_or_none(majorities, expected):
    assert historical_majority(Counter(majorities)) == expected


def test_history_refuses_a_visit_out_of_turn():
    history = History()
    history.add("p", 1, Visit("a", "a", 3, 8))
    with pytest.raises(ValueError, match="visit 3 follows visit 1"):
        history.add("p", 3, Visit("a", "a", 3, 8))
    with pytest.raises(ValueError, match="visit 1 follows visit 1"):
        history.add("p", 1, Visit("a", "a", 3, 8))
    assert history.of("p") == Past.of([Visit("a", "a", 3, 8)])
    assert history.of("never seen") == Past()


def test_a_prompts_past_does_not_grow_with_its_visits():
    past = Past.of([Visit(str(number % 3), str(number % 3), 1 + number % 8, 8) for number in range(5000)])
    assert past.visits == sum(past.times.values()) == 5000
    assert len(past.majorities) == 3
    assert past.scale == 8
