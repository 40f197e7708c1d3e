"""Which column holds the labels, by what the columns hold, and what other columns say about the label of a row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import Any

from olr_cli.answers import is_placeholder
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.choices import option_columns
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
_OF_QUESTIONS = {
    re.compile(
        r"(?i)(?:decoded_)?(?:image|picture|figure|video|audio)s?(?:_?\d+|_?(?:path|url|file|name)s?)?"
    ): "only the text of questions is asked",
    re.compile(
        r"(?i)(?:passage|article|context|paragraph|story)"
    ): "write it into the questions that are about it",
}
"""Names of columns that questions may need, `images` of geometry3k or `passage` of AGIEval, and what to do."""
_READ_TOO = frozenset(
    ("data_source", "ability", "extra_info", "reward_model", REPHRASED_COLUMN, *ID_COLUMNS)
)
"""Columns besides those of `data.columns` that are read, or that the format of verl has in every file."""


def first_filled(rows: Rows, role: str, names: Sequence[str]) -> list[str]:
    """Return the columns that a file has for a role, the one to read first.

    Columns that are empty throughout are left out, unless all are, and a column of short answers comes before labels
    in prose.
    """
    there = [*filter(rows.has, names)]
    if len(there) < 2:
        return there
    faults = {path: _fault(rows, path) for path in there}
    filled = [path for path in there if faults[path] != "empty"] or there
    if role == "answer" and filled[0] != GROUND_TRUTH and faults[filled[0]] == "prose":
        # Not `label`, which may name a topic, or say whether the row is good.
        return [*(path for path in ANSWER_COLUMNS if faults.get(path) == ""), *filled]
    return filled


def column_notes(rows: Rows, columns: Mapping[str, str]) -> Iterator[str]:
    """Yield sentences on images and passages that are not read, on what the column of labels holds, and why it is not
    another one.

    `columns` is role -> path.
    """
    others = [name for name in rows.table.column_names if name not in columns.values()]
    for name, (pattern, remedy) in product(others, _OF_QUESTIONS.items()):
        if pattern.fullmatch(name) and _fault(rows, name) != "empty":
            yield f"the column '{name}' is not read: {remedy}"
    path = columns.get("answer")
    if path is None:
        return
    known = (*OF_PROMPTS["answer"].known, *CHOICE_LABELS)
    for other in filter(rows.has, known[: known.index(path)] if path in known else ()):
        if fault := _fault(rows, other):
            yield f"the labels are in '{path}', because '{other}' is {fault}"
    if "choices" in columns:  # labels become letters
        return
    if _fault(rows, path) == "prose":
        yield (
            f"most labels in '{path}' are prose, which hardly any response matches; if another column has short"
            " answers, name it: data.columns={answer: COLUMN}"
        )
    if any(len(golds) > 1 for golds in _first_golds(rows, path)):
        yield (
            f"'{path}' has lists: each item is read as the whole answer, and items that differ are no label; where all"
            " items together are the answer, write one text, such as `2, 3`"
        )


def beside(rows: Rows) -> Iterator[tuple[str, tuple[int, str]]]:
    """Yield what columns of units and of validity say of rows: the kind of finding, the row, and ``column: value``."""
    for path in rows.paths:
        for kind, name, is_found in _BESIDE:
            for row, value in enumerate(rows.values(path) if name.fullmatch(path) else ()):
                if isinstance(value, (str, int, float)) and is_found(str(value).strip()):
                    yield kind, (row, f"{path}: {str(value).strip()}")


def not_read(rows: Rows, columns: Iterable[str]) -> list[str]:
    """Return the columns of a file that are not read, given the paths that are read for their roles."""
    parts = (part for path in columns for part in option_columns(rows, path))
    read = {part.partition(".")[0] for part in parts} | _READ_TOO
    # A unit is not read: only a power of ten in it is found.
    validity = [name for kind, name, _ in _BESIDE if kind == "not_valid"]
    return [
        column
        for column in rows.table.column_names
        if column not in read and not any(name.fullmatch(column) for name in validity)
    ]


def _fault(rows: Rows, path: str) -> str:
    """Return why a column has no labels, which may be that it is ``empty`` or ``prose``; an empty text if it may."""
    # Most columns have a value at their beginning.
    if all(map(_is_empty, _head(rows, path))) and all(map(_is_empty, rows.values(path))):
        return "empty"
    labels = [golds[0] for golds in _first_golds(rows, path)]
    prose = sum(_PROSE.search(label) is not None for label in labels)
    return "prose" if 2 * prose > len(labels) else ""


def _is_empty(cell: Any) -> bool:
    """Return whether a cell has no value, or a placeholder such as ``None``; noise is a value."""
    if isinstance(cell, str):
        return is_placeholder(cell) and cell.strip() != SENTINEL
    return cell is None or cell != cell or cell == []


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
