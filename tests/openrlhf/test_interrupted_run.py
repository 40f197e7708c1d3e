"""One run on the whole stack, killed and resumed; test_two_ranks.py has Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from stack import SMALL, Train, metrics, processes_of

from olr_cli.recipe.files import load_recipe
from olr_cli.runs.checkpoints import checkpoint_path, checkpoint_steps
from olr_cli.runs.directory import read_manifest
from olr_cli.runs.store import scan_labels, scan_rollouts, stored_steps

STEPS = 16
SETTINGS = (
    *SMALL,
    "engine.zero_stage=3",
    "engine.flags.ds.grad_accum_dtype=fp32",
    "engine.flags.algo.advantage.is_correction_level=token",  # measures rollout/sampler_gap
)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """A run's life: `kill -9` after step 6, then to the end; what was seen on the way."""
    run = tmp_path_factory.mktemp("runs") / "run"
    first = Train(run, SETTINGS)
    first.await_step(6)
    seen: dict[str, object] = {"run": run, "labels before the kill": scan_labels(run).collect()}
    first.signal(signal.SIGKILL)
    first.end()
    deadline = time.monotonic() + 60
    while processes_of(run) and time.monotonic() < deadline:
        time.sleep(0.5)
    seen["processes after the kill"] = processes_of(run)

    second = Train(run, SETTINGS, "--resume")
    seen["last status"], seen["last words"] = second.end(), second.output
    return seen


@pytest.fixture(scope="module")
def run(story: dict[str, object]) -> Path:
    assert story["last status"] == 0, story["last words"]
    path = story["run"]
    assert isinstance(path, Path)
    return path


def test_a_killed_command_takes_its_job_and_ray_with_it(story: dict[str, object]) -> None:
    assert story["processes after the kill"] == {}


def test_the_tables_are_complete(run: Path) -> None:
    labels, rollouts = scan_labels(run).collect(), scan_rollouts(run).collect()
    assert stored_steps(run) == list(range(1, STEPS + 1))
    assert len(labels) == 80 * 8
    assert len(rollouts) == 80 * 8 * 8
    assert labels.group_by("prompt_id").len()["len"].to_list() == [8] * 80
    assert labels.group_by("step").len()["len"].to_list() == [40] * STEPS
    visits = labels.sort("step").group_by("prompt_id", maintain_order=True).agg("visit")
    assert all(v == list(range(1, 9)) for v in visits["visit"].to_list())
    for column in ("response", "tokens", "truncated", "mean_logprob", "entropy", "self_certainty", "reward"):
        assert rollouts[column].null_count() == 0
    assert rollouts["tokens"].is_between(1, 5).all()
    assert (rollouts["mean_logprob"] <= 0).all()


def test_every_step_has_its_metrics_once(run: Path) -> None:
    lines = metrics(run)
    assert [line["step"] for line in lines] == list(range(STEPS + 1))
    for name in (
        "policy/kl",
        "policy/entropy",
        "policy/grad_norm",
        "policy/lr",
        "rollout/reward",
        "time/verification",
        "time/labels",
        "time/update",
        "time/step",
    ):
        assert all(name in line for line in lines[1:]), name
    for name in ("speed/generated_tokens", "speed/trained_tokens", "speed/samples"):
        assert all(line[name] > 0 for line in lines[1:]), name
    assert {(line["speed/mfu"], line["memory/gpu_peak"]) for line in lines[1:]} == {(None, None)}
    tokens = scan_rollouts(run).group_by("step").agg(pl.col("tokens").sum()).sort("step").collect()
    for line, (step, generated) in zip(lines[1:], tokens.rows(), strict=True):
        assert line["step"] == step
        assert line["speed/generated_tokens"] == pytest.approx(generated / line["time/rollouts"])
        assert line["speed/samples"] <= 40 * 8 / (line["time/rollouts"] + line["time/update"])
    assert {line["policy/lr"] for line in lines[1:]} == {1e-3}


