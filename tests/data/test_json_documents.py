"""Files that are one JSON value, and archives of them."""

import io
import json
import struct
import zipfile
import zlib

import pyarrow as pa
import pytest
from cases import each, refusal
from samples import json_lines

from olr_cli.data.json_documents import document_rows
from olr_cli.data.logs import read_log
from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.rows import Rows
from olr_cli.data.table_files import read_table
from olr_cli.data.values import Origins, places_of_rows
from olr_cli.data.writers import write_rows

SPLIT = {"columns": ["q", "a"], "data": [["1+1", "2"], ["2+2", "4"]]}
OBJECTS = [{"q": "1+1", "a": "2"}, {"q": "2+2", "a": "4"}]


@pytest.mark.parametrize("indent", [None, 2])
@each(
    "value",
    OBJECTS,
    SPLIT,
    SPLIT | {"index": [0, 1]},
    {"1": OBJECTS[0], "2": OBJECTS[1]},
    {"version": 1, "data": OBJECTS},
)
def test_rows_are_the_same_in_every_form_of_one_json_value(tmp_path, value, indent):
    file = tmp_path / "rows.json"
    file.write_text(json.dumps(value, indent=indent))
    assert read_table([file]).to_pylist() == OBJECTS
    assert places_of_rows(file) == [("row", 1), ("row", 2)]


@each(
    "rows",
    OBJECTS,
    OBJECTS[:1],
    [SPLIT, SPLIT],
    [{"columns": ["q"], "data": [["1", "2"]]}],
    [{"samples": [1], "eval": {}, "q": "x"}],
    [{"columns": 2, "data": "x"}],
)
def test_lines_are_rows_whatever_they_hold(tmp_path, rows):
    assert document_rows(json_lines(tmp_path / "rows.json", *rows)) is None
    assert document_rows(json_lines(tmp_path / "rows.jsonl", *rows)) is None


@each(
    "text, name, place",
    ('["1+1", "2"]\n["2+2", "4"]\n', "a.jsonl", "a.jsonl, line 1"),
    ('{"q": "1+1"}\n["2+2", "4"]\n', "a.jsonl", "a.jsonl, line 2"),
    ('[["1+1", "2"], ["2+2", "4"]]', "a.json", "a.json, row 1 (counted from 1)"),
    ('[{"role": "user", "content": "1+1"}]\n' * 2, "a.jsonl", "a.jsonl, line 1"),
)
def test_a_row_that_is_a_list_is_named_with_its_place_and_what_a_row_should_be(
    tmp_path, text, name, place
):
    (tmp_path / name).write_text(text)
    for read in (read_table, read_log):
        sentence = refusal(read, [tmp_path / name])
        assert f"{place}: a row must be a JSON object, and this is a list" in sentence
        assert 'write each row as an object, such as {"question": "3+4"' in sentence


ROWS = [{"question": f"{n}+{n}?", "answer": str(2 * n)} for n in range(3)]
BY_ROW = {name: {str(at): row[name] for at, row in enumerate(ROWS)} for name in ROWS[0]}
TURNS = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]


@each(
    "text, count",
    (json.dumps(ROWS[0], indent=2), 1),
    ("\n\n".join(json.dumps(row, indent=2) for row in ROWS) + "\n", 3),
    (json.dumps({name: [row[name] for row in ROWS] for name in ROWS[0]}), 3),
    (json.dumps(BY_ROW, indent=1), 3),
    (json.dumps({"question": [TURNS[:1]] * 2, "answer": [2, 2]}), 2),
    # What is one row stays one.
    (json.dumps({"messages": TURNS, "tags": ["a", "b"]}), 1),
    (json.dumps({"question": "1+1?", "answer": "2", "tests": [{"in": "1"}]}), 1),
)  # fmt: skip
def test_objects_that_span_lines_and_objects_of_columns_are_rows(tmp_path, text, count):
    (file := tmp_path / "x.json").write_text(text)
    prompts = read_prompts(file)
    assert len(prompts) == count
    unit = "row" if count > 1 or "\n" in text else "line"
    assert prompts.origins.name(count - 1, is_short=True) == f"{unit} {count}"
    if count == 3:
        assert [prompt.given_label for prompt in prompts.prompts] == ["0", "2", "4"]


@each(
    "text",
    json.dumps(ROWS),
    "\n".join(json.dumps(row, indent=2) for row in ROWS),
    "\n".join(map(json.dumps, ROWS)),
)
def test_some_rows_are_written_from_whatever_form_they_have(tmp_path, text):
    (file := tmp_path / "x.jsonl").write_text(text)
    rows = Rows(read_table([file]), Origins(str(file), [file]))
    assert write_rows(rows, [0, 2], tmp_path / "y.jsonl")
    assert [*map(json.loads, (tmp_path / "y.jsonl").open())] == [ROWS[0], ROWS[2]]


