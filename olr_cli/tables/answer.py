"""The output of a command; `olr_cli.cli.printing.show` prints it as text or as one JSON object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from olr_cli.tables.table import Cell, Table

SCHEMA = 1
"""Increased whenever the output of ``--json`` changes its meaning."""


@dataclass(frozen=True)
class Line:
    """A line of a command's output: a heading and a text, as in ``Audited     24 prompts, 6 visits of each``."""

    head: str | None
    """Printed bold in the first `Answer.indent` columns. Empty continues the line above; None begins at the margin."""

    text: str = ""
    style: str = ""
    """Style of the text in rich's notation, such as ``dim`` or ``yellow``."""

    is_wrapped: bool = False
    """Whether the text is wrapped at the terminal's width, or at 120 columns.

    Never set it for paths and commands, which must stay in one piece.
    """


@dataclass(frozen=True)
class File:
    """An output file of a command: its path, and the text that follows the path in the output.

    `is_new` is False if the file existed already with the same bytes.
    """

    path: Path
    text: str = ""
    is_new: bool = True

    @classmethod
    def written(cls, path: Path, text: str = "", *, is_new: bool) -> File:
        """Return the entry for a file that a command wrote with `olr_cli.files.write_new`.

        Args:
            path: the file.
            text: what follows the path in the output if the file is new.
            is_new: what `write_new` returned. False means that the file already existed with the same bytes. The output
                then says so instead of `text`.
        """
        return cls(path, text if is_new else " is already there with these bytes", is_new)


@dataclass(frozen=True)
class Answer:
    """A command's output before it is printed: lines, tables, notes, files, and commands to run next.

    It can be printed as text or as one JSON object.
    """

    parts: Sequence[Line | Table | str] = ()
    """The output in a terminal, in order. A string is printed as it is; ``markdown``, ``latex`` and ``csv`` only show
    tables.
    """

    result: Any = field(default_factory=dict)
    """The JSON object, converted by `as_json`: a dataclass or a mapping."""

    notes: Sequence[str] = ()
    """Sentences about the input. They go to standard error, unless a table has the same sentence as its footnote."""

    files: Sequence[File] = ()
    next: Mapping[str, str] = field(default_factory=dict)
    """Likely next commands, each with its purpose (or an empty string)."""

    indent: int = 0
    """Width of the column of heads; 0 for ``Wrote FILE`` and ``Next: COMMAND``."""

    @property
    def tables(self) -> list[Table]:
        """The tables in the output, in their order."""
        return [part for part in self.parts if isinstance(part, Table)]

    def plain(self) -> dict[str, Any]:
        """Return the JSON object to print: `self.result` with the keys ``schema``, ``notes``, ``written`` and ``next``.

        ``schema`` is the version of the output format. ``notes`` has sentences, ``written`` the paths of the files
        written, and ``next`` commands to run next. If one of these three is empty, its key is left out. If
        `self.result` itself has one of the four keys, its own value is kept.
        """
        rest = {
            "notes": self.notes,
            "written": [file.path for file in self.files],
            "next": [*self.next],
        }
        # A result with a key of its own named `notes`, `written` or `next` keeps it.
        result = {"schema": SCHEMA, **as_json(self.result)}
        return result | {
            key: as_json(value)
            for key, value in rest.items()
            if value and key not in result
        }


def as_json(value: Any) -> Any:
    """Convert a value, and all values inside it, to values that JSON can hold.

    - A dataclass becomes a dictionary of its fields, without those declared with ``repr=False``.
    - A `Cell` of a table becomes a dictionary of its value (``mean``) and the ends of its interval (``low``, ``high``).
    - A data frame becomes a list of rows.
    - A section of a recipe becomes a dictionary.
    - A path becomes a text.
    - NaN and infinity become None.

    A value of any other kind is returned as it is.
    """
    match value:
        # Python would write NaN and Infinity, which are not JSON.
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
    # By method, not by type: importing polars and pydantic for a type check would slow every command down.
    for name in ("to_dicts", "plain"):
        if hasattr(value, name):
            return as_json(getattr(value, name)())
    return value


def one_line(text: str | None, width: int | None = None) -> str:
    """Return a text from a data set on one line, or a dash if the text is None.

    Control characters are replaced by U+FFFD. A text longer than `width` characters is cut and ends in an ellipsis. If
    `width` is None, no text is cut.
    """
    line = "\N{EN DASH}" if text is None else " ".join(text.split())
    # A data set could otherwise send escape sequences to the terminal.
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
    return (
        line
        if width is None or len(line) <= width
        else f"{line[: width - 1]}\N{HORIZONTAL ELLIPSIS}"
    )
