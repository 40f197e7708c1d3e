"""Rows of files, and their columns as texts and numbers. Nothing here knows what a prompt is."""

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
    """All or some rows of a file, with methods that read the values at a path.

    A path names a column (``Question``), a field of a struct (``meta.gold``) or an item of a list (``answers.0``). In a
    list of chat turns, it names the last turn of a role (``messages.assistant``).

    Ids and labels are read as text. If a column of whole numbers has empty cells, many programs export it as floats; so
    `14.0` is read as 14, and NaN as a missing value. A float of 16 or 32 bits is read as the number that it is printed
    as, such as 0.1.
    """

    table: pa.Table
    """The rows, with the columns that were read."""

    origins: Origins
    """The origins of the rows, for errors."""

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def place(self) -> str:
        """The name of the source, for errors."""
        return self.origins.source

    def take(self, rows: Sequence[int]) -> Rows:
        """Return some of the rows, given by their indices, in that order."""
        return Rows(self.table.take(list(rows)), self.origins.take(rows))

    @property
    def paths(self) -> list[str]:
        """Paths of all columns; for a struct, the paths of its fields."""
        return [path for field in self.table.schema for path in _paths(field, field.name)]

    def has(self, path: str) -> bool:
        """Return whether a path leads anywhere.

        A path to a column or to a field of a struct must be in the table's schema. A path into a list must lead to a
        value in at least one row.
        """
        column, steps = self._column(path)
        return column is not None and (
            not steps
            or any(
                walk(value, steps) is not None
                for value in self._python_values(column, path)
            )
        )

    def values(self, path: str) -> list[Any]:
        """Return for each row the value that a path leads to, or None if it leads nowhere."""
        column, steps = self._column(path)
        if column is None:
            return [None] * len(self)
        values = self._python_values(column, path)
        return [walk(value, steps) for value in values] if steps else values

    def texts(self, path: str | None) -> list[str | None]:
        """Return for each row the text that a path leads to, or None if the text is missing or blank.

        If `path` is None or leads nowhere, all texts are None. A list with one item counts as that item, and a number
        becomes text.

        Raises:
            UserError: a value is neither text nor a number.
        """
        if path is None:
            return [None] * len(self)
        return [
            text if text and text.strip() else None
            for text in self.text_column(path).to_pylist()
        ]

    def text_column(self, path: str) -> pa.ChunkedArray:
        """Return a column with the text that a path leads to in each row, null where it is missing.

        If the path leads nowhere, all rows are null. Blank texts are kept, unlike in `texts`. A list with one item
        counts as that item, and a number becomes text.

        Raises:
            UserError: a value is neither text nor a number.
        """
        column, steps = self._column(path)
        if column is not None and not steps:
            dtype, types = column.type, pa.types
            is_text = (
                types.is_string(dtype)
                or types.is_large_string(dtype)
                or types.is_string_view(dtype)
            )
            # These convert as a whole column. Floats do not: a cast spells NaN, which is a missing value, as `nan`.
            if is_text or types.is_integer(dtype) or types.is_null(dtype):
                return column.cast(pa.large_string())
        texts = [
            self._as_text(value, path, row) for row, value in enumerate(self.values(path))
        ]
        return pa.chunked_array([pa.array(texts, pa.large_string())])

    def numbers(self, path: str) -> pa.ChunkedArray:
        """Return a column of doubles with the number that a path leads to in each row, null where it is missing.

        If the path leads nowhere, all rows are null. A text that spells a number counts as this number.

        Raises:
            UserError: a value is no finite number.
        """
        column, steps = self._column(path)
        dtype, types = None if column is None else column.type, pa.types
        if (
            column is not None
            and not steps
            and (types.is_integer(dtype) or types.is_floating(dtype))
        ):
            # Unsafe, because a safe cast refuses integers that a double can only hold rounded.
            doubles = column.cast(pa.float64(), safe=False)
        else:
            doubles = pa.chunked_array(
                [pa.array(map(_to_float, self.texts(path)), pa.float64())]
            )
        # NaN is how pandas writes a missing number. A text that is no number has become infinite (`_to_float`).
        finite = pc.if_else(pc.is_nan(doubles), None, doubles)
        first_infinite = pc.index(pc.is_inf(finite), True).as_py()
        if first_infinite >= 0:
            value = repr(self.values(path)[first_infinite])
            raise row_error(
                self.origins.name(first_infinite), path, value[:60], "a finite number"
            )
        return finite

    def _column(self, path: str) -> tuple[pa.ChunkedArray | None, list[str]]:
        """Return the column or struct field that a path leads to, and the remaining steps of the path.

        Steps remain only below a list; the caller follows them in each value (`walk`). If the path leads nowhere, the
        column is None.
        """
        names = self.table.column_names
        # Try the whole path first: the name of a column may itself have dots.
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
        # Lists have no Arrow fields: `walk` follows the steps below them, value by value.
        is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
        return (column, steps) if is_list or not steps else (None, [])

    def _python_values(self, column: pa.ChunkedArray, path: str) -> list[Any]:
        """Convert a column to Python values, or raise UserError for values that Python cannot hold."""
        try:
            values = list(column.to_pylist())
            # Floats of 16 and 32 bits may be deep in any type; most columns have no floats at all.
            if "float" in str(column.type):
                values = [_exact_floats(value, column.type) for value in values]
            return values
        # An unknown time zone is a ValueError of pyarrow or a KeyError of zoneinfo.
        except (
            ValueError,
            OverflowError,
            KeyError,
        ):
            raise UserError(
                f"{self.place}: column '{path}' holds {column.type} values that cannot be read",
                "write them as text",
            ) from None

    def _as_text(self, value: object, path: str, row: int) -> str | None:
        """Return a value as text, or None if it is missing; a list with one item counts as that item.

        `path` and `row` say in errors where the value is.

        Raises:
            UserError: the value is neither text nor a number.
        """
        # Data sets with several answers a row hold a single answer as a list of one.
        if isinstance(value, list) and len(value) <= 1:
            value = value[0] if value else None
        # Only NaN differs from itself.
        if value is None or value != value:
            return None
        if isinstance(value, str):
            return value
        # In Python a bool is an int, but `True` is no number here.
        if (
            isinstance(value, int | float | Decimal)
            and not isinstance(value, bool)
            and math.isfinite(value)
        ):
            return spelled(value)
        raise row_error(self.origins.name(row), path, _described(value), "text or a number")


