"""The table of a run's epochs."""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree.ElementTree import Element

from olr_cli.analysis.arms import Run
from olr_cli.runs.metrics import Metrics, read_metrics
from olr_cli.runs.progress import of_epoch
from olr_cli.tables.html import grid


@dataclass(frozen=True)
class _Column:
    """A column of the epochs' table; ``decimals`` of a plain number, None for a share."""

    title: str
    metric: str
    decimals: int | None = None

    def cell(self, value: float | None) -> str:
        if value is None:
            return ""
        return f"{100 * value:.1f}" if self.decimals is None else f"{value:,.{self.decimals}f}"


_COLUMNS = (
    _Column("reward", "rollout/reward", 2),
    _Column("majority right, %", "majority/accuracy"),
    _Column("on clean prompts", "majority/accuracy_clean"),
    _Column("on noisy prompts", "majority/accuracy_noisy"),
    _Column("labels replaced, %", "label/selection_ratio"),
    _Column("of these right", "label/selected_accuracy"),
    _Column("labels wrong, %", "label/effective_noise"),
    _Column("held-out accuracy, %", "eval/avg"),
    _Column("entropy, nats", "policy/entropy", 3),
    _Column("length, tokens", "rollout/length", 1),
    _Column("groups of equal rewards, %", "rollout/zero_variance_groups"),
)


def epochs(run: Run) -> Element | None:
    """A line an epoch from metrics.jsonl, epoch 0 before training; None if the file has nothing to show."""
    by_epoch: dict[int, list[Metrics]] = {}
    for line in read_metrics(run.path):
        by_epoch.setdefault(int(line["epoch"]), []).append(line)
    shown = [
        column
        for column in _COLUMNS
        if any(of_epoch(column.metric, steps) is not None for steps in by_epoch.values())
    ]
    if not shown:
        return None
    lines = [
        [
            _name(run, epoch),
            *(column.cell(of_epoch(column.metric, steps)) for column in shown),
        ]
        for epoch, steps in sorted(by_epoch.items())
    ]
    heads = ["epoch", *(column.title for column in shown)]
    return grid(heads, lines, numbers=range(len(heads)), caption="Epochs")


def _name(run: Run, epoch: int) -> str:
    return f"{epoch}" if epoch <= run.epochs else f"{epoch} (under way)"
