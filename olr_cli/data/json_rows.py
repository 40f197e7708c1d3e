"""JSON objects from files, and as tables: values of several kinds become one kind that holds them all."""

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
"""Readers of Parquet, where a list takes three levels, stop at 100."""

_BATCH_OF_OBJECTS = 1 << 14
"""Rows of JSON that are read at a time; an object takes a kilobyte."""

_KINDS = {
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
    """The objects of a JSON Lines file, some at a time, or of another file of JSON (`document_rows`).

    `note_cut` takes the number of a last line that its writer did not complete, which is an error without it.
    """
    place = ""
    try:
        if (document := document_rows(file, encoding)) is not None:
            yield [
                _object(row, f"{file}, row {at} (counted from 1)")
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
                rows.append(_object(parsed(text), f"{file}{place}"))
            except json.JSONDecodeError:
                # A line that was cut off begins like an object and has no end; any other is an error.
                if note_cut is None or text[0] != "{" or line.endswith("\n"):
                    raise
                note_cut(number)
            if len(rows) == _BATCH_OF_OBJECTS:
                yield rows
                rows = []
        yield rows
    except ValueError as error:
        # Of a number with thousands of digits Python says how a program may read it.
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


def _object(value: object, place: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise UserError(
            f"{place}: a row must be a JSON object, and this is {_KINDS[type(value)]}",
            'write each row as an object, such as {"question": "3+4", "answer": "7"}',
        )
    return value


def json_table(
    rows: Sequence[dict[str, Any]], place: str, names: Iterable[str] | None = None
) -> pa.Table:
    """JSON objects as a table, of the keys `names` or of all.

    A column that mixes numbers and text becomes text, and one that mixes these and lists becomes lists.
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
    """Values as an Arrow array: structs and lists by their parts, scalars of one kind as they are, else as text.

    Raises:
        UserError: the values are nested too deeply, or mix kinds that have no common form.
    """
    if level > _MOST_LEVELS:
        raise UserError(
            f"{place[:200]} is nested too deeply, more than {_MOST_LEVELS} levels",
            "flatten it or leave it out",
        )
    # Arrow has no type for a column of an answer here and several there.
    values = _scalars_as_lists(values)
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {dict}:
        return _struct_array(values, place, level)
    if kinds == {list}:
        return _list_array(values, place, level)
    if len(kinds) <= 1:
        with suppress(OverflowError):  # whole numbers beyond 64 bits become text
            return pa.array(values)
    if len(kinds) <= 1 or kinds <= {str, int, float}:
        return pa.array(
            [it if it is None or type(it) is str else spelled(it) for it in values]
        )
    names = sorted(map(_KINDS.__getitem__, kinds))
    raise UserError(f"{place} mixes {' and '.join(names)}", "make them one kind")


def _struct_array(values: list[Any], place: str, level: int) -> pa.Array:
    """Objects as an array of structs with the fields of all of them."""
    names = list(dict.fromkeys(chain.from_iterable(filter(None, values))))
    if not names:  # Parquet has no struct without fields
        return pa.nulls(len(values))
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
    """Lists as an array of lists, whose items are one column."""
    items = column_of(
        [item for value in values if value for item in value], place, level + 1
    )
    ends = accumulate((len(value or ()) for value in values), initial=0)
    is_missing = pa.array([value is None for value in values])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items, mask=is_missing)


def _scalars_as_lists(values: list[Any]) -> list[Any]:
    """Values beside lists as lists: an answer beside several, or a text beside a message's parts.

    Texts beside chats stay as they are: a text is no turn, and what mixes them is an error.
    """
    kinds = set(map(type, values)) - {type(None)}
    # Only lists beside texts and numbers are made alike; any other mixture is an error later.
    is_mixed = list in kinds and len(kinds) > 1
    if not is_mixed or not kinds <= {list, str, int, float}:
        return values
    items = [item for value in values if type(value) is list for item in value]
    objects = [item for item in items if type(item) is dict]
    are_parts = any("type" in item for item in objects)
    if objects and not are_parts:
        return values
    return [_as_list(value, are_parts=are_parts) for value in values]


def _as_list(value: Any, *, are_parts: bool) -> list[Any] | None:
    """Return a value beside lists as one of them: in a list of its own, as a part where they hold parts."""
    if value is None or type(value) is list:
        return value
    return [{"type": "text", "text": value} if are_parts else value]
