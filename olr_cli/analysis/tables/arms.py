"""Arms compared, paired by seed: mean, sd, and the difference to a baseline arm with Student's 95 % interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from olr_cli.analysis.arms import Arm, Run
from olr_cli.analysis.frame import Difference, Summary, frame, summarise
from olr_cli.errors import UserError, did_you_mean
from olr_cli.supervision.metrics import LABEL_METRICS
from olr_cli.tables import NOTHING, Block, Cell, Column, Row, Table, interval, percent, points
from olr_cli.tables.numbers import joined

LOGGED = {"eval/avg": "held-out accuracy"}
"""Metrics from metrics.jsonl: the last value after training began."""

COUNTED = {
    "majority/accuracy_noisy": "majority accuracy on noisy prompts",
    "label/selected_accuracy": "accuracy of selected labels",
    "label/effective_noise": "effective noise",
}
"""Metrics from the labels table, in the last complete epoch."""


@dataclass(frozen=True)
class Comparison:
    """Arms compared.

    Attributes:
        baseline: the arm that the others are compared to.
        titles: metric -> what it is called.
        rows: metric by metric, the arms in order; a metric without any value is left out.
    """

    baseline: str
    titles: Mapping[str, str]
    rows: Sequence[Summary]

    def table(self) -> Table:
        """In a terminal a block a metric; elsewhere a line an arm: mean ± sd and the difference with its interval."""
        return Table(
            blocks=[*(self._metric_block(metric) for metric in self.titles), self._document_block()],
            data={"baseline": self.baseline, "rows": [row.plain() for row in self.rows]},
            notes=[
                f"Mean ± sd; in brackets the difference to {self.baseline}, paired by seed, with Student's 95 %"
                " interval."
            ],
            footnotes=[*self._footnotes()],
        )

    def _metric_block(self, metric: str) -> Block:
        heads = ("arm", "n", "mean", "sd", "difference", "95 % interval")
        rows = []
        for row in self.rows:
            if row.metric == metric:
                change = ["baseline", ""] if row.arm == self.baseline else [NOTHING, NOTHING]
                if row.difference is not None:
                    change = [points(row.difference.mean), interval(row.difference.ends) or NOTHING]
                rows.append(Row([row.arm, str(len(row.values)), percent(row.mean), percent(row.sd), *change]))
        return Block([*map(Column, heads)], rows, f"{self.titles[metric]}, %", only="terminal")

    def _document_block(self) -> Block:
        heads = ["arm", "n", *(f"{title}, %" for title in self.titles.values())]
        rows = []
        for arm in dict.fromkeys(row.arm for row in self.rows):
            summaries = [row for row in self.rows if row.arm == arm]
            runs = max(len(row.values) for row in summaries)
            rows.append(Row([arm, str(runs), *map(_document_cell, summaries)]))
        return Block([*map(Column, heads)], rows, only="document")

    def _footnotes(self) -> Iterator[str]:
        changes = [row.difference for row in self.rows if row.difference]
        if changes:
            yield (
                f"Differences are to {self.baseline}, in points, paired by seed, with Student's 95 % interval."
            )
        if any(change.pairs == 1 for change in changes):
            yield "One seed gives no sd and no interval: train more seeds."
        paired = {self.baseline, *(row.arm for row in self.rows if row.difference)}
        for arm in sorted({row.arm for row in self.rows} - paired):
            yield f"{arm} has no seed in common with {self.baseline}: no paired difference."


def _document_cell(row: Summary) -> str:
    if row.mean is None:
        return NOTHING
    change = difference_cell(row.difference).full
    return joined(mean_and_sd(row), change and f"({change})")


def mean_and_sd(row: Summary) -> str:
    """`45.0 ± 1.2`, in percent; nothing without a value, and no sd below two seeds."""
    return joined(percent(row.mean, ""), "" if row.sd is None else f"± {percent(row.sd)}")


def difference_cell(difference: Difference | None) -> Cell:
    """A difference in points: alone where there is no room, else with its interval."""
    if difference is None:
        return Cell("", "")
    mean = points(difference.mean)
    return Cell(mean, joined(mean, interval(difference.ends)))


def compare(arms: Sequence[Arm], baseline: str | None = None) -> Comparison:
    """Compare arms.

    Args:
        arms: at least one.
        baseline: name of the arm that the others are compared to; by default the first.

    Raises:
        UserError: there is no arm of that name.
    """
    names = [arm.name for arm in arms]
    baseline = names[0] if baseline is None else baseline
    if baseline not in names:
        raise UserError(
            f"--baseline {baseline}: no such arm{did_you_mean(baseline, names)} (there are: {', '.join(names)})"
        )
    values = frame(
        (arm.name, run.seed, metric, None, value)
        for arm in arms
        for run in arm.runs
        for metric, value in _at_the_end(run).items()
    )
    summaries = {(row.metric, row.arm): row for row in summarise(values, baseline)}
    metrics = {metric for metric, _ in summaries}
    titles = {metric: title for metric, title in (LOGGED | COUNTED).items() if metric in metrics}
    rows = [summaries.get((metric, arm), Summary(metric, arm, {})) for metric in titles for arm in names]
    return Comparison(baseline, titles, rows)


def _at_the_end(run: Run) -> dict[str, float | None]:
    logged = {name: run.last_logged(name) for name in LOGGED}
    last = run.by_epoch({name: LABEL_METRICS[name] for name in COUNTED}).tail(1).row(0, named=True)
    return logged | {name: last[name] for name in COUNTED}
