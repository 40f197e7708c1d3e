"""Multiple choice as it is published: options in columns of their own, and labels that are letters, numbers or texts.

A question is asked with its options as lines below it (``A) Venus``), as benchmarks are, and its label is a letter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from string import ascii_uppercase
from typing import Any, NamedTuple, TypeAlias

from olr_cli.answers import option_letter
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.chat import Message
from olr_cli.data.columns import CHOICE_COLUMNS
from olr_cli.data.labels import golds_of, label_of, read_cells
from olr_cli.data.rows import Rows
from olr_cli.data.values import spelled, written
from olr_cli.errors import UserError, did_you_mean

NO_CHOICES = "none"
"""In place of a column of options: questions are asked without any."""

JOINED = "+"
"""Between the columns of the options, where each has its own: ``A+B+C+D``."""

_SERIES = re.compile(r"(?i)((?:option|choice|op|ending)[ _-]?)([a-j]|\d)|(?-i:([A-J]))")
"""A column, or the field of an object, that holds one option."""

_MARK = r"[(\[]?\s*{letter}\s*[)\].:]\s*"
"""What stands before an option that brings its letter along: ``(A)``, ``A.``, ``a )``."""
_IN_TEXT = re.compile(
    r"(?:^|(?<=[\s,;]))\(?([A-Ja-j]) ?[).:]\s*(.*?)[\s,;]*(?=[\s,;]\(?[A-Ja-j] ?[).:]|$)",
    re.DOTALL,
)
_SHOWN = re.compile(r"(?:^|[\s({$\[])([A-Z])[).:\]]")
_SEVERAL = re.compile(r"[A-J](?:[\s,;&]*(?:and\s)?[A-J])+")

_NAMES = ("label", "key", "id", "name")
_TEXTS = ("text", "content", "value", "option", "answer")
"""Fields of an option that is an object."""


class Options(NamedTuple):
    """The options of a question, at least two, in the order in which they are shown."""

    texts: tuple[str, ...]
    names: tuple[str, ...]
    """What the file calls them, mostly A, B, C, …"""

    @property
    def lines(self) -> str:
        """The options as a policy sees them: ``A) Venus``, each a line."""
        return "\n".join(
            f"{letter}) {text}"
            for letter, text in zip(ascii_uppercase, self.texts, strict=False)
        )


# Options --------------------------------------------------------------------------------------------------------------


def choice_path(rows: Rows) -> str | None:
    """Where rows have options, by usual names: one column with all of a row's, or several, joined by ``+``."""
    for name in CHOICE_COLUMNS:
        if rows.has(name) and any(map(options_in, rows.values(name))):
            return name
    columns = rows.table.column_names
    prefixes = [match[1] or "" for match in map(_SERIES.fullmatch, columns) if match]
    for prefix in dict.fromkeys(prefixes):
        for names in (ascii_uppercase, ascii_uppercase.lower(), "123456789", "0123456789"):
            series = [*_in_order(prefix, names, columns)]
            if len(series) > 1:
                return JOINED.join(series)
    return None


def _in_order(prefix: str, names: str, columns: Sequence[str]) -> Iterator[str]:
    for name in names:
        if (column := f"{prefix}{name}") not in columns:
            return
        yield column


def option_columns(rows: Rows, path: str) -> list[str]:
    """The paths that one of `choice_path`'s form joins; each must be there."""
    if rows.has(path):
        return [path]
    for column in (columns := path.split(JOINED)):
        if not rows.has(column):
            raise UserError(
                f"{rows.place} has no '{column}'{did_you_mean(column, rows.paths)}",
                f"its columns are {', '.join(rows.paths)}; options that have a column each are named as"
                " choices: A+B+C+D",
                "data.columns",
            )
    return columns


def read_options(rows: Rows, path: str | None) -> list[Options | None]:
    """The options of every row at a path of `choice_path`'s form; None where a row has none."""
    if path is None:
        return [None] * len(rows)
    columns = option_columns(rows, path)
    if len(columns) == 1:
        return [options_in(cell) for cell in rows.values(columns[0])]
    cells = zip(*map(rows.values, columns), strict=True)
    return [options_in(list(of_row)) for of_row in cells]


