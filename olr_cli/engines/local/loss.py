"""GRPO's loss (R17), formula by formula: to be read beside the paper's objective of GRPO.

    paper, to be maximised    E[ CLIP(A pi / pi_old, epsilon)  -  beta * KL(pi || pi_ref) ]

    loss, to be minimised     mean over response tokens of
                              clipped surrogate(log pi, A)  +  kl_weight * KL  -  penalty_weight * entropy of pi

    CLIP                      minus `clipped_surrogate`; epsilon is `train.clip`
    KL                        `k3_divergence`, an estimate from each sampled token; beta is `train.kl_weight`
    a token's sum             `token_losses`

Either every token weighs alike in that mean, or every response does (`token_weights`).

With label smoothing (Szegedy et al. 2016, arXiv:1512.00567; Lukasik et al. 2020, arXiv:2003.02819) the log pi of the
surrogate is that of a token mixed with the uniform distribution, see `smoothed`. The confidence penalty (Pereyra et
al. 2017, arXiv:1701.06548) is the last term, and its gradient flows through the entropy.

The advantages A are those of Eq. 1 (`olr_cli.supervision.advantages`).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from olr_cli.engines.run import DUAL_CLIP
from olr_cli.recipe.methods import MethodSection
from olr_cli.recipe.sections import LossAverage, TrainSection


class TokenStatistics(NamedTuple):
    """Statistics of each response token at the sampling temperature, in nats, (P, G, T) float32; None if not wanted."""

    logprobs: Tensor
    entropy: Tensor | None
    self_certainty: Tensor | None


class TokenLosses(NamedTuple):
    """What each response token adds to the loss, its KL estimate, and whether the clip holds there; (P, G, T)."""

    loss: Tensor
    kl: Tensor
    clipped: Tensor


def token_losses(
    now: TokenStatistics,
    *,
    old_logprobs: Tensor,
    advantages: Tensor,
    reference_logprobs: Tensor | None,
    train: TrainSection,
    method: MethodSection,
) -> TokenLosses:
    """Return each token's loss under the policy that trains, without its weight in the mean.

    Args:
        now: of the policy that trains, with entropy where it is penalised, self-certainty where targets are smoothed.
        old_logprobs: the surrogate's under the policy that sampled, smoothed alike.
        advantages: broadcastable to them.
        reference_logprobs: under the frozen starting policy; None without a KL term.
        train: clip and weight of the KL.
        method: weight of the penalty, and smoothing.
    """
    loss, clipped = clipped_surrogate(
        smoothed(now.logprobs, now.self_certainty, method.smoothing),
        old_logprobs,
        advantages,
        train.clip,
        train.clip_high,
    )
    if now.entropy is not None:
        loss = loss - method.penalty_weight * now.entropy
    if reference_logprobs is None:
        return TokenLosses(loss, torch.zeros_like(loss), clipped)
    # Of the policy itself: label smoothing is for the surrogate's ratio alone.
    kl = k3_divergence(now.logprobs, reference_logprobs)
    return TokenLosses(loss + train.kl_weight * kl, kl, clipped)


def clipped_surrogate(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    clip: float,
    clip_high: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Minus the clipped surrogate of each token, and whether the clip holds there.

    PPO's clip bounds what a token can gain. What it can lose, where the advantage is negative and the ratio large, is
    bounded by the dual clip (Ye et al. 2020, arXiv:1912.09729, Eq. 5; on by default in verl's `compute_policy_loss`).

    Args:
        logprobs: log pi(token), any shape.
        old_logprobs: the same under the policy that sampled.
        advantages: broadcastable to them.
        clip: allowed distance of the ratio from 1.
        clip_high: another one above 1, which lets unlikely tokens gain more (clip-higher; Yu et al. 2025,
            arXiv:2503.14476, Eq. 10); None: `clip`.
    """
    ratio = (logprobs - old_logprobs).clamp(-20, 20).exp()
    free = -advantages * ratio
    clipped = -advantages * ratio.clamp(
        1 - clip, 1 + (clip if clip_high is None else clip_high)
    )
    loss = torch.maximum(free, clipped)
    loss = torch.where(advantages < 0, torch.minimum(loss, -advantages * DUAL_CLIP), loss)
    return loss, clipped > free


def k3_divergence(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """KL(policy || reference) estimated from each sampled token: r - 1 - log r, r = reference / policy.

    Unbiased and never negative (Schulman, "Approximating KL divergence", 2020). Bounded as in verl's
    `low_var_kl`: a token whose estimate exceeds 10 has no gradient.
    """
    log_ratio = (reference_logprobs - logprobs).clamp(-20, 20)
    return (log_ratio.exp() - 1 - log_ratio).clamp(max=10)


def smoothed(logprobs: Tensor, self_certainty: Tensor | None, smoothing: float) -> Tensor:
    """Return (1 - s) log pi(token) + s mean_v log pi(v), up to a constant that no ratio depends on.

    mean_v log pi(v) is -KL(uniform || pi) - log V. In the ratio of the clipped surrogate, new and old policy alike,
    so at the old policy the gradient is the advantage times that of the smoothed log-likelihood, and the clip bounds
    it as it does without smoothing. Log-likelihoods and self-certainty, KL(uniform || pi), are of the same tokens;
    without smoothing no self-certainty is needed.
    """
    if smoothing == 0 or self_certainty is None:
        return logprobs
    return (1 - smoothing) * logprobs - smoothing * self_certainty


def token_weights(lengths: Tensor, average: LossAverage) -> Tensor:
    """How much each token of a response weighs in the loss, beside the tokens of the other responses.

    The loss of a mini-batch is the weighted mean over its response tokens: of all tokens alike, or of the responses'
    own means alike. `lengths`, of any shape, are at least 1.
    """
    return (
        1 / lengths
        if average == "sequence"
        else torch.ones_like(lengths, dtype=torch.float32)
    )
