"""Which column of a file holds the labels, and what others say of them."""

import json
import shlex

import pytest
from cases import each, refusal
from commands import olr
from samples import json_lines

from olr_cli.answers.graded import SENTINEL
from olr_cli.data.check import label_notes
from olr_cli.data.prompt_files import Reading, read_prompts
from olr_cli.data.rows import Rows
from olr_cli.data.writers import write_prompts

PROSE = "We expand the product and collect the terms, which shows that this is what was asked for."
HASHED = f"{PROSE}\n#### 7\nSo it is 7."


def asked(tmp_path, *rows):
    """Write rows, each with a question of its own."""
    rows = [
        {"question": f"What is it, {number}?", **row} for number, row in enumerate(rows)
    ]
    return json_lines(tmp_path / "x.jsonl", *rows)


def said(file, reading=Reading()) -> str:  # noqa: B008 - it is immutable
    """What is said before a training on a file."""
    data = read_prompts(file, reading=reading)
    rows = Rows(data.table, data.origins)
    return " ".join(label_notes(data.prompts, str(file), reading, rows))


def checked(file, *words):
    return json.loads(olr("check", file, *words, "--json").stdout)


def found(file):
    return {one["kind"]: one["rows"] for one in checked(file)["findings"]}


@each(
    "row, column, why",
    ({"answer": None, "label": "B"}, "label", "because 'answer' is empty"),
    ({"answer": " ", "ground_truth": "7"}, "ground_truth", "because 'answer' is empty"),
    ({"answer": "None", "label": "7"}, "label", "because 'answer' is empty"),
    ({"answer": [], "solution": r"\boxed{7}"}, "solution", "because 'answer' is empty"),
    ({"solution": [PROSE], "final_answer": ["7"]}, "final_answer", ""),
    ({"answer": PROSE, "label": "algebra", "final_answer": "7"}, "final_answer", "because 'answer' is prose"),
    ({"answer": PROSE, "label": "algebra"}, "answer", "most labels in 'answer' are prose"),
    ({"answer": HASHED, "final_answer": "8"}, "answer", ""),
    ({"answer": "7", "label": "8", "solution": "9"}, "answer", ""),
    ({"label": "7", "final_answer": "8"}, "label", ""), ({"solution": "", "answer_number": "7"}, "answer_number", ""),
    ({"answer": ""}, "answer", ""), ({"answer": SENTINEL, "solution": "7"}, "answer", ""),
    ({"reward_model": {"ground_truth": PROSE}, "answer": "7"}, "reward_model.ground_truth", "are prose"),
)  # fmt: skip
def test_the_column_of_labels_is_chosen_by_what_it_holds_and_named(
    tmp_path, row, column, why
):
    file = asked(tmp_path, row, row)
    output = checked(file)
    assert output["columns"]["answer"] == column
    prompts = read_prompts(file)
    assert prompts.label_column == column
    for notes in (output.get("notes", []), prompts.notes):
        assert (len(notes) == 1 and why in notes[0]) if why else not notes, notes


def test_a_column_of_questions_that_is_empty_throughout_is_not_read(tmp_path):
    output = checked(
        asked(tmp_path, {"prompt": None, "answer": "7", "topic": "a", "id": "1"})
    )
    assert output["columns"]["question"] == "question"
    assert output["not_read"] == ["prompt", "topic"]


def test_one_value_makes_a_column_of_labels(tmp_path):
    rows = [{"answer": "", "label": "x"}] * 150
    assert checked(asked(tmp_path, *rows, {"answer": "7", "label": "x"}))["columns"][
        "answer"
    ] == ("answer")


@each(
    "cell, is_label",
    (["1/2", "0.5"], True), ('["1/2", "0.5"]', True), (["A", "D"], False), (["7"], True), ("7", True),
)  # fmt: skip
def test_how_a_list_is_read_is_a_sentence(tmp_path, cell, is_label):
    output = checked(asked(tmp_path, {"answer": cell}))
    is_list = "," in str(cell)
    assert (
        any(
            "each item is read as the whole answer" in note
            for note in output.get("notes", [])
        )
        is is_list
    )
    assert ("not_one_answer" in str(output["findings"])) is not is_label


