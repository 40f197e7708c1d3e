"""metrics.jsonl: a line a step, names as in `olr_cli.supervision.metrics`; step 0 is the policy before training."""

from __future__ import annotations

import json
from pathlib import Path

from olr_cli.errors import UserError
from olr_cli.files import sync, write_text, writing

Metrics = dict[str, float]


def append_metrics(run: Path, step: int, epoch: int, metrics: Metrics) -> None:
    """Append one step's metrics.

    Raises:
        UserError: the disk is full or not writable.
    """
    line = json.dumps({"step": step, "epoch": epoch, **metrics})
    file = run / "metrics.jsonl"
    with writing(file), file.open("a", encoding="utf-8") as lines:
        lines.write(line + "\n")


def sync_metrics(run: Path) -> None:
    """Wait until every line appended so far is on the disk.

    Raises:
        UserError: the disk is full.
    """
    file = run / "metrics.jsonl"
    with writing(file):
        sync(file)


def read_metrics(run: Path, having: str = "") -> list[Metrics]:
    """The lines, oldest first; a last line cut off by a kill is left out.

    Args:
        run: the run directory.
        having: only lines that have this metric; the others, most of a long run's, are not parsed.

    Raises:
        UserError: a line is not a step's metrics; it is named.
    """
    file, key = run / "metrics.jsonl", json.dumps(having).encode() if having else b""
    if not file.exists():
        return []
    with file.open("rb") as lines:
        numbered = ((number, line) for number, line in enumerate(lines, start=1) if key in line)
        return [
            _read_line(file, number, line)
            for number, line in numbered
            if line.endswith(b"\n") and line != b"\n"
        ]


def _read_line(file: Path, number: int, line: bytes) -> Metrics:
    try:
        metrics = json.loads(line)
    except ValueError:
        metrics = None
    if not isinstance(metrics, dict) or "step" not in metrics:
        raise UserError(
            f"{file}, line {number} is not a step's metrics; remove the line, or restore the file from a copy"
        )
    return metrics


def drop_metrics_after(run: Path, step: int) -> None:
    """Keep the lines up to `step`, whole lines only."""
    kept = [line for line in read_metrics(run) if line["step"] <= step]
    write_text(run / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in kept))


class MetricsTail:
    """Follows the lines that another process appends.

    Args:
        run: the run directory; lines that are there already are left out.
    """

    def __init__(self, run: Path) -> None:
        self._file = run / "metrics.jsonl"
        self._read = self._file.stat().st_size if self._file.exists() else 0

    def new_lines(self) -> list[Metrics]:
        """The lines that are complete since the last call."""
        if not self._file.exists():
            return []
        with self._file.open("rb") as lines:
            lines.seek(self._read)
            text = lines.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return [json.loads(line) for line in whole.splitlines()]
