"""Entropy and self-certainty of response tokens, from the logits that OpenRLHF's actor has computed anyway.

They are of softmax(logits / sampling temperature), in nats, as in `RolloutRecord`: OpenRLHF's actor hands its logits
out in float32, divided by the temperature.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from openrlhf.models.ring_attn_utils import gather_and_pad_tensor, unpad_and_slice_tensor
from torch import Tensor

from olr_cli.engines.local.sampler import self_certainty_of

_LOGITS_AT_ONCE = 2**24
"""64 MiB in float32; twice that is what the statistics need besides the logits."""


class PolicyForward(NamedTuple):
    """What one forward pass of the policy tells of B sequences; (B, A), 0 where no response token follows.

    Attributes:
        log_probs: log pi(token), which is all that OpenRLHF asks for.
        entropies: of pi.
        self_certainties: KL(uniform || pi) = -log V - mean_v log pi(v).
    """

    log_probs: Tensor
    entropies: Tensor
    self_certainties: Tensor


class ResponsePlaces:
    """Where the response tokens of a batch are among the logits of OpenRLHF's actor.

    Logits are about the token that follows: those at place t of a sequence belong to action t. OpenRLHF may pack a
    batch into one row without padding, and share that row out among GPUs; the same functions do that here.

    Args:
        actor: OpenRLHF's `Actor`.
        sequences_BT: tokens of prompts and responses.
        action_mask_BA: which of the last A tokens are a response's.
        attention_mask_BT: False at padding.
        ring_group: GPUs that share one sample's tokens.
    """

    def __init__(
        self,
        actor: Any,
        sequences_BT: Tensor,
        action_mask_BA: Tensor,
        attention_mask_BT: Tensor,
        ring_group: Any,
    ) -> None:
        self._is_packed = bool(getattr(actor, "packing_samples", False))
        self._sequences_BT, self._action_mask_BA = sequences_BT, action_mask_BA
        self._attention_mask_BT, self._ring_group = attention_mask_BT, ring_group

    def statistics(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Entropy and self-certainty of every response token, (B, A); without gradient.

        A few rows of logits at a time, so that little memory is needed besides them.
        """
        B, T = self._sequences_BT.shape
        is_followed_BT = torch.zeros(B, T, dtype=torch.long, device=logits.device)
        is_followed_BT[:, :-1][:, -self._action_mask_BA.shape[1] :] = self._action_mask_BA.long()
        is_followed = self._lay_out(is_followed_BT)
        places_N = is_followed.flatten().nonzero()[:, 0]
        V = logits.shape[-1]
        logits_NV = logits.detach().flatten(0, 1)
        found_2N = logits.new_zeros(2, len(logits_NV))
        for places_M in torch.split(places_N, max(1, _LOGITS_AT_ONCE // V)):
            log_pi_MV = logits_NV[places_M].log_softmax(-1)
            found_2N[1, places_M] = self_certainty_of(log_pi_MV)
            found_2N[0, places_M] = torch.special.entr(log_pi_MV.exp_()).sum(-1)
        entropy, self_certainty = found_2N.view(2, *is_followed.shape)
        return self._at_actions(entropy), self._at_actions(self_certainty)

    def self_certainties(self, logits: Tensor, log_probs_BA: Tensor) -> Tensor:
        """Self-certainty of every response token, (B, A), differentiable; what stands elsewhere has no meaning.

        Since log pi(v) is log pi(token) + logit(v) - logit(token), it needs no other distribution than the one that
        `log_probs_BA` comes from.
        """
        tokens = self._lay_out(self._sequences_BT.roll(-1, dims=1))
        above_token = logits.mean(-1) - logits.gather(-1, tokens[..., None])[..., 0]
        return -math.log(logits.shape[-1]) - log_probs_BA - self._at_actions(above_token)

    def _lay_out(self, values_BT: Tensor) -> Tensor:
        """Values of the tokens, as the logits lie: (B, T), or packed (1, N)."""
        if not self._is_packed:
            return values_BT
        packed: Tensor = unpad_and_slice_tensor(values_BT, self._attention_mask_BT, self._ring_group)[0]
        return packed

    def _at_actions(self, values: Tensor) -> Tensor:
        """Values that lie as the logits do, at the actions: (B, A)."""
        if self._is_packed:
            *_, padding, indices = unpad_and_slice_tensor(
                self._sequences_BT, self._attention_mask_BT, self._ring_group
            )
            values = gather_and_pad_tensor(
                values, self._ring_group, padding, indices, *self._sequences_BT.shape
            )
        return values[:, :-1][:, -self._action_mask_BA.shape[1] :]