@each(
    "unit, is_scaled",
    (r"$10^{-10} \mathrm{~m}$", True), (r" $10^3 \mathrm{~kg}$", True), ("×10⁻³ mol", True), ("1e-9 s", True), 
    ("million dollars", True), ("m^2", False), (r"$\mathrm{kJ}$", False), ("%", False), ("", False), (None, False),
)  # fmt: skip
@pytest.mark.parametrize("column", ["unit", "answer_units"])
def test_a_unit_with_a_power_of_ten_is_found_and_said_before_training(
    tmp_path, column, unit, is_scaled
):
    rows = [{"answer": "7", column: "m"}, {"answer": "2.5", column: unit}]
    file = asked(tmp_path, *rows)
    assert found(file) == ({"scale": [1]} if is_scaled else {})
    assert (("1 label" in said(file)) and "power of ten" in said(file)) is is_scaled


@each(
    "fields, wrong",
    ({"problem_is_valid": ["Yes", "Incomplete", "Problem not solved", ""]}, [1, 2]),
    ({"solution_is_valid": ["Yes", "No", "yes", "Unknown"]}, [1]), ({"is_valid": [True, False, None, True]}, [1]),
    ({"valid": [1, 0, 1, 0.5]}, [1]), ({"validity": ["valid", "invalid", "ok", "correct"]}, [1]),
    ({"invalid": [False, True, False, None]}, [1]),
    ({"is_valid": ["Yes", "No", "No", "Yes"], "invalid": ["No", "Yes", "No", "No"]}, [1, 2]),
    ({"problem_is_valid": ["Yes", "Yes", "Yes", "No"], "solution_is_valid": ["No", "Yes", "Yes", "No"]}, [0, 3]),
)  # fmt: skip
def test_rows_that_a_column_calls_not_valid_are_found_and_said_before_training(
    tmp_path, fields, wrong
):
    rows = [{name: cells[row] for name, cells in fields.items()} for row in range(4)]
    file = asked(
        tmp_path, *({"answer": str(row), **of_row} for row, of_row in enumerate(rows))
    )
    assert found(file) == {"not_valid": wrong}
    assert f"({len(wrong)} row" in said(file)
    kept = tmp_path / "kept.jsonl"
    assert olr("check", file, "--export", kept, "--drop", "not_valid").exit_code == 0
    assert len(kept.read_text().splitlines()) == 4 - len(wrong)


@each(
    "column, value",
    ("unit_tests", "10 ** 3"), ("unit_id", "1e3"), ("valid_answers", ["7"]), ("valid_until", "2026"),
    ("split", "valid"),
    ("is_valid", None),
)  # fmt: skip
def test_columns_of_similar_names_say_nothing_of_a_row(tmp_path, column, value):
    assert found(asked(tmp_path, {"answer": "7", column: value})) == {}


TESTS = (
    json.dumps({"inputs": ["1 2\n"], "outputs": ["3\n"]}), '{"fn_name": "f", "inputs": [[1]], "outputs": [[2]]}',
    '[{"input": "1", "output": "2", "testtype": "stdin"}]', "['assert f(1) == 2', 'assert f(2) == 3']",
    '{"language": "python", "test_cases": [{"type": "function_call"}]}', "assert add(1, 2) == 3",
    "METADATA = {}\n\n\ndef check(candidate):\n    assert candidate(1) == 2", "import math\nassert f(2) == math.pi",
)  # fmt: skip


