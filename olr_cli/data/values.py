"""Values of rows, and the places of rows in files.

Rewards import this module too, although they read no file, so it imports pyarrow only inside functions.
"""

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
"""From here on a float is written with its exponent, because its last digits mean nothing."""


EVERY = range(sys.maxsize)
"""Row numbers of whole files."""


@dataclass(frozen=True)
class Origins:
    """Where the rows of a table come from, so that messages can name a row by its file and line.

    Line numbers are not stored. The files are read once more when a message first needs a line number.
    """

    source: str
    """The data source as the user calls it."""

    files: Sequence[Path] = ()
    """The files in the order of their rows; empty for rows that come from no local file."""

    numbers: Sequence[int] = EVERY
    """Number of each row among all rows of the files, from 0."""

    encoding: str | None = None
    """Encoding of text files, as for `read_text`."""

    def take(self, rows: Iterable[int]) -> Origins:
        """Return the origins of some of the rows, given by their indices, in that order."""
        return replace(self, numbers=[self.numbers[row] for row in rows])

    def name(self, row: int, *, is_short: bool = False) -> str:
        """Name a row: ``line 33 of f2.csv`` or, where rows are not lines, ``row 31 of f.parquet, counted from 1``.

        If `is_short` and there is only one file, the name is just ``line 33`` or ``row 31``.
        """
        number = self.numbers[row]
        # Rows without a local file, such as those of the hub, are counted from 1 too.
        unit, at, file = (
            self._locations[number] if self.files else ("row", number + 1, self.source)
        )
        if is_short and len(self.files) < 2:
            return f"{unit} {at}"
        return f"{unit} {at} of {file}{', counted from 1' * (unit == 'row')}"

    @cached_property
    def _locations(self) -> list[tuple[str, int, str]]:
        """(unit, number, file) of each row of all files; the unit is ``line`` or ``row``, and numbers count from 1."""
        return [
            (unit, at, str(file))
            for file in self.files
            for unit, at in places_of_rows(file, self.encoding)
        ]


def row_error(name: str, path: str, what: str, should: str) -> UserError:
    """Return the error "`name`: '`path`' is `what`, and it should be `should`", for a value of the wrong kind.

    `name` is the row's name, and `path` is the path of its column.
    """
    return UserError(f"{name}: '{path}' is {what}, and it should be {should}", "correct it")


def own_digits(number: Any) -> float:
    """Return a float of numpy as the double that prints the same: 0.1 in 32 bits gives 0.1, not 0.10000000149."""
    exact = float(number)
    # The digits of a whole number may be rounded: 123456792 in 32 bits is spelled 1.2345679e+08.
    return exact if exact.is_integer() and abs(exact) < _LARGEST else float(str(number))


def spelled(number: float | Decimal) -> str:
    """Return a number as text; a whole number has no decimals, so that 14.0 becomes ``14``."""
    is_whole = -_LARGEST < number < _LARGEST and number == int(number)
    return str(int(number)) if is_whole else str(number)


def written(text: str) -> Any:
    """Parse a text as JSON, else as a Python literal; return None if it is neither."""
    # Python's parser alone would refuse JSON's true and null.
    for parse in (json.loads, ast.literal_eval):
        # Deeply nested texts exhaust a parser: RecursionError or MemoryError.
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return parse(text)
    return None


# The files of the rows -----------------------------------------------------------------------------------------------

_JSON = (".jsonl", ".ndjson", ".json")

CSV = (".csv", ".tsv")

SUFFIXES = (".parquet", ".arrow", *_JSON, *CSV)

_LONGEST_CELL = 1 << 27
"""Characters of a CSV cell; Python's limit of 131,072 is less than a long rollout."""

_SEPARATORS = ",;\t"


def is_json(file: Path) -> bool:
    """Return whether a data file holds JSON, whose columns are known only once all rows are read.

    Raises:
        UserError: the file's ending is none of `SUFFIXES`.
    """
    if file.suffix == ARCHIVE:
        return True
    if file.suffix not in SUFFIXES:
        raise UserError(
            f"{file} ends in none of {', '.join(SUFFIXES)}, so olr cannot read it",
            "convert it to one of these; Excel's text (.txt) needs the ending .tsv alone",
        )
    return file.suffix in _JSON


def places_of_rows(file: Path, encoding: str | None = None) -> list[tuple[str, int]]:
    """Return (unit, number) for each row of a file.

    The unit is ``line`` in CSV and JSON Lines files and ``row`` in all others, and the number counts from 1.
    """
    if file.suffix == ".arrow":
        return [("row", at) for at in range(1, 1 + len(arrow_table(file)))]
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq  # here, because rewards that read no file run without pyarrow

        return [("row", at) for at in range(1, 1 + pq.read_metadata(file).num_rows)]
    if not is_json(file):
        # The first row of a CSV file is its header.
        return [("line", at) for at, _ in csv_rows(file, encoding)][1:]
    if (rows := document_rows(file, encoding)) is not None:
        return [("row", at) for at in range(1, 1 + len(rows))]
    lines = enumerate(read_lines(file, is_cut=True, encoding=encoding), start=1)
    return [("line", at) for at, line in lines if line.strip()]


def arrow_table(file: Path) -> pa.Table:
    """Return the rows of an Arrow stream, as the package datasets saves it; the file is mapped into memory."""
    import pyarrow as pa

    return pa.ipc.open_stream(pa.memory_map(str(regular(file)))).read_all()


def lines_of_rows(file: Path, rows: Sequence[int], encoding: str | None = None) -> str:
    """Return the header line and some rows of a CSV or JSON Lines file as text, exactly as they are in the file.

    `rows` are indices of rows, without the header, in the order in which to return them.
    """
    lines = list(io.StringIO(read_text(file, encoding=encoding), newline=""))
    starts = [at - 1 for _, at in places_of_rows(file, encoding)]
    ends = [*starts[1:], len(lines)]
    # The lines above the first row are the header, or blank.
    kept = [
        *lines[: starts[0]],
        *chain.from_iterable(lines[starts[row] : ends[row]] for row in rows),
    ]
    return "".join(kept) if kept[-1].endswith(("\n", "\r")) else "".join(kept) + "\n"


def separator_of(file: Path, text: str) -> str:
    """Return the separator of a CSV file: a tab in .tsv files, else the most frequent one in its first line.

    `text` is the content of the file.
    """
    header = text.partition("\n")[0]
    return "\t" if file.suffix == ".tsv" else max(_SEPARATORS, key=header.count)


def csv_rows(file: Path, encoding: str | None = None) -> Iterator[tuple[int, list[str]]]:
    """Yield (number, cells) for the header of a CSV file and for each row.

    The number is that of the row's first line, from 1. A quoted cell may span lines, so rows cannot be counted as
    lines.

    Raises:
        UserError: the file is not valid CSV, or a row has more or fewer cells than the header.
    """
    text = read_text(file, encoding=encoding)
    separator = separator_of(file, text)
    csv.field_size_limit(_LONGEST_CELL)
    # Strict, or an unclosed quote would silently swallow the rest of the file.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    column_count, line = 0, 1
    try:
        for row in reader:
            column_count = column_count or len(row)
            if row and len(row) == column_count:
                yield line, row
            # Blank lines, which editors leave at the end, are no rows.
            elif any(map(str.strip, row)):
                raise UserError(
                    f"{file}, line {line} has {len(row)} values, and its first line names {column_count}"
                    " columns",
                    f"put values that hold {separator!r} or a line break into double quotes",
                )
            line = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{file}, line {line} is not valid CSV: {error}", "correct it"
        ) from None
