"""Tomorrow's olr reads today's runs: a run of 0.1.0 is listed, resumed to the same end, replayed, audited and drawn."""

import os
import shutil
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import each
from commands import answered, done, olr, refused
from histories import SMALL, write_history
from polars.testing import assert_frame_equal

from olr_cli.runs.shards import shard_path
from olr_cli.runs.store import scan_labels, scan_rollouts
from olr_cli.runs.stored import arm_name, read_run, runs_below

FIXTURES = Path(__file__).parents[1] / "fixtures"
STORED = FIXTURES / "run-0.1.0"


@pytest.fixture
def run(here):
    """A copy of the run, with the model that it started from beside it."""
    for name in ("run", "model"):
        shutil.copytree(STORED / name, here / name)
    return Path("run")


ROUNDED = ("mean_logprob", "entropy", "self_certainty")
"""What matrix products made: another kind of processor, or version of torch, adds up in another order (R18). Of these
float32 values 2e-7 is what vector units of other widths change; 4e-3 is what a lost state of the optimiser would."""


def corrected(labels):
    """Labels of 0.1.0 as they are decided now: it called a verified label wrong where no rollout had spelled it so."""
    is_verified = pl.col("label_source") == "verified"
    is_right = pl.when(is_verified).then(True).otherwise("effective_label_is_correct")
    return labels.with_columns(effective_label_is_correct=is_right)


def test_it_is_resumed_to_the_end_that_it_had(run):
    done("train", "--resume", "--run-dir", run, "--set", "train.epochs=3")
    for table, scan in (("labels", scan_labels), ("rollouts", scan_rollouts)):
        end = pl.read_parquet(STORED / "end" / table / "*.parquet")
        end = corrected(end) if table == "labels" else end
        again = scan(run).filter(pl.col("step") > 4).collect().select(end.columns)
        rounded = [name for name in ROUNDED if name in end.columns]
        assert_frame_equal(again.drop(rounded), end.drop(rounded), check_exact=True)
        assert_frame_equal(
            again.select(rounded), end.select(rounded), rel_tol=0, abs_tol=1e-5
        )


def test_it_is_listed(run):
    (listed,) = answered("runs", ".")[0]["runs"]
    assert (listed["status"], listed["seed"]) == ("finished", 7)


@each(
    "noise, kind, arm, verifier, name",
    ("active", "training", "mine", None, "mine"),
    ("active", "training", "", None, "active 0.5 olr"),
    ("active", "rollouts", "", None, "active 0.5 rollouts"),
    (None, "training", "", None, "olr"),
    (None, "rollouts", "", None, "rollouts"),
    (None, "training", "", {"false_negative_rate": 0.3}, "verifier FN 0.3 olr"),
    ("inactive", "training", "", {"false_positive_rate": 0.1}, "inactive 0.5, verifier FP 0.1 olr"),
    (None, "training", "", {"draw": "answer"}, "olr"),
)  # fmt: skip
def test_an_arm_is_called_as_in_its_sweep_else_after_its_noise_and_method(
    tmp_path, noise, kind, arm, verifier, name
):
    given = {"noise": noise, "kind": kind, "arm": arm, "verifier": verifier}
    run = write_history(tmp_path / "run", **SMALL, steps=1, **given)
    assert arm_name(read_run(run)) == name


def test_it_is_replayed_to_its_own_labels(run):
    done("replay", run, "--out", "labels.parquet")
    stored, again = scan_labels(run).collect(), pl.read_parquet("labels.parquet")
    stored = corrected(stored)
    assert_frame_equal(again.select(stored.columns), stored, check_row_order=False)


def test_it_is_audited_with_its_verified_labels(run):
    found, _ = answered("audit", run)
    assert len(found["prompts"]) == 12 and sum(found["labels"].values()) == 12


def test_it_is_drawn_and_reported(run):
    done("analyze", run, "--figure", "all", "--report", "--table", "arms")
    assert {"learning.png", "coherence.png", "dynamics.png"} <= set(
        os.listdir(run / "figures")
    )
    assert (run / "figures" / "report.html").stat().st_size > 100_000


def rewrite(shard, change):
    """Replace a shard by a changed one that keeps its marks."""
    table = pq.read_table(shard)
    pq.write_table(change(table).replace_schema_metadata(table.schema.metadata), shard)


def test_a_column_that_a_shard_lacks_is_null_and_one_too_many_is_left_out(run):
    whole = scan_rollouts(run).collect()
    shard = shard_path(run / "rollouts", 2)
    rewrite(
        shard,
        lambda old: old.drop_columns(["self_certainty"]).append_column(
            "later", old["entropy"]
        ),
    )
    there = scan_rollouts(run).collect()
    assert there.columns == whole.columns
    of_step = pl.col("step") == 2
    assert there.filter(of_step)["self_certainty"].is_null().all()
    assert_frame_equal(there.filter(~of_step), whole.filter(~of_step))
    done("replay", run)


def test_a_column_that_may_not_be_null_is_missed_in_a_sentence(run):
    shard = shard_path(run / "labels", 1)
    pq.write_table(pq.read_table(shard).drop_columns(["majority_count"]), shard)
    assert f"{shard} has no column majority_count; restore it" in refused("replay", run)


@pytest.mark.parametrize("column", ["prompt_id", "visit"])
def test_rollouts_of_other_visits_than_the_labels_are_named(run, column):
    shard = shard_path(run / "rollouts", 3)

    def edit(table):
        values = table[column].to_pylist()
        other = [f"{value}x" if column == "prompt_id" else value + 1 for value in values]
        at = table.column_names.index(column)
        return table.set_column(at, column, pa.array(other, table.schema.field(at).type))

    rewrite(shard, edit)
    assert f"{shard} lacks rollouts of its step's labels, or has others" in refused(
        "replay", run
    )


def test_what_is_named_like_a_shard_and_is_no_file_is_no_shard(run):
    os.mkfifo(shard_path(run / "labels", 9))
    shard_path(run / "rollouts", 9).mkdir()
    assert olr("replay", run).exit_code == 0


def test_a_run_that_a_link_leads_to_again_is_found_once(tmp_path):
    run = write_history(tmp_path / "runs" / "a", prompts=2, epochs=1)
    (tmp_path / "runs" / "again").symlink_to(run)
    (tmp_path / "runs" / "up").symlink_to(tmp_path)
    assert len(list(runs_below(tmp_path))) == 1
