"""Read multiple choice as it is published: options in their own columns, and labels as letters, numbers or texts.

A question gets its options as lines below it (``A) Venus``), as in benchmarks, and its label becomes a letter.
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
"""Value for the role `choices` that makes olr ask questions without options."""

_JOINED = "+"
"""Separator of several columns with one option each: ``A+B+C+D``."""

_FROM = re.compile(r" from ([01])$")
"""End of a path of options that says whether labels count options from 0 or from 1: ``options from 0``."""

_SERIES = re.compile(r"(?i)((?:option|choice|op|ending)[ _-]?)([a-j]|\d)|(?-i:([A-J]))")
"""Name of a column, or of a field of an object, that holds one option: ``option_a``, ``B``."""

_NAMES = (ascii_uppercase, ascii_uppercase.lower(), "123456789", "0123456789")
"""Last characters of such names, in order."""

_MARKED = re.compile(r"[(\[]?\s*([A-Za-z])\s*[)\].:]\s*(.+)", re.DOTALL)
"""An option that begins with its letter: ``(A) Venus``, ``A. Venus``, ``a ) Venus``."""

_IN_TEXT = re.compile(
    r"(?:^|(?<=[\s,;]))\(?([A-Ja-j]) ?[).:]\s*(.*?)[\s,;]*(?=[\s,;]\(?[A-Ja-j] ?[).:]|$)",
    re.DOTALL,
)
"""One option in a text that holds all of them: ``a) 38, b) 27``."""

_SEVERAL = re.compile(r"[A-J](?:[\s,;&]*(?:and\s)?[A-J])+")
"""Several letters of options: ``A, C``, ``ACD`` or ``A and C``."""


class Options(NamedTuple):
    """The texts of a question's options, at least two, in the order shown, and the names that the file gives them."""

    texts: tuple[str, ...]

    names: tuple[str, ...]
    """The options' names in the file, mostly A, B, C, …"""

    def numbers(self, first: int) -> list[str]:
        """Return the number of each option as a text, counted from `first`: ``1``, ``2``, ``3`` if `first` is 1."""
        return [str(first + place) for place, _ in enumerate(self.texts)]


# Options --------------------------------------------------------------------------------------------------------------


def choice_path(rows: Rows) -> str | None:
    """Return the path of the column of options, or None if no column with a usual name holds options.

    If each option has a column of its own, the result joins the names of these columns by ``+``: ``A+B+C+D``.
    """
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
        # Columns A and B alone are no options: they may hold two numbers of a question. Without a prefix, it takes
        # three columns, and with a prefix two.
        if path.count(_JOINED) > (prefix == ""):
            return path
    return None


def option_columns(rows: Rows, path: str) -> list[str]:
    """Split a path of options such as ``A+B+C+D`` into the paths of its columns, without checking that they exist.

    An ending such as `` from 1``, which says how labels number the options, is removed first. If a column of `rows` has
    the remaining text as its name, the text is not split.
    """
    joined = _FROM.sub("", path)
    # A column may have a `+` in its name.
    return [joined] if rows.has(joined) else joined.split(_JOINED)


def read_options(rows: Rows, path: str | None) -> list[Options | None]:
    """Return the options of every row, None where a row has none.

    `path` names a column of options or, as in ``A+B+C+D``, several columns with one option each. If it is None, no row
    has options.

    Raises:
        UserError: a column does not exist.
    """
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
    """Return the options in a cell, or None if it has fewer than two.

    A cell may be a list of texts or numbers, an object with one field per option (``{A: …, B: …}``), or an object
    ``{text: […], label: […]}``. It may also be a text: one of these in JSON or in Python's form, or lettered options
    (``a) 38, b) 27``).
    """
    if isinstance(cell, str):
        cell = written(cell) if cell.lstrip()[:1] in ("[", "{") else _in_text(cell)
    pairs = _pairs(cell)
    # If questions have different numbers of options, the last columns of a row are empty.
    while pairs and not _text(pairs[-1][1]):
        pairs.pop()
    texts = [_text(value) for _, value in pairs]
    if not all(texts) or not 1 < len(texts) <= len(ascii_uppercase):
        return None
    return Options(_without_marks(texts), tuple(str(name).strip() for name, _ in pairs))


