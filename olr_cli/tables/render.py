"""A table for a terminal, as Markdown, as LaTeX, or as comma-separated values."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from olr_cli.errors import printable
from olr_cli.tables.answer import as_json
from olr_cli.tables.table import Block, Column, Row, Table

if TYPE_CHECKING:
    from rich.console import RenderableType

_WIDTH = 80
"""Columns of the terminal that tables are made for."""

_SHORTEST_NAME = 12
"""Least width of the rows' names; with less room, the table may be wider than 80 columns."""

_LONGEST_NAME = 24
"""Width of the rows' names in a table wider than 80 columns."""

_INDENT = " " * 4


def print_table(table: Table, shape: str) -> None:
    """Print a table on standard output; `shape` is ``markdown``, ``latex``, ``csv`` or ``terminal``.

    Only ``terminal`` includes the table's footnotes.
    """
    from rich.console import Console

    if shape != "terminal":
        text = {"markdown": markdown, "latex": latex, "csv": comma_separated}[shape](table)
        print(printable(text), flush=True)
        return
    console, shown = Console(highlight=False, markup=False), terminal(table)
    # A table wider than the terminal is printed at full width, for the terminal to wrap; rich would squeeze its
    # columns.
    width = Console(width=1000).measure(shown).maximum
    Console(width=max(console.width, width)).print(shown)
    for footnote in table.footnotes:
        console.print(printable(footnote), style="dim")


def terminal(table: Table) -> RenderableType:
    """Return a table in rich's form, ready to print, with its blocks below one another.

    A block is a part of the table with its own columns. The table is at most 80 characters wide unless the numbers
    leave too little room for the names of the rows.
    """
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for block in table.shown("terminal"):
        parts += [Text(printable(block.title), style="bold")] if block.title else []
        parts += _terminal_block(block)
        parts += [
            Text(textwrap.fill(printable(note), _WIDTH), style="dim")
            for note in block.notes
        ]
        parts += [Text()] if block.title else []
    return Group(*parts)


