"""What is rewarded: the verifier's verdict (R16), or how sure the policy is of its own response.

The intrinsic rewards need no label. They are statistics of the policy that sampled, means over response tokens alone;
no gradient flows through them: like the verifier's, they only weigh the tokens' log-likelihood, by their advantage.
(The authors' code averages over padding too and then sums over tokens, which rewards length.)

A response has one score. Rounding gives equal responses scores that differ in the last digits, and dividing by the
group's standard deviation would blow those up to advantages; so equal responses share their mean score.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from math import fsum

from olr_cli.supervision.groups import Rollout, statistics

RewardRule = Callable[[Sequence[bool], Sequence[Rollout]], tuple[float, ...]]
"""Rewards of one view's rollouts, from whether each answer is in the effective label's class, and the rollouts."""


def verifier_reward(hits: Sequence[bool], rollouts: Sequence[Rollout]) -> tuple[float, ...]:
    """1 for an answer in the effective label's class, else 0 (R16)."""
    return tuple(float(hit) for hit in hits)


def self_certainty_reward(hits: Sequence[bool], rollouts: Sequence[Rollout]) -> tuple[float, ...]:
    """Mean over response tokens of KL(uniform || pi) = -log V - mean_v log pi(v), V the vocabulary's size, in nats.

    The paper's baseline Self-Certainty; Zhao et al. 2025, arXiv:2505.19590.
    """
    return _shared(rollouts, statistics(rollouts, "self_certainty"))


def token_entropy_reward(hits: Sequence[bool], rollouts: Sequence[Rollout]) -> tuple[float, ...]:
    """Minus the mean over response tokens of H(pi) = -sum_v pi(v) log pi(v), in nats.

    The paper's baseline Token-Level Entropy; Agarwal et al. 2025, arXiv:2505.15134, EM-RL-token.
    """
    return _shared(rollouts, [-entropy for entropy in statistics(rollouts, "entropy")])


def mean_log_likelihood_reward(hits: Sequence[bool], rollouts: Sequence[Rollout]) -> tuple[float, ...]:
    """Mean over response tokens of log pi(token), in nats: the sequence's log-likelihood by its length.

    The paper's baseline Sentence-Level Entropy with `score_reduction: mean`: a departure from its source, which sums
    (`log_likelihood_reward`).
    """
    return _shared(rollouts, statistics(rollouts, "mean_logprob"))


def log_likelihood_reward(hits: Sequence[bool], rollouts: Sequence[Rollout]) -> tuple[float, ...]:
    """Sum over response tokens of log pi(token), in nats: the sequence's log-likelihood, which rewards brevity.

    The paper's baseline Sentence-Level Entropy with `score_reduction: sum`; Agarwal et al. 2025, arXiv:2505.15134,
    EM-RL-sequence.
    """
    means, lengths = statistics(rollouts, "mean_logprob"), statistics(rollouts, "tokens")
    return _shared(rollouts, [mean * tokens for mean, tokens in zip(means, lengths, strict=True)])


def _shared(rollouts: Sequence[Rollout], scores: Sequence[float]) -> tuple[float, ...]:
    """Each response's mean score over the rollouts that are equal to it."""
    equal: defaultdict[tuple[str, int | None], list[float]] = defaultdict(list)
    for rollout, score in zip(rollouts, scores, strict=True):
        equal[rollout.response, rollout.tokens].append(score)
    means = {response: fsum(own) / len(own) for response, own in equal.items()}
    return tuple(means[rollout.response, rollout.tokens] for rollout in rollouts)
