"""Find the data files of a path, a folder or a pattern, and read their rows as tables (Parquet, Arrow, JSON, CSV)."""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from olr_cli.data.chat import messages
from olr_cli.data.json_rows import column_of, json_batches, json_table
from olr_cli.data.rows import Rows
from olr_cli.data.values import (
    CSV,
    EVERY,
    SUFFIXES,
    Origins,
    arrow_table,
    csv_rows,
    is_json,
    written,
)
from olr_cli.errors import NotHere, UserError, first_line, no_path
from olr_cli.files import regular, system_problem
from olr_cli.grouping import gathered

FORMULA = r"[=+\-@\t\r]"
"""A character that turns a cell of a spreadsheet into a formula if it is the first."""

_QUOTED = re.compile(f"^'(?='*{FORMULA})")
"""The apostrophe that keeps a spreadsheet from reading a text as a formula."""

_TURNS = re.compile(r"""\s*\[\s*\{\s*["']""")
"""The beginning of chat turns as JSON or Python writes them: ``[{"role": …``."""

_SPLIT = re.compile(
    r"(?i)(?<![a-z])(train|test|valid|val|dev|eval|held[-_]?out)(?:ing|ation|uation)?(?:[-_]?(?:set|data))?(?![a-z])"
)
"""The split in a file's name: `train-00000-of-00002.parquet`, `gsm8k_test.jsonl`, `dev.json`."""

_DESCRIPTIONS = {
    "dataset_info.json",
    "dataset_infos.json",
    "dataset_dict.json",
    "state.json",
}
"""Files in which the package datasets describes the data of a folder; they hold no rows."""

_SHOWN = 4
"""Number of folders that an error names."""

_BATCH, _BATCH_BYTES = 1 << 16, 1 << 25
"""Largest number of Parquet rows to read at a time, and the number of bytes that they may take in the file."""

Columns = Container[str] | Callable[[pa.Schema], Container[str]]


def matching_files(source: str) -> list[Path]:
    """Return the data files that `source` names: a file, a folder of them, or a pattern (``data/train-*.parquet``).

    Raises:
        UserError: the folder has no data files or cannot be read. `NotHere`, if nothing matches.
    """
    path = Path(os.path.expanduser(source))
    if os.path.isdir(path):
        try:
            names = sorted(os.listdir(path))
        except OSError as error:
            raise UserError(
                f"the folder {source} cannot be read: {error.strerror}",
                "check its permissions",
            ) from None
        # Other programs hide their own files behind a dot: macOS writes `._train.parquet` beside train.parquet.
        files = [path / name for name in names if not name.startswith(".")]
        files = [*filter(_is_data, files)]
        if not files:
            raise _no_files(source, path)
        return files
    if os.path.isfile(regular(path)):
        return [path]
    files = [Path(name) for name in sorted(glob.glob(str(path))) if os.path.isfile(name)]
    if not files and glob.has_magic(str(path)):
        raise NotHere(f"no file matches {path}", "check the pattern")
    if not files:
        is_the_papers = path.name.startswith("dapo_")
        remedy = (
            "recipes/paper/README.md says where it comes from"
            if is_the_papers
            else "check the name"
        )
        raise no_path(path, remedy)
    return files


def _is_data(file: Path) -> bool:
    """Return whether a file in a folder is to be read as data, by its name.

    Files that only describe data are not read. Neither are the copies (``cache-….arrow``) that the package datasets
    makes.
    """
    is_copy = file.suffix == ".arrow" and file.name.startswith("cache-")
    is_known = file.suffix in SUFFIXES and file.name not in _DESCRIPTIONS
    return is_known and not is_copy and os.path.isfile(file)


def _no_files(source: str, path: Path) -> UserError:
    """Return the error for a folder without data files.

    If subfolders, at most two levels down, hold data files, the error names these files. Examples are a snapshot of the
    hub (``data/train-….parquet``), a folder with one folder per split, and a saved DatasetDict.
    """
    below = filter(_is_data, chain(path.glob("[!.]*/*"), path.glob("[!.]*/[!.]*/*")))
    folders = gathered((file.parent.relative_to(path), file.name) for file in below)
    patterns = [
        pattern
        for folder in sorted(folders)
        for pattern in _patterns(os.path.join(source, folder), folders[folder])
    ]
    if not patterns:
        return UserError(
            f"the folder {source} has no file ending in {', '.join(SUFFIXES)}",
            "name another",
        )
    is_saved = os.path.isfile(path / "dataset_dict.json")
    what = "is a saved DatasetDict of splits" if is_saved else "holds its data in folders"
    return UserError(
        f"the folder {source} {what}",
        f"name one, as {' or '.join(patterns[:_SHOWN])}",
    )


