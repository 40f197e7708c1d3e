"""What a file of verified labels says of each label, and how many there are (R23)."""

import pytest
from cases import each, refusal
from samples import json_lines

from olr_cli.answers.graded import SENTINEL
from olr_cli.data.chat import Message
from olr_cli.data.prompts import Prompt
from olr_cli.data.verified import VERDICTS, VerifiedLabels, _truth


def prompt(name, label="5", question=None):
    messages = (Message("user", question or f"What is {name}?"),)
    return Prompt(name, messages, label, None, None, "test")


def read(path, *rows):
    return VerifiedLabels.read(json_lines(path / "verified.jsonl", *rows))


NOTHING = None


@each(
    "verdict, with_answer, without",
    (None, ("7", None), NOTHING),
    ("kept", ("7", "5"), ("5", "5")),
    ("wrong", ("7", None), (None, "5")),
    ("flawed", (None, None), (None, "5")),
    ("unsure", NOTHING, NOTHING),
)
def test_a_verdict_says_which_answer_is_true_and_which_label_was_judged(
    verdict, with_answer, without
):
    assert (_truth(verdict, "7", "5"), _truth(verdict, None, "5")) == (with_answer, without)


@each("verdict", *VERDICTS, None)
def test_the_sentinel_as_true_answer_says_that_it_is_unknown(verdict):
    is_told = verdict in ("wrong", "flawed")
    assert _truth(verdict, SENTINEL, "5") == ((None, None) if is_told else None)


@each(
    "drawn, is_drawn",
    (True, True), ("true", True), ("TRUE ", True), (1, True), ("1.0", True), ("yes", True),
    (False, False), ("no", False), (0, False), (None, False), ("2", False),
)  # fmt: skip
@pytest.mark.parametrize("has_ids", [True, False])
def test_a_row_says_whether_its_prompt_was_drawn(tmp_path, drawn, is_drawn, has_ids):
    key = {"prompt_id": "a"} if has_ids else {}
    answer = {"true_answer": "7"} if has_ids else {"answer": "7"}
    labels = read(tmp_path, {**key, "question": "What is a?", **answer, "drawn": drawn})
    assert labels.of([prompt("a")])["a"].is_drawn is is_drawn


def test_labels_without_the_column_are_not_drawn(tmp_path):
    labels = read(tmp_path, {"prompt_id": "a", "true_answer": "7"})
    assert not labels.of([prompt("a")])["a"].is_drawn


@each(
    "verdict, label, truth, is_refused",
    ("kept", "5", "5.0", False),
    ("kept", "5", "6", True),
    ("wrong", "5", "6", False),
    ("wrong", "5", "5.0", True),
    (None, "5", "6", False),
    ("flawed", "5", "5", False),
)
def test_a_verdict_and_a_true_answer_may_not_contradict_each_other(
    tmp_path, verdict, label, truth, is_refused
):
    row = {
        "prompt_id": "a",
        "verdict": verdict,
        "given_label": label,
        "true_answer": truth,
    }
    if is_refused:
        assert "no verdict counts, for each contradicts" in refusal(read, tmp_path, row)
    else:
        assert len(read(tmp_path, row)) == 1


def test_the_note_counts_labels_and_prompts(tmp_path):
    rows = [{"prompt_id": name, "true_answer": "7"} for name in ("a", "b", "elsewhere")]
    labels = read(tmp_path, *rows)
    assert labels.mark([prompt("a"), prompt("c")])[0].true_answer == "7"
    place = tmp_path / "verified.jsonl"
    assert labels.note == (
        f"1 of 3 verified labels in {place} are for 1 prompt here, 2 for none"
    )
    labels.mark([prompt("b")])
    assert labels.note == (
        f"2 of 3 verified labels in {place} are for 2 prompts here, 1 for none"
    )
    assert labels.unknown == 1


def test_a_label_without_a_true_answer_marks_no_prompt(tmp_path):
    rows = [
        {"prompt_id": "a", "verdict": "wrong", "given_label": "5"},
        {"prompt_id": "b", "true_answer": "7"},
    ]
    one, other = read(tmp_path, *rows).mark([prompt("a"), prompt("b")])
    assert (one.true_answer, one.is_verified) == (None, False)
    assert (other.true_answer, other.is_verified) == ("7", True)


def test_a_judged_label_has_to_be_the_prompts_own(tmp_path):
    labels = read(tmp_path, {"prompt_id": "a", "verdict": "wrong", "given_label": "5"})
    assert labels.of([prompt("a", label="5.0")])
    assert "judge it again" in refusal(labels.of, [prompt("a", label="6")])
    assert labels.of([prompt("a", label=None)])


@each("column", "question", "problem", "prompt")
def test_an_id_counts_where_both_ask_one_question(tmp_path, column):
    labels = read(tmp_path, {"prompt_id": "a", "true_answer": "7", column: "what is  A"})
    assert labels.of([prompt("a")])["a"].answer == "7"
    assert "fix the ids" in refusal(labels.of, [prompt("a", question="How old is b?")])
