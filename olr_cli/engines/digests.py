"""The identity of a model: a digest of its files, and a digest of its weights in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from olr_cli.files import digest_of

WEIGHTS = ("*.safetensors",)
"""The files of a starting policy. Training reads everything else from the recipe and the rendered prompts."""

_MODEL_FILES = (*WEIGHTS, "*.json", "*.jinja", "*.model", "*.txt")
"""Everything that a response depends on: weights, configurations, tokenizer and chat template."""


def model_digest(
    model: str, config: Any = None, names: Sequence[str] = _MODEL_FILES
) -> str:
    """Return a text that identifies a model: ``sha256:<digest>`` for a folder, ``commit:<hash>`` for a hub id.

    Args:
        model: the folder or the hub id.
        config: the model's transformers configuration, which holds the commit; needed only for a hub id.
        names: glob patterns of the folder's files that go into the digest. By default these are weights,
            configurations, tokenizer and chat template.
    """
    folder = Path(model)
    if not folder.is_dir():
        return f"commit:{config._commit_hash}"
    files = {file for name in names for file in folder.glob(name)}
    return f"sha256:{digest_of(sorted(files))}"


def weights_digest(model: Any) -> str:
    """Return the sha256, in hex, over names, shapes, dtypes and bytes of a torch model's weights, sorted by name."""
    total = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        total.update(f"{name} {tuple(weight.shape)} {weight.dtype}\n".encode())
        total.update(weight.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()
