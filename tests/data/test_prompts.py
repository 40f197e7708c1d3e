"""What becomes a prompt, its id, its label and its mark, from every form of source, whichever columns it has."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import each, refusal
from samples import NOISY_SAMPLE, SAMPLE, json_lines

from olr_cli.answers.graded import SENTINEL
from olr_cli.data.chat import Message
from olr_cli.data.check import repeat_notes
from olr_cli.data.logs import read_log
from olr_cli.data.prompt_files import Reading, read_prompts
from olr_cli.data.prompts import SYSTEM_PROMPT, NoiseType, Prompt, PromptSet
from olr_cli.data.sets import held_out_prompts, training_prompts
from olr_cli.data.writers import encode
from olr_cli.errors import UserError
from olr_cli.recipe.layers import override, validate

QUESTION = "What is 1+1?"
CHAT = [
    {"role": "user", "content": QUESTION},
    {"role": "assistant", "content": "so #### 2"},
]
SHAREGPT = [{"from": "human", "value": QUESTION}, {"from": "gpt", "value": r"so \boxed{2}"}]


def read(folder: Path, *rows: object, **settings: Any) -> PromptSet:
    return read_prompts(
        json_lines(folder / "rows.jsonl", *rows), reading=Reading(**settings)
    )


def interchange(label: object, **extra: object) -> dict[str, object]:
    row = {
        "prompt": [{"role": "user", "content": "1+1"}],
        "reward_model": {"ground_truth": label},
    }
    return row | ({"extra_info": extra} if extra else {})


def marks(prompts: PromptSet) -> list[tuple[str | None, str | None, NoiseType | None]]:
    return [(p.given_label, p.true_answer, p.noise_type) for p in prompts.prompts]


def ids(prompts: PromptSet) -> list[str]:
    return [prompt.prompt_id for prompt in prompts.prompts]


# Questions and labels ---------------------------------------------------------------------------------------------


def test_interchange_rows_are_kept_as_they_are_and_their_labels_are_of_unknown_quality():
    prompts = read_prompts(SAMPLE)
    rows = pq.read_table(SAMPLE).to_pylist()
    assert len(prompts) == 24
    for prompt, row in zip(prompts.prompts, rows, strict=True):
        assert [{"role": m.role, "content": m.content} for m in prompt.messages] == row[
            "prompt"
        ]
        assert prompt.prompt_id == str(row["extra_info"]["index"])
        assert (prompt.noise_type, prompt.true_answer, prompt.data_source) == (
            None,
            None,
            "dapo-math",
        )
        assert prompt.given_label == row["reward_model"]["ground_truth"]
    assert (prompts.source, prompts.label_column) == (
        "dapo_sample.parquet",
        "reward_model.ground_truth",
    )


@each(
    "question, answer",
    ("question", "answer"),
    ("problem", "label"),
    ("prompt", "ground_truth"),
    ("prompt", "solution"),
)
def test_a_plain_question_is_asked_with_the_system_prompt(tmp_path, question, answer):
    """R21."""
    prompts = read(tmp_path, {question: "What is 1+1?", answer: "2"})
    (prompt,) = prompts.prompts
    assert prompt.messages == (
        Message("system", SYSTEM_PROMPT),
        Message("user", "What is 1+1?"),
    )
    assert (prompt.given_label, prompt.data_source) == ("2", "local/rows")
    assert prompts.label_column == answer


def test_a_row_may_name_the_arithmetic_task_and_a_file_may_not(tmp_path):
    sources = ("arithmetic-addition", "arithmetic", "aime")
    rows = [
        {"prompt": "1+1=", "reward_model": {"ground_truth": "2"}, "data_source": s}
        for s in sources
    ]
    roles = [[m.role for m in p.messages] for p in read(tmp_path, *rows).prompts]
    assert roles == [["user"], ["user"], ["system", "user"]]
    (prompt,) = read_prompts(
        json_lines(tmp_path / "arithmetic.jsonl", {"question": "1+1"})
    ).prompts
    assert prompt.data_source == "local/arithmetic"


@each("label, text", (10.0, "10"), ([7], "7"), (" \n", None), (10**400, str(10**400)))
def test_a_label_becomes_text_or_nothing(tmp_path, label, text):
    for row in ({"question": "q", "answer": label}, interchange(label)):
        assert read(tmp_path, row).prompts[0].given_label == text


@each(
    "solution",
    "48+24 = 72\n#### 72",
    r"48+24, so \boxed{71}, no, \boxed{72}.",
    r"\boxed{72}",
    "#### 72",
)
def test_of_a_worked_solution_the_final_answer_is_the_label(tmp_path, solution):
    assert (
        read(tmp_path, {"question": "q", "solution": solution}).prompts[0].given_label
        == "72"
    )


@each(
    "row, columns",
    ({"Question": QUESTION, "Answer": 2}, {"question": "Question", "answer": "Answer"}),
    (
        {"data": {"q": QUESTION, "meta": {"gold": ["2"]}}},
        {"question": "data.q", "answer": "data.meta.gold"},
    ),
    ({"q": QUESTION, "answers": ["2", "3"]}, {"question": "q", "answer": "answers.0"}),
    ({"a.b": QUESTION, "answer": "2"}, {"question": "a.b"}),
    ({"question": QUESTION, "prompt": "another", "answer": "2"}, {"question": "question"}),
    ({"question": QUESTION, "answer": "another", "verified": "2"}, {"answer": "verified"}),
    ({"messages": CHAT}, None),
    ({"conversations": SHAREGPT}, None),
    ({"chat": CHAT, "label": "2"}, {"question": "chat"}),
    ({"prompt": CHAT[:1], "chat": CHAT}, {"answer": "chat.assistant"}),
)
def test_question_and_answer_are_where_the_columns_say(tmp_path, row, columns):
    prompts = read(tmp_path, row, columns=columns)
    (prompt,) = prompts.prompts
    assert (prompt.messages[-1], prompt.given_label) == (Message("user", QUESTION), "2")
    written = tmp_path / "written.jsonl"
    written.write_bytes(encode(prompts, written))
    (again,) = read_prompts(written).prompts
    assert (again.messages, again.given_label) == (prompt.messages, prompt.given_label)


def test_a_dialogue_is_asked_up_to_its_last_question(tmp_path):
    dialogue = [*CHAT, {"role": "user", "content": "And 2+2?"}]
    answered = {"messages": [*dialogue, {"role": "assistant", "content": "4"}]}
    for row in ({"messages": dialogue, "answer": "4"}, answered):
        (prompt,) = read(tmp_path, row).prompts
        assert [m.role for m in prompt.messages] == ["user", "assistant", "user"]
        assert (prompt.messages[-1].content, prompt.given_label) == ("And 2+2?", "4")


@each(
    "row, settings, system",
    ({"question": "?"}, {}, SYSTEM_PROMPT),
    ({"question": "?"}, {"system_prompt": "none"}, None),
    ({"question": "?"}, {"system_prompt": "Be brief."}, "Be brief."),
    ({"prompt": CHAT[:1]}, {}, None),
    ({"prompt": CHAT[:1]}, {"system_prompt": "Be brief."}, "Be brief."),
    (
        {"prompt": [{"role": "system", "content": "Hi"}, *CHAT[:1]]},
        {"system_prompt": "Be brief."},
        "Hi",
    ),
    (
        {"question": "?", "context": "It rains."},
        {"columns": {"system": "context"}},
        "It rains.",
    ),
    ({"question": "?", "context": " "}, {"columns": {"system": "context"}}, SYSTEM_PROMPT),
)
def test_the_system_message_is_the_rows_then_the_settings_then_that_of_plain_questions(
    tmp_path, row, settings, system
):
    (prompt,) = read(tmp_path, row | {"answer": "2"}, **settings).prompts
    assert [m.content for m in prompt.messages if m.role == "system"] == (
        [] if system is None else [system]
    )


def rephrased(value: object) -> dict[str, object]:
    return {"question": "q", "rephrased_prompt": value}


@each(
    "row, columns, expected",
    (
        {"question": "  ", "answer": "1"},
        None,
        "no row of {file} has a question: line 1 of {file} has no",
    ),
    ({"prompt": [], "answer": "1"}, None, "line 1 of {file} has no 'prompt'"),
    (
        {"prompt": 5, "answer": "1"},
        None,
        "line 1 of {file}: 'prompt' is of another form (int)",
    ),
    ({"prompt": [{"content": "q"}], "answer": "1"}, None, "is of another form (list)"),
    (
        {"prompt": [{"role": "user", "content": 5}], "answer": "1"},
        None,
        "with text in both",
    ),
    (
        {"question": "q", "answer": ["1", "2"]},
        None,
        "line 1 of {file}: 'answer' is a list of 2",
    ),
    (interchange('["15", "alt"]'), None, "a list of 2 answers that differ ('15', 'alt')"),
    ({"question": "q", "answer": True}, None, "line 1 of {file}: 'answer' is a bool"),
    ({"prompt": "q", "reward_model": "rule"}, None, "column 'reward_model' holds string"),
    (
        interchange("2", noise_type="loud"),
        None,
        "is 'loud', and it should be one of clean, inactive",
    ),
    (rephrased(5), None, "line 1 of {file}: 'rephrased_prompt' is of another form (int)"),
    (rephrased([{"content": "q"}]), None, "(list)"),
    (
        {"Question": QUESTION, "Answer": 2, "uid": 7},
        None,
        "its columns are Question, Answer, uid; say which hold what,"
        " as in data.columns='{question: Question, answer: Answer, id: uid}'",
    ),
    (
        {"x": {"the question": "?"}},
        None,
        "'{question: \"x.the question\", answer: COLUMN}'",
    ),
    ({"Question": "?"}, {"question": "Qestion"}, "no 'Qestion' (did you mean"),
    ({"question": "?", "answer": 2}, {"answer": "answer.gold"}, "no 'answer.gold'"),
    (
        {"question": "?", "x": None},
        {"id": "x"},
        "is empty, and it should be an id that names one row",
    ),
)
def test_a_bad_row_or_column_is_named(tmp_path, row, columns, expected):
    caught = refusal(read, tmp_path, row, columns=columns)
    assert expected.replace("{file}", str(tmp_path / "rows.jsonl")) in caught
    assert "rows.jsonl" in caught


def test_rows_without_a_question_are_skipped_with_a_count_and_later_rows_keep_their_names(
    tmp_path,
):
    (tmp_path / "a.csv").write_text('question,answer\n"1\n+1",2\n , \n,5\n2+2,4\n3+3,\n')
    prompts = read_prompts(tmp_path / "a.csv")
    (note,) = prompts.notes
    assert (
        note
        == f"2 rows without a question skipped: line 4 of {tmp_path / 'a.csv'} has no 'question'"
    )
    assert [prompt.given_label for prompt in prompts.prompts] == ["2", "4", None] and len(
        prompts.table
    ) == 3
    with pytest.raises(UserError, match=r"\(the first: line 7 of .*a\.csv, prompt_id"):
        prompts.subset([1, 2]).require_labels("this")
    assert (
        read(tmp_path, {"question": "q"}, {"question": " "})
        .notes[0]
        .startswith("1 row without")
    )


def test_labels_and_rephrasings_that_are_missing_are_refused_only_where_they_count(
    tmp_path,
):
    """R5: everything but injection, and methods that need a label, works on them."""
    bare = read(tmp_path, {"question": "q", "Ziel": 2, "target_value": 3})
    texts = ("1", "", None, "2")
    some = read(
        tmp_path,
        *({"question": "q", "answer": text, "rephrased_prompt": text} for text in texts),
    )
    second = rf"\(the first: line 2 of .*rows.jsonl, prompt_id {some.prompts[1].prompt_id}\); fill them in"
    for require, expected in (
        (
            bare.require_labels,
            "has no column of .* its columns are question, Ziel, target_value; say which",
        ),
        (some.require_labels, f"2 of the 4 in rows.jsonl have none in 'answer' {second}"),
        (
            bare.require_rephrasings,
            "has no column 'rephrased_prompt'; add it: in each row the",
        ),
        (some.require_rephrasings, f"have none in 'rephrased_prompt' {second}"),
    ):
        with pytest.raises(UserError, match=expected):
            require("this")
    with pytest.raises(UserError, match=r"line 3 of .*rows.jsonl"):
        some.subset([0, 2]).require_labels("this")
    some.subset([0, 3]).require_rephrasings("this")
    some.subset([0, 3]).require_labels("this")


def test_held_out_files_may_have_columns_of_standard_names_and_training_files_not(tmp_path):
    (tmp_path / "mine.csv").write_text("Question,Answer\n1+1,2\n")
    (tmp_path / "test.csv").write_text("question,answer\n2+2,4\n")
    columns = ["data.columns={question: Question, answer: Answer}"]
    trees = ({"data": {"train": str(tmp_path / name)}} for name in ("mine.csv", "test.csv"))
    mine, test = (validate(override(tree, columns), "test") for tree in trees)
    assert training_prompts(mine).prompts[0].given_label == "2"
    assert (
        held_out_prompts(mine, str(tmp_path / "test.csv"), "test").prompts[0].given_label
        == "4"
    )
    assert "test.csv has no 'Question'" in refusal(training_prompts, test)


# Rephrasings ------------------------------------------------------------------------------------------------------


def test_a_rephrased_question_takes_the_place_of_the_last_one_among_the_turns_of_its_prompt(
    tmp_path,
):
    """R21: with the system message of the plain question, or the one that the row has; with none where it has none."""
    system, user = (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1+1"},
    )
    said = {"role": "assistant", "content": "So"}
    plain = [{"prompt": "1+1"}, {"prompt": "1+1=", "data_source": "arithmetic"}]
    listed = [
        {"prompt": turns}
        for turns in ([system, user], [user], [system], [user, said, user, said])
    ]
    plain, listed = (
        [row | {"rephrased_prompt": "One and one?"} for row in rows]
        for rows in (plain, listed)
    )
    prompts = (*read(tmp_path, *plain).prompts, *read(tmp_path, *listed).prompts)
    brief, asked = Message("system", "Be brief."), Message("user", "One and one?")
    assert [prompt.turns("rephrased") for prompt in prompts] == [
        (Message("system", SYSTEM_PROMPT), asked),
        (asked,),
        (brief, asked),
        (asked,),
        (brief, asked),
        (
            Message("user", "1+1"),
            Message("assistant", "So"),
            asked,
            Message("assistant", "So"),
        ),
    ]
    assert all(prompt.turns("original") == prompt.messages for prompt in prompts)
    (prompt,) = read(tmp_path, rephrased([{"role": "user", "content": "r"}])).prompts
    assert prompt.rephrased == (Message("user", "r"),)


@pytest.mark.parametrize("value", [None, float("nan"), " \n", [], [{"role": "user"}]])
def test_a_blank_rephrasing_is_none(tmp_path, value):
    (prompt,) = read(tmp_path, rephrased(value)).prompts
    assert prompt.rephrased is None
    with pytest.raises(ValueError, match=f"prompt {prompt.prompt_id} has no rephrasing"):
        prompt.turns("rephrased")


# Ids --------------------------------------------------------------------------------------------------------------


def test_prompt_ids_are_indices_where_each_row_has_one_of_its_own(tmp_path):
    for first, second in ((7, 9), ("a", "b")):
        prompts = read(
            tmp_path, interchange("1", index=first), interchange("1", index=second)
        )
        assert ids(prompts) == [str(first), str(second)]


@pytest.mark.parametrize("indices", [(7, 7), (7, None), (None, None)])
def test_else_prompt_ids_are_digests_of_the_questions(tmp_path, indices):
    first, second = ids(
        read(tmp_path, *(interchange("1", index=index) for index in indices))
    )
    assert len(first) == len("q-") + 12
    assert second == f"{first}-2"  # the same question twice


@pytest.mark.parametrize("name", ["id", "uid", "_id", "idx", "question_id"])
def test_a_column_of_ids_names_the_prompts_if_it_has_another_one_in_every_row(
    tmp_path, name
):
    rows = [{"question": f"{n}+1", "answer": n + 1, name: f"x{n}"} for n in range(3)]
    assert ids(read(tmp_path, *rows)) == ["x0", "x1", "x2"]
    assert all(one.startswith("q-") for one in ids(read(tmp_path, *rows, rows[0])))


def test_ids_follow_the_question_whatever_its_row_its_label_and_its_system_message(
    tmp_path,
):
    def by_question(*rows: dict[str, object]) -> dict[str, str]:
        return {p.messages[-1].content: p.prompt_id for p in read(tmp_path, *rows).prompts}

    rows: list[dict[str, object]] = [
        {"question": f"{n}+1 = ?", "answer": n} for n in range(6)
    ]
    known = by_question(*rows)
    assert (
        by_question(*(row | {"answer": "mended"} for row in rows[4:1:-1])).items()
        <= known.items()
    )
    turns = [{"role": "system", "content": "Hi"}, {"role": "user", "content": "3 + 1=?"}]
    assert ids(read(tmp_path, {"messages": turns, "answer": 4})) == [known["3+1 = ?"]]


def test_ids_of_questions_that_differ_in_case_do_not_depend_on_the_order_of_rows_or_on_the_source(
    tmp_path,
):
    questions = ("Next to a?", "other", "next to A", "other", "next to A")
    rows = [{"question": question, "answer": "1"} for question in questions]
    files, logs = [], []
    for order in (rows, rows[::-1], rows[2:] + rows[:2]):
        files.append(
            {(p.prompt_id, p.messages[-1].content) for p in read(tmp_path, *order).prompts}
        )
        file = json_lines(
            tmp_path / "log.jsonl", *(row | {"response": "1", "step": 1} for row in order)
        )
        logs.append(
            {
                (name, turns[-1].content)
                for name, turns in read_log([file]).questions.items()
            }
        )
    assert files[0] == files[1] == files[2] and len(files[0]) == 5
    first_of = {text: name for name, text in sorted(files[0], reverse=True)}
    assert (
        logs[0] == logs[1] == logs[2]
        and {text: name for name, text in logs[0]}.items() <= first_of.items()
    )


def test_a_file_written_by_olr_keeps_the_ids(tmp_path):
    columns = {"question": "q", "answer": "a", "id": "name"}
    prompts = read(
        tmp_path,
        *({"q": str(n), "a": n, "name": f"x{n}"} for n in range(3)),
        columns=columns,
    )
    (tmp_path / "written.parquet").write_bytes(
        encode(prompts, tmp_path / "written.parquet")
    )
    again = read_prompts(tmp_path / "written.parquet")
    assert again.prompts == prompts.prompts and again.prompts[0].prompt_id == "x0"


def test_rows_are_numbered_where_that_is_asked_for(tmp_path):
    numbered = read(
        tmp_path, *({"question": str(n), "id": n} for n in range(3)), are_numbered=True
    )
    assert [one.partition("-")[0] for one in ids(numbered)] == ["0", "1", "2"]


def test_the_same_question_with_other_labels_is_said(tmp_path):
    rows = [
        ("What is $1+1$?", "2"),
        ("what is 1 + 1", "3"),
        ("2+2", "4"),
        ("2 + 2 = ?", "4"),
        ("2+2", "4.0"),
    ]
    prompts = read(tmp_path, *({"question": q, "answer": a} for q, a in rows))
    conflict, repetition = repeat_notes(prompts)
    assert conflict.startswith(
        "1 question is in rows.jsonl more than once with different labels"
    )
    assert conflict.endswith("the first: 2 (line 1), 3 (line 2)")
    assert repetition.startswith(
        "1 question is in rows.jsonl more than once; the first: 4 ("
    )
    assert list(repeat_notes(read_prompts(SAMPLE))) == []
    (named,) = repeat_notes(
        read(tmp_path, *({"question": "2+2", "id": name} for name in ("a", "b")))
    )
    assert named.endswith("(a), None (b)"), "which a file without ids has not"


def test_a_limit_does_not_change_prompt_ids(tmp_path):
    file = json_lines(
        tmp_path / "rows.jsonl", *(interchange("1", index=index) for index in (1, 2, 2))
    )
    assert read_prompts(file, limit=2).prompts == read_prompts(file).prompts[:2]
    assert len(read_prompts(file, limit=10)) == 3


def test_a_sample_is_an_exact_seeded_subset_in_file_order():
    whole = read_prompts(SAMPLE)
    small, large = (read_prompts(SAMPLE, sample=size, seed=1) for size in (5, 11))
    places = [ids(whole).index(one) for one in ids(large)]
    assert len(small) == 5 and len(large) == 11 and places == sorted(places)
    assert set(small.prompts) < set(large.prompts) < set(whole.prompts)
    assert read_prompts(SAMPLE, sample=11, seed=2).prompts != large.prompts
    assert large.table["extra_info"].to_pylist()[0]["index"] == int(
        large.prompts[0].prompt_id
    )
    assert "has 24 prompts, so 25 cannot be sampled" in refusal(
        read_prompts, SAMPLE, sample=25
    )


# Marks ------------------------------------------------------------------------------------------------------------


def test_rows_that_say_their_noise_type_are_believed(tmp_path):
    prompts = read(
        tmp_path,
        interchange(SENTINEL, noise_type="active", original_ground_truth="2"),
        interchange("5", noise_type="active_frozen", original_ground_truth="2"),
        interchange("2", noise_type="clean", original_ground_truth=None),
        interchange(SENTINEL, noise_type="inactive", original_ground_truth=None),
    )
    assert marks(prompts) == [
        (SENTINEL, "2", "active"),
        ("5", "2", "active_frozen"),
        ("2", "2", "clean"),
        (SENTINEL, None, "inactive"),
    ]


@pytest.mark.parametrize("asked", ["inactive", "active"])
def test_sentinel_rows_without_a_type_take_the_one_asked_for(tmp_path, asked):
    """R1, as in the authors' files."""
    file = json_lines(
        tmp_path / "rows.jsonl",
        interchange(SENTINEL, original_ground_truth="2"),
        interchange("2", original_ground_truth="2"),
        interchange(SENTINEL, original_ground_truth=None),
        interchange("4", original_ground_truth=None),
        interchange(None, original_ground_truth="2"),
    )
    assert marks(read_prompts(file, noise_type_of_sentinel=asked)) == [
        (SENTINEL, "2", asked),
        ("2", "2", "clean"),
        (SENTINEL, None, asked),
        ("4", "4", "clean"),
        (None, "2", None),
    ]


