"""What sampling writes down, however it computes a token (sampler.py, captured.py)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from olr_cli.engines.local.policy import Policy


class Drawing(NamedTuple):
    """How responses are drawn; arguments as of `olr_cli.engines.local.sampler.sample`.

    Attributes:
        limit: the most tokens of a response.
        truncate: leaves of a distribution what may be drawn.
    """

    limit: int
    temperature: float
    truncate: Callable[[Tensor], Tensor]
    stop: Sequence[str]


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


def ends_with_stop_text(policy: Policy, stop: Sequence[str], tokens_BT: Tensor) -> Tensor:
    """Whether the last token of each response completes a stop text, (B,)."""
    # A token is at least a byte; a few more for those that are no text.
    tail = max(len(text.encode()) for text in stop) + 4
    ends = policy.decode(tokens_BT[:, -tail:].tolist())
    return torch.tensor(
        [any(text in end for text in stop) for end in ends], device=tokens_BT.device
    )
