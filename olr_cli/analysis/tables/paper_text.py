"""One of the paper's tables as text: for a terminal, Markdown, LaTeX, CSV.

Published scores, where they are shown, stand beside ours if ours are of another column, else on a line below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from olr_cli.analysis.tables.arms_table import Difference, Row
from olr_cli.analysis.tables.paper_table import PaperRow, PaperTable, Published
from olr_cli.evaluation import latex as tex
from olr_cli.evaluation import table_shapes

_WIDTH = 80
_LONGEST_NAME = 24


@dataclass(frozen=True)
class _Style:
    """How much of a cell is shown: the mean alone, with its sd, a difference with its interval."""

    mean: Callable[[Row], str]
    difference: Callable[[Difference], str]
    interval: str


@dataclass(frozen=True)
class Line:
    """A line of a table.

    Attributes:
        kind: ours with its name, the published scores below it, or the title of the lines that follow.
        cells: one a column; of a title only itself.
    """

    kind: Literal["ours", "paper", "block"]
    cells: tuple[str, ...]


def terminal(table: PaperTable) -> RenderableType:
    """Held-out accuracy in 80 columns; with nine benchmarks wider, and without sd."""
    style = _NARROW if table.is_held_out else _MEANS
    heads, lines = _heads(table, style), list(_lines(table, style))
    widths = [
        max(len(part) for cell in (head, *(line.cells[place] for line in lines if line.kind != "block"))
            for part in cell.split("\n"))
        for place, head in enumerate(heads)
    ]  # fmt: skip
    room = _WIDTH - sum(widths[1:]) - len(widths) if table.is_held_out else _LONGEST_NAME
    widths[0] = min(widths[0], room)
    parts: list[RenderableType] = [_block(table, heads, widths, ())]
    for is_title, group in groupby(lines, lambda line: line.kind == "block"):
        if is_title:
            parts += [Text(line.cells[0], style="bold") for line in group]
        else:
            parts.append(_block(table, None, widths, list(group)))
    return Group(*parts)


def _block(
    table: PaperTable, heads: Sequence[str] | None, widths: Sequence[int], lines: Sequence[Line]
) -> RichTable:
    block = RichTable(box=None, padding=(0, 1, 0, 0), header_style="dim", show_header=heads is not None)
    ours = len(widths) - 2 * len(table.published_columns) if table.is_held_out else len(widths)
    for place, width in enumerate(widths):
        block.add_column(
            Text(heads[place] if heads else ""),
            width=width,
            justify="right" if place else "left",
            overflow="fold",
            vertical="bottom",
            style="dim" if place >= ours else "",
        )
    for line in lines:
        block.add_row(*map(Text, line.cells), style="dim" if line.kind == "paper" else "")
    return block


def markdown(table: PaperTable) -> str:
    """A line a row, in percent, with sd and intervals; differences of benchmarks only for their means."""
    heads = [head.replace("\n", " ") for head in _heads(table, _FULL)]
    rows = []
    for line in _lines(table, _FULL):
        cells = list(line.cells)
        if line.kind == "block":
            cells = [f"**{cells[0]}**", *[""] * (len(heads) - 1)]
        elif line.kind == "paper":
            cells = [cell and f"*{cell}*" for cell in cells]
        rows.append(cells)
    return "\n".join([*table_shapes.markdown_table(heads, rows), "", *(f"- {note}" for note in table.notes)])


def latex(table: PaperTable) -> str:
    """A `tabular` with the rules of booktabs, as in the paper; published scores in a line below are in italics."""
    heads = [tex.escaped(head.replace("\n", " ")) for head in _heads(table, _FULL)]
    body = []
    for line in _lines(table, _FULL):
        name, *numbers = line.cells
        if line.kind == "block":
            body += ["\\midrule", f"\\multicolumn{{{len(heads)}}}{{l}}{{\\emph{{{tex.escaped(name)}}}}} \\\\"]
        else:
            shown = f"\\quad \\emph{{{name}}}" if line.kind == "paper" else tex.escaped(name)
            body.append(tex.row([shown, *map(tex.number, numbers)]))
    return tex.tabular(heads, body, table.notes)


def comma_separated(table: PaperTable) -> str:
    """A line a row and column, values as shares; empty where there is none."""
    lines = list(table.lines())
    return table_shapes.comma_separated(lines[0], lines)


def footnotes(table: PaperTable) -> Iterator[str]:
    """What the reader of a table should know."""
    yield from table.notes
    if not table.is_held_out:
        yield "For sd and intervals: --format markdown, latex or csv."


def _heads(table: PaperTable, style: _Style) -> list[str]:
    """The columns' names, in two lines at most."""
    reference = table.layout.reference_name
    heads = ["" if table.is_held_out else "scores, %", "n"]
    if not table.is_held_out:
        for column in table.columns:
            heads += [f"{column.title}\nmean", f"to\n{reference}"] if column.is_average else [column.title]
        return heads
    heads += [f"{column.title}, %".replace(" ", "\n", 1) for column in table.columns]
    heads += [f"to {reference}\n{style.interval}", "below\nstart"]
    for column in table.published_columns:
        heads += [f"paper\n{column.title}", f"to\n{reference}"]
    return heads


def _lines(table: PaperTable, style: _Style) -> Iterator[Line]:
    for title, rows in groupby(table.rows, lambda row: row.block):
        if title:
            yield Line("block", (title,))
        for row in rows:
            yield Line("ours", tuple(_ours(table, row, style)))
            if not table.is_held_out and row.published:
                yield Line("paper", tuple(_paper(table, row)))


def _ours(table: PaperTable, row: PaperRow, style: _Style) -> Iterator[str]:
    yield row.name
    yield str(row.runs) if row.runs else ""
    for column in table.columns:
        cell = row.cells.get(column.name)
        change = cell.difference if cell else None
        yield style.mean(cell) if cell and cell.values else ""
        if column.is_average or table.is_held_out:
            yield style.difference(change) if change else ""
    if table.is_held_out:
        below, of = row.below_start or (0, 0)
        yield f"{below}/{of}" if of else ""
        for column in table.published_columns:
            yield from _published(row.published.get(column.name))


def _paper(table: PaperTable, row: PaperRow) -> Iterator[str]:
    yield "paper"
    yield ""
    for column in table.columns:
        share, change = _published(row.published.get(column.name))
        yield share
        if column.is_average:
            yield change


def _published(published: Published | None) -> tuple[str, str]:
    if published is None:
        return "", ""
    return _percent(published.share), "" if published.difference is None else _points(published.difference)


def _mean(cell: Row) -> str:
    return "" if cell.mean is None else _percent(cell.mean)


def _mean_and_sd(cell: Row) -> str:
    return _mean(cell) + ("" if cell.sd is None else f" ± {_percent(cell.sd)}")


def _change(difference: Difference) -> str:
    return _points(difference.mean)


def _change_and_reach(difference: Difference) -> str:
    """The difference and how far the interval, which is symmetric, reaches to either side."""
    if difference.high is None:
        return _change(difference)
    return f"{_change(difference)} ± {_percent(difference.high - difference.mean)}"


def _change_and_interval(difference: Difference) -> str:
    if difference.low is None or difference.high is None:
        return _change(difference)
    return f"{_change(difference)} [{_points(difference.low)}, {_points(difference.high)}]"


_FULL = _Style(_mean_and_sd, _change_and_interval, "[95 %]")
_NARROW = _Style(_mean_and_sd, _change_and_reach, "± 95 %")
_MEANS = _Style(_mean, _change, "")


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"
