"""Threshold x warm-up x criteria over one stored history: what each setting would have selected, and how well.

Votes, slopes and historical majorities do not depend on the settings, so one pass over the rollouts serves every cell:
a run has stored it, a table of another trainer's rollouts is replayed once. Each cell then is R14 over the same rows.
"""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from itertools import product
from pathlib import Path
from shlex import quote
from typing import Any, TypeAlias

import polars as pl

from olr_cli.analysis.histories import EXAMPLE, RolloutHistory, read_history
from olr_cli.analysis.replay.replay import label_tables
from olr_cli.answers import Judge
from olr_cli.data.logs import Report, silent
from olr_cli.errors import UserError, unknown
from olr_cli.recipe.layers import override
from olr_cli.recipe.schema import OlrMethod
from olr_cli.runs.directory import read_recipe
from olr_cli.runs.store import scan_labels
from olr_cli.supervision.metrics import selected_under
from olr_cli.tables import Answer, Block, Column, File, Row, Table, percent

THRESHOLD, WARMUP, CRITERIA = "method.slope_threshold", "method.warmup_epochs", "method.criteria"

DEFAULT = "default"
"""Stands for `DEFAULT_VALUES` of the keys that are not named."""

DEFAULT_VALUES: Mapping[str, str] = {
    THRESHOLD: "0,0.02,0.05,0.1,0.2",
    WARMUP: "0,1,2,3,5,8",
    CRITERIA: "slope+consistency,consistency,slope",
}
"""What can vary, and over which values by default; the setting of the recipe comes to these."""

_READ: Mapping[str, Callable[[str], Any]] = {
    THRESHOLD: Decimal,
    WARMUP: int,
    CRITERIA: lambda text: () if text == "none" else tuple(text.split("+")),
}
"""How a value of each key is read; the criteria ``none`` select every majority."""

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

SHARES = {
    "accuracy": ("right", "known", "Accuracy of selected"),
    "agreement": ("agreeing", "labelled", "Agreement with the label"),
    "coverage": ("selected", "visits", "Share of visits selected"),
    "repair": ("repaired", "marked", "Wrong labels repaired"),
}
"""Shares of a cell: which count of which, and what they are called."""

FEW = 20
"""A share of fewer visits than this says little: its cell has no colour."""

_WIDTH = 80

Grid: TypeAlias = Mapping[str, Sequence[Any]]
"""Key -> its values, numbers ascending."""


def grid_answer(
    source: Path | Sequence[Path],
    options: Sequence[str],
    overrides: Sequence[str] = (),
    out: Path | None = None,
    columns: Mapping[str, str] | None = None,
    report: Report = silent,
    verified: Callable[[int, int], None] | None = None,
) -> Answer:
    """Count a grid over a history and write its heat map as PNG, PDF and CSV.

    `options` are those of `--grid`. The map goes into `out`, by default below the run or beside the log; `verified`
    takes the progress of computer algebra, as `Judge` does; the rest is as in `read_history`.

    Raises:
        UserError: there is no such history, or a setting is wrong.
    """
    named = parse(options, overrides)
    history = read_history(source, ["method.name=olr", *overrides], columns, report=report)
    base = history.recipe.method
    if not isinstance(base, OlrMethod):
        raise UserError(
            f"--grid is of the settings of olr, and method.name is {base.name}; leave one of them out"
        )
    tolerance = history.recipe.data.tolerance
    with Judge(ledger=history.given_up, keep=False, tolerance=tolerance, report=verified) as judge:
        rows = evidence(history, judge)
    grid = complete(named, base, rows["visit"].n_unique(), is_default=DEFAULT in options)
    trained = trained_setting(history)
    cells = count(rows, grid, trained)

    from olr_cli.analysis.figures.style import save
    from olr_cli.analysis.replay.grid_map import chart

    folder = out or (history.source / "replay" if history.is_run else history.source.parent)
    written = save(chart(cells, _name(history, grid, is_below_run=history.is_run and out is None)), folder)
    notes = list(history.notes)
    if trained is not None:
        notes.append(
            "[ ]: the setting the run was trained under."
            if cells["is_own"].any()
            else "The setting the run was trained under is not in the grid."
        )
    notes.append(
        "The rollouts are as they are: under other labels the policy would have learned otherwise, and a replay does"
        " not show how."
    )
    return Answer(
        [
            f"{len(cells)} settings over {len(rows):,} visits; numbers are percentages.",
            "",
            table(cells),
            *(textwrap.fill(note, _WIDTH) for note in notes),
        ],
        {"cells": _plain(cells), "notes": notes, "written": [str(file) for file in written]},
        files=[File(written[0], ", .pdf and .csv")],
        next={
            f"olr replay {quote(str(history.source))} --set {THRESHOLD}=… --set {WARMUP}=…": "the labels of one cell"
        },
    )


