"""Checkpoints: step-000050/ in Hugging Face layout plus what the engine needs to continue.

A checkpoint is filled under a temporary name and renamed when everything in it is on the disk, so a folder named step-…
is always whole. Damage done later, by a copy to a full disk or by the disk, shows in its list of files and digests.
The digests are made before the rename: a thread that made them while training went on left a time in which damage could
not be seen.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from olr_cli.errors import UserError
from olr_cli.files import read_json, remove, sync, write_text, writing
from olr_cli.runs.metrics import Metrics, read_metrics

VALIDATION = "validation/avg"
"""The metric that chooses the best checkpoint."""

_LIST = "files.json"
"""The size in bytes and the sha256 of every other file of a checkpoint, by its path in the folder."""

_NAME = re.compile(r"step-(\d{6,9})")


def checkpoint_path(run: Path, step: int) -> Path:
    """The folder of the checkpoint after `step` steps."""
    return run / "checkpoints" / f"step-{step:06d}"


def checkpoint_steps(run: Path) -> list[int]:
    """The steps that have a checkpoint, ascending."""
    matches = (_NAME.fullmatch(path.name) for path in (run / "checkpoints").glob("step-*"))
    return sorted(int(match.group(1)) for match in matches if match)


def write_checkpoint(
    run: Path, step: int, fill: Callable[[Path], None], *, keep: int
) -> None:
    """Write the checkpoint after `step` steps and remove all but the newest `keep` and the best one (`best_step`).

    `fill` puts the files into the folder that it gets.
    """
    target = checkpoint_path(run, step)
    temporary = target.with_name(f".{target.name}.tmp")
    with writing(target):
        remove(temporary)
        # Not its parents: the run may have been moved
        temporary.parent.mkdir(exist_ok=True)
        temporary.mkdir()
        try:
            fill(temporary)
            listed = {
                name: {"bytes": file.stat().st_size, "sha256": _digest(file)}
                for name, file in _files(temporary).items()
            }
            write_text(temporary / _LIST, json.dumps(listed, indent=1))
            for path in (*temporary.rglob("*"), temporary):
                sync(path)
            os.replace(temporary, target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)  # it may be what fills the disk
            raise
        sync(target.parent)
        sync(run)
    keep_newest(run, keep)


def keep_newest(run: Path, keep: int) -> None:
    """Remove all checkpoints but the newest `keep` and the best one (`best_step`)."""
    best = best_step(run)
    for old in checkpoint_steps(run)[:-keep]:
        if old != best:
            _remove(checkpoint_path(run, old))


def best_step(run: Path) -> int | None:
    """The step, from 1, after which accuracy on the validation set was highest, the first of equals (R22).

    None as long as no validation set was measured. A test set never chooses a checkpoint.
    """
    measured = [line for line in read_metrics(run, VALIDATION) if line["step"]]
    return (
        int(max(measured, key=lambda line: line[VALIDATION])["step"]) if measured else None
    )


def is_best(run: Path, step: int, metrics: Metrics) -> bool:
    """Whether the validation set was measured after this step, with the best accuracy so far (R22).

    The run's metrics.jsonl has this step's line already.
    """
    return VALIDATION in metrics and best_step(run) == step


def drop_unfinished(run: Path) -> None:
    """Remove what an interrupted checkpoint, or the list of one, left behind; nobody may be writing."""
    for pattern in (".step-*", "step-*/.*.tmp"):
        for leftover in (run / "checkpoints").glob(pattern):
            if not leftover.parent.is_symlink():  # what a link leads to is not ours
                remove(leftover)


def _remove(checkpoint: Path) -> None:
    # Renamed first: a kill while the files go must not leave half a checkpoint under a whole one's name.
    doomed = checkpoint.with_name(f".{checkpoint.name}.removed")
    try:
        os.replace(checkpoint, doomed)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EBUSY):
            raise
        # A folder in a lower layer of overlayfs cannot be renamed, nor one in use on NFS. A list with a missing file
        # makes it a damaged checkpoint, which no resume takes.
        write_text(checkpoint / _LIST, json.dumps({"(removed)": {"bytes": 0}}))
        doomed = checkpoint
    remove(doomed)


def set_aside(checkpoint: Path) -> Path:
    """Rename a damaged checkpoint, so that it can be written again; returns where it is now."""
    aside = checkpoint.with_name(f"{checkpoint.name}.damaged")
    with writing(aside):
        remove(aside)
        # Not `os.replace`, which fails for a folder in a lower layer of overlayfs: `move` copies it then.
        shutil.move(checkpoint, aside)
    return aside


def damage_of(checkpoint: Path) -> str | None:
    """The damage done to a checkpoint since it was written, in a few words; None if there is none.

    Every byte is read.
    """
    try:
        files = read_json(checkpoint / _LIST).items()
        listed = {name: (facts["bytes"], facts["sha256"]) for name, facts in files}
    except (UserError, OSError, AttributeError, KeyError, TypeError):
        return f"{_LIST} has gone, is cut off, or is no list of files"
    there = {name: file.stat().st_size for name, file in _files(checkpoint).items()}
    for name, (size, _) in listed.items():
        if name not in there:
            return f"{name} has gone"
        if there[name] != size:
            return f"{name} has {there[name]:,} of its {size} bytes"
    for name, (_, digest) in listed.items():
        if digest != _digest(checkpoint / name):
            return f"{name} has other bytes than were written"
    return None


def _files(checkpoint: Path) -> dict[str, Path]:
    """Every file of a checkpoint but its list, by its path in the folder."""
    files = sorted(
        file for file in checkpoint.rglob("*") if file.is_file() and file.name != _LIST
    )
    return {str(file.relative_to(checkpoint)): file for file in files}


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
