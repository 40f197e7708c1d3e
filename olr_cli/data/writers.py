"""Write prompts to files that both `olr train` and verl read; equal prompts give equal bytes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from olr_cli.data.interchange import labelled_table
from olr_cli.data.json_documents import document_rows
from olr_cli.data.prompts import PromptSet
from olr_cli.data.rows import Rows
from olr_cli.data.table_files import FORMULA
from olr_cli.data.values import CSV, Origins, csv_rows, lines_of_rows, separator_of
from olr_cli.errors import UserError, first_line
from olr_cli.files import read_text, write_new

SCHEMA_VERSION = 1
"""Version of the written rows; it goes up whenever a field changes its meaning."""


def write_prompts(prompts: PromptSet, target: Path) -> bool:
    """Write `prompts` in the interchange format: Parquet, or JSON Lines if the name ends in ``.jsonl``.

    Returns:
        True, or False if the file already exists with the same content (see `write_new`).

    Raises:
        UserError: the file exists with other content, or the prompts cannot be written with its ending.
    """
    content = encode(prompts, target)
    return write_new(target, lambda path: path.write_bytes(content))


def encode(prompts: PromptSet, target: Path) -> bytes:
    """Return `prompts` as the bytes of a Parquet or JSON Lines file, by the ending of `target`.

    The bytes depend only on the prompts and the ending. No file is written.

    Raises:
        UserError: the ending is neither .parquet nor .jsonl, or a column does not fit JSON.
    """
    table = labelled_table(prompts.table, prompts.prompts)
    if target.suffix == ".parquet":
        facts = {
            "schema_version": str(SCHEMA_VERSION),
            "source": prompts.source,
            "digest": prompts.digest,
            **({} if prompts.revision is None else {"revision": prompts.revision}),
            **prompts.facts,
        }
        # Replace the metadata of pandas or datasets: it describes the source's columns, and datasets would believe it.
        return _parquet(
            table.replace_schema_metadata(
                {f"olr.{name}": value for name, value in facts.items()}
            )
        )
    if target.suffix == ".jsonl":
        return _json_lines(table, target, prompts.source)
    raise UserError(
        f"{target}: prompts are written as .parquet or .jsonl",
        "give the file one of these endings",
    )


def csv_suffix(source: str) -> str:
    """Return the ending of `source` if it is one CSV file, such as ``.csv``, else an empty text."""
    path = Path(source).expanduser()
    return path.suffix if path.suffix in CSV and path.is_file() else ""


def require_writable(target: Path | None, source: str) -> None:
    """Raise UserError if `write_rows` cannot write a file with the ending of `target`; None raises nothing.

    Call it before long work on a file. If the data set `source` is one CSV file, its ending is allowed too.
    """
    if target and target.suffix not in (
        ".parquet",
        ".jsonl",
        csv_suffix(source) or ".parquet",
    ):
        raise UserError(
            "rows are written as .parquet or .jsonl, those of one CSV file also as"
            f" {csv_suffix(source) or '.csv'}",
            f"give {target} such an ending",
            "export",
        )


def write_rows(rows: Rows, kept: Sequence[int], target: Path) -> bool:
    """Write the rows with the indices `kept`, with all their columns.

    If the source is one CSV or JSON Lines file with the target's ending, its lines are copied unchanged.

    Returns:
        True, or False if the file already exists with the same content (see `write_new`).

    Raises:
        UserError: the file exists with other content, or a value does not fit JSON.
    """
    files, encoding = rows.origins.files, rows.origins.encoding
    is_same = len(files) == 1 and files[0].suffix == target.suffix != ".parquet"
    if is_same and (target.suffix in CSV or document_rows(files[0], encoding) is None):
        content = lines_of_rows(files[0], kept, encoding).encode()
    elif target.suffix == ".parquet":
        content = _parquet(rows.table.take(list(kept)))
    else:
        content = _json_lines(rows.table.take(list(kept)), target, rows.place)
    return write_new(target, lambda path: path.write_bytes(content), "export")


def write_csv_rows(
    origins: Origins, cells_of: Mapping[int, Mapping[str, str]], target: Path
) -> bool:
    """Copy some rows of one CSV file to a new file, with some cells replaced or added.

    Args:
        origins: the rows' places in the CSV file.
        cells_of: row index -> column name -> new cell. Only these rows are written, in this order, and their other
            cells are copied.
        target: the new file.

    Returns:
        True, or False if the file already exists with the same content (see `write_new`).

    Raises:
        UserError: the target exists with other content, or the name of a new column has a dot, which leads into a
            column (`messages.assistant`).
    """
    [file] = origins.files
    header, *rows = [row for _, row in csv_rows(file, origins.encoding)]
    # The file's columns first, then new ones. A new name with a dot is a path into a column, such as chat turns.
    names = [*dict.fromkeys(chain(map(str.strip, header), *cells_of.values()))]
    if path := next((name for name in names[len(header) :] if "." in name), None):
        raise UserError(
            f"the labels of {file} are in '{path}', a part of a column, which cannot be replaced alone",
            "write .parquet or .jsonl",
            "export",
        )
    text = read_text(file, encoding=origins.encoding)
    separator, ending = separator_of(file, text), "\r\n" if "\r\n" in text else "\n"
    content = io.StringIO(newline="")
    writer = csv.DictWriter(content, names, "", delimiter=separator, lineterminator=ending)
    writer.writeheader()
    for row, cells in cells_of.items():
        stored = zip(names, rows[origins.numbers[row]], strict=False)
        writer.writerow({**dict(stored), **cells})
    encoded = content.getvalue().encode()
    return write_new(target, lambda path: path.write_bytes(encoded), "export")


def write_csv(table: pl.DataFrame, path: Path) -> None:
    """Write a table with a column prompt_id as CSV that is safe to open in a spreadsheet.

    A text that begins like a formula gets an apostrophe, which olr removes when it reads the table again.
    """
    table.with_columns(pl.col(pl.String).str.replace(f"^('*{FORMULA})", "'${1}")).write_csv(
        path
    )


def _parquet(table: pa.Table) -> bytes:
    """Return a table as the bytes of a Parquet file."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def _json_lines(table: pa.Table, target: Path, source: str) -> bytes:
    """Return a table as the bytes of a JSON Lines file.

    `target` is the new file and `source` is where the rows come from; the error names both.

    Raises:
        UserError: a value does not fit JSON.
    """
    try:
        rows = table.to_pylist()
        return "".join(
            json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows
        ).encode()
    except (
        TypeError,
        ValueError,
        OverflowError,
        KeyError,
    ) as error:  # zoneinfo raises KeyError for an unknown time zone
        raise UserError(
            f"{target}: a column of {source} does not fit JSON ({first_line(error)})",
            "write .parquet",
        ) from None
