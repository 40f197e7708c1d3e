"""All measurements of runs as one long frame, and the one summary of them over seeds.

    runs ──► frame: arm, seed, metric, at, value ──► summarise ──► cells: mean, sd, n, paired change and interval
                                                └──► spreads ──► the rows of a figure

`at` is the position of a value, such as an epoch or a bin; null for a metric with one value per run.

Runs with the same seed share the training prompts, the marked labels and the held-out prompts, so differences within
seeds vary less than the runs do. That is why changes are paired by seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from statistics import fmean, stdev
from typing import Any, NamedTuple

import polars as pl

from olr_cli.evaluation.intervals import CONFIDENCE
from olr_cli.tables.table import UNKNOWN, Cell, Ends, Kind

SCHEMA = {
    "arm": pl.String,
    "seed": pl.Int64,
    "metric": pl.String,
    "at": pl.Int64,
    "value": pl.Float64,
}

SPREAD = {"mean": float, "sd": float, "runs": int}
"""Columns of a figure's rows: mean, sd (null for one run), and the number of runs that have a value."""

SMALLEST_GAP = 0.05
"""Smallest gap whose recovered share is reported: below it, an error of two points is about half of the gap."""


class Lack(Exception):
    """Raised if a figure or table needs data that the arms lack; the message names the data, such as "true answers"."""


class Key(NamedTuple):
    """Key of a summary over seeds (`summarise`): a metric, an arm, and `at`, an epoch or step.

    `at` is None for a metric with one value per run.
    """

    metric: str
    arm: str
    at: int | None = None


def frame(rows: Iterable[tuple[str, int, str, int | None, float | None]]) -> pl.DataFrame:
    """Return a frame of measurements from tuples of (arm, seed, metric, at, value).

    `at` is the epoch or step of the value; None for a metric with one value per run. Rows whose value is None or not
    finite are left out.
    """
    # Other trainers log nan for a mean over nothing, and one nan would turn the mean over all seeds into nan.
    finite = [row for row in rows if row[-1] is not None and isfinite(row[-1])]
    return pl.DataFrame(finite, schema=SCHEMA, orient="row")


def summarise(
    values: pl.DataFrame, references: Mapping[str, str] | None = None, best: str = ""
) -> dict[Key, Cell]:
    """Return mean, sd and number of seeds of every metric of every arm, at each epoch or step.

    The keys are in the order in which they first appear. If an arm has a reference, its cells also have the difference
    to the reference, paired by seed.

    Args:
        values: rows of `frame`.
        references: arm -> its reference, the arm that it is compared with. An arm that is missing here is not compared.
        best: name of the best arm; empty for none. If it is given, `recovered` of a cell is the share (arm - reference)
            / (best arm - reference).
    """
    by_seed = {
        Key(metric, arm, at): dict(zip(seeds, numbers, strict=True))
        for metric, arm, at, seeds, numbers in _grouped(values).iter_rows()
    }
    cells = {}
    for key, numbers in by_seed.items():
        baseline, top = (
            # No arm has an empty name, so without a reference or a best arm there are no numbers and no difference.
            by_seed.get(key._replace(arm=arm), {})
            for arm in ((references or {}).get(key.arm, ""), best)
        )
        cells[key] = replace(
            mean_cell(list(numbers.values())),
            change=difference(numbers, baseline),
            recovered=recovered(numbers, baseline, top),
        )
    return cells


def spreads(values: pl.DataFrame, at: str = "epoch") -> pl.DataFrame:
    """Return mean and spread over seeds, for every arm, metric and epoch or step.

    The columns are arm, metric, the epoch or step, mean, sd (null for one run), runs, and values (the list of the
    single runs' values).

    Args:
        values: rows of `frame`.
        at: what the column ``at`` of `values` is called in the result, ``epoch`` or ``step``.
    """
    grouped = _grouped(values)
    cells = [mean_cell(numbers) for numbers in grouped["value"].to_list()]
    rows = pl.DataFrame([spread(cell) for cell in cells], SPREAD, orient="row")
    keys = grouped.select("arm", "metric", pl.col("at").alias(at))
    return pl.concat([keys, rows, grouped.select(values="value")], how="horizontal")


def _grouped(values: pl.DataFrame) -> pl.DataFrame:
    # Without `maintain_order` polars returns groups in any order, and tables would change from run to run.
    return values.group_by("metric", "arm", "at", maintain_order=True).agg("seed", "value")


def spread(cell: Cell) -> tuple[float | str | None, float | None, int]:
    """Return a cell's mean (None if unknown), its standard deviation (None for one run) and its number of runs.

    A cell of text has its text in place of the mean.
    """
    return cell.value, cell.sd, cell.n


