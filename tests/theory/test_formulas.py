"""The paper's formulas, as printed and corrected: limits, monotonicity, and where the two part."""

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from scipy.optimize import brentq
from scipy.stats import binom

from benchmarks.theory import formulas

POSITIVE = st.floats(0.01, 10.0)
SHARE = st.floats(0.01, 0.99)


@given(POSITIVE, POSITIVE, POSITIVE)
def test_the_drift_is_zero_at_the_critical_ratio_and_falls_with_noise(gamma, clean, noisy):
    critical = formulas.critical_ratio(gamma, clean, noisy)
    assert 0 < critical < 1
    assert formulas.drift(critical, gamma, clean, noisy) == pytest.approx(0, abs=1e-9)
    assert (
        formulas.drift(0.9 * critical, gamma, clean, noisy)
        > 0
        > formulas.drift(1, gamma, clean, noisy)
    )


@given(POSITIVE, POSITIVE, POSITIVE)
def test_the_critical_ratio_rises_with_the_coupling_from_0_to_1(gamma, clean, noisy):
    assert formulas.critical_ratio(0.0, clean, noisy) == 0
    assert formulas.critical_ratio(1.1 * gamma, clean, noisy) > formulas.critical_ratio(
        gamma, clean, noisy
    )
    assert formulas.critical_ratio(1e9, clean, noisy) == pytest.approx(1, abs=1e-4)


@given(st.integers(0, 1000), st.floats(1.0, 1000.0))
def test_only_the_normalised_coupling_does_not_depend_on_the_gradients_length(seed, scale):
    generator = np.random.default_rng(seed)
    shared = generator.normal(size=6)
    clean, noisy = (shared + generator.normal(size=(count, 6)) for count in (4, 3))
    one, scaled = (
        formulas.coupling(clean, noisy),
        formulas.coupling(scale * clean, scale * noisy),
    )
    pairs = np.mean([c @ n for c in clean for n in noisy])
    assert one.printed == pytest.approx(pairs)
    assert one.normalised == pytest.approx(pairs / np.mean([n @ n for n in noisy]))
    assert scaled.printed == pytest.approx(scale**2 * one.printed)
    assert scaled.normalised == pytest.approx(one.normalised)


def test_large_gradients_make_every_noise_ratio_tolerable_as_printed():
    gradients = np.full((2, 100), 10.0)
    printed = formulas.critical_ratio(
        formulas.coupling(gradients, gradients).printed, 1.0, 1.0
    )
    normalised = formulas.critical_ratio(
        formulas.coupling(gradients, gradients).normalised, 1.0, 1.0
    )
    assert printed > 0.9999
    assert normalised == pytest.approx(0.5)


@given(POSITIVE, st.floats(-5, 5), st.floats(0.1, 5))
def test_the_corrected_kl_drift_is_zero_at_the_reference_and_pulls_toward_it(
    beta, reference, distance
):
    assert formulas.kl_drift(beta, reference, reference) == 0
    assert formulas.kl_drift(beta, reference + distance, reference) < 0
    assert formulas.kl_drift(beta, reference - distance, reference) > 0


@given(POSITIVE, st.floats(0.1, 5))
def test_the_printed_kl_drift_pushes_even_the_reference_itself(beta, reference):
    assert formulas.kl_drift_printed(beta, reference) == pytest.approx(-beta * reference)


@given(POSITIVE, POSITIVE, POSITIVE, POSITIVE, st.floats(0.1, 3))
def test_kl_shifts_the_printed_boundary_down_and_the_corrected_one_up_by_as_much(
    gamma, clean, noisy, beta, reference
):
    arguments = gamma, clean, noisy, beta, reference
    critical = formulas.critical_ratio(gamma, clean, noisy)
    printed, corrected = (
        formulas.kl_critical_ratio_printed(*arguments),
        formulas.kl_critical_ratio(*arguments),
    )
    assert printed < critical < corrected
    assert critical - printed == pytest.approx(corrected - critical)
    assert formulas.drift(printed, gamma, clean, noisy) + formulas.kl_drift_printed(
        beta, reference
    ) == pytest.approx(0, abs=1e-9)


def test_at_the_corrected_boundary_the_log_ratio_comes_to_rest_at_0():
    gamma, clean, noisy, beta, reference = 0.5, 0.6, 0.7, 0.1, 0.4
    critical = formulas.kl_critical_ratio(gamma, clean, noisy, beta, reference)

    def rest(ratio):
        force = formulas.drift(ratio, gamma, clean, noisy)
        return brentq(
            lambda at: float(force + formulas.kl_drift(beta, at, reference)), -100, 100
        )

    assert rest(critical) == pytest.approx(0, abs=1e-9)
    assert rest(critical - 0.01) > 0 > rest(critical + 0.01)


