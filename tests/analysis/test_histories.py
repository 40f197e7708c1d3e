"""The synthetic histories that other tests rely on: reproducible, and decided as the project decides."""

import filecmp

import polars as pl
import pytest
from decisions import table_of
from histories import replayed, write_history

from olr_cli.analysis.histories import read_history
from olr_cli.answers import Judge
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
