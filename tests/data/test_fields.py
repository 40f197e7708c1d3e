"""Whichever columns a file has, `data.columns` says what they hold, and an error says how to say it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from olr_cli.data.chat import Message
from olr_cli.data.prompt_files import PromptSet, Reading, read_prompts
from olr_cli.data.prompts import SYSTEM_PROMPT
from olr_cli.data.sets import held_out_prompts, training_prompts
from olr_cli.data.writers import encode
from olr_cli.errors import UserError
from olr_cli.recipe.layers import override, validate

QUESTION = "What is 1+1?"


def read(folder: Path, row: Mapping[str, Any], **settings: Any) -> PromptSet:
    file = folder / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n", encoding="utf-8")
    return read_prompts(file, reading=Reading(**settings))


CHAT = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": "so #### 2"}]
SHAREGPT = [{"from": "human", "value": QUESTION}, {"from": "gpt", "value": r"so \boxed{2}"}]


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"Question": QUESTION, "Answer": 2}, {"question": "Question", "answer": "Answer"}),
        ({"input": QUESTION, "target": "2"}, {"question": "input", "answer": "target"}),
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
    ],
)
def test_question_and_answer_are_where_the_columns_say(
    tmp_path: Path, row: dict[str, Any], columns: dict[Any, str] | None
) -> None:
    prompts = read(tmp_path, row, columns=columns)
    (prompt,) = prompts.prompts
    assert (prompt.messages[-1], prompt.given_label) == (Message("user", QUESTION), "2")
    written = tmp_path / "written.jsonl"
    written.write_bytes(encode(prompts, written))
    (again,) = read_prompts(written).prompts
    assert (again.messages, again.given_label) == (prompt.messages, prompt.given_label)


def test_a_dialogue_is_asked_up_to_its_last_question(tmp_path: Path) -> None:
    dialogue = [*CHAT, {"role": "user", "content": "And 2+2?"}]
    (prompt,) = read(tmp_path, {"messages": dialogue, "answer": "4"}).prompts
    assert [m.role for m in prompt.messages] == ["user", "assistant", "user"]
    (prompt,) = read(tmp_path, {"messages": [*dialogue, {"role": "assistant", "content": "4"}]}).prompts
    assert (prompt.messages[-1].content, prompt.given_label) == ("And 2+2?", "4")


@pytest.mark.parametrize(
    ("row", "columns", "message"),
    [
        (
            {"Question": QUESTION, "Answer": 2, "uid": 7},
            None,
            "its columns are Question, Answer, uid; say which hold what:"
            " --set 'data.columns={question: Question, answer: Answer, id: uid}'",
        ),
        (
            {"x": {"the question": "?", "y": 1}},
            None,
            "'data.columns={question: \"x.the question\", answer: COLUMN}'",
        ),
        (
            {"Question": "?"},
            {"question": "Qestion"},
            "no 'Qestion', which data.columns names (did you mean 'Qu",
        ),
        ({"question": "?", "answer": 2}, {"answer": "answer.gold"}, "no 'answer.gold'"),
        (
            {"question": "?", "x": None},
            {"id": "x"},
            "'x' of row 0 (the first is 0) is empty, and it should be an id that names one row",
        ),
    ],
)
def test_a_column_that_is_not_there_is_named_with_those_that_are(
    tmp_path: Path, row: dict[str, Any], columns: dict[Any, str] | None, message: str
) -> None:
    with pytest.raises(UserError) as caught:
        read(tmp_path, row, columns=columns)
    assert message in str(caught.value)


def test_labels_that_are_missing_are_asked_for_with_the_columns_that_may_have_them(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"its columns are question, Ziel, target_value; .*answer: target_value"
    ):
        read(tmp_path, {"question": "?", "Ziel": 2, "target_value": 3}).require_labels("this")


@pytest.mark.parametrize(
    ("row", "settings", "system"),
    [
        ({"question": "?"}, {}, SYSTEM_PROMPT),
        ({"question": "?"}, {"system_prompt": "none"}, None),
        ({"question": "?"}, {"system_prompt": "Be brief."}, "Be brief."),
        ({"prompt": CHAT[:1]}, {}, None),
        ({"prompt": CHAT[:1]}, {"system_prompt": "Be brief."}, "Be brief."),
        ({"prompt": [{"role": "system", "content": "Hi"}, *CHAT[:1]]}, {"system_prompt": "Be brief."}, "Hi"),
        ({"question": "?", "context": "It rains."}, {"columns": {"system": "context"}}, "It rains."),
        ({"question": "?", "context": None}, {"columns": {"system": "context"}}, SYSTEM_PROMPT),
    ],
)
def test_the_system_message_is_the_rows_then_the_settings_then_that_of_plain_questions(
    tmp_path: Path, row: dict[str, Any], settings: dict[str, Any], system: str | None
) -> None:
    if row.get("context", "") is None:
        row = row | {"context": " "}
    (prompt,) = read(tmp_path, row | {"answer": "2"}, **settings).prompts
    assert [m.content for m in prompt.messages if m.role == "system"] == ([] if system is None else [system])


def test_held_out_files_may_have_columns_of_standard_names_and_training_files_not(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("Question,Answer\n1+1,2\n")
    (tmp_path / "test.csv").write_text("question,answer\n2+2,4\n")
    columns = ["data.columns={question: Question, answer: Answer}"]
    recipe = validate(override({"data": {"train": str(tmp_path / "mine.csv")}}, columns), "test")
    assert training_prompts(recipe).prompts[0].given_label == "2"
    assert held_out_prompts(recipe, str(tmp_path / "test.csv"), "test").prompts[0].given_label == "4"
    turned = recipe.model_copy(
        update={"data": recipe.data.model_copy(update={"train": str(tmp_path / "test.csv")})}
    )
    with pytest.raises(UserError, match=r"test\.csv has no 'Question'"):
        training_prompts(turned)


@pytest.mark.parametrize("columns", ["{questions: x}", "{question: 4}", "question", "{question: ''}"])
def test_columns_of_another_form_are_refused(columns: str) -> None:
    with pytest.raises(UserError, match=r"data\.columns"):
        validate(override({}, [f"data.columns={columns}"]), "test")
