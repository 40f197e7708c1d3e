"""Threshold x warm-up x criteria over one stored history: what each setting would have selected, and how well.

Votes, slopes and historical majorities do not depend on the settings, so one pass over the rollouts serves every cell:
a run has stored it, a table of another trainer's rollouts is replayed once. Each cell then is R14 over the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from itertools import product, takewhile
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from olr_cli.analysis.histories import EXAMPLE, RolloutHistory
from olr_cli.analysis.replay.replay import label_tables
from olr_cli.answers import Judge
from olr_cli.data.logs import Report, silent
from olr_cli.errors import UserError, did_you_mean
from olr_cli.recipe.layers import override
from olr_cli.recipe.schema import Criterion, OlrMethod
from olr_cli.runs.directory import read_recipe
from olr_cli.runs.store import scan_labels
from olr_cli.supervision.metrics import selected_under

THRESHOLD, WARMUP, CRITERIA = "method.slope_threshold", "method.warmup_epochs", "method.criteria"
KEYS = (THRESHOLD, WARMUP, CRITERIA)
"""What can vary in a grid."""

DEFAULT = "default"
"""Stands for all three keys, each with the values that the history suggests."""

MOST_CELLS = 3_000
_MOST_THRESHOLDS, _MOST_WARMUPS = 8, 6
_REACHED = 0.95
_CRITERIA_SETS: tuple[tuple[Criterion, ...], ...] = (("slope", "consistency"), ("consistency",), ("slope",))

_EVIDENCE = (
    "visit",
    "slope",
    "majority_count",
    "is_consistent",
    "majority_is_correct",
    "given_label_count",
    "noise_type",
    "label_source",
)
"""Columns of the labels table that a cell is counted from."""

TITLES = {
    "accuracy": "Accuracy of selected",
    "agreement": "Agreement with the label",
    "coverage": "Share of visits selected",
    "repair": "Wrong labels repaired",
}
"""Shares that are shown of a cell, and what they are called."""

# From options to settings -----------------------------------------------------------------------------------------

Axes: TypeAlias = Mapping[str, tuple[Any, ...] | None]
"""Key -> its values; None: those that the history suggests."""

_FORMS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    THRESHOLD: (Decimal, f"is not a number; write for example {THRESHOLD}=0,0.05,0.1"),
    WARMUP: (int, f"is not a whole number from 0 on; write for example {WARMUP}=1,3,5"),
    CRITERIA: (
        lambda text: () if text == "none" else tuple(text.split("+")),
        "is no set of criteria; there are slope+consistency, consistency, slope and none (every majority)",
    ),
}
"""How a value is read, and what is said of a text that is none."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Settings, each combined with each of the others; numbers ascend."""

    slope_thresholds: Sequence[Decimal]
    warmups: Sequence[int]
    criteria: Sequence[tuple[Criterion, ...]]

    def settings(self) -> Iterable[tuple[tuple[Criterion, ...], Decimal | None, int]]:
        """Criteria, threshold (None where the slope does not count) and warm-up of each cell."""
        for criteria in self.criteria:
            thresholds = self.slope_thresholds if "slope" in criteria else (None,)
            yield from product((criteria,), thresholds, self.warmups)


def parse(options: Iterable[str], overrides: Iterable[str] = ()) -> Axes:
    """What `--grid` options ask for: ``KEY=VALUE,VALUE``, ``KEY`` or ``default``.

    Raises:
        UserError: a key is unknown, comes twice or is one of `overrides` (`--set`), or a value is none of its key.
    """
    axes: dict[str, tuple[Any, ...] | None] = {}
    for option in options:
        key, equals, text = (part.strip() for part in option.partition("="))
        if key == DEFAULT and not equals:
            axes = dict.fromkeys(KEYS) | axes
            continue
        if key not in KEYS:
            known = f"a grid has {', '.join(KEYS)}, or all of them: --grid {DEFAULT}"
            raise UserError(f"--grid {option}: '{key}' is no key of a grid{did_you_mean(key, KEYS)}; {known}")
        if axes.get(key) is not None:
            raise UserError(f"--grid {key} comes twice; give all its values at once, with commas between")
        axes[key] = _values(key, text) if equals else None
    changed = override({}, overrides, example=EXAMPLE).get("method")
    fixed = [key for key in axes if isinstance(changed, Mapping) and key.removeprefix("method.") in changed]
    if fixed:
        raise UserError(f"--set {fixed[0]}: the grid goes through values of that; leave one of them out")
    return axes


