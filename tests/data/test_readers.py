"""What becomes a prompt, its id, its label and its mark, from every form of source."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from olr_cli.data.chat import Message
from olr_cli.data.logs import read_log
from olr_cli.data.prompt_files import PromptSet, Reading, read_prompts
from olr_cli.data.prompts import SENTINEL, SYSTEM_PROMPT, NoiseType, Prompt, repeat_notes
from olr_cli.data.writers import encode
from olr_cli.errors import UserError

SAMPLE = Path(__file__).parents[1] / "fixtures" / "dapo_sample.parquet"
SHARED = Path(__file__).parents[2].parent / "shared" / "data"
needs_shared = pytest.mark.skipif(
    not SHARED.exists(), reason="the larger data sets are not beside this clone"
)


def write_lines(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_lines(folder: Path, *rows: object) -> PromptSet:
    return read_prompts(write_lines(folder / "rows.jsonl", *rows))


def interchange(label: object, **extra: object) -> dict[str, object]:
    row: dict[str, object] = {
        "prompt": [{"role": "user", "content": "1+1"}],
        "reward_model": {"ground_truth": label},
    }
    return row | ({"extra_info": extra} if extra else {})


def complaint(folder: Path, *rows: object) -> str:
    with pytest.raises(UserError) as caught:
        read_lines(folder, *rows)
    assert "rows.jsonl" in str(caught.value) and "\n" not in str(caught.value)
    return str(caught.value)


def marks(prompts: PromptSet) -> list[tuple[str | None, str | None, NoiseType | None]]:
    return [(p.given_label, p.true_answer, p.noise_type) for p in prompts.prompts]


def test_interchange_rows_are_kept_as_they_are() -> None:
    prompts = read_prompts(SAMPLE)
    rows = pq.read_table(SAMPLE).to_pylist()
    assert len(prompts) == 24
    for prompt, row in zip(prompts.prompts, rows, strict=True):
        assert [(m.role, m.content) for m in prompt.messages] == [
            (m["role"], m["content"]) for m in row["prompt"]
        ]
        assert prompt.prompt_id == str(row["extra_info"]["index"])
        assert prompt.given_label == row["reward_model"]["ground_truth"]
        assert prompt.data_source == "dapo-math"
    assert prompts.source == "dapo_sample.parquet"
    assert prompts.label_column == "reward_model.ground_truth"


def test_labels_of_an_unmarked_file_are_of_unknown_quality() -> None:
    assert {(p.noise_type, p.true_answer) for p in read_prompts(SAMPLE).prompts} == {(None, None)}


@pytest.mark.parametrize("question", ["question", "problem", "prompt"])
@pytest.mark.parametrize("answer", ["answer", "label", "ground_truth", "solution"])
def test_a_plain_question_is_asked_with_the_system_prompt(tmp_path: Path, question: str, answer: str) -> None:
    """R21."""
    prompts = read_lines(tmp_path, {question: "What is 1+1?", answer: "2"})
    prompt = prompts.prompts[0]
    assert prompt.messages == (Message("system", SYSTEM_PROMPT), Message("user", "What is 1+1?"))
    assert (prompt.given_label, prompt.data_source) == ("2", "local/rows")
    assert prompts.label_column == answer


def test_an_interchange_row_may_have_its_prompt_as_text_and_name_the_arithmetic_task(tmp_path: Path) -> None:
    rows = [
        {"prompt": "1+1=", "reward_model": {"ground_truth": "2"}, "data_source": source}
        for source in ("arithmetic-addition", "arithmetic", "aime")
    ]
    roles = [[m.role for m in p.messages] for p in read_lines(tmp_path, *rows).prompts]
    assert roles == [["user"], ["user"], ["system", "user"]]


def test_a_file_called_arithmetic_is_not_taken_for_the_arithmetic_task(tmp_path: Path) -> None:
    prompts = read_prompts(write_lines(tmp_path / "arithmetic.jsonl", {"question": "1+1", "answer": 2}))
    assert prompts.prompts[0].data_source == "local/arithmetic"


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("10", "10"),
        (10, "10"),
        (10.0, "10"),
        (0.5, "0.5"),
        (["7"], "7"),
        ([7], "7"),
        ([], None),
        ("", None),
        (" \n", None),
        (None, None),
        (10**400, str(10**400)),
    ],
)
def test_a_label_becomes_text_or_nothing(tmp_path: Path, label: object, text: str | None) -> None:
    plain = read_lines(tmp_path, {"question": "q", "answer": label}).prompts[0]
    nested = read_lines(tmp_path, interchange(label)).prompts[0]
    assert plain.given_label == nested.given_label == text


@pytest.mark.parametrize(
    "solution",
    ["48/2 = 24\n48+24 = 72\n#### 72", r"48+24, so \boxed{71}, no, \boxed{72}.", r"\boxed{72}", "#### 72"],
)
def test_of_a_worked_solution_the_final_answer_is_the_label(tmp_path: Path, solution: str) -> None:
    prompts = read_lines(tmp_path, {"question": "q", "solution": solution})
    assert prompts.prompts[0].given_label == "72"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            {"text": "q", "answer": "1"},
            "its columns are text, answer; say which hold what: --set 'data.columns={question: text, answer: answer}'",
        ),
        ({"question": None, "answer": "1"}, "'question' of row 0 (the first is 0) is empty"),
        ({"question": "  ", "answer": "1"}, "'question' of row 0 (the first is 0) is empty"),
        ({"prompt": [], "answer": "1"}, "'prompt' of row 0 (the first is 0) is empty"),
        ({"prompt": 5, "answer": "1"}, "'prompt' of row 0 (the first is 0) is of another form (int)"),
        ({"prompt": [{"content": "q"}], "answer": "1"}, "is of another form (list)"),
        ({"prompt": [{"role": "user", "content": 5}], "answer": "1"}, "with text in both"),
        ({"question": "q", "answer": ["1", "2"]}, "'answer' of row 0 (the first is 0) is a list of 2 values"),
        ({"question": "q", "answer": True}, "'answer' of row 0 (the first is 0) is a bool"),
        ({"question": "q", "answer": {"value": 1}}, "is a dict, and it should be text or a number"),
        ({"prompt": "q", "reward_model": "rule"}, "column 'reward_model' holds string"),
        (interchange("2", noise_type="loud"), "has the noise type 'loud'; known are clean, inactive"),
        (interchange(SENTINEL, noise_type="clean"), "is called clean, and its label is __NoCorrectAnswer__"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: dict[str, object], expected: str) -> None:
    assert expected in complaint(tmp_path, row)


def test_prompts_without_labels_are_read_and_refused_only_where_labels_count(tmp_path: Path) -> None:
    """R5: everything but injection, and methods that need a label, works on them."""
    unlabelled = read_lines(tmp_path, {"question": "q"})
    assert unlabelled.prompts[0].given_label is None
    with pytest.raises(UserError, match=r"rows\.jsonl has no column of labels"):
        unlabelled.require_labels("grpo")
    some = read_lines(tmp_path, *({"question": "q", "answer": answer} for answer in ("1", "", None)))
    with pytest.raises(
        UserError, match=r"2 of the 3 in rows\.jsonl have none in 'answer' \(the first: row 1,"
    ):
        some.require_labels("grpo")


def rephrasings(prompts: PromptSet) -> list[tuple[Message, ...] | None]:
    return [prompt.rephrased for prompt in prompts.prompts]


def test_a_rephrased_question_is_asked_like_the_question(tmp_path: Path) -> None:
    """R21: with the system message of the plain question, or the one that the row has; with none where it has none."""
    own = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1"}]
    rows = [
        {"prompt": "1+1", "rephrased_prompt": "One and one?"},
        {"prompt": "1+1=", "rephrased_prompt": "One and one?", "data_source": "arithmetic"},
    ]
    plain = read_lines(tmp_path, *rows).prompts
    listed = read_lines(
        tmp_path,
        *({"prompt": turns, "rephrased_prompt": "One and one?"} for turns in (own, own[1:], own[:1])),
    ).prompts
    user = Message("user", "One and one?")
    assert [prompt.turns("rephrased") for prompt in (*plain, *listed)] == [
        (Message("system", SYSTEM_PROMPT), user),
        (user,),
        (Message("system", "Be brief."), user),
        (user,),
        (Message("system", "Be brief."), user),
    ]
    assert all(prompt.turns("original") == prompt.messages for prompt in (*plain, *listed))


def test_a_rephrased_text_takes_the_place_of_the_last_question(tmp_path: Path) -> None:
    turns = [("user", "1+1"), ("assistant", "2"), ("user", "2+2"), ("assistant", "So")]
    row = {
        "prompt": [{"role": role, "content": text} for role, text in turns],
        "rephrased_prompt": "Twice two?",
    }
    turns[2] = ("user", "Twice two?")
    assert rephrasings(read_lines(tmp_path, row)) == [tuple(Message(*turn) for turn in turns)]


def test_rephrased_messages_are_taken_as_they_are(tmp_path: Path) -> None:
    row = {"question": "1+1", "rephrased_prompt": [{"role": "user", "content": "One and one?"}]}
    assert rephrasings(read_lines(tmp_path, row)) == [(Message("user", "One and one?"),)]


@pytest.mark.parametrize(
    "value",
    [{}, *({"rephrased_prompt": blank} for blank in (None, " \n", [], [{"role": "user"}]))],
)
def test_a_blank_rephrasing_is_none(tmp_path: Path, value: dict[str, object]) -> None:
    prompts = read_lines(tmp_path, {"question": "1+1"} | value)
    assert rephrasings(prompts) == [None]
    with pytest.raises(ValueError, match=f"prompt {prompts.prompts[0].prompt_id} has no rephrasing"):
        prompts.prompts[0].turns("rephrased")


def test_a_rephrasing_that_pandas_left_out_is_none(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"question": ["q"], "rephrased_prompt": [float("nan")]}), file)
    assert rephrasings(read_prompts(file)) == [None]


@pytest.mark.parametrize(
    ("value", "found"), [(5, "int"), (True, "bool"), ({"role": "user"}, "dict"), ([{"content": "q"}], "list")]
)
def test_a_bad_rephrasing_is_named(tmp_path: Path, value: object, found: str) -> None:
    rows = [{"question": "q"}, {"question": "q", "rephrased_prompt": value}]
    assert f"'rephrased_prompt' of row 1 (the first is 0) is of another form ({found})" in complaint(
        tmp_path, *rows
    )


def test_missing_rephrasings_are_refused_only_where_they_count(tmp_path: Path) -> None:
    with pytest.raises(UserError) as no_column:
        read_lines(tmp_path, {"question": "q"}).require_rephrasings("co_reward")
    assert str(no_column.value) == (
        "co_reward needs a rephrasing of every prompt, and rows.jsonl has no column 'rephrased_prompt'; add it: in"
        " each row the same question in other words"
    )
    rows = [{"question": "q", "rephrased_prompt": text} for text in ("r", "", "r", None)]
    some = read_lines(tmp_path, *rows)
    with pytest.raises(UserError) as two:
        some.require_rephrasings("co_reward")
    assert str(two.value) == (
        "co_reward needs a rephrasing of every prompt, and 2 of the 4 in rows.jsonl have none in 'rephrased_prompt'"
        f" (the first: row 1, prompt_id {some.prompts[1].prompt_id}); fill them in or leave these rows out"
    )
    some.subset([0, 2]).require_rephrasings("co_reward")


def test_prompt_ids_are_indices_where_each_row_has_one_of_its_own(tmp_path: Path) -> None:
    unique = read_lines(tmp_path, interchange("1", index=7), interchange("1", index=9))
    assert [p.prompt_id for p in unique.prompts] == ["7", "9"]
    named = read_lines(tmp_path, interchange("1", index="a"), interchange("1", index="b"))
    assert [p.prompt_id for p in named.prompts] == ["a", "b"]


@pytest.mark.parametrize("indices", [(7, 7), (7, None), (None, None)])
def test_else_prompt_ids_are_digests_of_the_questions(
    tmp_path: Path, indices: tuple[int | None, ...]
) -> None:
    first, second = read_lines(tmp_path, *(interchange("1", index=index) for index in indices)).prompts
    assert len(first.prompt_id) == len("q-") + 12
    assert second.prompt_id == f"{first.prompt_id}-2"  # the same question twice


@pytest.mark.parametrize("name", ["id", "uid", "_id", "idx", "question_id"])
def test_a_column_of_ids_names_the_prompts_if_it_has_another_one_in_every_row(
    tmp_path: Path, name: str
) -> None:
    rows = [{"question": f"{n}+1", "answer": n + 1, name: f"x{n}"} for n in range(3)]
    assert [p.prompt_id for p in read_lines(tmp_path, *rows).prompts] == ["x0", "x1", "x2"]
    assert all(p.prompt_id.startswith("q-") for p in read_lines(tmp_path, *rows, rows[0]).prompts)


def test_ids_follow_the_question_whatever_its_row_its_label_and_its_system_message(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"question": f"{n}+1 = ?", "answer": n} for n in range(6)]
    ids = {p.messages[-1].content: p.prompt_id for p in read_lines(tmp_path, *rows).prompts}
    part = [row | {"answer": "mended"} for row in rows[4:1:-1]]
    assert {
        p.messages[-1].content: p.prompt_id for p in read_lines(tmp_path, *part).prompts
    }.items() <= ids.items()
    chat = {
        "messages": [{"role": "system", "content": "Hi"}, {"role": "user", "content": "3 + 1=?"}],
        "answer": 4,
    }
    assert read_lines(tmp_path, chat).prompts[0].prompt_id == ids["3+1 = ?"]


def test_ids_of_questions_that_differ_in_case_do_not_depend_on_the_order_of_rows_or_on_the_source(
    tmp_path: Path,
) -> None:
    rows = [
        {"question": q, "answer": "1"} for q in ("Next to a?", "other", "next to A", "other", "next to A")
    ]
    ids: list[set[tuple[str, str]]] = []
    for order in (rows, rows[::-1], rows[2:] + rows[:2]):
        prompts = read_lines(tmp_path, *order).prompts
        ids.append({(p.prompt_id, p.messages[-1].content) for p in prompts})
        file = write_lines(tmp_path / "log.jsonl", *(row | {"response": "1", "step": 1} for row in order))
        ids.append({(name, turns[-1].content) for name, turns in read_log([file]).questions.items()})
    files, logs = ids[::2], ids[1::2]
    assert files[0] == files[1] == files[2] and len(files[0]) == 5
    assert (
        logs[0] == logs[1] == logs[2]
        and {text: name for name, text in logs[0]}.items()
        <= {text: name for name, text in sorted(files[0], reverse=True)}.items()
    )


def test_a_file_written_by_olr_keeps_the_ids(tmp_path: Path) -> None:
    prompts = read_prompts(
        write_lines(tmp_path / "rows.jsonl", *({"q": str(n), "a": n, "name": f"x{n}"} for n in range(3))),
        reading=Reading({"question": "q", "answer": "a", "id": "name"}),
    )
    (tmp_path / "written.parquet").write_bytes(encode(prompts, tmp_path / "written.parquet"))
    again = read_prompts(tmp_path / "written.parquet")
    assert again.prompts == prompts.prompts and again.prompts[0].prompt_id == "x0"


def test_rows_are_numbered_where_that_is_asked_for(tmp_path: Path) -> None:
    file = write_lines(
        tmp_path / "rows.jsonl", *({"question": str(n), "answer": n, "id": n} for n in range(3))
    )
    numbered = read_prompts(file, reading=Reading(are_numbered=True))
    assert [p.prompt_id.partition("-")[0] for p in numbered.prompts] == ["0", "1", "2"]


def test_the_same_question_with_other_labels_is_said(tmp_path: Path) -> None:
    rows = [("What is $1+1$?", "2"), ("what is 1 + 1", "3"), ("2+2", "4"), ("2 + 2 = ?", "4"), ("2+2", "4.0")]
    prompts = read_lines(tmp_path, *({"question": q, "answer": a} for q, a in rows))
    conflict, repetition = repeat_notes(prompts)
    ids = [p.prompt_id for p in prompts.prompts]
    assert conflict.startswith("1 question is in rows.jsonl with different labels")
    assert conflict.endswith(f"it is labelled 2 ({ids[0]}), 3 ({ids[1]})")
    assert repetition.startswith("2 prompts of rows.jsonl repeat")
    assert list(repeat_notes(read_prompts(SAMPLE))) == []


def test_a_limit_does_not_change_prompt_ids(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "rows.jsonl", *(interchange("1", index=index) for index in (1, 2, 2)))
    whole, part = read_prompts(file), read_prompts(file, limit=2)
    assert part.prompts == whole.prompts[:2]
    assert len(read_prompts(file, limit=10)) == 3


def test_a_sample_is_an_exact_seeded_subset_in_file_order() -> None:
    whole = read_prompts(SAMPLE)
    small, large = (read_prompts(SAMPLE, sample=size, seed=1) for size in (5, 11))
    order = {p.prompt_id: place for place, p in enumerate(whole.prompts)}
    places = [order[p.prompt_id] for p in large.prompts]
    assert len(small) == 5 and len(large) == 11
    assert places == sorted(places)
    assert set(small.prompts) < set(large.prompts) < set(whole.prompts)
    assert read_prompts(SAMPLE, sample=11, seed=2).prompts != large.prompts
    assert large.table["extra_info"].to_pylist()[0]["index"] == int(large.prompts[0].prompt_id)
    with pytest.raises(UserError, match="has 24 prompts, so 25 cannot be sampled"):
        read_prompts(SAMPLE, sample=25)


def test_rows_that_say_their_noise_type_are_believed(tmp_path: Path) -> None:
    prompts = read_lines(
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


@pytest.mark.parametrize(("asked", "becomes"), [("inactive", "inactive"), ("active", "active")])
def test_sentinel_rows_without_a_type_take_the_one_asked_for(
    tmp_path: Path, asked: NoiseType | None, becomes: NoiseType
) -> None:
    """R1, as in the authors' files."""
    file = write_lines(
        tmp_path / "rows.jsonl",
        interchange(SENTINEL, original_ground_truth="2"),
        interchange("2", original_ground_truth="2"),
        interchange(SENTINEL, original_ground_truth=None),
        interchange("4", original_ground_truth=None),
        interchange(None, original_ground_truth="2"),
    )
    assert marks(read_prompts(file, noise_type_of_sentinel=asked)) == [
        (SENTINEL, "2", becomes),
        ("2", "2", "clean"),
        (SENTINEL, None, becomes),
        ("4", "4", "clean"),
        (None, "2", None),
    ]


