"""The table of training time as it is printed: the parts of a step, its throughput, and the sums over a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from olr_cli.analysis.cost import PARTS, STEP, TOGETHER, Spread, Unit, percent, unit_of
from olr_cli.analysis.frame import Difference
from olr_cli.runs.throughput import QUANTITIES
from olr_cli.tables import Block, Cell, Column, Row, Table, interval
from olr_cli.tables.numbers import joined

if TYPE_CHECKING:
    from olr_cli.analysis.tables.cost_table import CostRow, CostTable

REST = ("weights", "store", "other")
"""Parts that the printed table shows as one."""

PHASES = ("RLVR training", "OLR update", "Total")
"""The rows of the paper's table; the OLR update is our label update."""

_SPLIT = {
    "verification": "verifi-\ncation",
    "labels": "label\nupdate",
    TOGETHER: "verif. +\nlabels",
    "update": "policy\nupdate",
}
"""Heads in two lines, for a terminal."""


def to_table(found: CostTable) -> Table:
    """Medians of a step's parts, where there is room with quartiles; and the sums over a run."""
    footnotes = [*found.notes, "For quartiles and intervals: --format markdown, latex or csv."]
    blocks = [_steps(found), *_throughput(found), _runs(found)]
    return Table(blocks, found.plain(), found.notes, footnotes)


def _steps(found: CostTable) -> Block:
    unit = unit_of(row.cost for row in found.rows)
    parts = [part for part in PARTS if part not in REST and any(part in row.cost.parts for row in found.rows)]
    is_compared = any(row.relative for row in found.rows)
    columns = [
        *(Column(""), Column("steps", only="document")),
        *(Column(_SPLIT.get(part, PARTS[part].label), PARTS[part].label) for part in parts),
        *(Column("rest"), Column(STEP), Column("label\nshare", "label update, %")),
    ]
    if is_compared:
        beyond = f"to GRPO, {unit.name} [95 %]"
        columns += [
            Column(f"label update {beyond}", only="document"),
            Column(f"step {beyond}", only="document"),
            Column("to\nGRPO", "step to GRPO, % [95 %]"),
        ]
    rows = [Row([*_step(row, parts, unit, is_compared=is_compared)]) for row in found.rows]
    return Block(columns, rows, f"A step, {unit.name}")


def _step(row: CostRow, parts: Sequence[str], unit: Unit, *, is_compared: bool) -> Iterator[str | Cell]:
    cost = row.cost
    yield cost.arm.name
    yield str(len(cost.all_steps))
    for part in parts:
        yield _spread(cost.spread(part), unit.text) if part in cost.parts else ""
    yield _spread(cost.spread(*REST), unit.text)
    yield _spread(cost.spread(STEP), unit.text)
    share = percent(cost.share("labels")) if "labels" in cost.parts else ""
    yield Cell(share and f"{share} %", share)
    if is_compared:
        yield _change(row.differences.get("labels"), 1 / unit.seconds, unit.digits)
        yield _change(row.differences.get(STEP), 1 / unit.seconds, unit.digits)
        yield Cell(f"{100 * row.relative.mean:+.1f} %" if row.relative else "", _change(row.relative, 100, 1))


def _spread(spread: Spread, text: Callable[[float], str]) -> Cell:
    median = text(spread.median)
    return Cell(median, joined(median, interval((spread.low, spread.high), text)))


def _throughput(found: CostTable) -> Iterator[Block]:
    """What was measured of `QUANTITIES`, if anything."""
    measured = {
        name: quantity
        for name, quantity in QUANTITIES.items()
        if any(name in row.cost.throughput for row in found.rows)
    }
    if not measured:
        return
    columns = [
        Column(each.head, ", ".join(filter(None, (each.label, each.unit)))) for each in measured.values()
    ]
    rows = []
    for row in found.rows:
        known = [(row.cost.throughput.get(name), each.text) for name, each in measured.items()]
        cells = [_spread(Spread.of(values), text) if values else "" for values, text in known]
        rows.append(Row([row.cost.arm.name, *cells]))
    yield Block([Column(""), *columns], rows, "Throughput of a step")


def _change(change: Difference | None, times: float, digits: int) -> str:
    if change is None:
        return ""

    def text(value: float) -> str:
        return f"{times * value:+.{digits}f}"

    return joined(text(change.mean), interval(change.ends, text))


def _runs(found: CostTable) -> Block:
    rows = [Row([*_run(row)]) for row in found.rows]
    if found.published:
        rows.append(Row(["paper", "", *(found.published[phase] for phase in PHASES)], "published"))
    return Block([Column(""), Column("runs"), *map(Column, PHASES)], rows, "All steps of a run")


def _run(row: CostRow) -> Iterator[str]:
    yield row.cost.arm.name
    yield str(row.finished) if row.finished else ""
    if row.phases:
        yield from map(_duration, row.phases)
    else:
        yield from ("", "", _duration(row.run[STEP]) if row.run else "")


def _duration(seconds: float) -> str:
    """Three digits, in the unit in which they are easiest to read."""
    for name, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= size:
            return f"{Unit(name, size).text(seconds)} {name}"
    return f"{Unit('ms', 0.001).text(seconds)} ms"
