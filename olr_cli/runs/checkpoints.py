"""Checkpoints: step-000050/ in Hugging Face layout, plus the files that the engine needs to continue.

A checkpoint is filled under a temporary name and renamed when everything in it is on the disk, so a folder named step-…
is always whole. Its list of files and digests shows later damage, by a copy to a full disk or by the disk itself. The
digests are computed before the rename. A thread that computed them during further training was tried; damage in the
meantime could not be noticed.
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
"""Path of every other file in the checkpoint -> its size in bytes and its sha256."""

_NAME = re.compile(r"step-(\d{6,9})")


def checkpoint_path(run: Path, step: int) -> Path:
    """Return the folder of the checkpoint after `step` steps."""
    return run / "checkpoints" / f"step-{step:06d}"


def checkpoint_steps(run: Path) -> list[int]:
    """Return the steps that have a checkpoint, ascending."""
    matches = (_NAME.fullmatch(path.name) for path in (run / "checkpoints").glob("step-*"))
    return sorted(int(match.group(1)) for match in matches if match)


def write_checkpoint(
    run: Path, step: int, fill: Callable[[Path], None], *, keep: int
) -> None:
    """Write the checkpoint after `step` steps, then remove old ones.

    `fill` gets the path of a temporary folder and writes the files there. Once all files are on the disk, the folder
    gets the checkpoint's name. If anything fails before, the folder is removed.

    The newest `keep` checkpoints and the one with the highest validation accuracy stay.
    """
    target = checkpoint_path(run, step)
    temporary = target.with_name(f".{target.name}.tmp")
    with writing(target):
        remove(temporary)
        # Without `parents`: if the run has been moved, a checkpoint must not recreate its old folder.
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
            # Not left for the next attempt: these files may be what fills the disk.
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync(target.parent)
        sync(run)
    keep_newest(run, keep)


def keep_newest(run: Path, keep: int) -> None:
    """Remove all checkpoints but the newest `keep` and the one with the highest validation accuracy."""
    best = best_step(run)
    for old in checkpoint_steps(run)[:-keep]:
        if old != best:
            _remove(checkpoint_path(run, old))


def best_step(run: Path) -> int | None:
    """Return the step with the highest accuracy on the validation set, or None if it was never measured.

    Step 0, before training, does not count. In a tie, the earliest step is returned. A test set never chooses a
    checkpoint (R22).
    """
    measured = [line for line in read_metrics(run, VALIDATION) if line["step"]]
    return (
        int(max(measured, key=lambda line: line[VALIDATION])["step"]) if measured else None
    )


def is_best(run: Path, step: int, metrics: Metrics) -> bool:
    """Return whether `step` has the run's highest accuracy on the validation set so far (R22).

    In a tie, the earlier step is the best. `metrics` are the step's metrics, which must already be in the run's
    metrics.jsonl. If they have no validation accuracy, the result is False.
    """
    return VALIDATION in metrics and best_step(run) == step


def drop_unfinished(run: Path) -> None:
    """Remove from a run the remains of checkpoints whose writing or removal was interrupted.

    Call it only while no process writes a checkpoint.
    """
    for pattern in (".step-*", "step-*/.*.tmp"):
        for leftover in (run / "checkpoints").glob(pattern):
            # The user may have linked a checkpoint to another place, which is not ours to clean.
            if not leftover.parent.is_symlink():
                remove(leftover)


def _remove(checkpoint: Path) -> None:
    """Remove a checkpoint. If the process is killed meanwhile, the rest does not look like a whole checkpoint."""
    # Renamed first, because a kill may come while the files are removed.
    doomed = checkpoint.with_name(f".{checkpoint.name}.removed")
    try:
        os.replace(checkpoint, doomed)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EBUSY):
            raise
        # A folder in a lower layer of overlayfs cannot be renamed, nor one in use on NFS. A list that names a missing
        # file makes it a damaged checkpoint instead, which no resume takes.
        write_text(checkpoint / _LIST, json.dumps({"(removed)": {"bytes": 0}}))
        doomed = checkpoint
    remove(doomed)


def set_aside(checkpoint: Path) -> Path:
    """Rename a damaged checkpoint to ``step-….damaged``, and return its new path.

    The step's checkpoint can then be written again. An older folder of the new name is removed.
    """
    aside = checkpoint.with_name(f"{checkpoint.name}.damaged")
    with writing(aside):
        remove(aside)
        # `os.replace` fails for a folder in a lower layer of overlayfs; `move` then copies the folder.
        shutil.move(checkpoint, aside)
    return aside


def damage_of(checkpoint: Path) -> str | None:
    """Return in a few words how a checkpoint differs from what was written, or None if it is whole.

    This takes long for a large checkpoint, because every byte is read to compare digests.
    """
    try:
        files = read_json(checkpoint / _LIST).items()
        listed = {name: (facts["bytes"], facts["sha256"]) for name, facts in files}
    except (UserError, OSError, AttributeError, KeyError, TypeError):
        return f"{_LIST} has gone, is cut off, or is no list of files"
    there = {name: file.stat().st_size for name, file in _files(checkpoint).items()}
    # Names and sizes first, since they cost nothing; a digest reads the whole file.
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
    """Return path within the checkpoint -> file, for all files but the list of files, ``files.json``."""
    files = sorted(
        file for file in checkpoint.rglob("*") if file.is_file() and file.name != _LIST
    )
    return {str(file.relative_to(checkpoint)): file for file in files}


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
