"""The grader alone, as reward functions that need neither TRL nor verl."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cases import each

from olr_cli.api import OnlineLabelRefinement
from olr_cli.errors import UserError
from olr_cli.trainers.grading import accuracy_reward, compute_score


def test_the_plain_reward_reads_texts_and_chats_in_any_thread():
    chat = [{"role": "assistant", "content": r"so \boxed{\frac{2}{4}}"}]
    with ThreadPoolExecutor(4) as threads:
        rewards = list(
            threads.map(
                lambda _: accuracy_reward(
                    [chat, r"\boxed{3}"], solution=["0.5", r"\sqrt{9}+1"]
                ),
                range(8),
            )
        )
    assert rewards == [[1.0, 0.0]] * 8
    assert accuracy_reward(
        ["#### 72"], extractor="after:####", answer=["6 * 12 = 72\n#### 72"]
    ) == [1.0]
    with pytest.raises(
        UserError,
        match="needs one of the columns reward_model, answer, label, ground_truth",
    ):
        accuracy_reward(["1"], question=["?"])


def test_the_plain_reward_reads_golds_as_files_are_read():
    """Any of several golds is right; without one there is no reward."""
    said = [rf"\boxed{{{answer}}}" for answer in ("None", "nan", "0.5", "42", "15")]
    cells = [None, float("nan"), ["1/3", "1/2"], "so\n#### 42", {"ground_truth": "15"}]
    assert accuracy_reward(said, answer=cells, solution=["prose"] * 5) == [
        None,
        None,
        1.0,
        1.0,
        1.0,
    ]
    assert accuracy_reward(
        ["7", r"\boxed{7}"], extractor=["last_number", None], label=[7, 7]
    ) == [1.0, 1.0]
    with pytest.raises(
        UserError, match=r"row 2 of accuracy_reward, counted from 1: 'answer' is a bool"
    ):
        accuracy_reward(said[:2], answer=["1", True])


@each(
    "prompt",
    "What percentage is it?",
    [{"role": "user", "content": "What percentage is it?"}],
)
def test_the_plain_reward_knows_what_the_question_asks_for(prompt):
    said = [r"\boxed{20\%}", r"\boxed{20}", r"\boxed{2\%}"]
    assert accuracy_reward(said, prompts=[prompt] * 3, answer=[20] * 3) == [1.0, 1.0, 0.0]
    assert accuracy_reward(said, prompts=["What is it?"] * 3, answer=[20] * 3) == [
        0.0,
        1.0,
        0.0,
    ]


def test_a_thought_that_the_prompt_opened_is_no_answer():
    cut, ended = r"\boxed{7}, but", r"\boxed{5}? </think> \boxed{7}"
    for prompt in ("3 + 4 = ?<think>\n", [{"role": "user", "content": "3 + 4 = ?<think>"}]):
        assert accuracy_reward([cut, ended], prompts=[prompt] * 2, answer=["7"] * 2) == [
            0,
            1,
        ]
    chat = [[{"role": "user", "content": "3 + 4 = ?"}]] * 2
    assert accuracy_reward([cut, ended], prompts=chat, answer=["7"] * 2) == [1, 1]
    assert accuracy_reward(
        [cut, ended], prompts=chat, answer=["7"] * 2, opened=["[THINK]", None]
    ) == [0, 1]
    assert [compute_score("mine", it, "7", opened="<think>") for it in (cut, ended)] == [
        0,
        1,
    ]


def test_a_mark_that_begins_no_thinking_is_refused():
    with pytest.raises(UserError, match="opened is 'think', which begins no thinking"):
        accuracy_reward([r"\boxed{7}"], answer=["7"], opened="think")


def test_a_gold_a_completion():
    with pytest.raises(UserError, match="2 completions and 1 golds in 'answer'"):
        accuracy_reward(["7", "8"], answer=["7"])


def test_a_gold_that_cannot_be_read_gives_no_reward_where_that_can_be_said():
    """What an answer alone keeps from being scored is 0: a policy would learn to give such answers."""
    golds = [r"\frac{1}{", r"\frac{1}{", "7", "7"]
    said = [r"\boxed{7}", "no answer", r"\boxed{7^}", "no answer"]
    assert accuracy_reward(said, answer=golds) == [None, None, 0.0, 0.0]
    assert [compute_score("mine", *pair) for pair in zip(said, golds, strict=True)] == [
        0.0
    ] * 4


@each(
    "gold",
    "notfound",
    "proof",
    "#REF!",
    "None",
    "N/A",
    "nan",
    float("nan"),
    ["null", "N/A"],
)
def test_who_repeats_what_stands_for_a_missing_gold_gets_nothing(gold):
    said = [rf"\boxed{{{gold[0] if isinstance(gold, list) else gold}}}", r"\boxed{7}"]
    assert accuracy_reward(said, answer=[gold] * 2) == [None, None]
    with OnlineLabelRefinement() as olr:
        assert olr.grade(said, [gold] * 2) == [0.0, 0.0]
    if gold == gold:  # a missing gold is an error for verl
        assert [compute_score("mine", one, gold) for one in said] == [0.0, 0.0]


def test_a_completion_that_is_missing_has_no_answer():
    assert accuracy_reward([None, [], r"\boxed{7}"], answer=[7, 7, 7]) == [0.0, 0.0, 1.0]
    assert compute_score("mine", None, "7") == 0.0
    with OnlineLabelRefinement() as olr:
        assert olr.grade([None, r"\boxed{7}"], [7, 7]) == [0.0, 1.0]
        assert olr(["q", "q"], [None, r"\boxed{7}"], [7, 7]).rewards == (0.0, 1.0)


def test_a_completion_may_be_an_array_of_turns():
    turns = np.array(
        [{"role": "assistant", "content": text} for text in ("I see.", r"\boxed{7}")]
    )
    assert accuracy_reward([turns], answer=[7]) == [1.0]


def test_a_score_for_verl_is_that_of_the_plain_reward():
    assert compute_score("mine", r"so \boxed{\sqrt{8}}", r"2\sqrt{2}") == 1.0
    assert compute_score("mine", "#### 7", "8", extractor="after:####") == 0.0
    assert compute_score("mine", r"\boxed{\frac12}", np.array(["1/3", "0.5"])) == 1.0
    assert (
        compute_score("mine", r"\boxed{7\%}", "7", {"question": "What percent is it?"})
        == 1.0
    )
    for gold, what in ((None, "empty"), ({"target": 98}, "a dict")):
        with pytest.raises(UserError, match=f"the row with extra_info.index 7 is {what}"):
            compute_score("mine", r"\boxed{None}", gold, {"index": 7})


def test_no_trainer_is_imported_and_what_was_not_scored_is_printed_at_the_end():
    program = """
import sys
from olr_cli.trainers.grading import accuracy_reward
print(accuracy_reward(["#### 7"] * 3 + [r"\\boxed{8}"], answer=[7, 7, 8, 8]))
heavy = {"torch", "ray", "trl", "verl", "transformers", "polars", "pyarrow", "numpy", "pydantic"}
print(heavy & sys.modules.keys())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.stdout.splitlines() == ["[0.0, 0.0, 0.0, 1.0]", "set()"]
    assert ended.stderr.splitlines() == [
        "olr: of 4 responses these could not be scored: 3 (no answer)",
        "olr: of those without an answer: The extractor after:#### reads 3 of 3 responses.",
    ]
