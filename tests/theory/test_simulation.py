"""The simulated log-ratio: closed forms where there are any, seeds, and what OLR and KL change."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.theory import formulas
from benchmarks.theory.simulation import Refinement, Simulation, simulate

RATIOS = np.linspace(0, 1, 6)[:, None]
COUPLINGS = np.array([0.0, 0.4, 1.0])


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize(("true", "noisy"), [(0.4, 0.25), (0.6, 0.1)])
def test_with_many_rollouts_one_step_is_the_papers_drift(normalised, true, noisy):
    setting = Simulation(true, noisy, steps=1, normalised=normalised)
    moved = (
        simulate(setting, RATIOS, COUPLINGS, 10**7, seed=1).log_ratio - setting.reference
    )
    expected = setting.learning_rate * formulas.drift(
        RATIOS, COUPLINGS, *setting.magnitudes()
    )
    assert moved.shape == (6, 3)
    assert moved == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("rollouts", [2, 5])
def test_with_few_rollouts_the_mean_step_is_the_drift_of_the_expected_magnitudes(
    rollouts, normalised
):
    setting = Simulation(steps=1, runs=20_000, normalised=normalised)
    ratio = np.array([0.0, 0.3, 1.0])
    moved = simulate(setting, ratio, 0.5, rollouts, seed=2).log_ratio - setting.reference
    expected = setting.learning_rate * formulas.drift(
        ratio, 0.5, *setting.magnitudes(rollouts)
    )
    assert moved == pytest.approx(expected, abs=3e-3)


def test_a_policy_on_which_nothing_pushes_stays_the_reference_whatever_kl_is():
    setting = Simulation(beta=0.5)
    outcome = simulate(setting, 1.0, 0.0, 1, seed=3)  # a single rollout has no advantage
    assert outcome.log_ratio == pytest.approx(setting.reference)
    assert outcome.coherent == 1


def test_kl_holds_the_log_ratio_where_the_corrected_drift_is_zero():
    setting = Simulation(beta=2.0, steps=200, learning_rate=0.1)
    end = simulate(setting, RATIOS, 0.5, 10**7, seed=4).log_ratio
    free = formulas.drift(RATIOS, 0.5, *setting.magnitudes())
    # Strong KL keeps the policies, and with them the magnitudes, near the start.
    assert end == pytest.approx(setting.reference + free / setting.beta, abs=0.05)


def test_the_same_seed_gives_the_same_outcome_and_another_one_another():
    setting = Simulation(steps=10)
    one, same, other = (
        simulate(setting, RATIOS, COUPLINGS, 4, seed).log_ratio for seed in (5, 5, 6)
    )
    assert (one == same).all()
    assert (one != other).any()


@pytest.mark.parametrize("normalised", [True, False])
def test_below_the_critical_ratio_the_true_answer_gains_at_first_and_above_it_loses(
    normalised,
):
    setting = Simulation(normalised=normalised)
    ratio = (np.arange(20) + 0.5)[:, None] / 20
    coupling = np.array([0.2, 0.5, 0.8, 1.0])
    rises = simulate(setting, ratio, coupling, 64, seed=7).rises
    below = ratio < formulas.critical_ratio(coupling, *setting.magnitudes())
    assert ((rises >= 0.5) == below).mean() >= 0.95


def test_without_kl_noisy_labels_win_late_where_the_true_answer_gained_early():
    setting = Simulation()
    outcome = simulate(setting, 0.25, 0.5, 64, seed=8)
    assert formulas.critical_ratio(0.5, *setting.magnitudes()) > 0.3
    assert outcome.rises == 1
    assert outcome.coherent == 0
    assert simulate(replace(setting, beta=0.2), 0.25, 0.5, 64, seed=8).coherent == 1


def test_olr_keeps_what_the_true_answers_gained():
    setting = Simulation(refinement=Refinement())
    outcome = simulate(setting, np.array([0.25, 0.8]), 0.5, 64, seed=9)
    assert outcome.coherent.tolist() == [1, 0]
    assert outcome.replaced[0] > 0.9
    assert outcome.replaced[1] < 0.1


def test_no_label_is_replaced_before_warm_up_ends_or_below_the_slope():
    for rule in (Refinement(warmup=100), Refinement(slope=1.0)):
        refined = simulate(Simulation(refinement=rule), RATIOS, 0.5, 8, seed=10)
        given = simulate(Simulation(), RATIOS, 0.5, 8, seed=10)
        assert (refined.replaced == 0).all()
        assert (refined.log_ratio == given.log_ratio).all()
