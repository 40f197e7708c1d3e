"""Multiple choice as it is published: options in columns of their own, and labels that are letters, numbers or texts.

A question is asked with its options as lines below it (``A) Venus``), as benchmarks are, and its label is a letter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product, takewhile
from string import ascii_uppercase
from typing import Any, NamedTuple, TypeAlias

from olr_cli.answers import option_letter
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.chat import Message
from olr_cli.data.columns import CHOICE_COLUMNS
from olr_cli.data.labels import golds_of, label_of, read_cells, read_labels
from olr_cli.data.rows import Rows, pick
from olr_cli.data.values import spelled, written
from olr_cli.errors import UserError, at

NO_CHOICES = "none"
"""In place of a column of options: questions are asked without any."""

_JOINED = "+"
"""Between the columns of the options, where each has its own: ``A+B+C+D``."""
_FROM = re.compile(r" from ([01])$")
"""After the columns of the options: from where the numbers count that are labels."""

_SERIES = re.compile(r"(?i)((?:option|choice|op|ending)[ _-]?)([a-j]|\d)|(?-i:([A-J]))")
"""A column, or the field of an object, that holds one option."""
_NAMES = (ascii_uppercase, ascii_uppercase.lower(), "123456789", "0123456789")
"""The ends of their names, in order."""

_MARKED = re.compile(r"[(\[]?\s*([A-Za-z])\s*[)\].:]\s*(.+)", re.DOTALL)
"""An option that brings its letter along: ``(A) Venus``, ``A. Venus``, ``a ) Venus``."""
_IN_TEXT = re.compile(
    r"(?:^|(?<=[\s,;]))\(?([A-Ja-j]) ?[).:]\s*(.*?)[\s,;]*(?=[\s,;]\(?[A-Ja-j] ?[).:]|$)",
    re.DOTALL,
)
_SEVERAL = re.compile(r"[A-J](?:[\s,;&]*(?:and\s)?[A-J])+")


class Options(NamedTuple):
    """The options of a question, at least two, in the order in which they are shown."""

    texts: tuple[str, ...]
    names: tuple[str, ...]
    """What the file calls them, mostly A, B, C, …"""

    def numbers(self, first: int) -> list[str]:
        """Their numbers, counted from `first`."""
        return [str(first + place) for place, _ in enumerate(self.texts)]


# Options --------------------------------------------------------------------------------------------------------------


def choice_path(rows: Rows) -> str | None:
    """Where rows have options, by usual names: one column with all of a row's, or several, joined by ``+``."""
    for name in CHOICE_COLUMNS:
        if rows.has(name) and any(map(options_in, rows.values(name))):
            return name
    columns = rows.table.column_names
    prefixes = dict.fromkeys(
        match[1] or "" for match in map(_SERIES.fullmatch, columns) if match
    )
    for prefix, names in product(prefixes, _NAMES):
        series = takewhile(columns.__contains__, (f"{prefix}{name}" for name in names))
        path = _JOINED.join(series)
        # Two columns A and B may hold the numbers of a question.
        if path.count(_JOINED) > (prefix == ""):
            return path
    return None


def option_columns(rows: Rows, path: str) -> list[str]:
    """The paths that one of `choice_path`'s form joins; they need not be there."""
    joined = _FROM.sub("", path)
    return [joined] if rows.has(joined) else joined.split(_JOINED)


def read_options(rows: Rows, path: str | None) -> list[Options | None]:
    """The options of every row at a path of `choice_path`'s form; None where a row has none."""
    if path is None:
        return [None] * len(rows)
    columns = option_columns(rows, path)
    with at("data.columns"):
        named = dict(zip(columns, columns, strict=True))
        pick(rows.has, {}, named, place=rows.place, available=rows.paths)
    if len(columns) == 1:
        return [options_in(cell) for cell in rows.values(columns[0])]
    cells = zip(*map(rows.values, columns), strict=True)
    return [options_in(list(of_row)) for of_row in cells]


