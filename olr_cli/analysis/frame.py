"""Everything that is measured of runs as one long frame, and its one summary over seeds.

    runs ──► frame: arm, seed, metric, at, value ──► summarise ──► n, mean, sd, paired difference and interval

`at` is where a value belongs: an epoch, a part of a step, a bin; null for a metric with one value a run.

Runs of one seed share the training prompts, the marked labels and the held-out prompts, so differences within seeds
vary less than the runs do.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

CONFIDENCE = 0.95

SCHEMA = {"arm": pl.String, "seed": pl.Int64, "metric": pl.String, "at": pl.Int64, "value": pl.Float64}

SPREAD = {"mean": float, "sd": float, "runs": int}
"""Columns of a figure's rows: mean, sd (null for one run) and number of the runs that have a value."""


class Lack(Exception):
    """The arms cannot be shown as some figure or table; the message says what it needs, as in "true answers"."""


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
class Summary:
    """A metric of an arm over its seeds.

    Attributes:
        values: seed -> value; seeds without a value are left out.
        difference: to the baseline; None for the baseline and where no seed has both.
        at: as in the frame.
    """

    metric: str
    arm: str
    values: Mapping[int, float]
    difference: Difference | None = None
    at: int | None = None

    @cached_property
    def mean(self) -> float | None:
        """Over seeds."""
        return statistics.fmean(self.values.values()) if self.values else None

    @cached_property
    def sd(self) -> float | None:
        """Of the sample; None below two seeds."""
        return statistics.stdev(self.values.values()) if len(self.values) > 1 else None

    @property
    def spread(self) -> tuple[float | None, float | None, int]:
        """The columns of `SPREAD`."""
        return self.mean, self.sd, len(self.values)

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """Student's 95 % interval of the mean; None below two seeds."""
        return mean_interval(list(self.values.values()))

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


def frame(rows: Iterable[tuple[str, int, str, int | None, float | None]]) -> pl.DataFrame:
    """A frame of rows (arm, seed, metric, at, value); those without a value are left out."""
    return pl.DataFrame([row for row in rows if row[-1] is not None], schema=SCHEMA, orient="row")


def summarise(values: pl.DataFrame, baseline: str | None = None) -> list[Summary]:
    """Every metric of every arm over its seeds, at each `at`, in the order in which they first appear.

    Args:
        values: a frame.
        baseline: the arm that the others are compared with; None for no differences.
    """
    grouped = values.group_by("metric", "at", "arm", maintain_order=True).agg("seed", "value")
    summaries = [
        Summary(metric, arm, dict(zip(seeds, numbers, strict=True)), at=at)
        for metric, at, arm, seeds, numbers in grouped.iter_rows()
    ]
    references = {(one.metric, one.at): one.values for one in summaries if one.arm == baseline}
    return [
        one
        if baseline in (None, one.arm)
        else replace(one, difference=difference(one.values, references.get((one.metric, one.at), {})))
        for one in summaries
    ]


def spreads(values: pl.DataFrame, at: str = "epoch") -> pl.DataFrame:
    """The summaries of a frame as the rows of a figure.

    Args:
        values: a frame.
        at: the name of the column that holds `at`.

    Returns:
        Columns arm, metric, `at`, and those of `SPREAD`.
    """
    rows = [(one.arm, one.metric, one.at, *one.spread) for one in summarise(values)]
    return pl.DataFrame(rows, {"arm": str, "metric": str, at: int, **SPREAD}, orient="row")


def difference(values: Mapping[int, float], baseline: Mapping[int, float]) -> Difference | None:
    """The paired difference over the seeds that both have; None if there are none.

    The interval is Student's, as `scipy.stats.ttest_rel` gives it.
    """
    paired = [values[seed] - baseline[seed] for seed in sorted(values.keys() & baseline.keys())]
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
