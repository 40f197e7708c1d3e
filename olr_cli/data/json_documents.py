"""Files of JSON other than JSON Lines, and the rows in them.

| value | rows |
|---|---|
| an array | its items |
| objects that span lines, one or several | the objects |
| `{"columns": [...], "data": [[...], ...]}` | a table's, as `wandb.Table` and `DataFrame.to_json(orient="split")` write it |
| an object of columns, each a list or an object by row | as `Dataset.to_dict` and `DataFrame.to_json` write them |
| an object of objects under the keys 0, 1, 2, … | the objects, as OpenCompass writes predictions |
| an object with `eval` and `samples` | the samples of an evaluation, as inspect_ai writes it in its format json |
| an archive of such samples (.eval) | the same, as inspect_ai writes it by default (log/_recorders/eval.py) |
| any other object without a question, that holds one list of objects | the list |
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
"""Fields of a sample of inspect_ai's that repeat its conversation, or how it came about."""

_ZSTANDARD = 93
"""The method by which inspect_ai compresses since 2025, and `zipfile` only since Python 3.14."""

_DECODER = json.JSONDecoder(
    object_pairs_hook=object_of,
    # Python's NaN is a missing value, as in a column of numbers.
    parse_constant=lambda name: None if name == "NaN" else float(name),
)

parsed = _DECODER.decode
"""Return the value of a JSON text (`ValueError` if it is none)."""

_BLANK = re.compile(r"\s*")


def document_rows(file: Path, encoding: str | None = None) -> list[Any] | None:
    """Return the rows of a file that is no JSON Lines; None of JSON Lines, whose rows are its lines.

    Raises:
        ValueError: it is not valid JSON.
    """
    if file.suffix == ARCHIVE:
        return _rows_within(_archived(file), file)
    lines = (line.strip() for line in read_lines(file, is_cut=True, encoding=encoding))
    filled = filter(None, lines)
    first, is_only = next(filled, ""), next(filled, None) is None
    if is_only:
        is_document = first.startswith("[") or (file.suffix == ".json" and first != "")
    else:
        # Lines of JSON Lines end with their value, also where they are damaged.
        is_array = first.startswith("[") and not first.endswith("]")
        is_document = is_array or first.endswith(("{", "["))
    if not is_document:
        return None
    values = [*_values(first if is_only else read_text(file, encoding=encoding))]
    held = _rows_within(values[0], file) if len(values) == 1 else None
    # A single line that is a row is JSON Lines.
    return values if held is None and not is_only else held


def _values(text: str) -> Iterator[Any]:
    """Yield the values of a JSON text, which stand one after the other, as jq writes them."""
    blank = _BLANK.match(text)
    while blank and blank.end() < len(text):
        value, end = _DECODER.raw_decode(text, blank.end())
        yield value
        blank = _BLANK.match(text, end)


def _rows_within(value: Any, file: Path) -> list[Any] | None:
    """Return the rows that the only value of a file holds; None if it is a row itself."""
    match value:
        case [*rows]:
            return rows
        case {"columns": [*names], "data": [*rows]} if all(
            type(row) is list and len(row) == len(names) for row in rows
        ):
            keys = [*map(str, names)]
            return [dict(zip(keys, row, strict=True)) for row in rows]
        case {"samples": [*samples], "eval": {**about}} if {*map(type, samples)} <= {dict}:
            return [_sample(it) | {"model": about.get("model")} for it in samples]
        case {} if value and all(map(str.isdecimal, value)):
            return [*value.values()]
        case {} if not value.keys().isdisjoint(PROMPT_COLUMNS):
            return _rows_of_columns(value)
        case {}:
            return _only_list(value, file)
    return None


def _rows_of_columns(value: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the rows of an object of columns, all of the same rows; None if it is a row itself."""
    asked = next(value[name] for name in PROMPT_COLUMNS if name in value)
    columns = {
        name: dict(enumerate(it)) if isinstance(it, list) else it
        for name, it in value.items()
    }
    kinds, rows = {*map(type, columns.values())}, columns[next(iter(columns))]
    # A question in turns is one row.
    if kinds != {dict} or messages(asked) is not None:
        return None
    if any(column.keys() != rows.keys() for column in columns.values()):
        return None
    return [{name: column[row] for name, column in columns.items()} for row in rows]


def _only_list(value: Mapping[str, Any], file: Path) -> list[Any] | None:
    """Return the only list of objects that an object without a question has, but no turns; None without one.

    Raises:
        UserError: there are several.
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


def _sample(sample: Mapping[str, Any]) -> dict[str, Any]:
    return {name: it for name, it in sample.items() if name not in _UNREAD}


def _archived(file: Path) -> dict[str, Any]:
    """Return what an archive of inspect_ai's says of its evaluation (`eval`), and its samples (`samples`)."""
    try:
        with regular(file).open("rb") as content, ZipFile(content) as archive:
            # A sample that was written again stands twice under its name; the last counts.
            members = {info.filename: info for info in archive.infolist()}
            start = members.get("header.json") or members.get("_journal/start.json")
            about = parsed(_content(archive, start)) if start else {}
            samples = [
                _sample(parsed(_content(archive, info)))
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
    """Return a member of an archive, also one that is compressed by Zstandard."""
    if info.compress_type != _ZSTANDARD:
        return archive.read(info).decode()
    import pyarrow as pa  # which rewards that read no file do without

    assert archive.fp is not None
    # A member begins with a header of 30 bytes, the last four of which are the lengths of its name and of more.
    archive.fp.seek(info.header_offset + 26)
    name, more = archive.fp.read(2), archive.fp.read(2)
    archive.fp.seek(sum(int.from_bytes(it, "little") for it in (name, more)), 1)
    packed = pa.BufferReader(archive.fp.read(info.compress_size))
    text: str = pa.CompressedInputStream(packed, "zstd").read().decode()
    return text
