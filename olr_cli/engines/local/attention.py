"""Keys and values that stay where they are: in attention on CPU, and in a cache that grows.

Wherever there is a mask, so with every padded batch, transformers' "sdpa" copies all of them for each query head first:
CUDA's fast kernels ask for that. torch's CPU kernel does not, and gives the same bits. Where gradients are wanted the
copies remain: they cost nothing measurable there, and a gradient's sums would be rounded in another order.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

_NAME = "sdpa_without_copies"


def use_attention_without_copies(model: Any) -> None:
    """Let a model that computes on CPU with transformers' "sdpa" do so without copies; others stay as they are."""
    if model.config._attn_implementation == "sdpa" and model._can_set_attn_implementation():
        AttentionInterface.register(_NAME, _attend)
        AttentionMaskInterface.register(_NAME, sdpa_mask)
        model.set_attn_implementation(_NAME)


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Like `sdpa_attention_forward`: (B, heads, T, width), fewer heads in key and value, to (B, T, heads, width)."""
    if attention_mask is None or query.requires_grad or others.get("position_bias") is not None:
        result: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **others
        )
        return result
    attended = scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=attention_mask,
        dropout_p=dropout,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return attended.transpose(1, 2).contiguous(), None


class PreallocatedLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Keys and values of one layer in a buffer with room for more: appending a token moves no other.

    The buffer is doubled when it is full, so that T tokens, one by one, cost copies of 2 T and not of T * T / 2.
    For sampling: what is appended has no gradient.
    """

    def __init__(self, layer: Any, room: int) -> None:
        """Continue the `DynamicLayer` `layer`, for at most `room` tokens more."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.lazy_initialization(layer.keys, layer.values)
        self._places = [layer.keys, layer.values]
        self._most = layer.get_seq_length() + room
        self._show(layer.get_seq_length())

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append keys and values, (B, heads, T, width) each; returns all so far."""
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if end > self._places[0].shape[-2]:
            more = min(2 * end, self._most) - self._places[0].shape[-2]
            self._places = [pad(place, (0, 0, 0, more)) for place in self._places]
        for place, added in zip(self._places, (key_states, value_states), strict=True):
            place[:, :, start:end] = added
        return self._show(end)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep only these rows."""
        used = self.get_seq_length()
        self._places = [place[indices, :, :used] for place in self._places]
        self._show(used)

    def _show(self, tokens: int) -> tuple[Tensor, Tensor]:
        """Expose the first `tokens` positions as the layer's keys and values."""
        keys, values = (place[:, :, :tokens] for place in self._places)
        self.keys, self.values = keys, values
        return keys, values
