"""Models that others have made: a broken file is reported in one sentence, and nothing in it is run as code."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from olr_cli.data.hub import hub_answers
from olr_cli.errors import NotHere, UserError
from olr_cli.runs.throughput import ModelShape

_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@contextmanager
def loading(model: str | Path, what: str = "a causal language model") -> Iterator[None]:
    """Turn whatever transformers raises about unexpected files into one sentence; it raises nearly every type.

    Args:
        model: folder or hub id.
        what: is read from it, for the message.

    Raises:
        UserError: it cannot be read (`NotHere` if it is no folder).
    """
    is_reachable = Path(model).is_dir() or hub_answers()
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise UserError(
                f"{model} comes with code of its own, which is run only where model.trust_remote_code, or"
                " --trust-remote-code, says so; set it if you trust its author"
            ) from error
        reason = " ".join(str(error).split()).rstrip(".")[:240] or type(error).__name__
        if not is_reachable:
            reason = "the Hugging Face hub cannot be reached from here, and its local cache has no such model"
        # A hub id may only lack a network here.
        kind = UserError if Path(model).is_dir() else NotHere
        raise kind(
            f"cannot load {what} from '{model}' ({reason}); give a folder in Hugging Face layout with safetensors"
            " weights, or a hub id"
        ) from error


def without_weights(config: Any, *, trust_remote_code: bool) -> Any:
    """A causal language model of a configuration on torch's meta device: all its shapes, and no memory."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            config, trust_remote_code=trust_remote_code
        )


def model_shape(path: str, *, trust_remote_code: bool) -> ModelShape:
    """The shape of a model from its configuration alone.

    Raises:
        UserError: it cannot be read, or is not that of a causal language model with attention.
    """
    from transformers import AutoConfig

    with loading(path, "a model's configuration"):
        config = AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code)
        shape = ModelShape.of(without_weights(config, trust_remote_code=trust_remote_code))
        if shape is None:
            raise ValueError("it names no attention layers")
        return shape


def require_safetensors(folder: str | Path) -> None:
    """Refuse a model folder whose weights are pickles alone, which may run code when they are loaded.

    Raises:
        UserError: it is one; says how to convert it.
    """
    if not os.path.isdir(folder) or any(Path(folder).glob("*.safetensors")):
        return
    pickle = next((file for pattern in _PICKLES for file in sorted(Path(folder).glob(pattern))), None)
    if pickle is not None:
        raise UserError(
            f"{folder} has no safetensors weights but {pickle.name}, a format that can hold code; if you trust it,"
            " convert it once, in Python: transformers.AutoModelForCausalLM.from_pretrained(OLD).save_pretrained(NEW),"
            " and the tokenizer likewise"
        )
