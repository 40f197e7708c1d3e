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


def texts(column: pa.ChunkedArray, name: str, place: str, *, alone_in_list: bool = False) -> list[str | None]:
    """A column of texts or numbers as texts; None where a value is missing or blank.

    With `alone_in_list`, the only item of a list stands for the list. `name` and `place` are for errors.

    Raises:
        UserError: a value is neither text nor a number; its row is named.
    """
    column = text_column(column, name, place, alone_in_list=alone_in_list)
    return [None if text is None or not text.strip() else text for text in column.to_pylist()]


def text_column(
    column: pa.ChunkedArray, name: str, place: str, *, alone_in_list: bool = False
) -> pa.ChunkedArray:
    """The same as a column of texts, in which blank ones stay as they are."""
    import pyarrow as pa

    kinds = pa.types
    kind = column.type
    is_text = kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind)
    if is_text or kinds.is_integer(kind):
        return column.cast(pa.large_string())
    texts_ = []
    for row, value in enumerate(values(column, name, place)):
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
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float | Decimal) and math.isfinite(value):
        is_whole = -_LARGEST < value < _LARGEST and value == int(value)
        return str(int(value)) if is_whole else str(value)
    kind = str(value) if isinstance(value, float) else f"a {type(value).__name__}"
    if isinstance(value, list):
        kind = f"a list of {len(value)} value{'s' * (len(value) != 1)}"
    raise UserError(f"{place} is {kind}, and it should be text or a number")


def numbers(column: pa.ChunkedArray, name: str, place: str) -> list[float | None]:
    """A column as numbers; None where a value is missing.

    Raises:
        UserError: a value is no finite number, and no text of one; its row is named.
    """
    numbers_: list[float | None] = []
    for row, text in enumerate(texts(column, name, place)):
        try:
            number = math.nan if text is None else float(text)
        except ValueError:
            number = math.inf
        if math.isinf(number):
            raise UserError(
                f"{place}: '{name}' of row {row} (the first is 0) is not a finite number; mend the column"
            )
        numbers_.append(None if math.isnan(number) else number)
    return numbers_
