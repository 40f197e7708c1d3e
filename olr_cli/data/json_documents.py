"""Files that are one JSON value, and the rows in it: arrays, W&B's tables, logs of inspect_ai and OpenCompass.

| value | rows |
|---|---|
| an array | its items |
| an object with `columns` and `data` | a table's, as `wandb.Table` and `DataFrame.to_json(orient="split")` write it |
| an object with `eval` and `samples` | the samples of an evaluation, as inspect_ai writes it in its format json |
| an archive of such samples (.eval) | the same, as inspect_ai writes it by default (log/_recorders/eval.py) |
| an object of objects under the keys 0, 1, 2, … | the objects, as OpenCompass writes predictions |
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile, ZipInfo

from olr_cli.errors import UserError
from olr_cli.files import parse_json, read_lines, read_text, regular

ARCHIVE = ".eval"
"""The ending of inspect_ai's logs, which are archives of JSON."""

_UNREAD = {"events", "events_data", "timelines", "attachments", "store", "messages"}
"""Fields of a sample of inspect_ai's that repeat its conversation, or how it came about."""

_ZSTANDARD = 93
"""The method by which inspect_ai compresses since 2025, and `zipfile` only since Python 3.14."""


def document_rows(file: Path, encoding: str | None = None) -> list[Any] | None:
    """Return the rows of a file that is one JSON value; None of JSON Lines, whose rows are its lines.

    Raises:
        ValueError: an array is not valid JSON.
    """
    if file.suffix == ARCHIVE:
        return _rows_within(_archived(file))
    texts = read_lines(file, is_cut=True, encoding=encoding)
    lines = filter(None, (line.strip() for line in texts))
    first, is_only = next(lines, ""), next(lines, None) is None
    if first.startswith("["):
        # A first line that is a list by itself is a row, though not one that olr reads.
        return (
            None
            if _is_json(first) and not is_only
            else list(parsed(read_text(file, encoding=encoding)))
        )
    # In files of lines a line is an object, whatever it holds.
    if file.suffix != ".json" or (_is_json(first) and not is_only):
        return None
    with suppress(ValueError, AttributeError, RecursionError):
        return _rows_within(
            parsed(first if is_only else read_text(file, encoding=encoding))
        )
    return None


def parsed(text: str) -> Any:
    """Return the value of a JSON text, in which Python's NaN is a missing value, as in a column of numbers."""
    return parse_json(text, lambda name: None if name == "NaN" else float(name))


def _is_json(text: str) -> bool:
    with suppress(ValueError, RecursionError):
        json.loads(text)
        return True
    return False


def _rows_within(value: Any) -> list[Any] | None:
    """Return the rows that an object holds; None if it is a row itself."""
    match value:
        case {"columns": [*names], "data": [*rows]}:
            is_table = all(type(row) is list and len(row) == len(names) for row in rows)
            keys = [*map(str, names)]
            return [dict(zip(keys, row, strict=True)) for row in rows] if is_table else None
        case {"samples": [*samples], "eval": {**about}}:
            return [_sample(it) | {"model": about.get("model")} for it in samples]
        case {} if value and all(map(str.isdecimal, value)):
            return [*value.values()]
    return None


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
