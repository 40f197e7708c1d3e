"""Tables before they are printed, and their cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from olr_cli.errors import printable

NOTHING = "\N{EN DASH}"
"""Printed for an unknown value."""

Ends: TypeAlias = tuple[float, float]
"""The ends of an interval."""


def percent(share: float | None) -> str:
    """Return a share from 0 to 1 in percent, as text with one decimal (``12.5``); a dash for None."""
    return NOTHING if share is None else f"{100 * share:.1f}"


def three_digits(value: float) -> str:
    """Return a number as text with three significant digits, or from 100 on as a whole number (``12,346``)."""
    # From 99.95 on, three digits round to 100, which `#.3g` would print as `100.`.
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


def joined(*parts: str) -> str:
    """Join parts with a space, leaving out empty ones."""
    return " ".join(filter(None, parts))


def _duration(seconds: float) -> str:
    """Return a duration as text with three significant digits, in ms, s, min or h."""
    units = {"h": 3600.0, "min": 60.0, "s": 1.0}
    name, size = next(
        ((name, size) for name, size in units.items() if seconds >= size), ("ms", 0.001)
    )
    return f"{three_digits(seconds / size)} {name}"


Kind: TypeAlias = Literal[
    "share", "points", "percent", "seconds", "count", "number", "text"
]
"""The kind of a value, which decides how it is printed: ``share`` and its differences, ``points``, in percent without a
sign, ``percent`` with a sign, ``seconds`` in a suitable unit.
"""

_TEXTS: Mapping[Kind, Callable[[Any], str]] = {
    "share": percent,
    # Always with a sign, which tells a difference from a share.
    "points": lambda share: f"{100 * share:+.1f}",
    "percent": "{:.1%}".format,
    "seconds": _duration,
    "count": "{:,}".format,
    "number": three_digits,
    "text": str,
}
"""Kind -> how a value of it is printed."""


@dataclass(frozen=True)
class Cell:
    """A value in a table, with its uncertainty if known.

    A terminal shows `brief`, and a document (Markdown, LaTeX, HTML) `full`. JSON gets the value and its interval
    (`flat`).
    """

    value: float | str | None = None
    """A text if `kind` is ``text``; None if unknown."""

    kind: Kind = "share"
    sd: float | None = None
    """Standard deviation of the numbers whose mean is the value."""

    ends: Ends | None = None
    """Interval around the value."""

    n: int = 0
    """Number of values behind it (seeds or problems; pairs for a change)."""

    change: Cell | None = None
    """Paired difference to a baseline."""

    recovered: Cell | None = None
    """The change as a share of the gap between the baseline and the best possible value."""

    short: str = ""
    """Text for a terminal, if the column has no room for the value."""

    @property
    def number(self) -> float:
        """The value as a number; AssertionError if the cell holds none."""
        assert isinstance(self.value, int | float)
        return self.value

    @property
    def low(self) -> float:
        """The lower end of the interval; AssertionError if the cell has none."""
        assert self.ends is not None
        return self.ends[0]

    @property
    def high(self) -> float:
        """The upper end of the interval; AssertionError if the cell has none."""
        assert self.ends is not None
        return self.ends[1]

    def text(self, value: float | str | None) -> str:
        """Return `value` as text in the format of this cell's `kind`, such as a percentage; a dash for None.

        `value` may be the cell's value, its standard deviation or an end of its interval.
        """
        return NOTHING if value is None else _TEXTS[self.kind](value)

    @property
    def brief(self) -> str:
        """The text for a terminal: `short` if the cell has such a text, else the value alone."""
        return self.short or self.text(self.value)

    @property
    def interval(self) -> str:
        """The interval as text, ``[low, high]``; empty if the cell has none."""
        return f"[{self.text(self.low)}, {self.text(self.high)}]" if self.ends else ""

    @property
    def full(self) -> str:
        """The text for a document: the value, and if known its standard deviation and interval."""
        sd = "" if self.sd is None else f"± {self.text(self.sd)}"
        return joined(self.text(self.value), sd, self.interval)

    def flat(self, *names: str) -> dict[str, Any]:
        """Return the value and the two ends of its interval as a dictionary.

        `names` are the keys of the value, the lower end and the upper end. The ends are None if the cell has no
        interval.
        """
        return dict(zip(names, (self.value, *(self.ends or (None, None))), strict=True))


UNKNOWN = Cell()
"""A share that nobody measured."""


Medium: TypeAlias = Literal["terminal", "document"]
"""A terminal of 80 columns, or a page with more room: Markdown, LaTeX, HTML."""


@dataclass(frozen=True)
class Column:
    """A column of a block: its headings, and how its cells are laid out.

    A block is a part of a table.
    """

    head: str
    """Its heading; a terminal breaks it at its line breaks."""

    full: str = ""
    """A longer heading for pages; by default `head`."""

    only: Medium | None = None
    """The only medium that shows the column; None for both."""

    group: str = ""
    """Neighbouring columns with the same group have a common heading above theirs in LaTeX."""

    is_dim: bool = False
    """Whether a terminal shows it dimmed."""

    is_text: bool = False
    """Whether it holds words, which are aligned to the left like the first column."""

    has_ends: bool = False
    """Whether LaTeX sets the ends of an interval as subscript and superscript."""

    def text(self, medium: Medium) -> str:
        """Return the column's heading for a terminal or a document.

        A document may have a longer heading (`full`), and shows it without line breaks.
        """
        return (
            self.head if medium == "terminal" else self.full or self.head.replace("\n", " ")
        )


@dataclass(frozen=True)
class Row:
    """A row of a block, which is a part of a table.

    The first cell is the row's name. `kind` says how the row is laid out, for example as a title.
    """

    cells: Sequence[str | Cell]
    kind: Literal["", "title", "published", "average", "compared", "note"] = ""
    """The role of a special row:

    - ``title``: one cell, which names the rows below it;
    - ``published``: a row of the paper;
    - ``average``: an average of other rows;
    - ``compared``: the baseline of a comparison, or a difference to it;
    - ``note``: one cell with a sentence about the row above, only in a terminal, where no column has room for
      sentences.
    """

    @property
    def is_spanning(self) -> bool:
        """Whether the row is a title or a note, which has a single cell as wide as the table."""
        return self.kind in ("title", "note")


@dataclass(frozen=True)
class Block:
    """A part of a table with its own title and columns; the first column holds the names of the rows."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    title: str = ""
    notes: Sequence[str] = ()
    only: Medium | None = None
    """The only medium that shows the block; None for both."""

    is_markdown: bool = False
    """Whether its texts are Markdown already and must not be escaped."""

    def grid(self, medium: Medium) -> tuple[list[Column], list[tuple[Row, list[str]]]]:
        """Return the columns that a terminal or a document shows, and the block's rows as pairs (row, texts).

        A row has one text for each returned column, but a title or a note has a single text. In a document, rows of
        kind ``note`` are left out. Control characters are escaped.
        """
        places = [
            place
            for place, column in enumerate(self.columns)
            if column.only in (None, medium)
        ]
        rows = []
        for row in self.rows:
            # A page has room for such sentences in a column of its own.
            if row.kind == "note" and medium == "document":
                continue
            texts = [
                printable(
                    cell
                    if isinstance(cell, str)
                    else cell.brief
                    if medium == "terminal"
                    else cell.full
                )
                for cell in row.cells
            ]
            rows.append(
                (row, texts if row.is_spanning else [texts[place] for place in places])
            )
        return [self.columns[place] for place in places], rows


@dataclass(frozen=True)
class Table:
    """A table for printing: its blocks, and the same contents as plain rows for CSV.

    A block is a part of the table with its own title and columns. `render` prints tables, and `as_json` converts them.
    """

    blocks: Sequence[Block] = field(repr=False)
    rows: Sequence[Any] = ()
    """The same contents as flat mappings or dataclasses, one per line of CSV."""

    notes: Sequence[str] = ()
    """Notes for the reader of a page."""

    footnotes: Sequence[str] = field(default=(), repr=False)
    """Notes for the reader of a terminal."""

    fields: Sequence[str] = field(default=(), repr=False)
    """The columns of CSV, needed if `rows` may be empty."""

    nothing: str = field(default="", repr=False)
    """Printed if there are no blocks."""

    def shown(self, medium: Medium) -> list[Block]:
        """Return those blocks of the table that a terminal or a document shows.

        A block is a part of the table. `Block.only` restricts a block to a terminal or to a document.
        """
        return [block for block in self.blocks if block.only in (None, medium)]
