"""What sampling draws from and writes down, however it computes a token (sampler.py, captured.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from olr_cli.engines.local.policy import Policy
from olr_cli.recipe.sampling import Sampling


class Responses(NamedTuple):
    """B responses of up to T tokens; entropy is the sum over response tokens."""

    tokens_BT: Tensor
    logprobs_BT: Tensor
    lengths_B: Tensor
    truncated_B: Tensor
    entropy_B: Tensor
    self_certainty_BT: Tensor

    @classmethod
    def none(cls, rollouts: int, limit: int, policy: Policy) -> Responses:
        """Room for so many responses of at most `limit` tokens; nothing is written yet."""
        B, device = rollouts, policy.device
        return cls(
            tokens_BT=torch.full((B, limit), policy.pad_id, device=device),
            logprobs_BT=torch.zeros(B, limit, device=device),
            lengths_B=torch.zeros(B, dtype=torch.long, device=device),
            truncated_B=torch.zeros(B, dtype=torch.bool, device=device),
            entropy_B=torch.zeros(B, device=device),
            self_certainty_BT=torch.zeros(B, limit, device=device),
        )


def self_certainty_of(log_pi_V: Tensor) -> Tensor:
    """KL(uniform || pi) = -log V - mean_v log pi(v) of distributions over V tokens (the last dimension), in nats."""
    return -math.log(log_pi_V.shape[-1]) - log_pi_V.mean(-1)


def truncated(pi_BV: Tensor, sampling: Sampling) -> Tensor:
    """Return `pi_BV` with 0 at the tokens that are not to be drawn, of V; it is not normalised.

    `top_k` keeps any token as likely as the last of the k too. The three ways come in vLLM's order, each from what the
    one before has left, and the most likely token always stays. Nucleus (`top_p`): Holtzman et al. 2020,
    arXiv:1904.09751. `min_p`: Nguyen et al. 2024, arXiv:2407.01082.
    """
    top_p, top_k = sampling.top_p, sampling.top_k
    if sampling.min_p > 0:
        least_B1 = sampling.min_p * pi_BV.amax(-1, keepdim=True)
        pi_BV = pi_BV.where(pi_BV >= least_B1, 0)
    if top_k is not None and top_k < pi_BV.shape[-1]:
        pi_BV = pi_BV.where(pi_BV >= pi_BV.topk(top_k).values[:, -1:], 0)
    if top_p < 1:
        sorted_BV, tokens_BV = pi_BV.sort(descending=True, stable=True)
        cumulative_BV = sorted_BV.double().cumsum(-1)
        more_likely_BV = cumulative_BV - sorted_BV
        sorted_BV = sorted_BV.where(more_likely_BV < top_p * cumulative_BV[:, -1:], 0)
        pi_BV = torch.zeros_like(pi_BV).scatter(-1, tokens_BV, sorted_BV)
    return pi_BV


def ends_with_stop_text(policy: Policy, stop: Sequence[str], tokens_BT: Tensor) -> Tensor:
    """Whether the last token of each response completes a stop text, (B,)."""
    # A token is at least a byte; a few more for those that are no text.
    tail = max(len(text.encode()) for text in stop) + 4
    ends = policy.decode(tokens_BT[:, -tail:].tolist())
    return torch.tensor(
        [any(text in end for text in stop) for end in ends], device=tokens_BT.device
    )