def options_in(cell: Any) -> Options | None:
    """The options that a cell holds; None if it holds fewer than two, or something else.

    A cell is a list of texts or numbers; ``{text: […], label: […]}``; an object with a field an option (``{A: …, B:
    …}``); or a text that writes one of these, or has the letter of each option before it (``a) 38, b) 27``).
    """
    if isinstance(cell, str):
        cell = written(cell) if cell.lstrip()[:1] in ("[", "{") else _in_text(cell)
    pairs = _pairs(cell)
    while pairs and not _text(pairs[-1][1]):  # columns without an option at the end
        pairs.pop()
    texts = [_text(value) for _, value in pairs]
    if not all(texts) or not 1 < len(texts) <= len(ascii_uppercase):
        return None
    return Options(_without_marks(texts), tuple(str(name).strip() for name, _ in pairs))


def _pairs(cell: Any) -> list[tuple[Any, Any]]:
    """Return the name and the value of each option; nothing of what holds no options."""
    match cell:
        case {"text": list(texts), "label": list(names)}:
            return [*zip(names, texts, strict=False)]
        case dict() if all(len(name) == 1 or _SERIES.fullmatch(name) for name in cell):
            # In Parquet the fields of one row are those of all, some without a value.
            return [(name, text) for name, text in cell.items() if text is not None]
        case list() if len(cell) <= len(ascii_uppercase):
            return [*zip(ascii_uppercase, cell, strict=False)]
    return []


def _in_text(text: str) -> dict[str, str]:
    """Return the options of a text by their letters, if these are a, b, c, … in order."""
    options = _IN_TEXT.findall(text)
    letters = "".join(letter for letter, _ in options).upper()
    return dict(options) if ascii_uppercase.startswith(letters) else {}


def _text(value: Any) -> str:
    """Return an option as text; empty if it is neither text nor a number."""
    if isinstance(value, str):
        return value.strip()
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return spelled(value) if is_number and abs(value) < float("inf") else ""


def _without_marks(texts: Sequence[str]) -> tuple[str, ...]:
    """Return options without their letters, if each brings its own."""
    marked = [match for match in map(_MARKED.fullmatch, texts) if match]
    letters = "".join(match[1].upper() for match in marked)
    is_marked = letters == ascii_uppercase[: len(texts)]
    return tuple(match[2] for match in marked) if is_marked else tuple(texts)


def show_options(
    turns: tuple[Message, ...], options: Options | None
) -> tuple[Message, ...]:
    """The turns with the options below the user's last question, unless it shows them already."""
    if options is None:
        return turns
    asking = [place for place, turn in enumerate(turns) if turn.role == "user"]
    if not asking or _shows(turns[asking[-1]].content, options):
        return turns
    question = turns[asking[-1]]
    shown = (
        f"{letter}) {text}"
        for letter, text in zip(ascii_uppercase, options.texts, strict=False)
    )
    text = "\n".join([question.content.strip(), "", *shown, ""])
    asked = replace(question, content=text)
    return (*turns[: asking[-1]], asked, *turns[asking[-1] + 1 :])


def _shows(question: str, options: Options) -> bool:
    """Whether a question has all options, each behind its letter."""
    asked = "".join(question.split())
    return all(
        any(f"{letter}{mark}{''.join(text.split())}" in asked for mark in ").:]")
        for letter, text in zip(ascii_uppercase, options.texts, strict=False)
    )


# Labels ---------------------------------------------------------------------------------------------------------------

_Form: TypeAlias = Callable[[str, Options], str | None]


def _by_letter(label: str, options: Options) -> str | None:
    """Return the letter of an option that is named, as ``(b)`` or as the file calls it; several as ``A, C``."""
    size = len(options.texts)
    if letters := letters_in(label):
        return ", ".join(letters) if max(letters) <= ascii_uppercase[size - 1] else None
    return _named(label.strip("()[]. "), options.names) or option_letter(label, size)


def letters_in(label: str) -> list[str]:
    """The letters of a label that names several options, ``A, C``, ``ACD`` or ``A and C``; none of any other."""
    return re.findall("[A-J]", label) if _SEVERAL.fullmatch(label.strip()) else []


def _named(label: str, names: Iterable[str]) -> str | None:
    """Return the letter of the one option of that name, case and white space aside."""
    letters = [
        letter
        for letter, name in zip(ascii_uppercase, names, strict=False)
        if _plain(name) == _plain(label)
    ]
    return letters[0] if len(letters) == 1 else None


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


