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

_NESTED_LOGS = ("completions/*.parquet", "**/train_rollouts.jsonl", "**/results.jsonl",
                "**/rollout/[0-9]*/[0-9]*.jsonl", "[0-9]*/[0-9]*.jsonl", "**/samples_*.jsonl")  # fmt: skip
"""Where the logs lie in the folder that a trainer was given: TRL's, verifiers', prime-rl's, AReaL's and lm-eval's."""


def common_place(places: Sequence[Path]) -> Path:
    """The path by which several files are named: the only one, else the folder that they share."""
    if len(places) == 1:
        return places[0].parent if glob.has_magic(str(places[0])) else places[0]
    return Path(os.path.commonpath(places))


def log_files(places: Sequence[Path]) -> list[Path]:
    """The files of rollouts at some places, in the order of the numbers in their names; held-out ones are left out."""
    files = [file for place in places for file in _files_at(place)]
    unique = {file.resolve(): file for file in files}
    return sorted(unique.values(), key=lambda file: [natural(part) for part in file.parts])


def _files_at(place: Path) -> list[Path]:
    if not place.is_dir():
        return matching_files(str(place))
    for pattern in _NESTED_LOGS:
        below = [
            file
            for file in place.glob(pattern)
            if not any(map(_HELD_OUT.match, file.relative_to(place).parts))
        ]
        if below:
            return below
    files = [file for file in matching_files(str(place)) if not _OUTPUT.search(file.name)]
    if not files:
        raise UserError(f"the folder {place} has no file of rollouts", "name another")
    # Validation files beside those of training hold rewards too, which count other questions.
    return [file for file in files if not _HELD_OUT.match(file.name)] or files


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
