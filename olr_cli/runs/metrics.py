"""metrics.jsonl: one line per step; step 0 is the policy before training.

Names are those of `olr_cli.supervision.metrics` and `olr_cli.runs.throughput`. A metric that cannot be known on this
machine is null in the file, and left out wherever the file is read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import NoneType
from typing import Any

from olr_cli.errors import UserError
from olr_cli.files import regular, write_text, writing

Metrics = dict[str, float]


def known(metrics: Mapping[str, float | None]) -> Metrics:
    """The metrics that have a value."""
    return {name: value for name, value in metrics.items() if value is not None}


def append_metrics(
    run: Path, step: int, epoch: int, metrics: Mapping[str, float | None]
) -> None:
    """Append one step's metrics; None is written as null."""
    line = json.dumps({"step": step, "epoch": epoch, **metrics})
    file = run / "metrics.jsonl"
    with writing(file), file.open("a", encoding="utf-8") as lines:
        lines.write(line + "\n")


def read_metrics(run: Path, having: str = "") -> list[Metrics]:
    """The lines, oldest first; a last line cut off by a kill is left out.

    With `having`, only lines that have this metric; the others, most of a long run's, are parsed only if they look
    damaged.
    """
    lines = map(known, _whole_lines(run / "metrics.jsonl", having))
    return [line for line in lines if not having or having in line]


def _whole_lines(file: Path, having: str = "") -> Iterator[dict[str, Any]]:
    """The whole lines, with their nulls; most of those without `having` are left out."""
    key = json.dumps(having).encode() if having else b""
    if not file.exists():
        return
    with regular(file).open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            looks_whole = line.startswith(b'{"step": ') and line.endswith(b"}\n")
            if (
                line == b"\n"
                or not line.endswith(b"\n")
                or (looks_whole and key not in line)
            ):
                continue
            metrics = None
            with suppress(ValueError):
                metrics = json.loads(line)
            if not isinstance(metrics, dict) or not _is_line(metrics):
                raise UserError(
                    f"{file}, line {number} is not a step's metrics",
                    "remove the line, or restore the file from a copy",
                )
            yield metrics


def _is_line(metrics: dict[str, Any]) -> bool:
    """Whether an object can be a step's line: its number, and numbers or nulls."""
    step = metrics.get("step")
    kinds = {type(value) for value in metrics.values()}
    return type(step) is int and step >= 0 and kinds <= {int, float, NoneType}


def drop_metrics_after(run: Path, step: int) -> None:
    """Keep the lines up to `step`, whole lines only."""
    file = run / "metrics.jsonl"
    kept = [line for line in _whole_lines(file) if line["step"] <= step]
    write_text(file, "".join(json.dumps(line) + "\n" for line in kept))


_FALL, _FALL_ERRORS = 0.05, 4.0
"""Least fall of held-out accuracy from its best, and in standard errors, as there is a best of many."""


def accuracy_fall(lines: Iterable[Metrics]) -> tuple[int, str] | None:
    """A sign of collapse: the first step whose held-out accuracy is clearly below its best before, and what is seen."""
    best: Metrics = {"eval/avg": 0.0, "eval/avg_stderr": 0.0}
    for line in lines:
        if not line.keys() >= best.keys():
            continue
        now, highest = line["eval/avg"], best["eval/avg"]
        error = max(line["eval/avg_stderr"], best["eval/avg_stderr"])
        if highest - now > max(_FALL, _FALL_ERRORS * error):
            return int(
                line["step"]
            ), f"held-out accuracy fell to {now:.0%} ({highest:.0%} at its best)"
        if now > highest:
            best = {name: line[name] for name in best}
    return None


class MetricsTail:
    """Follows the lines that another process appends; those that are there already are left out."""

    def __init__(self, run: Path) -> None:
        self._file = run / "metrics.jsonl"
        self._read = self._file.stat().st_size if self._file.exists() else 0

    def new_lines(self) -> list[Metrics]:
        """The lines that are complete since the last call."""
        if not self._file.exists():
            return []
        with regular(self._file).open("rb") as lines:
            lines.seek(self._read)
            text = lines.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return [known(json.loads(line)) for line in whole.splitlines()]


class Stopwatch:
    """Seconds spent in each part of a step, in one or several goes."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._parts: dict[str, float] = {}

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        """Count the block's time as `part`; blocks do not nest."""
        began = time.perf_counter()
        yield
        self._parts[part] = self._parts.get(part, 0.0) + time.perf_counter() - began

    def metrics(self) -> Metrics:
        """`time/<part>` for every part, and the whole step as `time/step`."""
        return {f"time/{part}": seconds for part, seconds in self._parts.items()} | {
            "time/step": time.perf_counter() - self._began
        }