def _values(key: str, text: str) -> tuple[Any, ...]:
    """The values of one key, each once; numbers ascending."""
    field, (read, complaint) = key.removeprefix("method."), _FORMS[key]
    values = []
    for part in map(str.strip, text.split(",")):
        try:
            values.append(getattr(OlrMethod.model_validate({field: read(part)}), field))
        except (InvalidOperation, ValueError):
            raise UserError(f"--grid {key}: '{part}' {complaint}") from None
    return tuple(dict.fromkeys(values if key == CRITERIA else sorted(values)))


def resolve(axes: Axes, rows: pl.DataFrame, base: OlrMethod, trained_under: OlrMethod | None) -> Grid:
    """The grid over a history.

    Args:
        axes: from `parse`.
        rows: the history's visits, with visit and slope.
        base: where keys that are not in the grid stay.
        trained_under: the run's own setting, which a suggested axis includes.

    Raises:
        UserError: a warm-up leaves no visit, or there are too many cells.
    """
    last = int(rows["visit"].max())  # type: ignore[arg-type]  # a number, as the column is
    values: dict[str, tuple[Any, ...]] = {
        THRESHOLD: (base.slope_threshold,),
        WARMUP: (base.warmup_epochs,),
        CRITERIA: (base.criteria,),
    }
    for key, chosen in axes.items():
        if chosen is not None:
            values[key] = chosen
        elif key == THRESHOLD:
            values[key] = _suggested_thresholds(rows, trained_under)
        elif key == WARMUP:
            values[key] = _suggested_warmups(last, trained_under)
        else:
            values[key] = tuple(dict.fromkeys((*_CRITERIA_SETS, base.criteria)))
    grid = Grid(values[THRESHOLD], values[WARMUP], values[CRITERIA])
    if grid.warmups[-1] >= last:
        raise UserError(
            f"{WARMUP} {grid.warmups[-1]} leaves none of the history's {last} visits in which a label can be refined;"
            f" lower it with --grid {WARMUP}=…"
        )
    cells = math.prod(map(len, values.values()))
    if cells > MOST_CELLS:
        raise UserError(
            f"the grid has {cells:,} cells, and at most {MOST_CELLS:,} are counted; name fewer values"
        )
    return grid


def _suggested_thresholds(rows: pl.DataFrame, trained_under: OlrMethod | None) -> tuple[Decimal, ...]:
    """0 and round steps up to the slope that one in twenty visits exceeds; the run's own value too."""
    slopes = rows.filter(pl.col("visit") > 1)["slope"]
    top = slopes.quantile(_REACHED, "lower") if len(slopes) else None
    values = {Decimal(0)} | ({trained_under.slope_threshold} if trained_under else set())
    if top is not None and top > 0:
        step = _round_up(top / (_MOST_THRESHOLDS - 1))
        multiples = (step * number for number in range(1, _MOST_THRESHOLDS))
        values |= {step, *takewhile(lambda value: float(value) <= top, multiples)}
    return tuple(sorted(Decimal(f"{value.normalize():f}") for value in values))  # 0.01, not 0.010


def _round_up(value: float) -> Decimal:
    """The next of 1, 2, 5, 10, 20, … times a power of ten."""
    power = Decimal(10) ** math.floor(math.log10(value))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= Decimal(value))


def _suggested_warmups(last: int, trained_under: OlrMethod | None) -> tuple[int, ...]:
    """From 0 to the last visit but one, six values at most; the run's own value too."""
    places = min(last, _MOST_WARMUPS)
    spread = {round(place * (last - 1) / max(places - 1, 1)) for place in range(places)}
    is_shown = trained_under is not None and trained_under.warmup_epochs < last
    return tuple(sorted(spread | ({trained_under.warmup_epochs} if trained_under and is_shown else set())))


# From settings to cells -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GridResult:
    """What each setting of a grid would have selected.

    Attributes:
        cells: a row a setting: criteria (as ``--grid`` takes them), slope_threshold (as written; null where the slope
            does not count), warmup_epochs; counts of prompt visits, those of warm-up included: visits, marked (of
            prompts known to be mislabelled, with a known true answer), selected, known (of these, with a known true
            answer), right (of these, with a right majority), labelled (of the selected, with a given label), agreeing
            (of these, with a majority that is the given label), repaired (selected, marked, with a right majority);
            is_own (the run was trained under this setting), on_front (`front`); and shares, null of nothing: coverage
            (selected of all visits), accuracy (right of known), agreement (agreeing of labelled), repair (repaired of
            marked).
        shares: what is shown: accuracy, or else agreement, if anything is known; coverage; repair where it is known.
    """

    cells: pl.DataFrame
    shares: tuple[str, ...]


