"""What a command answers; `olr_cli.cli.printing.show` prints it, as text or as one JSON object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from olr_cli.tables.table import Table

SCHEMA = 1
"""Raised whenever what ``--json`` prints changes its meaning."""


@dataclass(frozen=True)
class Line:
    """A line of text under a head: ``Audited     24 prompts, 6 visits of each``.

    Attributes:
        head: bold, in the first `Answer.indent` columns; empty to continue the line above, None for a line that begins
            at the margin.
        style: of the text, as rich names it: ``dim``, ``yellow``.
        is_wrapped: wrapped at the terminal's width, or 120 columns. Never for paths and commands, which must stay in
            one piece.
    """

    head: str | None
    text: str = ""
    style: str = ""
    is_wrapped: bool = False


@dataclass(frozen=True)
class File:
    """A file that was written, and what the line that names it says after its path.

    A file is not new if it was there already with the same bytes.
    """

    path: Path
    text: str = ""
    is_new: bool = True


@dataclass(frozen=True)
class Answer:
    """What a command answers.

    Attributes:
        parts: what a terminal shows, in order. A string is printed as it is; ``markdown``, ``latex`` and ``csv`` show
            the tables alone.
        data: the JSON object.
        notes: sentences about the input; on standard error, unless a table has the same sentence as its footnote.
        next: likely next commands, each with its purpose (or an empty string).
        indent: columns that the heads of lines take; 0 for ``Wrote FILE`` and ``Next: COMMAND``.
    """

    parts: Sequence[Line | Table | str] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    files: Sequence[File] = ()
    next: Mapping[str, str] = field(default_factory=dict)
    indent: int = 0

    @property
    def tables(self) -> list[Table]:
        """The tables among the parts."""
        return [part for part in self.parts if isinstance(part, Table)]

    def plain(self) -> dict[str, Any]:
        """`data`, with notes, files and next commands where there are any and `data` has no such key."""
        rest = {
            "notes": list(self.notes),
            "written": [str(file.path) for file in self.files],
            "next": list(self.next),
        }
        return {
            "schema": SCHEMA,
            **self.data,
            **{key: value for key, value in rest.items() if value and key not in self.data},
        }


def one_line(text: str | None, width: int | None = None) -> str:
    """Text from a data set on one line, without control characters; longer than `width`, it is cut."""
    line = "\N{EN DASH}" if text is None else " ".join(text.split())
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
    return line if width is None or len(line) <= width else f"{line[: width - 1]}\N{HORIZONTAL ELLIPSIS}"
