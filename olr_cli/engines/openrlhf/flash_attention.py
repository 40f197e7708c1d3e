"""OpenRLHF on a machine without flash-attn.

OpenRLHF 0.11.2 imports flash-attn at the top of `openrlhf/models/ring_attn_utils.py`, also when attention is torch's
sdpa and nothing is packed. What packs samples needs no kernel (`packing.py`), so samples can be packed with attention
from the package `kernels`; what gathers the parts of a ring is never called, because ring attention is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import NoReturn

from olr_cli.engines.openrlhf.importing import around_import

_USED_BY = "openrlhf.models.ring_attn_utils"
_PACKING = "flash_attn.bert_padding"
_RING = "flash_attn.utils.distributed"
_NAMES = ("flash_attn", _PACKING, "flash_attn.utils", _RING)

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
    """Let OpenRLHF be imported without flash-attn, with functions of ours that pack samples.

    The stand-in exists only while that one module is imported, so nobody else takes it for the real package.
    """
    if not is_installed() and _USED_BY not in sys.modules:
        around_import(_USED_BY, _with_stand_in)


def _with_stand_in(_module: ModuleType) -> Iterator[None]:
    from olr_cli.engines.openrlhf import packing  # torch is about to be imported anyway

    for name in _NAMES:
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        module.__path__ = []
        sys.modules[name] = module
    for function in (packing.index_first_axis, packing.pad_input, packing.rearrange, packing.unpad_input):
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
