"""Find the files of rollouts that a trainer has written, in the order of their steps."""

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
"""A file that olr itself has written beside a log."""

_NESTED_LOGS = ("completions/*.parquet", "*.eval", "**/train_rollouts.jsonl", "**/traces.jsonl", "**/results.jsonl",
                "**/rollout/[0-9]*/[0-9]*.jsonl", "[0-9]*/[0-9]*.jsonl", "**/samples_*.jsonl",
                "**/*_data_step*.jsonl", "**/reviews/*/*.jsonl", "**/predictions/*/*.json")  # fmt: skip
"""Patterns of logs in a trainer's output folder: TRL, inspect_ai, prime-rl before July 2026 and since, verifiers, AReaL
(two), lm-eval, NeMo-RL, evalscope and OpenCompass; the first pattern that matches counts."""

_DEEPER_LOGS = (
    "**/completions/*.parquet",
    "**/completions.jsonl",
    "**/[0-9]*.jsonl",
    "**/*.table.json",
)
"""Patterns of logs further down, tried if a folder has no data files itself: TRL, ms-swift, verl and W&B."""

_STEP = re.compile(
    r"(?:global_)?(?:step|version)?[-_]?[0-9]+|all|effective|train|rollouts?"
)
"""Names of folders within the log of one run; a folder with any other name is a run of its own."""


def common_place(places: Sequence[Path]) -> Path:
    """Return one path that stands for several files, folders or patterns in messages: the folder that contains them.

    For one path, return this path itself or, if it is a pattern, the folder of the pattern.
    """
    if len(places) == 1:
        return places[0].parent if glob.has_magic(str(places[0])) else places[0]
    # `commonpath` refuses a mixture of absolute and relative paths.
    is_mixed = len({place.is_absolute() for place in places}) > 1
    return Path(
        os.path.commonpath([it.absolute() for it in places] if is_mixed else places)
    )


def log_files(places: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Find the rollout files that some files, folders or patterns name; return them, and notes on files left out.

    Returns:
        The files to read, sorted so that 2 comes before 10, and the notes. Held-out rollouts are left out unless all
        files are held out. prime-rl's folder `effective` is left out if the folder `all`, which has the same rollouts,
        is next to it.

    Raises:
        UserError: there are no files of rollouts, or a folder holds the logs of several runs.
    """
    # By resolved path, so that a file that two places name, or a link to it, counts once.
    found = {file.resolve(): file for place in places for file in _one_run(place)}
    files = sorted(found.values(), key=lambda file: [natural(part) for part in file.parts])
    within = common_place(files)
    held_out = {file for file in files if _is_held_out(file.relative_to(within))}
    # Held-out rollouts alone are what the user asks for.
    if len(held_out) == len(files):
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
    """Return a sentence that says which files are left out, and the reason.

    It names the first file, and the number of files if there are several.
    """
    several = f"{len(files)} files (the first is {files[0]}) are"
    return f"{several if len(files) > 1 else f'{files[0]} is'} left out: {reason}."


def _is_held_out(path: Path) -> bool:
    """Return whether any part of a path begins with a name for held-out rollouts, such as ``eval`` or ``val``."""
    return any(map(_HELD_OUT.match, path.parts))


def _one_run(place: Path) -> list[Path]:
    """Return the files of rollouts at a place; raise UserError for a folder with the logs of several runs."""
    files = _files_at(place)
    folders = [file.relative_to(place).parts[:-1] for file in files if place.is_dir()]
    runs = {
        tuple(name for name in names if not _STEP.fullmatch(name))
        for names in folders
        if not any(map(_HELD_OUT.match, names))
    }
    # Evaluations of several models may be read together. Steps of several training runs have the same numbers, so
    # that their rollouts would be mixed up as visits of one run.
    if len(runs) > 1 and not files[0].name.startswith(("samples_", "results.")):
        shown = ", ".join(str(place.joinpath(*names)) for names in sorted(runs)[:3])
        raise UserError(
            f"the folder {place} holds the logs of {len(runs)} runs",
            f"name one of them, such as {shown}",
        )
    return files


def _files_at(place: Path) -> list[Path]:
    """Return the files of rollouts that a file, a pattern or a folder names.

    In a folder, the subfolders in which trainers write rollouts are searched first, then the folder itself, then the
    other subfolders. Subfolders that have only held-out files are passed over.

    Raises:
        UserError: there are no such files.
    """
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
    """Return the files below a folder that match the first suitable pattern; the list is empty if none is suitable.

    A pattern is suitable if it matches at least one file, and not only files of held-out rollouts.
    """
    for pattern in patterns:
        files = [*place.glob(pattern)]
        if not all(_is_held_out(file.relative_to(place)) for file in files):
            return files
    return []


def is_log(place: Path) -> bool:
    """Return whether a file, folder or pattern leads to files of rollouts.

    The result may be True for a run directory of olr too, so callers test for run directories first.
    """
    try:
        return bool(_files_at(place))
    except UserError:
        return False


def natural(name: str) -> list[Any]:
    """Return a sort key that compares the numbers in names as numbers: a2 comes before a10."""
    # Texts and numbers alternate in the key, so that a text is never compared with a number.
    return [
        int(part) if at % 2 else part for at, part in enumerate(re.split("([0-9]+)", name))
    ]


def numbered(files: Sequence[Path]) -> Iterator[tuple[Path, int]]:
    """Yield each file with its step: the first number in its path after the beginning that all paths have in common.

    If a path has no such number, or if there is only one file, the step is the file's position in `files`, from 1.
    """
    texts = [str(file) for file in files]
    # The common prefix may end within a number, as for 12 and 13: go back to the number's first digit.
    shared = os.path.commonprefix(texts)  # noqa: RUF071
    start = 0 if shared in texts else len(shared.rstrip("0123456789"))
    steps = [re.search("[0-9]+", text[start:]) for text in texts]
    for place, (file, step) in enumerate(zip(files, steps, strict=True), start=1):
        yield file, int(step[0]) if step is not None and len(files) > 1 else place