def _terminal_block(block: Block) -> Iterable[RenderableType]:
    """Yield a block as tables and texts for rich, in the order in which they are printed.

    A block is a part of a table with its own columns. The column headings come first, as a table without rows. Each
    title or note among the rows becomes a text, because a cell of rich cannot span columns. The rows between two such
    texts become a table.
    """
    from rich.table import Table as RichTable
    from rich.text import Text

    columns, rows = block.grid("terminal")
    widths = _widths(columns, [texts for row, texts in rows if not row.is_spanning])

    def rich_table(heads: Sequence[str], *, show_header: bool) -> RichTable:
        table = RichTable(
            box=None, padding=(0, 1, 0, 0), header_style="dim", show_header=show_header
        )
        for index, (column, head, width) in enumerate(
            zip(columns, heads, widths, strict=True)
        ):
            table.add_column(
                Text(head),
                width=width,
                justify="right" if index and not column.is_text else "left",
                overflow="fold",
                vertical="bottom",
                style="dim" if column.is_dim else "",
            )
        return table

    yield rich_table([column.head for column in columns], show_header=True)
    # rich cannot span cells, so the rows between two titles are a table of their own, all with the same widths.
    for is_spanning, members in groupby(rows, lambda row: row[0].is_spanning):
        if is_spanning:
            for row, (text,) in members:
                note = textwrap.fill(
                    text, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT
                )
                yield (
                    Text(text, style="bold")
                    if row.kind == "title"
                    else Text(note, style="dim")
                )
            continue
        table = rich_table([""] * len(columns), show_header=False)
        for row, texts in members:
            # Wrapped in `Text`, because rich reads `[red]` in a plain string as markup.
            table.add_row(
                *map(Text, texts),
                style={"published": "dim", "average": "bold"}.get(row.kind, ""),
            )
        yield table


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column in characters.

    Each column is as wide as its longest text or heading. If the table would then be wider than 80 characters, the
    first column, with the names of the rows, is narrowed:

    1. It gets what the other columns leave, if this is at least `_SHORTEST_NAME` characters.
    2. Otherwise it gets at most `_LONGEST_NAME`, and the table is wider than 80 characters.

    Names that are too long are wrapped later.

    Args:
        columns: the columns shown.
        rows: the texts of each row, one per column.
    """
    from rich.cells import cell_len

    widths = [
        max(cell_len(line) for text in texts for line in text.split("\n"))
        for texts in zip([column.head for column in columns], *rows, strict=True)
    ]
    # Each column takes one space more than its text.
    room = _WIDTH - sum(widths[1:]) - len(widths)
    widths[0] = min(widths[0], room if room >= _SHORTEST_NAME else _LONGEST_NAME)
    return widths


def markdown(table: Table) -> str:
    """Return a table as Markdown: its blocks, each below its title, then the notes of the whole table.

    A block is a part of the table with its own columns. If there are neither blocks nor notes, return `Table.nothing`,
    the table's sentence for this case.
    """
    parts = [_markdown_block(block) for block in table.shown("document")]
    if table.notes:
        parts.append("\n".join(f"- {note}" for note in table.notes))
    return "\n\n".join(parts) or table.nothing


def _markdown_block(block: Block) -> str:
    """Return a block as a Markdown table, with its title above and its notes below.

    A block is a part of a table with its own columns.
    """
    columns, rows = block.grid("document")
    heads = [_literally(column.text("document"), block) for column in columns]
    body = [
        _markdown_cells(row, [_literally(cell, block) for cell in cells], len(columns))
        for row, cells in rows
    ]
    head, *lines = (f"| {' | '.join(cells)} |" for cells in (heads, *body))
    title = [f"**{block.title}**", ""] if block.title else []
    notes = ["", *(f"- {note}" for note in block.notes)] if block.notes else []
    return "\n".join([*title, head, "|---" * len(columns) + "|", *lines, *notes])


def _markdown_cells(row: Row, texts: list[str], width: int) -> list[str]:
    """Return a row's texts for Markdown, one per column.

    The text of a row of kind ``title`` becomes bold and is followed by empty cells. The texts of a row of kind
    ``published`` become italic. Other texts stay as they are. `width` is the number of columns.
    """
    if row.kind == "title":
        return [f"**{texts[0]}**", *[""] * (width - 1)]
    if row.kind == "published":
        return [text and f"*{text}*" for text in texts]
    return texts


def _literally(text: str, block: Block) -> str:
    """Escape the characters of a cell's text that have a meaning in Markdown, so that it is shown as written.

    If the texts of the block are Markdown already (`Block.is_markdown`), only ``|`` is escaped, because it would end
    the cell.
    """
    return re.sub(r"\|" if block.is_markdown else r"[\\|*`<$]", r"\\\g<0>", text)


_SIGNS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    # LaTeX's usual fonts show other characters for these three: `<` prints as an inverted exclamation mark.
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}
"""Character -> command in LaTeX, where a backslash in front would not do."""

_ESCAPES = str.maketrans(_SIGNS | {sign: f"\\{sign}" for sign in "&%$#_{}"})
_NUMBERS = re.compile(r"(?=.*\d)[-+±<>\d.,/()\[\] ]+")
"""A number, its sd or its interval, without words."""

_ENDS = re.compile(r"(\S+) \[(.+), (.+)\]")
"""A value with its interval: ``+4.3 [+1.1, +7.5]``."""


def escaped(text: str) -> str:
    """Escape the characters that LaTeX would not print literally, such as ``%`` and ``_``."""
    return text.translate(_ESCAPES)


def _latex_number(text: str, column: Column) -> str:
    """Return a cell's text for LaTeX: numbers, such as ``+4.3 [+1.1, +7.5]``, in math mode, and other texts escaped.

    If the column asks for it (`Column.has_ends`), the interval's ends become subscript and superscript.
    """
    if _NUMBERS.fullmatch(text) is None:
        return escaped(text)
    ends = _ENDS.fullmatch(text) if column.has_ends else None
    if ends is not None:
        return f"${ends[1]}_{{{ends[2]}}}^{{{ends[3]}}}$"
    # chr(92) is a backslash, which Python 3.11 does not allow inside an f-string's braces.
    return f"${text.replace('±', chr(92) + 'pm').replace(' [', chr(92) + ';[')}$"


def latex(table: Table) -> str:
    """Return a table as LaTeX: one `tabular` per block, with the rules of booktabs.

    A block is a part of the table with its own columns. Titles and notes become comments. If there are no blocks,
    return a comment with `Table.nothing`, the table's sentence for this case.
    """
    blocks = table.shown("document")
    parts = [
        _tabular(
            block,
            [*([] if number else table.notes), *filter(None, [block.title]), *block.notes],
        )
        for number, block in enumerate(blocks)
    ]
    return "\n\n".join(parts) or f"% {table.nothing}"


def _tabular(block: Block, notes: Iterable[str]) -> str:
    """Return a block as a LaTeX `tabular`, with each of the notes as a comment above it.

    A block is a part of a table with its own columns.
    """
    columns, rows = block.grid("document")
    has_ends = any(column.has_ends for column in columns)
    ends = (
        "; subscript and superscript are the ends of the 95 % interval" if has_ends else ""
    )
    return "\n".join(
        [
            *(f"% {note}" for note in notes),
            f"% Needs \\usepackage{{booktabs}}{ends}.",
            f"\\begin{{tabular}}{{l{'c' * (len(columns) - 1)}}}",
            "\\toprule",
            *_group_heads(columns),
            _latex_row(escaped(column.text("document")) for column in columns),
            "\\midrule",
            *_latex_body(columns, rows),
            "\\bottomrule",
            "\\end{tabular}",
        ]
    )


def _group_heads(columns: Sequence[Column]) -> list[str]:
    """Return two lines of LaTeX: the common headings of neighbouring columns, and the rules below these headings.

    Neighbouring columns have a common heading if they have the same `Column.group`. Return an empty list if no column
    has a group.
    """
    if not any(column.group for column in columns):
        return []
    heads, rules, last = "", [], 1
    for group, members in groupby(columns[1:], lambda column: column.group):
        size = len(list(members))
        # The first column is left out of the groups, hence `columns[1:]` and the rules from column 2 on.
        heads += f" & \\multicolumn{{{size}}}{{c}}{{{group}}}"
        rules += [f"\\cmidrule(lr){{{last + 1}-{last + size}}}"] * bool(group)
        last += size
    return [f"{heads} \\\\", " ".join(rules)]


def _latex_body(
    columns: Sequence[Column], rows: Sequence[tuple[Row, list[str]]]
) -> Iterable[str]:
    """Yield the lines of LaTeX for the rows of a block, which is a part of a table.

    A horizontal rule comes before each title and before each comparison. A comparison is consecutive rows of kind
    ``compared``: a baseline and the differences to it.

    Args:
        columns: the columns shown.
        rows: each row with its texts, one per column; a title has a single text.
    """
    for index, (row, (name, *numbers)) in enumerate(rows):
        # A chain of two comparisons: this row is `compared`, and the row before is not.
        if index and row.kind == "compared" != rows[index - 1][0].kind:
            yield "\\midrule"
        if row.kind == "title":
            # The first row already has a rule above it, below the heads.
            yield from ["\\midrule"] * bool(index)
            yield f"\\multicolumn{{{len(columns)}}}{{l}}{{\\emph{{{escaped(name)}}}}} \\\\"
        else:
            shown = (
                f"\\quad \\emph{{{escaped(name)}}}"
                if row.kind == "published"
                else escaped(name)
            )
            cells = (
                _latex_number(text, column)
                for text, column in zip(numbers, columns[1:], strict=True)
            )
            yield _latex_row([shown, *cells])


def _latex_row(cells: Iterable[str]) -> str:
    """Join cells, which are LaTeX already, to a row of a `tabular`."""
    return f"{' & '.join(cells)} \\\\"


def comma_separated(table: Table) -> str:
    """Return a table's rows (`Table.rows`) as CSV: a line with the names of the columns, then a line per row.

    Numbers keep all their digits. None becomes an empty cell. If there are no rows, the names are taken from
    `Table.fields`.
    """
    # The values, not the texts of the cells: a program that reads CSV needs all digits.
    rows = as_json(table.rows)
    text = io.StringIO()
    writer = csv.DictWriter(
        text, fieldnames=list(rows[0] if rows else table.fields), lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().rstrip()
