"""Prepares every process of the job before it imports anything: code of models stays out, missing modules are bridged.

OpenRLHF 0.11.2 loads configurations, tokenizers and models with `trust_remote_code=True` wherever it does so. Code that
a recipe does not trust is refused before the job starts (model.py); here it is also kept from running, whatever file
of a model it comes with.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import NoReturn

from olr_cli.engines.openrlhf.importing import around_import
from olr_cli.errors import UserError

TRUSTS_CODE, DEVICE = "OLR_OPENRLHF_TRUSTS_CODE", "OLR_OPENRLHF_DEVICE"
"""Variables by which a process knows what the recipe says."""

_RUNS_CODE = ("get_class_in_module", "get_class_from_dynamic_module")
"""Functions of transformers by which all code that comes with models is run."""


def environment(*, trusts_code: bool, device: str) -> Mapping[str, str]:
    """The variables for processes of a job."""
    return {TRUSTS_CODE: "1" if trusts_code else "0", DEVICE: device}


def set_up() -> None:
    """Prepare this process by its variables."""
    if os.environ.get(TRUSTS_CODE) != "1":
        around_import("transformers.dynamic_module_utils", _refusing)
    if os.environ.get(DEVICE) == "cpu":
        from olr_cli.engines.openrlhf import cpu

        cpu.set_up()
    else:
        from olr_cli.engines.openrlhf import flash_attention

        flash_attention.stand_in_if_absent()


def _refusing(module: ModuleType) -> Iterator[None]:
    yield
    # Where they have been imported from it already, too.
    loaded = [other for name, other in list(sys.modules.items()) if name.startswith("transformers")]
    for name in _RUNS_CODE:
        for other in (module, *loaded):
            if name in vars(other):
                vars(other)[name] = _refuse


def _refuse(*_: object, **__: object) -> NoReturn:
    raise UserError(
        "the model comes with code of its own, which OpenRLHF was about to run; set model.trust_remote_code to true if"
        " you trust its author"
    )
