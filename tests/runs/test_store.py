"""Shards appear whole or not at all; what is torn or foreign is named, never read as data."""

import errno
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import each, refusal
from decisions import LABEL, ROLLOUT, columns

from olr_cli.errors import UserError
from olr_cli.runs.shards import stored_steps
from olr_cli.runs.store import RunStore, read_rollout_steps, scan_labels, scan_rollouts
from olr_cli.supervision import SCHEMA_VERSION, LabelRecord, RolloutRecord


def fill(run, steps):
    store = RunStore(run)
    for step in steps:
        label, rollout = (replace(one, step=step, visit=step) for one in (LABEL, ROLLOUT))
        store.append(step, columns(LabelRecord, [label]), columns(RolloutRecord, [rollout]))
    return store


def test_records_come_back_as_they_went_in(tmp_path):
    fill(tmp_path, [1, 2])
    labels = scan_labels(tmp_path).collect()
    assert labels.row(1, named=True) == asdict(replace(LABEL, step=2, visit=2))
    rollouts = scan_rollouts(tmp_path).collect()
    assert rollouts.row(0, named=True) == asdict(replace(ROLLOUT, step=1, visit=1))
    assert [
        frame["step"].to_list() for frame in read_rollout_steps(tmp_path, ["step"])
    ] == [
        [1],
        [2],
    ]


def test_the_same_records_give_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        fill(tmp_path / name, [1])
    shards = [
        (tmp_path / name / "labels" / "step-000001.parquet").read_bytes()
        for name in ("a", "b")
    ]
    assert shards[0] == shards[1]


def test_a_step_without_its_labels_shard_is_not_complete(tmp_path):
    fill(tmp_path, [1, 2])
    (tmp_path / "labels" / "step-000002.parquet").unlink()
    assert stored_steps(tmp_path) == [1]
    assert scan_rollouts(tmp_path).collect()["step"].to_list() == [1]


@pytest.mark.parametrize("table", ["labels", "rollouts"])
@pytest.mark.parametrize("scan", [scan_labels, scan_rollouts])
def test_a_step_that_is_missing_before_others_is_named(tmp_path, table, scan):
    fill(tmp_path, [1, 2, 3])
    (tmp_path / table / "step-000002.parquet").unlink()
    assert "has no labels or no rollouts of step 2, though it has step 3" in refusal(
        scan, tmp_path
    )


def test_a_file_named_after_a_step_that_no_run_can_have_is_no_shard(tmp_path):
    fill(tmp_path, [1])
    shutil.copy(
        *(
            tmp_path / "labels" / f"step-{name}.parquet"
            for name in ("000001", "999999999999")
        )
    )
    assert stored_steps(tmp_path) == [1] and scan_labels(tmp_path).collect()[
        "step"
    ].to_list() == [1]


def test_drop_after_removes_later_shards_and_leftovers(tmp_path):
    store = fill(tmp_path, [1, 2, 3])
    leftover = tmp_path / "labels" / ".step-000004.parquet.17.tmp"
    leftover.write_bytes(b"half")
    store.drop_after(1)
    assert stored_steps(tmp_path) == [1]
    assert sorted(p.name for p in (tmp_path / "labels").iterdir()) == [
        "step-000001.parquet"
    ]


def test_drop_after_keeps_the_complete_steps_without_a_gap(tmp_path, monkeypatch):
    store = fill(tmp_path, range(1, 13))
    seen = []
    real = Path.unlink
    monkeypatch.setattr(
        Path,
        "unlink",
        lambda path, **options: (
            real(path, **options),
            seen.append(stored_steps(tmp_path)),
        ),
    )
    store.drop_after(2)
    assert seen[:10] == [list(range(1, last + 1)) for last in range(11, 1, -1)]
    assert len(list((tmp_path / "rollouts").iterdir())) == 2


def test_no_complete_step_is_said(tmp_path):
    assert "no complete step yet" in refusal(scan_labels, tmp_path)


@pytest.mark.parametrize("keep", [0, 100, -8])
def test_a_torn_shard_is_named(tmp_path, keep):
    fill(tmp_path, [1, 2])
    shard = tmp_path / "rollouts" / "step-000002.parquet"
    shard.write_bytes(shard.read_bytes()[:keep])
    assert "step-000002.parquet is not a whole Parquet file" in refusal(
        scan_rollouts, tmp_path
    )


def test_a_foreign_shard_and_a_newer_schema_are_named(tmp_path):
    fill(tmp_path, [1])
    shard = tmp_path / "labels" / "step-000001.parquet"
    table = pq.read_table(shard)
    pq.write_table(pa.table({"x": [1]}), shard)
    assert "not a shard of olr's labels table" in refusal(scan_labels, tmp_path)
    newer = {"olr.table": "labels", "olr.schema_version": str(SCHEMA_VERSION + 1)}
    pq.write_table(table.replace_schema_metadata(newer), shard)
    assert "written by a newer olr" in refusal(scan_labels, tmp_path)


@each("call", "olr_cli.files.os.replace", "pathlib.Path.mkdir", "olr_cli.runs.store.sync")
def test_a_full_disk_is_said_wherever_it_shows_and_leaves_the_store_as_it_was(
    call, tmp_path, monkeypatch
):
    store = fill(tmp_path, [1])

    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    with (
        monkeypatch.context() as patched,
        pytest.raises(UserError, match="the disk is full"),
    ):
        patched.setattr(call, full)
        store.append(2, columns(LabelRecord, [LABEL]), columns(RolloutRecord, [ROLLOUT]))
        store.sync()
    assert stored_steps(tmp_path) == ([1, 2] if "sync" in call else [1])
    assert not list(tmp_path.rglob("*.tmp"))


def test_unknown_values_are_null_not_zero(tmp_path):
    store = RunStore(tmp_path)
    label = replace(
        LABEL, step=1, true_answer=None, majority_is_correct=None, noisy_label_count=None
    )
    store.append(
        1, columns(LabelRecord, [label]), columns(RolloutRecord, [replace(ROLLOUT, step=1)])
    )
    row = (
        scan_labels(tmp_path)
        .select("majority_is_correct", "noisy_label_count")
        .collect()
        .row(0)
    )
    assert row == (None, None)
    assert (
        scan_labels(tmp_path).select(pl.col("majority_is_correct").mean()).collect().item()
        is None
    )
