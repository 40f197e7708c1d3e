"""Attention on CPU that leaves keys and values where they are, also where several query heads share them.

Wherever there is a mask, so with every padded batch, transformers' "sdpa" copies all of them for each query head first:
CUDA's fast kernels ask for that. torch's CPU kernel does not, and gives the same bits. Where gradients are wanted the
copies remain: they cost nothing measurable there, and a gradient's sums would be rounded in another order.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

_NAME = "sdpa_without_copies"


def share_keys_and_values(model: Any) -> None:
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
    """As `sdpa_attention_forward`: of (B, heads, T, width), with fewer heads in key and value, (B, T, heads, width)."""
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