@given(SHARE, SHARE)
def test_olr_moves_the_boundary_to_where_the_effective_ratio_is_critical(
    critical, replaced
):
    moved = formulas.olr_critical_ratio(critical, replaced)
    assert moved > critical
    assert formulas.effective_ratio(moved, replaced) == pytest.approx(critical)
    assert formulas.olr_critical_ratio(critical, 0.0) == critical


@given(SHARE, SHARE, st.booleans())
def test_advantage_magnitudes_grow_with_rollouts_to_their_limit(p, q, normalised):
    assume(p + q <= 1)
    counts = np.array([1, 2, 4, 16, 256, 4096])
    found = formulas.advantage_magnitude(p, q, counts, normalised=normalised)
    limit = formulas.advantage_magnitude(p, q, normalised=normalised)
    assert found[0] == pytest.approx(0, abs=1e-12), "a single rollout has no advantage"
    assert (np.diff(found) > 0).all()
    assert found[-1] < limit
    assert found[-1] == pytest.approx(limit, rel=0.05)


@given(SHARE, SHARE, st.integers(2, 200))
def test_without_normalisation_rollouts_leave_the_critical_ratio_alone(p, q, rollouts):
    assume(p + q <= 1)

    def critical(count):
        clean, noisy = (
            formulas.advantage_magnitude(*pair, count, normalised=False)
            for pair in ((p, q), (q, p))
        )
        return formulas.critical_ratio(0.5, clean, noisy)

    assert critical(rollouts) == pytest.approx(critical(None))


def test_normalised_advantages_of_few_rollouts_weaken_the_rarer_answer_more():
    clean, noisy = (
        formulas.advantage_magnitude(*pair, 4) / formulas.advantage_magnitude(*pair)
        for pair in ((0.4, 0.1), (0.1, 0.4))
    )
    assert noisy < clean < 1


@given(st.integers(2, 1000), st.integers(2, 10_000), st.floats(0.001, 0.5))
def test_the_corrected_deviation_a_step_shrinks_with_steps_where_the_printed_one_grows(
    rollouts, steps, failure
):
    for deviation, falls in (
        (formulas.deviation, True),
        (formulas.deviation_printed, False),
    ):
        assert (
            deviation(rollouts, 2 * steps, failure) < deviation(rollouts, steps, failure)
        ) == falls
        assert deviation(4 * rollouts, steps, failure) == pytest.approx(
            deviation(rollouts, steps, failure) / 2
        )


def test_sums_of_bounded_noise_stay_within_the_corrected_deviation():
    rollouts, steps, failure = 8, 50, 0.05
    noise = (
        np.random.default_rng(0).integers(0, 2, (4000, steps, rollouts)).mean(axis=2) - 0.5
    )
    sums = np.abs(noise.cumsum(axis=1))
    allowed = formulas.deviation(rollouts, np.arange(1, steps + 1), failure) * np.arange(
        1, steps + 1
    )
    assert (sums > allowed).any(axis=1).mean() <= failure


@given(SHARE, POSITIVE, POSITIVE)
def test_what_is_guaranteed_is_where_the_drift_equals_the_deviation(
    deviation, gamma, noisy
):
    clean = 0.7
    critical = formulas.critical_ratio(gamma, clean, noisy)
    ratio = formulas.guaranteed_ratio(critical, deviation, gamma * clean, noisy)
    assert ratio < critical
    assert formulas.drift(ratio, gamma, clean, noisy) == pytest.approx(deviation)


@given(POSITIVE, POSITIVE, POSITIVE)
def test_pushes_cancel_at_the_critical_ratio_where_noisy_prompts_push_as_the_paper_has_it(
    gamma, clean, noisy
):
    assert formulas.balanced_ratio(gamma * clean, -noisy) == pytest.approx(
        formulas.critical_ratio(gamma, clean, noisy)
    )


def test_the_footnote_gives_the_papers_number():
    assert formulas.all_realised(0.5, 8, 400) == pytest.approx(0.21, abs=0.005)
    assert formulas.all_realised(0.5, 8, 1) == pytest.approx(1 - 0.5**8)


def _error_of_two(true, rollouts):
    """The chance that the other of two answers gets at least half of the rollouts."""
    return binom.cdf(rollouts / 2, rollouts, true)


@given(st.floats(0.5, 0.999), st.integers(1, 400))
def test_chernoffs_bound_holds_for_two_answers(true, rollouts):
    bound = formulas.selection_error(rollouts, true, 1 - true)
    assert _error_of_two(true, rollouts) <= bound * (1 + 1e-9)


def test_no_constant_makes_the_printed_selection_error_a_bound_for_two_answers():
    rollouts = np.array([50, 200, 800])
    excess = _error_of_two(0.6, rollouts) / formulas.selection_error_printed(rollouts, 0.2)
    assert (np.diff(excess) > 0).all()
    assert excess[-1] > 1e4
