"""What is rewarded, the verifier's verdict (R16) or how sure the policy is of its own response; and advantages (R17).

The intrinsic rewards need no label. They are statistics of the policy that sampled, means over response tokens alone;
no gradient flows through them: like the verifier's, they only weigh the tokens' log-likelihood, by their advantage.
(The authors' code averages over padding too and then sums over tokens, which rewards length.)

A response has one score. Rounding gives equal responses scores that differ in the last digits, and dividing by the
group's standard deviation would blow those up to advantages; so equal responses share their mean score. (Equal texts
that were written in other tokens, or ended by another end token, are told apart by their scores.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import fsum

from olr_cli.supervision.types import Rollout, statistics

RewardRule = Callable[[Sequence[bool], Sequence[Rollout]], tuple[float, ...]]
"""Rewards of one view's rollouts, from whether each answer is in the effective label's class, and the rollouts."""

STD_EPSILON = 1e-6
"""Added to the standard deviation of a group's rewards (R17)."""

ROUNDING = 1e-2
"""Nats by which the mean of one response's token statistics may differ between batches, in bfloat16."""


def group_advantages(rewards: Sequence[float]) -> tuple[float, ...]:
    """Eq. 1: (reward - mean) / (std + 1e-6) within a group, with the population std (R17).

    Exactly 0 where all rewards are equal.
    """
    if len(set(rewards)) == 1:
        return (0.0,) * len(rewards)
    mean = fsum(rewards) / len(rewards)
    deviations = [reward - mean for reward in rewards]
    std = (fsum(deviation**2 for deviation in deviations) / len(rewards)) ** 0.5
    return tuple(deviation / (std + STD_EPSILON) for deviation in deviations)


def verifier_reward(hits: Sequence[bool], rollouts: Sequence[Rollout]) -> tuple[float, ...]:
    """1 for an answer in the effective label's class, else 0 (R16)."""
    return tuple(float(hit) for hit in hits)


def self_certainty_reward(hits: Sequence[bool], rollouts: Sequence[Rollout]) -> tuple[float, ...]:
    """Mean over response tokens of KL(uniform || pi) = -log V - mean_v log pi(v), V the vocabulary's size, in nats.

    The paper's baseline Self-Certainty; Zhao et al. 2025, arXiv:2505.19590.
    """
    return tuple(_shared(rollouts, "self_certainty"))


def mean_token_entropy_reward(hits: Sequence[bool], rollouts: Sequence[Rollout]) -> tuple[float, ...]:
    """Minus the mean over response tokens of H(pi) = -sum_v pi(v) log pi(v), in nats.

    The paper's baseline Token-Level Entropy with `score_reduction: mean`: a departure from its source, which sums
    (`token_entropy_reward`).
    """
    return tuple(-entropy for entropy in _shared(rollouts, "entropy"))


def token_entropy_reward(hits: Sequence[bool], rollouts: Sequence[Rollout]) -> tuple[float, ...]:
    """Minus the sum over response tokens of H(pi), in nats, which rewards brevity.

    The paper's baseline Token-Level Entropy with `score_reduction: sum`; Agarwal et al. 2025, arXiv:2505.15134,
    EM-RL-token.
    """
    return tuple(-total for total in _summed(rollouts, "entropy"))


def mean_log_likelihood_reward(hits: Sequence[bool], rollouts: Sequence[Rollout]) -> tuple[float, ...]:
    """Mean over response tokens of log pi(token), in nats: the sequence's log-likelihood by its length.

    The paper's baseline Sentence-Level Entropy with `score_reduction: mean`: a departure from its source, which sums
    (`log_likelihood_reward`).
    """
    return tuple(_shared(rollouts, "mean_logprob"))


def log_likelihood_reward(hits: Sequence[bool], rollouts: Sequence[Rollout]) -> tuple[float, ...]:
    """Sum over response tokens of log pi(token), in nats: the sequence's log-likelihood, which rewards brevity.

    The paper's baseline Sentence-Level Entropy with `score_reduction: sum`; Agarwal et al. 2025, arXiv:2505.15134,
    EM-RL-sequence.
    """
    return tuple(_summed(rollouts, "mean_logprob"))


def _summed(rollouts: Sequence[Rollout], name: str) -> list[float]:
    """The sum over response tokens of a statistic that is stored as their mean."""
    means, lengths = _shared(rollouts, name), statistics(rollouts, "tokens")
    return [mean * tokens for mean, tokens in zip(means, lengths, strict=True)]


def _shared(rollouts: Sequence[Rollout], name: str) -> list[float]:
    """A statistic of every rollout: its mean over the rollouts that are equal to it up to rounding."""
    scores = statistics(rollouts, name)
    texts = [(rollout.response, rollout.tokens or 0) for rollout in rollouts]
    order = sorted(range(len(rollouts)), key=lambda place: (texts[place], scores[place]))
    starts = [
        number
        for number, (one, other) in enumerate(pairwise(order), start=1)
        if texts[one] != texts[other] or scores[other] - scores[one] >= ROUNDING
    ]
    for start, end in pairwise([0, *starts, len(order)]):
        mean = fsum(scores[place] for place in order[start:end]) / (end - start)
        for place in order[start:end]:
            scores[place] = mean
    return scores
