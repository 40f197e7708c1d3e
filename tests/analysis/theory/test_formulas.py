"""The paper's formulas, as printed and corrected: limits, monotonicity, and where the two part."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import brentq

from olr_cli.analysis import theory

POSITIVE = st.floats(0.01, 10.0)
SHARE = st.floats(0.01, 0.99)


@given(POSITIVE, POSITIVE, POSITIVE)
def test_the_drift_is_zero_at_the_critical_ratio_and_falls_with_noise(gamma, clean, noisy):
    critical = theory.critical_ratio(gamma, clean, noisy)
    assert 0 < critical < 1
    assert theory.drift(critical, gamma, clean, noisy) == pytest.approx(0, abs=1e-9)
    assert theory.drift(0.9 * critical, gamma, clean, noisy) > 0 > theory.drift(1, gamma, clean, noisy)


@given(POSITIVE, POSITIVE, POSITIVE)
def test_the_critical_ratio_rises_with_the_coupling_from_0_to_1(gamma, clean, noisy):
    assert theory.critical_ratio(0.0, clean, noisy) == 0
    assert theory.critical_ratio(1.1 * gamma, clean, noisy) > theory.critical_ratio(gamma, clean, noisy)
    assert theory.critical_ratio(1e9, clean, noisy) == pytest.approx(1, abs=1e-4)


@given(st.integers(0, 1000), st.floats(1.0, 1000.0))
def test_only_the_normalised_coupling_does_not_depend_on_the_gradients_length(seed, scale):
    generator = np.random.default_rng(seed)
    shared = generator.normal(size=6)
    clean, noisy = (shared + generator.normal(size=(count, 6)) for count in (4, 3))
    one, scaled = theory.coupling(clean, noisy), theory.coupling(scale * clean, scale * noisy)
    pairs = np.mean([c @ n for c in clean for n in noisy])
    assert one.printed == pytest.approx(pairs)
    assert one.normalised == pytest.approx(pairs / np.mean([n @ n for n in noisy]))
    assert scaled.printed == pytest.approx(scale**2 * one.printed)
    assert scaled.normalised == pytest.approx(one.normalised)


def test_large_gradients_make_every_noise_ratio_tolerable_as_printed():
    gradients = np.full((2, 100), 10.0)
    printed = theory.critical_ratio(theory.coupling(gradients, gradients).printed, 1.0, 1.0)
    normalised = theory.critical_ratio(theory.coupling(gradients, gradients).normalised, 1.0, 1.0)
    assert printed > 0.9999
    assert normalised == pytest.approx(0.5)


@given(POSITIVE, st.floats(-5, 5), st.floats(0.1, 5))
def test_the_corrected_kl_drift_is_zero_at_the_reference_and_pulls_toward_it(beta, reference, distance):
    assert theory.kl_drift(beta, reference, reference) == 0
    assert theory.kl_drift(beta, reference + distance, reference) < 0
    assert theory.kl_drift(beta, reference - distance, reference) > 0


@given(POSITIVE, st.floats(0.1, 5))
def test_the_printed_kl_drift_pushes_even_the_reference_itself(beta, reference):
    assert theory.kl_drift_printed(beta, reference) == pytest.approx(-beta * reference)


@given(POSITIVE, POSITIVE, POSITIVE, POSITIVE, st.floats(0.1, 3))
def test_kl_shifts_the_printed_boundary_down_and_the_corrected_one_up_by_as_much(
    gamma, clean, noisy, beta, reference
):
    arguments = gamma, clean, noisy, beta, reference
    critical = theory.critical_ratio(gamma, clean, noisy)
    printed, corrected = (
        theory.kl_critical_ratio_printed(*arguments),
        theory.kl_critical_ratio(*arguments),
    )
    assert printed < critical < corrected
    assert critical - printed == pytest.approx(corrected - critical)
    assert theory.drift(printed, gamma, clean, noisy) + theory.kl_drift_printed(
        beta, reference
    ) == pytest.approx(0, abs=1e-9)


def test_at_the_corrected_boundary_the_log_ratio_comes_to_rest_at_0():
    gamma, clean, noisy, beta, reference = 0.5, 0.6, 0.7, 0.1, 0.4
    critical = theory.kl_critical_ratio(gamma, clean, noisy, beta, reference)

    def rest(ratio):
        force = theory.drift(ratio, gamma, clean, noisy)
        return brentq(lambda at: float(force + theory.kl_drift(beta, at, reference)), -100, 100)

    assert rest(critical) == pytest.approx(0, abs=1e-9)
    assert rest(critical - 0.01) > 0 > rest(critical + 0.01)


@given(SHARE, SHARE)
def test_olr_moves_the_boundary_to_where_the_effective_ratio_is_critical(critical, replaced):
    moved = theory.olr_critical_ratio(critical, replaced)
    assert moved > critical
    assert theory.effective_ratio(moved, replaced) == pytest.approx(critical)
    assert theory.olr_critical_ratio(critical, 0.0) == critical


@given(SHARE, SHARE, st.booleans())
def test_advantage_magnitudes_grow_with_rollouts_to_their_limit(p, q, normalised):
    assume(p + q <= 1)
    counts = np.array([1, 2, 4, 16, 256, 4096])
    found = theory.advantage_magnitude(p, q, counts, normalised=normalised)
    limit = theory.advantage_magnitude(p, q, normalised=normalised)
    assert found[0] == pytest.approx(0, abs=1e-12), "a single rollout has no advantage"
    assert (np.diff(found) > 0).all()
    assert found[-1] < limit
    assert found[-1] == pytest.approx(limit, rel=0.05)


@given(SHARE, SHARE, st.integers(2, 200))
def test_without_normalisation_rollouts_leave_the_critical_ratio_alone(p, q, rollouts):
    assume(p + q <= 1)

    def critical(count):
        clean, noisy = (
            theory.advantage_magnitude(*pair, count, normalised=False) for pair in ((p, q), (q, p))
        )
        return theory.critical_ratio(0.5, clean, noisy)

    assert critical(rollouts) == pytest.approx(critical(None))


def test_normalised_advantages_of_few_rollouts_weaken_the_rarer_answer_more():
    clean, noisy = (
        theory.advantage_magnitude(*pair, 4) / theory.advantage_magnitude(*pair)
        for pair in ((0.4, 0.1), (0.1, 0.4))
    )
    assert noisy < clean < 1


@given(st.integers(1, 200), st.floats(0.001, 0.5))
def test_lemma_2_fails_as_seldom_as_it_says_only_after_some_steps(steps, failure):
    enough = 2 * np.log(2 / failure)
    assume(abs(steps - enough) > 1e-6)
    assert (theory.failure_printed(steps) <= failure) == (steps > enough)


@given(st.integers(2, 1000), st.integers(2, 10_000), st.floats(0.001, 0.5))
def test_the_corrected_deviation_a_step_shrinks_with_steps_where_the_printed_one_grows(
    rollouts, steps, failure
):
    for deviation, falls in ((theory.deviation, True), (theory.deviation_printed, False)):
        assert (deviation(rollouts, 2 * steps, failure) < deviation(rollouts, steps, failure)) == falls
        assert deviation(4 * rollouts, steps, failure) == pytest.approx(
            deviation(rollouts, steps, failure) / 2
        )


def test_sums_of_bounded_noise_stay_within_the_corrected_deviation():
    rollouts, steps, failure = 8, 50, 0.05
    noise = np.random.default_rng(0).integers(0, 2, (4000, steps, rollouts)).mean(axis=2) - 0.5
    sums = np.abs(noise.cumsum(axis=1))
    allowed = theory.deviation(rollouts, np.arange(1, steps + 1), failure) * np.arange(1, steps + 1)
    assert (sums > allowed).any(axis=1).mean() <= failure


@given(SHARE, POSITIVE, POSITIVE)
def test_what_is_guaranteed_is_where_the_drift_equals_the_deviation(deviation, gamma, noisy):
    clean = 0.7
    critical = theory.critical_ratio(gamma, clean, noisy)
    ratio = theory.guaranteed_ratio(critical, deviation, gamma * clean, noisy)
    assert ratio < critical
    assert theory.drift(ratio, gamma, clean, noisy) == pytest.approx(deviation)