@each(
    "text, expected",
    (json.dumps({"my rows": ROWS, "dev": ROWS[:1]}), "is one JSON object, which holds lists of rows in 'my rows' (3),"
     " 'dev' (1); write one alone, as with jq -c '.[\"my rows\"][]' F.json > F-rows.jsonl"),
    (json.dumps({"question": ["1+1?", "2+2?"], "answer": [2]}), "line 1 of F.json: 'question' is of another form"),
    (json.dumps(ROWS, indent=1).replace('"2"', "2,"), "F.json is not valid JSON: Expecting property name enclosed in"
     " double quotes: line 9 column 2"),
    (json.dumps(ROWS[0], indent=1) + "]", "F.json is not valid JSON: Expecting value: line 4 column 2"),
    ('{"question": "1+1?"},\n{"question": "2+2?"},\n', "F.json, line 1 is not valid JSON: Extra data"),
)  # fmt: skip
def test_what_is_no_file_of_rows_is_named_where_it_is_wrong(tmp_path, text, expected):
    (tmp_path / "F.json").write_text(text)
    assert expected in refusal(read_prompts, tmp_path / "F.json").replace(
        f"{tmp_path}/", ""
    )


# Archives of inspect_ai -------------------------------------------------------------------------------------------


def sample(answer, epoch):
    scores = {"match": {"value": "C", "history": []}}
    return {"id": 1, "epoch": epoch, "input": "3+4", "target": "7", "scores": scores} | {
        "output": {"completion": rf"\boxed{{{answer}}}"},
        "events": [{"event": "model"}],
    }


def members():
    yield "header.json", json.dumps({"eval": {"model": "m"}})
    for epoch in (1, 2):
        yield f"samples/1_epoch_{epoch}.json", json.dumps(sample(6 + epoch, epoch))
    yield "summaries.json", "[]"


def deflated(file):
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members():
            archive.writestr(name, text)


def compressed(text):
    """In two frames, as inspect_ai writes what is large (inspect_ai/_util/zipfile.py)."""
    frames = []
    for part in (text[:9], text[9:]):
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(part)
        frames.append(sink.getvalue().to_pybytes())
    return b"".join(frames)


def zstandard(file):
    """An archive in the method 93, which `zipfile` writes since Python 3.14 only."""
    whole, index = io.BytesIO(), b""
    for name, text in members():
        packed, raw, at = compressed(text.encode()), text.encode(), whole.tell()
        sizes = (zlib.crc32(raw), len(packed), len(raw), len(name), 0)
        head = struct.pack("<HHHHHIIIHH", 63, 0, 93, 0, 0, *sizes)
        whole.write(b"PK\x03\x04" + head + name.encode() + packed)
        index += b"PK\x01\x02" + struct.pack("<H", 63) + head
        index += struct.pack("<HHHII", 0, 0, 0, 0, at) + name.encode()
    end = struct.pack("<HHHHIIH", 0, 0, 4, 4, len(index), whole.tell(), 0)
    file.write_bytes(whole.getvalue() + index + b"PK\x05\x06" + end)


@pytest.mark.parametrize("write", [deflated, zstandard])
def test_an_archive_of_inspect_ai_is_read_by_its_samples_however_they_are_compressed(
    tmp_path, write
):
    write(file := tmp_path / "2026-08-01_math.eval")
    (tmp_path / "logs.json").write_text('{"a.eval": {"status": "success"}}')
    rows = document_rows(file)
    assert [row["epoch"] for row in rows] == [1, 2] and "events" not in rows[0]
    for place in (file, tmp_path):
        log = read_log([place])
        assert (log.trainer, log.rows["answer"].to_list()) == ("inspect_ai", ["7", "8"])


def test_a_sample_that_was_written_again_counts_once(tmp_path):
    deflated(file := tmp_path / "a.eval")
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(file, "a") as archive:  # fmt: skip
        archive.writestr("samples/1_epoch_1.json", json.dumps(sample(9, 1)))
    assert read_log([file]).rows["answer"].to_list() == ["9", "8"]


@each("content", b"", b"PK\x03\x04nothing", b"{}")
def test_a_damaged_archive_is_named(tmp_path, content):
    (file := tmp_path / "a.eval").write_bytes(content)
    assert f"{file} is no whole log of inspect_ai" in refusal(read_log, [file])


@pytest.mark.parametrize("write", [deflated, zstandard])
def test_an_archive_that_is_damaged_within_or_cut_is_named(tmp_path, write):
    write(file := tmp_path / "a.eval")
    whole = file.read_bytes()
    at = whole.index(b"samples/1_epoch_1.json") + 40
    for content in (whole[:-30], whole[:at] + b"\xff" * 30 + whole[at + 30 :]):
        file.write_bytes(content)
        assert f"{file} is no whole log of inspect_ai" in refusal(read_log, [file])
