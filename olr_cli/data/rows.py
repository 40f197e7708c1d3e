"""Rows of files, and their columns as texts and numbers; nothing here knows what a prompt is."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from olr_cli.data.chat import message
from olr_cli.data.columns import MESSAGE_COLUMNS
from olr_cli.data.values import Origins, own_digits, row_error, spelled
from olr_cli.errors import UserError, did_you_mean


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
            or any(walk(value, steps) is not None for value in self._python(column, path))
        )

    def values(self, path: str) -> list[Any]:
        """The value of every row at a path; None where there is none."""
        column, steps = self._column(path)
        if column is None:
            return [None] * len(self)
        values = self._python(column, path)
        return [walk(value, steps) for value in values] if steps else values

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
        texts = [
            self._text(value, path, row) for row, value in enumerate(self.values(path))
        ]
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
            doubles = pa.chunked_array(
                [pa.array(map(_number, self.texts(path)), pa.float64())]
            )
        # NaN is how pandas writes a missing number; a text that is no number has become infinite.
        known = pc.if_else(pc.is_nan(doubles), None, doubles)
        wrong = pc.index(pc.is_inf(known), True).as_py()
        if wrong >= 0:
            what = repr(self.values(path)[wrong])
            raise row_error(self.origins.name(wrong), path, what[:60], "a finite number")
        return known

    def _column(self, path: str) -> tuple[pa.ChunkedArray | None, list[str]]:
        """The column or struct field that a path leads to, and the steps that remain below it; None without one."""
        names = self.table.column_names
        if path in names:
            return self.table.column(path), []
        name, *steps = path.split(".")
        if name not in names:
            return None, []
        column = self.table.column(name)
        while steps and pa.types.is_struct(column.type):
            if column.type.get_field_index(steps[0]) < 0:
                return None, []
            column = pc.struct_field(column, steps.pop(0))
        is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
        return (column, steps) if is_list or not steps else (None, [])

    def _python(self, column: pa.ChunkedArray, path: str) -> list[Any]:
        try:
            values = list(column.to_pylist())
            # Floats of 16 and 32 bits may be deep in any type; most columns have no floats at all.
            if "float" in str(column.type):
                values = [_own(value, column.type) for value in values]
            return values
        # Of pyarrow, or of an unknown time zone
        except (
            ValueError,
            OverflowError,
            KeyError,
        ):
            raise UserError(
                f"{self.place}: column '{path}' holds {column.type} values that cannot be read",
                "write them as text",
            ) from None

    def _text(self, value: object, path: str, row: int) -> str | None:
        # Data sets with several answers a row have lists of one where there is one.
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
        raise row_error(self.origins.name(row), path, _described(value), "text or a number")


def _described(value: object) -> str:
    """Return what a value is that is neither text nor a number, for an error."""
    if isinstance(value, list):
        return f"a list of {len(value)} value{'s' * (len(value) != 1)}"
    return str(value) if isinstance(value, float) else f"a {type(value).__name__}"


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
    # numpy's own type spells the digits that so few bits hold.
    if pa.types.is_float16(kind) or pa.types.is_float32(kind):
        return own_digits(kind.to_pandas_dtype()(value))
    if pa.types.is_struct(kind):
        return {field.name: _own(value[field.name], field.type) for field in kind}
    if isinstance(value, list) and not pa.types.is_map(kind):
        return [_own(item, kind.value_type) for item in value]
    return _own(value, kind.value_type) if pa.types.is_dictionary(kind) else value


def walk(value: Any, steps: Sequence[str]) -> Any:
    """Return what the steps of a path lead to within a value; None where they lead nowhere."""
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        # A step into a list is the number of an item, or else the role of a chat's turn.
        elif isinstance(value, list) and step.isdecimal():
            value = value[int(step)] if int(step) < len(value) else None
        elif isinstance(value, list):
            contents = [
                turn.content
                for turn in filter(None, map(message, value))
                if turn.role == step
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
    # A misspelt column must not fall back to a usual one in silence.
    lacking = next((path for path in named.values() if not has(path)), None)
    if lacking is not None:
        raise UserError(
            f"{place} has no '{lacking}'{did_you_mean(lacking, available)}",
            f"its columns are {', '.join(available)}",
        )
    usual = (
        (role, next(filter(has, paths), None))
        for role, paths in roles.items()
        if role not in named
    )
    return {**{role: path for role, path in usual if path is not None}, **named}


def suggested(
    likely: Mapping[str, Sequence[str]],
    available: Sequence[str],
    named: Mapping[str, str] = {},
) -> str:
    """A guess at which column holds what, as a recipe writes it: ``{question: Question, answer: COLUMN}``.

    `likely` has the names that the column of a role often has, the likeliest first.
    """
    parts, left = [], list(available)
    for role, words in likely.items():
        path = named.get(role) or _likeliest(left, words) or "COLUMN"
        # No column is suggested for two roles.
        left = [other for other in left if other != path]
        is_plain = re.fullmatch(r"[A-Za-z_][\w.-]*", path)
        parts.append(
            f"{role}: {path if is_plain else json.dumps(path, ensure_ascii=False)}"
        )
    return f"{{{', '.join(parts)}}}"


def _likeliest(available: Sequence[str], words: Sequence[str]) -> str | None:
    """The path whose last name is one of `words`, whatever its case, or else has it as a word in it."""
    # A column of exactly that name comes before one that has it as a word.
    for is_like in (
        lambda name, word: name == word,
        lambda name, word: word in re.split(r"[\W_]+", name),
    ):
        for word in words:
            for path in available:
                if is_like(path.rpartition(".")[2].lower(), word):
                    return path
    return None
