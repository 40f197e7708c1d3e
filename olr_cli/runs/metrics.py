"""metrics.jsonl: one line per step; step 0 is the policy before training.

The names are those of `olr_cli.supervision.metrics` and `olr_cli.runs.throughput`. A metric that cannot be measured on
this machine is null in the file, and readers leave it out.
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
    """Return the metrics whose value is not None."""
    return {name: value for name, value in metrics.items() if value is not None}


def append_metrics(
    run: Path, step: int, epoch: int, metrics: Mapping[str, float | None]
) -> None:
    """Append a line with one step's metrics to a run's metrics.jsonl; None becomes null."""
    line = json.dumps({"step": step, "epoch": epoch, **metrics})
    file = run / "metrics.jsonl"
    with writing(file), file.open("a", encoding="utf-8") as lines:
        lines.write(line + "\n")


def read_metrics(run: Path, having: str = "") -> list[Metrics]:
    """Return the lines of a run's metrics.jsonl, oldest first and without nulls; empty if there is no file.

    If `having` names a metric, return only the lines that have this metric. This is faster, because most other lines
    are skipped without being parsed. A last line that a kill cut off is left out.

    Raises:
        UserError: any other line is damaged.
    """
    lines = map(known, _whole_lines(run / "metrics.jsonl", having))
    return [line for line in lines if not having or having in line]


def _whole_lines(file: Path, having: str = "") -> Iterator[dict[str, Any]]:
    """Yield the complete lines of metrics.jsonl as dicts, nulls included.

    A last line that a kill cut off is left out. If `having` names a metric, most lines without this metric are skipped
    unparsed, to save time. Some of them may still be yielded, so the caller must check each line for the metric.

    Raises:
        UserError: any other line is damaged.
    """
    key = json.dumps(having).encode() if having else b""
    if not file.exists():
        return
    with regular(file).open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            # Parsing takes most of the time, so first look for the key in the bytes.
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
    """Return whether a JSON object can be a step's line: it has a step number, and all values are numbers or null."""
    step = metrics.get("step")
    kinds = {type(value) for value in metrics.values()}
    # `type`, not `isinstance`: true and false are instances of int.
    return type(step) is int and step >= 0 and kinds <= {int, float, NoneType}


def drop_metrics_after(run: Path, step: int) -> None:
    """Remove from a run's metrics.jsonl the lines of steps after `step`, and a last line that is cut off."""
    file = run / "metrics.jsonl"
    kept = [line for line in _whole_lines(file) if line["step"] <= step]
    write_text(file, "".join(json.dumps(line) + "\n" for line in kept))


_FALL, _FALL_ERRORS = 0.05, 4.0
"""Least fall of held-out accuracy from its best, and the same in standard errors.

The best of many measurements is high by chance too, hence four standard errors.
"""


def accuracy_fall(lines: Iterable[Metrics]) -> tuple[int, str] | None:
    """Find the first step whose held-out accuracy is clearly below the best accuracy before it.

    The fall must exceed 5 percentage points, and also 4 times the larger standard error of the two accuracies.
    `lines` are the lines of metrics.jsonl, oldest first.

    Returns:
        The step, and a sentence about the fall. None if there is no such step.
    """
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
    """Reads the lines that another process appends to a run's metrics.jsonl after this object is made."""

    def __init__(self, run: Path) -> None:
        self._file = run / "metrics.jsonl"
        self._read = self._file.stat().st_size if self._file.exists() else 0

    def new_lines(self) -> list[Metrics]:
        """Return the lines completed since the last call, without nulls.

        The first call returns the lines completed since this object was made.
        """
        if not self._file.exists():
            return []
        with regular(self._file).open("rb") as lines:
            lines.seek(self._read)
            text = lines.read()
        # The other process may be in the middle of a line; leave it for the next call.
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return [known(json.loads(line)) for line in whole.splitlines()]


class Stopwatch:
    """Measures how long a step takes, in all and in each named part. Make one at the beginning of each step."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._parts: dict[str, float] = {}

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        """Measure the block, and add its seconds to the time of this part of the step.

        Several blocks may measure the same part, but blocks must not be nested. A block that raises is not counted.
        """
        # No `finally` below: if the block fails, so does the step, and nobody reads its times.
        began = time.perf_counter()
        yield
        self._parts[part] = self._parts.get(part, 0.0) + time.perf_counter() - began

    def metrics(self) -> Metrics:
        """Return the seconds so far: ``time/<part>`` for every part, and ``time/step`` since the stopwatch was made."""
        return {f"time/{part}": seconds for part, seconds in self._parts.items()} | {
            "time/step": time.perf_counter() - self._began
        }
