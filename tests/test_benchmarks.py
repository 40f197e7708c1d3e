"""The runs that speed is measured on are runs: stored and decided as the project stores and decides."""

import importlib.util
from pathlib import Path

import polars as pl
import pytest
from cases import refusal

from olr_cli.analysis.histories import read_history
from olr_cli.analysis.replay import label_tables
from olr_cli.answers import Judge
from olr_cli.runs.directory import read_manifest, read_recipe
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.shards import stored_steps
from olr_cli.runs.store import scan_labels, scan_rollouts

SMALL = {"prompts": 60, "visits": 10, "prompts_per_step": 20, "response_characters": 80}


def load(name):
    file = Path(__file__).parents[1] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


write_run = load("histories").write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "run", **SMALL)


def test_a_replay_of_a_synthetic_run_gives_its_stored_decisions(run):
    with Judge(workers=1) as judge:
        again = pl.concat(label_tables(read_history(run), judge))
    stored = scan_labels(run).collect()
    assert again.equals(stored)
    assert again.height == 60 * 10
    assert stored["is_selected"].sum() > 50


def test_half_of_the_labels_are_noise_and_majorities_and_pass_rates_rise(run):
    labels = scan_labels(run)
    kinds = labels.filter(visit=1).collect()["noise_type"].value_counts().sort("noise_type")
    assert kinds.rows() == [("active", 30), ("clean", 30)]
    by_visit = labels.group_by("visit").agg(
        pl.col("majority_is_correct", "pass_rate").mean(),
        wrong=1 - pl.col("effective_label_is_correct").mean(),
    )
    first, *_, last = by_visit.sort("visit").collect().iter_rows(named=True)
    assert last["majority_is_correct"] > first["majority_is_correct"] + 0.1
    assert last["pass_rate"] > first["pass_rate"] + 0.1
    assert last["wrong"] < first["wrong"] == 0.5


def test_responses_have_the_length_asked_for_and_hold_their_answers(run):
    rollouts = scan_rollouts(run).collect()
    assert rollouts.height == 60 * 10 * 8
    assert set(rollouts["response"].str.len_chars()) == {80}
    boxed = rollouts["response"].str.extract(r"\\boxed\{(-?\d+)\}$")
    assert boxed.equals(rollouts["answer"], null_equal=True)
    assert 0 < rollouts["answer"].null_count() < 0.2 * rollouts.height
    assert rollouts["response"].n_unique() > 0.99 * rollouts.height


def test_the_same_arguments_give_the_same_shards(run, tmp_path):
    again = write_run(tmp_path / "run", **SMALL)
    for scan in (scan_labels, scan_rollouts):
        assert scan(again).collect().equals(scan(run).collect())
    assert read_recipe(again) == read_recipe(run)


def test_a_run_that_stopped_early_says_so(tmp_path):
    run = write_run(tmp_path / "run", **SMALL, steps=4)
    assert stored_steps(run) == [1, 2, 3, 4]
    assert read_manifest(run)["status"] == "interrupted"
    assert [line["step"] for line in read_metrics(run)] == [0, 1, 2, 3, 4]
    assert "holds a run already" in refusal(write_run, run, **SMALL)


@pytest.mark.parametrize(
    "method", ["grpo", "ttrl", "small_loss_selection", "self_certainty", "co_reward"]
)
def test_a_synthetic_run_can_be_of_another_method(tmp_path, method):
    run = write_run(
        tmp_path / "run", **SMALL, steps=6, settings={"method": {"name": method}}
    )
    history = read_history(run, [f"method.name={method}"])
    with Judge(workers=1) as judge:
        decided = pl.concat(label_tables(history, judge))
    assert decided.equals(scan_labels(run).collect())
