"""From what a cell holds to the answers that are right: one rule for files, trainers' rows and logs of evaluations."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

from olr_cli.answers import boxed, is_match, tagged
from olr_cli.data.columns import LABEL_COLUMNS
from olr_cli.data.values import Origins, own_digits, row_error, spelled, written

if TYPE_CHECKING:
    from olr_cli.data.rows import Rows

_Read = TypeVar("_Read")

_WRITTEN = re.compile(r"""\[\s*["'].*\]|\{\s*["'].*\}""", re.DOTALL)
_NAMED = re.compile(r"(?i)(?:(?:the|final) )*answer(?: is)?\s*[:=]\s*(?=\S)")
_LARGEST = 3e38
"""That 32 bits hold."""
_BLANK = " \n\r\xa0\u3000"
"""What may stand before an answer; not a tab or form feed: it may be what is left of `\\text` or `\\frac`."""


def golds_of(cell: Any) -> tuple[str, ...]:
    r"""The answers of a cell, each of which is right; none where it is missing or blank.

    A cell is a text or a number, also of numpy; a list of them, any of which is right; or an object with one of
    `LABEL_COLUMNS`. Lists of texts and objects may be written as JSON or as Python does. Of a worked solution the
    answer is what the last ``<answer>`` or ``\boxed{…}`` holds, else what follows the last ``####``.

    Raises:
        ValueError: what the cell is, if it can't be an answer.
    """
    if hasattr(cell, "dtype"):
        cell = (
            list(cell)
            if cell.ndim
            else own_digits(cell)
            if cell.dtype.kind == "f"
            else cell.item()
        )
    if isinstance(cell, str):
        written = _written(cell)
        return (
            golds_of(written) if written is not None else tuple(filter(None, [_answer(cell)]))
        )
    if cell is None or (isinstance(cell, float | Decimal) and math.isnan(cell)):
        return ()
    if isinstance(cell, list | tuple):
        return tuple(dict.fromkeys(gold for item in cell for gold in golds_of(item)))
    if isinstance(cell, dict) and (
        named := [cell[name] for name in LABEL_COLUMNS if name in cell]
    ):
        return golds_of(next((value for value in named if value is not None), None))
    if (
        isinstance(cell, int | float | Decimal)
        and not isinstance(cell, bool)
        and math.isfinite(cell)
    ):
        return (spelled(_short(cell) if isinstance(cell, float) else cell),)
    raise ValueError(str(cell) if isinstance(cell, float) else f"a {type(cell).__name__}")


def _short(number: float) -> float:
    """A float of 32 bits that comes as a double, as data sets hand on 0.1: with up to six digits, the decimal one."""
    short = float(f"{number:.6g}")
    is_short = (
        abs(number) < _LARGEST and number == struct.unpack("f", struct.pack("f", short))[0]
    )
    return short if is_short else number


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
            f"a list of {1 + len(others)} answers that differ ('{first[:30]}', '{other[:30]}')"
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
    value = written(text) if _WRITTEN.fullmatch(text) else None
    if isinstance(value, list):
        return value if {*map(type, value)} <= {str} else None
    return None if value is None or {*LABEL_COLUMNS}.isdisjoint(value) else value


def _answer(text: str) -> str:
    """The answer in a text, which may be a worked solution."""
    last = (
        tagged(text, "answer")
        or boxed(text)
        or text.rpartition("####")[2].rstrip().lstrip(_BLANK)
    )
    return last[named.end() :] if (named := _NAMED.match(last)) else last
