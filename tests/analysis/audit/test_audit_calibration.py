"""From log odds to confidences, and what trusted labels do to them."""

import numpy as np
import pytest

from olr_cli.analysis.audit.confidence import Calibration, auroc, brier, built_in, fitted, quality


def drawn(intercept, slope, size, seed=0):
    rng = np.random.default_rng(seed)
    log_odds = rng.normal(0, 3, size)
    return log_odds, rng.random(size) < Calibration(intercept, slope).apply(log_odds)


@pytest.mark.parametrize(("intercept", "slope"), [(0.0, 1.0), (1.5, 0.4), (-1.0, 2.0)])
def test_a_fit_finds_the_map_that_outcomes_were_drawn_with(intercept, slope):
    found = fitted(*drawn(intercept, slope, 20_000))
    assert (found.intercept, found.slope) == pytest.approx((intercept, slope), rel=0.1, abs=0.1)


def test_the_map_keeps_order_and_what_is_not_a_number():
    values = Calibration(0.3, 0.7).apply(np.array([-900.0, -1.0, np.nan, 2.0, 900.0]))
    assert np.isnan(values[2])
    assert (np.diff(values[[0, 1, 3, 4]]) > 0).all()


def test_without_outcomes_a_recalibrated_map_is_the_old_one():
    start = Calibration(0.2, 1.1)
    found = fitted(np.array([]), np.array([], dtype=bool), start)
    assert (found.intercept, found.slope) == pytest.approx((0.2, 1.1), abs=1e-4)


def test_few_outcomes_move_the_map_a_little_and_many_all_the_way():
    start = built_in().wrong
    log_odds, is_true = drawn(1.5, 0.1, 5000)
    distance = [abs(fitted(log_odds[:n], is_true[:n], start).slope - 0.1) for n in (0, 5, 50, 5000)]
    assert distance[0] > 0.8 > distance[2] > distance[3]
    assert distance[3] < 0.05


def test_outcomes_against_the_order_never_turn_it_round():
    log_odds = np.linspace(-5, 5, 40)
    found = fitted(log_odds, log_odds < 0, Calibration())
    assert 0 < found.slope < 0.1


def test_the_built_in_maps_rise():
    maps = built_in()
    assert min(maps.wrong.slope, maps.proposal.slope, maps.unlabelled.slope) > 0


def test_auroc_counts_pairs_and_ties_half():
    scores, is_true = np.array([0.1, 0.4, 0.4, 0.9]), np.array([False, True, False, True])
    pairs = [(t, f) for t in scores[is_true] for f in scores[~is_true]]
    assert auroc(scores, is_true) == pytest.approx(np.mean([(t > f) + (t == f) / 2 for t, f in pairs]))
    assert auroc(scores, np.ones(4, dtype=bool)) is None


def test_undecided_wrong_labels_lower_the_recall_and_not_the_precision():
    measured = quality(np.array([0.9, 0.6, 0.2, np.nan]), np.array([True, False, False, True]))
    shares = {"precision": 0.5, "recall": 0.5, "auroc": 1.0}
    assert measured == {"labels": 4, "wrong": 2, "doubted": 2} | shares


def test_an_empty_group_has_no_value():
    measured = quality(np.array([0.1, 0.2]), np.array([False, False]))
    assert [measured[name] for name in ("precision", "recall", "auroc")] == [None] * 3


def test_brier_is_the_mean_squared_error():
    assert brier(np.array([0.5, 1.0]), np.array([True, True])) == 0.125