def test_steps_before_the_checkpoint_were_not_made_again(run: Path, story: dict[str, object]) -> None:
    before = story["labels before the kill"]
    assert isinstance(before, pl.DataFrame)
    start, resumed = [attempt["from_step"] for attempt in read_manifest(run)["attempts"]]
    assert start == 0 and resumed >= 4
    kept = scan_labels(run).filter(pl.col("step") <= resumed).collect()
    assert kept.equals(before.filter(pl.col("step") <= resumed))


def test_the_manifest_tells_what_ran_and_how_it_departs(run: Path) -> None:
    manifest = read_manifest(run)
    assert manifest["status"] == "finished"
    assert manifest["engine"] == "openrlhf"
    assert manifest["versions"]["openrlhf"] == "0.11.2"
    assert any("standard deviation" in departure for departure in manifest["departures"])
    outcomes = [attempt.get("outcome") for attempt in manifest["attempts"]]
    assert outcomes == [None, "finished"]


def test_new_weights_reach_vllm(run: Path) -> None:
    """Its log-probabilities are the policy's, and its accuracy that of the checkpoint's weights in another engine."""
    from olr_cli.answers import Judge
    from olr_cli.data.readers import held_out_prompts
    from olr_cli.engines.local.loop import encode_prompts
    from olr_cli.engines.local.policy import Policy
    from olr_cli.engines.local.sampler import sample
    from olr_cli.engines.steps import rollout_keys
    from olr_cli.supervision.held_out import held_out_accuracy

    recipe = load_recipe(run / "recipe.yaml")
    prompts = held_out_prompts(recipe, "arithmetic", "test").prompts
    policy = Policy.load(checkpoint_path(run, STEPS), device="cpu")
    sampled = sample(
        policy,
        encode_prompts(policy, prompts, recipe),
        rollout_keys("test", 7, 0, prompts, 8),
        max_new_tokens=5,
        temperature=recipe.train.evaluation_temperature,
        batch_tokens=65536,
    )
    with Judge() as judge:
        here = held_out_accuracy(prompts, sampled.texts_PG, judge)["avg"]
    lines = metrics(run)
    assert max(line["rollout/sampler_gap"] for line in lines[1:]) < 0.02  # nats, what bfloat16 rounds
    start, end = lines[0]["eval/avg"], lines[-1]["eval/avg"]
    # 4,000 rollouts each: two independent estimates of one share differ by less than .045 (four standard errors).
    assert abs(end - here) < 0.045
    assert end - start > 0.045


def test_the_last_checkpoint_is_a_model_in_hugging_face_layout(run: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = checkpoint_path(run, STEPS)
    model = AutoModelForCausalLM.from_pretrained(folder, use_safetensors=True)
    assert sum(weight.numel() for weight in model.parameters()) == 131_520
    assert AutoTokenizer.from_pretrained(folder)("12+3=")["input_ids"]
    assert checkpoint_steps(run) == [12, 16]


@pytest.mark.parametrize(
    "words",
    [
        ("analyze", "--figure", "dynamics"),
        ("analyze", "--figure", "coherence"),
        ("replay", "--set", "method.slope_threshold=0.1"),
    ],
)
def test_other_commands_work_on_the_run(run: Path, words: tuple[str, ...]) -> None:
    command, *options = words
    ended = subprocess.run(
        [sys.executable, "-m", "olr_cli", command, str(run), *options], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr


def test_a_replay_under_the_runs_own_criteria_decides_as_the_run_did(run: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "olr_cli", "replay", str(run)], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert "640 of 640" in ended.stdout


def test_the_recipe_on_the_disk_starts_the_same_run(run: Path) -> None:
    assert (
        load_recipe(run / "recipe.yaml").digest()
        == json.loads((run / "manifest.json").read_text())["recipe_digest"]
    )