def trained_setting(history: RolloutHistory) -> OlrMethod | None:
    """The setting the run was trained under; None for a bare table, or a run of another method."""
    method = read_recipe(history.source).method if history.is_run else None
    return method if isinstance(method, OlrMethod) else None


def evidence(history: RolloutHistory, judge: Judge) -> pl.DataFrame:
    """What every cell is counted from: a row a visit of a prompt whose label is not verified, `_EVIDENCE`.

    A run's stored labels serve as they are, unless its answers are to be read anew; other rollouts are replayed.

    Raises:
        UserError: a shard is torn or foreign, or the history can't be replayed.
    """
    others = pl.col("label_source") != "trusted"
    data = history.recipe.data
    stored = read_recipe(history.source).data if history.is_run else None
    if stored and (stored.extractor, stored.trusted) == (data.extractor, data.trusted):
        return scan_labels(history.source).select(_EVIDENCE).filter(others).collect()
    # The settings decide nothing that is counted from, and another choice of prompts could need statistics.
    plain = history.recipe.model_copy(update={"method": OlrMethod()})
    tables = label_tables(replace(history, recipe=plain), judge)
    return pl.concat([labels.select(_EVIDENCE).filter(others) for labels in tables])


def count(
    rows: pl.DataFrame, grid: Grid, trained_under: OlrMethod | None = None, report: Report = silent
) -> GridResult:
    """What each cell of a grid would have selected (R14), from at least one row of `evidence`."""
    right, given = pl.col("majority_is_correct"), pl.col("given_label_count")
    is_marked = pl.col("noise_type") != "clean"
    trained = None
    if trained_under is not None:
        slope_counts = "slope" in trained_under.criteria
        threshold = trained_under.slope_threshold if slope_counts else None
        trained = trained_under.criteria, threshold, trained_under.warmup_epochs
    cells = []
    for number, setting in enumerate(grid.settings()):
        report(f"Counted {number:,} settings")
        criteria, threshold, warmup = setting
        selected = selected_under(criteria, threshold or Decimal(0), warmup)
        counts = {
            "marked": is_marked & right.is_not_null(),
            "selected": selected,
            "known": selected & right.is_not_null(),
            "right": selected & right,
            "labelled": selected & given.is_not_null(),
            # The majority is the one class with the most rollouts (R9): a label that as many match is the majority.
            "agreeing": selected & (given >= pl.col("majority_count")),
            "repaired": selected & right & is_marked,
        }
        cells.append(
            {
                "criteria": "+".join(criteria) or "none",
                "slope_threshold": None if threshold is None else f"{threshold:f}",
                "warmup_epochs": warmup,
                "visits": len(rows),
                **rows.select(visits.sum().alias(name) for name, visits in counts.items()).row(0, named=True),
                "is_own": setting == trained,
            }
        )
    parts = {"coverage": ("selected", "visits"), "accuracy": ("right", "known")}
    parts |= {"agreement": ("agreeing", "labelled"), "repair": ("repaired", "marked")}
    frame = pl.DataFrame(cells, schema_overrides={"slope_threshold": pl.String}).with_columns(
        pl.when(pl.col(whole) > 0).then(pl.col(part) / pl.col(whole)).alias(name)
        for name, (part, whole) in parts.items()
    )
    frame = frame.with_columns(on_front=front(frame["selected"], frame["accuracy"]))
    known, labelled = rows["majority_is_correct"].count(), rows["given_label_count"].count()
    shares: tuple[str, ...] = ("accuracy",) if known else ("agreement",) if labelled else ()
    shares += ("coverage", "repair") if frame["marked"][0] else ("coverage",)
    return GridResult(frame.select(pl.exclude(*parts), *parts), shares)


def front(selected: pl.Series, accuracy: pl.Series) -> pl.Series:
    """Which cells are on the Pareto front of coverage and accuracy.

    A cell is on it where no other is at least as good in both and better in one. Cells without accuracy are not.
    """
    s, a = selected.to_numpy(), accuracy.cast(pl.Float64).fill_null(np.nan).to_numpy()
    more, better = s[None, :] > s[:, None], a[None, :] > a[:, None]
    is_beaten = (more & (a[None, :] >= a[:, None])) | (better & (s[None, :] >= s[:, None]))
    return pl.Series(~np.isnan(a) & ~is_beaten.any(axis=1), dtype=pl.Boolean)