def test_tests_of_programs_among_answers_are_found_and_left_out(tmp_path):
    file = asked(
        tmp_path,
        *({"answer": cell} for cell in ("7", *TESTS, "{1, 2}", "We assert that x = 5")),
    )
    kinds = found(file)
    assert kinds.pop("tests") == [*range(1, 1 + len(TESTS))]
    assert "text_only" not in kinds and "marks" not in kinds
    assert olr("check", file, "--export", tmp_path / "y.jsonl").exit_code == 0
    assert len((tmp_path / "y.jsonl").read_text().splitlines()) == 3
    # A list stops training before that.
    texts = [{"answer": cell} for cell in ("7", *TESTS) if not cell.startswith("['")]
    prompts = read_prompts(asked(tmp_path, *texts)).prompts
    (sentence,) = label_notes(prompts, "x.jsonl", Reading())
    assert f"{len(texts) - 1} labels holding the tests of a program" in sentence


@each("cell", {"inputs": ["1"], "outputs": ["2"]}, ["assert f(1) == 2", "assert f(2) == 3"])
def test_tests_that_are_no_text_are_found_too(tmp_path, cell):
    assert found(asked(tmp_path, {"answer": cell})) == {"tests": [0]}


def test_training_says_that_a_label_is_tests(tmp_path):
    file = asked(tmp_path, {"answer": {"inputs": ["1"], "outputs": ["2"]}})
    assert "'answer' is tests of a program" in refusal(read_prompts, file)


@each("trace, is_found", ("2-Jan", True), ("#REF!", True), ("7", False))
def test_a_number_may_be_a_date_where_a_spreadsheet_has_left_traces(
    tmp_path, trace, is_found
):
    rows = [{"answer": label} for label in ("45752", trace, "45700", "5")]
    file = asked(tmp_path, *rows)
    assert (0 in found(file).get("spreadsheet", [])) is is_found
    assert ("that a spreadsheet may have changed" in said(file)) is is_found


def test_what_is_said_before_training_names_the_command_that_reads_the_file_alike(tmp_path):
    file = tmp_path / "x.csv"
    file.write_text("Frage;answer;Lösung\nWie viel?;1;2-Jan\nWie oft?;1;23,5\n", "cp1252")
    columns = {"question": "Frage", "answer": "Lösung"}
    sentence = said(file, Reading(columns, decimal_comma=True, encoding="cp1252"))
    words = shlex.split(sentence.rpartition("): ")[2])
    assert words[:3] == ["olr", "check", str(file)] and "Lösung" in words[4]
    findings = json.loads(olr(*words[1:], "--json").stdout)["findings"]
    assert [finding["kind"] for finding in findings] == ["spreadsheet"]


def test_a_passage_that_is_not_read_is_said(tmp_path):
    rows = [{"answer": "7", "passage": text} for text in ("A train leaves.", None)]
    assert read_prompts(asked(tmp_path, *rows)).notes == [
        "the column 'passage' is not read: write it into the questions that are about it"
    ]
    rows = [{"answer": "7", "passage": None}]
    assert read_prompts(asked(tmp_path, *rows)).notes == []


def test_a_csv_file_without_a_line_of_names_is_told_from_one_with_other_names(tmp_path):
    file = tmp_path / "x.csv"
    file.write_text("Which is a star?,Sun,Moon,A\nWhich is a moon?,Sun,Moon,B\n")
    assert "put a line of names above it" in refusal(read_prompts, file)
    file.write_text("Q,A,B,right\nWhich is a star?,Sun,Moon,A\n")
    assert "line of names" not in refusal(read_prompts, file)


def test_a_label_without_a_question_does_not_say_where_the_labels_are(tmp_path):
    rows = [{"question": "0", "answer": "0"}, {"reward_model": {"ground_truth": "1"}}]
    read = read_prompts(json_lines(tmp_path / "x.jsonl", *rows))
    assert [prompt.given_label for prompt in read.prompts] == ["0"]
    write_prompts(read, tmp_path / "again.jsonl")
    assert read_prompts(tmp_path / "again.jsonl").digest == read.digest