def _name(history: RolloutHistory, grid: Grid, *, is_below_run: bool) -> str:
    """One for each setting; outside the run, where maps of several histories may lie, for each of their names too."""
    digest = hashlib.sha256(repr((grid, history.recipe.digest())).encode()).hexdigest()[:8]
    # What follows the last point of a run's name is no suffix: active-0.5.
    source = history.source.resolve()
    name = "" if is_below_run else f"{source.name if history.is_run else source.stem}-"
    return f"{name}grid-{digest}"


# From options to settings -----------------------------------------------------------------------------------------


def parse(options: Iterable[str], overrides: Iterable[str] = ()) -> Grid:
    """The values that `--grid` options name: ``KEY=VALUE,VALUE``; `DEFAULT` names none.

    Raises:
        UserError: a key is unknown or is one of `overrides` (`--set`), or a value is none of its key.
    """
    grid: dict[str, list[Any]] = {}
    for option in options:
        key, _, text = (part.strip() for part in option.partition("="))
        if option == DEFAULT:
            continue
        if key not in _READ:
            raise unknown("--grid", key, [*_READ, DEFAULT])
        grid[key] = _in_order(key, [*grid.get(key, ()), *_values(key, text)])
    changed = override({}, overrides, example=EXAMPLE).get("method")
    fixed = [key for key in grid if isinstance(changed, Mapping) and _field(key) in changed]
    if fixed:
        raise UserError(f"--set {fixed[0]}: the grid goes through values of that; leave one of them out")
    return grid


def _field(key: str) -> str:
    return key.removeprefix("method.")


def _values(key: str, text: str) -> list[Any]:
    values = []
    for part in map(str.strip, text.split(",")):
        try:
            values.append(getattr(OlrMethod.model_validate({_field(key): _READ[key](part)}), _field(key)))
        except (InvalidOperation, ValueError):
            raise UserError(
                f"--grid {key}: '{part}' is no value of that; write for example {key}={DEFAULT_VALUES[key]}"
            ) from None
    return values


def _in_order(key: str, values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values if key == CRITERIA else sorted(values)))


def complete(named: Grid, base: OlrMethod, visits: int, *, is_default: bool) -> Grid:
    """The grid over a history of so many visits: keys that are not named stay as in `base`, or have the default values.

    Raises:
        UserError: a warm-up leaves no visit.
    """
    grid = {}
    for key, default in DEFAULT_VALUES.items():
        own = getattr(base, _field(key))
        values = [*_values(key, default), own] if is_default else [own]
        if key == WARMUP and is_default:
            values = [warmup for warmup in values if warmup < visits]
        grid[key] = named.get(key) or _in_order(key, values)
    if grid[WARMUP][-1] >= visits:
        raise UserError(
            f"{WARMUP} {grid[WARMUP][-1]} leaves none of the history's {visits} visits in which a label can be refined;"
            f" lower it with --grid {WARMUP}=…"
        )
    return grid


# From settings to cells -------------------------------------------------------------------------------------------


