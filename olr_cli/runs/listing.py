"""`olr runs`: the runs in a folder, one row each."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import join, quote
from typing import Any

from olr_cli.errors import UserError, no_path, unknown
from olr_cli.runs.directory import is_run, read_manifest, read_recipe
from olr_cli.runs.locks import is_held
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.progress import of_epoch
from olr_cli.runs.stored import arm_name, read_run, runs_below, whole_epochs
from olr_cli.tables import NOTHING, Answer, Block, Column, Row, Table, percent

STATUSES = ("finished", "running", "stopped", "failed", "diverged", "crashed", "damaged")
"""The states of a run:

- ``stopped``: by Ctrl-C or SIGTERM;
- ``failed``: with an error;
- ``diverged``: a loss, gradient or logit was not finite;
- ``crashed``: killed, without a note in the manifest;
- ``damaged``: its files cannot be read.
"""


@dataclass(frozen=True)
class RunEntry:
    """One row of `olr runs`: what a run is, how far it has come and how well it does. An unknown value is None."""

    name: str
    """Its path below the folder that was searched."""

    path: str
    kind: str = "training"
    engine: str = ""
    arm: str = ""
    seed: int | None = None
    status: str = "damaged"
    epoch: int | None = None
    """The epoch of the last stored step."""

    epochs: int | None = None
    """The number of epochs that its recipe asks for."""

    accuracy: float | None = None
    """The latest held-out accuracy, from 0 to 1."""

    wrong_labels: float | None = None
    """Share of wrong effective labels in the last whole epoch, the same value as in figures and reports."""

    created: str = ""
    size: int = 0
    """Size of all files in bytes."""

    problem: str | None = None
    """Why a damaged run cannot be read."""


SORT_KEYS: dict[str, Callable[[RunEntry], Any]] = {
    "created": lambda run: run.created,
    "name": lambda run: run.name,
    "arm": lambda run: (run.arm, run.seed or 0),
    "status": lambda run: STATUSES.index(run.status),
    "accuracy": lambda run: -1.0 if run.accuracy is None else run.accuracy,
    "wrong": lambda run: -1.0 if run.wrong_labels is None else run.wrong_labels,
    "size": lambda run: run.size,
}


def list_runs(
    folders: Sequence[Path],
    *,
    status: str | None = None,
    arm: str | None = None,
    sort: str = "created",
) -> list[RunEntry]:
    """Return the runs at and below folders, sorted.

    Args:
        folders: folders to search, or run directories.
        status: keep only runs with this status, such as ``finished`` (`STATUSES`); by default all.
        arm: keep only runs whose arm has this text in its name; by default all. An arm is a set of runs that differ
            only in their seed.
        sort: what to sort by, in ascending order: ``created``, ``name``, ``arm``, ``status``, ``accuracy``, ``wrong``
            (wrong labels) or ``size``.

    Raises:
        UserError: a folder does not exist, or `status` or `sort` is unknown.
    """
    if status is not None and status not in STATUSES:
        raise unknown("status", status, STATUSES)
    if sort not in SORT_KEYS:
        raise unknown("sort", sort, SORT_KEYS)
    entries: dict[Path, RunEntry] = {}
    for folder in folders:
        if not folder.is_dir():
            raise no_path(folder, "`olr train` makes runs, by default in runs/")
        for path in [folder] if is_run(folder) else runs_below(folder):
            # Two folders, or a link, may lead to the same run.
            entries.setdefault(path.resolve(), _entry(path, folder))
    chosen = [
        run
        for run in entries.values()
        if status in (None, run.status) and (arm is None or arm in run.arm)
    ]
    return sorted(chosen, key=lambda run: (SORT_KEYS[sort](run), run.created, run.name))


def runs_answer(folders: Sequence[Path], entries: Sequence[RunEntry]) -> Answer:
    """Return what `olr runs` prints: a table of runs, why some cannot be read, and commands to try next.

    `folders` were searched, and `entries` are the runs found. If there are none, the answer says so.
    """
    named = " ".join(quote(str(folder)) for folder in folders)
    table = Table(
        [Block(_COLUMNS, [Row(_cells(run)) for run in entries])] if entries else [],
        entries,
        fields=tuple(RunEntry.__dataclass_fields__),
        nothing=f"no runs below {named}",
    )
    notes = [f"{run.path}: {run.problem}" for run in entries if run.problem]
    resumable = ("stopped", "failed", "crashed")
    unfinished = [
        run for run in entries if run.status in resumable and run.engine != "external"
    ]
    commands = {}
    if any(run.epoch is not None for run in entries):
        commands[f"olr analyze {named}"] = "figures, and a comparison of the arms"
    if unfinished:
        last = unfinished[-1]
        words = ["--resume", "--run-dir", last.path]
        if last.kind == "training":
            command = join(
                ["olr", "train", *words, *read_recipe(Path(last.path)).named_again()]
            )
        else:
            # Rollouts have no recipe to resume from: `olr rollouts` needs its arguments again.
            if (url := read_manifest(Path(last.path)).get("url")) is not None:
                words = ["--url", url, *words]
            command = f"olr rollouts MODEL DATA {join(words)}"
        commands[command] = "continue a run"
    return Answer(
        [table] if entries else [table.nothing], {"runs": entries}, notes, next=commands
    )


_HEADS = (
    "run",
    "arm",
    "seed",
    "status",
    "epoch",
    "held-out\naccuracy",
    "wrong\nlabels",
    "created",
    "size",
)
_COLUMNS = [
    Column(head, is_text=head in ("run", "arm", "status", "created")) for head in _HEADS
]


def _cells(run: RunEntry) -> list[str]:
    """Return the texts of a run's row in the table of `olr runs`, one per column."""
    return [
        run.name,
        run.arm,
        NOTHING if run.seed is None else str(run.seed),
        run.status,
        NOTHING if run.epochs is None else f"{run.epoch or 0}/{run.epochs}",
        percent(run.accuracy),
        percent(run.wrong_labels),
        run.created[:16].replace("T", " ") or NOTHING,
        size_text(run.size),
    ]


