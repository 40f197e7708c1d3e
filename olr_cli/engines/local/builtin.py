"""The built-in policies: their names, what their warm-up imitates, and the weights that come with the package.

Nothing here needs torch; `builtin_warmup` makes the weights.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path

from olr_cli.data.arithmetic import BUILTIN_PREFIX, Mixture
from olr_cli.errors import UserError, did_you_mean, no_path, taken

RECORD_NAME = "weights.json"

MIXTURES = {
    "addition-easier": Mixture("addition", 0.05, 0.85),
    "addition-harder": Mixture("addition", 0.02, 0.58),
    "subtraction": Mixture("subtraction", 0.03, 0.72),
}
"""The mixture that each policy imitates. Subtraction lies between the two difficulties of addition."""


@dataclass(frozen=True, slots=True)
class WeightsRecord:
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

    @classmethod
    def read(cls, folder: Path) -> WeightsRecord:
        """The record of the policy in `folder`."""
        return cls(**json.loads((folder / RECORD_NAME).read_text(encoding="utf-8")))

    def write(self, folder: Path) -> None:
        """Put the record beside the weights."""
        (folder / RECORD_NAME).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")


def is_builtin(path: str) -> bool:
    """Whether a model path names a built-in policy instead of a folder or a hub id."""
    return path.startswith(BUILTIN_PREFIX)


def policy_name(name: str) -> str:
    """The policy's plain name, with or without ``builtin:`` before it.

    Raises:
        UserError: there is no such policy.
    """
    plain = name.removeprefix(BUILTIN_PREFIX)
    if plain not in MIXTURES:
        names = ", ".join(MIXTURES)
        raise UserError(
            f"there is no built-in policy '{plain}'{did_you_mean(plain, MIXTURES)}; there are {names}"
        )
    return plain


def policy_path(name: str) -> Path:
    """Folder, in Hugging Face layout, of a policy that comes with the package.

    Raises:
        UserError: there is no such policy.
    """
    return Path(str(resources.files("olr_cli.engines.local"))) / "weights" / policy_name(name)


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
