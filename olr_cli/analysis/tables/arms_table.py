"""Arms compared, paired by seed: mean, sd, and the difference to a baseline arm with a 95 % t interval."""

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
    """Arms compared, metric by metric, arms in order.

    Attributes:
        baseline: the arm that the others are compared to.
        titles: metric -> what it is called.
        rows: a metric without any value is left out.
    """

    baseline: str
    titles: Mapping[str, str]
    rows: tuple[Summary, ...]

    def table(self) -> Table:
        """In a terminal a block a metric; elsewhere a line an arm: mean ± sd and the difference with its interval."""
        blocks = [self._of_metric(metric, title) for metric, title in self.titles.items()]
        return Table(
            blocks=[*blocks, self._of_all_metrics()],
            data={"baseline": self.baseline, "rows": [row.plain() for row in self.rows]},
            notes=[
                f"Mean ± sd; in brackets the paired difference to {self.baseline} and its 95 % t interval."
            ],
            footnotes=[*self._footnotes()],
        )

    def _of_metric(self, metric: str, title: str) -> Block:
        heads = ("arm", "n", "mean", "sd", "difference", "95 % interval")
        rows = [
            Row([row.arm, str(len(row.values)), percent(row.mean), percent(row.sd), *self._difference(row)])
            for row in self.rows
            if row.metric == metric
        ]
        return Block([*map(Column, heads)], rows, f"{title}, %", only="terminal")

    def _difference(self, row: Summary) -> tuple[str, str]:
        if row.arm == self.baseline:
            return "baseline", ""
        if row.difference is None:
            return NOTHING, NOTHING
        return points(row.difference.mean), interval(row.difference.ends) or NOTHING

    def _of_all_metrics(self) -> Block:
        heads = ["arm", "n", *(f"{title}, %" for title in self.titles.values())]
        rows = []
        for arm in dict.fromkeys(row.arm for row in self.rows):
            measured = {row.metric: row for row in self.rows if row.arm == arm}
            runs = max(len(row.values) for row in measured.values())
            rows.append(Row([arm, str(runs), *(_in_full(measured[metric]) for metric in self.titles)]))
        return Block([*map(Column, heads)], rows, only="document")

    def _footnotes(self) -> Iterator[str]:
        if any(row.difference for row in self.rows):
            yield f"Differences are to {self.baseline}, in points, paired by seed; intervals are Student's."
        if any(row.difference and row.difference.pairs == 1 for row in self.rows):
            yield "One seed gives no sd and no interval: train more seeds."
        arms = {row.arm for row in self.rows if row.difference}
        others = {row.arm for row in self.rows} - {self.baseline}
        for arm in sorted(others - arms):
            yield f"{arm} has no seed in common with {self.baseline}: no paired difference."


def _in_full(row: Summary) -> str:
    if row.mean is None:
        return NOTHING
    change = row.difference and f"({joined(points(row.difference.mean), interval(row.difference.ends))})"
    return joined(mean_and_sd(row), change or "")


def mean_and_sd(row: Summary) -> str:
    """`45.0 ± 1.2`, in percent; nothing without a value, and no sd below two seeds."""
    return joined(percent(row.mean, ""), "" if row.sd is None else f"± {percent(row.sd)}")


def mean_and_ends(difference: Difference) -> Cell:
    """A difference in points: alone where there is no room, else with its interval."""
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
    reference = _baseline(arms, baseline)
    values = frame(
        (arm.name, run.seed, metric, None, value)
        for arm in arms
        for run in arm.runs
        for metric, value in _at_the_end(run).items()
    )
    measured = {(each.metric, each.arm): each for each in summarise(values, reference)}
    metrics = {metric for metric, _ in measured}
    titles = {metric: title for metric, title in (LOGGED | COUNTED).items() if metric in metrics}
    rows = [
        measured.get((metric, arm.name), Summary(metric, arm.name, {})) for metric in titles for arm in arms
    ]
    return Comparison(reference, titles, tuple(rows))


def _baseline(arms: Sequence[Arm], wanted: str | None) -> str:
    names = [arm.name for arm in arms]
    if wanted is None:
        return names[0]
    if wanted not in names:
        raise UserError(
            f"--baseline {wanted}: no such arm{did_you_mean(wanted, names)} (there are: {', '.join(names)})"
        )
    return wanted


def _at_the_end(run: Run) -> dict[str, float | None]:
    logged = {name: run.last_logged(name) for name in LOGGED}
    last = run.by_epoch({name: LABEL_METRICS[name] for name in COUNTED}).tail(1).row(0, named=True)
    return logged | {name: last[name] for name in COUNTED}
