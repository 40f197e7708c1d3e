"""Small rules of reading data, each with the row that fails by its second condition alone."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from cases import each
from samples import json_lines

from olr_cli.answers.graded import SENTINEL
from olr_cli.data import (
    chat,
    choices,
    log_rows,
    log_tables,
    logs,
    noise,
    prompt_files,
    table_files,
    values,
)
from olr_cli.data.choices import choice_path, letters_in, options_in
from olr_cli.data.interchange import index_column, prompt_set, with_fields
from olr_cli.data.json_documents import _rows_within
from olr_cli.data.labels import golds_of, is_tests
from olr_cli.data.log_files import _is_held_out, natural, numbered
from olr_cli.data.log_formats import LOG_FORMATS, TABLE, is_of_others, recognised
from olr_cli.data.percent import asks_for_percent
from olr_cli.data.prompt_files import Reading, is_blank
from olr_cli.data.prompts import Prompt, in_percent
from olr_cli.data.questions import asks_the_same, normal_question, question_ids, question_of
from olr_cli.data.rows import Rows, suggested, walk
from olr_cli.data.values import Origins
from olr_cli.errors import UserError

U, A, S = (
    lambda text, role=role: chat.Message(role, text)
    for role in ("user", "assistant", "system")
)


def table(**columns):
    return Rows(pa.table(columns), Origins("the file"))


def prompt(name, label="5", truth=None, kind=None):
    return Prompt(name, (U(f"What is {name}?"),), label, truth, kind)


@each(
    "reading, options",
    (Reading(), []), (Reading(encoding="utf-8"), []), (Reading(decimal_comma=True), ["--decimal-comma"]),
    (Reading({"question": "q", "answer": "a"}, encoding="cp1252"),
     ["--columns", "question=q,answer=a", "--encoding", "cp1252"]),
)  # fmt: skip
def test_a_command_reads_a_file_as_it_was_read(reading, options):
    assert reading.options == options


@each(
    "text, source, is_question, said",
    (None, "x", True, True), (None, "x", False, False), (None, "arithmetic", True, False), ("none", "x", True, False),
    ("Be brief.", "arithmetic", False, True),
)  # fmt: skip
def test_a_plain_question_gets_the_usual_system_message(text, source, is_question, said):
    turns = Reading(system_prompt=text).system(source, is_question=is_question)
    assert bool(turns) is said and all(turn.role == "system" for turn in turns)


@each(
    "value, is_so",
    (None, True), (float("nan"), True), (" ", True), ("x", False), ([], True),
    ([{"role": "user", "content": " "}], True),
    ([{"role": "user", "content": "x"}], False), (7, False), ([7], False),
)  # fmt: skip
def test_a_question_is_blank(value, is_so):
    assert is_blank(value) is is_so


@each(
    "label, note",
    ("2,5", "1 label read with a decimal comma (the first: 2,5 is 2.5, row 1 of the file, counted from 1)"),
    ("1,234", "1 label with three digits after a comma read as thousands (the first: 1,234 is 1,234,"
              " row 1 of the file, counted from 1)"),
    ("1.234", "1 label with a point before three digits read as decimal (the first: 1.234 is 1.234,"
              " row 1 of the file, counted from 1)"),
    ("7", "no label of the file has a decimal comma"), (None, "no label of the file has a decimal comma"),
)  # fmt: skip
def test_a_note_says_how_commas_are_read(label, note):
    assert prompt_files._comma_notes(table(answer=["x"]), [label]) == [note]


@each(
    "columns, path",
    (("A", "B", "C", "D"), "A+B+C+D"), (("A", "B"), None), (("A", "B", "C"), "A+B+C"), (("a", "b", "c"), None),
    (("option_a", "option_b"), "option_a+option_b"), (("option_a",), None), (("opa", "opb", "opc"), "opa+opb+opc"),
    (("option1", "option2", "option4"), "option1+option2"), (("option0", "option1"), "option0+option1"),
    (("B", "C", "D"), None), (("question", "answer"), None),
)  # fmt: skip
def test_options_stand_in_columns_of_a_series(columns, path):
    assert choice_path(table(**{name: ["x"] for name in columns})) == path


@each(
    "cell, texts",
    (["x", "y"], "x y"), (["x"], None), ([], None), (["x", None], None), (["x", "y", None], "x y"),
    (["x", None, "y"], None),
    ([1, 2.0], "1 2"), ([True, False], None), (["x", float("inf")], None), ({"A": "x", "B": "y"}, "x y"),
    ({"A": "x", "name": "y"}, None), ({"text": ["x", "y"], "label": ["A", "B"]}, "x y"), (["A) x", "B) y"], "x y"),
    (["A) x", "C) y"], "A) x C) y"), ("A) x B) y", "x y"), ("a. x, b. y", "x y"), ("B) x C) y", None), ("x", None),
    ('["x", "y"]', "x y"), ("{'A': 'x', 'B': 'y'}", "x y"), ("[1", None), (7, None), (["x"] * 26, " ".join(["x"] * 26)),
    (["x"] * 27, None), ({"A": "x", "B": "y", "C": None}, "x y"),
)  # fmt: skip
def test_the_options_of_a_cell(cell, texts):
    options = options_in(cell)
    assert (options and " ".join(options.texts)) == texts


@each(
    "label, letters",
    ("A, C", "AC"),
    ("ACD", "ACD"),
    ("A and C", "AC"),
    ("A", ""),
    ("AZ", ""),
    (" A,B ", "AB"),
    ("cat", ""),
)
def test_the_letters_of_several_options(label, letters):
    assert "".join(letters_in(label)) == letters


@each(
    "question, asks",
    ("What percent is it?", True), ("What percent is it? How many are left?", False),
    ("What percent is it. How many? Say so.", False), ("What percent is it? Round it.", True),
    ("5 percent of what?", False),
    ("Give it as a percentage.", True), ("What is 5% of 3?", False), ("Find the number.", False), ("是百分之几?", True),
    ("What fifty percent share?", False),
)  # fmt: skip
def test_which_questions_ask_for_a_percentage(question, asks):
    assert asks_for_percent(question) is asks
    assert (
        in_percent(
            [S("What percent is it?"), U("x"), U(question), A("What percent is it?")]
        )
        is asks
    )
    assert not in_percent([S("What percent is it?")])


@each(
    "cell, golds",
    (None, ()), (" ", ()), ("7", ("7",)), (7, ("7",)), (7.0, ("7",)), (float("nan"), ()), (["7", "8", "7"], ("7", "8")),
    (("7",), ("7",)), ({"answer": "7", "x": 1}, ("7",)), ({"answer": None, "label": "8"}, ("8",)),
    ('["7", "8"]', ("7", "8")),
    ("[7, 8]", ("[7, 8]",)), ("{1, 2}", ("{1, 2}",)), (r"so \boxed{7}", ("7",)), ("so #### 7", ("7",)),
    ("<answer>7</answer>", ("7",)), ("The answer is: 7", ("7",)), ("Answer: ", ("Answer: ".rstrip(),)),
    ("\tau", ("\tau",)),
    (np.float32(0.1), ("0.1",)), (np.int64(7), ("7",)), (np.array(["7", "8"]), ("7", "8")),
    ('{"x": "7"}', ('{"x": "7"}',)),
    ("#### Steps\nmore 7", ("Steps\nmore 7",)), ('["7", 8]', ('["7", 8]',)),
)  # fmt: skip
def test_the_golds_of_a_cell(cell, golds):
    assert golds_of(cell) == golds


@each("cell", True, {"x": 1}, float("inf"), object())
def test_what_is_no_answer_is_refused(cell):
    with pytest.raises(ValueError):
        golds_of(cell)


@each(
    "cell, is_so",
    ('{"inputs": ["1"], "outputs": ["2"]}', True), ({"inputs": [1]}, True), (["assert f(1) == 2"], True),
    ("assert f(1) == 2", True),
    ("def check(f):", True), ("def test_x():", True), ("assertive", False), ("inputs: 5", False), (7, False),
    (None, False),
)  # fmt: skip
def test_tests_of_a_program_are_no_label(cell, is_so):
    assert is_tests(cell) is is_so


@each(
    "value, steps, found",
    ({"a": {"b": 7}}, "a.b", 7), ({"a": 7}, "a.b", None), ({"a": [7, 8]}, "a.1", 8), ({"a": [7]}, "a.1", None),
    ({}, "a", None),
    ({"a": [{"role": "user", "content": "x"}, {"role": "user", "content": "y"}]}, "a.user", "y"),
    ({"a": [{"role": "user", "content": "x"}]}, "a.assistant", None), (None, "a", None), ({"a": [7]}, "a.user", None),
)  # fmt: skip
def test_a_path_leads_into_a_value(value, steps, found):
    assert walk(value, steps.split(".")) == found


@each(
    "available, named, text",
    (["Question", "my_answer"], {}, "{question: Question, answer: my_answer}"),
    (["answer", "the answer"], {}, '{question: COLUMN, answer: answer}'),
    (["the question"], {}, '{question: "the question", answer: COLUMN}'),
    (["x"], {"question": "x"}, "{question: x, answer: COLUMN}"),
    (["meta.question"], {}, "{question: meta.question, answer: COLUMN}"),
    (["question answer"], {}, '{question: "question answer", answer: COLUMN}'),
)  # fmt: skip
def test_the_likeliest_columns_are_suggested(available, named, text):
    likely = {"question": ["question"], "answer": ["answer"]}
    assert suggested(likely, available, named) == text


@each(
    "names, order",
    (["a10", "a2", "a1"], "a1 a2 a10"), (["b1", "a2"], "a2 b1"), (["a", "1"], "1 a"),
)  # fmt: skip
def test_names_are_sorted_by_their_numbers(names, order):
    assert " ".join(sorted(names, key=natural)) == order


@each(
    "names, steps",
    (["s/1.jsonl", "s/2.jsonl"], [1, 2]), (["s12/x", "s13/x"], [12, 13]), (["s7/x"], [1]), (["a", "b"], [1, 2]),
    (["x1/5.jsonl", "x1/7.jsonl"], [5, 7]), (["x10", "x100"], [10, 100]),
)  # fmt: skip
def test_the_step_of_a_file_is_the_number_in_which_paths_differ(names, steps):
    assert [step for _, step in numbered([*map(Path, names)])] == steps


@each(
    "path, is_so",
    ("eval/1.jsonl", True),
    ("x/val-1.jsonl", True),
    ("evaluate/1.jsonl", False),
    ("train/1.jsonl", False),
)
def test_rollouts_are_held_out_by_the_name_of_a_folder_or_file(path, is_so):
    assert _is_held_out(Path(path)) is is_so


@each(
    "value, found",
    ([{"q": 1}], [{"q": 1}]), ({"columns": ["a", "b"], "data": [[1, 2]]}, [{"a": 1, "b": 2}]),
    ({"columns": ["a", "b"], "data": [[1]]}, None), ({"0": {"q": 1}, "1": {"q": 2}}, [{"q": 1}, {"q": 2}]),
    ({"question": ["x", "y"], "answer": ["1", "2"]},
     [{"question": "x", "answer": "1"}, {"question": "y", "answer": "2"}]),
    ({"question": ["x", "y"], "answer": ["1"]}, None), ({"question": "x", "answer": "1"}, None),
    ({"question": {"a": "x"}, "answer": {"a": "1"}}, [{"question": "x", "answer": "1"}]),
    ({"rows": [{"q": 1}], "n": 1}, [{"q": 1}]), ({"n": 1}, None), ({}, None), (7, None), ({"rows": []}, None),
    ({"samples": [{"id": 1, "events": 2}], "eval": {"model": "m"}}, [{"id": 1, "model": "m"}]),
    ({"turns": [{"role": "user", "content": "x"}]}, None),
)  # fmt: skip
def test_the_rows_in_a_document(value, found):
    assert _rows_within(value, Path("x.json")) == found


@each(
    "names, form",
    ("step prompt completion advantage", "TRL"), ("step prompt completion advantages", "ms-swift"),
    ("input output score", "verl"),
    ("prompt_id visit input output score", "olr"), ("input output", "olr"),
    ("example_id prompt completion", "verifiers"),
    ("task_id sample_idx prompt completion", "AReaL"),
)  # fmt: skip
def test_a_log_is_recognised_by_its_columns(names, form):
    assert recognised(names.split()).name == form
    assert recognised(sorted([*names.split(), "extra"])).name == form


def test_each_format_is_recognised_by_its_marks_and_by_no_fewer():
    for form in LOG_FORMATS:
        assert recognised(form.marks) is form
        for mark in form.marks:
            assert recognised(form.marks - {mark}) in (TABLE, *LOG_FORMATS)
            assert recognised(form.marks - {mark}) is not form


@each(
    "names, is_so",
    ("response answer", True), ("response", False), ("answer", False), ("response answer visit", False),
    ("response answer prompt_id", False), ("response answer answer_class", False),
)  # fmt: skip
def test_answers_beside_responses_are_labels_where_the_table_is_not_ours(names, is_so):
    assert is_of_others(names.split()) is is_so


@each(
    "numbers, verdicts, note",
    ([0.0, 1.0], [False, True], None), ([-1.0, 1.0], [False, True], None),
    ([0.0, 0.5, 1.0], [False, False, True], "0.5"),
    ([1.0, 3.0], [False, True], "1.5"), ([-2.0], [False], "-1"), ([1.0, 1.0], [True, True], None),
    ([0.0, 1.0, 2.0, 3.0], [False, False, True, True], "1.5"),
)  # fmt: skip
def test_rewards_in_the_upper_half_say_that_an_answer_is_right(numbers, verdicts, note):
    (found,), notes = log_tables._verdicts(pl.Series(numbers))
    assert found.to_list() == verdicts
    assert [f"above {note} are" in one for one in notes] == ([] if note is None else [True])


def test_many_different_rewards_say_nothing():
    found, notes = log_tables._verdicts(pl.Series([0.0, 1, 2, 3, 4]))
    assert found == [] and notes == [
        "Rewards have 5 different values, so they do not say which answers are right."
    ]
    assert log_tables._verdicts(pl.Series([None], dtype=pl.Float64)) == ([], [])


@each(
    "ids, kind",
    (["1", "2"], "int64"), (["01", "2"], "string"), (["a", "2"], "string"), (["1" * 17], "int64"),
    (["1" * 18], "string"),
    (["²"], "string"), (["-1"], "string"),
)  # fmt: skip
def test_ids_are_whole_numbers_where_all_are(ids, kind):
    column = index_column(ids)
    assert str(column.type) == kind and [str(it) for it in column.to_pylist()] == ids


def test_fields_of_a_struct_are_kept_or_replaced():
    column, other = (
        pa.array([{"a": 1}, None]),
        {"a": pa.array([8, 9]), "b": pa.array([5, 6])},
    )
    assert with_fields(column, other, replace=False).to_pylist() == [
        {"a": 1, "b": 5},
        {"a": None, "b": 6},
    ]
    assert with_fields(column, other, replace=True).to_pylist() == [
        {"a": 8, "b": 5},
        {"a": 9, "b": 6},
    ]
    assert with_fields(pa.array([7, 7]), other, replace=False).to_pylist() == [
        {"a": 8, "b": 5},
        {"a": 9, "b": 6},
    ]


@each(
    "one, other, is_so",
    ("What is 3+4?", "what is 3 + 4", True), ("What is 3+4?", "What is 3+5?", False),
    ("What is 3+4?", "Think. What is 3+4? Put it in a box.", True), ("3+4", "13+42", False),
    ("3+4?", "Now: 3+4? So", True),
    ("$x$ is?", "x is", True), (r"\left(x\right)", "(x)", True), ("...", "...", True), ("", "x", False),
)  # fmt: skip
def test_two_prompts_ask_the_same(one, other, is_so):
    assert asks_the_same((U(one),), (S("x"), U(other))) is is_so
    assert asks_the_same((U(other),), (U(one),)) is is_so


def test_what_the_user_asks_counts_and_else_what_is_there():
    assert normal_question([S("s"), U("One?"), A("a"), U("Two?")]) == "one two"
    assert normal_question([S("One?"), A("Two?")]) == "one two"
    assert question_of([U("One?"), A("a"), U("Two?")]) == "Two?"
    assert question_of([S("One?"), A("Two?")]) == "One?\n\nTwo?"
    assert question_of([U("[INST] One? [/INST]")]) == "One?"


def test_prompts_that_ask_the_same_are_numbered_in_the_order_of_their_texts():
    ids = question_ids([(U("b?"),), (U("B"),), (U("b?"),), (U("c"),)])
    assert [name.count("-") for name in ids] == [2, 1, 2, 1]
    assert ids[0].removesuffix("-2") == ids[1] == ids[2].removesuffix("-3")


@each(
    "names, split, pattern",
    (["train-0-of-2.parquet", "train-1-of-2.parquet"], "train", "train-*.parquet"),
    (["test.jsonl"], "test", "test.jsonl"),
    (["train1.jsonl", "train2.jsonl"], "train", "train*.jsonl"),
    (["a-train.jsonl", "b-train.jsonl"], "train", "*train*"),
)  # fmt: skip
def test_files_of_one_split_have_a_pattern(names, split, pattern):
    assert table_files._pattern(names, split) == pattern


@each(
    "value, text",
    ("x", "x"), ([{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}], "a"),
    ([{"from": "gpt", "value": "a"}, {"from": "gpt", "value": "b"}], "a\nb"), ([], None),
    ([{"role": "user", "content": "b"}], None), ([{"role": "assistant", "content": None}], ""),
)  # fmt: skip
def test_the_words_of_a_response(value, text):
    assert chat.response_text(value) == text
    assert chat.completion_text(value) == (text or "")


@each(
    "turn, found",
    ({"role": "user", "content": "x"}, U("x")), ({"from": "human", "value": "x"}, U("x")),
    ({"from": "gpt", "value": "x"}, A("x")),
    ({"from": "system", "value": "x"}, S("x")), ({"role": "user"}, U("")), ({"role": 7, "content": "x"}, None),
    ("x", None),
    ({"role": "user", "content": ["x", {"text": "y"}, {"type": "image"}, 7]}, U("xy")),
    ({"role": "user", "content": 7}, None),
)  # fmt: skip
def test_a_turn_in_any_form(turn, found):
    assert chat.message(turn) == found


@each(
    "part, kind",
    ({"type": "image"}, "image"), ({"type": "text", "text": "x"}, None), ({"type": "input_text"}, None),
    ({"text": "x"}, None),
    ({"image": "x"}, "image"), ({"text": None, "image": "x"}, "image"), ({"image": None}, None), ("x", None),
    ({}, None),
)  # fmt: skip
def test_a_part_that_is_no_text_is_named(part, kind):
    for content in ("content", "value"):
        assert chat.unseen_part([{"role": "user", content: ["x", part]}]) == kind
    assert (
        chat.unseen_part([{"role": "user", "content": "x"}, 7])
        is chat.unseen_part("x")
        is None
    )


def test_a_few_prompts_to_look_at_are_of_each_type_then_marked_then_clean():
    kinds = ["clean", "active", "inactive", "active", "clean"]
    prompts = prompt_set([prompt(str(n), kind=kind) for n, kind in enumerate(kinds)], "x")
    shown = [[one.prompt_id for one in noise.examples(prompts, size)] for size in (1, 3, 4)]
    assert shown == [["2"], ["2", "1", "3"], ["2", "1", "3", "0"]]
    assert noise.describe_counts(prompts) == "1 inactive, 2 active, 2 clean"


@each(
    "source, name",
    ("x.jsonl", "data/x-active-0.5.parquet"), ("org/x.y:train", "data/org-x.y-train-active-0.5.parquet"),
    ("arithmetic:sums", "data/arithmetic-sums-active-0.5.parquet"),
)  # fmt: skip
def test_noise_is_written_to_a_file_of_its_own_name(source, name):
    assert str(noise.default_target(source, "active", "0.50")) == name


def test_of_a_mixed_noise_the_share_that_is_active_is_exact_at_every_size():
    for share in (
        Fraction(1, 2),
        Fraction(1, 3),
        Fraction(0),
        Fraction(1),
    ):
        types = [noise._mixed_type(rank, share) for rank in range(30)]
        for size in range(30):
            assert types[:size].count("active") == noise.marked_count(share, size)


def test_a_wrong_answer_is_drawn_from_what_is_neither_the_label_nor_the_sentinel():
    def marked(*wrong, kind="active"):
        found = noise._mark(prompt("a"), kind, 1, {"a": wrong})
        return found.given_label, found.true_answer, found.noise_type

    assert marked("6") == marked("6", "5", SENTINEL) == ("6", "5", "active_frozen")
    assert marked() == marked("5") == (SENTINEL, "5", "inactive")
    assert marked("6", kind="inactive") == (SENTINEL, "5", "inactive")
    assert marked("6", kind=None) == ("5", "5", "clean")
    assert {marked("6", "7", "8")[0] for _ in range(3)} <= {"6", "7", "8"}
    assert noise._mark(prompt("a"), "active", 1, None).noise_type == "active"


@each(
    "given, truth, kind, gold, file_label",
    ("5", None, None, "5", "5"), ("5", "6", None, "6", "5"), ("5", None, "active_frozen", None, "5"),
    (SENTINEL, "6", "inactive", "6", "6"), (SENTINEL, None, "inactive", None, None), (None, "6", None, "6", "6"),
    ("5", None, "clean", "5", "5"),
)  # fmt: skip
def test_which_label_measures_and_which_was_in_the_file(
    given, truth, kind, gold, file_label
):
    one = prompt("a", given, truth, kind)
    assert (one.gold, one.file_label) == (gold, file_label)


@each(
    "head, suffix, separator",
    ("a,b;c,d", ".csv", ","), ("a;b;c,d", ".csv", ";"), ("a\tb", ".csv", "\t"), ("a,b", ".tsv", "\t"),
    ("a", ".csv", ","),
)  # fmt: skip
def test_the_separator_of_a_csv_file(head, suffix, separator):
    assert values.separator_of(Path(f"x{suffix}"), f"{head}\n;;;;;;") == separator


def test_a_row_is_named_by_its_number_among_all(tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text("\n".join(["", json.dumps({"q": 1}), "", json.dumps({"q": 2})]))
    origins = Origins("x", [file])
    assert (
        origins.name(1) == f"line 4 of {file}"
        and origins.name(1, is_short=True) == "line 4"
    )
    assert origins.take([1]).name(0) == f"line 4 of {file}"
    assert Origins("x").name(1) == "row 2 of x, counted from 1"
    assert Origins("x").name(1, is_short=True) == "row 2"
    assert Origins("x", [file, file]).name(3, is_short=True) == f"line 4 of {file}"


def test_numbers_of_columns_are_finite_and_missing_ones_are_null():
    found = table(x=["1", "2.5", None]).numbers("x").to_pylist()
    assert found == [1.0, 2.5, None]
    assert table(x=[1.0, float("nan")]).numbers("x").to_pylist() == [1.0, None]
    for wrong in (["1", "x"], [1.0, float("inf")]):
        with pytest.raises(UserError, match=r"row 2 of the file.*finite number"):
            table(x=wrong).numbers("x")


@each(
    "value, text",
    (["7"], "7"), ([], None), (7.0, "7"), (float("nan"), None), (None, None), ("x", "x"),
)  # fmt: skip
def test_the_text_of_a_value(value, text):
    assert table(x=["x"])._as_text(value, "x", 0) == text


@each(
    "value, what",
    (["7", "8"], "a list of 2 values"),
    (True, "a bool"),
    ({"a": 1}, "a dict"),
    (float("inf"), "inf"),
)
def test_a_value_that_is_no_text_is_described(value, what):
    with pytest.raises(UserError, match=f"is {what}, and it should be text or a number"):
        table(x=["x"])._as_text(value, "x", 0)


def test_options_are_shown_below_the_last_question_unless_it_has_them():
    options = options_in(["x", "y"])
    turns = (S("s"), U("Which?"), A("a"), U("And? "))
    assert choices.show_options(turns, options)[3].content == "And?\n\nA) x\nB) y\n"
    assert choices.show_options(turns, options)[:3] == turns[:3]
    assert choices.show_options(turns, None) is turns
    for shown in ("A) x B) y", "A. x\nB. y", "A:x B:y"):
        assert choices.show_options((U(shown),), options) == (U(shown),)
    assert choices.show_options((U("A) x only"),), options) != (U("A) x only"),)
    assert choices.show_options((A("a"),), options) == (A("a"),)


@each(
    "target, cell",
    (["7", "8"], '["7", "8"]'), (["7"], '["7"]'), (7, 7), ("7", "7"), ("7\ud800", "7?"), (None, None), ([], "[]"),
    ([True], [True]),
)  # fmt: skip
def test_a_target_of_several_answers_is_one_cell(target, cell):
    assert log_rows._target(target) == cell


@each(
    "value, texts",
    ("x", ["x"]), ({"a": "x", "b": ["y", {"c": "z"}]}, ["x", "y", "z"]), (["x", 7, None], ["x"]), (7, []),
)  # fmt: skip
def test_the_texts_within_a_value(value, texts):
    assert [*log_rows._texts(value)] == texts


@each(
    "scores, numbers",
    ({"a": "C"}, {"scores.a": 1.0}), ({"a": "P"}, {"scores.a": 0.5}),
    ({"a": "I", "b": "N"}, {"scores.a": 0.0, "scores.b": 0.0}),
    ({"a": True}, {"scores.a": 1.0}), ({"a": "good"}, {}),
    ({"a": {"x": 1, "y": "C"}}, {"scores.a.x": 1.0, "scores.a.y": 1.0}),
    ({"a": None}, {}),
)  # fmt: skip
def test_scores_are_columns_of_numbers(scores, numbers):
    assert log_rows._as_numbers(scores) == numbers


@each(
    "rewards, found",
    ({"a": 1}, {"a": (1.0, 1.0)}), ({"a": None}, {}), ({"a": {"score": 1, "weight": 2.0}}, {"a": (1.0, 2.0)}),
    ({"a": {"value": 3}}, {"a": (3.0, 1.0)}), ({}, {}),
)  # fmt: skip
def test_rewards_have_scores_and_weights(rewards, found):
    assert log_rows._rewards(rewards) == found


@each(
    "row, rollouts",
    ({"step": 1, "advantages": [1, 2], "completion": ["a", "b"], "n": 7},
     [{"step": 1, "advantages": 1, "completion": "a", "n": 7},
      {"step": 1, "advantages": 2, "completion": "b", "n": 7}]),
    ({"step": 1, "completion": ["a", "b"]}, None), ({"advantages": [1, 2], "completion": ["a", "b"]}, None),
    ({"step": 1, "advantages": 1, "completion": "a"}, None), ({"x": 1}, None),
    ({"rewards": [1], "content": [["q", "a"]]}, [{"rewards": 1, "prompt": "q", "response": "a"}]),
    ({"rewards": [1], "content": [[]]}, [{"rewards": 1, "content": []}]),
    ({"rewards": [1, 2], "content": ["x", "y"], "idx": [5]}, [
        {"rewards": 1, "content": "x", "idx": [5]}, {"rewards": 2, "content": "y", "idx": [5]}]),
    ({"origin_prompt": "q", "prediction": "a", "gold": ["7"]},
     [{"origin_prompt": "q", "prediction": "a", "gold": '["7"]', "prompt": "q"}]),
    ({"origin_prompt": "q", "prediction": "a", "label: A": 1}, []),
    ({"origin_prompt": "q", "prediction": "a", "choices": 1}, []),
    ({"task": {}, "traces": []}, None),
)  # fmt: skip
def test_an_object_holds_its_rollouts(row, rollouts):
    assert log_rows.unpacked(row) == ([row] if rollouts is None else rollouts)


def test_what_was_done_to_labels_is_in_the_facts_of_a_file():
    prompts = prompt_set([prompt(str(n)) for n in range(4)], "x")
    facts = noise.inject(prompts, type="active", ratio="0.5", seed=3).facts
    assert facts == {
        "source_digest": prompts.digest, "noise.type": "active", "noise.ratio": "0.5", "noise.seed": "3",
        "noise.marked": "2",
    }  # fmt: skip
    mixed = noise.inject(prompts, type="mixed", ratio=1, seed=3, active_share="0.25").facts
    assert mixed["noise.active_share"] == "0.25" and mixed["noise.marked"] == "4"
    frozen = noise.inject(
        prompts, type="active", ratio=1, seed=3, wrong_answers={"1": ["6"]}
    )
    assert frozen.facts["noise.draw"] == "frozen"
    assert frozen.facts["noise.without_wrong_answer"] == "3"
    sampled = prompts.sample(2, 5)
    assert sampled.facts == {"sample.size": "2", "sample.seed": "5"}


def test_where_hardly_any_response_is_read_another_extractor_is_named(tmp_path):
    def notes(*responses):
        rows = [
            {"prompt": "q", "response": text, "visit": 1, "prompt_id": "p"}
            for text in responses
        ]
        return [*logs.read_log([json_lines(tmp_path / "x.jsonl", *rows)]).notes]

    assert "The extractor after:#### reads 20 of 20 responses." in notes(*["#### 7"] * 20)
    assert not any(
        "extractor" in note for note in notes(*["#### 7"] * 18, *[r"\boxed{7}"] * 2)
    )


@each(
    "columns, is_shaped, rewards, note",
    ({"prompt_id": "prompt_id"}, False, [], "x was read as a log of verl."),
    ({"prompt": "input"}, False, [],
     "x was read as a log of verl: input as prompt; prompts are told apart by their text."),
    ({"prompt_id": "id"}, False, ["a", "b"], "x was read as a log of verl: id as prompt_id, a + b as reward."),
    ({"prompt_id": "id", "is_correct": "acc"}, True, [], "x was read as a log of verl: id as prompt_id."),
    ({"prompt_id": "id", "is_correct": "acc"}, False, [],
     "x was read as a log of verl: id as prompt_id, acc as is_correct."),
    ({"prompt_id": "id"}, False, ["a", "math"],
     "x was read as a log of verl: id as prompt_id, a + math as reward, math as is_correct."),
    ({"prompt_id": "id"}, True, ["a", "math"], "x was read as a log of verl: id as prompt_id, a + math as reward."),
    ({"prompt_id": "id", "reward": "r"}, False, ["a"],
     "x was read as a log of verl: id as prompt_id, r as reward, a as is_correct."),
)  # fmt: skip
def test_a_note_says_which_column_was_read_as_what(columns, is_shaped, rewards, note):
    form = next(form for form in LOG_FORMATS if form.name == "verl")
    layout = log_tables.Layout([], form, columns, rewards)
    assert layout.note(Path("x"), 1, is_shaped=is_shaped) == note
    assert " of 2 files" in layout.note(Path("x"), 2, is_shaped=is_shaped)
