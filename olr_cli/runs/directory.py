"""A run directory: made once, held by one process at a time, never overwritten.

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
"""Raised whenever a key of manifest.json changes its meaning."""

PROMPTS = "prompts.jsonl"
"""The prompts of a run that another trainer makes, in the interchange format: what its `data.train` names."""
HELD_OUT_FILE = "held-out.parquet"
"""The prompts of `data.held_out`, which this run never trains on."""
GIVEN_UP = "given_up.jsonl"
"""Pairs of answers that verification gave up on, so that a resume and a replay do too (R8)."""

_NEEDED = {"schema_version", "name", "status", "attempts"}
_KINDS: dict[str, type] = {
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
_START, _END = "---\n", "...\n"
"""First and last line of recipe.yaml, which show that it is whole: the first half of a recipe is a recipe too."""

Status = Literal["running", "finished", "interrupted", "failed", "diverged"]
Kind = Literal["training", "rollouts"]
"""The command that made a run: `olr train`, or `olr rollouts`, which only samples."""


def create_run(
    path: Path, recipe: Recipe, *, kind: Kind = "training", arm: str = ""
) -> None:
    """Put recipe and manifest into a new run directory, a free folder (`require_free`) held by this process.

    `arm` is the name, given by a sweep, of all runs that differ in their seed alone.
    """
    require_free(path)
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
    """Make sure that nothing would be overwritten by a new run at `path`.

    A folder is free if it is empty or missing, or if it has only what a kill left of a run without a manifest.
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
        # A recipe without a lock beside it is the user's own, and not what a kill left.
        if files and not lock in files <= {lock, recipe, *path.glob(".*.tmp")}:
            raise taken(path, " and is not an empty folder", "run_dir")


def write_recipe(path: Path, recipe: Recipe) -> None:
    """Write recipe.yaml: the recipe of the latest attempt, which decides the same result as the first one's."""
    write_text(path / "recipe.yaml", f"{_START}{recipe_yaml(recipe)}{_END}")


def recipe_yaml(recipe: Recipe) -> str:
    """A recipe as YAML text, resolved, in the order of its sections."""
    return dump_yaml(recipe.plain())


def read_recipe(path: Path, manifest: Mapping[str, Any] | None = None) -> Recipe:
    """Read the recipe a run was made with; `manifest` is the run's, if it has been read already."""
    require_run(path)
    file = path / "recipe.yaml"
    text = file.read_text(encoding="utf-8", errors="replace")
    if (text.startswith(_START) or _START.startswith(text)) and not text.endswith(_END):
        raise UserError(
            f"{file} is cut off",
            "restore it from a copy: the recipe that the run was begun with will do",
        )
    recipe = load_recipe(file)
    if isinstance(recipe.engine, ExternalEngine):
        # Such a run's prompts lie in its own folder, which may have moved since the recipe named it.
        data = recipe.data.model_copy(update={"train": str((path / PROMPTS).absolute())})
        return recipe.model_copy(update={"data": data})
    manifest, digest = manifest or read_manifest(path), recipe.digest()
    # Any attempt's digest will do: a later one may have had more epochs.
    attempts = (manifest, *manifest["attempts"])
    if digest not in {attempt.get("recipe_digest", digest) for attempt in attempts}:
        raise UserError(
            f"{file} was changed since the run was made with it",
            "restore it from a copy, or start a new run with it",
        )
    return recipe


def has_run(path: Path) -> bool:
    """Whether there is a run at `path`, or what is left of one."""
    return any(
        (path / name).exists() for name in ("manifest.json", "recipe.yaml", "labels")
    )


def is_run(path: Path | str) -> bool:
    """Whether a folder has a run's two first files."""
    # os.path takes a name that is too long for one that does not exist; pathlib raises.
    return all(
        os.path.isfile(os.path.join(path, name))
        for name in ("manifest.json", "recipe.yaml")
    )


def require_run(path: Path) -> None:
    """Make sure that `path` is a run directory."""
    if is_run(path):
        return
    if not os.path.exists(path):
        raise no_path(path, "`olr train` makes run directories, by default under runs/")
    lacks, remedy = "recipe.yaml", "restore it from a copy"
    if not os.path.isfile(path / "manifest.json"):
        lacks, remedy = "manifest.json", "`olr train` makes one, by default under runs/"
    raise UserError(f"{path} is not a run directory (no {lacks})", remedy)


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a run."""
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
    """Return the day on which a run was begun, which chat templates that write the date are given at every attempt."""
    manifest = read_manifest(path)
    try:
        return date.fromisoformat(manifest.get("day", manifest.get("created", "")[:10]))
    except ValueError:
        raise UserError(
            f"{path / 'manifest.json'} names no day on which the run was begun (day)",
            "restore it from a copy",
        ) from None


def run_id(path: Path) -> str:
    """The id that marks a run's files; empty where there is no manifest. Errors are those of `read_manifest`."""
    return str(read_manifest(path).get("id", "")) if is_run(path) else ""


def _is_manifest(manifest: Any) -> bool:
    if not isinstance(manifest, dict) or not manifest.keys() >= _NEEDED:
        return False
    if not all(isinstance(manifest.get(key, kind()), kind) for key, kind in _KINDS.items()):
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
    """The command that made the run of a manifest; training where it doesn't say."""
    return "rollouts" if manifest.get("kind") == "rollouts" else "training"


def kind_note(path: Path, kind: Kind) -> str | None:
    """A caution about a run without training; None for a training run."""
    if kind == "training":
        return None
    return (
        f"{path} holds rollouts without training: the policy was the same at every visit, so slopes are chance, and"
        " criteria with a slope mean nothing."
    )


def require_kind(path: Path, kind: Kind) -> None:
    """Make sure that a run was begun by the command that is to continue it."""
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
    """Replace the manifest of a run, whole."""
    write_text(
        path / "manifest.json", json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    )


def versions() -> dict[str, str]:
    """Versions of this program, Python, and the packages on which results may depend, where they are installed."""
    packages = ("torch", "transformers", "math-verify", "pyarrow", "polars")
    installed = {
        name: version
        for name in packages
        if (version := installed_version(name)) is not None
    }
    return {"olr": __version__, "python": platform.python_version(), **installed}


def now() -> str:
    """The time in UTC, as manifests have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
