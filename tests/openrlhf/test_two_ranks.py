"""A mix of methods on two policy ranks, the reference's two, and two vLLM engines, until one of the ranks dies.

It then goes on with one rank and one vLLM engine.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import polars as pl
import pytest
import torch
from stack import SMALL, Train, metrics, processes_of

from olr_cli.engines.openrlhf.job_files import saved_parts
from olr_cli.runs.checkpoints import checkpoint_path, checkpoint_steps
from olr_cli.runs.directory import read_manifest
from olr_cli.runs.shards import stored_steps
from olr_cli.runs.store import scan_labels, scan_rollouts

SETTINGS = (
    *SMALL, "method.name=co_reward", "method.prompts=random", "method.keep_fraction=0.3", "method.smoothing=0.1",
    "method.penalty_weight=0.01", "engine.colocate=false", "engine.gpus_per_node=2", "engine.vllm_engines=2",
    "engine.micro_batch_samples=4", "engine.zero_stage=2", "train.checkpoint_every=2",
)  # fmt: skip
ONE_GPU = ("engine.gpus_per_node=1", "engine.vllm_engines=1")
VIEWS = ("original", "rephrased")


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Train, int]:
    """A run whose policy's second rank dies after three steps: its directory, the command, and that rank's process."""
    run = tmp_path_factory.mktemp("runs") / "run"
    train = Train(run, SETTINGS)
    train.await_step(3)
    ranks = _ranks(run)
    os.kill(max(ranks), signal.SIGKILL)
    train.end()
    return run, train, max(ranks)


def _ranks(run: Path) -> list[int]:
    """The policy's processes; Ray changes their titles while they work, so that a look may miss one."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        titles = processes_of(run)
        found = [
            number
            for number, title in titles.items()
            if title.startswith("ray::PolicyActor")
        ]
        if len(found) == 2:
            return found
    raise AssertionError(titles)


def test_the_death_of_a_rank_ends_the_run_in_a_sentence(story):
    run, train, rank = story
    assert train.process.returncode == 2
    assert (
        f"PolicyModelActor (process {rank}) was killed, often for want of memory"
        in train.output
    )
    assert f"--resume --run-dir {run}" in train.output
    assert "Traceback" not in train.output
    steps = stored_steps(run)
    assert steps == list(range(1, len(steps) + 1))
    assert len(scan_labels(run).collect()) == 40 * len(steps)
    assert len(metrics(run)) == 1 + len(steps)
    assert read_manifest(run)["status"] == "failed"
    deadline = time.monotonic() + 60
    while processes_of(run) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert processes_of(run) == {}


def test_both_views_of_every_prompt_are_rolled_out_and_rewarded_by_the_label(story):
    run, _, _ = story
    rollouts = scan_rollouts(run).filter(pl.col("step") <= 3).collect()
    groups = rollouts.sort("sample").group_by("prompt_id", "visit").agg("view", "sample")
    assert len(groups) == 3 * 40
    assert all(
        views == [view for view in VIEWS for _ in range(8)]
        for views in groups["view"].to_list()
    )
    assert all(numbers == list(range(16)) for numbers in groups["sample"].to_list())
    labels = scan_labels(run).select("prompt_id", "visit", "effective_label").collect()
    original = rollouts.filter(pl.col("view") == "original").join(
        labels, on=["prompt_id", "visit"]
    )
    is_label = (
        pl.col("answer_class").eq_missing(pl.col("effective_label"))
        & pl.col("answer").is_not_null()
    )
    assert (original["reward"] == original.select(is_label.cast(float)).to_series()).all()


def test_a_share_of_each_steps_prompts_trains(story):
    run, _, _ = story
    labels = scan_labels(run).collect()
    assert set(labels.group_by("step").agg(pl.col("trains").sum())["trains"]) == {12}
    lines = [line for line in metrics(run) if line["step"]]
    for name in ("policy/kl", "policy/clip_fraction", "policy/grad_norm"):
        assert all(line[name] >= 0 for line in lines), name
    assert all(line["policy/grad_norm"] > 0 for line in lines)


def test_the_policys_entropy_is_that_of_the_stored_rollouts(story):
    run, _, _ = story
    rollouts = scan_rollouts(run).collect()
    means = rollouts.group_by("step").agg(
        (pl.col("entropy") * pl.col("tokens")).sum() / pl.col("tokens").sum()
    )
    found = {line["step"]: line["policy/entropy"] for line in metrics(run) if line["step"]}
    assert found == {step: pytest.approx(mean, rel=1e-9) for step, mean in means.rows()}


def test_a_resume_on_one_gpu_carries_adams_state_over_and_ctrl_c_leaves_it_whole(story):
    two_ranks, _, _ = story
    run = two_ranks.with_name("on-one-gpu")
    shutil.copytree(two_ranks, run)
    begun = max(checkpoint_steps(run))
    assert saved_parts(checkpoint_path(run, begun)) == 2
    train = Train(run, (*SETTINGS, *ONE_GPU), "--resume")
    # The dead run may have been a step ahead of its checkpoint; the resume drops that step before its attempt begins.
    train.await_(lambda: len(read_manifest(run)["attempts"]) == 2)
    train.await_step(begun + 1)
    assert not (
        run / "openrlhf" / "universal"
    ).exists()  # it takes no disk once it is loaded
    train.signal(signal.SIGINT)
    assert train.end() == 130, train.output
    assert processes_of(run) == {}
    assert "--resume --run-dir" in train.output
    assert "The checkpoint is from 2 GPUs and the policy has 1 now" in train.output
    manifest = read_manifest(run)
    assert manifest["status"] == "interrupted"
    assert manifest["attempts"][-1]["from_step"] == begun
    kept, before = (
        scan_labels(each).filter(pl.col("step") <= begun).collect()
        for each in (run, two_ranks)
    )
    assert kept.equals(before)
    last = max(checkpoint_steps(run))
    assert last > begun
    assert saved_parts(checkpoint_path(run, last)) == 1
    assert stored_steps(run) == list(range(1, last + 1))
    # Adam counts on: the number of its steps is that of the run's mini-batches.
    (part,) = (checkpoint_path(run, last) / "openrlhf").glob("_actor/*/*_optim_states.pt")
    state = torch.load(part, weights_only=False)["optimizer_state_dict"][
        "base_optimizer_state"
    ]["state"]
    assert {int(group["step"]) for group in state.values()} == {last}
