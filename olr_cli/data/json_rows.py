"""Read JSON objects from files and turn them into tables; a column of several types becomes one type that fits all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from olr_cli.data.json_documents import document_rows, parsed
from olr_cli.data.values import spelled
from olr_cli.errors import UserError
from olr_cli.files import read_lines

_MOST_LEVELS = 30
"""Largest depth of nested values: readers of Parquet stop at 100 levels, and a list takes three of them."""

_BATCH_OF_OBJECTS = 1 << 14
"""Number of JSON rows to read at a time; one takes about a kilobyte."""

_TYPE_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


def json_batches(
    file: Path,
    note_cut: Callable[[int], object] | None = None,
    *,
    encoding: str | None = None,
) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of a JSON file as objects: in batches from JSON Lines, all at once from any other JSON file.

    Args:
        file: the file.
        note_cut: function to call if the last line is cut off, as if the writer was killed. It gets the number of this
            line, from 1, and the line is skipped. If None, such a line is an error.
        encoding: encoding of the file; None for UTF-8, or UTF-16 with a byte order mark.

    Raises:
        UserError: the file is not valid JSON, or a row is no object.
    """
    place = ""
    try:
        if (document := document_rows(file, encoding)) is not None:
            yield [
                _require_object(row, f"{file}, row {at} (counted from 1)")
                for at, row in enumerate(document, start=1)
            ]
            return
        rows: list[dict[str, Any]] = []
        for number, line in enumerate(
            read_lines(file, is_cut=note_cut is not None, encoding=encoding), start=1
        ):
            text = line.strip()
            if not text:
                continue
            place = f", line {number}"
            try:
                rows.append(_require_object(parsed(text), f"{file}{place}"))
            except json.JSONDecodeError:
                # A writer that was killed leaves the beginning of an object without a line break. Anything else is
                # an error, since a damaged line in the middle must not be dropped in silence.
                if note_cut is None or text[0] != "{" or line.endswith("\n"):
                    raise
                note_cut(number)
            if len(rows) == _BATCH_OF_OBJECTS:
                yield rows
                rows = []
        yield rows
    except ValueError as error:
        # For a number with thousands of digits, Python's message ends with advice for programmers: cut that off.
        reason = str(error).partition("; use sys.")[0]
        raise UserError.of(
            f"{file}{place} is not valid JSON: {reason}",
            remedy="correct it, or fetch it again",
        ) from None
    except RecursionError:
        raise UserError(
            f"{file} has values that are nested too deeply to be prompts",
            "check what it is",
        ) from None


def _require_object(value: object, place: str) -> dict[str, Any]:
    """Return a row unchanged if it is a JSON object, else raise UserError; `place` names the row in the error."""
    if type(value) is not dict:
        raise UserError(
            f"{place}: a row must be a JSON object, and this is {_TYPE_NAMES[type(value)]}",
            'write each row as an object, such as {"question": "3+4", "answer": "7"}',
        )
    return value


def json_table(
    rows: Sequence[dict[str, Any]], place: str, names: Iterable[str] | None = None
) -> pa.Table:
    """Build a table with a row for each JSON object and a column for each of the keys `names`; None means all keys.

    A column that mixes numbers and texts becomes text. If a column has lists in some rows and single values in others,
    each single value becomes a list. `place` names the file in errors.

    Raises:
        UserError: a column is nested too deeply or mixes types that have no common form, or a text is invalid Unicode.
    """
    names = dict.fromkeys(chain(*rows)) if names is None else names
    try:
        return pa.table(
            {
                name: column_of([row.get(name) for row in rows], f"{place}: '{name}'")
                for name in names
            }
        )
    except UnicodeEncodeError:
        raise UserError(
            f"{place} has half of a surrogate pair, which is no character", "fix its text"
        ) from None


