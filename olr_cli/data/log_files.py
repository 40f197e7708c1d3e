"""Where the files of rollouts lie that a trainer wrote, in the order of their steps."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from olr_cli.data.table_files import matching_files
from olr_cli.errors import UserError

_HELD_OUT = re.compile(r"^(eval|val|test|valid|validation)([-_.]|$)")

_OUTPUT = re.compile(r"-(audit|replay)-[0-9a-f]{8}\.parquet$")
"""What olr writes beside a log."""

_NESTED_LOGS = ("completions/*.parquet", "*.eval", "**/train_rollouts.jsonl", "**/traces.jsonl", "**/results.jsonl",
                "**/rollout/[0-9]*/[0-9]*.jsonl", "[0-9]*/[0-9]*.jsonl", "**/samples_*.jsonl",
                "**/*_data_step*.jsonl", "**/reviews/*/*.jsonl", "**/predictions/*/*.json")  # fmt: skip
"""Where the logs lie in the folder that a trainer was given: TRL's, inspect_ai's, prime-rl's before July 2026 and
since, verifiers', AReaL's, lm-eval's, NeMo-RL's, evalscope's and OpenCompass's."""

_DEEPER_LOGS = (
    "**/completions/*.parquet",
    "**/completions.jsonl",
    "**/[0-9]*.jsonl",
    "**/*.table.json",
)
"""Where the logs lie in a folder above that one, or in a folder without a file of rows: TRL's, ms-swift's, verl's
and W&B's."""

_STEP = re.compile(
    r"(?:global_)?(?:step|version)?[-_]?[0-9]+|all|effective|train|rollouts?"
)
"""Folders within the log of one run; those of other names are of runs each."""


def common_place(places: Sequence[Path]) -> Path:
    """The path by which several files are named: the only one, else the folder that they share."""
    if len(places) == 1:
        return places[0].parent if glob.has_magic(str(places[0])) else places[0]
    is_mixed = len({place.is_absolute() for place in places}) > 1
    return Path(
        os.path.commonpath([it.absolute() for it in places] if is_mixed else places)
    )


def log_files(places: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Return the files of rollouts at some places, in the order of the numbers in their names.

    Returns:
        The files, and notes on those that are left out: held-out rollouts beside those of training, and prime-rl's
        `effective`, a part of `all`.

    Raises:
        UserError: there are none, or a folder holds the logs of several runs.
    """
    found = {file.resolve(): file for place in places for file in _one_run(place)}
    files = sorted(found.values(), key=lambda file: [natural(part) for part in file.parts])
    within = common_place(files)
    held_out = {file for file in files if _is_held_out(file.relative_to(within))}
    if len(held_out) == len(files):  # alone they are what is asked for
        held_out = set()
    folders = {file.parent for file in files}
    parts = {
        file
        for file in files
        if file.parent.name == "effective" and file.parent.with_name("all") in folders
    }
    reasons = {
        "held-out rollouts, which did not train": held_out,
        "`effective`, a part of `all`": parts - held_out,
    }
    notes = [
        left_out([file for file in files if file in few], reason)
        for reason, few in reasons.items()
        if few
    ]
    return [file for file in files if file not in held_out | parts], notes


def left_out(files: Sequence[Path], reason: str) -> str:
    """Return the sentence that some files are not read, and why."""
    several = f"{len(files)} files (the first is {files[0]}) are"
    return f"{several if len(files) > 1 else f'{files[0]} is'} left out: {reason}."


def _is_held_out(path: Path) -> bool:
    return any(map(_HELD_OUT.match, path.parts))


def _one_run(place: Path) -> list[Path]:
    """Return the files of rollouts at a place; refuse a folder that holds those of several runs."""
    files = _files_at(place)
    folders = [file.relative_to(place).parts[:-1] for file in files if place.is_dir()]
    runs = {
        tuple(name for name in names if not _STEP.fullmatch(name))
        for names in folders
        if not any(map(_HELD_OUT.match, names))
    }
    # Evaluations of several models ask the same questions; runs of training have steps of the same numbers.
    if len(runs) > 1 and not files[0].name.startswith(("samples_", "results.")):
        shown = ", ".join(str(place.joinpath(*names)) for names in sorted(runs)[:3])
        raise UserError(
            f"the folder {place} holds the logs of {len(runs)} runs",
            f"name one of them, such as {shown}",
        )
    return files


def _files_at(place: Path) -> list[Path]:
    """Return the files of rollouts at a place, with held-out ones only beside others."""
    if not place.is_dir():
        return matching_files(str(place))
    if below := _below(place, _NESTED_LOGS):
        return below
    try:
        files = [
            file for file in matching_files(str(place)) if not _OUTPUT.search(file.name)
        ]
    except UserError:
        if below := _below(place, _DEEPER_LOGS):
            return below
        raise
    if not files:
        raise UserError(f"the folder {place} has no file of rollouts", "name another")
    return files


def _below(place: Path, patterns: Sequence[str]) -> list[Path]:
    """Return the files of the first pattern that has any of training."""
    for pattern in patterns:
        files = [*place.glob(pattern)]
        if not all(_is_held_out(file.relative_to(place)) for file in files):
            return files
    return []


def is_log(place: Path) -> bool:
    """Whether there are files of rollouts at a place that is not a run directory or a folder of runs."""
    try:
        return bool(_files_at(place))
    except UserError:
        return False


def natural(name: str) -> list[Any]:
    """A key that sorts names with their numbers as numbers: a2 before a10."""
    return [
        int(part) if at % 2 else part for at, part in enumerate(re.split("([0-9]+)", name))
    ]


def numbered(files: Sequence[Path]) -> Iterator[tuple[Path, int]]:
    """Each file with the step that its path names: the last number in which the paths differ, else its place."""
    texts = [str(file) for file in files]
    # Letter by letter, and back to where a number begins: 12 and 13 differ in their second digit.
    shared = os.path.commonprefix(texts)  # noqa: RUF071
    start = 0 if shared in texts else len(shared.rstrip("0123456789"))
    steps = [re.search("[0-9]+", text[start:]) for text in texts]
    for place, (file, step) in enumerate(zip(files, steps, strict=True), start=1):
        yield file, int(step[0]) if step is not None and len(files) > 1 else place
