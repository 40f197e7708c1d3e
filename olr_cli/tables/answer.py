"""What a command answers; `olr_cli.cli.printing.show` prints it, as text or as one JSON object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from olr_cli.tables.table import Cell, Table

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

    @classmethod
    def written(cls, path: Path, text: str = "", *, is_new: bool) -> File:
        """Return the file that `olr_cli.files.write_new` was asked for, whether it wrote it or found it there."""
        return cls(path, text if is_new else " is already there with these bytes", is_new)


@dataclass(frozen=True)
class Answer:
    """What a command answers.

    Attributes:
        parts: what a terminal shows, in order. A string is printed as it is; ``markdown``, ``latex`` and ``csv`` show
            the tables alone.
        result: the JSON object, as `as_json` makes it: a dataclass, or a mapping.
        notes: sentences about the input; on standard error, unless a table has the same sentence as its footnote.
        next: likely next commands, each with its purpose (or an empty string).
        indent: columns that the heads of lines take; 0 for ``Wrote FILE`` and ``Next: COMMAND``.
    """

    parts: Sequence[Line | Table | str] = ()
    result: Any = field(default_factory=dict)
    notes: Sequence[str] = ()
    files: Sequence[File] = ()
    next: Mapping[str, str] = field(default_factory=dict)
    indent: int = 0

    @property
    def tables(self) -> list[Table]:
        """The tables among the parts."""
        return [part for part in self.parts if isinstance(part, Table)]

    def plain(self) -> dict[str, Any]:
        """`result`, with notes, files and next commands where there are any and it has no such key."""
        rest = {
            "notes": self.notes,
            "written": [file.path for file in self.files],
            "next": [*self.next],
        }
        result = {"schema": SCHEMA, **as_json(self.result)}
        return result | {
            key: as_json(value)
            for key, value in rest.items()
            if value and key not in result
        }


def as_json(value: Any) -> Any:
    """Return a result as JSON values: a dataclass as its fields, without those that its ``repr`` leaves out.

    A data frame is a list of its rows, a cell its value and interval, a section of a recipe its keys; NaN is null.
    """
    match value:
        case float() if not isfinite(value):
            return None
        case None | str() | int() | float():
            return value
        case Cell():
            return value.flat("mean", "low", "high")
        case Path():
            return str(value)
    if is_dataclass(value):
        return {
            one.name: as_json(getattr(value, one.name)) for one in fields(value) if one.repr
        }
    if isinstance(value, Mapping):
        return {str(key): as_json(inner) for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [as_json(inner) for inner in value]
    for name in ("to_dicts", "plain"):
        if hasattr(value, name):
            return as_json(getattr(value, name)())
    return value


def one_line(text: str | None, width: int | None = None) -> str:
    """Text from a data set on one line, without control characters; longer than `width`, it is cut."""
    line = "\N{EN DASH}" if text is None else " ".join(text.split())
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
    return (
        line
        if width is None or len(line) <= width
        else f"{line[: width - 1]}\N{HORIZONTAL ELLIPSIS}"
    )