@pytest.mark.parametrize(
    ("label", "original"),
    [(r"\frac12", "1/2"), ("3", "3.0"), (r"\sqrt{8}", r"2\sqrt{2}"), ("C", r"\text{(C)}")],
)
def test_another_spelling_of_the_original_is_a_right_label(tmp_path: Path, label: str, original: str) -> None:
    prompts = read_lines(tmp_path, interchange(label, original_ground_truth=original))
    assert marks(prompts) == [(label, original, "clean")]


def test_another_answer_than_the_original_is_a_wrong_label_for_good(tmp_path: Path) -> None:
    """R4: a file with wrong labels written into it, by whomever."""
    assert marks(read_lines(tmp_path, interchange("5", original_ground_truth="2"))) == [
        ("5", "2", "active_frozen")
    ]


def test_the_digest_is_of_the_content_not_of_the_file(tmp_path: Path) -> None:
    rows = [{"question": f"{n}+1", "answer": n + 1} for n in range(5)]
    parquet = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(rows), parquet)
    digest = read_prompts(parquet).digest
    assert read_lines(tmp_path, *rows).digest == digest
    assert read_lines(tmp_path, *rows[1:], rows[0]).digest != digest
    rows[2]["answer"] = 9
    assert read_lines(tmp_path, *rows).digest != digest


