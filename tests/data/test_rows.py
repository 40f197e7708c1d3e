"""Rows of any file: its columns as texts and numbers, and what a user is told when it is none."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import each, refusal
from samples import json_lines

from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.rows import Rows, pick
from olr_cli.data.table_files import files_of_one_split, matching_files, read_table
from olr_cli.data.values import Origins


def rows(values: list[Any], kind: Any = None) -> Rows:
    return Rows(pa.table({"x": pa.array(values, kind)}), Origins("file"))


# Columns ----------------------------------------------------------------------------------------------------------


@each(
    "column, expected",
    (rows(["a", " ", "", None]), ["a", None, None, None]),
    (rows([14.0, None, float("nan"), 2.5]), ["14", None, None, "2.5"]),
    (rows([1e16, -0.0, 1e300]), ["10000000000000000", "0", "1e+300"]),
    (rows([Decimal("2.00"), Decimal("1.50")]), ["2", "1.50"]),
    (
        rows([0.1, 1e-7, None, 1e20, 14.0], pa.float32()),
        ["0.1", "1e-07", None, "1e+20", "14"],
    ),
    (rows([0.1, 65504.0], pa.float16()), ["0.1", "65504"]),
    (rows([[0.1], [], None], pa.list_(pa.float32())), ["0.1", None, None]),
    (rows([2**64 - 1, 0], pa.uint64()), [str(2**64 - 1), "0"]),
    (rows([None, None], pa.null()), [None, None]),
    (rows([["a"], [], None]), ["a", None, None]),
)
def test_numbers_are_texts_of_what_they_mean(column, expected):
    assert column.texts("x") == expected


def test_a_text_column_keeps_what_is_blank():
    assert rows(["", " ", "a"]).text_column("x").to_pylist() == ["", " ", "a"]


@each(
    "column, found",
    (rows([None, True]), "row 2 of file, counted from 1: 'x' is a bool"),
    (rows([b"a"]), "'x' is a bytes"),
    (rows([float("inf")]), "'x' is inf"),
    (rows([{"a": 1}]), "'x' is a dict"),
    (rows([["a", "b"]]), "'x' is a list of 2 values"),
    (
        rows([2**62], pa.timestamp("us")),
        "column 'x' holds timestamp[us] values that cannot be read",
    ),
)
def test_what_is_neither_text_nor_number_is_named(column, found):
    assert found in refusal(column.texts, "x")


def test_numbers_may_be_written_as_text_and_must_be_finite():
    for spelled in ([1.5, None, None, float("nan")], ["1.5", "", None, "nan"]):
        assert rows(spelled).numbers("x").to_pylist() == [1.5, None, None, None]
    for wrong in ("low", "inf", "1e999", float("inf")):
        message = rf"row 2 of file, counted from 1: 'x' is {wrong!r}, and it should be a finite number"
        assert message in refusal(rows([None, wrong]).numbers, "x")


@pytest.mark.parametrize("others", ['"7/2"', "7", '["7"]', '{"x": 7}'])
def test_a_nan_of_json_is_a_missing_value_beside_values_of_any_kind(others, tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_text(f'{{"x": {others}}}\n{{"x": NaN}}\n')
    assert Rows(read_table([file]), "mine").values("x")[1] is None


def test_a_path_leads_into_structs_lists_and_dialogues():
    turns = [
        {"role": role, "content": text}
        for role, text in (("user", "q"), ("assistant", "a"))
    ]
    single = pa.array(
        [{"in": [{"x": 0.1}]}], pa.struct({"in": pa.list_(pa.struct({"x": pa.float32()}))})
    )
    columns = {
        "meta": [{"gold": [7, 8]}],
        "messages": [turns],
        "a.b": ["whole"],
        "f": single,
    }
    nested = Rows(pa.table(columns), Origins("file"))
    paths = (
        "meta.gold.1",
        "messages.assistant",
        "a.b",
        "f.in.0.x",
        "meta.none",
        "messages.system",
        "no",
    )
    assert [nested.texts(path)[0] for path in paths] == [
        "8",
        "a",
        "whole",
        "0.1",
        None,
        None,
        None,
    ]
    assert [nested.has(path) for path in paths] == [True] * 4 + [False] * 3
    assert nested.paths == ["meta.gold", "messages", "messages.assistant", "a.b", "f.in"]


def test_the_first_usual_path_plays_a_role_unless_another_is_named():
    def picked(named: dict[str, str]) -> dict[str, str]:
        roles = {"question": ["prompt", "question"], "answer": ["answer"]}
        available = ["question", "prompt"]
        return pick(available.__contains__, roles, named, place="file", available=available)

    assert picked({}) == {"question": "prompt"}
    assert picked({"question": "question"}) == {"question": "question"}
    assert "file has no 'promt' (did you mean 'prompt'" in refusal(
        picked, {"answer": "promt"}
    )


# Files ------------------------------------------------------------------------------------------------------------


def complaint(path: Path) -> str:
    message = refusal(lambda: read_table(matching_files(str(path))))
    assert path.name in message
    return message


def test_json_lines_and_a_json_array_give_the_same_table(tmp_path):
    rows = [{"question": "1+1", "answer": 2}, {"question": "2+2", "answer": 4}]
    array = tmp_path / "b.json"
    array.write_text(json.dumps(rows, indent=2))
    assert read_table([json_lines(tmp_path / "a.jsonl", *rows)]) == read_table([array])


@each(
    "values, kept",
    (["x", 2, 2.5, None], ["x", "2", "2.5", None]),
    ([10**30, 7], [str(10**30), "7"]),
    (["x", ["y", 2], [], 3, None], [["x"], ["y", "2"], [], ["3"], None]),
    (
        ["x", [{"type": "text", "text": "y"}]],
        [[{"type": "text", "text": name}] for name in "xy"],
    ),
    ([{}, None], [None, None]),
    (
        [{"b": [1]}, {"b": []}, {"c": "x"}],
        [{"b": [1], "c": None}, {"b": [], "c": None}, {"b": None, "c": "x"}],
    ),
    ([[{"a": 1}], [{"a": "x"}, {"a": None}]], [[{"a": "1"}], [{"a": "x"}, {"a": None}]]),
)
def test_values_of_many_forms_become_a_column(tmp_path, values, kept):
    file = json_lines(tmp_path / "a.jsonl", *({"x": value} for value in values))
    assert read_table([file]).to_pylist() == [{"x": value} for value in kept]


def test_texts_beside_chats_are_refused(tmp_path):
    file = json_lines(
        tmp_path / "a.jsonl", {"x": "1+1?"}, {"x": [{"role": "user", "content": "1+1?"}]}
    )
    assert "'x' mixes a list and text" in refusal(read_table, [file])


def test_a_column_of_json_can_be_written_as_parquet_whatever_is_empty_in_it(tmp_path):
    file = json_lines(tmp_path / "a.jsonl", {"a": {}, "b": [], "c": None, "d": {"e": {}}})
    pq.write_table(read_table([file]), tmp_path / "a.parquet")
    assert read_table([tmp_path / "a.parquet"]).num_rows == 1


def test_what_is_no_data_file_is_told_with_the_name_it_may_have(tmp_path):
    assert "has no file ending in" in complaint(tmp_path)
    (tmp_path / "train_800.parquet").write_bytes(b"")
    assert "train_800.parquet'?)" in complaint(tmp_path / "train_80.parquet")
    assert "nor does the folder" in complaint(tmp_path / "nowhere" / "train.parquet")
    assert "no file matches" in complaint(tmp_path / "x*.parquet")
    (tmp_path / "notes.txt").write_text("hello")
    assert "ends in none of" in complaint(tmp_path / "notes.txt")


def test_a_folder_and_a_pattern_stand_for_their_files_in_order(tmp_path):
    json_lines(tmp_path / "b.jsonl", {"q": "2", "extra": 1})
    pq.write_table(pa.table({"q": ["1"]}), tmp_path / "a.parquet")
    (tmp_path / "README.md").write_text("not data")
    folder = read_table(matching_files(str(tmp_path)))
    assert folder.to_pylist() == [{"q": "1", "extra": None}, {"q": "2", "extra": 1}]
    assert read_table(matching_files(str(tmp_path / "b*"))).num_rows == 1
    json_lines(tmp_path / "c.jsonl", {"q": ["2"]})
    assert "c.jsonl does not fit" in complaint(tmp_path)


@each(
    "names, patterns",
    (["train-00000-of-00002.parquet", "train-00001-of-00002.parquet", "test-00000-of-00001.parquet"],
     ["'F/test-*.parquet'", "'F/train-*.parquet'"]),
    (["train-00000-of-00001-b42a775f.parquet", "validation-00000-of-00001-7f.parquet"],
     ["'F/train-*.parquet'", "'F/validation-*.parquet'"]),
    (["dev.jsonl", "training.jsonl"], ["F/dev.jsonl", "F/training.jsonl"]),
    (["gsm8k_eval.csv", "gsm8k_train1.csv", "gsm8k_train2.csv"], ["F/gsm8k_eval.csv", "'F/gsm8k_train*.csv'"]),
    (["a_train.json", "b_train.json", "a_held-out.json"], ["F/a_held-out.json", "'F/*train*'"]),
    (["TestSet.tsv", "trainData.tsv"], ["F/TestSet.tsv", "F/trainData.tsv"]),
)  # fmt: skip
def test_a_folder_of_several_splits_is_refused_with_patterns_that_read_one(
    tmp_path, names, patterns
):
    for name in names:
        (tmp_path / name).write_text("question,answer\n")
    said = refusal(files_of_one_split, str(tmp_path)).replace(str(tmp_path), "F")
    assert said.startswith("the folder F holds files of several splits")
    assert said.endswith(f"name those of one, as {' or '.join(patterns)}")
    for pattern in patterns:
        files = files_of_one_split(pattern.strip("'").replace("F", str(tmp_path), 1))
        assert 0 < len(files) < len(names)
    assert len(files_of_one_split(str(tmp_path / "*"))) == len(names)


@each(
    "names",
    ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"],
    ["train_part1.jsonl", "train_part2.jsonl", "training_more.jsonl"],
    ["contest.jsonl", "latest.jsonl", "trained.jsonl", "developers.jsonl"],
    ["part-0.csv", "train.csv"],
)
def test_a_folder_of_shards_of_one_split_is_read_whole(tmp_path, names):
    for name in names:
        (tmp_path / name).write_text("question,answer\n")
    assert [file.name for file in files_of_one_split(str(tmp_path))] == sorted(names)


@each(
    "text, line",
    ('{"q": "1", "a": 1}\n{"q": "2", "a": 2, "a": 3}\n', ", line 2"),
    ('{"q": "1", "m": {"a": 1, "a": 3}}', ", line 1"),
    ('[{"q": "1", "a": 1, "a": 2}]', ""),
)
def test_a_key_that_stands_twice_with_other_values_is_named_with_its_line(
    tmp_path, text, line
):
    file = tmp_path / "x.jsonl"
    file.write_text(text)
    assert f"x.jsonl{line} is not valid JSON: an object has the key 'a' twice" in complaint(
        file
    )
    file.write_text('{"q": "1", "a": 1, "a": 1}')
    assert read_table([file]).to_pylist() == [{"q": "1", "a": 1}]


def test_a_categorical_column_is_read_as_its_values(tmp_path):
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": pa.array(["x", "y", "x"]).dictionary_encode()}), file)
    assert read_table([file]).schema.field("a").type == pa.string()


TEXTS = pa.array(["x", None, "a text of more than twelve bytes"], pa.string_view())


@each(
    "column",
    TEXTS,
    pa.array([["x"], None, ["y", None]], pa.list_(pa.string_view())),
    pa.StructArray.from_arrays([TEXTS], ["gold"]),
    pa.array(["x", "y", "x"], pa.large_string()),
    pa.array(["x", "y", "x"], pa.large_string()).dictionary_encode(),
    pa.array([b"x", b"y", None], pa.binary_view()),
)
def test_texts_of_every_type_of_arrow_are_read_and_chosen_from(tmp_path, column):
    pq.write_table(pa.table({"a": column}), file := tmp_path / "a.parquet")
    table = read_table([file, file])
    assert table["a"].to_pylist() == column.to_pylist() * 2
    assert Rows(table, Origins("file")).take([5, 0]).values("a") == [
        column.to_pylist()[at] for at in (2, 0)
    ]


def test_large_texts_that_repeat_are_read_as_they_are(tmp_path):
    words = pa.array(
        [f"a long text, number {row % 50}" for row in range(200_000)], pa.large_string()
    )
    table = pa.table(
        {"a": words, "b": pa.array([["x"]] * len(words), pa.list_(pa.large_string()))}
    )
    pq.write_table(table, tmp_path / "a.parquet")
    assert read_table([tmp_path / "a.parquet"]).equals(table)


@pytest.mark.parametrize(
    ("name", "separator"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t")]
)
def test_a_csv_file_has_texts_below_its_names(tmp_path, name, separator):
    lines = [["question", "answer"], ['"1+1,\n""x"";"', "007"], ["2+2", ""]]
    text = "\n".join(separator.join(line) for line in lines) + "\n"
    (tmp_path / name).write_text(text, encoding="utf-8-sig")
    rows = [
        {"question": '1+1,\n"x";', "answer": "007"},
        {"question": "2+2", "answer": None},
    ]
    assert read_table([tmp_path / name]).to_pylist() == rows
    assert read_table([tmp_path / name], {"answer", "other"}).column_names == ["answer"]


@pytest.mark.parametrize("spelled", [json.dumps, str])
def test_chat_turns_in_csv_are_read_as_in_json_and_other_texts_stay(tmp_path, spelled):
    turns = [
        {"role": "user", "content": 'It\'s "1+1"?'},
        {"role": "assistant", "content": "2"},
    ]
    cells = {
        "messages": [spelled(turns), ""],
        "note": [spelled(turns), "[{"],
        "log": [spelled([{"n": 1}])] * 2,
    }
    pl.DataFrame(cells).write_csv(tmp_path / "a.csv")
    table = read_table([tmp_path / "a.csv"])
    assert table.to_pydict() == cells | {"messages": [turns, None]}
    assert Rows(table, Origins("a.csv")).values("messages.assistant") == ["2", None]


def test_a_row_of_a_csv_file_with_other_columns_is_named_by_its_line(tmp_path):
    (tmp_path / "a.csv").write_text('q,a\n1,2\n   \n1,2,"3\n4"\n')
    assert "line 4 has 3 values, and its first line names 2 columns" in complaint(
        tmp_path / "a.csv"
    )


@each(
    "name, content, places",
    ("a.jsonl", '{"q": 1}\n\n{"q": 2}\n', ["line 1 of {}", "line 3 of {}"]),
    (
        "a.json",
        '[{"q": 1},\n\n {"q": 2}]',
        ["row 1 of {}, counted from 1", "row 2 of {}, counted from 1"],
    ),
    ("a.csv", 'q\n"1\n1"\n\n2\n', ["line 2 of {}", "line 5 of {}"]),
    ("a.csv", "q\r1\r2\r", ["line 2 of {}", "line 3 of {}"]),
)
def test_a_row_is_named_as_an_editor_shows_it(tmp_path, name, content, places):
    file = tmp_path / name
    file.write_text(content, newline="")
    assert [Origins("it", [file]).name(row) for row in range(2)] == [
        place.format(file) for place in places
    ]


def test_rows_of_several_files_are_counted_in_each_also_where_some_are_left_out(tmp_path):
    pq.write_table(pa.table({"q": ["1", "2"]}), tmp_path / "a.parquet")
    files = [
        tmp_path / "a.parquet",
        json_lines(tmp_path / "b.jsonl", {"q": "3"}, {"q": "4"}),
    ]
    rest = Origins("it", files).take([1, 2, 3]).take([0, 2])
    assert [rest.name(row) for row in range(2)] == [
        f"row 2 of {files[0]}, counted from 1",
        f"line 2 of {files[1]}",
    ]
    assert rest.name(1, is_short=True) == f"line 2 of {files[1]}"
    assert Origins("it", files[1:]).name(1, is_short=True) == "line 2"


ROWS = [{"question": f"{n}+{n}?", "answer": str(2 * n)} for n in range(3)]


def saved(folder):
    """A folder as `Dataset.save_to_disk` of the package datasets leaves it, with a copy that `map` left there."""
    folder.mkdir(parents=True)
    table = pa.Table.from_pylist(ROWS)
    for name in ("data-00000-of-00001.arrow", "cache-1f.arrow"):
        with pa.ipc.new_stream(folder / name, table.schema) as stream:
            stream.write_table(table)
    (folder / "state.json").write_text('{\n  "_data_files": [],\n  "_split": null\n}')
    (folder / "dataset_info.json").write_text('{\n  "features": {}\n}')


def test_a_data_set_that_was_saved_to_disk_is_read(tmp_path):
    saved(tmp_path / "mine")
    prompts = read_prompts(tmp_path / "mine")
    assert [prompt.given_label for prompt in prompts.prompts] == ["0", "2", "4"]
    file = tmp_path / "mine" / "data-00000-of-00001.arrow"
    assert prompts.origins.name(1) == f"row 2 of {file}, counted from 1"
    file.write_bytes(file.read_bytes()[:200])
    assert "is not a whole Arrow stream" in refusal(read_prompts, tmp_path / "mine")


@each(
    "names, what, patterns",
    (["data/train-00000-of-00001.parquet", "data/test-00000-of-00001.parquet"], "holds its data in folders",
     ["'F/data/test-*.parquet'", "'F/data/train-*.parquet'"]),
    (["data/train-00000-of-00001.parquet"], "holds its data in folders", ["F/data"]),
    (["train/0.parquet", "test/0.parquet"], "holds its data in folders", ["F/test", "F/train"]),
    (["a/main/train.jsonl", "a/main/test.jsonl", "b/x.csv"], "holds its data in folders",
     ["F/a/main/test.jsonl", "F/a/main/train.jsonl", "F/b"]),
    (["train/data-00000-of-00001.arrow", "train/state.json", "test/data-00000-of-00001.arrow", "test/state.json"],
     "is a saved DatasetDict of splits", ["F/test", "F/train"]),
)  # fmt: skip
def test_a_folder_whose_data_lie_in_folders_says_what_to_name(
    tmp_path, names, what, patterns
):
    (tmp_path / "README.md").write_text("")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "old.jsonl").write_text("")
    if "Dict" in what:
        (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    said = refusal(files_of_one_split, str(tmp_path)).replace(str(tmp_path), "F")
    assert said == f"the folder F {what}; name one, as {' or '.join(patterns)}"
    for pattern in patterns:
        assert files_of_one_split(pattern.strip("'").replace("F", str(tmp_path), 1))