def trained_setting(history: RolloutHistory) -> dict[str, Any] | None:
    """The setting the run was trained under, as in its cell; None for a bare table, or a run of another method."""
    method = read_recipe(history.source).method if history.is_run else None
    if not isinstance(method, OlrMethod):
        return None
    return _setting(method.criteria, method.slope_threshold, method.warmup_epochs)


def _setting(criteria: Sequence[str], threshold: Decimal, warmup: int) -> dict[str, Any]:
    return {
        "criteria": "+".join(criteria) or "none",
        "slope_threshold": f"{threshold:f}" if "slope" in criteria else None,
        "warmup_epochs": warmup,
    }


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


def count(rows: pl.DataFrame, grid: Grid, trained: Mapping[str, Any] | None = None) -> pl.DataFrame:
    """What each cell of a grid would have selected (R14), from at least one row of `evidence`.

    Returns:
        A row a setting: criteria (as ``--grid`` takes them), slope_threshold (as written; null where the slope does not
        count), warmup_epochs; counts of prompt visits, those of warm-up included: visits, marked (of prompts known to
        be mislabelled, with a known true answer), selected, known (of these, with a known true answer), right (of
        these, with a right majority), labelled (of the selected, with a given label), agreeing (of these, with a
        majority that is the given label), repaired (selected, marked, with a right majority); is_own (the run was
        trained under this setting); and the `SHARES`, null of nothing.
    """
    right, given = pl.col("majority_is_correct"), pl.col("given_label_count")
    is_marked = pl.col("noise_type") != "clean"
    cells = []
    for criteria in grid[CRITERIA]:
        thresholds = grid[THRESHOLD] if "slope" in criteria else grid[THRESHOLD][:1]
        for threshold, warmup in product(thresholds, grid[WARMUP]):
            selected = selected_under(criteria, threshold, warmup)
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
            counted = rows.select(visits.sum().alias(name) for name, visits in counts.items())
            setting = _setting(criteria, threshold, warmup)
            cell = setting | {"visits": len(rows)} | counted.row(0, named=True)
            cells.append(cell | {"is_own": setting == trained})
    return pl.DataFrame(cells, schema_overrides={"slope_threshold": pl.String}).with_columns(
        (pl.col(part) / pl.when(pl.col(whole) > 0).then(pl.col(whole))).alias(name)
        for name, (part, whole, _) in SHARES.items()
    )


def shown_shares(cells: pl.DataFrame) -> list[str]:
    """The shares that any cell has; agreement stands in for accuracy where no true answer is known."""
    known = [name for name in SHARES if cells[name].count()]
    return [name for name in known if name != "agreement" or "accuracy" not in known]


def blocks_of(cells: pl.DataFrame) -> Mapping[str, pl.DataFrame]:
    """The cells of each set of criteria, under its name."""
    return {
        "every majority" if criteria == "none" else str(criteria): block
        for (criteria,), block in cells.group_by("criteria", maintain_order=True)
    }


def _plain(cells: pl.DataFrame) -> list[dict[str, Any]]:
    return cells.with_columns(pl.col("slope_threshold").cast(pl.Float64)).to_dicts()


def table(cells: pl.DataFrame) -> Table:
    """A block for each set of criteria; in it, for each share, a row a threshold and a column a warm-up."""
    blocks = []
    for criteria, block in blocks_of(cells).items():
        rows = []
        for share in shown_shares(cells):
            rows.append(Row([SHARES[share][-1]], "title"))
            for (threshold,), of_threshold in block.group_by("slope_threshold", maintain_order=True):
                texts = [
                    f"[{percent(value)}]" if is_own else percent(value)
                    for value, is_own in of_threshold.select(share, "is_own").iter_rows()
                ]
                rows.append(Row([str(threshold or "any"), *texts]))
        warmups = block["warmup_epochs"].unique(maintain_order=True)
        columns = [Column("delta"), *(Column(f"T={warmup}") for warmup in warmups)]
        blocks.append(Block(columns, rows, criteria))
    return Table(blocks, {"rows": _plain(cells)})
