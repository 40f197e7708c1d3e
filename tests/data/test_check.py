"""`olr check`: what looks wrong with a data set before a model sees it."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import polars as pl
import pytest
from cases import each
from commands import done, olr, refused
from samples import json_lines

from olr_cli.answers import Judge
from olr_cli.data.check import CHARACTERS, check, label_notes
from olr_cli.data.doubts import DOUBTS
from olr_cli.data.findings import KINDS
from olr_cli.data.prompt_files import Reading, read_prompts
from olr_cli.recipe.plain import parse_yaml

ROWS = """\
question,answer
What is 1+1?,2
what is 1 + 1 ?,3
,5
What is 2+2?,
What is 2+3?,N/A
What is 0.5*5?,"2,5"
What is 0.5*3?,1.5
Solve both,(a) 3 (b) 4
Find x in the figure below,7
Prove it,Proof: we show that it is so
Is it?,"{{{"
How many?,many
Once more,11
once more,11
Which x?,x &lt; 5
"""
FOUND = {
    "no_question": [2], "no_label": [3], "no_answer": [4], "ungradable": [10], "text_only": [14], "conflict": [0],
    "proof": [9], "parts": [7], "html": [14], "cut": [10], "words": [9], "form": [11], "to_prove": [9],
    "no_figure": [8], "repeat": [12],
}  # fmt: skip
IN_NUMBERS = {"word": [9, 10, 11], "decimal_comma": [5]}


def checked(file, *words):
    ended = olr("check", file, *words, "--json")
    found = {
        finding["kind"]: finding["rows"] for finding in json.loads(ended.stdout)["findings"]
    }
    return ended.exit_code, found


def test_each_kind_of_defect_is_found_with_its_rows(tmp_path):
    (tmp_path / "x.csv").write_text(ROWS)
    assert checked(tmp_path / "x.csv") == (0, FOUND)
    assert checked(tmp_path / "x.csv", "--strict") == (1, FOUND)


def test_rows_are_shown_as_the_lines_of_their_file(tmp_path):
    (tmp_path / "x.csv").write_text(ROWS)
    said = olr("check", tmp_path / "x.csv").output
    assert (
        "1 row without a label (line 5)" in said
        and "2 (line 2) and 3 (line 3): What is 1+1?" in said
    )
    (tmp_path / "y.csv").write_text("question,answer\nWhat else?,TODO\n")
    said = olr("check", tmp_path).output
    assert f"(line 6 of {tmp_path / 'x.csv'}, line 2 of {tmp_path / 'y.csv'})" in said
    pl.DataFrame({"question": ["q"], "answer": ["N/A"]}).write_parquet(
        tmp_path / "z.parquet"
    )
    said = olr("check", tmp_path / "z.parquet").output
    assert (
        "1 row (counted from 1); question" in said
        and "placeholder for a label (row 1)" in said
    )


def test_words_and_decimal_commas_are_found_where_most_labels_are_numbers(tmp_path):
    (tmp_path / "x.csv").write_text(
        ROWS + "".join(f"q{number},{number}\n" for number in range(20))
    )
    assert checked(tmp_path / "x.csv") == (0, FOUND | IN_NUMBERS)


def test_in_a_sound_data_set_nothing_is_found(tmp_path):
    labels = [
        "12",
        r"\frac{1}{2}",
        "(1, 2)",
        "x^2 + 1",
        "[0, 1)",
        "25\\%",
        r"\text{even}",
        "7, 9",
    ]
    rows = [
        {"question": f"What is it, number {n}?", "answer": label}
        for n, label in enumerate(labels)
    ]
    json_lines(tmp_path / "x.jsonl", *rows)
    assert checked(tmp_path / "x.jsonl", "--strict") == (0, {})
    words = (str(tmp_path / "x.jsonl"), "--columns", "{question: question, answer: answer}")
    said = olr("check", *words).output
    assert "Nothing was found" in said and "8 rows" in said
    words = (words[0], "--columns", "question=question,answer=answer")
    assert f"olr rollouts MODEL {shlex.join(words)} --visits 4" in said


def test_marked_labels_are_counted_and_what_they_were_is_looked_at(tmp_path):
    row = {
        "prompt": [{"role": "user", "content": "How many?"}],
        "extra_info": {"original_ground_truth": "{{{"},
    }
    marked = row | {
        "reward_model": {"ground_truth": "__NoCorrectAnswer__", "style": "rule"}
    }
    (tmp_path / "x.jsonl").write_text(json.dumps(marked))
    assert checked(tmp_path / "x.jsonl") == (
        0,
        {"sentinel": [0], "ungradable": [0], "cut": [0]},
    )


@each(
    "answer, found",
    (["1/2", "0.5"], {}), (["1/2", "0.3"], {"not_one_answer": [0]}), (True, {"not_one_answer": [0]}),
    ('{"ground_truth": "45"}', {}), ("\frac{1}{2}", {"backslash": [0]}),
    (r"It is \boxed{3} or \boxed{-3}.", {"boxes": [0]}), (r"It is \boxed{\frac{1}{2}}, so \boxed{0.5}.", {}),
)  # fmt: skip
def test_a_cell_is_read_as_in_training_and_what_it_loses_is_found(tmp_path, answer, found):
    (tmp_path / "x.jsonl").write_text(
        json.dumps({"question": "What is it?", "answer": answer})
    )
    assert checked(tmp_path / "x.jsonl") == (0, found)


def test_labels_are_looked_at_in_a_sentence_with_the_command_and_questions_are_not(
    tmp_path,
):
    (tmp_path / "x.csv").write_text(ROWS.replace(",5\n", "", 1))
    prompts = read_prompts(tmp_path / "x.csv").prompts
    assert list(label_notes(prompts, "x.csv", Reading())) == [
        "olr check finds 6 things in 14 rows (1 row without a label, 1 placeholder for a label, 1 label that no"
        " response can match, 1 label that the grader cannot read, so that only the same text counts, 1 label like a"
        " proof, 1 label with several parts): olr check x.csv"
    ]
    assert list(label_notes(prompts[:2], "x.csv", Reading())) == [], (
        "a question with two labels has its own sentence"
    )
    (tmp_path / "x.csv").write_text("question\nWhat is 1+1?\n")
    assert (
        list(label_notes(read_prompts(tmp_path / "x.csv").prompts, "x.csv", Reading()))
        == []
    )


def test_the_judge_is_asked_once_about_all_repeated_questions(tmp_path):
    rows = (
        f"{question}?,{label}\n"
        for question in range(50)
        for label in (question, r"\sqrt{2}", r"\sqrt{3}")
    )
    (tmp_path / "x.csv").write_text("question,answer\n" + "".join(rows))
    with (
        Judge(workers=1) as judge,
        patch.object(judge, "matches", wraps=judge.matches) as asked,
    ):
        found = check(str(tmp_path / "x.csv"), Reading(), judge).findings
    assert [finding.kind for finding in found] == ["conflict"] and len(found[0].rows) == 50
    assert asked.call_count == 3  # once about labels that can't be graded, once about boxes


@each(
    "content, words, says",
    (
        "question,gold\nq,1\n",
        [],
        "say which hold what, as in --columns '{question: question, answer",
    ),
    ("question,gold\n", ["--columns", "{question: question, answer: gold}"], "has no rows"),
    ("question,gold\nq,1\n", ["--columns", "{question: question, answer: glod}"], "gold"),
)
def test_what_cannot_be_checked_is_a_sentence(tmp_path, content, words, says):
    (tmp_path / "x.csv").write_text(content)
    ended = olr("check", tmp_path / "x.csv", *words)
    assert ended.exit_code == 2 and says in ended.output, ended.output


def test_of_a_log_of_answers_each_question_is_checked_once(tmp_path):
    rows = [
        {
            "prompt_id": f"p{n}",
            "question": f"What is {n}?",
            "given_label": label,
            "response": "7",
        }
        for n, label in enumerate(("7", "N/A"))
        for _ in range(3)
    ]
    log = tmp_path / "log.jsonl"
    json_lines(log, *rows)
    ended = olr("check", log)
    assert (
        "1 placeholder for a label (line 4)" in ended.output
        and "repeated" not in ended.output
    )
    assert f"olr audit {log}" in ended.output
    named = olr("check", log, "--columns", "question=question,answer=given_label")
    assert "1 placeholder for a label (line 4)" in named.output
    assert "repeated" not in named.output, "a log stays one where its columns are named"


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_question_with_an_image_is_found_and_left_out_of_an_export(tmp_path, suffix):
    text = {"type": "text", "text": "How many apples?"}
    chats = [
        [text],
        [{"type": "image", "image": "a.png"}, text],
        [text, {"type": "audio", "audio": "b"}],
    ]
    rows = [
        {"prompt": [{"role": "user", "content": chat}], "answer": "7"} for chat in chats
    ]
    file = json_lines(tmp_path / "x.jsonl", *rows)
    if suffix == "parquet":
        pl.read_ndjson(file).write_parquet(file := tmp_path / "x.parquet")
    assert checked(file) == (0, {"image": [1, 2]})
    ended = olr("check", file, "--export", tmp_path / f"y.{suffix}")
    assert ended.exit_code == 0 and "(1 of 3 rows)" in ended.output
    assert checked(tmp_path / f"y.{suffix}") == (0, {})
    said = olr("train", "own-data", "--set", f"data.train={file}", "--dry-run")
    assert (
        said.exit_code == 2
        and "has a part of type 'image', and only text is shown" in said.output
    )


def test_placeholders_are_told_from_words_that_are_answers(tmp_path):
    labels = ["notfound", "proof", "#REF!", "None", "none", "unknown", "Na"]
    rows = [{"question": f"What is it, {label}?", "answer": label} for label in labels]
    _, found = checked(json_lines(tmp_path / "x.jsonl", *rows))
    assert (found["no_answer"], found["nothing"]) == ([0, 1, 2, 3], [4, 5])


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_an_export_keeps_the_rows_that_can_be_graded_as_they_are(tmp_path, suffix):
    (tmp_path / "x.csv").write_text(ROWS.replace("Which x?", '"Which\nx?"'))
    clean = tmp_path / f"clean{suffix}"
    ended = olr("check", tmp_path / "x.csv", "--export", clean)
    assert ended.exit_code == 0, ended.output
    assert (
        f"{clean} (9 of 15 rows)" in ended.output and "olr rollouts MODEL" in ended.output
    )
    assert not {"no_label", "conflict", "ungradable"} & checked(clean)[1].keys()
    if suffix == ".csv":
        lines = (tmp_path / "x.csv").read_text().splitlines(keepends=True)
        assert clean.read_text() == "".join([lines[0], *lines[6:11], *lines[12:]])


def test_what_an_export_leaves_out_is_chosen_by_the_names_of_the_findings(tmp_path):
    (tmp_path / "x.csv").write_text(ROWS)
    words = [
        "check",
        str(tmp_path / "x.csv"),
        "--export",
        str(tmp_path / "y.csv"),
        "--drop",
    ]
    ended = olr(*words, "repeat, html")
    assert "(7 of 15 rows)" in ended.output, (
        "of a question that is asked again the first stays"
    )
    refused = olr(*words[:-2], tmp_path / "z.csv", "--drop", "no_labels")
    assert refused.exit_code == 2 and "did you mean 'no_label'" in refused.output
    assert not (tmp_path / "z.csv").exists()


@each(
    "question, found",
    ("<|User|>Half of 9?\n<|Assistant|><think>\n", {"template": [0]}), ("[INST] Half of 9? [/INST]", {"template": [0]}),
    ("Is the user right that half of 9 is 4.5?", {}),
)  # fmt: skip
def test_a_chat_template_around_a_question_is_found(tmp_path, question, found):
    file = json_lines(tmp_path / "x.jsonl", {"prompt": question, "answer": r"\frac{9}{2}"})
    assert checked(file) == (0, found)
    chat = [{"role": "system", "content": "Think."}, {"role": "user", "content": question}]
    assert checked(json_lines(file, {"prompt": chat, "answer": r"\frac{9}{2}"})) == (
        0,
        found,
    )


@each(
    "rows, left",
    ("q?,\nq?,4\nq?,4\n", "q?,4\n"), ("q?,N/A\nq?,4\nq?,5.0\n", None), ("q?,N/A\nq?,4\n", "q?,4\n"),
    ("q?,\\frac{1}{2\nq?,0.5\n", "q?,0.5\n"), ("q<br>?,4\nq<br>?,4\nr?,5\n", "r?,5\n"),
    ("q?,four\nq?,4\nq?,4.0\n", "q?,4\n"),
)  # fmt: skip
def test_of_a_question_that_is_asked_again_an_export_keeps_the_first_row_that_it_does_not_leave_out(
    tmp_path, rows, left
):
    (tmp_path / "x.csv").write_text(f"question,answer\n{rows}")
    clean = tmp_path / "clean.csv"
    ended = olr(
        "check", tmp_path / "x.csv", "--export", clean, "--drop", "repeat,html,number_word"
    )
    if left is None:
        assert ended.exit_code == 2 and "no row is left" in ended.output, (
            "4 and 5 contradict each other"
        )
    else:
        assert clean.read_text() == f"question,answer\n{left}"


def test_only_the_rows_of_one_csv_file_are_written_as_csv(tmp_path):
    for name in "xy":
        (tmp_path / f"{name}.csv").write_text(
            f"question,answer\n{name}?,1\n{name}{name}?,\n"
        )
    pattern, clean = str(tmp_path / "?.csv"), tmp_path / "clean.csv"
    assert (
        olr("check", pattern)
        .output.rstrip()
        .partition("--export ")[2]
        .startswith("clean.jsonl ")
    )
    for source, ending in ((pattern, ".csv"), (tmp_path / "x.csv", ".tsv")):
        ended = olr("check", source, "--export", clean.with_suffix(ending))
        assert ended.exit_code == 2 and "those of one CSV file also as .csv" in ended.output
    assert not [*tmp_path.glob("clean*")]


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_of_a_finding_has_it_in_a_file_of_numbers_and_it_can_be_dropped(
    tmp_path, kind
):
    example, is_chat = KINDS[kind].example, '"prompt"' in KINDS[kind].example
    lines = example.split("\n")
    for number in range(8):
        chat = [{"role": "user", "content": f"q{number}?"}]
        asked = {"prompt": chat} if is_chat else {"question": f"q{number}?"}
        lines.append(json.dumps(asked | {"answer": str(number)}))
    (tmp_path / "x.jsonl").write_text("\n".join(lines), "utf-8")
    # The example tells of ten thousand characters, and has few.
    limit = replace(CHARACTERS, most=40) if kind == "long" else CHARACTERS
    with patch("olr_cli.data.check.CHARACTERS", limit):
        assert kind in checked(tmp_path / "x.jsonl")[1]
        words = ("--export", tmp_path / "y.jsonl", "--drop", kind)
        done("check", tmp_path / "x.jsonl", *words)
        assert kind not in checked(tmp_path / "y.jsonl")[1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_finding_is_explained_without_a_file(kind):
    ended, said = olr("check", "--explain", kind, "--json"), olr("check", "--explain", kind)
    assert (ended.exit_code, said.exit_code) == (0, 0)
    assert json.loads(ended.stdout) == {"schema": 1, **KINDS[kind]._asdict()}
    words = " ".join(said.output.split())
    assert all(part in words for part in KINDS[kind][1:3])
    assert ("--drop" in words.partition("What to do")[2].partition("olr check")[2]) is not (
        KINDS[kind].is_unusable
    )


def test_an_explanation_goes_with_nothing_else(tmp_path):
    for words in (("mine.csv",), ("--strict",), ("--drop", "html"), ("--columns", "a=b")):
        refused = olr("check", "--explain", "html", *words)
        assert refused.exit_code == 2 and "checks no data set; leave" in refused.stderr


def test_a_number_of_thousands_of_digits_is_refused_without_advice_for_programs(tmp_path):
    file = tmp_path / "huge.jsonl"
    file.write_text('{"question": "a", "answer": ' + "1" * 5000 + "}\n")
    refused = olr("check", file).stderr
    assert "sys." not in refused
    assert refused.endswith("value has 5000 digits; correct it, or fetch it again\n")


def test_a_finding_that_does_not_exist_is_not_explained():
    refused = olr("check", "--explain", "no_labels")
    assert refused.exit_code == 2
    assert "--explain: there is no finding 'no_labels' (did you mean 'no_label'?)" in (
        refused.output
    )


def test_every_finding_has_a_name_that_an_export_knows():
    assert {*FOUND, *IN_NUMBERS, *DOUBTS} <= {*KINDS}


@pytest.mark.parametrize("name", ["arithmetic", "arithmetic:maxima"])
def test_built_in_sets_are_checked_as_files_are_and_nothing_is_wrong_with_them(name):
    assert checked(name) == (0, {})


DIRTY = (
    "question,answer\nWhat is 1+1?,2\nWhat is 1 + 1?,2\nWhat is 2+2?,\nWhat is 3+3?,6<br>\nWhat is 4+4?,8\n"
    "What is 4+4?,9\n"
)


@each(
    "drop, left, counts",
    ((), 3, "1 no_label, 2 conflict"),
    (("--drop", "repeat,html"), 1, "1 no_label, 2 conflict, 1 html, 1 repeat"),
    (("--drop", "all"), 1, "1 no_label, 1 text_only, 2 conflict, 1 repeat"),
)  # fmt: skip
def test_an_export_says_how_many_rows_each_finding_takes(tmp_path, drop, left, counts):
    (tmp_path / "x.csv").write_text(DIRTY)
    ended = done("check", tmp_path / "x.csv", "--export", tmp_path / "y.csv", *drop)
    # A row with several findings goes because of the first.
    assert f"rows); left out: {counts}\n" in ended.stdout
    assert len((tmp_path / "y.csv").read_text().splitlines()) == 1 + left


COMMAS = "question;answer\nA?;0,5\nB?;12,25\nC?;1.234,5\nD?;7\nE?;1,234\n"


def test_labels_with_a_decimal_comma_are_read_counted_and_exported_as_they_stand(tmp_path):
    (tmp_path / "x.csv").write_text(COMMAS + "F?;\n")
    assert checked(tmp_path / "x.csv")[1] == {"no_label": [5], "decimal_comma": [0, 1]}
    words = ("check", tmp_path / "x.csv", "--decimal-comma", "--export", tmp_path / "y.csv")
    found = json.loads(done(*words, "--json").stdout)
    assert [finding["kind"] for finding in found["findings"]] == ["no_label"]
    assert [note.replace(str(tmp_path), "") for note in found["notes"]] == [
        "3 labels read with a decimal comma (the first: 0,5 is 0.5, line 2 of /x.csv).",
        "1 label with three digits after a comma read as thousands (the first: 1,234 is 1,234, line 6 of /x.csv).",
        "The export has the labels as they stand in the file: train on it with data.decimal_comma=true.",
    ]
    assert (tmp_path / "y.csv").read_text() == COMMAS
    assert found["next"] == [
        f"olr rollouts MODEL {tmp_path / 'y.csv'} --decimal-comma --visits 4"
    ]
    (tmp_path / "z.csv").write_text("question,answer\nA?,7\n")
    assert (
        "has a decimal comma" in olr("check", tmp_path / "z.csv", "--decimal-comma").output
    )


def test_questions_that_are_too_long_are_counted_in_characters_or_tokens(tmp_path):
    rows = [
        {"question": f"{'1+' * n}1=", "answer": str(n + 1)} for n in (1, 1023, 1024, 5000)
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert checked(tmp_path / "x.jsonl")[1] == {"long": [3]}
    # A token is a character here, and the template shows the question alone.
    model = ("--model", "builtin:addition-easier")
    assert checked(tmp_path / "x.jsonl", *model)[1] == {"long": [2, 3]}
    said = olr("check", tmp_path / "x.jsonl", *model).output
    assert "2 questions longer than 2,048 tokens (line 3, line 4)" in said
    done("check", tmp_path / "x.jsonl", "--drop", "long", "--export", tmp_path / "y.jsonl")
    assert len((tmp_path / "y.jsonl").read_text().splitlines()) == 3


@each(
    "encoding, text",
    ("cp1252", "Größe – x"), ("cp1252", "Größe \x1b"),
    ("latin-1", "Größe"), ("gbk", "多少"), ("shift_jis", "いくつ"), ("utf-16-le", "many"),
    ("iso2022_jp", "いくつ"),
)  # fmt: skip
def test_a_file_in_another_encoding_is_read_as_it_is_named_and_exported_as_utf_8(
    tmp_path, encoding, text
):
    content = f"question,answer\n{text} 1+1?,2\n{text} 2+2?,\n{text} 3+3?,6\n"
    (tmp_path / "x.csv").write_bytes(content.encode(encoding))
    words = ("check", tmp_path / "x.csv", "--encoding", encoding)
    assert (
        f"olr check {tmp_path / 'x.csv'} --encoding {encoding} --export clean.csv"
        in done(*words).output
    )
    done(*words, "--export", tmp_path / "y.csv")
    assert (tmp_path / "y.csv").read_text("utf-8") == content.replace(f"{text} 2+2?,\n", "")
    # One setting serves both files.
    assert done("check", tmp_path / "y.csv", "--encoding", encoding).exit_code == 0
    reading = Reading(encoding=encoding)
    assert [
        prompts.prompts[1].messages[-1].content
        for prompts in (
            read_prompts(tmp_path / name, reading=reading) for name in ("x.csv", "y.csv")
        )
    ] == [f"{text} 2+2?", f"{text} 3+3?"]


@each("name, separator", ("x.csv", ","), ("x.csv", "\t"), ("x.tsv", "\t"), ("x.jsonl", ""))
def test_utf_16_is_recognised_by_its_mark(tmp_path, name, separator):
    rows = [["question", "answer"], ["Größe 1+1?", "2"], ["", "3"]]
    lines = [separator.join(row) for row in rows]
    if name == "x.jsonl":
        lines = [
            json.dumps(dict(zip(*rows[:2], strict=True)), ensure_ascii=False),
            "",
            '{"question": "", "answer": "1"}',
        ]
    (tmp_path / name).write_bytes("\r\n".join(lines).encode("utf-16"))
    found = json.loads(done("check", tmp_path / name, "--json").stdout)["findings"]
    assert [(it["kind"], it["rows"]) for it in found] == [("no_question", [1])]
    assert "(line 3)" in olr("check", tmp_path / name).output


@each("name", "x.csv", "x.jsonl", "x.json")
def test_an_encoding_that_is_not_named_or_unknown_is_an_error_that_names_one(
    tmp_path, name
):
    rows = [{"question": "Größe?", "answer": "1"}]
    lines = {
        "x.csv": "question,answer\nGröße?,1\n",
        "x.json": json.dumps(rows, ensure_ascii=False),
    }
    text = lines.get(name, json.dumps(rows[0], ensure_ascii=False))
    (tmp_path / name).write_bytes(text.encode("cp1252"))
    said = refused("check", tmp_path / name)
    assert "--encoding: " in said and f"{name} is not UTF-8 text (" in said
    assert said.endswith("save it as UTF-8, or name its encoding, as in --encoding cp1252")
    for unknown in ("cp125", "hex", "undefined"):
        said = refused("check", tmp_path / name, "--encoding", unknown)
        assert f"--encoding: there is no encoding '{unknown}'; name one" in said
    assert "is not ASCII text" in refused("check", tmp_path / name, "--encoding", "ascii")


@each(
    "column, values, is_said",
    ("image", ["a.png", None, "b.png"], True), ("images", [[], [{"bytes": "x"}], []], True),
    ("image_1", [None, None, "a"], True), ("image_path", ["a", "b", "c"], True),
    ("video", [{"path": "v"}, None, None], True), ("images", [[], [], []], False), ("imagery", ["a", "b", "c"], False),
)  # fmt: skip
def test_columns_of_images_beside_the_questions_are_said_to_be_unread(
    tmp_path, column, values, is_said
):
    rows = [
        {"question": f"{n}+{n}?", "answer": str(2 * n), column: value}
        for n, value in enumerate(values)
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    notes = json.loads(done("check", tmp_path / "x.jsonl", "--json").stdout).get(
        "notes", []
    )
    sentence = f"the column '{column}' is not read: only the text of questions is asked."
    assert notes == [sentence] * is_said


def test_points_of_thousands_are_read_beside_decimal_commas(tmp_path):
    file = tmp_path / "x.csv"
    file.write_text("question;answer\nA?;12.345.678\nB?;1.234\nC?;2,5\n")
    read = read_prompts(file, reading=Reading(decimal_comma=True))
    assert [prompt.given_label for prompt in read.prompts] == ["12345678", "1.234", "2.5"]
    assert any(
        note.startswith("1 label with a point before three digits read as decimal")
        and "1.234 is 1.234, line 3" in note
        for note in read.notes
    )


@each("fault", {"id": True}, {"id": [1, 2]}, {"extra_info": {"index": {"a": 1}}})
def test_ids_that_training_would_refuse_are_refused(tmp_path, fault):
    row = {"question": "What is 1+1?", "answer": "2", **fault}
    assert "line 1 of" in refused("check", json_lines(tmp_path / "m.jsonl", row))


REPEATED = [{"question": "What is 3+4?", "answer": "7"}] * 2


def test_strict_lets_findings_pass_that_are_allowed_and_no_others(tmp_path):
    file = json_lines(tmp_path / "x.jsonl", *REPEATED)
    strict = ("check", file, "--strict")
    assert olr(*strict).exit_code == 1
    assert olr(*strict, "--allow", "repeat,html").exit_code == 0
    assert olr(*strict, "--allow", "html").exit_code == 1
    assert "--allow: there is no finding 'repat'" in refused(*strict, "--allow", "repat")
    assert "add --strict" in refused("check", file, "--allow", "repeat")


ROOT = Path(__file__).parents[2]


def test_the_hook_and_the_action_that_the_docs_name_find_a_bad_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    text = (ROOT / "docs" / "data.md").read_text("utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    config, action = (parse_yaml(block) for block in blocks[:2])
    [named] = config["repos"][0]["hooks"]
    hooks = parse_yaml((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    [hook] = [hook for hook in hooks if hook["id"] == named["id"]]
    assert not hook["pass_filenames"] and re.search(hook["files"], "data/train.jsonl")
    lines = [step["run"] for step in action["jobs"]["check"]["steps"] if "run" in step]
    commands = [[*shlex.split(hook["entry"]), *named["args"]], shlex.split(lines[-1])]
    for program, *words in commands:
        assert program == "olr"
        json_lines(tmp_path / "data" / "train.jsonl", *REPEATED)
        assert olr(*words).exit_code == 0, "a repeated question is allowed"
        json_lines(tmp_path / "data" / "train.jsonl", {"question": "3+4?", "answer": ""})
        assert olr(*words).exit_code == 1
