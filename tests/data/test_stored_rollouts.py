"""Frozen noise (R4) from a run's rollouts, or from the log of another trainer."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from olr_cli.data import stored_rollouts
from olr_cli.data.prompt_set import PromptSet
from olr_cli.data.readers import read_prompts
from olr_cli.data.stored_rollouts import wrong_answers
from olr_cli.errors import UserError
from olr_cli.supervision.records import RolloutRecord, arrow_schema

SAMPLE = Path(__file__).parents[1] / "fixtures" / "dapo_sample.parquet"


@pytest.fixture
def prompts() -> PromptSet:
    """Prompts 16 (truth 10), 42 (truth 0), ..."""
    return read_prompts(SAMPLE)


def shard(run: Path, step: int, *rollouts: tuple[str, str | None, bool | None]) -> None:
    """A rollouts shard as a run stores it, of (prompt_id, answer class, whether it is correct)."""
    rows = [
        RolloutRecord(prompt_id, 1, step, n, "original", "text", answer, answer, 0.0, right, *[None] * 5)
        for n, (prompt_id, answer, right) in enumerate(rollouts)
    ]
    columns = [[getattr(row, name) for row in rows] for name in arrow_schema(RolloutRecord).names]
    table = pa.table(columns, schema=arrow_schema(RolloutRecord))
    for folder in ("rollouts", "labels"):
        (run / folder).mkdir(parents=True, exist_ok=True)
        pq.write_table(table, run / folder / f"step-{step:06d}.parquet")


def table(folder: Path, *rows: dict[str, object]) -> Path:
    file = folder / "log.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def last_word(response: str) -> str | None:
    return response.split()[-1] if response.split() else None


def test_wrong_answers_of_all_visits_are_gathered_by_prompt(tmp_path: Path, prompts: PromptSet) -> None:
    shard(tmp_path, 1, ("16", "10", True), ("16", "11", False), ("42", None, False), ("42", "3", False))
    shard(tmp_path, 2, ("16", "9", False), ("16", "11", False), ("103", "31", True), ("42", "0", None))
    assert wrong_answers(tmp_path, prompts, last_word) == {"16": ["11", "9"], "42": ["3"]}


def test_a_log_may_have_answers_or_only_responses(tmp_path: Path, prompts: PromptSet) -> None:
    answers = table(tmp_path, {"prompt_id": 16, "answer": "11", "is_correct": False})
    assert wrong_answers(answers, prompts, last_word) == {"16": ["11"]}
    responses = table(
        tmp_path,
        {"prompt_id": 16, "response": "so it is 11", "is_correct": False},
        {"prompt_id": 16, "response": "", "is_correct": False},
        {"prompt_id": 16, "response": "so it is 10", "is_correct": True},
    )
    assert wrong_answers(responses, prompts, last_word) == {"16": ["11"]}


def test_only_complete_steps_of_a_run_count(tmp_path: Path, prompts: PromptSet) -> None:
    shard(tmp_path, 1, ("16", "11", False))
    shard(tmp_path, 2, ("16", "9", False))
    (tmp_path / "labels" / "step-000002.parquet").unlink()
    assert wrong_answers(tmp_path, prompts, last_word) == {"16": ["11"]}
    (tmp_path / "labels" / "step-000001.parquet").unlink()
    with pytest.raises(UserError, match="holds no complete step yet"):
        wrong_answers(tmp_path, prompts, last_word)


def test_responses_are_read_only_where_there_are_no_answers(
    tmp_path: Path, prompts: PromptSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    read = stored_rollouts.read_table
    monkeypatch.setattr(
        stored_rollouts, "read_table", lambda files, columns: asked.append(columns) or read(files, columns)
    )
    shard(tmp_path, 1, ("16", "11", False))
    wrong_answers(tmp_path, prompts, last_word)
    assert asked == [{"prompt_id", "is_correct", "answer_class", "answer"}]
    log = tmp_path / "log.parquet"
    pq.write_table(pa.table({"prompt_id": ["16"], "is_correct": [False], "response": ["so 11"]}), log)
    assert wrong_answers(log, prompts, last_word) == {"16": ["11"]}


def test_what_cannot_serve_is_named(tmp_path: Path, prompts: PromptSet) -> None:
    def complaint(source: Path) -> str:
        with pytest.raises(UserError) as caught:
            wrong_answers(source, prompts, last_word)
        return str(caught.value)

    assert "is not a run directory: it has no folder rollouts" in complaint(tmp_path)
    assert "does not exist" in complaint(tmp_path / "nowhere.parquet")
    assert "lacks the column is_correct" in complaint(table(tmp_path, {"prompt_id": "16", "answer": "1"}))
    assert "lacks the column answer" in complaint(table(tmp_path, {"prompt_id": "16", "is_correct": False}))
    unjudged = table(tmp_path, {"prompt_id": "16", "answer": "1", "is_correct": None})
    assert "does not say which rollouts are wrong" in complaint(unjudged)
    other = table(tmp_path, {"prompt_id": "x", "answer": "1", "is_correct": False})
    assert (
        "no wrong answer to a prompt of dapo_sample.parquet (its first prompt_id: x, here: 16)"
        in complaint(other)
    )
    shard(tmp_path, 1, ("16", "11", False))
    shard(tmp_path, 2)
    (tmp_path / "rollouts" / "step-000002.parquet").write_bytes(b"PAR1 torn")
    assert "step-000002.parquet is not a whole Parquet file" in complaint(tmp_path)
