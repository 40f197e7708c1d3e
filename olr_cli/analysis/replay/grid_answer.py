"""A grid of replays as an answer: a table, sentences, and the heat map's files."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import polars as pl

from olr_cli.analysis.histories import RolloutHistory, read_history
from olr_cli.analysis.replay import grid
from olr_cli.analysis.replay.grid import THRESHOLD, WARMUP, Grid, GridResult
from olr_cli.answers import Judge
from olr_cli.data.logs import Report, silent
from olr_cli.errors import UserError
from olr_cli.recipe.schema import OlrMethod
from olr_cli.tables import Answer, Block, Column, File, Row, Table, percent

_WIDTH = 80
_MOST_NAMED = 6


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

    Args:
        source: a run directory, or the log of another trainer, as `read_history` takes it.
        options: of `--grid`.
        overrides: of `--set`, which say where keys outside the grid stay.
        out: the folder of the heat map; by default below the run, or beside the log.
        columns: of `--columns`.
        report: takes sentences on how far it is.
        verified: the same of the answers that need computer algebra, as `Judge` takes it.

    Raises:
        UserError: there is no such history, or a setting is wrong.
    """
    axes = grid.parse(options, overrides)
    if out is not None and out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file, and the heat map of a grid goes into a folder; name another")
    history = read_history(source, overrides, columns, report=report)
    folder = out or (history.source / "replay" if history.is_run else history.source.parent)
    base, trained = history.recipe.method, grid.trained_setting(history)
    if not isinstance(base, OlrMethod):
        raise UserError(
            f"--grid is of the settings of olr, and method.name is {base.name}; leave one of them out"
        )
    with Judge(ledger=history.given_up, keep=False, report=verified) as judge:
        rows = grid.evidence(history, judge)
    settings = grid.resolve(axes, rows, base, trained)
    result = grid.count(rows, settings, trained, report)

    from olr_cli.analysis.figures.style import save
    from olr_cli.analysis.replay.grid_map import chart

    written = save(
        chart(result, _name(history, settings, is_below_run=history.is_run and out is None)), folder
    )
    image = next(file for file in written if file.suffix == ".png")
    notes = [*history.notes, *sentences(result, has_own=trained is not None)]
    cells = [_plain(cell) for cell in result.cells.iter_rows(named=True)]
    return Answer(
        [
            f"{len(cells)} settings over {len(rows):,} visits; numbers are percentages.",
            "",
            table(result),
            *(textwrap.fill(note, _WIDTH) for note in notes),
        ],
        {"cells": cells, "notes": notes, "written": [str(file) for file in written]},
        files=[File(image, ", .pdf and .csv")],
        next={
            f"olr replay {quote(str(history.source))} --set {THRESHOLD}=… --set {WARMUP}=…": "the labels of one cell"
        },
    )


def _name(history: RolloutHistory, settings: Grid, *, is_below_run: bool) -> str:
    """One for each setting; outside the run, where maps of several histories may lie, for each of their names too."""
    digest = hashlib.sha256(repr((settings, history.recipe.digest())).encode()).hexdigest()[:8]
    # What follows the last point of a run's name is no suffix: active-0.5.
    source = history.source.resolve()
    name = "" if is_below_run else f"{source.name if history.is_run else source.stem}-"
    return f"{name}grid-{digest}"


def _plain(cell: Mapping[str, Any]) -> dict[str, Any]:
    threshold = cell["slope_threshold"]
    return {**cell, "slope_threshold": None if threshold is None else float(threshold)}


def table(result: GridResult) -> Table:
    """A block for each set of criteria; in it, for each share, a row a threshold and a column a warm-up."""
    blocks = []
    for (criteria,), cells in result.cells.group_by("criteria", maintain_order=True):
        warmups = cells["warmup_epochs"].unique(maintain_order=True)
        rows = []
        for share in result.shares:
            rows.append(Row([grid.TITLES[share]], "title"))
            for (threshold,), of_threshold in cells.group_by("slope_threshold", maintain_order=True):
                texts = [_cell(cell, share) for cell in of_threshold.iter_rows(named=True)]
                rows.append(Row([str(threshold or "any"), *texts]))
        columns = [Column("delta"), *(Column(f"T={warmup}") for warmup in warmups)]
        blocks.append(Block(columns, rows, "every majority" if criteria == "none" else str(criteria)))
    return Table(blocks, {"rows": [_plain(cell) for cell in result.cells.iter_rows(named=True)]})


def _cell(cell: Mapping[str, Any], share: str) -> str:
    """A share with the marks of its cell."""
    text = percent(cell[share])
    return ("*" if cell["on_front"] else "") + (f"[{text}]" if cell["is_own"] else text)


def sentences(result: GridResult, *, has_own: bool) -> Iterator[str]:
    """The Pareto front, the mark of the run's own setting, and what a replay can't tell."""
    if result.cells["is_own"].any():
        yield "[ ]: the setting the run was trained under."
    elif has_own:
        yield "The setting the run was trained under is not in the grid."
    yield _front(result)
    yield (
        "The rollouts are as they are: under other labels the policy would have learned otherwise, and a replay does"
        " not show how."
    )


def _front(result: GridResult) -> str:
    if "accuracy" not in result.shares:
        return "No true answer is known, so nothing is said of accuracy, and there is no Pareto front."
    cells = result.cells.filter(pl.col("on_front")).sort("selected", maintain_order=True)
    if cells.is_empty():
        return "No setting selects a label whose true answer is known, so there is no Pareto front."
    different = cells.unique(["selected", "right", "known"], keep="first", maintain_order=True)
    counted = f"{len(cells)} of {len(result.cells)} cells"
    front = (
        f"Pareto front (*; no other cell has at least its accuracy and coverage, and more of one): {counted}"
    )
    named = [_named(cell) for cell in different.iter_rows(named=True)]
    if len(named) > _MOST_NAMED:
        return f"{front}, from {named[0]} to {named[-1]}."
    equal = ", equal ones named once" if len(different) < len(cells) else ""
    return f"{front}{equal}: {'; '.join(named)}."


def _named(cell: Mapping[str, Any]) -> str:
    threshold = "" if cell["slope_threshold"] is None else f" delta {cell['slope_threshold']}"
    return (
        f"{cell['criteria']}{threshold} T {cell['warmup_epochs']} ({cell['right']:,} of {cell['known']:,} right,"
        f" {percent(cell['coverage'])}% selected)"
    )
