"""One of the paper's tables as it is printed.

Published scores, where they are shown, stand beside ours if ours are of another column, else on a row below.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from olr_cli.analysis.frame import Difference, Summary
from olr_cli.analysis.tables.arms_table import mean_and_ends, mean_and_sd
from olr_cli.tables import Block, Cell, Column, Row, Table, percent, points

if TYPE_CHECKING:
    from olr_cli.analysis.tables.paper_table import PaperRow, PaperTable, Published


def to_table(found: PaperTable) -> Table:
    """Scores in percent with sd, differences with intervals; in a terminal only held-out accuracy has either."""
    rows: list[Row] = []
    for title, own in groupby(found.rows, lambda row: row.block):
        rows += [Row([title], "title")] if title else []
        for row in own:
            rows.append(Row([*_ours(found, row)]))
            if not found.is_held_out and row.published:
                rows.append(Row([*_papers(found, row)], "published"))
    footnotes = [*found.notes]
    if not found.is_held_out:
        footnotes.append("For sd and intervals: --format markdown, latex or csv.")
    return Table([Block(_columns(found), rows)], found.plain(), found.notes, footnotes)


def _columns(found: PaperTable) -> list[Column]:
    reference = found.layout.reference_name
    if not found.is_held_out:
        columns = [Column("scores, %"), Column("n")]
        for column in found.columns:
            if column.is_average:
                columns += [
                    Column(f"{column.title}\nmean"),
                    Column(f"to\n{reference}", f"to {reference} [95 %]"),
                ]
            else:
                columns.append(Column(column.title))
        return columns
    return [
        *(Column(""), Column("n")),
        *(Column(f"{column.title}, %".replace(" ", "\n", 1)) for column in found.columns),
        *(Column(f"to {reference}\n± 95 %", f"to {reference} [95 %]"), Column("below\nstart")),
        *(
            Column(head, is_dim=True)
            for column in found.published_columns
            for head in (f"paper\n{column.title}", f"to\n{reference}")
        ),
    ]


def _ours(found: PaperTable, row: PaperRow) -> Iterator[str | Cell]:
    yield row.name
    yield str(row.runs) if row.runs else ""
    for column in found.columns:
        cell = row.cells.get(column.name)
        change = cell.difference if cell else None
        yield _score(cell, is_held_out=found.is_held_out) if cell else ""
        if found.is_held_out:
            yield _change_and_reach(change) if change else ""
        elif column.is_average:
            yield mean_and_ends(change) if change else ""
    if found.is_held_out:
        below, of = row.below_start or (0, 0)
        yield f"{below}/{of}" if of else ""
        for column in found.published_columns:
            yield from _published(row.published.get(column.name))


def _papers(found: PaperTable, row: PaperRow) -> Iterator[str]:
    yield "paper"
    yield ""
    for column in found.columns:
        share, change = _published(row.published.get(column.name))
        yield share
        if column.is_average:
            yield change


def _published(published: Published | None) -> tuple[str, str]:
    if published is None:
        return "", ""
    return percent(published.share), points(published.difference, "")


def _score(cell: Summary, *, is_held_out: bool) -> Cell:
    full = mean_and_sd(cell)
    return Cell(full if is_held_out else percent(cell.mean, ""), full)


def _change_and_reach(difference: Difference) -> Cell:
    """In a terminal how far the interval, which is symmetric, reaches to either side."""
    cell = mean_and_ends(difference)
    if difference.high is None:
        return cell
    return Cell(f"{cell.brief} ± {percent(difference.high - difference.mean)}", cell.full)