def test_the_digest_sees_every_field_of_a_prompt(tmp_path: Path) -> None:
    base = Prompt("1", (Message("user", "q"),), "2", "2", "clean", "s")
    others = [
        Prompt("2", (Message("user", "q"),), "2", "2", "clean", "s"),
        Prompt("1", (Message("system", "q"),), "2", "2", "clean", "s"),
        Prompt("1", (Message("user", "q"), Message("user", "")), "2", "2", "clean", "s"),
        Prompt("1", (Message("user", "q"),), None, "2", "clean", "s"),
        Prompt("1", (Message("user", "q"),), "2", None, "clean", "s"),
        Prompt("1", (Message("user", "q"),), "2", "2", None, "s"),
        Prompt("1", (Message("user", "q"),), "2", "2", "clean", "t"),
        Prompt("1", (Message("user", "q"),), "2", "2", "clean", "s", (Message("user", "q"),)),
        Prompt("1", (Message("user", "q"),), "2", "2", "clean", "s", (Message("user", "r"),)),
    ]
    table = read_lines(tmp_path, interchange("2")).table
    assert len({PromptSet((prompt,), table, "x").digest for prompt in [base, *others]}) == 10


def test_a_column_of_blank_rephrasings_does_not_change_the_digest(tmp_path: Path) -> None:
    row = {"question": "q", "answer": "1"}
    blank = read_lines(tmp_path, row | {"rephrased_prompt": " "})
    assert read_lines(tmp_path, row).digest == blank.digest


