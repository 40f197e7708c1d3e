"""The run directory: created once, held by one process at a time, never overwritten.

recipe.yaml  manifest.json  metrics.jsonl  labels/  rollouts/  checkpoints/  evaluation/  figures/
"""

from __future__ import annotations

import json
import os
import platform
import uuid
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from olr_cli import __version__
from olr_cli.errors import UserError, no_path, taken
from olr_cli.files import read_record, write_text, writing
from olr_cli.packages import installed_version
from olr_cli.recipe.layers import load_recipe
from olr_cli.recipe.plain import dump_yaml
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.sections import ExternalEngine
from olr_cli.runs.locks import LOCK, is_held

MANIFEST_VERSION = 1
"""Increased whenever a key of manifest.json changes its meaning."""

PROMPTS = "prompts.jsonl"
"""The prompts of another trainer's run in the interchange format; the recipe's `data.train` names this file."""
HELD_OUT_FILE = "held-out.parquet"
"""The prompts of `data.held_out`, which the run never trains on."""
GIVEN_UP = "given_up.jsonl"
"""Pairs of answers that verification gave up on; a resume and a replay give up on them too (R8)."""

_REQUIRED_KEYS = {"schema_version", "name", "status", "attempts"}
_TYPES: dict[str, type] = {
    **dict.fromkeys(
        (
            "id",
            "name",
            "status",
            "kind",
            "arm",
            "recipe_digest",
            "created",
            "day",
            "engine",
            "policy_digest",
        ),
        str,
    ),
    **dict.fromkeys(("schema_version", "seed"), int),
    **dict.fromkeys(("versions", "data", "rule"), dict),
    **dict.fromkeys(("attempts", "departures"), list),
}
"""Key of the manifest -> the type of its value; a key may be missing in older manifests."""

_START, _END = "---\n", "...\n"
"""First and last line of recipe.yaml. They show that the file is whole, because half a recipe may be a valid recipe."""

Status = Literal["running", "finished", "interrupted", "failed", "diverged"]
Kind = Literal["training", "rollouts"]
"""The command that made a run: `olr train`, or `olr rollouts`, which only samples."""


def create_run(
    path: Path, recipe: Recipe, *, kind: Kind = "training", arm: str = ""
) -> None:
    """Write the recipe and the manifest of a new run.

    The caller must hold the folder's lock. `kind` says which command makes the run. In a sweep, `arm` is the common
    name of all runs that differ only in their seed; else it is empty.

    Raises:
        UserError: the folder holds a run or other files.
    """
    require_free(path)
    # The manifest comes last, because it makes the folder a run: after a kill before that, the folder is still free.
    write_recipe(path, recipe)
    manifest = {
        "schema_version": MANIFEST_VERSION,
        "id": uuid.uuid4().hex,
        "kind": kind,
        "name": recipe.name,
        "arm": arm,
        "seed": recipe.seed,
        "recipe_digest": recipe.digest(),
        "status": "running",
        "created": now(),
        "versions": versions(),
        "attempts": [],
    }
    write_manifest(path, manifest)


def require_free(path: Path) -> None:
    """Raise UserError if a new run at `path` would overwrite anything.

    A folder is free if it is missing or empty. It is also free if a process began a run there, was killed before it
    wrote the manifest, and left nothing else.
    """
    with writing(path):
        if (path / "manifest.json").exists():
            status = (
                "in use by a live process"
                if is_held(path)
                else read_manifest(path)["status"]
            )
            resume = "" if status == "finished" else "resume it, or "
            raise UserError(
                f"{path} holds a run already ({status})",
                f"{resume}choose another name",
                "run_dir",
            )
        files = set(path.iterdir()) if path.is_dir() else {path} if path.exists() else set()
        lock, recipe = path / LOCK, path / "recipe.yaml"
        # A recipe without a lock beside it is the user's own file, not the remains of a killed process.
        if files and not lock in files <= {lock, recipe, *path.glob(".*.tmp")}:
            raise taken(path, " and is not an empty folder", "run_dir")


def write_recipe(path: Path, recipe: Recipe) -> None:
    """Write a run's recipe.yaml; an older file is replaced."""
    write_text(path / "recipe.yaml", f"{_START}{recipe_yaml(recipe)}{_END}")


def recipe_yaml(recipe: Recipe) -> str:
    """Return a recipe as YAML text, in the order of its sections. Keys with default values are written too."""
    return dump_yaml(recipe.plain())


def read_recipe(path: Path, manifest: Mapping[str, Any] | None = None) -> Recipe:
    """Read the recipe that a run was made with.

    If another trainer made the run, its prompts are in a file of the run directory. The recipe's `data.train` is then
    set to the path of this file.

    Args:
        path: the run directory.
        manifest: the run's manifest, if it has been read already.

    Raises:
        UserError: `path` is no run directory, or its recipe.yaml is cut off or was changed after the run was made.
    """
    require_run(path)
    file = path / "recipe.yaml"
    text = file.read_text(encoding="utf-8", errors="replace")
    # A file cut off within its first line is a beginning of `_START`, an empty file too.
    if (text.startswith(_START) or _START.startswith(text)) and not text.endswith(_END):
        raise UserError(
            f"{file} is cut off",
            "restore it from a copy: the recipe that the run was begun with will do",
        )
    recipe = load_recipe(file)
    if isinstance(recipe.engine, ExternalEngine):
        # The prompts of such a run lie in its own folder, which may have moved since the recipe was written.
        data = recipe.data.model_copy(update={"train": str((path / PROMPTS).absolute())})
        return recipe.model_copy(update={"data": data})
    manifest, digest = manifest or read_manifest(path), recipe.digest()
    # Any attempt's digest will do: a later attempt may have had more epochs.
    attempts = (manifest, *manifest["attempts"])
    if digest not in {attempt.get("recipe_digest", digest) for attempt in attempts}:
        raise UserError(
            f"{file} was changed since the run was made with it",
            "restore it from a copy, or start a new run with it",
        )
    return recipe