@each(
    "label, original, noise_type",
    (r"\frac12", "1/2", "clean"),
    ("3", "3.0", "clean"),
    (r"\sqrt{8}", r"2\sqrt{2}", "clean"),
    ("C", r"\text{(C)}", "clean"),
    # R4: a file with wrong labels written into it, by whomever
    (
        "5",
        "2",
        "active_frozen",
    ),
)
def test_another_spelling_of_the_original_is_right_and_another_answer_wrong_for_good(
    tmp_path, label, original, noise_type
):
    prompts = read(tmp_path, interchange(label, original_ground_truth=original))
    assert marks(prompts) == [(label, original, noise_type)]


def test_in_a_file_that_names_noise_types_a_row_without_one_is_of_unknown_quality(tmp_path):
    """R5: written and read again it is so too, though its neighbours' true answers are in the file by then."""
    rows = [
        interchange("1", noise_type="clean"),
        interchange("2", index=5),
        interchange(SENTINEL),
    ]
    expected = [("1", "1", "clean"), ("2", None, None), (SENTINEL, None, "inactive")]
    first = read(tmp_path, *rows)
    assert marks(first) == expected
    (tmp_path / "again.parquet").write_bytes(encode(first, tmp_path / "again.parquet"))
    assert marks(read_prompts(tmp_path / "again.parquet")) == expected


