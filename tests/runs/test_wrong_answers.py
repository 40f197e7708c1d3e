"""Frozen noise (R4) from a run's rollouts, or from the log of another trainer."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import each, refusal
from decisions import LABEL, ROLLOUT, columns
from samples import SAMPLE, json_lines

from olr_cli.answers import Judge
from olr_cli.data.prompt_files import read_prompts
from olr_cli.data.prompts import Prompt, PromptSet
from olr_cli.errors import UserError
from olr_cli.runs.store import RunStore
from olr_cli.runs.wrong_answers import proved_wrong, wrong_answers
from olr_cli.supervision import LabelRecord, RolloutRecord


@pytest.fixture
def prompts() -> PromptSet:
    """Prompts 16 (truth 10), 42 (truth 0), ..."""
    return read_prompts(SAMPLE)


def shard(run: Path, step: int, *rollouts: tuple[str, str | None, bool | None]) -> None:
    """A step as a run stores it, of (prompt_id, answer class, whether it is correct)."""
    samples: dict[str, list[RolloutRecord]] = {}
    for name, answer, right in rollouts:
        own = samples.setdefault(name, [])
        answers = {"answer": answer, "answer_class": answer, "is_correct": right}
        own.append(
            replace(
                ROLLOUT, prompt_id=name, visit=step, step=step, sample=len(own), **answers
            )
        )
    labels = [replace(LABEL, prompt_id=name, visit=step, step=step) for name in samples]
    of_rollouts = [row for own in samples.values() for row in own]
    RunStore(run).append(
        step, columns(LabelRecord, labels), columns(RolloutRecord, of_rollouts)
    )


def table(folder: Path, *rows: dict[str, object]) -> Path:
    return json_lines(folder / "log.jsonl", *rows)


def test_wrong_answers_of_all_visits_are_gathered_by_prompt(tmp_path, prompts):
    shard(
        tmp_path,
        1,
        ("16", "10", True),
        ("16", "11", False),
        ("42", None, False),
        ("42", "3", False),
    )
    shard(
        tmp_path,
        2,
        ("16", "9", False),
        ("16", "11", False),
        ("103", "31", True),
        ("42", "0", None),
    )
    assert wrong_answers(tmp_path, prompts) == {"16": ["11", "9"], "42": ["3"]}


def test_a_log_may_have_answers_or_only_responses(tmp_path, prompts):
    answers = table(tmp_path, {"prompt_id": 16, "answer": "11", "is_correct": False})
    assert wrong_answers(answers, prompts) == {"16": ["11"]}
    responses = table(
        tmp_path,
        {"prompt_id": 16, "response": "so it is \\boxed{11}", "is_correct": False},
        {"prompt_id": 16, "response": "", "is_correct": False},
        {"prompt_id": 16, "response": "so it is \\boxed{10}", "is_correct": True},
    )
    assert wrong_answers(responses, prompts) == {"16": ["11"]}


def test_responses_are_read_only_where_there_are_no_answers(tmp_path, prompts):
    # Which is no text
    columns = {
        "prompt_id": ["16"],
        "is_correct": [False],
        "response": [True],
    }
    log = tmp_path / "log.parquet"
    pq.write_table(pa.table({**columns, "answer": ["11"]}), log)
    assert wrong_answers(log, prompts) == {"16": ["11"]}
    pq.write_table(pa.table(columns), log)
    with pytest.raises(UserError, match=r"row 1 of .*: 'response' is a bool"):
        wrong_answers(log, prompts)


def test_rollouts_that_nobody_has_marked_are_judged_by_the_labels(tmp_path, prompts):
    label = next(
        str(prompt.given_label) for prompt in prompts.prompts if prompt.prompt_id == "16"
    )
    rows = [{"prompt_id": "16", "answer": answer} for answer in ("11", label, f"{label}.0")]
    for mark in ({}, {"is_correct": None}):
        log = table(tmp_path, *(row | mark for row in rows))
        with Judge() as judge:
            assert proved_wrong(wrong_answers(log, prompts), prompts.prompts, judge)[0] == {
                "16": ["11"]
            }


def test_only_complete_steps_of_a_run_count(tmp_path, prompts):
    shard(tmp_path, 1, ("16", "11", False))
    shard(tmp_path, 2, ("16", "9", False))
    (tmp_path / "labels" / "step-000002.parquet").unlink()
    assert wrong_answers(tmp_path, prompts) == {"16": ["11"]}
    (tmp_path / "labels" / "step-000001.parquet").unlink()
    assert "holds no complete step yet" in refusal(wrong_answers, tmp_path, prompts)


@each(
    "rows, message",
    ([], "has no rows"),
    ([{"prompt_id": "16", "is_correct": False}], "has no column response"),
    (
        [{"prompt_id": "x", "answer": "1", "is_correct": False}],
        "no wrong answer to a prompt of",
    ),
)
def test_a_table_that_cannot_serve_says_why(tmp_path, prompts, rows, message):
    assert message in refusal(wrong_answers, table(tmp_path, *rows), prompts)


def test_what_is_no_run_and_a_torn_shard_are_named(tmp_path, prompts):
    assert "is not a run directory: it has no folder rollouts" in refusal(
        wrong_answers, tmp_path, prompts
    )
    assert "does not exist" in refusal(wrong_answers, tmp_path / "nowhere.parquet", prompts)
    shard(tmp_path, 1, ("16", "11", False))
    shard(tmp_path, 2)
    (tmp_path / "rollouts" / "step-000002.parquet").write_bytes(b"PAR1 torn")
    assert "step-000002.parquet is not a whole Parquet file" in refusal(
        wrong_answers, tmp_path, prompts
    )


def test_only_one_spelling_of_each_class_proved_different_may_serve():
    answers = {
        "a": ["7", "0.5", "1/2", "50\\%", "[1, 2", "12.0", "14/2"],
        "b": ["12"],
        "elsewhere": ["1"],
    }
    labelled = [Prompt(name, (), "12", None, None) for name in "abc"]
    with Judge(workers=1) as judge:
        assert proved_wrong(answers, labelled, judge) == (
            {"a": ["0.5", "14/2"], "b": []},
            [],
        )


def test_what_another_grader_may_call_right_becomes_no_label():
    """A percent sign, rounding, and what math-verify ignores; each is wrong by R7, and stays so in training."""
    lenient = {"10": "10\\%", "12": "11.99", r"\frac{5}{36}": "0.14", "2516_8": "2516_7", "42": r"42\text{ thousand}",
               r"9.8\,\mathrm{m/s^2}": r"9.8 \text{ m/s}"}  # fmt: skip
    prompts = [Prompt(gold, (), gold, None, None) for gold in (*lenient, "3")]
    answers = {gold: ["7", answer] for gold, answer in lenient.items()} | {"3": ["8"]}
    with Judge(workers=1) as judge:
        assert set(judge.matches(lenient.items())) == {False}
        wrong, refused = proved_wrong(answers, prompts, judge)
    assert wrong == {gold: ["7"] for gold in lenient} | {"3": ["8"]}
    assert refused == list(lenient.items())