def has_run(path: Path) -> bool:
    """Return whether a folder holds a run or part of one: a manifest, a recipe or labels."""
    return any(
        (path / name).exists() for name in ("manifest.json", "recipe.yaml", "labels")
    )


def is_run(path: Path | str) -> bool:
    """Return whether a folder has the two files that every run begins with: manifest.json and recipe.yaml."""
    # os.path returns False for a name that is too long; pathlib raises.
    return all(
        os.path.isfile(os.path.join(path, name))
        for name in ("manifest.json", "recipe.yaml")
    )


def require_run(path: Path) -> None:
    """Raise UserError if `path` is not a run directory."""
    if is_run(path):
        return
    if not os.path.exists(path):
        raise no_path(path, "`olr train` makes run directories, by default under runs/")
    lacks, remedy = "recipe.yaml", "restore it from a copy"
    if not os.path.isfile(path / "manifest.json"):
        lacks, remedy = "manifest.json", "`olr train` makes one, by default under runs/"
    raise UserError(f"{path} is not a run directory (no {lacks})", remedy)


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the contents of a run's manifest.json.

    Raises:
        UserError: the manifest is missing or damaged, or a newer olr wrote it.
    """
    file = path / "manifest.json"
    if not os.path.isfile(file):
        require_run(path)
    manifest = read_record(file, MANIFEST_VERSION)
    if not _is_manifest(manifest):
        raise UserError(
            f"{file} is not a run's manifest",
            "restore it from a copy, or choose another run directory",
        )
    return dict(manifest)


def start_day(path: Path) -> date:
    """Return the day on which a run began, from its manifest.

    Chat templates that write a date get this day. A resume on another day thus makes the same prompts.

    Raises:
        UserError: the manifest names no day, is missing or damaged, or a newer olr wrote it.
    """
    manifest = read_manifest(path)
    try:
        # Manifests without `day` have at least the time of their creation.
        return date.fromisoformat(manifest.get("day", manifest.get("created", "")[:10]))
    except ValueError:
        raise UserError(
            f"{path / 'manifest.json'} names no day on which the run was begun (day)",
            "restore it from a copy",
        ) from None


def run_id(path: Path) -> str:
    """Return the id in a run's manifest, or "" if the folder is no run or the manifest has no id.

    The run's Parquet files are marked with the same id.

    Raises:
        UserError: the manifest is damaged, or a newer olr wrote it.
    """
    return str(read_manifest(path).get("id", "")) if is_run(path) else ""


def _is_manifest(manifest: Any) -> bool:
    """Return whether a JSON value has the required keys of a manifest, and every known key has a value of its type."""
    if not isinstance(manifest, dict) or not manifest.keys() >= _REQUIRED_KEYS:
        return False
    if not all(
        isinstance(manifest.get(key, dtype()), dtype) for key, dtype in _TYPES.items()
    ):
        return False
    sets = manifest.get("data", {}).values()
    return (
        manifest["status"] in get_args(Status)
        and all(isinstance(attempt, dict) for attempt in manifest["attempts"])
        and all(
            isinstance(facts, dict) and isinstance(facts.get("prompts"), int)
            for facts in sets
        )
    )


def kind_of(manifest: Mapping[str, Any]) -> Kind:
    """Return which command made a run: ``training`` for `olr train`, ``rollouts`` for `olr rollouts`.

    A manifest without a kind belongs to a training run.
    """
    return "rollouts" if manifest.get("kind") == "rollouts" else "training"


def kind_note(path: Path, kind: Kind) -> str | None:
    """Return a warning that the run at `path` has only sampled rollouts, or None if `kind` is ``training``."""
    if kind == "training":
        return None
    return (
        f"{path} holds rollouts without training: the policy was the same at every visit, so slopes are chance, and"
        " criteria with a slope mean nothing."
    )


def require_kind(path: Path, kind: Kind) -> None:
    """Raise UserError unless the run at `path` is of this kind.

    The kind is ``training`` for a run of `olr train` and ``rollouts`` for one of `olr rollouts`.
    """
    if kind_of(read_manifest(path)) != kind:
        if kind == "training":
            problem = (
                f"{path} holds rollouts without training, which `olr rollouts` resumes"
            )
            remedy = "choose another name for a training run"
        else:
            problem = f"{path} is a training run, which `olr train` resumes"
            remedy = "choose another name for rollouts"
        raise UserError(problem, remedy, "run_dir")


def write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Write a run's manifest.json; the old one is replaced as a whole."""
    write_text(
        path / "manifest.json", json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    )


def versions() -> dict[str, str]:
    """Return name -> version of olr, Python, and the installed packages that results may depend on."""
    packages = ("torch", "transformers", "math-verify", "pyarrow", "polars")
    installed = {
        name: version
        for name in packages
        if (version := installed_version(name)) is not None
    }
    return {"olr": __version__, "python": platform.python_version(), **installed}


def now() -> str:
    """Return the current time in UTC as manifests have it: ISO format, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