def _entry(path: Path, folder: Path) -> RunEntry:
    """Read the run at `path`, which was found at or below `folder`.

    The run is named by its path relative to `folder`. If it cannot be read, the entry says why in `problem`, and has
    only the name, path and size.
    """
    entry = RunEntry(
        path.name if path == folder else os.path.relpath(path, folder),
        str(path),
        size=_size(path),
    )
    try:
        manifest = read_manifest(path)
        run, lines = read_run(path, manifest), read_metrics(path)
    except (UserError, OSError) as error:
        return replace(entry, problem=str(error))
    trained = [line for line in lines if line["step"]]
    prompts = Counter[float]()
    for line in trained:
        prompts[line["epoch"]] += int(line.get("rollout/groups", 0))
    # Noisy prompts may be rare or frequent in a part of an epoch, so figures and reports leave it out too.
    whole = [[*prompts][index] for index in whole_epochs([*prompts.values()])]
    return replace(
        entry,
        kind=run.kind,
        engine=run.recipe.engine.name,
        arm=arm_name(run),
        seed=run.seed,
        status=status_of(path, manifest),
        epoch=int(trained[-1]["epoch"]) if trained else None,
        epochs=run.recipe.train.epochs,
        accuracy=of_epoch("eval/avg", lines),
        wrong_labels=of_epoch(
            "label/effective_noise", [it for it in trained if it["epoch"] == whole[-1]]
        ),
        created=run.created,
    )


def status_of(path: Path, manifest: Mapping[str, Any]) -> str:
    """Return the status of the run at `path`, such as ``finished`` or ``stopped`` (`STATUSES`), given its manifest.

    If the manifest says that the run is running on this host, but no process holds its lock, the status is ``crashed``.
    """
    status = str(manifest["status"])
    if status != "running":
        return {"interrupted": "stopped"}.get(status, status)
    # A process on another host may hold the lock without this host seeing it, so believe the manifest there.
    attempts = manifest["attempts"]
    is_elsewhere = bool(attempts) and attempts[-1].get("host") != socket.gethostname()
    return "running" if is_held(path) or is_elsewhere else "crashed"


def _size(path: Path) -> int:
    """Return the number of bytes in all files of a folder and below; a file that disappears meanwhile counts 0."""
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            with suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def size_text(size: float) -> str:
    """Return a number of bytes as text in B, kB, MB or GB, such as ``12 MB`` or ``1.5 GB``."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
