"""From log odds to confidences, what trusted labels do to them, and what they add up to."""

import numpy as np
import polars as pl
import pytest

from olr_cli.analysis.audit.confidence import (
    OTHER,
    Calibrations,
    Prior,
    TrustedLabels,
    auroc,
    brier,
    calibration,
    calibrations,
    priors,
    quality,
    selection,
)
from olr_cli.analysis.audit.forecast import forecast

PRIOR = ((1.0, Prior(0.0, 0.0, 1.0, 0.5)),)
WIDE = ((1.0, Prior(-1.0, -0.5, 2.0, 1.0)),)


def drawn(intercept, slope, size, seed=0):
    rng = np.random.default_rng(seed)
    log_odds = rng.normal(0, 3, size)
    return log_odds, rng.random(size) < 1 / (1 + np.exp(-intercept - slope * log_odds))


def mean(maps):
    return float(maps.weights @ maps.intercepts), float(maps.weights @ maps.slopes)


@pytest.mark.parametrize(("intercept", "slope"), [(0.0, 1.0), (1.5, 0.4), (-1.0, 2.0)])
def test_many_outcomes_leave_the_map_that_they_were_drawn_with(intercept, slope):
    assert mean(calibration(WIDE, *drawn(intercept, slope, 20_000))) == pytest.approx(
        (intercept, slope), rel=0.1, abs=0.1
    )


def test_without_outcomes_the_maps_are_those_of_the_prior():
    maps = calibration(WIDE, np.empty(0), np.empty(0, dtype=bool))
    assert mean(maps)[0] == pytest.approx(-1)
    assert maps.weights @ (maps.intercepts + 1) ** 2 == pytest.approx(2**2, rel=0.05)
    assert maps.weights @ (np.log(maps.slopes) + 0.5) ** 2 == pytest.approx(1**2, rel=0.05)


def test_confidences_keep_order_and_what_is_not_a_number_and_are_never_certain():
    values = calibration(PRIOR, *drawn(0, 1, 50)).apply(np.array([-30.0, -1.0, np.nan, 2.0, 30.0]))
    assert np.isnan(values[2])
    assert (np.diff(values[[0, 1, 3, 4]]) > 0).all()
    assert values[0] > 0 and values[4] < 1


def test_outcomes_say_which_part_of_the_prior_holds():
    mixture = ((0.75, Prior(0.0, 0.0, 0.5, 0.3)), (0.25, Prior(0.0, -3.0, 0.5, 0.3)))
    assert calibration(mixture, np.empty(0), np.empty(0, dtype=bool)).of_parts == pytest.approx([0.75, 0.25])
    for slope, shares in [(1.0, [1, 0]), (0.05, [0, 1])]:
        assert calibration(mixture, *drawn(0, slope, 100)).of_parts == pytest.approx(shares, abs=0.01)


def test_a_policy_that_is_unlike_the_toys_is_so_in_all_its_maps():
    """Wrong labels say that of it here; its proposals, none of which is verified, share it."""
    log_odds, is_wrong = drawn(0, 0.05, 100)
    trusted = TrustedLabels((None,) * 100, is_wrong.astype(float))
    unknown = np.full(100, np.nan)
    prior = priors(is_training=True, is_doubtful=False)
    before = calibrations(prior, None, log_odds, log_odds, unknown)
    after = calibrations(prior, trusted, log_odds, log_odds, unknown)
    for maps, share in [(before, OTHER), (after, 1.0)]:
        for one in (maps.wrong, maps.proposal, maps.unlabelled):
            assert one.of_parts[1] == pytest.approx(share, abs=0.01)
        assert maps.joint_weights.sum() == pytest.approx(1)
        assert maps.joint_weights.sum(axis=1) == pytest.approx(maps.wrong.weights)
        assert maps.joint_weights.sum(axis=0) == pytest.approx(maps.proposal.weights)
    assert after.proposal.apply(np.array([3.0]))[0] < before.proposal.apply(np.array([3.0]))[0]


def test_few_outcomes_move_the_maps_a_little_and_many_all_the_way():
    log_odds, is_true = drawn(1.5, 0.1, 5000)
    slopes = [mean(calibration(PRIOR, log_odds[:n], is_true[:n]))[1] for n in (0, 5, 50, 5000)]
    assert slopes == sorted(slopes, reverse=True)
    assert slopes[0] > 0.9 and slopes[-1] == pytest.approx(0.1, abs=0.03)


def test_outcomes_against_the_order_never_turn_it_round():
    log_odds = np.linspace(-5, 5, 40)
    assert 0 < mean(calibration(PRIOR, log_odds, log_odds < 0))[1] < 0.2


@pytest.mark.parametrize("size", [0, 25, 400])
def test_intervals_hold_shares_that_the_prior_draws_about_as_often_as_they_say(size):
    """Histories whose maps are drawn from the prior itself, some labels of which are verified."""
    rng = np.random.default_rng(size)
    held = np.zeros(2)
    histories = 200
    for _ in range(histories):
        log_odds = rng.normal(0, 3, 300)
        map_of = rng.normal(0, 1), np.exp(rng.normal(0, 0.5))
        is_wrong = rng.random(300) < 1 / (1 + np.exp(-map_of[0] - map_of[1] * log_odds))
        known = rng.permutation(300) < size
        maps = calibration(PRIOR, log_odds[known], is_wrong[known])
        certain = calibration([(1.0, Prior(20.0, 0.0, 0.01, 0.01))], np.empty(0), np.empty(0, dtype=bool))
        confidence = np.where(known, is_wrong, maps.apply(log_odds))
        table = pl.DataFrame(
            {
                "status": ["fine"] * 300,
                "is_trusted": known,
                "confidence": confidence,
                "proposal_confidence": np.ones(300),
                "log_odds": log_odds,
                "proposal_log_odds": np.zeros(300),
                "change": np.where(confidence >= 0.5, "changed", "kept"),
            }
        )
        expected = forecast(table, Calibrations(maps, certain, certain))
        after = np.where(
            confidence >= 0.5, is_wrong, ~is_wrong
        ).mean()  # proposals are right if labels are wrong
        for number, (estimate, true) in enumerate(
            [(expected.ratio, is_wrong.mean()), (expected.after, after)]
        ):
            assert estimate.low <= estimate.mean <= estimate.high
            held[number] += estimate.low - 1e-9 <= true <= estimate.high + 1e-9
    assert (held >= 0.9 * histories).all()


@pytest.mark.parametrize(
    ("chosen", "share"), [(range(85, 100), 1.0), (range(15), 0.0), (range(0, 100, 7), None)]
)
def test_verified_labels_that_are_all_in_doubt_or_all_beyond_it_are_no_random_draw(chosen, share):
    is_wrong = np.full(100, np.nan)
    is_wrong[list(chosen)] = 1
    assert selection(TrustedLabels((None,) * 100, is_wrong), np.arange(100.0)) == share


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
