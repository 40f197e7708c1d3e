"""The theory's quantities as text: for a terminal, Markdown, LaTeX, CSV."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from olr_cli.analysis.tables.arms_table import Row, mean_interval
from olr_cli.analysis.theory.subjects import Column
from olr_cli.analysis.theory.table import NOTHING, Block, TheoryTable
from olr_cli.evaluation import latex as tex
from olr_cli.evaluation import table_shapes

_WIDTH = 80
_SHORTEST_NAME = 12
_COLUMNS = ["block", "line", "column", "n", "mean", "sd", "low", "high"]


def terminal(table: TheoryTable) -> RenderableType:
    """A block a subject, with means over seeds and intervals, without sd."""
    parts: list[RenderableType] = []
    for block in table.blocks:
        parts += [Text(block.title, style="bold"), _rich(block)]
        parts += [*(Text(textwrap.fill(note, _WIDTH), style="dim") for note in block.notes), Text()]
    return Group(*parts)


def _rich(block: Block) -> RichTable:
    cells = [[_mean(column, own.get(column.name)) for column in block.columns] for _, own in block.lines]
    widths = [
        max(map(len, [*column.title.split("\n"), *(line[place] for line in cells)]))
        for place, column in enumerate(block.columns)
    ]
    longest = max(len(line) for line, _ in block.lines)
    shown = RichTable(box=None, padding=(0, 1, 0, 0), header_style="dim")
    room = _WIDTH - sum(widths) - len(widths) - 1
    shown.add_column("", width=min(longest, max(room, _SHORTEST_NAME)), overflow="fold")
    for column, width in zip(block.columns, widths, strict=True):
        shown.add_column(column.title, justify="right", vertical="bottom", width=width)
    for (line, _), own in zip(block.lines, cells, strict=True):
        shown.add_row(line, *own)
    return shown


def markdown(table: TheoryTable) -> str:
    """A table a subject under its title; mean ± sd over seeds, shares in percent."""
    return "\n\n".join("\n".join(_markdown(block)) for block in table.blocks) or NOTHING


def _markdown(block: Block) -> Iterator[str]:
    yield f"**{block.title}**"
    yield ""
    yield from table_shapes.markdown_table(["", *_heads(block)], _lines(block))
    yield ""
    yield from (f"- {note}" for note in block.notes)


def latex(table: TheoryTable) -> str:
    """A `tabular` a subject, with the rules of booktabs; the lines and cells of `markdown`."""
    return "\n\n".join(map(_latex, table.blocks)) or f"% {NOTHING}"


def _latex(block: Block) -> str:
    heads = ["", *map(tex.escaped, _heads(block))]
    body = [tex.row([tex.escaped(name), *map(tex.number, numbers)]) for name, *numbers in _lines(block)]
    return tex.tabular(heads, body, [block.title, *block.notes])


def comma_separated(table: TheoryTable) -> str:
    """A line a cell, shares from 0 to 1."""
    return table_shapes.comma_separated(_COLUMNS, table.rows())


def footnotes(table: TheoryTable) -> Iterator[str]:
    """What the reader of a table should know."""
    if not table.blocks:
        yield NOTHING
        return
    yield "Means over seeds, shares in percent. For sd: --format markdown, latex or csv."


def _heads(block: Block) -> list[str]:
    return [column.title.replace("\n", " ") + ", %" * (column.kind == "share") for column in block.columns]


def _lines(block: Block) -> Iterator[list[str]]:
    for line, cells in block.lines:
        yield [line, *(_full(column, cells.get(column.name)) for column in block.columns)]


def _full(column: Column, cell: Row | None) -> str:
    shown = _mean(column, cell)
    if cell is None or cell.sd is None or column.kind in ("interval", "count"):
        return shown
    return f"{shown} ± {_number(column, cell.sd)}"


def _mean(column: Column, cell: Row | None) -> str:
    if cell is None or cell.mean is None:
        return ""
    shown = _number(column, cell.mean)
    ends = mean_interval(list(cell.values.values())) if column.kind == "interval" else None
    return shown if ends is None else f"{shown} [{', '.join(_number(column, end) for end in ends)}]"


def _number(column: Column, value: float) -> str:
    """Numbers near 0, as the footnote's chance, keep their exponent."""
    if column.kind == "share":
        return f"{100 * value:.1f}"
    if column.kind == "count":
        return f"{value:.0f}" if value == round(value) else f"{value:.1f}"
    return f"{value:.0e}" if 0 < abs(value) < 0.005 else f"{value:.2f}"
