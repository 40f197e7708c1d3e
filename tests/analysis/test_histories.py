"""The synthetic histories that other tests rely on: reproducible, and decided as the project decides."""

import filecmp

import polars as pl
import pytest
from cases import each, refusal
from decisions import table_of
from histories import SMALL, replayed, write_history

from olr_cli.analysis.histories import (
    _SETTABLE,
    _recipe,
    _reported,
    _require_settable,
    chunks,
    read_history,
    replay_words,
)
from olr_cli.answers import Judge
from olr_cli.recipe.layers import validate
from olr_cli.runs.store import scan_labels, scan_rollouts


def test_the_same_seeds_give_the_same_bytes(tmp_path):
    one, other = (write_history(tmp_path / place / "run", seed=3) for place in ("a", "b"))
    files = [str(file.relative_to(one)) for file in one.rglob("*") if file.is_file()]
    assert len(files) == 3 + 2 * 16
    assert filecmp.cmpfiles(one, other, files, shallow=False)[0] == files
    changed = write_history(tmp_path / "run", seed=4)
    assert not scan_labels(changed).collect().equals(scan_labels(one).collect())


@pytest.mark.parametrize("criteria", [["slope", "consistency"], ["consistency"]])
def test_the_project_decides_a_synthetic_history_as_it_was_written(tmp_path, criteria):
    method = {
        "name": "olr",
        "criteria": criteria,
        "slope_threshold": 0.02,
        "warmup_epochs": 3,
    }
    run = write_history(tmp_path / "run", noise="inactive", method=method)
    with Judge(workers=1) as judge:
        decided = replayed(read_history(run), judge)
    again = pl.from_arrow(table_of("labels", decided)).sort("visit", "prompt_id")
    assert again.equals(scan_labels(run).collect().sort("visit", "prompt_id"))
    assert again["is_selected"].sum() > 20


def test_labels_and_rollouts_tell_the_same_votes(tmp_path):
    run = write_history(tmp_path / "run")
    counted = (
        scan_rollouts(run)
        .group_by("prompt_id", "visit")
        .agg(pl.col("is_correct").sum().alias("right"), pl.col("reward").mean())
    )
    joined = scan_labels(run).join(counted, on=["prompt_id", "visit"]).collect()
    assert joined.height == 320
    assert (joined["right"] == joined["true_answer_count"]).all()
    assert (joined["reward"] == joined["reward_mean"]).all()


def steps_of(*sizes):
    return [pl.DataFrame({"a": [1] * size, "b": [2] * size}) for size in sizes]


@each(
    "sizes, joined",
    ((2, 2, 2, 5, 1), [4, 7, 1]),
    ((4,), [4]),
    ((5, 3), [5, 3]),
    ((), []),
)
def test_steps_are_joined_up_to_so_many_rollouts(sizes, joined):
    found = [*chunks(steps_of(*sizes), ["b", "absent"], rollouts=4)]
    assert [len(rows) for rows in found] == joined
    assert all(rows.columns == ["b"] for rows in found)


def test_whoever_waits_is_told_how_many_rollouts_were_counted():
    said = []
    assert len([*_reported(steps_of(999, 2), said.append)]) == 2
    assert said == ["Counted 999 rollouts", "Counted 1,001 rollouts"]


@each(
    "key, is_of_runs, is_of_logs",
    ("seed", True, True),
    ("noise.draw", True, True),
    ("noise.type", False, True),
    ("noise.ratio", False, False),
    ("method.warmup_epochs", True, True),
    ("method.penalty_weight", False, False),
    ("method.smoothing", False, False),
    ("verifier.false_negative_rate", True, True),
    ("train.epochs", False, False),
    ("data.train", False, False),
    *((f"data.{key}", True, True) for key in ("extractor", "tolerance", "verified", "columns.question")),
    *((f"data.{key}", True, True) for key in ("decimal_comma", "encoding")),
)  # fmt: skip
def test_what_decides_something_about_stored_rollouts_can_be_set(
    key, is_of_runs, is_of_logs
):
    for settable, can_be_set in (
        (_SETTABLE, is_of_runs),
        ((*_SETTABLE, "noise.type"), is_of_logs),
    ):
        if can_be_set:
            _require_settable([key], settable)
        else:
            assert refusal(_require_settable, [key], settable) == (
                f"set {'.'.join(key.split('.')[:2])}: the stored rollouts are as they are, and no loss is computed; a"
                f" replay can set method.*, verifier.*, {', '.join(settable)}"
            )


@each(
    "method, settings, words",
    ({"name": "grpo"}, (), []),
    ({"name": "mine.py:rule"}, (), ["--set", "method.name=olr"]),
    ({"name": "grpo"}, ("seed=1",), ["--set", "seed=1"]),
)
def test_a_replay_under_other_criteria_is_typed_with_what_it_needs(method, settings, words):
    recipe = validate({"method": method, "data": {"train": "x"}}, "test")
    assert replay_words(recipe, settings) == [*words, "--set", "method.slope_threshold=0.1"]


@pytest.mark.parametrize("missing", [0.9, 0.95])
def test_where_hardly_an_answer_is_read_other_extractors_are_named(tmp_path, missing):
    found = read_history(write_history(tmp_path / "run", **SMALL)).warns_of_no_answers(
        missing
    )
    assert [sentence.partition(";")[0] for sentence in found] == (
        ["95% of the responses have no answer"] if missing > 0.9 else []
    )


@each(
    "changes, columns",
    ({"seed": 3}, {"question": "Q"}),
    ({"data": {"columns": {"answer": "A"}}}, {"answer": "A"}),
)
def test_columns_that_are_set_replace_those_of_the_run(changes, columns):
    tree = {"data": {"train": "x", "columns": {"question": "Q"}}}
    recipe = _recipe(validate(tree, "test"), changes, "test", _SETTABLE)
    assert recipe.data.columns == columns
