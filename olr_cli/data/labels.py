"""Read right answers from cells: one rule for files, trainers' rows and logs of evaluations."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

from olr_cli.answers import after_hashes, boxed, is_match, tagged
from olr_cli.data.columns import LABEL_COLUMNS
from olr_cli.data.values import Origins, own_digits, row_error, spelled, written

if TYPE_CHECKING:
    from olr_cli.data.rows import Rows

_Read = TypeVar("_Read")

_WRITTEN = re.compile(r"""\[\s*["'].*\]|\{\s*["'].*\}""", re.DOTALL)
_NAMED = re.compile(r"(?i)(?:(?:the|final) )*answer(?: is)?\s*[:=]\s*(?=\S)")
_TESTS = re.compile(
    r"""(?s)\s*[\[{].{0,300}?["'](?:inputs?|outputs?|fn_name|test_?(?:cases|list|type)|unit_?tests)["']\s*:"""
    r"""|(?:.{0,500}?\n)?[\s\["']{0,20}(?:assert\s[^\n]*[=(]|def (?:check|test\w*)\()"""
)
"""Tests of programs: inputs and outputs in JSON (APPS, Eurus-2), assertions (MBPP), test functions (HumanEval)."""

_LARGEST = 3e38
"""Bound of the floats that 32 bits can hold."""

_BLANK = " \n\r\xa0\u3000"
"""Spaces that may precede an answer.

A tab or form feed is none of them: it may be the rest of `\\text` or `\\frac` that lost its backslash.
"""


def golds_of(cell: Any) -> tuple[str, ...]:
    r"""Return the right answers in a cell as texts; the tuple is empty if the cell is missing or blank.

    A cell may be a text, a number, a list of right answers, or an object that has the answer under one of the keys in
    `LABEL_COLUMNS`, such as ``answer``. A text may also spell a list or such an object, in JSON or as a Python literal.

    Of a worked solution, only the final answer counts: the last ``<answer>`` or ``\boxed{…}``, else the first
    non-blank line of what follows the last ``####``. If that line is a heading, all text after the ``####`` counts.

    Raises:
        ValueError: the cell can't be an answer; the message describes the cell.
    """
    if hasattr(cell, "dtype"):
        cell = _of_numpy(cell)
    match cell:
        case None:
            return ()
        case str():
            return _golds_of_text(cell)
        case list() | tuple():
            return tuple(dict.fromkeys(gold for item in cell for gold in golds_of(item)))
        case dict() if not cell.keys().isdisjoint(LABEL_COLUMNS):
            # `LABEL_COLUMNS` has the likeliest name first, so the first that is not null counts.
            named = (cell.get(name) for name in LABEL_COLUMNS)
            return golds_of(next((value for value in named if value is not None), None))
        case int() | float() | Decimal() if not isinstance(cell, bool):
            return _gold_of_number(cell)
    raise ValueError("tests of a program" if is_tests(cell) else f"a {type(cell).__name__}")


def _golds_of_text(text: str) -> tuple[str, ...]:
    """Return the right answers in a text, which may be a list or an object written as JSON or in Python's form."""
    # Most labels are whole numbers, so return these without any search.
    if text.isdecimal():
        return (text,)
    written = _written(text)
    if written is not None:
        return golds_of(written)
    return tuple(filter(None, [_answer(text)]))


def _of_numpy(cell: Any) -> Any:
    """Convert a scalar of numpy to a Python value, or an array to a list of its items."""
    if cell.ndim:
        return list(cell)
    return own_digits(cell) if cell.dtype.kind == "f" else cell.item()


def _gold_of_number(number: float | Decimal) -> tuple[str, ...]:
    """Return a number as a tuple of one text; NaN is a missing value and gives an empty tuple.

    Raises:
        ValueError: the number is infinite.
    """
    if math.isnan(number):
        return ()
    if math.isinf(number):
        raise ValueError(str(number) if isinstance(number, float) else "a Decimal")
    return (spelled(_short(number) if isinstance(number, float) else number),)


def _short(number: float) -> float:
    """Undo a rounding to 32 bits: return 0.1 for 0.10000000149011612, and any other float unchanged.

    A data set has such floats if numbers with 32 bits were stored with 64. Only numbers of up to six digits are
    restored.
    """
    # 32 bits keep at least six digits: if the short decimal has the same 32 bits, it is what was written.
    short = float(f"{number:.6g}")
    is_short = (
        abs(number) < _LARGEST and number == struct.unpack("f", struct.pack("f", short))[0]
    )
    return short if is_short else number


def is_tests(cell: Any) -> bool:
    """Return whether a cell holds the tests of a program, as a text or an object, instead of an answer."""
    return isinstance(cell, (str, dict, list)) and _TESTS.match(str(cell)) is not None


def label_of(cell: Any) -> str | None:
    """Return the one answer in a cell, or None if the cell has none.

    If the cell has several answers, the first is returned, provided that it matches all others.

    Raises:
        ValueError: the cell can't be an answer, or its answers differ; the message describes the cell.
    """
    first, *others = golds_of(cell) or (None,)
    if first is not None and (
        other := next((it for it in others if not is_match(first, it)), None)
    ):
        raise ValueError(
            f"a list of {1 + len(others)} answers that differ ('{first[:30]}', '{other[:30]}'), each"
            " read as the whole answer"
        )
    return first


def read_labels(rows: Rows, path: str | None) -> list[str | None]:
    """Read a column of labels; return one label for each row, None where it is missing or blank.

    `path` names the column. If it is None, there is no such column, and all labels are None.

    Raises:
        UserError: a cell cannot be a label.
    """
    if path is None:
        return [None] * len(rows)
    return read_cells(label_of, rows.values(path), rows.origins, path)


def read_cells(
    read: Callable[[Any], _Read], cells: Iterable[Any], origins: Origins, path: str
) -> list[_Read]:
    """Apply `read`, such as `golds_of` or `label_of`, to every cell of a column and return the results.

    If `read` raises ValueError with a description of the cell, the user gets an error that also names the row, by
    `origins`, and the column, by `path`.

    Raises:
        UserError: a cell cannot be read.
    """
    labels = []
    for row, cell in enumerate(cells):
        try:
            labels.append(read(cell))
        except ValueError as error:
            raise row_error(
                origins.name(row), path, str(error), "text or a number: one answer"
            ) from None
    return labels


def _written(text: str) -> Any:
    """Parse a text that spells a list of texts or an object of labels, in JSON or in Python's form.

    An object of labels has one of the keys in `LABEL_COLUMNS`, such as ``answer``. Return None for any other text.
    """
    text = text.strip()
    # Only lists of quoted texts count: `[1, 2]` may be an interval, and `{1, 2}` a set.
    value = written(text) if _WRITTEN.fullmatch(text) else None
    if isinstance(value, list):
        return value if {*map(type, value)} <= {str} else None
    return None if value is None or {*LABEL_COLUMNS}.isdisjoint(value) else value


def _answer(text: str) -> str:
    """Return the final answer in a text; a text that is no worked solution is itself the answer."""
    last = (
        tagged(text, "answer")
        or boxed(text)
        or (after_hashes(text, _BLANK) or text.rpartition("####")[2])
        .rstrip()
        .lstrip(_BLANK)
    )
    return last[named.end() :] if (named := _NAMED.match(last)) else last