def files_of_one_split(source: str) -> list[Path]:
    """Return the data files that `source` names, or raise UserError for a folder with files of several splits.

    Reading several splits together would mix training and test rows in silence. A pattern, unlike a folder, may name
    files of several splits.
    """
    files = matching_files(source)
    splits = _splits(file.name for file in files)
    if len(splits) < 2 or not os.path.isdir(os.path.expanduser(source)):
        return files
    patterns = _patterns(source, [file.name for file in files])
    raise UserError(
        f"the folder {source} holds files of several splits ({', '.join(sorted(splits))})",
        f"name those of one, as {' or '.join(patterns)}",
    )


def _splits(names: Iterable[str]) -> dict[str, list[str]]:
    """Group file names by the split in them, such as ``train``; names without a split are left out."""
    found = ((_SPLIT.search(name), name) for name in names)
    return gathered((split[1].lower(), name) for split, name in found if split)


def _patterns(folder: str, names: Sequence[str]) -> list[str]:
    """Return one pattern for each split of a folder's files, quoted for the shell; `names` are the files' names.

    If the names have fewer than two splits, return only the folder.
    """
    splits = _splits(names)
    if len(splits) < 2:
        return [shlex.quote(folder)]
    # Without quotes, the shell would replace the pattern by the names of all files that match it.
    return [
        shlex.quote(os.path.join(glob.escape(folder), _pattern(splits[split], split)))
        for split in sorted(splits)
    ]


def _pattern(names: Sequence[str], split: str) -> str:
    """Return a glob pattern for the files of one split, with a star for the number of a shard: ``train-*.parquet``.

    `names` are the files' names. If they differ in more than this number, the pattern is ``*SPLIT*``, as ``*train*``.
    """
    # Replace the numbers of shards by a star: `train-00000-of-00002` and `part3.json`.
    numbered = {re.sub(r"\d+-of-\d+[-\w]*|\d+(?=\.)", "*", name) for name in names}
    return numbered.pop() if len(numbered) == 1 else f"*{split}*"


