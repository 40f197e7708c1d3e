"""GRPO's loss (R17), formula by formula: to be read beside the paper's objective of GRPO.

    paper, to be maximised    E[ CLIP(A pi / pi_old, epsilon)  -  beta * KL(pi || pi_ref) ]

    loss, to be minimised     mean over response tokens of
                              clipped surrogate(log pi, A)  +  kl_weight * KL  -  penalty_weight * entropy of pi

    CLIP                      minus `clipped_surrogate`; epsilon is `train.clip`
    KL                        `k3_divergence`, an estimate from each sampled token; beta is `train.kl_weight`
    a token's sum             `token_losses`

In that mean, either all tokens have the same weight or all responses do (`token_weights`).

Label smoothing (Szegedy et al. 2016, arXiv:1512.00567; Lukasik et al. 2020, arXiv:2003.02819) replaces log pi in the
surrogate. It becomes that of a token mixed with the uniform distribution, see `smoothed`. The confidence penalty
(Pereyra et al. 2017, arXiv:1701.06548) is the last term, and its gradient flows through the entropy.

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
    """The log-probability of each response token and, if needed, the entropy and self-certainty of its distribution.

    `response_statistics` computes them. All are at the sampling temperature, in nats, (P, G, T) float32.
    """

    logprobs: Tensor
    entropy: Tensor | None
    """None if it is not needed."""

    self_certainty: Tensor | None
    """KL(uniform || pi); None if it is not needed."""


class TokenLosses(NamedTuple):
    """The loss of each response token, its KL estimate, and whether PPO's clip is active at it, (P, G, T) each.

    `token_losses` computes them.
    """

    loss: Tensor
    """The token's loss, KL term included, without its weight in the mean."""

    kl: Tensor
    """The KL estimate, without its weight."""

    clipped: Tensor
    """Whether PPO's clip is active at the token."""


def token_losses(
    now: TokenStatistics,
    *,
    old_logprobs: Tensor,
    advantages: Tensor,
    reference_logprobs: Tensor | None,
    train: TrainSection,
    method: MethodSection,
) -> TokenLosses:
    """Return the loss of each token under the policy that trains.

    The losses are not multiplied by the weights of `token_weights` yet.

    Args:
        now: statistics of the policy that trains, with entropy if it is penalised, and self-certainty if labels are
            smoothed.
        old_logprobs: the tokens' log-probabilities under the policy that sampled, smoothed if labels are smoothed.
        advantages: the rollouts' advantages, broadcastable to the log-probabilities.
        reference_logprobs: log-probabilities under the frozen starting policy; None without a KL term.
        train: sets the clip and the weight of the KL.
        method: sets the weight of the confidence penalty, and the smoothing.
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
    # The KL takes unsmoothed log-probabilities: label smoothing is for the surrogate's ratio alone.
    kl = k3_divergence(now.logprobs, reference_logprobs)
    return TokenLosses(loss + train.kl_weight * kl, kl, clipped)


def clipped_surrogate(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    clip: float,
    clip_high: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return each token's loss, which is minus PPO's clipped surrogate, and whether the clip is active there.

    PPO's clip limits how much a token can gain. It does not limit the loss of a token with a negative advantage and a
    large ratio. A second clip keeps this loss at or below -advantage * `DUAL_CLIP` (dual clip; Ye et al. 2020,
    arXiv:1912.09729, Eq. 5; on by default in verl's `compute_policy_loss`).

    Args:
        logprobs: log pi(token) under the policy that trains, any shape.
        old_logprobs: log pi(token) under the policy that sampled, in the same shape.
        advantages: broadcastable to `logprobs`.
        clip: how far the ratio of new to old probability may be from 1.
        clip_high: how far the ratio may be above 1; None for `clip`. A value above `clip` lets unlikely tokens gain
            more (clip-higher; Yu et al. 2025, arXiv:2503.14476, Eq. 10).

    Returns:
        The losses, and a mask of the tokens whose loss PPO's clip makes larger. The mask ignores the dual clip.
    """
    # Clamp, because exp of a large difference would be infinite and its gradient NaN.
    ratio = (logprobs - old_logprobs).clamp(-20, 20).exp()
    free = -advantages * ratio
    clipped = -advantages * ratio.clamp(
        1 - clip, 1 + (clip if clip_high is None else clip_high)
    )
    # The objective's minimum is a maximum here, because the loss is its negative.
    loss = torch.maximum(free, clipped)
    loss = torch.where(advantages < 0, torch.minimum(loss, -advantages * DUAL_CLIP), loss)
    return loss, clipped > free


def k3_divergence(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Estimate KL(policy || reference) at each sampled token: r - 1 - log r, where r = reference / policy.

    The estimate is unbiased and never negative (Schulman, "Approximating KL divergence", 2020). As in verl's
    `low_var_kl`, it is at most 10, and a token at this bound has no gradient.
    """
    log_ratio = (reference_logprobs - logprobs).clamp(-20, 20)
    return (log_ratio.exp() - 1 - log_ratio).clamp(max=10)


def smoothed(logprobs: Tensor, self_certainty: Tensor | None, smoothing: float) -> Tensor:
    """Return label-smoothed log-probabilities: (1 - s) log pi(token) + s mean_v log pi(v) + s log V.

    V is the size of the vocabulary. The constant s log V cancels in the ratio of the new to the old policy, because
    both are smoothed alike. At the old policy, the gradient of the clipped surrogate is therefore the advantage times
    the gradient of the smoothed log-likelihood.

    Args:
        logprobs: log pi(token).
        self_certainty: KL(uniform || pi) = -log V - mean_v log pi(v) at the same tokens; None without smoothing.
        smoothing: s; with 0 the log-probabilities are returned as they are.
    """
    if smoothing == 0 or self_certainty is None:
        return logprobs
    return (1 - smoothing) * logprobs - smoothing * self_certainty


def token_weights(lengths: Tensor, average: LossAverage) -> Tensor:
    """Return the weight of each response's tokens in the loss, which is a weighted mean over a mini-batch's tokens.

    Args:
        lengths: number of tokens of each response, at least 1; any shape.
        average: with ``token``, every token has the weight 1. With ``sequence``, every response has the same weight, so
            each of its tokens has 1 / length.

    Returns:
        The weight of a token of each response, in the shape of `lengths`.
    """
    return (
        1 / lengths
        if average == "sequence"
        else torch.ones_like(lengths, dtype=torch.float32)
    )
