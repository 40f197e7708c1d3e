"""Read the rows of JSON files that are not JSON Lines.

| value | rows |
|---|---|
| an array | its items |
| objects that span lines, one or several | the objects |
| `{"columns": [...], "data": [[...], ...]}` | a table's, as `wandb.Table` and `DataFrame.to_json(orient="split")` write it |
| an object of columns, each a list or an object by row | a table's, as `Dataset.to_dict` and `DataFrame.to_json` write it |
| an object of objects under the keys 0, 1, 2, … | the objects, as OpenCompass writes predictions |
| an object with `eval` and `samples` | the samples of an evaluation, as inspect_ai writes it in its format json |
| an archive of such samples (.eval) | the same, as inspect_ai writes it by default (log/_recorders/eval.py) |
| any other object that has no question and one list of objects | the items of that list |
"""  # noqa: E501

from __future__ import annotations

import json
import re
import shlex
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile, ZipInfo

from olr_cli.data.chat import messages
from olr_cli.data.columns import PROMPT_COLUMNS
from olr_cli.errors import UserError
from olr_cli.files import object_of, read_lines, read_text, regular

ARCHIVE = ".eval"
"""The ending of inspect_ai's logs, which are archives of JSON."""

_UNREAD = {"events", "events_data", "timelines", "attachments", "store", "messages"}
"""Fields of a sample of inspect_ai that repeat its conversation or describe its history; they can be very large."""

_ZSTANDARD = 93
"""The compression method of inspect_ai's archives since 2025; Python's `zipfile` knows it only since 3.14."""

_DECODER = json.JSONDecoder(
    object_pairs_hook=object_of,
    # Python's NaN is a missing value, as in a column of numbers.
    parse_constant=lambda name: None if name == "NaN" else float(name),
)

parsed = _DECODER.decode
"""Parse a JSON text; raise ValueError if it is not valid JSON."""

_BLANK = re.compile(r"\s*")


def document_rows(file: Path, encoding: str | None = None) -> list[Any] | None:
    """Return the rows of a JSON file, or None for a JSON Lines file, which is not read here.

    Raises:
        ValueError: the file is not valid JSON.
        UserError: the file is a damaged archive, or has several lists of rows.
    """
    if file.suffix == ARCHIVE:
        return _rows_within(_archived(file), file)
    lines = (line.strip() for line in read_lines(file, is_cut=True, encoding=encoding))
    filled = filter(None, lines)
    first, is_only = next(filled, ""), next(filled, None) is None
    # The first filled lines decide, so that a JSON Lines file of any size is not read as a whole.
    if is_only:
        is_document = first.startswith("[") or (file.suffix == ".json" and first != "")
    else:
        # A line of JSON Lines ends where its value ends. A first line that ends in an open bracket, or that opens an
        # array without closing it, belongs to a value that spans lines.
        is_array = first.startswith("[") and not first.endswith("]")
        is_document = is_array or first.endswith(("{", "["))
    if not is_document:
        return None
    values = [*_values(first if is_only else read_text(file, encoding=encoding))]
    rows = _rows_within(values[0], file) if len(values) == 1 else None
    # One line with one object that is a row is a JSON Lines file of one row.
    return values if rows is None and not is_only else rows


def _values(text: str) -> Iterator[Any]:
    """Yield the values of a JSON text that has several values one after the other, as jq writes them."""
    blank = _BLANK.match(text)
    while blank and blank.end() < len(text):
        value, end = _DECODER.raw_decode(text, blank.end())
        yield value
        blank = _BLANK.match(text, end)


def _rows_within(value: Any, file: Path) -> list[Any] | None:
    """Return the rows that a JSON value holds, or None if the value is itself one row.

    The value may be an array of rows, an object of columns, a log of inspect_ai, or have any other layout that the
    docstring of this module lists.

    Raises:
        UserError: the value has several lists of rows; the message names `file`.
    """
    match value:
        case [*rows]:
            return rows
        case {"columns": [*names], "data": [*rows]} if all(
            type(row) is list and len(row) == len(names) for row in rows
        ):
            keys = [*map(str, names)]
            return [dict(zip(keys, row, strict=True)) for row in rows]
        case {"samples": [*samples], "eval": {**about}} if {*map(type, samples)} <= {dict}:
            return [_without_unread(it) | {"model": about.get("model")} for it in samples]
        case {} if value and all(map(str.isdecimal, value)):
            return [*value.values()]
        case {} if not value.keys().isdisjoint(PROMPT_COLUMNS):
            return _rows_of_columns(value)
        case {}:
            return _only_list(value, file)
    return None