def options_in(cell: Any) -> Options | None:
    """The options that a cell holds; None if it holds fewer than two, or something else.

    A cell is a list of texts or numbers; ``{text: […], label: […]}``; a list of objects with a text and a label each;
    an object with a field an option (``{A: …, B: …}``); or a text that writes one of these, or has the letter of each
    option before it (``a) 38, b) 27``).
    """
    if isinstance(cell, str):
        value = written(cell) if cell.lstrip()[:1] in ("[", "{") else None
        cell = _in_text(cell) if value is None else value
    pairs = _pairs(cell)
    while pairs and pairs[-1][1] in (None, ""):  # columns without an option at the end
        pairs.pop()
    texts = [text for _, value in pairs if (text := _text(value))]
    if len(texts) < len(pairs) or not 1 < len(texts) <= len(ascii_uppercase):
        return None
    names = [
        letter if name is None else str(name).strip()
        for letter, (name, _) in zip(ascii_uppercase, pairs, strict=False)
    ]
    return Options(_without_marks(texts), tuple(names))


def _pairs(cell: Any) -> list[tuple[Any, Any]]:
    """Return the name, None where it has none, and the value of each option; nothing of what holds no options."""
    match cell:
        case {"text": list(texts), "label": list(names)}:
            return [*zip(names, texts, strict=False)]
        case dict() if all(len(name) == 1 or _SERIES.fullmatch(name) for name in cell):
            return [(name, text) for name, text in cell.items() if text is not None]
        case list():
            return [_named(item) for item in cell]
    return []


def _in_text(text: str) -> dict[str, str]:
    """Return the options of a text by their letters, if these are a, b, c, … in order."""
    found = _IN_TEXT.findall(text)
    letters = "".join(letter for letter, _ in found).upper()
    return dict(found) if ascii_uppercase.startswith(letters) else {}


def _named(item: Any) -> tuple[Any, Any]:
    """Return an item of a list as a pair of name and text; the name may be None."""
    if not isinstance(item, dict):
        return None, item
    name, text = (
        next((item[key] for key in keys if key in item), None) for keys in (_NAMES, _TEXTS)
    )
    return next(iter(item.items())) if text is None and len(item) == 1 else (name, text)


def _text(value: Any) -> str | None:
    """Return an option as text; None if it is neither text nor a number."""
    if isinstance(value, str):
        return value.strip() or None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return spelled(value) if is_number and abs(value) < float("inf") else None


def _without_marks(texts: Sequence[str]) -> tuple[str, ...]:
    """Return options without their letters, if each brings its own."""
    marks = [
        re.match(_MARK.format(letter=f"(?i:{letter})"), text)
        for letter, text in zip(ascii_uppercase, texts, strict=False)
    ]
    bare = [text[mark.end() :] for mark, text in zip(marks, texts, strict=True) if mark]
    return tuple(bare if len(bare) == len(texts) and all(bare) else texts)


def show_options(
    turns: tuple[Message, ...], options: Options | None
) -> tuple[Message, ...]:
    """The turns with the options below the user's last question, unless it shows them already."""
    asking = [place for place, turn in enumerate(turns) if turn.role == "user"]
    if options is None or not asking or _shows(turns[asking[-1]].content, options):
        return turns
    question = turns[asking[-1]]
    asked = replace(question, content=f"{question.content.strip()}\n\n{options.lines}\n")
    return (*turns[: asking[-1]], asked, *turns[asking[-1] + 1 :])


def _shows(question: str, options: Options) -> bool:
    """Whether a question has all options, each behind its letter."""
    letters = {*ascii_uppercase[: len(options.texts)]}
    if not letters <= {*_SHOWN.findall(question)}:
        return False
    asked = "".join(question.split())
    return all("".join(text.split()) in asked for text in options.texts)


# Labels ---------------------------------------------------------------------------------------------------------------

_Form: TypeAlias = Callable[[str, Options], str | None]


def _by_letter(label: str, options: Options) -> str | None:
    """Return the letter of an option that is named, as ``(b)`` or as the file calls it; several as ``A, C``."""
    plain = label.strip().strip("()[]. ").casefold()
    names = [name.casefold() for name in options.names]
    if plain in names:
        return ascii_uppercase[names.index(plain)]
    if _SEVERAL.fullmatch(label.strip()):
        letters = re.findall("[A-J]", label.replace("and", ""))
        is_there = max(letters) < ascii_uppercase[len(names)]
        return ", ".join(letters) if is_there else None
    return option_letter(label, len(names))


