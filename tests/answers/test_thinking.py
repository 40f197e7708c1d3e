"""Where a response thinks and where it answers (R6)."""

import pytest
from cases import each

from olr_cli.answers import is_thinking, opened_by, read_answer, with_opened
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
