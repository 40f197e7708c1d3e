"""Columns as texts and numbers, whichever type their exporter gave them; nothing here knows what a prompt is.

Ids and labels are text. A column of whole numbers in which one is missing is often exported as floats, and `14.0` is
then the number 14; NaN is a missing value.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from olr_cli.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

_LARGEST = 2**64
"""From here on a float is written with its exponent: it says nothing of its last digits."""


def values(column: pa.ChunkedArray, name: str, place: str) -> list[Any]:
    """A column as Python values.

    Raises:
        UserError: Python has no such values, such as a moment after the year 9999.
    """
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError, KeyError):  # of pyarrow, or of an unknown time zone
        raise UserError(
            f"{place}: column '{name}' holds {column.type} values that cannot be read; write them as text"
        ) from None


def column_at(table: pa.Table, path: str) -> tuple[pa.ChunkedArray | None, list[str]]:
    """The column or struct field that a dotted path leads to, None without one, and the steps that remain below it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if path in table.column_names:
        return table.column(path), []
    name, *steps = path.split(".")
    column = table.column(name) if name in table.column_names else None
    while column is not None and steps and pa.types.is_struct(column.type):
        has_field = column.type.get_field_index(steps[0]) >= 0
        column = pc.struct_field(column, steps.pop(0)) if has_field else None
    return column, steps


def texts(
    column: pa.ChunkedArray, name: str, place: str, *, alone_in_list: bool = False, first: int = 0
) -> list[str | None]:
    """A column of texts or numbers as texts; None where a value is missing or blank.

    With `alone_in_list`, the only item of a list stands for the list. `name`, `place` and `first`, the number of the
    first row, are for errors.

    Raises:
        UserError: a value is neither text nor a number; its row is named.
    """
    column = text_column(column, name, place, alone_in_list=alone_in_list, first=first)
    return [None if text is None or not text.strip() else text for text in column.to_pylist()]


def text_column(
    column: pa.ChunkedArray, name: str, place: str, *, alone_in_list: bool = False, first: int = 0
) -> pa.ChunkedArray:
    """The same as a column of texts, in which blank ones stay as they are."""
    import pyarrow as pa

    kinds = pa.types
    kind = column.type
    is_text = kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind)
    if is_text or kinds.is_integer(kind) or kinds.is_null(kind):
        return column.cast(pa.large_string())
    texts_ = []
    for row, value in enumerate(values(column, name, place), start=first):
        if alone_in_list and isinstance(value, list) and len(value) <= 1:
            value = value[0] if value else None
        texts_.append(text_of(value, f"{place}: '{name}' of row {row} (the first is 0)"))
    return pa.chunked_array([pa.array(texts_, pa.large_string())])


def text_of(value: object, place: str) -> str | None:
    """A value as text; None if it is missing.

    Raises:
        UserError: it is neither text nor a number; `place` begins the sentence.
    """
    if value is None or value != value:  # NaN
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool) and math.isfinite(value):
        return spelled(value)
    kind = str(value) if isinstance(value, float) else f"a {type(value).__name__}"
    if isinstance(value, list):
        kind = f"a list of {len(value)} value{'s' * (len(value) != 1)}"
    raise UserError(f"{place} is {kind}, and it should be text or a number")


def spelled(number: float | Decimal) -> str:
    """A number as text: 14.0 is the whole number 14."""
    is_whole = -_LARGEST < number < _LARGEST and number == int(number)
    return str(int(number)) if is_whole else str(number)


def numbers(column: pa.ChunkedArray, name: str, place: str, *, first: int = 0) -> pa.ChunkedArray:
    """A column as doubles; null where a value is missing.

    Raises:
        UserError: a value is no finite number, and no text of one; its row is named, counted from `first` on.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        doubles = column.cast(pa.float64(), safe=False)
    else:
        values_ = [_number(text) for text in texts(column, name, place, first=first)]
        doubles = pa.chunked_array([pa.array(values_, pa.float64())])
    known = pc.if_else(pc.is_nan(doubles), None, doubles)
    wrong = pc.index(pc.is_inf(known), True).as_py()
    if wrong >= 0:
        raise UserError(
            f"{place}: '{name}' of row {first + wrong} (the first is 0) is not a finite number; mend the column"
        )
    return known


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return math.inf
