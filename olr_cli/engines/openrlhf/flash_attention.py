"""OpenRLHF on a machine without flash-attn.

OpenRLHF 0.11.2 imports flash-attn at the top of `openrlhf/models/ring_attn_utils.py`, also when attention is torch's
sdpa. Nothing of it is called there, because packed samples are refused without flash attention (checks.py), and ring
attention always (flags.py).
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
_NAMES = {
    "flash_attn": (),
    "flash_attn.bert_padding": ("index_first_axis", "pad_input", "rearrange", "unpad_input"),
    "flash_attn.utils": (),
    "flash_attn.utils.distributed": ("all_gather",),
}
"""Modules of flash-attn, and the names that OpenRLHF imports from them."""


def is_installed() -> bool:
    """Whether the real flash-attn is there."""
    return find_spec("flash_attn") is not None


def stand_in_if_absent() -> None:
    """Let OpenRLHF be imported without flash-attn.

    The stand-in exists only while that one module is imported, so nobody else takes it for the real package.
    """
    if not is_installed() and _USED_BY not in sys.modules:
        around_import(_USED_BY, _with_stand_in)


def _with_stand_in(_module: ModuleType) -> Iterator[None]:
    for name, functions in _NAMES.items():
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        module.__path__ = []
        vars(module).update(dict.fromkeys(functions, _absent))
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in _NAMES:
            del sys.modules[name]


def _absent(*_: object, **__: object) -> NoReturn:
    raise RuntimeError(
        "packed samples need flash-attn, which is not installed; leave ds.packing_samples unset"
    )