def _pairs(cell: Any) -> list[tuple[Any, Any]]:
    """Return a (name, value) pair for each option in a cell, or an empty list if it holds no options.

    The options of a plain list are named A, B, C, …
    """
    match cell:
        case {"text": list(texts), "label": list(names)}:
            return [*zip(names, texts, strict=False)]
        case dict() if all(len(name) == 1 or _SERIES.fullmatch(name) for name in cell):
            # In Parquet every row has the fields of all rows: those of other rows are null.
            return [(name, text) for name, text in cell.items() if text is not None]
        case list() if len(cell) <= len(ascii_uppercase):
            return [*zip(ascii_uppercase, cell, strict=False)]
    return []


def _in_text(text: str) -> dict[str, str]:
    """Return letter -> option for a text whose options are lettered a, b, c, … in order, else an empty dict."""
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
    """Remove the letters of options such as ``A) Venus`` if they are A, B, C, … in order; else return all unchanged."""
    marked = [match for match in map(_MARKED.fullmatch, texts) if match]
    letters = "".join(match[1].upper() for match in marked)
    is_marked = letters == ascii_uppercase[: len(texts)]
    return tuple(match[2] for match in marked) if is_marked else tuple(texts)


def show_options(
    turns: tuple[Message, ...], options: Options | None
) -> tuple[Message, ...]:
    """Return the turns with the options added below the user's last question.

    The turns stay unchanged if the question already shows the options, or if `options` is None.
    """
    if options is None:
        return turns
    user_indices = [place for place, turn in enumerate(turns) if turn.role == "user"]
    if not user_indices or _shows(turns[user_indices[-1]].content, options):
        return turns
    question = turns[user_indices[-1]]
    shown = (
        f"{letter}) {text}"
        for letter, text in zip(ascii_uppercase, options.texts, strict=False)
    )
    text = "\n".join([question.content.strip(), "", *shown, ""])
    with_options = replace(question, content=text)
    return (*turns[: user_indices[-1]], with_options, *turns[user_indices[-1] + 1 :])


def _shows(question: str, options: Options) -> bool:
    """Return whether a question already has all options, each after its letter."""
    # Compare without white space: questions have options in one line or in several.
    asked = "".join(question.split())
    return all(
        any(f"{letter}{mark}{''.join(text.split())}" in asked for mark in ").:]")
        for letter, text in zip(ascii_uppercase, options.texts, strict=False)
    )


# Labels ---------------------------------------------------------------------------------------------------------------

_Form: TypeAlias = Callable[[str, Options], str | None]


def _read_letter(label: str, options: Options) -> str | None:
    """Read a label that is an option's letter or name; return the letter, or None if no option fits.

    An option's name is what the file calls it, such as ``1`` or ``B``. Brackets are ignored: ``(b)`` gives ``B``. A
    label with several letters gives all of them: ``A, C``.
    """
    size = len(options.texts)
    if letters := letters_in(label):
        return ", ".join(letters) if max(letters) <= ascii_uppercase[size - 1] else None
    return _matching_letter(label.strip("()[]. "), options.names) or option_letter(
        label, size
    )


def letters_in(label: str) -> list[str]:
    """Return the letters of a label that names several options (``A, C``, ``ACD``, ``A and C``), else an empty list."""
    return re.findall("[A-J]", label) if _SEVERAL.fullmatch(label.strip()) else []


def _matching_letter(label: str, names: Iterable[str]) -> str | None:
    """Return the letter of the option that a label names, or None if it fits no option or more than one.

    `names` has one text per option, in order: its name in the file, its wording or its number. The label must equal one
    of them, apart from case and white space.
    """
    letters = [
        letter
        for letter, name in zip(ascii_uppercase, names, strict=False)
        if _plain(name) == _plain(label)
    ]
    return letters[0] if len(letters) == 1 else None


def _plain(text: str) -> str:
    """Return a text with case folded and white space collapsed, for comparisons."""
    return " ".join(text.split()).casefold()


_LETTERS = "letters of options"
_FORMS: Mapping[str, _Form] = {
    _LETTERS: _read_letter,
    "texts of options": lambda label, options: _matching_letter(label, options.texts),
    "numbers of options counted from 0": lambda label, options: _matching_letter(label, options.numbers(0)),
    "numbers of options counted from 1": lambda label, options: _matching_letter(label, options.numbers(1)),
}  # fmt: skip
"""Form of the labels in a column -> function that reads one as a letter; the first of equally good forms counts."""