def flat(cell: Cell) -> dict[str, Any]:
    """Return a cell of `summarise` as a dict for CSV and JSON.

    ``n`` is the number of seeds, with ``mean`` and ``sd`` over them. ``pairs`` is the number of seeds that the arm and
    its reference share, with their paired ``difference`` and the ends of its interval, ``low`` and ``high``. An unknown
    value is None.
    """
    change = cell.change or UNKNOWN
    return {
        "n": cell.n,
        "mean": cell.value,
        "sd": cell.sd,
        "pairs": change.n or None,
        **change.flat("difference", "low", "high"),
    }


def mean_cell(values: Sequence[float], kind: Kind = "share") -> Cell:
    """Return a cell with the mean of one or more values, their number, and their sample sd (None for a single value).

    `kind` is the unit in which tables print the mean, such as ``share`` or ``points``.
    """
    return Cell(
        fmean(values), kind, sd=stdev(values) if len(values) > 1 else None, n=len(values)
    )


def difference(values: Mapping[int, float], baseline: Mapping[int, float]) -> Cell | None:
    """Return the mean paired difference `values` - `baseline` over the seeds that both have; None if they share none.

    Both arguments map a seed to a value. The cell shows the difference in percentage points, with Student's 95 %
    interval as in `scipy.stats.ttest_rel`. A single pair has no interval.
    """
    paired = [
        values[seed] - baseline[seed] for seed in sorted(values.keys() & baseline.keys())
    ]
    if not paired:
        return None
    mean = mean_cell(paired, "points")
    return replace(mean, sd=None, ends=mean_interval(mean))


def recovered(
    values: Mapping[int, float], baseline: Mapping[int, float], top: Mapping[int, float]
) -> Cell | None:
    """Return the share of the gap between `baseline` and `top` that `values` closes.

    All three arguments map a seed to a value. The share is mean (value - baseline) / mean (top - baseline) over the
    seeds that all three have, with Student's interval by the delta method. The result is None if they share no seed or
    the gap is below `SMALLEST_GAP`.
    """
    seeds = sorted(values.keys() & baseline.keys() & top.keys())
    gains, gaps = (
        [others[seed] - baseline[seed] for seed in seeds] for others in (values, top)
    )
    if not seeds or fmean(gaps) < SMALLEST_GAP:
        return None
    share = fmean(gains) / fmean(gaps)
    # Delta method: the ratio's error in one seed is (gain - share * gap) / mean gap, to first order.
    errors = [
        (gain - share * gap) / fmean(gaps) for gain, gap in zip(gains, gaps, strict=True)
    ]
    mean = replace(mean_cell(errors), value=share)
    return replace(mean, sd=None, ends=mean_interval(mean))


def notes_on_differences(
    cells: Iterable[Cell | None], reference: str, whose: str = ""
) -> Iterator[str]:
    """Yield a sentence on how the differences in these cells were computed, and one if any is of a single seed.

    If no cell has a difference, nothing is yielded.

    Args:
        cells: the cells of a table; None for an empty one.
        reference: what the cells are compared with, in words.
        whose: text to put before "paired by seed", such as ``ours ``. It is needed in a table that also shows published
            differences, which are not paired.
    """
    changes = [cell.change for cell in cells if cell and cell.change]
    if changes:
        yield f"Differences are to {reference}, in points, {whose}paired by seed, with Student's 95 % interval."
    if any(change.n == 1 for change in changes):
        yield "One seed gives no sd and no interval: train more seeds."


def without_difference(
    cells: Mapping[Key, Cell], references: Mapping[str, str]
) -> Iterator[str]:
    """Yield a sentence on each arm that has values but shares no seed with the arm that it is compared with.

    `references` maps an arm to the arm that it is compared with.
    """
    compared = {key.arm for key, cell in cells.items() if cell.change}
    measured_arms = {key.arm for key in cells}
    for arm, other in references.items():
        if arm in measured_arms - compared and other in measured_arms:
            yield f"{arm} has no seed in common with {other}: no paired difference."


def mean_interval(mean: Cell) -> Ends | None:
    """Return the lower and upper end of Student's 95 % interval of a mean, or None if the cell has no sd."""
    if mean.sd is None:
        return None
    from scipy.special import stdtrit

    # `stdtrit` is the quantile of Student's t; importing `scipy.stats` for it would take a second more.
    half_width = float(stdtrit(mean.n - 1, (1 + CONFIDENCE) / 2)) * (mean.sd / mean.n**0.5)
    return mean.number - half_width, mean.number + half_width
