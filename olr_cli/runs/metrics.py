"""metrics.jsonl: a line a step, names as in SEMANTICS; step 0 is the policy before training."""

from __future__ import annotations

import json
from pathlib import Path

from olr_cli.files import write_text, writing

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


def read_metrics(run: Path) -> list[Metrics]:
    """All lines, oldest first; a last line cut off by a kill is left out."""
    file = run / "metrics.jsonl"
    if not file.exists():
        return []
    lines = file.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1] if line]


def drop_metrics_after(run: Path, step: int) -> None:
    """Keep the lines up to `step`, whole lines only."""
    kept = [line for line in read_metrics(run) if line["step"] <= step]
    write_text(run / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in kept))
