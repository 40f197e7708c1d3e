"""Where a response thinks and where it answers (R6)."""

from types import SimpleNamespace
from typing import ClassVar

import pytest
from cases import each

from olr_cli.answers import (
    ResponseTexts,
    is_thinking,
    opened_by,
    read_answer,
    with_opened,
)
from olr_cli.answers.extraction import extract
from olr_cli.answers.thinking import THOUGHT_MARKS, after_thinking


@pytest.mark.parametrize("mark", [*THOUGHT_MARKS, *THOUGHT_MARKS.values()])
def test_no_mark_is_overlooked_in_a_long_response(mark):
    assert is_thinking(f"First, {mark} then") is (mark in THOUGHT_MARKS)


@pytest.mark.parametrize(("opening", "closing"), THOUGHT_MARKS.items())
def test_each_family_of_models_thinks_between_its_marks(opening, closing):
    cut, ended = (
        rf"{opening} \boxed{{5}}, but",
        rf"{opening} \boxed{{5}}, but {closing}\boxed{{2}}",
    )
    assert (extract(cut), is_thinking(cut)) == (None, True)
    assert (extract(ended), is_thinking(ended)) == ("2", False)
    # Where the prompt has opened the thinking, nothing in the response says so.
    for prompt in (
        f"5 - 3 = ?{opening}",
        f"5 - 3 = ?{opening}\n",
        f"5 - 3 = ?{opening}\n\n",
    ):
        assert read_answer(r"\boxed{5}, but", "boxed", prompt) is None
        assert (
            read_answer(rf"\boxed{{5}}, but {closing} \boxed{{2}}", "boxed", prompt) == "2"
        )
    closed = f"5 - 3 = ?{opening}\n\n{closing}\n\n"
    assert opened_by(closed) == "" and read_answer(r"\boxed{5}", "boxed", closed) == "5"


@each(
    "prompt, opened",
    ("<|Assistant|><think>\n", "<think>\n"),
    ("<|turn>model\n<|channel>thought\n", "<|channel>thought\n"),
    ("<|start|>assistant<|channel|>analysis<|message|>", "<|channel|>analysis<|message|>"),
    ("Think between <think> and </think>.", ""),
    ("Is x <thinking> a tag", ""),
    ("", ""),
)
def test_what_a_prompt_opens_at_its_end(prompt, opened):
    assert opened_by(prompt) == opened
    assert with_opened(prompt, "I see") == opened + "I see"


def test_what_the_prompt_opened_stands_in_front_once():
    assert with_opened("Q<think>\n", with_opened("Q<think>\n", "so")) == "<think>\nso"
    assert with_opened("Q<think>", "<think>so") == "<think>so"


def test_a_response_without_marks_has_no_thinking():
    text = r"If $a < b$ and [x, y] then \boxed{5}"
    assert is_thinking(text) is None and after_thinking(text) == text


def test_a_very_long_thought_takes_no_more_than_its_length():
    thought = "<thin" * 200_000 + "<think>" * 50_000
    assert after_thinking(thought) is None and after_thinking(thought + "</think>5") == "5"


def test_a_policy_that_writes_the_sentinel_has_given_no_answer():
    assert read_answer(r"\boxed{__NoCorrectAnswer__}", "boxed") is None


class Words:
    """A tokenizer of words, some of them special."""

    added_tokens_decoder: ClassVar = {
        2: SimpleNamespace(special=True),
        3: SimpleNamespace(special=False),
        4: SimpleNamespace(special=True),
    }
    all_special_ids = (1,)

    def __init__(self, *words):
        self.words = words

    def convert_ids_to_tokens(self, token):
        return self.words[token]

    def batch_decode(self, rows, skip_special_tokens, clean_up_tokenization_spaces):
        assert not clean_up_tokenization_spaces
        left_out = {1, 2, 4} if skip_special_tokens else {}
        return [
            "".join(self.words[token] for token in row if token not in left_out)
            for row in rows
        ]


@each(
    "words, text",
    (("a", "<eos>", "<think>", "<tool>", "<pad>"), "a<think><tool>"),
    (("a", "<eos>", "<begin>", "<think>", "<pad>"), "a<think>"),
    (("a", "<|channel|>", "<|end|>", "analysis", "<pad>"), "a<|channel|>analysis"),
)
def test_special_tokens_are_left_out_but_for_marks_of_thinking(words, text):
    assert ResponseTexts(Words(*words)).decode([[0, 1, 2, 3, 4], [0, 0]]) == [text, "aa"]


def test_what_a_prompt_opened_is_read_from_its_last_tokens():
    texts = ResponseTexts(Words("a", "<eos>", "<think>", "\n", "<pad>"))
    assert texts.opened([[0, 2, 3], [2, 0], [0] * 99 + [2]]) == [
        "<think>\n", "", "<think>"
    ]  # fmt: skip
    of_nothing = ResponseTexts(Words("", "<eos>", "<think>", "\n", "<pad>"))
    assert of_nothing.opened([[2] + [0] * 63, [2] + [0] * 64]) == ["<think>", ""]


def test_a_mark_is_looked_for_in_the_last_characters_of_a_prompt():
    assert opened_by("<think>" + "\n" * 57) == "<think>" + "\n" * 57
    assert opened_by("<think>" + "\n" * 58) == ""


@each(
    "response, said",
    ("a[/THINK]b", "b"), ("a◁/think▷b", "b"), ("a</think>b", "b"), ("a</think>b<think>", None),
    ("a</think>b</think>c", "c"),
)  # fmt: skip
def test_what_is_said_follows_the_last_mark(response, said):
    assert after_thinking(response) == said
