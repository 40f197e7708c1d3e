"""Choose the column of labels by its content, and read what other columns say about the label of a row."""

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
"""Number of cells by which the content of a column is judged."""

_PROSE = re.compile(r"(?s).{200}|(?:(?<![\\\w])[^\W\d_]{2,}\b.*?){8}")
_YES = r"(?i:y(?:es)?|t(?:rue)?|ok|valid|correct|0*\.?0*[1-9][\d.]*)"
_BESIDE = (
    # Units with a power of ten, by which the label has to be multiplied: `10^{-10} m`, `million dollars`.
    ("scale", re.compile(r"(?i)(?:.*[._ ])?units?"),
     re.compile(r"10\s*(?:\^|\*\*|[⁻⁰¹²³⁴-⁹])|\d[eE][-+]?\d|\b(?i:thousand|[mbtr]+illion)s?\b").search),
    ("not_valid", re.compile(r"(?i)(?:.*[._ ])?(?:is)?valid(?:ity)?"),
     re.compile(rf"(?!(?:{_YES}|(?i:nan|none|null|unknown))\Z).+", re.DOTALL).match),
    ("not_valid", re.compile(r"(?i)(?:.*[._ ])?(?:is)?invalid"), re.compile(_YES).fullmatch),
)  # fmt: skip
"""Kind of finding, the pattern of a column's path, and the pattern of the values that are such a finding."""

_OF_QUESTIONS = {
    re.compile(
        r"(?i)(?:decoded_)?(?:image|picture|figure|video|audio)s?(?:_?\d+|_?(?:path|url|file|name)s?)?"
    ): "only the text of questions is asked",
    re.compile(
        r"(?i)(?:passage|article|context|paragraph|story)"
    ): "write it into the questions that are about it",
}
"""Pattern of a column that questions may need -> remedy; such are `images` of geometry3k and `passage` of AGIEval."""

_READ_TOO = frozenset(
    ("data_source", "ability", "extra_info", "reward_model", REPHRASED_COLUMN, *ID_COLUMNS)
)
"""Columns without a role that are read all the same, or that verl's format has in every file."""


def first_filled(rows: Rows, role: str, names: Sequence[str]) -> list[str]:
    """Return those of `names` that are columns of the file, in the order in which to try them.

    Empty columns are left out, unless all are empty. `role` is what the column should hold, such as ``question``. For
    the role ``answer``, columns of short answers are tried first if the first filled column holds prose.
    """
    candidates = [*filter(rows.has, names)]
    if len(candidates) < 2:
        return candidates
    faults = {path: _fault(rows, path) for path in candidates}
    filled = [path for path in candidates if faults[path] != "empty"] or candidates
    if role == "answer" and filled[0] != GROUND_TRUTH and faults[filled[0]] == "prose":
        # `label` is not among `ANSWER_COLUMNS`: beside prose, it may name a topic, or say whether the row is good.
        return [*(path for path in ANSWER_COLUMNS if faults.get(path) == ""), *filled]
    return filled


def column_notes(rows: Rows, columns: Mapping[str, str]) -> Iterator[str]:
    """Yield notes on columns that were read in a way that the user may not expect.

    The notes are about three things: columns of images or passages that are not read, the reason why a column of labels
    was chosen, and labels that are prose or lists. `columns` is role -> column that was read, such as ``answer`` ->
    ``solution``.
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
    # With options, labels become letters, so that prose and lists do not matter.
    if "choices" in columns:
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
    """Yield (kind of finding, (row number, text)) for each value that makes the label of its row doubtful.

    The values are in other columns. A unit with a power of ten gives the kind ``scale``, and a mark that the row is not
    valid gives ``not_valid``. The text is the column and the value, as in ``unit: 10^3 m``.
    """
    for path in rows.paths:
        for kind, name, is_found in _BESIDE:
            for row, value in enumerate(rows.values(path) if name.fullmatch(path) else ()):
                if isinstance(value, (str, int, float)) and is_found(str(value).strip()):
                    yield kind, (row, f"{path}: {str(value).strip()}")


def not_read(rows: Rows, columns: Iterable[str]) -> list[str]:
    """Return the names of the file's columns that are ignored; `columns` are the paths that are read.

    Columns of ids, columns that mark rows as valid, and those of verl's format count as read.
    """
    parts = (part for path in columns for part in option_columns(rows, path))
    read = {part.partition(".")[0] for part in parts} | _READ_TOO
    # Columns of validity count as read, because their values become findings. Columns of units do not: apart from a
    # power of ten, nothing in them is read.
    validity = [name for kind, name, _ in _BESIDE if kind == "not_valid"]
    return [
        column
        for column in rows.table.column_names
        if column not in read and not any(name.fullmatch(column) for name in validity)
    ]


def _fault(rows: Rows, path: str) -> str:
    """Return why a column does not look like labels (``empty`` or ``prose``); an empty text if it looks like labels."""
    # Look at the beginning first, since most columns have a value there.
    if all(map(_is_empty, _head(rows, path))) and all(map(_is_empty, rows.values(path))):
        return "empty"
    labels = [golds[0] for golds in _first_golds(rows, path)]
    prose = sum(_PROSE.search(label) is not None for label in labels)
    return "prose" if 2 * prose > len(labels) else ""


def _is_empty(cell: Any) -> bool:
    """Return whether a cell has no value, or only a placeholder such as ``None``.

    The sentinel, the text by which noise replaces a label, counts as a value.
    """
    # The sentinel is a placeholder too, but it is a label that noise has replaced.
    if isinstance(cell, str):
        return is_placeholder(cell) and cell.strip() != SENTINEL
    return cell is None or cell != cell or cell == []


def _first_golds(rows: Rows, path: str) -> Iterator[tuple[str, ...]]:
    """Yield a cell's right answers for each of the first `_LOOKED_AT` cells of a column.

    A cell is skipped if it is empty, holds tests of a program, or cannot be read.
    """
    for cell in _head(rows, path):
        with suppress(ValueError):
            golds = () if _is_empty(cell) else golds_of(cell)
            if golds and not is_tests(cell):
                yield golds


def _head(rows: Rows, path: str) -> list[Any]:
    """Return the first cells of a column, at most `_LOOKED_AT` of them."""
    return rows.take(range(min(len(rows), _LOOKED_AT))).values(path)
