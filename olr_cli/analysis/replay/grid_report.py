"""A grid of replays from options to files: counted, drawn, and told."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from olr_cli.analysis.histories import RolloutHistory, read_history
from olr_cli.analysis.replay import grid_settings, grid_text
from olr_cli.analysis.replay.grid import GridResult, count, evidence, own_setting, require_olr
from olr_cli.analysis.replay.grid_settings import Grid
from olr_cli.answers import Judge
from olr_cli.errors import UserError


@dataclass(frozen=True)
class GridReport:
    """What `olr replay --grid` has to show.

    Attributes:
        source: the history.
        result: its cells.
        notes: sentences about them.
        written: the files of the heat map.
    """

    source: Path
    result: GridResult
    notes: Sequence[str]
    written: Sequence[Path]

    def lines(self) -> list[str]:
        """For a terminal of 80 columns: the table, sentences, what was written, and what comes next."""
        image = next(file for file in self.written if file.suffix == ".png")
        settings = f"--set {grid_settings.THRESHOLD}=… --set {grid_settings.WARMUP}=…"
        return [
            f"{len(self.result.cells)} settings over {self.result.cells[0].visits:,} visits.",
            *grid_text.lines(self.result),
            "",
            *(textwrap.fill(note, 80) for note in self.notes),
            f"Wrote {image}, .pdf and .csv",
            f"Next: olr replay {self.source} {settings}   (the labels of one cell)",
        ]

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        cells = [cell.plain() for cell in self.result.cells]
        for cell in cells:
            threshold = cell["slope_threshold"]
            cell["slope_threshold"] = None if threshold is None else float(threshold)
        return {"cells": cells, "notes": list(self.notes), "written": [str(file) for file in self.written]}


def report(
    source: Path, grid: Sequence[str], overrides: Sequence[str] = (), out: Path | None = None
) -> GridReport:
    """Count a grid over a history and write its heat map as PNG, PDF and CSV.

    Args:
        source: a run directory, or a table of rollouts.
        grid: `--grid` options (`olr_cli.analysis.replay.grid_settings.parse`).
        overrides: `--set` options, which say where keys outside the grid stay.
        out: the folder of the heat map; by default below the run, or beside the table.

    Raises:
        UserError: there is no such history, or a setting is wrong.
    """
    axes = grid_settings.parse(grid, overrides)
    folder = out or (source / "replay" if source.is_dir() else source.parent)
    if folder.exists() and not folder.is_dir():
        raise UserError(
            f"--out {folder} is a file, and the heat map of a grid goes into a folder; name another"
        )
    history = read_history(source, overrides)
    base, own = require_olr(history), own_setting(history)
    with Judge(ledger=history.given_up, keep=False) as judge:
        rows = evidence(history, judge)
    settings = grid_settings.resolve(axes, rows, base, own)
    result = count(rows, settings, own)

    from olr_cli.analysis.replay.grid_map import chart
    from olr_cli.analysis.style import save

    written = save(
        chart(result, _name(history, settings, is_below_run=history.is_run and out is None)), folder
    )
    notes = [*history.notes, *grid_text.sentences(result, has_own=own is not None)]
    return GridReport(source, result, notes, written)


def _name(history: RolloutHistory, settings: Grid, *, is_below_run: bool) -> str:
    """One for each setting; outside the run, where maps of several histories may lie, for each history too."""
    place = "" if is_below_run else str(history.source.resolve())
    digest = hashlib.sha256(repr((settings, history.recipe.digest(), place)).encode()).hexdigest()[:8]
    if is_below_run:
        return f"grid-{digest}"
    source = history.source.resolve()
    # What follows the last point of a run's name is no suffix: active-0.5.
    return f"{source.name if history.is_run else source.stem}-grid-{digest}"
