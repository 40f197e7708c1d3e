"""What OpenRLHF takes from `flash_attn.bert_padding` to pack a batch into one row without padding, in plain torch.

Same names, arguments and results as flash-attn 2.8.3; gradients go through torch's indexing. Used where flash-attn is
not installed (`flash_attention.py`).
"""

from __future__ import annotations

import torch
from torch import Tensor

_FLATTEN = "b s ... -> (b s) ..."


def unpad_input(hidden_BTX: Tensor, attention_mask_BT: Tensor) -> tuple[Tensor, Tensor, Tensor, int, Tensor]:
    """Take the padding out of a batch.

    Args:
        hidden_BTX: values of B sequences of T places.
        attention_mask_BT: 0 or False at padding.

    Returns:
        The values of the N places that are not padding, (N, …); their indices among B·T, (N,); where each sequence
        begins among them, and where the last one ends, int32, (B + 1,); the longest sequence's length; all lengths,
        int32, (B,).
    """
    lengths_B = attention_mask_BT.sum(dim=-1, dtype=torch.int32)
    indices_N = attention_mask_BT.flatten().nonzero()[:, 0]
    bounds = torch.nn.functional.pad(lengths_B.cumsum(0, dtype=torch.int32), (1, 0))
    return hidden_BTX.flatten(0, 1)[indices_N], indices_N, bounds, int(lengths_B.max()), lengths_B


def pad_input(hidden_NX: Tensor, indices_N: Tensor, batch: int, seqlen: int) -> Tensor:
    """Put values back where `unpad_input` found them, (batch, seqlen, …); 0 at padding."""
    padded = hidden_NX.new_zeros(batch * seqlen, *hidden_NX.shape[1:])
    return padded.index_copy(0, indices_N, hidden_NX).view(batch, seqlen, *hidden_NX.shape[1:])


def index_first_axis(rows: Tensor, indices: Tensor) -> Tensor:
    """Rows by their indices."""
    return rows[indices]


def rearrange(values: Tensor, pattern: str) -> Tensor:
    """The one pattern of einops that OpenRLHF uses: batch and sequence become one dimension.

    Raises:
        ValueError: another pattern.
    """
    if pattern != _FLATTEN:
        raise ValueError(f"the stand-in for flash-attn knows the pattern {_FLATTEN!r} alone, not {pattern!r}")
    return values.flatten(0, 1)
