"""Which column holds the labels, by what the columns hold, and what other columns say about the label of a row."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from olr_cli.answers import is_placeholder
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.choices import JOINED
from olr_cli.data.columns import (
    ANSWER_COLUMNS,
    GROUND_TRUTH,
    ID_COLUMNS,
    OF_PROMPTS,
    REPHRASED_COLUMN,
)
from olr_cli.data.labels import golds_of, is_tests
from olr_cli.data.rows import Rows

_LOOKED_AT = 100
"""Labels of a column that show what it holds."""
_PROSE = re.compile(r"(?s).{200}|(?:(?<![\\\w])[^\W\d_]{2,}\b.*?){8}")
_UNITS = frozenset({"unit", "units"})
_POWER = re.compile(
    r"10\s*(?:\^|\*\*|[⁻⁰¹²³⁴-⁹])|\d[eE][-+]?\d|\b(?i:thousand|[mbtr]+illion)s?\b"
)
"""What a unit has if the answer is the label times a power of ten: ``10^{-10} m``, ``million dollars``."""
_VALIDITY = frozenset({"valid", "validity", "invalid"})
_YES = re.compile(
    r"(?i)y(?:es)?|t(?:rue)?|ok|valid|correct|null|none|nan|unknown|0*\.?0*[1-9][\d.]*"
)
_READ_TOO = frozenset(
    ("data_source", "ability", "extra_info", "reward_model", REPHRASED_COLUMN, *ID_COLUMNS)
)
"""Columns besides those of `data.columns` that are read, or that the format of verl has in every file."""


def ordered(rows: Rows, role: str, names: Sequence[str]) -> list[str]:
    """Return the columns that a file has for a role, the one to read first.

    A column that is empty throughout comes last, and a column of short answers before labels in prose.
    """
    there = [*filter(rows.has, names)]
    if len(there) < 2:
        return there
    filled = [path for path in there if _is_filled(rows, path)]
    if role == "answer" and filled[:1] != [GROUND_TRUTH] and _is_prose(rows, filled[:1]):
        # Not `label`, which may name a topic, or say whether the row is good.
        filled.sort(key=lambda path: path not in ANSWER_COLUMNS or _is_prose(rows, [path]))
    return [*filled, *(path for path in there if path not in filled)]


def column_notes(rows: Rows, columns: Mapping[str, str]) -> Iterator[str]:
    """Yield sentences on what the column of labels (`columns`: role -> path) holds, and why it is not another one."""
    path = columns.get("answer")
    known = OF_PROMPTS["answer"].known
    if path is None:
        return
    for other in filter(rows.has, known[: known.index(path)] if path in known else ()):
        what = "is prose" if _is_filled(rows, other) else "has no answers"
        yield f"the labels are in '{path}', because '{other}' {what}"
    if _is_prose(rows, [path]):
        yield (
            f"most labels in '{path}' are prose, which hardly any response matches; if another column has short"
            " answers, name it: data.columns={answer: COLUMN}"
        )
    if any(len(golds) > 1 for golds in _first_golds(rows, path)):
        yield (
            f"'{path}' has lists: each item is read as the whole answer, and items that differ are no label; where all"
            " items together are the answer, write one text, such as `2, 3`"
        )


def beside(rows: Rows) -> dict[str, dict[int, str]]:
    """Return what columns of units and of validity say of rows: kind of finding -> row -> ``column: value``."""
    found: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for path in rows.paths:
        words = _words(path.rpartition(".")[2])
        if not words & (_UNITS | _VALIDITY):
            continue
        for row, value in enumerate(rows.values(path)):
            text = "" if value is None else str(value).strip()
            if words & _UNITS:
                is_found, kind = _POWER.search(text) is not None, "scale"
            else:
                is_valid = _YES.fullmatch(text) is not None
                is_found, kind = is_valid is ("invalid" in words), "not_valid"
            if text and is_found:
                found[kind].setdefault(row, f"{path}: {text}")
    return found


def not_read(rows: Rows, columns: Iterable[str]) -> list[str]:
    """Return the columns of a file that are not read, given the paths that are read for their roles."""
    parts = (part for path in columns for part in (path, *path.split(JOINED)))
    read = {part.partition(".")[0] for part in parts} | _READ_TOO
    names = (name for name in rows.table.column_names if name not in read)
    return [name for name in names if not _words(name) & _VALIDITY]


def _words(name: str) -> set[str]:
    """Return the words in the name of a column."""
    return {*re.split(r"[\W_]+", name.lower())}


def _is_filled(rows: Rows, path: str) -> bool:
    """Return whether some row has a value at a path."""
    return not all(map(_is_empty, _head(rows, path))) or not all(
        map(_is_empty, rows.values(path))
    )


def _is_empty(cell: Any) -> bool:
    """Return whether a cell has no value, or a placeholder such as ``None``; noise is a value."""
    if isinstance(cell, str):
        return is_placeholder(cell) and cell.strip() != SENTINEL
    return cell is None or cell != cell or cell == []


def _is_prose(rows: Rows, paths: Sequence[str]) -> bool:
    """Return whether most labels at the first of the paths, if there is one, are sentences."""
    labels = [golds[0] for path in paths[:1] for golds in _first_golds(rows, path)]
    return 2 * sum(_PROSE.search(label) is not None for label in labels) > len(labels)


def _first_golds(rows: Rows, path: str) -> Iterator[tuple[str, ...]]:
    """Yield the golds of the first cells of a column, of those that have some."""
    for cell in _head(rows, path):
        with suppress(ValueError):
            golds = () if _is_empty(cell) else golds_of(cell)
            if golds and not is_tests(cell):
                yield golds


def _head(rows: Rows, path: str) -> list[Any]:
    """Return the first cells of a column."""
    return rows.take(range(min(len(rows), _LOOKED_AT))).values(path)