def _by_text(label: str, options: Options) -> str | None:
    """Return the letter of the one option that has a text."""
    plain = " ".join(label.split()).casefold()
    places = [
        place
        for place, text in enumerate(options.texts)
        if " ".join(text.split()).casefold() == plain
    ]
    return ascii_uppercase[places[0]] if len(places) == 1 else None


def _by_number(label: str, options: Options, first: int) -> str | None:
    """Return the letter of an option by its number, counted from `first`."""
    number = label.strip()
    place = int(number) - first if number.isascii() and number.isdecimal() else -1
    return ascii_uppercase[place] if 0 <= place < len(options.texts) else None


_LETTERS = "letters of options"
_FORMS: Mapping[str, _Form] = {
    _LETTERS: _by_letter,
    "texts of options": _by_text,
    "numbers of options, from 0": lambda label, options: _by_number(label, options, 0),
    "numbers of options, from 1": lambda label, options: _by_number(label, options, 1),
}  # fmt: skip
"""What a column of labels holds, and how one becomes a letter; the first of those that read all labels alike counts."""


def option_labels(
    rows: Rows, path: str | None, choices: Sequence[Options | None]
) -> tuple[list[str | None], str]:
    """Return the label of every row, a letter where it has options, and a sentence on how the labels are read.

    All labels of a column are read in one form: that in which the most of them name an option. A label that names none
    in it stays as it is, as do all if most name none. There is no sentence where no label has options.

    Raises:
        UserError: two forms fit equally well and differ, as numbers from 0 or from 1.
    """
    if path is None:
        return [None] * len(rows), ""
    cells = zip(rows.values(path), choices, strict=True)
    labels = read_cells(lambda cell: label_in(*cell), cells, rows.origins, path)
    places = [
        place
        for place, label in enumerate(labels)
        if label not in (None, SENTINEL) and choices[place] is not None
    ]
    if not places:
        return labels, ""
    chosen = [(labels[place], choices[place]) for place in places]
    form, letters = _read_alike(chosen, f"{rows.place}: the labels in '{path}'")
    if form is None:
        return labels, f"most labels in '{path}' name no option, and are read as they stand"
    for place, letter in zip(places, letters, strict=True):
        labels[place] = letter or labels[place]
    return labels, f"the labels in '{path}' are read as {form}"


def _read_alike(
    chosen: Sequence[tuple[Any, Any]], place: str
) -> tuple[str | None, list[str | None]]:
    """Return the form of pairs of a label and its options, None if most name no option, and the letters in it."""
    readings = {
        form: [as_letter(*pair) for pair in chosen] for form, as_letter in _FORMS.items()
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
            f"{place} may be {best}, or {other}", "write letters there (A, B, C, …)"
        )
    return best, readings[best]


def label_in(cell: Any, options: Options | None) -> str | None:
    """Return the label in a cell as it stands: of a question with options all items of a list, each the name of a right
    one, else the one answer of `label_of`, with its errors.
    """
    return label_of(cell) if options is None else ", ".join(golds_of(cell)) or None


def option_notes(
    rows: Rows,
    columns: Mapping[str, str],
    asked: Sequence[tuple[tuple[Message, ...], Options | None]],
    labels_are: str,
) -> Iterator[str]:
    """Yield sentences on how options and their labels are read.

    `columns` is role -> path, `asked` the turns and the options of every row, and `labels_are` the sentence of
    `option_labels`.
    """
    if "choices" not in columns:
        yield from _unread_options(rows)
        return
    path = columns["choices"]
    bare = [row for row, (_, options) in enumerate(asked) if options is None]
    more = sum(show_options(*of_row) != of_row[0] for of_row in asked)
    there = len(asked) - more - len(bare)
    if more:
        yield f"the options in '{path}' are shown below {more:,} question{'s' * (more > 1)}"
    if there:
        yield f"{there:,} question{'s show' if there > 1 else ' shows'} the options in '{path}' already"
    if bare:
        yield (
            f"{len(bare):,} row{'s have' if len(bare) > 1 else ' has'} no options in '{path}'"
            f" (the first: {rows.origins.name(bare[0])})"
        )
    if labels_are:
        yield labels_are


def _unread_options(rows: Rows) -> Iterator[str]:
    """Yield a sentence on columns with the usual names of options that hold none."""
    for name in CHOICE_COLUMNS:
        if rows.has(name) and any(cell not in (None, "", []) for cell in rows.values(name)):
            yield f"the column '{name}' holds no options that can be read, and is left aside"
