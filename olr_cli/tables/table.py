"""A table before it is printed, and its cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from olr_cli.errors import printable

NOTHING = "\N{EN DASH}"
"""Stands for a value that is unknown."""

Ends: TypeAlias = tuple[float, float]
"""The ends of an interval."""


def percent(share: float | None) -> str:
    """A share from 0 to 1 in percent, with one decimal."""
    return NOTHING if share is None else f"{100 * share:.1f}"


def three_digits(value: float) -> str:
    """Three significant digits, or a whole number from 100 on."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


def joined(*parts: str) -> str:
    """Parts with a space between them; empty ones are left out."""
    return " ".join(filter(None, parts))


def _duration(seconds: float) -> str:
    """Three digits, in the unit in which they are easiest to read."""
    units = {"h": 3600.0, "min": 60.0, "s": 1.0}
    name, size = next(
        ((name, size) for name, size in units.items() if seconds >= size), ("ms", 0.001)
    )
    return f"{three_digits(seconds / size)} {name}"


Kind: TypeAlias = Literal[
    "share", "points", "percent", "seconds", "count", "number", "text"
]
"""What a value is: ``share`` and its differences, ``points``, are printed without a sign of percent, ``percent`` with
it; ``seconds`` in the unit that suits them.
"""

_TEXTS: Mapping[Kind, Callable[[Any], str]] = {
    "share": percent,
    "points": lambda share: f"{100 * share:+.1f}",
    "percent": "{:.1%}".format,
    "seconds": _duration,
    "count": "{:,}".format,
    "number": three_digits,
    "text": str,
}


@dataclass(frozen=True)
class Cell:
    """A value, and how sure it is. Terminal, documents, CSV and JSON derive from it.

    Attributes:
        value: a text where `kind` is ``text``; None if it is unknown.
        sd: of the numbers whose mean the value is.
        ends: of an interval around the value.
        n: how many numbers the value was made of (seeds, problems; of a change: pairs).
        change: the difference to a baseline, paired.
        recovered: the share that the change is of the gap between the baseline and the best that can be had.
        short: a text for a terminal, where the column has no room for the value.
    """

    value: float | str | None = None
    kind: Kind = "share"
    sd: float | None = None
    ends: Ends | None = None
    n: int = 0
    change: Cell | None = None
    recovered: Cell | None = None
    short: str = ""

    @property
    def number(self) -> float:
        """The value of a cell that has a number."""
        assert isinstance(self.value, int | float)
        return self.value

    @property
    def low(self) -> float:
        """The lower end of a cell that has an interval."""
        assert self.ends is not None
        return self.ends[0]

    @property
    def high(self) -> float:
        """The upper end of a cell that has an interval."""
        assert self.ends is not None
        return self.ends[1]

    def text(self, value: float | str | None) -> str:
        """A value of the same kind as it is printed."""
        return NOTHING if value is None else _TEXTS[self.kind](value)

    @property
    def brief(self) -> str:
        """The value alone, for a terminal."""
        return self.short or self.text(self.value)

    @property
    def interval(self) -> str:
        """``[low, high]``; empty if there is none."""
        return f"[{self.text(self.low)}, {self.text(self.high)}]" if self.ends else ""

    @property
    def full(self) -> str:
        """The value with its sd and interval, where there is room."""
        sd = "" if self.sd is None else f"± {self.text(self.sd)}"
        return joined(self.text(self.value), sd, self.interval)

    def flat(self, *names: str) -> dict[str, Any]:
        """The value, and the ends of its interval, under these names: for CSV and JSON."""
        return dict(zip(names, (self.value, *(self.ends or (None, None))), strict=True))


UNKNOWN = Cell()
"""A share that nobody measured."""


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
        return (
            self.head if medium == "terminal" else self.full or self.head.replace("\n", " ")
        )


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
        places = [
            place
            for place, column in enumerate(self.columns)
            if column.only in (None, medium)
        ]
        rows = []
        for row in self.rows:
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
    """Blocks, one below the other.

    Attributes:
        rows: the same as flat mappings or dataclasses, one per line of CSV.
        notes: what a reader should know, where there is room.
        footnotes: what the reader of a terminal should know.
        fields: the columns of CSV, where `rows` may be empty.
        nothing: printed where there are no blocks.
    """

    blocks: Sequence[Block] = field(repr=False)
    rows: Sequence[Any] = ()
    notes: Sequence[str] = ()
    footnotes: Sequence[str] = field(default=(), repr=False)
    fields: Sequence[str] = field(default=(), repr=False)
    nothing: str = field(default="", repr=False)

    def shown(self, medium: Medium) -> list[Block]:
        """The blocks that a medium shows."""
        return [block for block in self.blocks if block.only in (None, medium)]