def read_table(
    files: Sequence[Path],
    columns: Container[str] | None = None,
    *,
    encoding: str | None = None,
) -> pa.Table:
    """Read the rows of files in the order given; a column that a file lacks is null in its rows.

    Args:
        files: at least one file (Parquet, Arrow, JSON or CSV).
        columns: names of the columns to read; None for all. JSON files are always read whole.
        encoding: encoding of text files; None for UTF-8, or UTF-16 with a byte order mark.

    Raises:
        UserError: a file cannot be read, or has columns of other types than the files before it.
    """
    tables = [
        json_table([*chain.from_iterable(json_batches(file, encoding=encoding))], str(file))
        if is_json(file)
        else pa.concat_tables(it.table for it in read_batches(file, columns, encoding))
        for file in files
    ]
    # Join one file after the other, so that the error can name the file that does not fit.
    whole = tables[0]
    for file, table in zip(files[1:], tables[1:], strict=True):
        try:
            whole = pa.concat_tables([whole, table], promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise UserError(
                f"{file} does not fit {files[0]}: {first_line(error)}", "read them apart"
            ) from None
    return whole


def read_batches(
    file: Path, columns: Columns | None = None, encoding: str | None = None
) -> Iterator[Rows]:
    """Yield the rows of a Parquet, Arrow or CSV file in batches, and an empty batch if there are no rows.

    Args:
        file: the file.
        columns: names of the columns to read, or a function that returns them for the file's schema; None for all.
        encoding: encoding of text files; None for UTF-8, or UTF-16 with a byte order mark.

    Raises:
        UserError: the file cannot be read or is damaged.
    """
    origins = Origins(str(file), [file], encoding=encoding)
    try:
        tables = _parquet_batches(file, columns)
        if file.suffix != ".parquet":
            # `_parquet_batches` has not run yet: it is a generator, and this replaces it.
            table = _csv_table(file, encoding) if file.suffix in CSV else arrow_table(file)
            tables = iter([table.select(_chosen(table.schema, columns))])
        start = 0
        for table in tables:
            yield Rows(table, replace(origins, numbers=EVERY[start:]))
            start += len(table)
    except PermissionError:
        raise UserError(f"{file} may not be read", "change its permissions") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if problem := system_problem(error):
            raise UserError.of(
                f"{file} could not be read: {problem}", remedy="check the disk"
            ) from None
        kind = "Arrow stream" if file.suffix == ".arrow" else "Parquet file"
        raise UserError(
            f"{file} is not a whole {kind} ({first_line(error)})",
            "fetch or write it again",
        ) from None


def _parquet_batches(file: Path, columns: Columns | None) -> Iterator[pa.Table]:
    """Yield the rows of a Parquet file in batches; categories and string views become columns of plain values.

    `columns` are the names of the columns to read, or a function that returns them for the file's schema. If it is
    None, all columns are read.

    Raises:
        UserError: two columns have the same name.
        ArrowException: the file is damaged.
    """
    with pq.ParquetFile(regular(file)) as parquet:
        schema, metadata = parquet.schema_arrow, parquet.metadata
        _require_distinct(list(schema), str(file))
        names = _chosen(schema, columns)
        # `iter_batches` would yield nothing, and callers need at least the schema.
        if not names or not metadata.num_rows:
            yield parquet.read(names)
            return
        kinds = {name: schema.field(name).type for name in names}
        plain = pa.schema(
            {n: _plain(pa.array([], kind)).type for n, kind in kinds.items()},
            schema.metadata,
        )
        stored = sum(
            metadata.row_group(number).total_byte_size
            for number in range(metadata.num_row_groups)
        )
        # Read fewer rows at a time if they are large: a batch of long responses must fit in memory.
        batch = min(_BATCH, max(1, _BATCH_BYTES * metadata.num_rows // max(stored, 1)))
        count = 0
        for rows in parquet.iter_batches(batch, columns=names):
            # Cast only if the type differs: pyarrow 26 makes invalid lists of lists of nulls that it casts to their
            # own type.
            values = [
                column if column.type == field.type else _plain(column).cast(field.type)
                for column, field in zip(rows.columns, plain, strict=True)
            ]
            table = pa.Table.from_arrays(values, schema=plain)
            table.validate(full=True)
            count += table.num_rows
            yield table
        # Count the rows, because a damaged page may end the batches early without an error.
        if count != metadata.num_rows:
            raise pa.ArrowInvalid(f"it holds {count:,} of {metadata.num_rows:,} rows")


def _plain(column: pa.Array) -> pa.Array:
    """Return a column in a type that all functions of pyarrow take: categories and string views become plain values."""
    column = (
        column.cast(column.type.value_type)
        if pa.types.is_dictionary(column.type)
        else column
    )
    has_views = re.search("(string|binary)_view", str(column.type))
    return pl.Series(column).to_arrow() if has_views else column


def _chosen(schema: pa.Schema, columns: Columns | None) -> list[str]:
    """Return the names of the columns to read, in the order of the file.

    `columns` are these names in any order, or a function that returns them for the schema. If it is None, all columns
    are read.
    """
    chosen = columns(schema) if callable(columns) else columns
    return [name for name in schema.names if chosen is None or name in chosen]


def _require_distinct(fields: Sequence[pa.Field], place: str, where: str = "") -> None:
    """Raise UserError if two columns, or two fields of a struct at any depth, have the same name.

    `place` is the file, and `where` says in the error which struct the fields belong to.
    """
    names = [field.name for field in fields]
    repeated = next((name for name, count in Counter(names).items() if count > 1), None)
    if repeated is not None:
        raise UserError(f"{place} has '{repeated[:60]}' twice{where}", "rename or drop one")
    for field in fields:
        item_type = field.type
        while (
            pa.types.is_list(item_type)
            or pa.types.is_large_list(item_type)
            or pa.types.is_fixed_size_list(item_type)
        ):
            item_type = item_type.value_type
        if pa.types.is_struct(item_type):
            _require_distinct(list(item_type), place, f" in '{field.name[:60]}'")


def _csv_table(file: Path, encoding: str | None) -> pa.Table:
    """Read a CSV file with a header line; values are text, and empty cells are null.

    A column of chat turns, written as JSON or by Python, is parsed. If the table has a column prompt_id, it was written
    by olr, which puts an apostrophe before texts that a spreadsheet would read as formulas. This apostrophe is removed.
    """
    header, *rows = [row for _, row in csv_rows(file, encoding)] or [[]]
    names = [name.strip() for name in header]
    is_ours = "prompt_id" in names
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    arrays = [
        _csv_column(values, f"{file}: '{name}'", is_ours=is_ours)
        for name, values in zip(names, columns, strict=True)
    ]
    table = pa.Table.from_arrays(arrays, names)
    _require_distinct(list(table.schema), str(file))
    return table


def _csv_column(values: Sequence[str], place: str, *, is_ours: bool) -> pa.Array:
    """Convert the cells of a CSV column to an array; empty cells become null.

    The array holds chat turns if every other cell spells a list of chat turns, and texts if not.

    Args:
        values: the cells.
        place: name of the column, for errors.
        is_ours: whether olr wrote the file. It then put an apostrophe before texts that a spreadsheet would read as
            formulas, and this apostrophe is removed.
    """
    if is_ours:
        values = [_QUOTED.sub("", value) for value in values]
    texts = [value or None for value in values]
    given = [*filter(None, texts)]
    if given and all(map(_TURNS.match, given)):
        turns = {text: written(text) for text in given}
        if all(map(messages, turns.values())):
            return column_of([text and turns[text] for text in texts], place)
    return pa.array(texts, pa.large_string())
