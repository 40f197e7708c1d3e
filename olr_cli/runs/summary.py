"""What a finished run has to say for itself, in a few lines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from olr_cli.data.arithmetic import mixture_note
from olr_cli.runs.directory import read_manifest, read_recipe
from olr_cli.runs.metrics import Metrics, read_metrics
from olr_cli.runs.store import scan_labels

if TYPE_CHECKING:
    import polars as pl


def run_summary(run: Path) -> list[str]:
    """Held-out accuracy before and after, accuracy of selected labels, effective noise against initial noise."""
    import polars as pl

    labels = scan_labels(run).collect()
    lines = ["", f"Finished {run} ({read_manifest(run)['name']})"]
    lines += _held_out(read_metrics(run))
    selected = labels.filter(pl.col("is_selected"))
    if not selected.is_empty():
        lines.append(f"  labels replaced by the majority   {_right(selected, 'majority_is_correct')}")
    last = labels.filter(pl.col("visit") == labels["visit"].max())
    noise = last["effective_label_is_correct"].drop_nulls()
    if len(noise):
        marked = last["noise_type"].drop_nulls() != "clean"
        initially = f" (initially marked: {_mean(marked):.1%})" if len(marked) else ""
        lines.append(f"  wrong labels, last epoch          {1 - _mean(noise):.1%}{initially}")
    note = mixture_note(read_recipe(run).model.path)
    if note is not None:
        lines.append(f"Note: {note}")
    return [*lines, f"Next: olr analyze {run} --figure dynamics"]


def _held_out(lines: list[Metrics]) -> list[str]:
    measured = [line for line in lines if "eval/avg" in line]
    if len(measured) < 2:
        return []
    first, last = measured[0], measured[-1]
    return [
        f"  held-out accuracy (avg)           {first['eval/avg']:.1%} -> {last['eval/avg']:.1%}",
        f"  held-out accuracy (majority)      {first['eval/majority']:.1%} -> {last['eval/majority']:.1%}",
    ]


def _right(labels: pl.DataFrame, column: str) -> str:
    known = labels[column].drop_nulls()
    if not len(known):
        return f"{len(labels):,} times"
    return f"{len(labels):,} times, right in {_mean(known):.1%}"


def _mean(column: pl.Series) -> float:
    mean = column.mean()
    assert isinstance(mean, float)
    return mean
