"""Files of rows: what is understood, and what a user is told when it is not."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from olr_cli.data.rows import matching_files, read_table
from olr_cli.errors import UserError


def write_lines(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def complaint(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_table(matching_files(str(path)))
    message = str(caught.value)
    assert "\n" not in message and path.name in message
    return message


def test_json_lines_and_a_json_array_give_the_same_table(tmp_path: Path) -> None:
    rows = [{"question": "1+1", "answer": 2}, {"question": "2+2", "answer": 4}]
    lines = write_lines(tmp_path / "a.jsonl", *rows)
    array = tmp_path / "b.json"
    array.write_text(json.dumps(rows, indent=2))
    assert read_table([lines]) == read_table([array])


def test_blank_lines_and_a_byte_order_mark_are_no_rows(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'\xef\xbb\xbf\n{"q": "x"}\r\n\n{"q": "y"}')
    assert read_table([file]).to_pylist() == [{"q": "x"}, {"q": "y"}]


def test_a_line_separator_inside_a_string_does_not_end_a_row(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"q": "one\u2028two"}\n', encoding="utf-8")
    assert read_table([file]).to_pylist() == [{"q": "one\u2028two"}]


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        (["x", 2, 2.5, None], ["x", "2", "2.5", None]),
        ([10**30, 7], [str(10**30), "7"]),
        ([{}, None], [None, None]),
        (
            [{"b": [1]}, {"b": []}, {"c": "x"}],
            [{"b": [1], "c": None}, {"b": [], "c": None}, {"b": None, "c": "x"}],
        ),
        ([[{"a": 1}], [{"a": "x"}, {"a": None}]], [[{"a": "1"}], [{"a": "x"}, {"a": None}]]),
    ],
)
def test_values_of_many_forms_become_a_column(
    tmp_path: Path, values: list[object], kept: list[object]
) -> None:
    file = write_lines(tmp_path / "a.jsonl", *({"x": value} for value in values))
    assert read_table([file]).to_pylist() == [{"x": value} for value in kept]


def test_a_column_of_json_can_be_written_as_parquet_whatever_is_empty_in_it(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "a.jsonl", {"a": {}, "b": [], "c": None, "d": {"e": {}}})
    pq.write_table(read_table([file]), tmp_path / "a.parquet")
    assert read_table([tmp_path / "a.parquet"]).num_rows == 1


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"q": 1}\n{"q": \n', "line 2 is not valid JSON"),
        (b'{"q": 1}\n\n[1]', "line 3: a row must be a JSON object, and this is a list"),
        (b"[1, 2]", "row 0: a row must be a JSON object, and this is a whole number"),
        (b"[{]", "is not valid JSON"),
        (b"\xff\xfe{}", "is not UTF-8 text"),
        (b'{"q": "fine"}\n{"q": "\\ud800"}', "line 2 has half of a surrogate pair"),
        (b'{"q": "text"}\n{"q": ["list"]}', "'q' mixes a list and text"),
        (b'{"e": {"q": {"r": 1}}}\n{"e": {"q": true}}', "'e.q' mixes an object and true or false"),
        (b'{"q": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", "nested too deeply"),
    ],
)
def test_bad_json_is_named_with_its_place(tmp_path: Path, content: bytes, expected: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(content)
    assert expected in complaint(file)


def garbled(file: Path) -> bytes:
    """The bytes of a Parquet file in which a text is not UTF-8 any more."""
    pq.write_table(pa.table({"a": ["plain words"]}), file, compression="none", use_dictionary=False)
    return file.read_bytes().replace(b"plain words", b"plain\xffwords")


def test_torn_foreign_and_empty_parquet_files_are_named(tmp_path: Path) -> None:
    whole = tmp_path / "whole.parquet"
    pq.write_table(pa.table({"a": list(range(1000))}), whole)
    for name, content in {
        "torn.parquet": whole.read_bytes()[:-20],
        "foreign.parquet": b"question,answer\n1+1,2\n",
        "empty.parquet": b"",
        "garbled.parquet": garbled(tmp_path / "text.parquet"),
    }.items():
        (tmp_path / name).write_bytes(content)
        assert "is not a whole Parquet file" in complaint(tmp_path / name)


def test_a_missing_file_is_told_with_the_name_it_may_have(tmp_path: Path) -> None:
    (tmp_path / "train_800.parquet").write_bytes(b"")
    assert "train_800.parquet'?)" in complaint(tmp_path / "train_80.parquet")
    assert "nor does the folder" in complaint(tmp_path / "nowhere" / "train.parquet")
    assert "no file matches" in complaint(tmp_path / "x*.parquet")


def test_a_file_of_another_kind_and_a_folder_without_data_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert "ends in neither of" in complaint(tmp_path / "notes.txt")
    assert "has no file ending in" in complaint(tmp_path)


def test_a_folder_and_a_pattern_stand_for_their_files_in_order(tmp_path: Path) -> None:
    write_lines(tmp_path / "b.jsonl", {"q": "2", "extra": 1})
    pq.write_table(pa.table({"q": ["1"]}), tmp_path / "a.parquet")
    (tmp_path / "README.md").write_text("not data")
    folder = read_table(matching_files(str(tmp_path)))
    assert folder.to_pylist() == [{"q": "1", "extra": None}, {"q": "2", "extra": 1}]
    assert read_table(matching_files(str(tmp_path / "b*"))).num_rows == 1


def test_files_whose_columns_disagree_are_not_mixed(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", {"q": "1"})
    write_lines(tmp_path / "b.jsonl", {"q": ["2"]})
    assert "b.jsonl does not fit" in complaint(tmp_path)


def test_a_categorical_column_is_read_as_its_values(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": pa.array(["x", "y", "x"]).dictionary_encode()}), file)
    assert read_table([file]).schema.field("a").type == pa.string()


def test_large_texts_that_repeat_are_read_as_they_are(tmp_path: Path) -> None:
    words = pa.array([f"a long text, number {row % 50}" for row in range(200_000)], pa.large_string())
    table = pa.table({"a": words, "b": pa.array([["x"]] * len(words), pa.list_(pa.large_string()))})
    pq.write_table(table, tmp_path / "a.parquet")
    assert read_table([tmp_path / "a.parquet"]).equals(table)


@pytest.mark.parametrize(("name", "separator"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t")])
def test_a_csv_file_has_texts_below_its_names(tmp_path: Path, name: str, separator: str) -> None:
    lines = [["question", "answer"], ['"1+1,\n""x"";"', "007"], ["2+2", ""]]
    (tmp_path / name).write_text(
        "\n".join(separator.join(line) for line in lines) + "\n", encoding="utf-8-sig"
    )
    rows = [{"question": '1+1,\n"x";', "answer": "007"}, {"question": "2+2", "answer": None}]
    assert read_table([tmp_path / name]).to_pylist() == rows


def test_a_row_of_a_csv_file_with_other_columns_is_named_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("q,a\n1,2\n1,2,3\n")
    assert "line 3 has 3 values, and its first line names 2 columns" in complaint(tmp_path / "a.csv")
