"""Means, paired differences and recovered shares, against scipy and by hand."""

import math

import pytest
from cases import each
from scipy.stats import sem, t, ttest_rel

from olr_cli.analysis import frame as frames
from olr_cli.analysis.frame import Key, difference, mean_cell, recovered, summarise
from olr_cli.tables import Cell

OURS, BASELINE, TOP = (
    {1: 0.5, 2: 0.75, 4: 0.6},
    {1: 0.25, 2: 0.5, 3: 0.1},
    {1: 0.75, 2: 1.0},
)


def test_a_difference_is_paired_by_seed_with_students_interval():
    theirs = {**BASELINE, 4: 0.5}
    found = difference(OURS, theirs)
    expected = ttest_rel([0.5, 0.75, 0.6], [0.25, 0.5, 0.5])
    interval = expected.confidence_interval(0.95)
    assert (found.kind, found.n, found.sd) == ("points", 3, None)
    assert found.value == pytest.approx(0.2)
    assert found.ends == pytest.approx((interval.low, interval.high))
    assert difference(theirs, OURS).value == -found.value


def test_of_one_pair_there_is_no_interval_and_of_none_no_difference():
    assert difference({1: 0.5}, {1: 0.25, 2: 1.0}) == Cell(0.25, "points", n=1)
    assert difference({1: 0.5}, {2: 0.25}) is None


def test_a_recovered_share_is_of_the_seeds_that_all_three_have():
    found = recovered(OURS, BASELINE, TOP)
    assert (found.value, found.ends, found.n, found.sd) == (0.5, (0.5, 0.5), 2, None)
    ours = {1: 0.5, 2: 0.65}
    found = recovered(ours, BASELINE, TOP)
    errors = [(0.25 - 0.4 * 0.5) / 0.5, (0.15 - 0.4 * 0.5) / 0.5]
    reach = t.ppf(0.975, 1) * sem(errors)
    assert found.value == pytest.approx(0.4)
    assert found.ends == pytest.approx((0.4 - reach, 0.4 + reach))
    assert recovered({3: 0.5}, BASELINE, TOP) is None


@each("gap, is_said", (0.0625, True), (0.05, True), (0.0499, False), (-0.5, False))
def test_of_a_small_gap_no_share_is_said(gap, is_said):
    assert (recovered({1: 0.01}, {1: 0.0}, {1: gap}) is not None) is is_said


def test_a_frame_leaves_out_what_is_not_finite():
    rows = [("a", 1, "m", None, it) for it in (0.5, None, math.nan, math.inf, 0.0)]
    assert frames.frame(rows)["value"].to_list() == [0.5, 0.0]


def test_every_metric_is_summarised_at_each_place_and_compared_where_it_has_a_reference():
    values = frames.frame(
        (arm, seed, "m", at, number + at)
        for at in (1, 2)
        for arm, numbers in (("ours", OURS), ("grpo", BASELINE), ("clean", TOP))
        for seed, number in numbers.items()
    )
    cells = summarise(values, {"ours": "grpo"}, best="clean")
    assert [*cells] == [
        Key("m", arm, at) for at in (1, 2) for arm in ("ours", "grpo", "clean")
    ]
    ours, grpo = cells[Key("m", "ours", 1)], cells[Key("m", "grpo", 1)]
    assert (ours.n, ours.change.value, ours.change.n) == (3, 0.25, 2)
    assert ours.recovered.value == 0.5
    assert (grpo.change, grpo.recovered) == (None, None)
    flat = frames.flat(ours)
    assert (flat["n"], flat["pairs"], flat["difference"]) == (3, 2, 0.25)
    assert frames.flat(grpo)["pairs"] is None


def test_notes_say_what_is_compared_and_what_lacks_an_interval():
    one, two = (Cell(0.5, change=Cell(0.1, "points", n=n)) for n in (1, 2))
    compared = "Differences are to x, in points, ours, paired by seed, with Student's 95 % interval."
    lacks = "One seed gives no sd and no interval: train more seeds."
    assert [*frames.notes_on_differences([None, Cell(0.5)], "x")] == []
    assert [*frames.notes_on_differences([two], "x", "ours, ")] == [compared]
    assert [*frames.notes_on_differences([one, two], "x", "ours, ")] == [compared, lacks]


def test_arms_without_a_common_seed_are_named_if_both_have_values():
    cells = {Key("m", "a"): mean_cell([1.0]), Key("m", "b"): mean_cell([1.0])}
    assert [*frames.without_difference(cells, {"a": "b", "b": "c", "d": "a"})] == [
        "a has no seed in common with b: no paired difference."
    ]
    compared = {**cells, Key("m", "a"): Cell(1.0, change=Cell(0.0))}
    assert [*frames.without_difference(compared, {"a": "b"})] == []
