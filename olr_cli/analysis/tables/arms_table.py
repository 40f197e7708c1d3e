"""Arms compared, paired by seed: mean, sd, and the difference to a baseline arm with a 95 % t interval.

Runs of one seed share the training prompts, the marked labels and the held-out prompts, so differences within seeds
vary less than the runs do.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from olr_cli.analysis.arms import Arm, Run
from olr_cli.errors import UserError, did_you_mean
from olr_cli.supervision.metrics import LABEL_METRICS
from olr_cli.tables import NOTHING, Block, Cell, Column, Row, Table, interval, percent, points
from olr_cli.tables.numbers import joined

CONFIDENCE = 0.95

LOGGED = {"eval/avg": "held-out accuracy"}
"""Metrics from metrics.jsonl: the last value after training began."""

COUNTED = {
    "majority/accuracy_noisy": "majority accuracy on noisy prompts",
    "label/selected_accuracy": "accuracy of selected labels",
    "label/effective_noise": "effective noise",
}
"""Metrics from the labels table, in the last complete epoch."""


@dataclass(frozen=True)
class Difference:
    """An arm's values minus the baseline's, seed by seed.

    Attributes:
        pairs: seeds that both have.
        mean: of the differences.
        low: end of the 95 % interval of the mean; None with one pair.
        high: the other end.
    """

    pairs: int
    mean: float
    low: float | None
    high: float | None

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """Both ends of the interval."""
        return self.low, self.high


@dataclass(frozen=True)
class Measured:
    """One metric of one arm, over its seeds.

    Attributes:
        metric: its name.
        arm: the arm's name.
        values: seed -> value; seeds without a value are left out.
        difference: to the baseline; None for the baseline and where no seed has both.
    """

    metric: str
    arm: str
    values: Mapping[int, float]
    difference: Difference | None

    @property
    def mean(self) -> float | None:
        """Over seeds."""
        return statistics.fmean(self.values.values()) if self.values else None

    @property
    def sd(self) -> float | None:
        """Of the sample; None below two seeds."""
        return statistics.stdev(self.values.values()) if len(self.values) > 1 else None

    def plain(self) -> dict[str, Any]:
        """As flat values, for CSV and JSON."""
        difference = self.difference
        return {
            "metric": self.metric,
            "arm": self.arm,
            "n": len(self.values),
            "mean": self.mean,
            "sd": self.sd,
            "pairs": difference.pairs if difference else None,
            "difference": difference.mean if difference else None,
            "low": difference.low if difference else None,
            "high": difference.high if difference else None,
        }


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
    rows: tuple[Measured, ...]

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

    def _difference(self, row: Measured) -> tuple[str, str]:
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


def _in_full(row: Measured) -> str:
    if row.mean is None:
        return NOTHING
    change = row.difference and f"({joined(points(row.difference.mean), interval(row.difference.ends))})"
    return joined(mean_and_sd(row), change or "")


def mean_and_sd(row: Measured) -> str:
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
    values = {arm.name: [_values(run) for run in arm.runs] for arm in arms}
    titles = {**LOGGED, **COUNTED}
    rows = []
    for metric in titles:
        by_arm = {arm.name: _by_seed(metric, arm, values[arm.name]) for arm in arms}
        if any(by_arm.values()):
            rows += [
                Measured(metric, name, own, None if name == reference else difference(own, by_arm[reference]))
                for name, own in by_arm.items()
            ]
    return Comparison(reference, {row.metric: titles[row.metric] for row in rows}, tuple(rows))


def _by_seed(metric: str, arm: Arm, values: Sequence[Mapping[str, float | None]]) -> dict[int, float]:
    pairs = zip(arm.runs, values, strict=True)
    return {run.seed: value for run, known in pairs if (value := known[metric]) is not None}


def difference(own: Mapping[int, float], baseline: Mapping[int, float]) -> Difference | None:
    """The paired difference over the seeds that both have; None if there are none.

    The interval is Student's, as `scipy.stats.ttest_rel` gives it.
    """
    paired = [own[seed] - baseline[seed] for seed in sorted(own.keys() & baseline.keys())]
    if not paired:
        return None
    low, high = mean_interval(paired) or (None, None)
    return Difference(len(paired), statistics.fmean(paired), low, high)


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Student's 95 % interval of the mean; None below two values."""
    if len(values) < 2:
        return None
    from scipy.special import stdtrit

    mean, standard_error = statistics.fmean(values), statistics.stdev(values) / len(values) ** 0.5
    reach = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2)) * standard_error
    return mean - reach, mean + reach


def _baseline(arms: Sequence[Arm], wanted: str | None) -> str:
    names = [arm.name for arm in arms]
    if wanted is None:
        return names[0]
    if wanted not in names:
        raise UserError(
            f"--baseline {wanted}: no such arm{did_you_mean(wanted, names)} (there are: {', '.join(names)})"
        )
    return wanted


def _values(run: Run) -> dict[str, float | None]:
    logged = {name: run.last_logged(name) for name in LOGGED}
    last = run.by_epoch({name: LABEL_METRICS[name] for name in COUNTED}).tail(1).row(0, named=True)
    return logged | {name: last[name] for name in COUNTED}
