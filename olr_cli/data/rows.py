"""Rows of files (Parquet, JSON, CSV), and their columns as texts and numbers; nothing here knows what a prompt is."""

from __future__ import annotations

import csv
import glob
import io
import json
import math
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from olr_cli.data.chat import message, messages
from olr_cli.data.columns import MESSAGE_COLUMNS
from olr_cli.data.values import (
    EVERY,
    Origins as Origins,
    own_digits,
    row_error as row_error,
    spelled as spelled,
    written,
)
from olr_cli.errors import NotHere, UserError, did_you_mean, first_line, no_path
from olr_cli.files import parse_json, read_lines, read_text, regular, system_problem
from olr_cli.grouping import gathered

Columns = Container[str] | Callable[[pa.Schema], Container[str]]


@dataclass(frozen=True)
class Rows:
    """Rows of a file, or some of them.

    A path names a column (``Question``), a field of a struct (``meta.gold``), an item of a list (``answers.0``), or, in
    a list of chat turns, the last turn of a role (``messages.assistant``).

    Ids and labels are text. A column of whole numbers in which one is missing is often exported as floats, and `14.0`
    is then the number 14; NaN is a missing value. A float of 16 or 32 bits is the number that its own digits spell.

    Attributes:
        table: the rows, with the columns that were read.
        origins: the files, for errors.
    """

    table: pa.Table
    origins: Origins

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def place(self) -> str:
        """The name of the source, for errors."""
        return self.origins.source

    def take(self, rows: Sequence[int]) -> Rows:
        """Some of the rows (the first is 0), in that order."""
        return Rows(self.table.take(list(rows)), self.origins.take(rows))

    @property
    def paths(self) -> list[str]:
        """The columns; of structs, their fields instead."""
        return [path for field in self.table.schema for path in _paths(field, field.name)]

    def has(self, path: str) -> bool:
        """Whether there is such a column, or such a field of a column; in some row, if a list is on the way."""
        column, steps = self._column(path)
        return column is not None and (
            not steps
            or any(_walk(value, steps) is not None for value in self._python(column, path))
        )

    def values(self, path: str) -> list[Any]:
        """The value of every row at a path; None where there is none."""
        column, steps = self._column(path)
        if column is None:
            return [None] * len(self)
        values = self._python(column, path)
        return [_walk(value, steps) for value in values] if steps else values

    def texts(self, path: str | None) -> list[str | None]:
        """The text of every row at a path; None where it is missing or blank, or there is no such path."""
        if path is None:
            return [None] * len(self)
        return [
            text if text and text.strip() else None
            for text in self.text_column(path).to_pylist()
        ]

    def text_column(self, path: str) -> pa.ChunkedArray:
        """The same as a column, in which blank texts stay as they are. The only item of a list stands for the list."""
        column, steps = self._column(path)
        if column is not None and not steps:
            kind, kinds = column.type, pa.types
            is_text = (
                kinds.is_string(kind)
                or kinds.is_large_string(kind)
                or kinds.is_string_view(kind)
            )
            if is_text or kinds.is_integer(kind) or kinds.is_null(kind):
                return column.cast(pa.large_string())
        texts = [self._text(value, path, row) for row, value in enumerate(self.values(path))]
        return pa.chunked_array([pa.array(texts, pa.large_string())])

    def numbers(self, path: str) -> pa.ChunkedArray:
        """The number of every row at a path, as a double; null where it is missing."""
        column, steps = self._column(path)
        kind, kinds = None if column is None else column.type, pa.types
        if (
            column is not None
            and not steps
            and (kinds.is_integer(kind) or kinds.is_floating(kind))
        ):
            doubles = column.cast(pa.float64(), safe=False)
        else:
            doubles = pa.chunked_array([pa.array(map(_number, self.texts(path)), pa.float64())])
        known = pc.if_else(pc.is_nan(doubles), None, doubles)
        wrong = pc.index(pc.is_inf(known), True).as_py()
        if wrong >= 0:
            what = repr(self.values(path)[wrong])
            raise row_error(self.origins.name(wrong), path, what[:60], "a finite number")
        return known

    def _column(self, path: str) -> tuple[pa.ChunkedArray | None, list[str]]:
        """The column or struct field that a path leads to, and the steps that remain below it; None without one."""
        if path in self.table.column_names:
            return self.table.column(path), []
        name, *steps = path.split(".")
        column = self.table.column(name) if name in self.table.column_names else None
        while column is not None and steps and pa.types.is_struct(column.type):
            has_field = column.type.get_field_index(steps[0]) >= 0
            column = pc.struct_field(column, steps.pop(0)) if has_field else None
        kind = None if column is None else column.type
        if steps and not (kind and (pa.types.is_list(kind) or pa.types.is_large_list(kind))):
            return None, []
        return column, steps

    def _python(self, column: pa.ChunkedArray, path: str) -> list[Any]:
        try:
            values = list(column.to_pylist())
            return (
                values
                if "float" not in str(column.type)
                else [_own(it, column.type) for it in values]
            )
        except (ValueError, OverflowError, KeyError):  # of pyarrow, or of an unknown time zone
            raise UserError(
                f"{self.place}: column '{path}' holds {column.type} values that cannot be read; write them as text"
            ) from None

    def _text(self, value: object, path: str, row: int) -> str | None:
        if isinstance(value, list) and len(value) <= 1:
            value = value[0] if value else None
        if value is None or value != value:  # NaN
            return None
        if isinstance(value, str):
            return value
        if (
            isinstance(value, int | float | Decimal)
            and not isinstance(value, bool)
            and math.isfinite(value)
        ):
            return spelled(value)
        what = str(value) if isinstance(value, float) else f"a {type(value).__name__}"
        if isinstance(value, list):
            what = f"a list of {len(value)} value{'s' * (len(value) != 1)}"
        raise row_error(self.origins.name(row), path, what, "text or a number")


