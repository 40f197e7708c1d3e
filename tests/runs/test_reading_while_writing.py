"""A run that is being written, killed or resumed can be read at any moment: whole steps, or a sentence."""

import threading
from dataclasses import replace

import pytest
from commands import done, refused
from decisions import LABEL, ROLLOUT, columns
from histories import SMALL, write_history

from olr_cli.analysis import arms
from olr_cli.runs import shards
from olr_cli.runs.shards import table_shards
from olr_cli.runs.store import RunStore, scan_labels, scan_rollouts
from olr_cli.supervision import LabelRecord, RolloutRecord


def append(run, step):
    """A step of as many prompts as its number, two rollouts each."""
    labels = [replace(LABEL, step=step, visit=step, prompt_id=f"p{i}") for i in range(step)]
    rollout = replace(ROLLOUT, step=step, visit=step)
    rollouts = [
        replace(rollout, prompt_id=f"p{i}", sample=k) for i in range(step) for k in (0, 1)
    ]
    RunStore(run).append(
        step, columns(LabelRecord, labels), columns(RolloutRecord, rollouts)
    )


def rows_by_step(table):
    return dict(table.group_by("step").len().sort("step").collect().iter_rows())


def whole_steps(run):
    """How many steps a reader sees now, each of them whole and none left out."""
    labels, rollouts = rows_by_step(scan_labels(run)), rows_by_step(scan_rollouts(run))
    assert labels == {step: step for step in range(1, len(labels) + 1)}
    assert rollouts == {step: 2 * step for step in range(1, len(rollouts) + 1)}
    return len(labels)


def test_a_reader_sees_whole_steps_without_a_gap_while_a_writer_appends(tmp_path):
    append(tmp_path, 1)
    writer = threading.Thread(
        target=lambda: [append(tmp_path, step) for step in range(2, 41)]
    )
    writer.start()
    seen = [whole_steps(tmp_path)]
    while writer.is_alive():
        seen.append(whole_steps(tmp_path))
    writer.join()
    assert seen == sorted(seen)
    assert whole_steps(tmp_path) == 40


def test_steps_removed_between_listing_and_reading_are_listed_anew(tmp_path, monkeypatch):
    for step in range(1, 6):
        append(tmp_path, step)
    real, calls = table_shards, []

    def resumed_after(folder):
        listed = real(folder)
        calls.append(len(listed))
        if len(calls) == 2:
            with monkeypatch.context() as patched:
                patched.setattr(shards, "table_shards", real)
                RunStore(tmp_path).drop_after(3)
        return listed

    monkeypatch.setattr(shards, "table_shards", resumed_after)
    assert rows_by_step(scan_rollouts(tmp_path)) == {1: 2, 2: 4, 3: 6}
    assert calls == [5, 5, 3, 3]  # both tables, both again


def test_a_shard_that_goes_again_and_again_is_no_endless_loop(tmp_path, monkeypatch):
    append(tmp_path, 1)
    monkeypatch.setattr(
        shards,
        "table_shards",
        lambda folder: {n: shards.shard_path(folder, n) for n in (1, 2)},
    )
    with pytest.raises(FileNotFoundError, match=r"step-000002\.parquet"):
        scan_labels(tmp_path)


def test_a_resume_while_a_figure_is_drawn_is_said_in_a_sentence(tmp_path, monkeypatch):
    run = write_history(
        tmp_path / "my runs" / "a", prompts=20, prompts_per_step=10, epochs=5
    )
    real = arms.by_visit

    def resumed_before(*of_labels):
        RunStore(run).drop_after(8)
        return real(*of_labels)

    monkeypatch.setattr(arms, "by_visit", resumed_before)
    said = refused("analyze", run, "--figure", "coherence")
    assert "my runs/a/labels/step-000009.parquet was removed while the run was read" in said
    assert not (run / "figures").exists()
    monkeypatch.undo()
    assert (
        "has gone through 4 of 5 epochs"
        in done("analyze", run, "--figure", "coherence").output
    )


def test_another_missing_file_stays_a_bug():
    assert (
        shards.explain_removed_shard(
            FileNotFoundError(2, "No such file", "runs/a/labels.parquet")
        )
        is None
    )


def test_a_run_that_its_sweep_has_just_started_is_left_out_and_named_itself_an_error(
    tmp_path,
):
    for seed in (1, 2, 3):
        write_history(tmp_path / f"seed-{seed}", seed=seed, **SMALL)
    started = tmp_path / "seed-3"
    for shard in (started / "labels").iterdir():
        shard.unlink()
    sweep = done("analyze", tmp_path, "--figure", "coherence")
    assert f"Note: {started} holds no complete step yet and is left out." in sweep.output
    named = refused("analyze", *tmp_path.glob("seed-*"), "--figure", "coherence")
    assert f"Error: {started} holds no complete step yet" in named
