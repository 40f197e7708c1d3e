"""A table before it is printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from olr_cli.errors import printable
from olr_cli.tables.cell import Cell

Medium: TypeAlias = Literal["terminal", "document"]
"""A terminal of 80 columns, or a page that has room: Markdown, LaTeX, HTML."""


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        head: a terminal may break it where it has a line break.
        full: the head where there is room, if it is another.
        only: the one medium that shows the column; None for both.
        group: columns of one group that stand side by side share a head above theirs in LaTeX.
        is_dim: in a terminal.
        is_text: words, aligned to the left like the first column.
        has_ends: LaTeX sets the ends of an interval as sub- and superscript.
    """

    head: str
    full: str = ""
    only: Medium | None = None
    group: str = ""
    is_dim: bool = False
    is_text: bool = False
    has_ends: bool = False

    def text(self, medium: Medium) -> str:
        """The head in a medium."""
        return self.head if medium == "terminal" else self.full or self.head.replace("\n", " ")


@dataclass(frozen=True)
class Row:
    """A row: its cells, the first of which is its name.

    A ``title`` has one cell and names the rows below it; ``published`` rows are the paper's; an ``average`` is one of
    other rows; ``compared`` rows say what the others are compared with, and how they differ from it. A ``note`` has one
    cell, a sentence about the row above it; only a terminal shows it, where no column has room for sentences.
    """

    cells: Sequence[str | Cell]
    kind: Literal["", "title", "published", "average", "compared", "note"] = ""

    @property
    def is_spanning(self) -> bool:
        """Whether its one cell is as wide as the table."""
        return self.kind in ("title", "note")


@dataclass(frozen=True)
class Block:
    """Rows under one head; the first column has the rows' names.

    Attributes:
        only: the one medium that shows the block.
        is_markdown: its texts are Markdown already, and not to be taken literally in it.
    """

    columns: Sequence[Column]
    rows: Sequence[Row]
    title: str = ""
    notes: Sequence[str] = ()
    only: Medium | None = None
    is_markdown: bool = False

    def grid(self, medium: Medium) -> tuple[list[Column], list[tuple[Row, list[str]]]]:
        """The columns that a medium shows, and each row with its texts in them, which steer no terminal."""
        places = [place for place, column in enumerate(self.columns) if column.only in (None, medium)]
        rows = []
        for row in self.rows:
            if row.kind == "note" and medium == "document":
                continue
            texts = [
                printable(
                    cell if isinstance(cell, str) else cell.brief if medium == "terminal" else cell.full
                )
                for cell in row.cells
            ]
            rows.append((row, texts if row.is_spanning else [texts[place] for place in places]))
        return [self.columns[place] for place in places], rows


@dataclass(frozen=True)
class Table:
    """Blocks, one below the other.

    Attributes:
        data: the same as JSON values; ``rows`` has a flat object for each line of CSV.
        notes: what a reader should know, where there is room.
        footnotes: what the reader of a terminal should know.
        fields: the columns of CSV, where ``data`` may have no rows.
        nothing: printed where there are no blocks.
    """

    blocks: Sequence[Block]
    data: Mapping[str, Any]
    notes: Sequence[str] = ()
    footnotes: Sequence[str] = ()
    fields: Sequence[str] = ()
    nothing: str = ""

    def shown(self, medium: Medium) -> list[Block]:
        """The blocks that a medium shows."""
        return [block for block in self.blocks if block.only in (None, medium)]
