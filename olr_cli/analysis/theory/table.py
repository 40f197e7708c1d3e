"""What the theory assumes and predicts beside what runs show: a block a subject, a line an arm.

Everything is counted from run directories; what needs the policy itself is in ``benchmarks/theory.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from olr_cli import tables
from olr_cli.analysis.arms import Arm, Run
from olr_cli.analysis.frame import Summary
from olr_cli.analysis.theory.critical import Series, crossing, refined_crossing, series
from olr_cli.analysis.theory.subjects import (
    CHANGES,
    CRITICAL_COLUMNS,
    CRITICAL_NAME,
    CRITICAL_NOTES,
    CRITICAL_TITLE,
    Column,
    Subject,
    subjects,
)
from olr_cli.analysis.theory.values import Measured
from olr_cli.tables import Table, interval
from olr_cli.tables.numbers import joined

Cells: TypeAlias = Mapping[str, Summary]
"""Column -> values by seed; a column without any is left out."""

NOTHING = "No run here has noisy labels and known true answers, which the theory is about."

_Change: TypeAlias = Callable[[Measured], float | None]


@dataclass(frozen=True)
class Block:
    """One subject.

    Attributes:
        name: in CSV and JSON.
        title: of the block.
        columns: those that some line has a value for.
        lines: an arm, or a series of arms and what changes, with its cells.
        notes: what the reader should know.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    lines: tuple[tuple[str, Cells], ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class TheoryTable:
    """All blocks that have a value; none without noisy labels and known true answers."""

    blocks: tuple[Block, ...]

    def rows(self) -> list[dict[str, Any]]:
        """A row a cell; shares from 0 to 1, low and high the ends of the 95 % t interval over seeds."""
        return [
            _plain(block.name, line, cells[column.name])
            for block in self.blocks
            for line, cells in block.lines
            for column in block.columns
            if column.name in cells
        ]

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {"rows": self.rows()}

    def table(self) -> Table:
        """Means over seeds and intervals, and where there is room sd; shares in percent."""
        explanation = "Means over seeds, shares in percent. For sd: --format markdown, latex or csv."
        return Table(
            blocks=[_printed(block) for block in self.blocks],
            data=self.plain(),
            footnotes=[explanation if self.blocks else NOTHING],
            fields=_FIELDS,
            nothing=NOTHING,
        )


_FIELDS = ("block", "line", "column", "n", "mean", "sd", "low", "high")


def _printed(block: Block) -> tables.Block:
    columns = [tables.Column("")]
    columns += [
        tables.Column(each.title, each.title.replace("\n", " ") + ", %" * (each.kind == "share"))
        for each in block.columns
    ]
    rows = [
        tables.Row([line, *(_cell(column, cells.get(column.name)) for column in block.columns)])
        for line, cells in block.lines
    ]
    return tables.Block(columns, rows, block.title, block.notes)


def _cell(column: Column, cell: Summary | None) -> str | tables.Cell:
    if cell is None or cell.mean is None:
        return ""
    ends = cell.interval if column.kind == "interval" else None
    mean = joined(column.text(cell.mean), interval(ends, column.text))
    if cell.sd is None or column.kind in ("interval", "count"):
        return mean
    return tables.Cell(mean, f"{mean} ± {column.text(cell.sd)}")


def theory_table(arms: Sequence[Arm]) -> TheoryTable:
    """Measure some arms.

    Args:
        arms: at least one.

    Raises:
        UserError: a run has no labels, or a shard is torn or foreign.
    """
    measured = {run.path: Measured(run, arm.epochs) for arm in arms for run in arm.runs}
    blocks = [_block(subject, arms, measured) for subject in subjects(max(arm.epochs for arm in arms))]
    blocks.append(_critical(series(arms), measured))
    return TheoryTable(tuple(block for block in blocks if block.lines))


def _block(subject: Subject, arms: Sequence[Arm], measured: Mapping[Path, Measured]) -> Block:
    lines = []
    for arm in arms:
        found = {run.seed: subject.measure(measured[run.path]) for run in arm.runs}
        by_column = {
            column.name: {
                seed: value for seed, own in found.items() if (value := own.get(column.name)) is not None
            }
            for column in subject.columns
        }
        if any(by_column.values()):
            lines.append((arm.name, _cells(arm.name, by_column)))
    return _with_columns(subject.name, subject.title, subject.columns, lines, subject.notes)


def _critical(found: Sequence[Series], measured: Mapping[Path, Measured]) -> Block:
    lines = [
        (name, _cells(name, by_column))
        for each in found
        for what, change in CHANGES.items()
        for name in [f"{each.name}: {what}"]
        if (by_column := _crossings(each, change, measured))
    ]
    return _with_columns(CRITICAL_NAME, CRITICAL_TITLE, CRITICAL_COLUMNS, lines, CRITICAL_NOTES)


def _crossings(
    each: Series, change: _Change, measured: Mapping[Path, Measured]
) -> dict[str, dict[int, float]]:
    """Where a change crosses 0, seed by seed, and where OLR's theorem has it; nothing if the change is unknown."""
    changes = {seed: _changes(runs, change, measured) for seed, runs in each.runs().items()}
    known = {seed: own for seed, own in changes.items() if len(own) > 1}
    if not known:
        return {}
    observed = {seed: at for seed, own in known.items() if (at := crossing(own)) is not None}
    return {
        "observed": observed,
        "crossing": {0: float(len(observed))},
        "seeds": {0: float(len(known))},
        "predicted": _predicted(each, change, measured),
    }


def _predicted(each: Series, change: _Change, measured: Mapping[Path, Measured]) -> dict[int, float]:
    """rho_c / (1 - Delta) with GRPO's rho_c of the same seed, where that crosses."""
    if each.unrefined is None:
        return {}
    plain, found = each.unrefined.runs(), {}
    for seed, runs in each.runs().items():
        critical = crossing(_changes(plain.get(seed, {}), change, measured))
        replaced = _changes(runs, lambda own: own.refined.get("replaced"), measured)
        if critical is not None and (at := refined_crossing(replaced, critical)) is not None:
            found[seed] = at
    return found


def _changes(
    runs: Mapping[float, Run], change: _Change, measured: Mapping[Path, Measured]
) -> dict[float, float]:
    found = {ratio: change(measured[run.path]) for ratio, run in runs.items()}
    return {ratio: value for ratio, value in found.items() if value is not None}


def _cells(line: str, by_column: Mapping[str, Mapping[int, float]]) -> Cells:
    return {name: Summary(name, line, own) for name, own in by_column.items() if own}


def _with_columns(
    name: str,
    title: str,
    columns: Sequence[Column],
    lines: Sequence[tuple[str, Cells]],
    notes: tuple[str, ...],
) -> Block:
    used = tuple(column for column in columns if any(column.name in cells for _, cells in lines))
    return Block(name, title, used, tuple(lines), notes)


def _plain(block: str, line: str, cell: Summary) -> dict[str, Any]:
    low, high = cell.interval or (None, None)
    return {
        "block": block,
        "line": line,
        "column": cell.metric,
        "n": len(cell.values),
        "mean": cell.mean,
        "sd": cell.sd,
        "low": low,
        "high": high,
    }
