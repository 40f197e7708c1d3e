"""Settings of vLLM's engine that the command line names: ``--vllm key=value``, checked against vLLM's own list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from olr_cli.engines.models import require_finite_files, require_safetensors
from olr_cli.errors import UserError, did_you_mean, no_path, shown
from olr_cli.files import read_json

LORA = "lora"
"""The one key that is no setting of vLLM's: the folder of an adapter (PEFT)."""

_SET_BY_OLR = {
    "model": "the argument MODEL",
    "trust_remote_code": "--trust-remote-code",
    "seed": "--seed",
    "chat_template": "--chat-template",
    "enable_lora": "--vllm lora=DIR",
    "runner": "what `olr evaluate` does",
    "skip_tokenizer_init": "--stop",
    "tokenizer": "the model's folder",
    "data_parallel_size": "a server (vllm serve MODEL --data-parallel-size N), which --url names",
}
"""Settings of vLLM's that follow from something else."""

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks of adapters for which vLLM can make room."""


def check_settings(settings: Mapping[str, Any], engine_args: type) -> None:
    """Make sure that vLLM has all settings, and that olr does not set them itself.

    Args:
        settings: by their names.
        engine_args: vLLM's `EngineArgs`, a dataclass.

    Raises:
        UserError: it has no such setting, one has another place, or the adapter is none.
    """
    known = {field.name for field in fields(engine_args)} - set(_SET_BY_OLR) | {LORA}
    for key in settings:
        if key in _SET_BY_OLR:
            raise UserError(f"--vllm {key}: olr takes it from {_SET_BY_OLR[key]}; leave it out")
        if key not in known:
            raise UserError(
                f"vLLM's engine has no setting '{key}'{did_you_mean(key, known)}; its engine arguments are on"
                " https://docs.vllm.ai, and lora=DIR adds an adapter"
            )
    for key in ("tensor_parallel_size", "max_model_len"):
        value = settings.get(key, 1)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UserError(f"--vllm {key} is {shown(value)}; give a number from 1 on")


def adapter_rank(folder: str) -> int:
    """The rank that vLLM makes room for, given the folder of an adapter.

    Raises:
        UserError: there is no such folder, it holds no LoRA adapter, or one that vLLM has no room for.
    """
    file = Path(folder) / "adapter_config.json"
    if not Path(folder).is_dir():
        raise no_path(folder, "give the folder of a LoRA adapter (PEFT)")
    require_safetensors(folder)
    require_finite_files(folder)
    try:
        rank = int(read_json(file)["r"])
    except (UserError, ValueError, KeyError, TypeError):
        raise UserError(
            f"--vllm lora={folder} is no LoRA adapter (its adapter_config.json has no rank r); name a folder that PEFT"
            " has saved"
        ) from None
    roomy = [most for most in _RANKS if most >= rank]
    if not roomy:
        raise UserError(
            f"--vllm lora={folder}: the adapter has rank {rank}, and vLLM takes at most {_RANKS[-1]}"
        )
    return roomy[0]
