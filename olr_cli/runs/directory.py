"""A run directory: made once, held by one process at a time, never overwritten.

recipe.yaml  manifest.json  metrics.jsonl  labels/  rollouts/  checkpoints/  evaluation/  figures/
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from olr_cli import __version__
from olr_cli.errors import UserError
from olr_cli.files import write_text, writing
from olr_cli.recipe import Recipe
from olr_cli.recipe_files import dump_yaml, load_recipe

MANIFEST_VERSION = 1
"""Raised whenever a key of manifest.json changes its meaning."""

Status = Literal["running", "finished", "interrupted", "failed"]


def create_run(path: Path, recipe: Recipe, *, arm: str = "") -> None:
    """Put recipe and manifest into a new run directory.

    Args:
        path: an empty folder, held by this process.
        recipe: written as recipe.yaml, resolved.
        arm: what runs of the same settings and other seeds have in common; named by a sweep.

    Raises:
        UserError: there is something at `path` already, or it can't be written.
    """
    require_free(path)
    write_text(path / "recipe.yaml", recipe_yaml(recipe))
    manifest = {
        "schema_version": MANIFEST_VERSION,
        "name": recipe.name,
        "arm": arm,
        "seed": recipe.seed,
        "recipe_digest": recipe.digest(),
        "status": "running",
        "created": _now(),
        "versions": _versions(),
        "attempts": [],
    }
    write_manifest(path, manifest)


def require_free(path: Path) -> None:
    """Make sure that nothing would be overwritten by a new run at `path`.

    Raises:
        UserError: there is a run, or anything else.
    """
    if (path / "manifest.json").exists():
        status = "in use by a live process" if is_held(path) else read_manifest(path)["status"]
        raise UserError(
            f"{path} holds a run already ({status}); continue it with --resume, or choose another --run-dir"
        )
    if path.exists() and (not path.is_dir() or any(file.name != ".lock" for file in path.iterdir())):
        raise UserError(f"{path} exists and is not an empty folder; choose another --run-dir")


def recipe_yaml(recipe: Recipe) -> str:
    """A recipe as YAML text, resolved, in the order of its sections."""
    return dump_yaml(recipe.plain())


def read_recipe(path: Path) -> Recipe:
    """The recipe a run was made with."""
    require_run(path)
    return load_recipe(path / "recipe.yaml")


def require_run(path: Path) -> None:
    """Make sure that `path` is a run directory.

    Raises:
        UserError: it is not.
    """
    if not (path / "manifest.json").is_file() or not (path / "recipe.yaml").is_file():
        what = "is not a run directory (no manifest.json)" if path.exists() else "does not exist"
        raise UserError(f"{path} {what}; `olr train` makes one, by default under runs/")


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a run.

    Raises:
        UserError: it is missing, not JSON, or of a newer version.
    """
    file = path / "manifest.json"
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        require_run(path)
        raise
    except ValueError as error:
        raise UserError(f"{file} is not valid JSON ({error}); restore it from a copy") from None
    version = manifest.get("schema_version", 0) if isinstance(manifest, dict) else 0
    if not isinstance(manifest, dict) or version > MANIFEST_VERSION:
        raise UserError(
            f"{file} was written by a newer olr (schema {version}, this one reads {MANIFEST_VERSION}); upgrade olr"
        )
    return manifest


def write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Replace the manifest of a run, whole."""
    write_text(path / "manifest.json", json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")


def begin_attempt(path: Path, *, from_step: int, **facts: Any) -> None:
    """Note in the manifest that a process works on the run, with what it found (device, threads, data digest …)."""
    manifest = read_manifest(path)
    manifest |= {"status": "running", "versions": _versions(), **facts}
    manifest["attempts"].append(
        {"started": _now(), "host": socket.gethostname(), "pid": os.getpid(), "from_step": from_step}
    )
    write_manifest(path, manifest)


def end_attempt(path: Path, status: Status, **facts: Any) -> None:
    """Note how the attempt ended."""
    manifest = read_manifest(path)
    manifest |= {"status": status, **facts}
    manifest["attempts"][-1] |= {"ended": _now(), "outcome": status}
    write_manifest(path, manifest)


@contextmanager
def held(path: Path, *, make: bool = False) -> Iterator[None]:
    """Hold a run directory for this process; the system lets go of it however the process ends.

    Args:
        path: the run directory.
        make: make it if it is not there; a folder that stays empty is removed again.

    Raises:
        UserError: another live process holds it, or it can't be made.
    """
    with writing(path):
        if make:
            path.mkdir(parents=True, exist_ok=True)
        lock = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(lock, 64).decode(errors="replace").strip() or "unknown"
            raise UserError(
                f"{path} is in use by process {holder}; wait for it, or choose another --run-dir"
            ) from None
        os.ftruncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(lock)
        if make and not any(file.name != ".lock" for file in path.iterdir()):
            (path / ".lock").unlink(missing_ok=True)
            path.rmdir()


def is_held(path: Path) -> bool:
    """Whether a live process works on the run."""
    try:
        lock = os.open(path / ".lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _versions() -> dict[str, str]:
    versions = {"olr": __version__, "python": platform.python_version()}
    for package in ("torch", "transformers", "math-verify", "pyarrow", "polars"):
        versions[package] = metadata.version(package)
    return versions


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