# Digests ----------------------------------------------------------------------------------------------------------


def test_the_digest_is_of_the_content_not_of_the_file(tmp_path):
    rows = [{"question": f"{n}+1", "answer": n + 1} for n in range(5)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    digest = read_prompts(tmp_path / "rows.parquet").digest
    assert read(tmp_path, *rows).digest == digest
    assert (
        read(tmp_path, *(row | {"rephrased_prompt": " "} for row in rows)).digest == digest
    )
    assert read(tmp_path, *rows[1:], rows[0]).digest != digest
    rows[2]["answer"] = 9
    assert read(tmp_path, *rows).digest != digest


def test_the_digest_sees_every_field_of_a_prompt(tmp_path):
    base = Prompt("1", (Message("user", "q"),), "2", "2", "clean", "s")
    others = [
        replace(base, prompt_id="2"), replace(base, messages=(Message("system", "q"),)),
        replace(base, messages=(Message("user", "q"), Message("user", ""))), replace(base, given_label=None),
        replace(base, true_answer=None), replace(base, noise_type=None), replace(base, data_source="t"),
        replace(base, rephrased=base.messages), replace(base, rephrased=(Message("user", "r"),)),
    ]  # fmt: skip
    table = read(tmp_path, interchange("2")).table
    assert (
        len({PromptSet((prompt,), lambda: table, "x").digest for prompt in [base, *others]})
        == 10
    )


# Sources ----------------------------------------------------------------------------------------------------------


def test_the_built_in_set_needs_no_file_and_rephrases_its_prompts():
    prompts = read_prompts("arithmetic")
    assert len(prompts) == 400 and prompts.source == "arithmetic"
    assert {(p.noise_type, p.messages[0].role) for p in prompts.prompts} == {
        ("clean", "user")
    }
    few = read_prompts("arithmetic:subtraction", limit=50)
    few.require_rephrasings("co_reward")
    assert all(prompt.turns("rephrased") != prompt.messages for prompt in few.prompts)
    assert (len(few), len(read_prompts("arithmetic", sample=7))) == (50, 7)
    assert not set(ids(read_prompts("arithmetic", split="test"))) & set(ids(prompts))
    assert "has no split 'dev'" in refusal(read_prompts, "arithmetic", split="dev")


@each(
    "source, expected",
    ("arithmetc", "did you mean 'arithmetic'?"),
    ("arithmetic:additon", "did you mean 'addition'?"),
    ("olympiads", "name a file, a folder or a hub id org/name"),
    ("./no-such-file", "does not exist"),
    # No hub id: there is a folder data
    (
        "data/dapp",
        "data/dapp does not exist (did you mean 'data/dapo'?",
    ),
)
def test_a_source_that_is_nothing_is_refused(here, source, expected):
    (here / "data" / "dapo").mkdir(parents=True)
    assert expected in refusal(read_prompts, source)


def test_the_authors_marked_file_is_read_as_marked():
    prompts = read_prompts(NOISY_SAMPLE, noise_type_of_sentinel="active")
    clean = read_prompts(SAMPLE)
    assert sum(p.is_marked for p in prompts.prompts) == 8
    assert [p.true_answer for p in prompts.prompts] == [
        p.given_label for p in clean.prompts
    ]
    found = {(p.noise_type, p.given_label == SENTINEL) for p in prompts.prompts}
    assert found == {("active", True), ("clean", False)}
