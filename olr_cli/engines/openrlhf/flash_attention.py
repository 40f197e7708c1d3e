"""OpenRLHF on a machine without flash-attn.

OpenRLHF 0.11.2 imports flash-attn at the top of `openrlhf/models/ring_attn_utils.py`, also when attention is torch's
sdpa and nothing is packed. Packing samples needs no kernel: the functions below have the names, arguments and results
of flash-attn 2.8.3, and gradients go through torch's indexing. So samples can be packed with attention from the package
`kernels`. The function that gathers the parts of a ring is never called, because ring attention is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from olr_cli.engines.openrlhf.importing import around_import

if TYPE_CHECKING:  # this module is imported before torch is patched
    from torch import Tensor

_USED_BY = "openrlhf.models.ring_attn_utils"
_PACKING = "flash_attn.bert_padding"
_RING = "flash_attn.utils.distributed"
_NAMES = ("flash_attn", _PACKING, "flash_attn.utils", _RING)
_FLATTEN = "b s ... -> (b s) ..."

KERNELS = "kernels-community/flash-attn2"
"""Compiled flash attention on the Hugging Face hub, as transformers calls it.

OpenRLHF's flag takes such names. With packed samples it says `flash_attention_2` instead, for which transformers takes
this very repository where flash-attn is not installed (`FLASH_ATTN_KERNEL_FALLBACK`).
"""


def is_installed() -> bool:
    """Whether the real flash-attn is there."""
    return find_spec("flash_attn") is not None


def has_kernels() -> bool:
    """Whether the package is there that downloads compiled kernels from the hub."""
    return find_spec("kernels") is not None


def stand_in_if_absent() -> None:
    """Let OpenRLHF be imported without flash-attn, with the functions below.

    The stand-in exists only while that one module is imported, so nobody else takes it for the real package.
    """
    if not is_installed() and _USED_BY not in sys.modules:
        around_import(_USED_BY, _with_stand_in)


def _with_stand_in(_module: ModuleType) -> Iterator[None]:
    for name in _NAMES:
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        module.__path__ = []
        sys.modules[name] = module
    for function in (index_first_axis, pad_input, rearrange, unpad_input):
        setattr(sys.modules[_PACKING], function.__name__, function)
    vars(sys.modules[_RING])["all_gather"] = _absent
    try:
        yield
    finally:
        for name in _NAMES:
            del sys.modules[name]


def _absent(*_: object, **__: object) -> NoReturn:
    raise RuntimeError(
        "ring attention needs flash-attn, which is not installed; leave ds.ring_attn_size unset"
    )


def unpad_input(hidden_BTX: Tensor, attention_mask_BT: Tensor) -> tuple[Tensor, Tensor, Tensor, int, Tensor]:
    """Take the padding out of a batch of B sequences of T places; the mask is 0 or False at padding.

    Returns:
        The values of the N places that are not padding, (N, …); their indices among B·T, (N,); where each sequence
        begins among them, and where the last one ends, int32, (B + 1,); the longest sequence's length; all lengths,
        int32, (B,).
    """
    import torch

    lengths_B = attention_mask_BT.sum(dim=-1, dtype=torch.int32)
    indices_N = attention_mask_BT.flatten().nonzero()[:, 0]
    bounds = torch.nn.functional.pad(lengths_B.cumsum(0, dtype=torch.int32), (1, 0))
    return hidden_BTX.flatten(0, 1)[indices_N], indices_N, bounds, int(lengths_B.max()), lengths_B


def pad_input(hidden_NX: Tensor, indices_N: Tensor, batch: int, seqlen: int) -> Tensor:
    """Put values back where `unpad_input` took them from, (batch, seqlen, …); 0 at padding."""
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
