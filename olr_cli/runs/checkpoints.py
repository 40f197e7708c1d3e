"""Checkpoints: step-000050/ in Hugging Face layout plus what the engine needs to go on.

A checkpoint is filled under a temporary name and renamed when everything in it is on the disk, so a folder named step-…
is always whole. Damage done later, such as by a copy to a full disk, shows in its list of files and their sizes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from olr_cli.files import sync, writing
from olr_cli.runs.metrics import read_metrics

VALIDATION = "validation/avg"
"""The metric that chooses the best checkpoint."""

_SIZES = "files.json"
"""The size of every other file of a checkpoint, in bytes, by its path in the folder."""

_NAME = re.compile(r"step-(\d{6,})")


def checkpoint_path(run: Path, step: int) -> Path:
    """The folder of the checkpoint after `step` steps."""
    return run / "checkpoints" / f"step-{step:06d}"


def checkpoint_steps(run: Path) -> list[int]:
    """The steps that have a checkpoint, ascending."""
    matches = (_NAME.fullmatch(path.name) for path in (run / "checkpoints").glob("step-*"))
    return sorted(int(match.group(1)) for match in matches if match)


def write_checkpoint(run: Path, step: int, fill: Callable[[Path], None], *, keep: int) -> None:
    """Write the checkpoint after `step` steps and remove all but the newest `keep` and the best one (`best_step`).

    `fill` puts the files into the folder that it gets.

    Raises:
        UserError: no space or no permission; the earlier checkpoints stand.
    """
    target = checkpoint_path(run, step)
    temporary = target.with_name(f".{target.name}.tmp")
    with writing(target):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            fill(temporary)
            (temporary / _SIZES).write_text(json.dumps(_sizes(temporary), indent=1), encoding="utf-8")
            for file in temporary.rglob("*"):
                sync(file)
            sync(temporary)
            os.replace(temporary, target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)  # it may be what fills the disk
            raise
        sync(target.parent)
        sync(run)
    best = best_step(run)
    for old in checkpoint_steps(run)[:-keep]:
        if old != best:
            _remove(checkpoint_path(run, old))


def best_step(run: Path) -> int | None:
    """The step, from 1, after which accuracy on the validation set was highest, the first of equals (R22).

    None as long as no validation set was measured. A test set never chooses a checkpoint.
    """
    measured = [line for line in read_metrics(run, VALIDATION) if line["step"]]
    return int(max(measured, key=lambda line: line[VALIDATION])["step"]) if measured else None


def drop_unfinished(run: Path) -> None:
    """Remove what an interrupted checkpoint left behind."""
    for leftover in (run / "checkpoints").glob(".step-*"):
        shutil.rmtree(leftover)


def _remove(checkpoint: Path) -> None:
    # Renamed first: a kill while the files go must not leave half a checkpoint under a whole one's name.
    doomed = checkpoint.with_name(f".{checkpoint.name}.removed")
    os.replace(checkpoint, doomed)
    shutil.rmtree(doomed)


def set_aside(checkpoint: Path) -> Path:
    """Rename a damaged checkpoint, so that it can be written again; returns where it is now."""
    aside = checkpoint.with_name(f"{checkpoint.name}.damaged")
    with writing(aside):
        if aside.exists():
            shutil.rmtree(aside)
        os.replace(checkpoint, aside)
    return aside


def damage_of(checkpoint: Path) -> str | None:
    """What a checkpoint has lost since it was written, in a few words; None if nothing, or if it has no list."""
    try:
        listed = json.loads((checkpoint / _SIZES).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        return f"{_SIZES} is cut off"
    there = _sizes(checkpoint)
    for name, size in listed.items():
        if there.get(name) != size:
            return (
                f"{name} has {there[name]:,} of its {size:,} bytes" if name in there else f"{name} has gone"
            )
    return None


def _sizes(checkpoint: Path) -> dict[str, int]:
    files = sorted(file for file in checkpoint.rglob("*") if file.is_file() and file.name != _SIZES)
    return {str(file.relative_to(checkpoint)): file.stat().st_size for file in files}