def _rows_of_columns(value: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the rows of an object of columns, or None if the object is itself one row.

    In an object of columns, the keys are the columns' names. The values are all lists of the same length, or all
    objects with one key for each row: ``{"0": "What?", "1": "Who?"}``. The caller has made sure that one key is a usual
    name for the column of questions (`PROMPT_COLUMNS`).
    """
    question = next(value[name] for name in PROMPT_COLUMNS if name in value)
    columns = {
        name: dict(enumerate(it)) if isinstance(it, list) else it
        for name, it in value.items()
    }
    kinds, rows = {*map(type, columns.values())}, columns[next(iter(columns))]
    # Chat turns are a list too, but one question, and so one row.
    if kinds != {dict} or messages(question) is not None:
        return None
    if any(column.keys() != rows.keys() for column in columns.values()):
        return None
    return [{name: column[row] for name, column in columns.items()} for row in rows]


def _only_list(value: Mapping[str, Any], file: Path) -> list[Any] | None:
    """Return the only list of objects among the values of a JSON object, or None if there is none.

    A list of chat turns does not count.

    Raises:
        UserError: there are several such lists; the message names `file`.
    """
    lists = {
        key: it
        for key, it in value.items()
        if isinstance(it, list) and {*map(type, it)} == {dict} and messages(it) is None
    }
    if len(lists) > 1:
        names = ", ".join(f"'{key}' ({len(items):,})" for key, items in lists.items())
        target = file.with_name(f"{file.stem}-rows.jsonl")
        words = ["jq", "-c", f".[{json.dumps(next(iter(lists)))}][]", str(file)]
        raise UserError(
            f"{file} is one JSON object, which holds lists of rows in {names}",
            f"write one alone, as with {shlex.join(words)} > {shlex.quote(str(target))}",
        )
    return next(iter(lists.values()), None)


def _without_unread(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sample of inspect_ai without its fields that are never read, which may be large.

    A sample is the record of one question in an evaluation.
    """
    return {name: it for name, it in sample.items() if name not in _UNREAD}


def _archived(file: Path) -> dict[str, Any]:
    """Read a log archive of inspect_ai (.eval) as an object with two keys.

    `eval` holds the description of the evaluation, which may be empty. `samples` holds the list of samples; a sample is
    the record of one question.

    Raises:
        UserError: the archive is damaged.
    """
    try:
        with regular(file).open("rb") as content, ZipFile(content) as archive:
            # A sample that was written again is in the archive twice under one name: the last one counts.
            members = {info.filename: info for info in archive.infolist()}
            # A log whose evaluation was stopped has no header yet, only the journal.
            start = members.get("header.json") or members.get("_journal/start.json")
            about = parsed(_content(archive, start)) if start else {}
            samples = [
                _without_unread(parsed(_content(archive, info)))
                for name, info in members.items()
                if name.startswith("samples/") and name.endswith(".json")
            ]
            return {"eval": about.get("eval") or {}, "samples": samples}
    except (
        BadZipFile,
        zlib.error,
        OSError,
        ValueError,
        AttributeError,
        NotImplementedError,
    ) as error:
        raise UserError(
            f"{file} is no whole log of inspect_ai ({error})",
            "copy it again, or write JSON: inspect log convert --to json",
        ) from None


def _content(archive: ZipFile, info: ZipInfo) -> str:
    """Return the text of a member of an archive, even if it is compressed by Zstandard."""
    if info.compress_type != _ZSTANDARD:
        return archive.read(info).decode()
    import pyarrow as pa  # here, because rewards that read no file run without pyarrow

    assert archive.fp is not None
    # Find the data by hand, since `zipfile` refuses to open the member. Before it are a header of 30 bytes, whose last
    # four are two lengths, and two fields of these lengths: the name and `extra` (APPNOTE.TXT of zip, 4.3.7).
    archive.fp.seek(info.header_offset + 26)
    name, extra = archive.fp.read(2), archive.fp.read(2)
    archive.fp.seek(sum(int.from_bytes(it, "little") for it in (name, extra)), 1)
    compressed = pa.BufferReader(archive.fp.read(info.compress_size))
    text: str = pa.CompressedInputStream(compressed, "zstd").read().decode()
    return text
