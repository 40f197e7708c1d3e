"""The paper's theory of noisy labels as formulas: as printed, and corrected where they do not follow.

Arguments are numbers, or numpy arrays whose shapes fit each other; arrays come back. They are named after the paper's
symbols: ratio rho (noise ratio), coupling gamma (normalised), clean and noisy G_c and G_n (advantage magnitudes, G_n
above 0), beta (coefficient of the KL divergence), log_ratio L (of the true answer to the noisy label), reference
Delta_ref (the reference policy's L), critical rho_c, replaced Delta (share of noisy prompts whose label is replaced),
rollouts K, steps T, failure delta, learning rate eta.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

Numbers = NDArray[np.float64]
Values = float | Numbers
Counts = int | NDArray[np.int64]


@dataclass(frozen=True)
class Coupling:
    """How much a clean prompt's gradient moves a noisy prompt's true answer.

    Attributes:
        printed: E[g_c . g_n], in the units of the parameters.
        normalised: E[g_c . g_n] / E[|g_n|^2], without a unit.
    """

    printed: float
    normalised: float


def coupling(clean: Numbers, noisy: Numbers) -> Coupling:
    """The coupling gamma of Theorem "Early Correctness Coherence" (assumption ii), as printed and normalised.

    Printed is gamma = E[g_c . g_n] with g the gradient of log pi(y*|x). It carries the squared length of the gradients,
    which the noisy prompt's own effect G_n is not multiplied by, so that rho_c is near 1 for any model with large
    gradients; divided by E[|g_n|^2] both effects have one scale. That still takes the labels of all noisy prompts to
    push L as if they were one prompt, which makes rho_c too low where their gradients differ: `balanced_ratio` measures
    both pushes alike (docs/results/theory.md).

    Args:
        clean: gradients of clean prompts, shape (clean prompts, parameters).
        noisy: gradients of noisy prompts, shape (noisy prompts, parameters), not all zero.
    """
    # The mean over all pairs of the products is the product of the means.
    product = float(clean.mean(axis=0) @ noisy.mean(axis=0))
    return Coupling(product, product / float((noisy**2).sum(axis=1).mean()))


def advantage_magnitude(
    rewarded: Values,
    other: Values,
    rollouts: Counts | None = None,
    *,
    normalised: bool = True,
) -> Numbers:
    """G_c or G_n: the expected push on the log-ratio of a prompt's rewarded answer to another, by its own rollouts.

    The paper takes G as given and the advantages of K rollouts as unbiased (Lemma "Log-Ratio Dynamics", step 2).
    Divided by the group's own standard deviation they are not: groups without variance push nothing, so that G falls
    with fewer rollouts, the more the further the rewarded answer's probability is from one half.

    Args:
        rewarded: probability of the answer that is rewarded, in (0, 1).
        other: probability of the answer it is compared to.
        rollouts: None for infinitely many.
        normalised: advantages are divided by the group's standard deviation (GRPO), not raw rewards less their mean.
    """
    p, q = np.asarray(rewarded, dtype=np.float64), np.asarray(other, dtype=np.float64)
    spread = np.sqrt(p * (1 - p)) if normalised else p * (1 - p)
    if rollouts is not None:
        k = np.asarray(rollouts)
        spread = _expected_deviation(p, k) if normalised else spread * (1 - 1 / k)
    # What the rewarded answer wins, the others lose in proportion to their shares of the rest.
    return np.asarray((1 + q / (1 - p)) * spread)


def _expected_deviation(p: Numbers, rollouts: NDArray[np.int64]) -> Numbers:
    p, k = np.broadcast_arrays(p, rollouts)
    hits = np.arange(int(k.max()) + 1)
    share = np.minimum(hits / k[..., None], 1.0)
    chance = binom.pmf(hits, k[..., None], p[..., None])
    return np.asarray((chance * np.sqrt(share * (1 - share))).sum(axis=-1))


def drift(ratio: Values, coupling: Values, clean: Values, noisy: Values) -> Numbers:
    """Delta_s = gamma (1 - rho) G_c - rho G_n of Theorem "Early Correctness Coherence" (assumption iii)."""
    return np.asarray(coupling * (1 - ratio) * clean - ratio * noisy)


def critical_ratio(coupling: Values, clean: Values, noisy: Values) -> Numbers:
    """rho_c = gamma G_c / (gamma G_c + G_n) of Theorem "Early Correctness Coherence": where the drift is zero."""
    pull = coupling * clean
    return np.asarray(pull / (pull + noisy))


def kl_drift_printed(beta: Values, reference: Values) -> Numbers:
    """What "KL-Regularized Dynamics" adds to the drift as printed: -beta Delta_ref.

    It does not depend on L, so that it still pushes a policy that is the reference, where the KL divergence has no
    gradient. `kl_drift` is the corrected term.
    """
    return np.asarray(-beta * reference)


def kl_drift(beta: Values, log_ratio: Values, reference: Values) -> Numbers:
    """What KL regularisation adds to the drift, corrected: -beta (L - Delta_ref).

    The term of `kl_drift_printed` forgets the policy's own log-ratio in log(pi / pi_ref). With it the pull is toward
    Delta_ref from both sides, and zero there: under replicator dynamics (natural gradient). The vanilla gradient of
    softmax logits weighs each answer's pull by its probability, and with three or more answers can have the other sign.
    """
    return np.asarray(-beta * (log_ratio - reference))


def kl_critical_ratio_printed(
    coupling: Values, clean: Values, noisy: Values, beta: Values, reference: Values
) -> Numbers:
    """rho_c^KL = (gamma G_c - beta Delta_ref) / (G_n + gamma G_c) of Theorem "KL-Regularized Phase Boundary".

    It is where the drift with `kl_drift_printed` is zero, not cut off at 0. So KL toward a reference that prefers the
    true answer (Delta_ref > 0) would make training less tolerant of noise; `kl_critical_ratio` has the other sign.
    """
    pull = coupling * clean
    return np.asarray((pull + kl_drift_printed(beta, reference)) / (pull + noisy))


def kl_critical_ratio(
    coupling: Values, clean: Values, noisy: Values, beta: Values, reference: Values
) -> Numbers:
    """The KL-shifted boundary, corrected: (gamma G_c + beta Delta_ref) / (G_n + gamma G_c), not cut off at 1.

    With `kl_drift` the log-ratio does not run away but comes to rest at Delta_ref + Delta_s / beta, and what decides is
    whether that is above 0. (Whether it rises from the reference, where training begins, KL does not change.) So a
    reference that prefers the true answer shifts the boundary up, by as much as
    `kl_critical_ratio_printed` shifts it down.
    """
    pull = coupling * clean
    return np.asarray((pull + kl_drift(beta, 0.0, reference)) / (pull + noisy))


def effective_ratio(ratio: Values, replaced: Values) -> Numbers:
    """rho_eff = rho (1 - Delta) of Theorem "OLR Improves Label Noise Tolerance"; wrong replacements not counted."""
    return np.asarray(ratio * (1 - replaced))


def olr_critical_ratio(critical: Values, replaced: Values) -> Numbers:
    """rho_c^OLR = rho_c / (1 - Delta) of Theorem "OLR Improves Label Noise Tolerance"; not cut off at 1."""
    return np.asarray(critical / (1 - replaced))


def deviation_printed(
    rollouts: Counts, steps: Counts, failure: float, constant: float = 1.0
) -> Numbers:
    """What noise of K rollouts takes from the mean drift, as Theorem "High-Probability ..." has it from Lemma 2.

    Printed is C sqrt(log(T / delta) / K) a step, with probability 1 - delta. But put into the lemma's own Azuma bound
    (step 4), an allowance of t eta C sqrt(log(1 / delta) / K) fails with 2 exp(-t / 2): delta cancels, so that the
    claim holds only from t = 2 log(2 / delta) on. And the allowance grows with t where a sum of t martingale
    differences grows with sqrt(t).

    Returns:
        The allowance divided by eta T, to be compared with `drift`; C, the constant, is left open by the paper.
    """
    return np.asarray(constant * np.sqrt(np.log(steps / failure) / rollouts))


def deviation(
    rollouts: Counts, steps: Counts, failure: float, constant: float = 1.0
) -> Numbers:
    """What noise of K rollouts takes from the mean drift, corrected: C sqrt(log(2 T / delta) / (2 K T)).

    Azuma's inequality on the T K single rollouts, one of which changes a step by at most eta C / K, and a union over
    the steps. Unlike the lemma's, the increments are bounded always, not with high probability; for advantages divided
    by the group's standard deviation such a C exists only where that is bounded away from 0.

    Returns:
        As of `deviation_printed`.
    """
    spread = np.log(2 * steps / failure) / (2 * rollouts * steps)
    return np.asarray(constant * np.sqrt(spread))


def guaranteed_ratio(
    critical: Values, deviation: Values, clean_push: Values, noisy: Values
) -> Numbers:
    """Up to which noise ratio the drift outweighs a deviation: rho_c - deviation / (gamma G_c + G_n).

    At or below 0 nothing is guaranteed. `clean_push` is gamma G_c.
    """
    return np.asarray(critical - deviation / (clean_push + noisy))


def balanced_ratio(clean: Values, noisy: Values) -> Numbers:
    """Where pushes of clean and of noisy prompts on the log-ratio cancel: (1 - rho) clean + rho noisy = 0.

    `critical_ratio` without its assumptions about the two: for pushes measured as gradients, which hold the coupling
    among noisy prompts too, that the paper takes as 1. Pushes are means over prompts: of clean ones above 0, of noisy
    ones below 0.
    """
    return np.asarray(clean / (clean - noisy))


def all_realised(probability: Values, rollouts: Counts, prompts: Counts) -> Numbers:
    """(1 - (1 - p)^K)^n, the footnote on rollout feasibility: every noisy prompt rolls its noisy label out.

    p is that of every noisy prompt's label; n = 1 gives the share of them that is to be expected.
    """
    return np.asarray((1 - (1 - np.asarray(probability)) ** rollouts) ** prompts)


def selection_error_printed(rollouts: Counts, gap: Values) -> Numbers:
    """exp(-K Delta_p^2) of Theorem "OLR Improves Label Noise Tolerance": chance that the majority answer is wrong.

    Printed with an O( ) and unknown constant. The exponent itself is too large where the two likeliest answers share
    most of the probability, see `selection_error`. The gap, Delta_p, is the true answer's probability less that of the
    likeliest wrong answer: L > 0, of the true answer and the noisy label alone, does not make it positive.
    """
    return np.asarray(np.exp(-rollouts * np.square(gap)))


def selection_error(rollouts: Counts, true: Values, other: Values) -> Numbers:
    """Chernoff's bound on the chance that one wrong answer gets at least as many of K rollouts as the true one.

    (1 - (sqrt(p*) - sqrt(p_c))^2)^K, whose exponent is the best one. With p* + p_c = 1 it is (1 - Delta_p^2)^(K / 2),
    so about half the printed exponent. Summed over the wrong answers it bounds the majority's error. p_c, of the
    `other` answer, is not above p*.
    """
    return np.asarray((1 - (np.sqrt(true) - np.sqrt(other)) ** 2) ** rollouts)