_LETTERS = "letters of options"
_FORMS: Mapping[str, _Form] = {
    _LETTERS: _by_letter,
    "texts of options": lambda label, options: _named(label, options.texts),
    "numbers of options counted from 0": lambda label, options: _named(label, options.numbers(0)),
    "numbers of options counted from 1": lambda label, options: _named(label, options.numbers(1)),
}  # fmt: skip
"""What a column of labels holds, and how one becomes a letter; the first of those that read all labels alike counts."""


def option_labels(
    rows: Rows, path: str | None, choices: Sequence[Options | None], choices_path: str = ""
) -> tuple[list[str | None], list[str]]:
    """Return the label of every row, a letter where it has options, and sentences on how the labels are read.

    All labels of a column are read in one form: that in which the most of them name an option, or that `choices_path`
    gives (``options from 1``). A label that names none in it is read as the text of an option, else it stays as it is,
    as do all if most name none.

    Raises:
        UserError: two forms fit equally well and differ, as numbers from 0 or from 1.
    """
    if path is None or not any(choices):
        return read_labels(rows, path), []
    cells = zip(rows.values(path), choices, strict=True)
    labels = read_cells(lambda cell: label_in(*cell), cells, rows.origins, path)
    chosen = {
        row: (label, options)
        for row, (label, options) in enumerate(zip(labels, choices, strict=True))
        if label not in (None, SENTINEL) and options is not None
    }
    if not chosen:
        return labels, []
    first = _FROM.search(choices_path)
    forms = [name for name in _FORMS if first is None or name.endswith(first[0])]
    place = f"{rows.place}: the labels in '{path}'"
    form, letters = _read_alike([*chosen.values()], forms, place)
    if form is None:
        return labels, [
            f"most labels in '{path}' name no option, and are read as they stand"
        ]
    for row, letter in zip(chosen, letters, strict=True):
        label, options = chosen[row]
        labels[row] = letter or _named(label, options.texts) or label
    given = {labels[row] for row in chosen}
    are_one = (
        f"; all are {labels[next(iter(chosen))]}" if len(given) < 2 < len(chosen) else ""
    )
    return labels, [f"the labels in '{path}' are read as {form}{are_one}"]


def _read_alike(
    chosen: Sequence[tuple[Any, Any]], forms: Sequence[str], place: str
) -> tuple[str | None, list[str | None]]:
    """Return the form of pairs of a label and its options, None if most name no option, and the letters in it."""
    readings = {
        form: [_FORMS[form](label, options) for label, options in chosen] for form in forms
    }
    fits = {form: sum(map(bool, letters)) for form, letters in readings.items()}
    best = max(fits, key=lambda form: fits[form])
    if fits[best] * 2 < len(chosen):
        return None, []
    # Where the file calls its options 1, 2, … a number is such a name, from wherever others count.
    rivals = [form for form in fits if fits[form] == fits[best] and best != _LETTERS]
    other = next((form for form in rivals if readings[form] != readings[best]), None)
    if other is not None:
        raise UserError(
            f"{place} may be {best} or {other}",
            "write letters there (A, B, C, …), or say which, as in data.columns={choices: options from 0}",
        )
    return best, readings[best]


def label_in(cell: Any, options: Options | None) -> str | None:
    """Return the label in a cell as it stands: of a question with options all items of a list, each the name of a right
    one, else the one answer of `label_of`, with its errors.
    """
    return label_of(cell) if options is None else ", ".join(golds_of(cell)) or None


def option_notes(
    rows: Rows,
    path: str | None,
    choices: Sequence[Options | None],
    are_added: Sequence[bool],
) -> Iterator[str]:
    """Yield a sentence on the options at a path, and on columns that have their usual names and hold none.

    `are_added` says for every row whether the options were written below the question.
    """
    if path is None:
        for name in filter(rows.has, CHOICE_COLUMNS):
            cells = rows.values(name)
            is_filled = any(cell not in (None, "", []) for cell in cells)
            if is_filled and not any(map(options_in, cells)):
                yield f"the column '{name}' holds no options that can be read, and is left aside"
        return
    added = sum(are_added)
    bare = [row for row, options in enumerate(choices) if options is None]
    shown = len(choices) - added - len(bare)
    note = (
        f"the options in '{path}' are shown below {added:,} of {len(choices):,} questions"
    )
    if shown:
        note += f"; {shown:,} already had them in the text"
    if bare:
        note += f"; {len(bare):,} without options (the first: {rows.origins.name(bare[0])})"
    yield note
