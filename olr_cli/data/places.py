"""Where the rows of a data file stand in it: the lines of CSV and JSON Lines, and the numbers of other rows."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from olr_cli.errors import UserError
from olr_cli.files import read_lines, read_text

_JSON = (".jsonl", ".ndjson", ".json")

SUFFIXES = (".parquet", *_JSON, ".csv", ".tsv")

_LONGEST_CELL = 1 << 27

_SEPARATORS = ",;\t"


def is_json(file: Path) -> bool:
    """Whether a data file holds JSON, whose columns are those of all its rows."""
    if file.suffix not in SUFFIXES:
        raise UserError(
            f"{file} ends in none of {', '.join(SUFFIXES)}, so olr cannot read it; convert it to one of these"
        )
    return file.suffix in _JSON


def places_of_rows(file: Path) -> list[tuple[str, int]]:
    """For each row of a file, whether it is a line or a row, and its number, from 1."""
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq  # which rewards that read no file do without

        return [("row", at) for at in range(1, 1 + pq.read_metadata(file).num_rows)]
    if not is_json(file):
        return [("line", at) for at, _ in csv_rows(file)][1:]
    starts = [
        (at, line.lstrip()[:1])
        for at, line in enumerate(read_lines(file, is_cut=True), start=1)
    ]
    if next((start for _, start in starts if start), "") == "[":
        return [("row", at) for at, _ in enumerate(json.loads(read_text(file)), start=1)]
    return [("line", at) for at, start in starts if start]


def lines_of_rows(file: Path, rows: Sequence[int]) -> str:
    """The text of some rows of a CSV or JSON Lines file, as it stands there, below the line of names."""
    lines = list(io.StringIO(read_text(file), newline=""))
    starts = [at - 1 for _, at in places_of_rows(file)]
    ends = [*starts[1:], len(lines)]
    kept = [
        *lines[: starts[0]],
        *chain.from_iterable(lines[starts[row] : ends[row]] for row in rows),
    ]
    return "".join(kept) if kept[-1].endswith(("\n", "\r")) else "".join(kept) + "\n"


def csv_rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    """The names of the columns and the rows below them, each with its first line: a quoted cell may span lines."""
    text = read_text(file)
    head = text.partition("\n")[0]
    separator = "\t" if file.suffix == ".tsv" else max(_SEPARATORS, key=head.count)
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
                    f" columns; put values that hold {separator!r} or a line break into double quotes"
                )
            line = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{file}, line {line} is not valid CSV: {error}") from None