def test_the_built_in_set_rephrases_its_prompts() -> None:
    prompts = read_prompts("arithmetic:subtraction", limit=50)
    prompts.require_rephrasings("co_reward")
    assert all(prompt.turns("rephrased") != prompt.messages for prompt in prompts.prompts)


def test_the_built_in_set_needs_no_file() -> None:
    prompts = read_prompts("arithmetic")
    assert len(prompts) == 400 and prompts.source == "arithmetic"
    assert {(p.noise_type, p.messages[0].role) for p in prompts.prompts} == {("clean", "user")}
    assert (
        len(read_prompts("arithmetic:subtraction", limit=7)) == len(read_prompts("arithmetic", sample=7)) == 7
    )
    held_out = read_prompts("arithmetic", split="test")
    assert not {p.prompt_id for p in held_out.prompts} & {p.prompt_id for p in prompts.prompts}
    with pytest.raises(UserError, match="has no split 'dev'"):
        read_prompts("arithmetic", split="dev")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("arithmetc", "did you mean 'arithmetic'?"),
        ("arithmetic:additon", "did you mean 'addition'?"),
        ("olympiads", "name a file, a folder or a hub id org/name"),
        ("./no-such-file", "does not exist"),
    ],
)
def test_a_source_that_is_nothing_is_refused(source: str, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        read_prompts(source)
    assert expected in str(caught.value)


def test_a_name_below_a_folder_that_exists_is_a_file_and_no_hub_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "dapo").mkdir()
    with pytest.raises(UserError, match=r"data/dapp does not exist \(did you mean 'data/dapo'\?"):
        read_prompts("data/dapp")


