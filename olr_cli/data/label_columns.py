"""Which column holds the labels, by what the columns hold, and what other columns say about the label of a row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from olr_cli.answers import is_placeholder
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.choices import JOINED
from olr_cli.data.columns import (
    ANSWER_COLUMNS,
    CHOICE_LABELS,
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
_YES = r"(?i:y(?:es)?|t(?:rue)?|ok|valid|correct|0*\.?0*[1-9][\d.]*)"
_BESIDE = (
    # What a unit has if the answer is the label times a power of ten: `10^{-10} m`, `million dollars`.
    ("scale", re.compile(r"(?i)(?:.*[._ ])?units?"),
     re.compile(r"10\s*(?:\^|\*\*|[⁻⁰¹²³⁴-⁹])|\d[eE][-+]?\d|\b(?i:thousand|[mbtr]+illion)s?\b").search),
    ("not_valid", re.compile(r"(?i)(?:.*[._ ])?(?:is)?valid(?:ity)?"),
     re.compile(rf"(?!(?:{_YES}|(?i:nan|none|null|unknown))\Z).+", re.DOTALL).match),
    ("not_valid", re.compile(r"(?i)(?:.*[._ ])?(?:is)?invalid"), re.compile(_YES).fullmatch),
)  # fmt: skip
"""Kind of finding, the path of a column that tells of it, and the values that do."""
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
    known = (*OF_PROMPTS["answer"].known, *CHOICE_LABELS)
    if path is None:
        return
    for other in filter(rows.has, known[: known.index(path)] if path in known else ()):
        if not _is_filled(rows, other) or _is_prose(rows, [other]):
            what = "prose" if _is_filled(rows, other) else "empty"
            yield f"the labels are in '{path}', because '{other}' is {what}"
    if "choices" in columns:  # labels become letters
        return
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
    found: dict[str, dict[int, str]] = {}
    for path in rows.paths:
        for kind, name, is_found in _BESIDE:
            for row, value in enumerate(rows.values(path) if name.fullmatch(path) else ()):
                if isinstance(value, (str, int, float)) and is_found(str(value).strip()):
                    found.setdefault(kind, {}).setdefault(
                        row, f"{path}: {str(value).strip()}"
                    )
    return found


def not_read(rows: Rows, columns: Iterable[str]) -> list[str]:
    """Return the columns of a file that are not read, given the paths that are read for their roles."""
    # The unit itself is not read.
    beside = (
        path
        for path in rows.paths
        if any(name.fullmatch(path) for _, name, _ in _BESIDE[1:])
    )
    parts = (part for path in columns for part in (path, *path.split(JOINED)))
    read = {path.partition(".")[0] for path in (*parts, *beside)} | _READ_TOO
    return [name for name in rows.table.column_names if name not in read]


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