def option_labels(
    rows: Rows, path: str | None, choices: Sequence[Options | None], choices_path: str = ""
) -> tuple[list[str | None], list[str]]:
    """Read each row's label, as a letter if the row has options; return the labels, and notes on how they were read.

    All labels of a column are read in one form: letters, texts of options, or numbers counted from 0 or from 1. If
    `choices_path` ends in ``from 0`` or ``from 1``, that is the form. Otherwise, it is the form in which most labels
    name an option. If the form fits less than half of the labels, all labels stay unchanged.

    A label that does not fit the form, but equals the text of an option, gives this option's letter. If it equals none,
    it stays unchanged.

    Args:
        rows: the rows.
        path: path of the column of labels; if None, all labels are None.
        choices: the options of each row, None where a row has none.
        choices_path: path of the column of options, such as ``options from 1``; may be empty.

    Raises:
        UserError: two forms fit equally well and give different letters, such as numbers from 0 and from 1.
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
    form, letters = _best_form([*chosen.values()], forms, place)
    if form is None:
        return labels, [
            f"most labels in '{path}' name no option, and are read as they stand"
        ]
    for row, letter in zip(chosen, letters, strict=True):
        label, options = chosen[row]
        labels[row] = letter or _matching_letter(label, options.texts) or label
    given = {labels[row] for row in chosen}
    are_one = (
        f"; all are {labels[next(iter(chosen))]}" if len(given) < 2 < len(chosen) else ""
    )
    return labels, [f"the labels in '{path}' are read as {form}{are_one}"]


def _best_form(
    pairs: Sequence[tuple[Any, Any]], forms: Sequence[str], place: str
) -> tuple[str | None, list[str | None]]:
    """Find the form in which most labels name an option; return its name, and each label's letter in this form.

    A form is a way to name options, such as by their letters or by their texts (`_FORMS`). The letter is None for a
    label that names no option. If every form fits less than half of the labels, the result is (None, []).

    Args:
        pairs: (label, options of its question) pairs.
        forms: names of the forms to try, such as ``texts of options``.
        place: beginning of the error, such as ``f.csv: the labels in 'answer'``.

    Raises:
        UserError: two forms fit equally well and give different letters.
    """
    readings = {
        form: [_FORMS[form](label, options) for label, options in pairs] for form in forms
    }
    fits = {form: sum(map(bool, letters)) for form, letters in readings.items()}
    best = max(fits, key=lambda form: fits[form])
    if fits[best] * 2 < len(pairs):
        return None, []
    # Letters have no rivals: if the file itself names its options 1, 2, …, a number is such a name, and it does not
    # matter from where other files count.
    rivals = [form for form in fits if fits[form] == fits[best] and best != _LETTERS]
    other = next((form for form in rivals if readings[form] != readings[best]), None)
    if other is not None:
        raise UserError(
            f"{place} may be {best} or {other}",
            "write letters there (A, B, C, …), or say which, as in data.columns={choices: options from 0}",
        )
    return best, readings[best]


def label_in(cell: Any, options: Options | None) -> str | None:
    """Return the label in a cell as text, not yet converted to a letter, or None if the cell is empty.

    The cell may hold a list. With `options`, the list names all right options, and the label joins its items by commas.
    If `options` is None, the items must all be the same answer, and the first of them is the label.

    Raises:
        ValueError: the cell can't be a label.
    """
    return label_of(cell) if options is None else ", ".join(golds_of(cell)) or None


def option_notes(
    rows: Rows,
    path: str | None,
    choices: Sequence[Options | None],
    are_added: Sequence[bool],
) -> Iterator[str]:
    """Yield notes on how the options of questions were read.

    With a `path`, there is one note. It counts the questions whose options were added, the questions that already
    showed them, and the questions without options. If `path` is None, there is one note for each column whose name
    suggests options but whose values cannot be read as options.

    Args:
        rows: the rows.
        path: path of the column of options, or None if no column holds options.
        choices: the options of each row, None where a row has none.
        are_added: for each row, whether its options were added below its question.
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