def column_of(values: list[Any], place: str, level: int = 1) -> pa.Array:
    """Convert JSON values to an Arrow array of one type that fits them all.

    Objects become structs and lists become lists, whose parts are converted in the same way. Scalars of one type keep
    it, and a mixture of numbers and texts becomes text.

    Args:
        values: the values; None is null.
        place: file and column for errors, such as ``f.json: 'answer'``. It must end in the quotation mark, because the
            names of nested fields are inserted before this mark.
        level: depth of nesting, from 1.

    Raises:
        UserError: the values are nested too deeply, or mix types that have no common form.
    """
    if level > _MOST_LEVELS:
        raise UserError(
            f"{place[:200]} is nested too deeply, more than {_MOST_LEVELS} levels",
            "flatten it or leave it out",
        )
    # Arrow has no type for a column that holds one answer in some rows and a list of answers in others.
    values = _scalars_as_lists(values)
    value_types = set(map(type, values)) - {type(None)}
    if value_types == {dict}:
        return _struct_array(values, place, level)
    if value_types == {list}:
        return _list_array(values, place, level)
    if len(value_types) <= 1:
        # Arrow has no whole numbers beyond 64 bits: they become text below.
        with suppress(OverflowError):
            return pa.array(values)
    if len(value_types) <= 1 or value_types <= {str, int, float}:
        return pa.array(
            [it if it is None or type(it) is str else spelled(it) for it in values]
        )
    names = sorted(map(_TYPE_NAMES.__getitem__, value_types))
    raise UserError(f"{place} mixes {' and '.join(names)}", "make them one kind")


def _struct_array(values: list[Any], place: str, level: int) -> pa.Array:
    """Convert a list of objects and None to an array of structs; each struct has the fields of all objects.

    A field that an object lacks is null. If all objects are empty, the array has only nulls. `place` and `level` are
    those of `column_of`.
    """
    names = list(dict.fromkeys(chain.from_iterable(filter(None, values))))
    # Parquet cannot store a struct without fields, so a column of empty objects is a column of nulls.
    if not names:
        return pa.nulls(len(values))
    # `place` ends in a quotation mark: the name of the field goes before it.
    fields = [
        column_of(
            [(value or {}).get(name) for value in values],
            f"{place[:-1]}.{name}'",
            level + 1,
        )
        for name in names
    ]
    return pa.StructArray.from_arrays(
        fields, names, mask=pa.array([value is None for value in values])
    )


def _list_array(values: list[Any], place: str, level: int) -> pa.Array:
    """Convert a list of lists and None to an array of lists, whose items all have one type.

    `place` and `level` are those of `column_of`.
    """
    items = column_of(
        [item for value in values if value for item in value], place, level + 1
    )
    ends = accumulate((len(value or ()) for value in values), initial=0)
    is_missing = pa.array([value is None for value in values])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items, mask=is_missing)


def _scalars_as_lists(values: list[Any]) -> list[Any]:
    """Put the texts and numbers of a column into lists if its other values are lists; return other columns unchanged.

    If the lists hold answers, a text or number becomes a list of one. If they hold the content parts of messages, it
    becomes a list of one text part. If they hold chat turns, the column stays unchanged, and `column_of` reports the
    mixture as an error.
    """
    value_types = set(map(type, values)) - {type(None)}
    # Only texts and numbers have a form as lists; any other mixture is an error later.
    is_mixed = list in value_types and len(value_types) > 1
    if not is_mixed or not value_types <= {list, str, int, float}:
        return values
    items = [item for value in values if type(value) is list for item in value]
    dicts = [item for item in items if type(item) is dict]
    are_parts = any("type" in item for item in dicts)
    if dicts and not are_parts:
        return values
    return [_as_list(value, are_parts=are_parts) for value in values]


def _as_list(value: Any, *, are_parts: bool) -> list[Any] | None:
    """Put a text or number into a list of one item; return None and lists unchanged.

    With `are_parts`, the item is a text part of a chat message (``{type: text, text: …}``).
    """
    if value is None or type(value) is list:
        return value
    return [{"type": "text", "text": value} if are_parts else value]
