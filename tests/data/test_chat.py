"""Messages in every form that data sets, logs and trainers write, read by one reader."""

from cases import each, refusal
from samples import json_lines

from olr_cli.api import OnlineLabelRefinement
from olr_cli.data.chat import (
    Message,
    as_text,
    message,
    prompt_messages,
    response_text,
    turns_of,
    unseen_part,
)
from olr_cli.data.logs import read_log
from olr_cli.data.prompt_files import Reading, read_prompts

PARTS = [
    {"type": "text", "text": "What is "},
    {"type": "image", "image": "x"},
    {"type": "text", "text": "3+4?"},
]


@each(
    "value, expected",
    ({"role": "user", "content": "q"}, Message("user", "q")),
    ({"from": "human", "value": "q"}, Message("user", "q")),
    ({"from": "gpt", "value": "a"}, Message("assistant", "a")),
    ({"role": "user", "content": PARTS}, Message("user", "What is 3+4?")),
    ({"role": "user", "content": ["What is ", "3+4?"]}, Message("user", "What is 3+4?")),
    ({"role": "assistant", "content": None, "tool_calls": []}, Message("assistant", "")),
    ({"role": "user", "content": 3}, None),
    ({"role": None, "content": "q"}, None),
    ({"content": "q"}, None),
    ("q", None),
)
def test_a_message_is_read_whoever_wrote_it(value, expected):
    assert message(value) == expected


def test_a_prompt_as_one_text_is_read_back_and_a_text_is_no_message():
    turns = [{"role": "system", "content": "Hi"}, {"role": "user", "content": PARTS}]
    text = as_text(turns)
    assert text is not None and turns_of(text) == prompt_messages(turns)
    assert as_text("q") == "q" != as_text([{"role": "user", "content": "q"}])
    assert as_text([]) is None and as_text(["q"]) is None


def test_of_a_response_what_the_assistant_says_counts_a_line_each():
    said = [
        {"role": "assistant", "content": "a"},
        {"role": "tool", "content": "t"},
        {"role": "assistant", "content": "b"},
    ]
    assert response_text(said) == "a\nb"
    assert response_text("a") == "a" and response_text(said[1:2]) is None


def test_a_question_in_parts_has_one_id_in_a_file_a_log_and_another_trainer(tmp_path):
    chat = [{"role": "user", "content": PARTS}]
    rows = [{"prompt": chat, "response": rf"\boxed{{{n}}}", "step": 1} for n in (7, 8)]
    text = {"question": "What is 3+4?", "answer": "7"}
    (plain,) = read_prompts(json_lines(tmp_path / "plain.jsonl", text)).prompts
    (in_file,) = read_prompts(
        json_lines(tmp_path / "data.jsonl", {"prompt": chat, "answer": "7"})
    ).prompts
    (in_log,) = read_log([json_lines(tmp_path / "log.jsonl", *rows)]).questions
    with OnlineLabelRefinement() as olr:
        step = olr([chat, chat], ["7", "8"], ["7", "7"])
    assert {in_file.prompt_id, in_log, step.labels[0].prompt_id} == {plain.prompt_id}


@each(
    "part, name",
    ({"type": "image", "image": "a.png"}, "image"), ({"type": "image_url", "image_url": {"url": "x"}}, "image_url"),
    ({"type": "input_audio", "input_audio": {}}, "input_audio"), ({"type": "video", "text": None}, "video"),
    ({"image": "a.png", "text": None}, "image"), ({"type": "text", "text": "a", "image": None}, None),
    ({"type": "input_text", "text": "a"}, None), ({"text": "a"}, None), ("a", None), ({"type": None}, None),
)  # fmt: skip
def test_a_part_that_is_no_text_is_seen(part, name):
    for turn in (
        {"role": "user", "content": ["q", part]},
        {"from": "human", "value": [part]},
    ):
        assert unseen_part([{"role": "system", "content": "Hi"}, turn]) == name
    assert (
        unseen_part("q")
        is unseen_part(None)
        is unseen_part([{"role": "user", "content": "q"}])
        is None
    )


def test_a_prompt_with_an_image_is_refused_where_only_text_is_shown(tmp_path):
    rows = [
        {"prompt": [{"role": "user", "content": parts}], "answer": "7"}
        for parts in (PARTS[:1], PARTS)
    ]
    file = json_lines(tmp_path / "x.jsonl", *rows)
    said = refusal(read_prompts, file, reading=Reading(is_text_only=True))
    assert f"line 2 of {file}: 'prompt' has a part of type 'image'" in said
    assert len(read_prompts(file)) == 2  # where labels are joined, or noise is written
