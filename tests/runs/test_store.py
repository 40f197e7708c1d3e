"""Shards appear whole or not at all; what is torn or foreign is named, never read as data."""

import errno
import shutil
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import each, refusal
from decisions import LABEL, ROLLOUT, columns
from histories import write_history
from hypothesis import given, strategies as st

from olr_cli.errors import UserError
from olr_cli.runs import shards
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
    contents = [
        (tmp_path / name / "labels" / "step-000001.parquet").read_bytes()
        for name in ("a", "b")
    ]
    assert contents[0] == contents[1]


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


def fill_visits(run, visits_by_step):
    """Write the labels of some prompts' visits, step by step, beside rollouts without rows."""
    run.mkdir(exist_ok=True)
    store = RunStore(run)
    for step, visits in enumerate(visits_by_step, start=1):
        labels = [
            replace(LABEL, prompt_id=prompt, visit=visit, step=step)
            for prompt, visit in visits
        ]
        store.append(step, columns(LabelRecord, labels), columns(RolloutRecord, []))
    return run


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(("a", "b", "1", "11")), st.integers(1, 3)),
            min_size=1,
            max_size=3,
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 3),
)
def test_a_visit_that_comes_twice_in_a_run_is_damage_of_its_first_shard(steps, at_once):
    visits = [visit for step in steps for visit in step]
    twice = [
        number
        for number, step in enumerate(steps, start=1)
        if any(visits.count(visit) > 1 for visit in step)
    ]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "_SHARDS_OF_A_QUERY", at_once)
        run = fill_visits(Path(folder), steps)
        if twice:
            name = f"step-{twice[0]:06d}.parquet has a prompt's visit twice"
            assert name in refusal(scan_labels, run)
        else:
            assert scan_labels(run).collect().height == len(visits)


def test_a_visit_that_other_runs_have_too_is_no_damage_nor_are_equal_hashes(
    tmp_path, monkeypatch
):
    runs = [fill_visits(tmp_path / name, [[("a", 1), ("b", 1)]]) for name in "xy"]
    assert len(shards.whole_shards(runs, "labels")) == 2
    shards._prompt_visits.cache_clear()
    facts_of = shards._facts_by_shard

    def all_hashes_equal(*arguments):
        facts = facts_of(*arguments)
        zeros = pl.col("hashes").list.eval(pl.element() * 0)
        return facts.with_columns(hashes=zeros)

    monkeypatch.setattr(shards, "_facts_by_shard", all_hashes_equal)
    assert len(shards.whole_shards(runs, "labels")) == 2


def test_rollouts_of_some_prompts_are_those_rows_of_all(tmp_path):
    store = RunStore(tmp_path)
    for step in (1, 2):
        rollouts = [
            replace(ROLLOUT, prompt_id=name, step=step, visit=step, response=name * 20)
            for name in "abc"
        ]
        labels = [replace(LABEL, prompt_id=name, step=step, visit=step) for name in "abc"]
        store.append(step, columns(LabelRecord, labels), columns(RolloutRecord, rollouts))
    names = ["prompt_id", "response"]
    some = read_rollout_steps(tmp_path, names, prompts=pl.Series(["a", "c"]))
    everything = read_rollout_steps(tmp_path, names)
    for rows, of_all in zip(some, everything, strict=True):
        assert rows.equals(of_all.filter(pl.col("prompt_id") != "b"))
    (of_step,) = read_rollout_steps(tmp_path, ["step"], {2}, pl.Series(["b"]))
    assert of_step["step"].to_list() == [2]


def test_an_error_of_a_decoder_is_explained_by_the_shard_that_causes_it(tmp_path):
    for name in ("whole", "torn"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text("{}")
        fill(tmp_path / name, [1, 2])
    error = pl.exceptions.ComputeError("cannot decode")
    assert shards.explain_damage(error, [tmp_path]) is None
    shard = tmp_path / "torn" / "rollouts" / "step-000002.parquet"
    content = shard.read_bytes()
    rows = len(content) - int.from_bytes(content[-8:-4], "little") - 12
    shard.write_bytes(content[:4] + bytes(rows) + content[4 + rows :])
    for met in (error, OSError("cannot decode"), pa.ArrowInvalid("cannot decode")):
        assert f"{shard} is damaged (" in shards.explain_damage(met, [tmp_path / "torn"])
    assert shards.explain_damage(error, [tmp_path / "whole"]) is None
    for met in (OSError(errno.EIO, "of the system"), ValueError("of somebody else")):
        assert shards.explain_damage(met, [tmp_path]) is None
    shard.write_bytes(b"cut off")  # which has a sentence of its own
    assert shards.explain_damage(error, [tmp_path]) is None


def test_a_shard_whose_schema_cannot_be_read_is_named(tmp_path):
    run = write_history(tmp_path / "run", prompts=2, epochs=1)
    shard = next((run / "labels").glob("*.parquet"))
    schema = pq.read_metadata(shard).metadata[b"ARROW:schema"]
    shard.write_bytes(shard.read_bytes().replace(schema, b"!" * len(schema)))
    assert f"{shard} has no column" in refusal(scan_labels, run)
