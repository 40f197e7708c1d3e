"""From what a cell holds to the answers that are right: one rule for files, trainers' rows and logs of evaluations."""

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
"""Inputs and outputs in JSON, as in APPS and Eurus-2, assertions as in MBPP, and functions of tests as in HumanEval."""
_LARGEST = 3e38
"""That 32 bits hold."""
_BLANK = " \n\r\xa0\u3000"
"""What may stand before an answer; not a tab or form feed: it may be what is left of `\\text` or `\\frac`."""


def golds_of(cell: Any) -> tuple[str, ...]:
    r"""The answers of a cell, each of which is right; none where it is missing or blank.

    A cell is a text or a number, also of numpy; a list of them, any of which is right; or an object with one of
    `LABEL_COLUMNS`. Lists of texts and objects may be written as JSON or as Python does. Of a worked solution the
    answer is what the last ``<answer>`` or ``\boxed{…}`` holds, else the line after the last ``####``, or all that
    follows it where that line is a heading.

    Raises:
        ValueError: what the cell is, if it can't be an answer.
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
            named = (cell.get(name) for name in LABEL_COLUMNS)
            return golds_of(next((value for value in named if value is not None), None))
        case int() | float() | Decimal() if not isinstance(cell, bool):
            return _gold_of_number(cell)
    raise ValueError("tests of a program" if is_tests(cell) else f"a {type(cell).__name__}")


def _golds_of_text(text: str) -> tuple[str, ...]:
    """Return the answers of a text, which may be a list or an object as a program writes it."""
    if text.isdecimal():
        return (text,)
    written = _written(text)
    if written is not None:
        return golds_of(written)
    return tuple(filter(None, [_answer(text)]))


def _of_numpy(cell: Any) -> Any:
    """Return a scalar or an array of numpy as Python's own values."""
    if cell.ndim:
        return list(cell)
    return own_digits(cell) if cell.dtype.kind == "f" else cell.item()


def _gold_of_number(number: float | Decimal) -> tuple[str, ...]:
    """Return a number as a gold; NaN is a missing value, and an infinite one is none."""
    if math.isnan(number):
        return ()
    if math.isinf(number):
        raise ValueError(str(number) if isinstance(number, float) else "a Decimal")
    return (spelled(_short(number) if isinstance(number, float) else number),)


def _short(number: float) -> float:
    """A float of 32 bits that comes as a double, as data sets hand on 0.1: with up to six digits, the decimal one."""
    # float32 keeps at least six digits, so a short decimal that it holds is what was written.
    short = float(f"{number:.6g}")
    is_short = (
        abs(number) < _LARGEST and number == struct.unpack("f", struct.pack("f", short))[0]
    )
    return short if is_short else number


def is_tests(cell: Any) -> bool:
    """Return whether a cell holds the tests of a program, as text or as an object, in place of an answer."""
    return isinstance(cell, (str, dict, list)) and _TESTS.match(str(cell)) is not None


def label_of(cell: Any) -> str | None:
    """The one answer of a cell, None if it has none; of several that match one another the first.

    Raises:
        ValueError: what the cell is, if it can't be an answer or its answers differ.
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
    """The label in every row at a path; None where there is none, or no such path."""
    if path is None:
        return [None] * len(rows)
    return read_cells(label_of, rows.values(path), rows.origins, path)


def read_cells(
    read: Callable[[Any], _Read], cells: Iterable[Any], origins: Origins, path: str
) -> list[_Read]:
    """Read the cells of a column by `golds_of` or `label_of`; the error names the column and the row."""
    found = []
    for row, cell in enumerate(cells):
        try:
            found.append(read(cell))
        except ValueError as error:
            raise row_error(
                origins.name(row), path, str(error), "text or a number: one answer"
            ) from None
    return found


def _written(text: str) -> Any:
    """The list of texts, or the object with a label, that a text writes; None if it writes neither."""
    text = text.strip()
    # Only quoted texts make a list here: `[1, 2]` may be an interval, and `{1, 2}` a set.
    value = written(text) if _WRITTEN.fullmatch(text) else None
    if isinstance(value, list):
        return value if {*map(type, value)} <= {str} else None
    return None if value is None or {*LABEL_COLUMNS}.isdisjoint(value) else value


def _answer(text: str) -> str:
    """The answer in a text, which may be a worked solution."""
    last = (
        tagged(text, "answer")
        or boxed(text)
        or (after_hashes(text, _BLANK) or text.rpartition("####")[2])
        .rstrip()
        .lstrip(_BLANK)
    )
    return last[named.end() :] if (named := _NAMED.match(last)) else last
