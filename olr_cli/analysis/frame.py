"""Everything that is measured of runs as one long frame, and its one summary over seeds.

    runs ──► frame: arm, seed, metric, at, value ──► summarise ──► cells: mean, sd, n, paired change and interval
                                                └──► spreads ──► the rows of a figure

`at` is where a value belongs: an epoch, a bin; null for a metric with one value a run.

Runs of one seed share the training prompts, the marked labels and the held-out prompts, so differences within seeds
vary less than the runs do.
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
"""Columns of a figure's rows: mean, sd (null for one run) and number of the runs that have a value."""

SMALLEST_GAP = 0.05
"""Below it a share of the gap says nothing: an error of two points would be half of it."""


class Lack(Exception):
    """The arms cannot be shown as some figure or table; the message says what it needs, as in "true answers"."""


class Key(NamedTuple):
    """The metric, arm and place that a summary is of."""

    metric: str
    arm: str
    at: int | None = None


def frame(rows: Iterable[tuple[str, int, str, int | None, float | None]]) -> pl.DataFrame:
    """A frame of rows (arm, seed, metric, at, value); those without a finite value are left out."""
    # Other trainers log nan where a mean has nothing to be of.
    finite = [row for row in rows if row[-1] is not None and isfinite(row[-1])]
    return pl.DataFrame(finite, schema=SCHEMA, orient="row")


def summarise(
    values: pl.DataFrame, references: Mapping[str, str] | None = None, best: str = ""
) -> dict[Key, Cell]:
    """Every metric of every arm over its seeds, at each `at`, in the order in which they first appear.

    `references`: arm -> the arm that it is compared with, seed by seed. `best`: an arm, of whose distance to these the
    share is counted that others recover.
    """
    by_seed = {
        Key(metric, arm, at): dict(zip(seeds, numbers, strict=True))
        for metric, arm, at, seeds, numbers in _grouped(values).iter_rows()
    }
    cells = {}
    for key, numbers in by_seed.items():
        baseline, top = (
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
    """The summaries of a frame as rows of a figure: arm, metric, a column called as `at` says, those of `SPREAD`.

    Besides, `values`: the list of what the single runs have.
    """
    grouped = _grouped(values)
    cells = [mean_cell(numbers) for numbers in grouped["value"].to_list()]
    rows = pl.DataFrame([spread(cell) for cell in cells], SPREAD, orient="row")
    places = grouped.select("arm", "metric", pl.col("at").alias(at))
    return pl.concat([places, rows, grouped.select(values="value")], how="horizontal")


def _grouped(values: pl.DataFrame) -> pl.DataFrame:
    return values.group_by("metric", "arm", "at", maintain_order=True).agg("seed", "value")


def spread(cell: Cell) -> tuple[float | str | None, float | None, int]:
    """A summary as the columns of `SPREAD`."""
    return cell.value, cell.sd, cell.n


def flat(cell: Cell) -> dict[str, Any]:
    """A mean over seeds and its difference to another arm as flat values, for CSV and JSON."""
    change = cell.change or UNKNOWN
    return {
        "n": cell.n,
        "mean": cell.value,
        "sd": cell.sd,
        "pairs": change.n or None,
        **change.flat("difference", "low", "high"),
    }


def mean_cell(values: Sequence[float], kind: Kind = "share") -> Cell:
    """The mean of at least one value; with the sample's sd, if there are two."""
    return Cell(
        fmean(values), kind, sd=stdev(values) if len(values) > 1 else None, n=len(values)
    )


def difference(values: Mapping[int, float], baseline: Mapping[int, float]) -> Cell | None:
    """The paired difference over the seeds that both have; None if there are none.

    The interval is Student's, as `scipy.stats.ttest_rel` gives it; there is none with one pair.
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
    """The share of the gap between baseline and top that is closed: mean (value - baseline) / mean (top - baseline).

    Of the seeds that all three have, with Student's interval by the delta method; None where they have no seed in
    common or the gap is below `SMALLEST_GAP`.
    """
    seeds = sorted(values.keys() & baseline.keys() & top.keys())
    gains, gaps = (
        [others[seed] - baseline[seed] for seed in seeds] for others in (values, top)
    )
    if not seeds or fmean(gaps) < SMALLEST_GAP:
        return None
    share = fmean(gains) / fmean(gaps)
    errors = [
        (gain - share * gap) / fmean(gaps) for gain, gap in zip(gains, gaps, strict=True)
    ]
    mean = replace(mean_cell(errors), value=share)
    return replace(mean, sd=None, ends=mean_interval(mean))


def notes_on_differences(
    cells: Iterable[Cell | None], reference: str, whose: str = ""
) -> Iterator[str]:
    """Sentences on compared cells: what they are compared with, and whether intervals are missing."""
    changes = [cell.change for cell in cells if cell and cell.change]
    if changes:
        yield f"Differences are to {reference}, in points, {whose}paired by seed, with Student's 95 % interval."
    if any(change.n == 1 for change in changes):
        yield "One seed gives no sd and no interval: train more seeds."


def without_difference(
    cells: Mapping[Key, Cell], references: Mapping[str, str]
) -> Iterator[str]:
    """Sentences on arms that have values, and no seed in common with the arm that they are compared with."""
    compared = {key.arm for key, cell in cells.items() if cell.change}
    known = {key.arm for key in cells}
    for arm, other in references.items():
        if arm in known - compared and other in known:
            yield f"{arm} has no seed in common with {other}: no paired difference."


def mean_interval(mean: Cell) -> Ends | None:
    """Student's 95 % interval of a mean; None below two values."""
    if mean.sd is None:
        return None
    from scipy.special import stdtrit

    reach = float(stdtrit(mean.n - 1, (1 + CONFIDENCE) / 2)) * (mean.sd / mean.n**0.5)
    return mean.number - reach, mean.number + reach