def test_in_a_file_that_names_noise_types_a_row_without_one_is_of_unknown_quality(tmp_path: Path) -> None:
    """R5: written and read again it is so too, though its neighbours' true answers are in the file by then."""
    rows = [interchange("1", noise_type="clean"), interchange("2", index=5), interchange(SENTINEL)]
    expected = [("1", "1", "clean"), ("2", None, None), (SENTINEL, None, "inactive")]
    first = read_lines(tmp_path, *rows)
    assert marks(first) == expected
    (tmp_path / "again.parquet").write_bytes(encode(first, tmp_path / "again.parquet"))
    assert marks(read_prompts(tmp_path / "again.parquet")) == expected


@needs_shared
def test_the_authors_marked_file_is_read_as_marked() -> None:
    prompts = read_prompts(SHARED / "dapo_800_noise_0.5.parquet", noise_type_of_sentinel="active")
    clean = read_prompts(SHARED / "dapo_800.parquet")
    assert sum(p.is_marked for p in prompts.prompts) == 387
    assert [p.true_answer for p in prompts.prompts] == [p.given_label for p in clean.prompts]
    assert {(p.noise_type, p.given_label == SENTINEL) for p in prompts.prompts} == {
        ("active", True),
        ("clean", False),
    }


@needs_shared
@pytest.mark.parametrize(("name", "rows"), [("math_benchmarks", 2591), ("arc_c", 1172), ("dapo_800", 800)])
def test_the_published_files_are_read(name: str, rows: int) -> None:
    prompts = read_prompts(SHARED / f"{name}.parquet")
    assert len(prompts) == rows == len({p.prompt_id for p in prompts.prompts})
    assert all(p.given_label and p.noise_type is None for p in prompts.prompts)
