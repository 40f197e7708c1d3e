"""What verified labels say: intervals hold what they should as often as they should."""

import numpy as np
import pytest
from scipy.stats import hypergeom

from olr_cli.analysis.audit.calibration import (
    Verified,
    auroc,
    calibrate,
    is_no_random_draw,
    noise_ratio,
)


def verified(is_wrong, is_drawn):
    return Verified(
        (None,) * len(is_wrong), np.array(is_wrong, dtype=float), np.array(is_drawn)
    )


def of_draw(rng, truth, size):
    """What is known of labels, some of which are drawn."""
    drawn = np.isin(np.arange(len(truth)), rng.choice(len(truth), size, replace=False))
    return verified(np.where(drawn, truth, np.nan), drawn)


def test_the_ratios_interval_holds_the_true_one_about_as_often_as_it_says():
    rng, held = np.random.default_rng(0), []
    for draw in range(1000):
        truth = rng.random(1000) < (0.02, 0.05, 0.1, 0.3, 0.5)[draw % 5]
        found = noise_ratio(
            of_draw(rng, truth, (25, 100)[draw % 2]), np.ones(1000, dtype=bool)
        )
        assert found.low <= found.value <= found.high
        held.append(found.low <= truth.mean() <= found.high)
    assert 0.935 <= np.mean(held) <= 0.975


def test_the_ratios_interval_holds_the_true_one_often_enough_at_every_ratio():
    size, drawn = 400, 50
    for wrong in (4, 8, 20, 32, 48, 120, 200):
        held = 0.0
        for seen in range(min(wrong, drawn) + 1):
            labels = [1.0] * seen + [0.0] * (drawn - seen) + [np.nan] * (size - drawn)
            found = noise_ratio(
                verified(labels, ~np.isnan(labels)), np.ones(size, dtype=bool)
            )
            if found.low <= wrong / size <= found.high:
                held += hypergeom.pmf(seen, size, wrong, drawn)
        assert held > 0.93, wrong


def test_a_ratio_of_which_all_is_known_has_no_width():
    found = noise_ratio(verified([1.0, 0, 0, 0], [True] * 4), np.ones(4, dtype=bool))
    assert found.low == found.value == found.high == 0.25


@pytest.mark.parametrize("picked", [slice(0, 25), slice(375, 400)], ids=["wrong", "right"])
def test_labels_that_were_picked_stand_for_no_others(picked):
    rng, truth, found = np.random.default_rng(0), np.arange(400) < 40, []
    for _ in range(300):
        drawn = of_draw(rng, truth, 50)
        known = drawn.is_wrong.copy()
        known[picked] = truth[picked]
        found.append(noise_ratio(verified(known, drawn.is_drawn), np.ones(400, dtype=bool)))
        assert (
            found[-1].low >= np.nansum(known) / 400
            and found[-1].high <= 1 - np.nansum(1 - known) / 400
        )
    assert np.mean([one.value for one in found]) == pytest.approx(0.1, abs=0.01)
    assert np.mean([one.low <= 0.1 <= one.high for one in found]) > 0.93
    assert noise_ratio(verified(known, [False] * 400), np.ones(400, dtype=bool)) is None


def history(rng, size=500):
    """Log odds, which labels are wrong, and which proposals are right, of maps that the prior may draw."""
    odds = rng.normal(-2, 3, size)
    is_wrong = rng.random(size) < 1 / (
        1 + np.exp(-(rng.normal(-1, 1.5) + np.exp(rng.normal(-0.7, 0.7)) * odds))
    )
    return odds, is_wrong, is_wrong & (rng.random(size) < 0.9)


@pytest.mark.parametrize("from_the_top", [False, True])
def test_the_gains_interval_holds_the_true_one_whichever_labels_were_looked_at(
    from_the_top,
):
    rng, held, shown, histories = np.random.default_rng(3), 0, 0, 60
    for _ in range(histories):
        odds, is_wrong, is_mended = history(rng)
        seen = (
            np.argsort(-odds)[:50] if from_the_top else rng.choice(500, 50, replace=False)
        )
        known, right = np.full(500, np.nan), np.full(500, np.nan)
        known[seen], right[seen] = is_wrong[seen], is_mended[seen]
        maps = calibrate(odds, known, right)
        changed = np.isnan(known) & (odds > 0)
        found, true = (
            maps.gain(odds[changed]),
            (is_mended.astype(int) - ~is_wrong)[changed].sum(),
        )
        held += found.low <= true <= found.high
        shown += found.low > 0
        assert not (found.low > 0 and true < -5)
    assert held / histories > 0.9 and shown


def test_chances_rise_with_the_log_odds_and_follow_what_was_verified():
    odds = np.linspace(-4, 4, 200)
    for share in (0.0, 1.0):
        chances = calibrate(odds, np.full(200, share), np.full(200, np.nan)).chances(
            np.array([-3.0, 0, 3, np.nan])
        )
        assert (np.diff(chances[:3]) > 0).all() and np.isnan(chances[3])
        assert abs(chances[1] - share) < 0.05


def test_nothing_is_gained_where_verified_labels_are_right():
    odds = np.linspace(-6, 6, 100)
    maps = calibrate(odds, np.zeros(100), np.full(100, np.nan))
    is_changed, gain = maps.changes(odds, np.ones(100, dtype=bool))
    assert gain is None and not is_changed.any()


def test_a_draw_from_the_top_is_no_random_draw():
    odds = np.arange(100.0)
    for chosen, is_noticed in (
        (range(85, 100), True),
        (range(15), True),
        (range(0, 100, 7), False),
    ):
        drawn = np.isin(np.arange(100), list(chosen))
        assert (
            is_no_random_draw(verified(np.where(drawn, 1, np.nan), drawn), odds)
            is is_noticed
        )


def test_auroc_counts_pairs_and_ties_half():
    scores, is_true = np.array([0.1, 0.4, 0.4, 0.9]), np.array([False, True, False, True])
    pairs = [(t, f) for t in scores[is_true] for f in scores[~is_true]]
    assert auroc(scores, is_true) == pytest.approx(
        np.mean([(t > f) + (t == f) / 2 for t, f in pairs])
    )
    assert auroc(scores, np.ones(4, dtype=bool)) is None