def _paths(field: pa.Field, path: str) -> Iterator[str]:
    if pa.types.is_struct(field.type) and field.type.num_fields:
        for number in range(field.type.num_fields):
            inner = field.type.field(number)
            yield from _paths(inner, f"{path}.{inner.name}")
    else:
        yield path
        if path in MESSAGE_COLUMNS:
            yield f"{path}.assistant"


def _own(value: Any, kind: pa.DataType) -> Any:
    """A value of an Arrow type, with the floats in it as numbers of their own precision."""
    if value is None:
        return None
    if pa.types.is_float16(kind) or pa.types.is_float32(kind):
        return own_digits(kind.to_pandas_dtype()(value))
    if pa.types.is_struct(kind):
        return {field.name: _own(value[field.name], field.type) for field in kind}
    if isinstance(value, list) and not pa.types.is_map(kind):
        return [_own(item, kind.value_type) for item in value]
    return _own(value, kind.value_type) if pa.types.is_dictionary(kind) else value


def _walk(value: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal():
            value = value[int(step)] if int(step) < len(value) else None
        elif isinstance(value, list):
            contents = [
                turn.content for turn in filter(None, map(message, value)) if turn.role == step
            ]
            value = contents[-1] if contents else None
        else:
            return None
    return value


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return math.inf


def pick(
    has: Callable[[str], bool],
    roles: Mapping[str, Sequence[str]],
    named: Mapping[str, str],
    *,
    place: str,
    available: Sequence[str],
) -> dict[str, str]:
    """Role -> the path of a file that plays it: the one that the user has `named`, else the first of the usual ones.

    `has` tells whether the file has a path; `place` and the columns that are `available` are for errors.
    """
    lacking = next((path for path in named.values() if not has(path)), None)
    if lacking is not None:
        raise UserError(
            f"{place} has no '{lacking}'{did_you_mean(lacking, available)}; its columns are"
            f" {', '.join(available)}"
        )
    usual = (
        (role, next(filter(has, paths), None))
        for role, paths in roles.items()
        if role not in named
    )
    return {**{role: path for role, path in usual if path is not None}, **named}


def suggested(
    likely: Mapping[str, Sequence[str]], available: Sequence[str], named: Mapping[str, str] = {}
) -> str:
    """A guess at which column holds what, as a recipe writes it: ``{question: Question, answer: COLUMN}``.

    `likely` has the names that the column of a role often has, the likeliest first.
    """
    parts, left = [], list(available)
    for role, words in likely.items():
        path = named.get(role) or _likeliest(left, words) or "COLUMN"
        left = [other for other in left if other != path]
        is_plain = re.fullmatch(r"[A-Za-z_][\w.-]*", path)
        parts.append(f"{role}: {path if is_plain else json.dumps(path, ensure_ascii=False)}")
    return f"{{{', '.join(parts)}}}"


def _likeliest(available: Sequence[str], words: Sequence[str]) -> str | None:
    """The path whose last name is one of `words`, whatever its case, or else has it as a word in it."""
    for is_like in (
        lambda name, word: name == word,
        lambda name, word: word in re.split(r"[\W_]+", name),
    ):
        for word in words:
            for path in available:
                if is_like(path.rpartition(".")[2].lower(), word):
                    return path
    return None


_JSON = (".jsonl", ".ndjson", ".json")
SUFFIXES = (".parquet", *_JSON, ".csv", ".tsv")
_MOST_LEVELS = 30
"""Readers of Parquet, where a list takes three levels, stop at 100."""
_BATCH, _BATCH_BYTES = 1 << 16, 1 << 25
"""Rows of Parquet that are read at a time, and bytes that they take in the file."""
_BATCH_OF_OBJECTS = 1 << 14
"""Rows of JSON that are read at a time; an object takes a kilobyte."""
_LONGEST_CELL = 1 << 27
_SEPARATORS = ",;\t"
FORMULA = r"[=+\-@\t\r]"
"""A character that makes spreadsheets take a cell for a formula if it is the first."""
_QUOTED = re.compile(f"'+{FORMULA}")
_TURNS = re.compile(r"""\s*\[\s*\{\s*["']""")
_SPLIT = re.compile(
    r"(?i)(?<![a-z])(train|test|valid|val|dev|eval|held[-_]?out)(?:ing|ation|uation)?(?:[-_]?(?:set|data))?(?![a-z])"
)
"""The split in a file's name: `train-00000-of-00002.parquet`, `gsm8k_test.jsonl`, `dev.json`."""


def matching_files(source: str) -> list[Path]:
    """The data files `source` stands for: a file, a folder of them, or a pattern (``data/train-*.parquet``)."""
    path = Path(os.path.expanduser(source))
    if os.path.isdir(path):
        # Names with a dot are other programs' own, such as the shadow files of macOS.
        try:
            names = sorted(os.listdir(path))
        except OSError as error:
            raise UserError(f"the folder {source} cannot be read: {error.strerror}") from None
        candidates = (path / name for name in names if not name.startswith("."))
        files = [
            file for file in candidates if file.suffix in SUFFIXES and os.path.isfile(file)
        ]
        if not files:
            raise UserError(
                f"the folder {source} has no file ending in {', '.join(SUFFIXES)}; name another"
            )
        return files
    if os.path.isfile(regular(path)):
        return [path]
    files = [Path(name) for name in sorted(glob.glob(str(path))) if os.path.isfile(name)]
    if not files and glob.has_magic(str(path)):
        raise NotHere(f"no file matches {path}; check the pattern")
    if not files:
        is_the_papers = path.name.startswith("dapo_")
        remedy = (
            "recipes/paper/README.md says where it comes from"
            if is_the_papers
            else "check the name"
        )
        raise no_path(path, remedy)
    return files


def files_of_one_split(source: str) -> list[Path]:
    """Return the files of `matching_files`; refuse a folder that holds several splits, which would be mixed in silence.

    Who wants them together names a pattern, which is read as it stands.
    """
    files = matching_files(source)
    names = gathered(
        (split[1].lower(), file.name) for file in files if (split := _SPLIT.search(file.name))
    )
    if len(names) < 2 or not os.path.isdir(os.path.expanduser(source)):
        return files
    folder = glob.escape(source)
    # Quoted, or the shell would put the names of all files in the place of the pattern.
    patterns = [
        shlex.quote(os.path.join(folder, _pattern(names[split], split)))
        for split in sorted(names)
    ]
    raise UserError(
        f"the folder {source} holds files of several splits ({', '.join(sorted(names))}); name those of one, as"
        f" {' or '.join(patterns)}"
    )


def _pattern(names: Sequence[str], split: str) -> str:
    """A pattern of the files of a split: ``train-*.parquet``, ``test.jsonl``."""
    numbered = {re.sub(r"\d+-of-\d+[-\w]*|\d+(?=\.)", "*", name) for name in names}
    return numbered.pop() if len(numbered) == 1 else f"*{split}*"


def read_table(files: Sequence[Path], columns: Container[str] | None = None) -> pa.Table:
    """The rows of Parquet, JSON or CSV files, in the order given; a column that a file lacks is null there.

    Of files other than JSON, only those of `columns` are read that are there.
    """
    tables = [
        json_table([row for rows in json_batches(file) for row in rows], str(file))
        if is_json(file)
        else pa.concat_tables(rows.table for rows in read_batches(file, columns))
        for file in files
    ]
    whole = tables[0]
    for file, table in zip(files[1:], tables[1:], strict=True):
        try:
            whole = pa.concat_tables([whole, table], promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise UserError(
                f"{file} does not fit {files[0]}: {first_line(error)}; read them apart"
            ) from None
    return whole


def is_json(file: Path) -> bool:
    """Whether a data file holds JSON, whose columns are those of all its rows."""
    if file.suffix not in SUFFIXES:
        raise UserError(
            f"{file} ends in none of {', '.join(SUFFIXES)}, so olr cannot read it; convert it to one of these"
        )
    return file.suffix in _JSON


def read_batches(file: Path, columns: Columns | None = None) -> Iterator[Rows]:
    """The rows of a Parquet or CSV file, some at a time and at least one table; `columns` may depend on its schema."""
    origins = Origins(str(file), [file])
    if file.suffix != ".parquet":
        table = _csv_table(file)
        yield Rows(table.select(_chosen(table.schema, columns)), origins)
        return
    try:
        start = 0
        for table in _parquet_batches(file, columns):
            yield Rows(table, replace(origins, numbers=EVERY[start:]))
            start += len(table)
    except PermissionError:
        raise UserError(f"{file} may not be read; change its permissions") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if problem := system_problem(error):
            raise UserError(f"{file} could not be read: {problem}") from None
        raise UserError(
            f"{file} is not a whole Parquet file ({first_line(error)}); fetch or write it again"
        ) from None


def _parquet_batches(file: Path, columns: Columns | None) -> Iterator[pa.Table]:
    with pq.ParquetFile(regular(file)) as parquet:
        schema, metadata = parquet.schema_arrow, parquet.metadata
        _require_distinct(list(schema), str(file))
        names = _chosen(schema, columns)
        if not names or not metadata.num_rows:
            yield parquet.read(names)
            return
        kinds = {name: schema.field(name).type for name in names}
        plain = pa.schema(
            {n: _plain(pa.array([], kind)).type for n, kind in kinds.items()}, schema.metadata
        )
        stored = sum(
            metadata.row_group(number).total_byte_size
            for number in range(metadata.num_row_groups)
        )
        batch = min(_BATCH, max(1, _BATCH_BYTES * metadata.num_rows // max(stored, 1)))
        count = 0
        for rows in parquet.iter_batches(batch, columns=names):
            # pyarrow 26 makes invalid lists where it casts lists of nulls to their own type
            values = [
                column if column.type == field.type else _plain(column).cast(field.type)
                for column, field in zip(rows.columns, plain, strict=True)
            ]
            table = pa.Table.from_arrays(values, schema=plain)
            table.validate(full=True)
            count += table.num_rows
            yield table
        if count != metadata.num_rows:
            raise pa.ArrowInvalid(f"it holds {count:,} of {metadata.num_rows:,} rows")


def _plain(column: pa.Array) -> pa.Array:
    """Return a column in a type that all of pyarrow's functions take: no categories, and no views of texts."""
    column = (
        column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    )
    has_views = re.search("(string|binary)_view", str(column.type))
    return pl.Series(column).to_arrow() if has_views else column


def _chosen(schema: pa.Schema, columns: Columns | None) -> list[str]:
    chosen = columns(schema) if callable(columns) else columns
    return [name for name in schema.names if chosen is None or name in chosen]


def _require_distinct(fields: Sequence[pa.Field], place: str, where: str = "") -> None:
    """Refuse columns, or fields of a column, that can't be told apart."""
    names = [field.name for field in fields]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise UserError(f"{place} has '{twice[:60]}' twice{where}; rename or drop one")
    for field in fields:
        inner = field.type
        while (
            pa.types.is_list(inner)
            or pa.types.is_large_list(inner)
            or pa.types.is_fixed_size_list(inner)
        ):
            inner = inner.value_type
        if pa.types.is_struct(inner):
            _require_distinct(list(inner), place, f" in '{field.name[:60]}'")


def places_of_rows(file: Path) -> list[tuple[str, int]]:
    """For each row of a file, whether it is a line or a row, and its number, from 1."""
    if file.suffix == ".parquet":
        return [("row", at) for at in range(1, 1 + pq.read_metadata(file).num_rows)]
    if not is_json(file):
        return [("line", at) for at, _ in _csv_rows(file)][1:]
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


def _csv_table(file: Path) -> pa.Table:
    """The rows below a line of names, values as text; null where they are empty.

    A column of chat turns is read as such, in JSON or as Python writes them. In tables with a column prompt_id, as olr
    writes them, texts lose the apostrophe that keeps a spreadsheet from taking them for formulas.
    """
    head, *rows = [row for _, row in _csv_rows(file)] or [[]]
    names = [name.strip() for name in head]
    if "prompt_id" in names:
        rows = [[value[1:] if _QUOTED.match(value) else value for value in row] for row in rows]
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    cells = [
        _csv_cells([value or None for value in column], f"{file}: '{name}'")
        for name, column in zip(names, columns, strict=True)
    ]
    table = pa.Table.from_arrays(cells, names)
    _require_distinct(list(table.schema), str(file))
    return table


def _csv_cells(texts: list[str | None], place: str) -> pa.Array:
    if any(texts) and all(_TURNS.match(text) for text in texts if text):
        values = [text and written(text) for text in texts]
        if all(messages(value) for value, text in zip(values, texts, strict=True) if text):
            return _column(values, place)
    return pa.array(texts, pa.large_string())


def _csv_rows(file: Path) -> Iterator[tuple[int, list[str]]]:
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


def json_batches(
    file: Path, note_cut: Callable[[int], object] | None = None
) -> Iterator[list[dict[str, Any]]]:
    """The objects of a JSON Lines file, some at a time, or of a file that is one JSON array.

    `note_cut` takes the number of a last line that its writer did not complete, which is an error without it.
    """
    rows: list[dict[str, Any]] = []
    place = ""
    try:
        for number, line in enumerate(read_lines(file, is_cut=note_cut is not None), start=1):
            text = line.strip()
            if not place and text[:1] == "[":
                break
            if text:
                place = f", line {number}"
                try:
                    value = _parsed(text)
                except json.JSONDecodeError:
                    if note_cut is None or text[0] != "{" or line.endswith("\n"):
                        raise
                    note_cut(number)
                    continue
                rows.append(_object(value, f"{file}{place}"))
            if len(rows) == _BATCH_OF_OBJECTS:
                yield rows
                rows = []
        else:
            yield rows
            return
        array = _parsed(read_text(file))
        yield [
            _object(row, f"{file}, row {at} (counted from 1)")
            for at, row in enumerate(array, start=1)
        ]
    except ValueError as error:
        raise UserError(f"{file}{place} is not valid JSON: {error}") from None
    except RecursionError:
        raise UserError(
            f"{file} has values that are nested too deeply to be prompts; check what it is"
        ) from None


def _parsed(text: str) -> Any:
    """The value of a JSON text, in which Python's NaN is a missing value, as in a column of numbers."""
    return parse_json(text, lambda name: None if name == "NaN" else float(name))


def _object(value: object, place: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise UserError(
            f"{place}: a row must be a JSON object, and this is {_KINDS[type(value)]}"
        )
    return value


def json_table(
    rows: Sequence[dict[str, Any]], place: str, names: Iterable[str] | None = None
) -> pa.Table:
    """JSON objects as a table, of the keys `names` or of all.

    A column that mixes numbers and text becomes text, and one that mixes these and lists becomes lists.
    """
    names = dict.fromkeys(chain(*rows)) if names is None else names
    try:
        return pa.table(
            {
                name: _column([row.get(name) for row in rows], f"{place}: '{name}'")
                for name in names
            }
        )
    except UnicodeEncodeError:
        raise UserError(
            f"{place} has half of a surrogate pair, which is no character; fix its text"
        ) from None


def _column(values: list[Any], place: str, level: int = 1) -> pa.Array:
    """Values as an Arrow array: structs and lists by their parts, scalars of one kind as they are, else as text.

    Raises:
        UserError: the values are nested too deeply, or mix kinds that have no common form.
    """
    if level > _MOST_LEVELS:
        raise UserError(
            f"{place[:200]} is nested too deeply, more than {_MOST_LEVELS} levels; flatten it or leave it out"
        )
    values = _scalars_as_lists(values)
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {dict}:
        return _struct_array(values, place, level)
    if kinds == {list}:
        return _list_array(values, place, level)
    if len(kinds) <= 1:
        with suppress(OverflowError):  # whole numbers beyond 64 bits become text
            return pa.array(values)
    if len(kinds) <= 1 or kinds <= {str, int, float}:
        return pa.array([it if it is None or type(it) is str else spelled(it) for it in values])
    names = sorted(map(_KINDS.__getitem__, kinds))
    raise UserError(f"{place} mixes {' and '.join(names)}; make them one kind")


def _struct_array(values: list[Any], place: str, level: int) -> pa.Array:
    """Objects as an array of structs with the fields of all of them."""
    names = list(dict.fromkeys(chain.from_iterable(filter(None, values))))
    if not names:  # Parquet has no struct without fields
        return pa.nulls(len(values))
    fields = [
        _column(
            [(value or {}).get(name) for value in values], f"{place[:-1]}.{name}'", level + 1
        )
        for name in names
    ]
    return pa.StructArray.from_arrays(
        fields, names, mask=pa.array([value is None for value in values])
    )


def _list_array(values: list[Any], place: str, level: int) -> pa.Array:
    """Lists as an array of lists, whose items are one column."""
    items = _column([item for value in values if value for item in value], place, level + 1)
    ends = accumulate((len(value or ()) for value in values), initial=0)
    is_missing = pa.array([value is None for value in values])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items, mask=is_missing)


def _scalars_as_lists(values: list[Any]) -> list[Any]:
    """Values beside lists as lists: an answer beside several, or a text beside a message's parts.

    Texts beside chats stay as they are: a text is no turn, and what mixes them is an error.
    """
    kinds = set(map(type, values)) - {type(None)}
    if list not in kinds or kinds == {list} or not kinds <= {list, str, int, float}:
        return values
    items = [item for value in values if type(value) is list for item in value]
    are_parts = any("type" in item for item in items if type(item) is dict)
    if not are_parts and dict in map(type, items):
        return values

    def wrapped(value: Any) -> Any:
        return {"type": "text", "text": value} if are_parts else value

    return [it if it is None or type(it) is list else [wrapped(it)] for it in values]


_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
}
_KINDS |= {dict: "an object", type(None): "null"}