def _described(value: object) -> str:
    """Describe a value that is neither text nor a number, for an error."""
    if isinstance(value, list):
        return f"a list of {len(value)} value{'s' * (len(value) != 1)}"
    return str(value) if isinstance(value, float) else f"a {type(value).__name__}"


def _paths(field: pa.Field, path: str) -> Iterator[str]:
    """Yield the path of a column or, if it is a struct, the paths of its fields.

    A column of chats has a second path, that of the assistant's last turn (``messages.assistant``).
    """
    if pa.types.is_struct(field.type) and field.type.num_fields:
        for index in range(field.type.num_fields):
            subfield = field.type.field(index)
            yield from _paths(subfield, f"{path}.{subfield.name}")
    else:
        yield path
        if path in MESSAGE_COLUMNS:
            yield f"{path}.assistant"


def _exact_floats(value: Any, dtype: pa.DataType) -> Any:
    """Return a value in which floats of 16 or 32 bits are replaced by doubles with the same printed digits.

    A float of 32 bits that Python shows as 0.10000000149 becomes 0.1. `dtype` is the Arrow type of the value, which may
    be nested.
    """
    if value is None:
        return None
    # numpy's type of the same size prints the few digits that these bits hold.
    if pa.types.is_float16(dtype) or pa.types.is_float32(dtype):
        return own_digits(dtype.to_pandas_dtype()(value))
    if pa.types.is_struct(dtype):
        return {field.name: _exact_floats(value[field.name], field.type) for field in dtype}
    if isinstance(value, list) and not pa.types.is_map(dtype):
        return [_exact_floats(item, dtype.value_type) for item in value]
    return (
        _exact_floats(value, dtype.value_type) if pa.types.is_dictionary(dtype) else value
    )


def walk(value: Any, steps: Sequence[str]) -> Any:
    """Follow the steps of a path into a value; return the part that they lead to, or None if they lead nowhere.

    A step is a key of a dict, the index of an item of a list, or a role. A role, such as ``assistant``, leads to the
    content of the last chat turn of that role.
    """
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        # A step into a list is the number of an item, or else the role of a chat turn.
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


def _to_float(text: str | None) -> float | None:
    """Return the number that a text spells, or None for None.

    A text that spells no number gives infinity, which `Rows.numbers` reports as an error.
    """
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
    """Choose a column for each role: the path that the user has named, else the first usual path that exists.

    A role is what a column holds, such as ``question``.

    Args:
        has: function that returns whether the file has a path.
        roles: role -> usual paths of its column.
        named: role -> path of its column, as the user sets it.
        place: the file, for errors.
        available: the columns of the file, for errors.

    Returns:
        role -> path of its column, without the roles for which there is no column.

    Raises:
        UserError: a path in `named` does not exist.
    """
    # Falling back to a usual column in silence would hide a misspelt name.
    missing_path = next((path for path in named.values() if not has(path)), None)
    if missing_path is not None:
        raise UserError(
            f"{place} has no '{missing_path}'{did_you_mean(missing_path, available)}",
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
    """Guess which columns play which roles; return a setting for a recipe: ``{question: Question, answer: COLUMN}``.

    A role is what a column holds. ``COLUMN`` stands where no column is likely.

    Args:
        likely: role -> frequent names of its column, the likeliest first; only these roles are in the setting.
        available: the columns of the file.
        named: role -> path of its column, for columns that are known already.
    """
    parts, left = [], list(available)
    for role, words in likely.items():
        path = named.get(role) or _likeliest(left, words) or "COLUMN"
        # Suggest a column for one role at most.
        left = [candidate for candidate in left if candidate != path]
        is_plain = re.fullmatch(r"[A-Za-z_][\w.-]*", path)
        parts.append(
            f"{role}: {path if is_plain else json.dumps(path, ensure_ascii=False)}"
        )
    return f"{{{', '.join(parts)}}}"


def _likeliest(available: Sequence[str], words: Sequence[str]) -> str | None:
    """Return the path whose last part is one of `words`, else one whose last part contains such a word, else None.

    Earlier words are preferred, and case is ignored.
    """
    # Exact names come first: `answer` is more likely to be the column than `answer_type`.
    for is_like in (
        lambda name, word: name == word,
        lambda name, word: word in re.split(r"[\W_]+", name),
    ):
        for word in words:
            for path in available:
                if is_like(path.rpartition(".")[2].lower(), word):
                    return path
    return None
