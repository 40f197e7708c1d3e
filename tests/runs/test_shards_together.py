"""Old steps are put together into few files, and nothing that is read changes by it, whatever interrupts it."""

import itertools
import random
import tracemalloc
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from test_reading_while_writing import append, rows_by_step

from olr_cli import files
from olr_cli.runs import store
from olr_cli.runs.shards import Shard, complete_steps, holds, shard_path, table_shards
from olr_cli.runs.store import (
    RunStore,
    newest_shard,
    read_rollout_steps,
    scan_labels,
    scan_rollouts,
    stored_steps,
)


@pytest.fixture
def blocks_of_four(monkeypatch):
    monkeypatch.setattr(store, "STEPS_TOGETHER", 4)


def fill(run, steps):
    for step in range(1, steps + 1):
        append(run, step)


def tables(run):
    order = ["step", "prompt_id"]
    return scan_labels(run).sort(order).collect(), scan_rollouts(run).sort([*order, "sample"]).collect()


def names(run, table="labels"):
    return sorted(path.name for path in (run / table).iterdir())


def test_complete_blocks_become_one_file_and_the_rest_stays(tmp_path, blocks_of_four):
    fill(tmp_path, 10)
    before = tables(tmp_path)
    RunStore(tmp_path).sync()
    assert names(tmp_path) == names(tmp_path, "rollouts")
    assert names(tmp_path) == [
        "step-000009.parquet",
        "step-000010.parquet",
        "steps-000001-000004.parquet",
        "steps-000005-000008.parquet",
    ]
    assert all(was.equals(now) for was, now in zip(before, tables(tmp_path), strict=True))
    assert stored_steps(tmp_path) == list(range(1, 11))
    assert newest_shard(tmp_path) == 10


def test_a_block_keeps_the_order_of_its_rows(tmp_path, blocks_of_four):
    fill(tmp_path, 8)
    before = scan_rollouts(tmp_path).collect()
    RunStore(tmp_path).sync()
    assert scan_rollouts(tmp_path).collect().equals(before)


@pytest.mark.parametrize("rows_together", [1, 7, 1 << 16])
def test_single_steps_are_read_out_of_a_block(tmp_path, blocks_of_four, rows_together, monkeypatch):
    monkeypatch.setattr(store, "_ROWS_TOGETHER", rows_together)
    fill(tmp_path, 9)
    single = list(read_rollout_steps(tmp_path, ["prompt_id", "sample"]))
    RunStore(tmp_path).sync()
    together = list(read_rollout_steps(tmp_path, ["prompt_id", "sample"]))
    assert all(a.equals(b) for a, b in zip(single, together, strict=True))
    chosen = read_rollout_steps(tmp_path, ["step"], steps={2, 8, 9, 77})
    assert [frame["step"].unique().to_list() for frame in chosen] == [[2], [8], [9]]


def test_a_resume_in_the_middle_of_a_block_cuts_it(tmp_path, blocks_of_four):
    fill(tmp_path, 10)
    kept = [table.filter(pl.col("step") <= 6) for table in tables(tmp_path)]
    own = RunStore(tmp_path)
    own.sync()
    own.drop_after(6)
    assert names(tmp_path) == ["steps-000001-000004.parquet", "steps-000005-000006.parquet"]
    assert all(was.equals(now) for was, now in zip(kept, tables(tmp_path), strict=True))
    append(tmp_path, 7)
    append(tmp_path, 8)
    own.sync()
    assert names(tmp_path) == ["steps-000001-000004.parquet", "steps-000005-000008.parquet"]
    assert rows_by_step(scan_labels(tmp_path)) == {step: step for step in range(1, 9)}


class Killed(BaseException):
    """What no code of the store catches."""


@pytest.mark.parametrize("action", ["sync", "drop_after"])
def test_a_kill_at_any_moment_leaves_every_step_once(tmp_path, blocks_of_four, action, monkeypatch):
    for moment in itertools.count(1):
        run = tmp_path / str(moment)
        run.mkdir()
        fill(run, 9)
        if action == "drop_after":
            RunStore(run).sync()
        whole = tables(run)
        calls = itertools.count(1)

        def killed(real, calls=calls, moment=moment):
            def call(*arguments, **options):
                if next(calls) == moment:
                    raise Killed
                return real(*arguments, **options)

            return call

        with monkeypatch.context() as patched:
            patched.setattr(files.os, "replace", killed(files.os.replace))
            patched.setattr(store.Path, "unlink", killed(store.Path.unlink))
            try:
                RunStore(run).sync() if action == "sync" else RunStore(run).drop_after(6)
                finished = True
            except Killed:
                finished = False
        steps = stored_steps(run)
        assert steps == list(range(1, len(steps) + 1))
        assert len(steps) >= (9 if action == "sync" else 6)
        seen = [table.filter(pl.col("step").is_in(steps)) for table in whole]
        assert all(was.equals(now) for was, now in zip(seen, tables(run), strict=True))
        RunStore(run).drop_after(6)
        assert stored_steps(run) == list(range(1, 7))
        for step in (7, 8, 9):
            append(run, step)
        RunStore(run).sync()
        assert names(run)[1:] == ["steps-000001-000004.parquet", "steps-000005-000008.parquet"]
        assert all(was.equals(now) for was, now in zip(whole, tables(run), strict=True))
        if finished:
            break
    assert moment > 6


def test_rollouts_of_steps_whose_labels_have_gone_are_left_out(tmp_path, blocks_of_four):
    fill(tmp_path, 4)
    RunStore(tmp_path).sync()
    labels = shard_path(tmp_path / "labels", 1, 4)
    first_two = pq.read_table(labels, filters=[("step", "<=", 2)])
    pq.write_table(first_two, shard_path(tmp_path / "labels", 1, 2))  # as a resume does that is killed then
    labels.unlink()
    assert rows_by_step(scan_rollouts(tmp_path)) == {1: 2, 2: 4}
    assert len(list(read_rollout_steps(tmp_path, ["step"]))) == 2


def test_shards_hold_steps_that_are_in_them_however_cut():
    draw = random.Random(3)
    for _ in range(300):
        ends = sorted(draw.sample(range(1, 30), 6))
        shards = [
            Shard(Path(), first, last - 1) for first, last in itertools.pairwise(ends) if draw.random() < 0.8
        ]
        steps = range(start := draw.randint(1, 28), draw.randint(start + 1, 30))
        assert holds(shards, steps) == set(steps).issubset(step for shard in shards for step in shard.steps)


def test_what_putting_together_takes_does_not_grow_with_the_steps(tmp_path):
    for table in ("labels", "rollouts"):
        (tmp_path / table).mkdir()
        for first in range(1, 50_001, 250):
            shard_path(tmp_path / table, first, first + 249).touch()
    tracemalloc.start()
    RunStore(tmp_path).sync()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2_000_000  # a list of the steps takes several times as much


def test_names_of_shards(tmp_path):
    assert shard_path(tmp_path, 7, 7).name == "step-000007.parquet"
    assert shard_path(tmp_path, 1, 1_000_250).name == "steps-000001-1000250.parquet"
    for name in ("step-000003", "steps-000001-000002", "step-000002", "step-4", ".step-000005.parquet.1.tmp"):
        (tmp_path / f"{name}.parquet").touch()
    assert [(shard.first, shard.last) for shard in table_shards(tmp_path)] == [(1, 2), (3, 3)]
    assert complete_steps([tmp_path]) == [1, 2, 3]
