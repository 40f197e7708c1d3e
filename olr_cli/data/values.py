"""Values of rows, and where these stand in files: what also rewards need that read no file, so without pyarrow."""

from __future__ import annotations

import ast
import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from olr_cli.data.json_documents import ARCHIVE, document_rows
from olr_cli.errors import UserError
from olr_cli.files import read_lines, read_text, regular

if TYPE_CHECKING:
    import pyarrow as pa

_LARGEST = 2**64
"""From here on a float is written with its exponent: it says nothing of its last digits."""


EVERY = range(sys.maxsize)
"""Numbers of all rows."""


@dataclass(frozen=True)
class Origins:
    """Where the rows of a table come from: the one place that names a row in messages.

    Only messages need lines, so files are read once more for them, and reading keeps no account of lines.

    Attributes:
        source: what was read, as the user calls it.
        files: in the order of their rows; none for rows that are in no file here.
        numbers: the number of each row among all rows of the files, from 0.
        encoding: of files of text, as of `read_text`.
    """

    source: str
    files: Sequence[Path] = ()
    numbers: Sequence[int] = EVERY
    encoding: str | None = None

    def take(self, rows: Iterable[int]) -> Origins:
        """The origins of some of the rows."""
        return replace(self, numbers=[self.numbers[row] for row in rows])

    def name(self, row: int, *, is_short: bool = False) -> str:
        """``line 33 of f2.csv``; where rows are no lines, ``row 31 of f.parquet, counted from 1``.

        If it `is_short`, and there is one file, no more than ``line 33`` or ``row 31``.
        """
        number = self.numbers[row]
        # Rows that are in no file here, as of the hub, are counted from 1 too.
        unit, at, file = (
            self._places[number] if self.files else ("row", number + 1, self.source)
        )
        if is_short and len(self.files) < 2:
            return f"{unit} {at}"
        return f"{unit} {at} of {file}{', counted from 1' * (unit == 'row')}"

    @cached_property
    def _places(self) -> list[tuple[str, int, str]]:
        return [
            (unit, at, str(file))
            for file in self.files
            for unit, at in places_of_rows(file, self.encoding)
        ]


def row_error(name: str, path: str, what: str, should: str) -> UserError:
    """The error for a value that is not what its column should hold, in the row of that name."""
    return UserError(f"{name}: '{path}' is {what}, and it should be {should}", "correct it")


def own_digits(number: Any) -> float:
    """A float of numpy as a double: 0.1 in 32 bits is 0.1, not 0.10000000149; whole numbers are exact in any case."""
    exact = float(number)
    return exact if exact.is_integer() and abs(exact) < _LARGEST else float(str(number))


def spelled(number: float | Decimal) -> str:
    """A number as text: 14.0 is the whole number 14."""
    is_whole = -_LARGEST < number < _LARGEST and number == int(number)
    return str(int(number)) if is_whole else str(number)


def written(text: str) -> Any:
    """The value that a text writes, in JSON or as Python does; None if it writes none."""
    # JSON comes first: its true and null are no Python.
    for parse in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return parse(text)
    return None


# The files that rows stand in ----------------------------------------------------------------------------------------

_JSON = (".jsonl", ".ndjson", ".json")

CSV = (".csv", ".tsv")

SUFFIXES = (".parquet", ".arrow", *_JSON, *CSV)

_LONGEST_CELL = 1 << 27

_SEPARATORS = ",;\t"


def is_json(file: Path) -> bool:
    """Whether a data file holds JSON, whose columns are those of all its rows."""
    if file.suffix == ARCHIVE:
        return True
    if file.suffix not in SUFFIXES:
        raise UserError(
            f"{file} ends in none of {', '.join(SUFFIXES)}, so olr cannot read it",
            "convert it to one of these; Excel's text (.txt) needs the ending .tsv alone",
        )
    return file.suffix in _JSON


def places_of_rows(file: Path, encoding: str | None = None) -> list[tuple[str, int]]:
    """For each row of a file, whether it is a line or a row, and its number, from 1."""
    if file.suffix == ".arrow":
        return [("row", at) for at in range(1, 1 + len(arrow_table(file)))]
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq  # which rewards that read no file do without

        return [("row", at) for at in range(1, 1 + pq.read_metadata(file).num_rows)]
    if not is_json(file):
        return [("line", at) for at, _ in csv_rows(file, encoding)][1:]
    if (rows := document_rows(file, encoding)) is not None:
        return [("row", at) for at in range(1, 1 + len(rows))]
    lines = enumerate(read_lines(file, is_cut=True, encoding=encoding), start=1)
    return [("line", at) for at, line in lines if line.strip()]


def arrow_table(file: Path) -> pa.Table:
    """Return the rows of an Arrow stream, as the package datasets saves it; they stay on the disk until looked at."""
    import pyarrow as pa

    return pa.ipc.open_stream(pa.memory_map(str(regular(file)))).read_all()


def lines_of_rows(file: Path, rows: Sequence[int], encoding: str | None = None) -> str:
    """The text of some rows of a CSV or JSON Lines file, as it stands there, below the line of names."""
    lines = list(io.StringIO(read_text(file, encoding=encoding), newline=""))
    starts = [at - 1 for _, at in places_of_rows(file, encoding)]
    ends = [*starts[1:], len(lines)]
    kept = [
        *lines[: starts[0]],
        *chain.from_iterable(lines[starts[row] : ends[row]] for row in rows),
    ]
    return "".join(kept) if kept[-1].endswith(("\n", "\r")) else "".join(kept) + "\n"


def separator_of(file: Path, text: str) -> str:
    """Return what separates the values of a CSV file with this text."""
    head = text.partition("\n")[0]
    return "\t" if file.suffix == ".tsv" else max(_SEPARATORS, key=head.count)


def csv_rows(file: Path, encoding: str | None = None) -> Iterator[tuple[int, list[str]]]:
    """The names of the columns and the rows below them, each with its first line: a quoted cell may span lines."""
    text = read_text(file, encoding=encoding)
    separator = separator_of(file, text)
    csv.field_size_limit(_LONGEST_CELL)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    columns, line = 0, 1
    try:
        for row in reader:
            columns = columns or len(row)
            if row and len(row) == columns:
                yield line, row
            elif any(map(str.strip, row)):  # else a blank line
                raise UserError(
                    f"{file}, line {line} has {len(row)} values, and its first line names {columns}"
                    " columns",
                    f"put values that hold {separator!r} or a line break into double quotes",
                )
            line = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{file}, line {line} is not valid CSV: {error}", "correct it"
        ) from None
