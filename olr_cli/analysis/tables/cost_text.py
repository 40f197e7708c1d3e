"""The table of training time as text: for a terminal, Markdown, LaTeX, CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from olr_cli.analysis.cost import PARTS, STEP, TOGETHER, Spread, Unit, percent, unit_of
from olr_cli.analysis.tables.arms_table import Difference
from olr_cli.analysis.tables.cost_table import PHASES, REST, CostRow, CostTable
from olr_cli.evaluation import latex as tex
from olr_cli.evaluation import table_shapes
from olr_cli.runs.throughput import QUANTITIES, Quantity

_WIDTH = 80
_SPLIT = {
    "verification": "verifi-\ncation",
    "labels": "label\nupdate",
    TOGETHER: "verif. +\nlabels",
    "update": "policy\nupdate",
}
"""Heads in two lines, for a terminal."""


@dataclass(frozen=True)
class _Block:
    """Lines under the same heads.

    Attributes:
        title: of the block.
        heads: of the columns; the first is that of the arms.
        ours: a line an arm.
        paper: the published line; None if there is none.
    """

    title: str
    heads: Sequence[str]
    ours: Sequence[Sequence[str]]
    paper: Sequence[str] | None = None


def terminal(table: CostTable) -> RenderableType:
    """Blocks in 80 columns: medians of a step's parts, throughput where it was measured, and the sums over a run."""
    parts: list[RenderableType] = []
    for block in _blocks(table, in_full=False):
        lines = [*block.ours, *([block.paper] if block.paper else [])]
        widths = [
            max(len(text) for cell in cells for text in cell.split("\n"))
            for cells in zip(block.heads, *lines, strict=True)
        ]
        widths[0] = max(min(widths[0], _WIDTH - sum(widths[1:]) - len(widths)), 8)
        shown = RichTable(box=None, padding=(0, 1, 0, 0), header_style="dim")
        for place, (head, width) in enumerate(zip(block.heads, widths, strict=True)):
            shown.add_column(
                Text(head),
                width=width,
                justify="right" if place else "left",
                overflow="fold",
                vertical="bottom",
            )
        for line in lines:
            shown.add_row(*map(Text, line), style="dim" if line is block.paper else "")
        parts += [Text(block.title, style="bold"), shown, Text()]
    return Group(*parts)


def markdown(table: CostTable) -> str:
    """The blocks of `terminal` as tables, with quartiles."""
    lines: list[str] = []
    for block in _blocks(table, in_full=True):
        rows = list(block.ours)
        if block.paper:
            rows.append([cell and f"*{cell}*" for cell in block.paper])
        lines += [f"**{block.title}**", "", *table_shapes.markdown_table(block.heads, rows), ""]
    return "\n".join([*lines, *(f"- {note}" for note in table.notes)])


def latex(table: CostTable) -> str:
    """A `tabular` a block with the rules of booktabs; the lines and cells of `markdown`."""
    shown = []
    for number, block in enumerate(_blocks(table, in_full=True)):
        body = [tex.row([tex.escaped(name), *map(tex.number, numbers)]) for name, *numbers in block.ours]
        if block.paper:
            body += [
                "\\midrule",
                tex.row(f"\\emph{{{tex.escaped(cell)}}}" if cell else "" for cell in block.paper),
            ]
        notes = [] if number else table.notes
        shown.append(
            tex.tabular([tex.escaped(head) for head in block.heads], body, [*notes, f"{block.title}."])
        )
    return "\n\n".join(shown)


def comma_separated(table: CostTable) -> str:
    """A line an arm and part, in seconds; empty where there is nothing."""
    lines = list(table.lines())
    return table_shapes.comma_separated(lines[0], lines)


def footnotes(table: CostTable) -> Iterator[str]:
    """What the reader of a table should know."""
    yield from table.notes
    yield "For quartiles and intervals: --format markdown, latex or csv."


def _blocks(table: CostTable, *, in_full: bool) -> Iterator[_Block]:
    unit = unit_of(row.cost for row in table.rows)
    printed = [
        part for part in PARTS if part not in REST and any(part in row.cost.parts for row in table.rows)
    ]
    compared = any(row.relative for row in table.rows)
    heads = ["", *(["steps"] if in_full else [])]
    heads += [PARTS[part].label if in_full else _SPLIT.get(part, PARTS[part].label) for part in printed]
    heads += ["rest", STEP, "label update, %" if in_full else "label\nshare"]
    if compared:
        beyond = f"to GRPO, {unit.name} [95 %]"
        in_words = [f"label update {beyond}", f"step {beyond}", "step to GRPO, % [95 %]"]
        heads += in_words if in_full else ["to\nGRPO"]
    yield _Block(
        f"A step, {unit.name}",
        heads,
        [list(_step(row, printed, unit, compared=compared, in_full=in_full)) for row in table.rows],
    )
    measured = [name for name in QUANTITIES if any(name in row.cost.throughput for row in table.rows)]
    if measured:
        yield _Block(
            "Throughput of a step",
            ["", *(_head(QUANTITIES[name], in_full=in_full) for name in measured)],
            [list(_throughput(row, measured, in_full=in_full)) for row in table.rows],
        )
    paper = ["paper", "", *(table.published[phase] for phase in PHASES)] if table.published else None
    yield _Block("All steps of a run", ["", "runs", *PHASES], [list(_run(row)) for row in table.rows], paper)


def _step(
    row: CostRow, printed: Sequence[str], unit: Unit, *, compared: bool, in_full: bool
) -> Iterator[str]:
    cost = row.cost

    def shown(spread: Spread) -> str:
        quartiles = f" [{unit.text(spread.low)}, {unit.text(spread.high)}]" if in_full else ""
        return unit.text(spread.median) + quartiles

    yield cost.arm.name
    if in_full:
        yield str(len(cost.all_steps))
    for part in printed:
        yield shown(cost.spread(part)) if part in cost.parts else ""
    yield shown(cost.spread(*REST))
    yield shown(cost.spread(STEP))
    share = percent(cost.share("labels")) if "labels" in cost.parts else ""
    yield share if in_full or not share else f"{share} %"
    if not compared:
        return
    if in_full:
        yield _change(row.differences.get("labels"), 1 / unit.seconds, unit.digits)
        yield _change(row.differences.get(STEP), 1 / unit.seconds, unit.digits)
        yield _change(row.relative, 100, 1)
    else:
        yield f"{100 * row.relative.mean:+.1f} %" if row.relative else ""


def _head(quantity: Quantity, *, in_full: bool) -> str:
    if not in_full:
        return quantity.head
    return f"{quantity.label}, {quantity.unit}" if quantity.unit else quantity.label


def _throughput(row: CostRow, measured: Sequence[str], *, in_full: bool) -> Iterator[str]:
    yield row.cost.arm.name
    for name in measured:
        values = row.cost.throughput.get(name)
        if not values:
            yield ""
            continue
        spread, text = Spread.of(values), QUANTITIES[name].text
        yield text(spread.median) + (f" [{text(spread.low)}, {text(spread.high)}]" if in_full else "")


def _change(change: Difference | None, times: float, digits: int) -> str:
    if change is None:
        return ""
    mean = f"{times * change.mean:+.{digits}f}"
    if change.low is None or change.high is None:
        return mean
    return f"{mean} [{times * change.low:+.{digits}f}, {times * change.high:+.{digits}f}]"


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
