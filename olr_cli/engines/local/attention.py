"""Attention that copies no keys and values: on a CPU, for single tokens on a GPU, and in a cache that grows.

With a mask, so for every padded batch, transformers' "sdpa" first copies all keys and values for each query head.
CUDA's fast kernels require that; torch's CPU kernel does not, and returns the same bits. With gradients the copies
stay: they cost nothing measurable there, and without them a gradient's sums would be rounded in another order.
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

_IGNORABLE = {
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
"""Arguments that models pass to their attention and that sdpa can ignore.

The mask contains the windows, and transformers' function computes a bias.
"""


class _Dropped(Exception):
    """Raised by `_attend` for an argument that torch's sdpa would ignore, such as a cap on scores.

    `set_up_attention` catches it, and lets the model use "eager" attention.
    """


def set_up_attention(model: Any) -> bool:
    """Make a model with "sdpa" attention use `_attend`, which computes the same with fewer copies.

    torch's sdpa ignores arguments that it does not know, such as a cap on scores, and the scores would then be wrong
    without an error. A model whose layers pass such an argument gets "eager" attention instead. A model whose attention
    is not sdpa, or cannot be replaced, stays as it is.

    Returns:
        Whether the model now uses `_attend`. If so, a mask may hide any positions.
    """
    if (
        model.config._attn_implementation != "sdpa"
        or not model._can_set_attn_implementation()
    ):
        return False
    AttentionInterface.register(_NAME, _attend)
    AttentionMaskInterface.register(_NAME, sdpa_mask)
    model.set_attn_implementation(_NAME)
    # One token is enough to see which arguments the model's layers pass.
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
    """Compute attention as transformers' `sdpa_attention_forward` does, but copy keys and values only where necessary.

    Several query heads may share one head of keys and values; transformers copies that head for each of them.

    Query is (B, heads, T, width). Key and value are (B, key heads, positions, width). The result is the attended
    values, (B, T, heads, width), and None in place of the attention weights.

    Raises:
        _Dropped: `others`, the model's further arguments, has one that sdpa would ignore without an error.
    """
    unknown = [
        name
        for name, value in others.items()
        if value is not None and name not in _IGNORABLE
    ]
    if unknown:
        raise _Dropped(f"{type(module).__name__} gives its attention {', '.join(unknown)}")
    has_bias = others.get("position_bias") is not None
    needs_copies = query.requires_grad or has_bias
    # CUDA's fast kernels for several tokens need the copies; `attend_folded` needs none for one token.
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
    """Compute attention for one query token per row, without copying the keys and values that query heads share.

    Query heads that share a head of keys are passed to the kernel as several tokens of one head.

    Args:
        query: (B, heads, 1, width).
        key: (B, key heads, positions, width), where `heads` is a multiple of the number of key heads.
        value: in the shape of `key`.
        attention_mask: which positions each row attends to, (B, 1, 1, positions).
        scaling: factor of the scores; None for torch's default.

    Returns:
        The attended values, (B, 1, heads, width).
    """
    B, heads, _, width = query.shape
    folded = query.view(B, key.shape[1], -1, width)
    attended = scaled_dot_product_attention(
        folded, key, value, attn_mask=attention_mask, scale=scaling
    )
    return attended.reshape(B, heads, 1, -1).transpose(1, 2)


class PreallocatedLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """A layer of transformers' cache in a buffer with free room, so that appending a token seldom copies earlier ones.

    The buffer doubles when it is full. Use the layer only for sampling, because appended tokens have no gradient.
    """

    def __init__(self, layer: Any, room: int, dtype: torch.dtype) -> None:
        """Begin with the keys and values of a `DynamicLayer`, converted to `dtype`.

        `room` is the most tokens that will be appended.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.lazy_initialization(layer.keys, layer.values)
        self._places = [layer.keys.to(dtype), layer.values.to(dtype)]
        self._capacity = layer.get_seq_length() + room
        self._show(layer.get_seq_length())

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append the keys and values of T tokens, (B, heads, T, width) each, and return those of all tokens so far.

        The results, (B, heads, all tokens, width) each, are views of the buffer.
        """
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        # Doubling copies about 2 T tokens for T appended ones. Without free room, T² / 2 would be copied.
        if end > self._places[0].shape[-2]:
            more = min(2 * end, self._capacity) - self._places[0].shape[-2]
            self._places = [pad(place, (0, 0, 0, more)) for place in self._places]
        for place, added in zip(self._places, (key_states, value_states), strict=True):
            place[:, :, start:end] = added
        return self._show(end)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep only the rows of the batch with these indices."""
        used = self.get_seq_length()
        self._places = [place[indices, :, :used] for place in self._places]
        self._show(used)

    def _show(self, tokens: int) -> tuple[Tensor, Tensor]:
        """Set `keys` and `values` to views of the buffer's first `tokens` positions, and return both."""
        keys, values = (place[:, :, :tokens] for place in self._places)
        self.keys, self.values = keys, values
        return keys, values
