"""Values of rows, and where these stand in files: what also rewards need that read no file, so without pyarrow."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from olr_cli.data.places import places_of_rows
from olr_cli.errors import UserError

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
    """

    source: str
    files: Sequence[Path] = ()
    numbers: Sequence[int] = EVERY

    def take(self, rows: Iterable[int]) -> Origins:
        """The origins of some of the rows."""
        return replace(self, numbers=[self.numbers[row] for row in rows])

    def name(self, row: int, *, is_short: bool = False) -> str:
        """``line 33 of f2.csv``; where rows are no lines, ``row 31 of f.parquet, counted from 1``.

        If it `is_short`, and there is one file, no more than ``line 33`` or ``row 31``.
        """
        number = self.numbers[row]
        unit, at, file = (
            self._places[number] if self.files else ("row", number + 1, self.source)
        )
        if is_short and len(self.files) < 2:
            return f"{unit} {at}"
        return f"{unit} {at} of {file}{', counted from 1' * (unit == 'row')}"

    @cached_property
    def _places(self) -> list[tuple[str, int, str]]:
        return [
            (unit, at, str(file)) for file in self.files for unit, at in places_of_rows(file)
        ]


def row_error(name: str, path: str, what: str, should: str) -> UserError:
    """The error for a value that is not what its column should hold, in the row of that name."""
    return UserError(f"{name}: '{path}' is {what}, and it should be {should}")


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
    for parse in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return parse(text)
    return None
