"""Keys and values that stay where they are: in attention on CPU, and in a cache that grows.

Wherever there is a mask, so with every padded batch, transformers' "sdpa" copies all of them for each query head first:
CUDA's fast kernels ask for that. torch's CPU kernel does not, and gives the same bits. Where gradients are wanted the
copies remain: they cost nothing measurable there, and a gradient's sums would be rounded in another order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

_NAME = "sdpa_without_copies"

_KNOWN = {
    *(
        "is_causal",
        "position_bias",
        "sliding_window",
        "use_cache",
        "past_key_values",
        "cache_position",
    ),
    *(
        "position_ids",
        "cu_seq_lens_q",
        "cu_seq_lens_k",
        "max_length_q",
        "max_length_k",
        "num_items_in_batch",
    ),
    *("output_attentions", "output_hidden_states", "output_router_logits"),
}
"""Arguments that models give to their attention and that sdpa can ignore: the mask has windows, and transformers'
function computes a bias."""


class _Dropped(Exception):
    """A model asks its attention for something that torch's sdpa does not compute, such as soft-capped scores."""


def set_up_attention(model: Any) -> bool:
    """Let a model with transformers' "sdpa" use ours, or "eager" if sdpa would drop something that it asks for.

    transformers' function ignores every argument that it does not know, and the scores are wrong without a word.

    Returns:
        Whether the model uses ours, which takes a mask of any form.
    """
    if (
        model.config._attn_implementation != "sdpa"
        or not model._can_set_attn_implementation()
    ):
        return False
    AttentionInterface.register(_NAME, _attend)
    AttentionMaskInterface.register(_NAME, sdpa_mask)
    model.set_attn_implementation(_NAME)
    try:
        with torch.no_grad():
            model(
                input_ids=torch.zeros(1, 1, dtype=torch.long, device=model.device),
                use_cache=False,
            )
    except _Dropped:
        model.set_attn_implementation("eager")
        return False
    return True


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Like `sdpa_attention_forward`: (B, heads, T, width), fewer heads in key and value, to (B, T, heads, width)."""
    unknown = [
        name for name, value in others.items() if value is not None and name not in _KNOWN
    ]
    if unknown:
        raise _Dropped(f"{type(module).__name__} gives its attention {', '.join(unknown)}")
    has_bias = others.get("position_bias") is not None
    needs_copies = query.requires_grad or has_bias
    if attention_mask is None or needs_copies or (query.is_cuda and query.shape[2] > 1):
        result: tuple[Tensor, None] = sdpa_attention_forward(
            module,
            query,
            key,
            value,
            attention_mask,
            dropout=dropout,
            scaling=scaling,
            **others,
        )
        return result
    if query.is_cuda:
        return attend_folded(query, key, value, attention_mask, scaling), None
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


def attend_folded(
    query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor, scaling: float | None
) -> Tensor:
    """Attention of one token a row, (B, heads, 1, width), to (B, 1, heads, width); no key is copied.

    The query heads that share a head of keys stand as tokens of that head: (B, key heads, heads of each, width).
    """
    B, heads, _, width = query.shape
    folded = query.view(B, key.shape[1], -1, width)
    attended = scaled_dot_product_attention(
        folded, key, value, attn_mask=attention_mask, scale=scaling
    )
    return attended.reshape(B, heads, 1, -1).transpose(1, 2)


class PreallocatedLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Keys and values of one layer in a buffer with room for more: appending a token moves no other.

    The buffer is doubled when it is full, so that T tokens, one by one, cost copies of 2 T and not of T * T / 2.
    For sampling: what is appended has no gradient.
    """

    def __init__(self, layer: Any, room: int, dtype: torch.dtype) -> None:
        """Continue the `DynamicLayer` `layer`, for at most `room` tokens more."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.lazy_initialization(layer.keys, layer.values)
        self._places = [layer.keys.to(dtype), layer.values.to(dtype)]
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
