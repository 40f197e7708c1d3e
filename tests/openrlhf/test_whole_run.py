"""One run on the whole stack from start to end.

test_gpu_matrix.py has `kill -9` and a resume, test_two_ranks.py a rank's death, a resume and Ctrl-C.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from stack import SMALL, Train, metrics

from olr_cli.engines.openrlhf.job_files import JobFiles
from olr_cli.recipe.layers import load_recipe
from olr_cli.recipe.sampling import Sampling
from olr_cli.runs.checkpoints import checkpoint_path, checkpoint_steps
from olr_cli.runs.directory import read_manifest
from olr_cli.runs.shards import stored_steps
from olr_cli.runs.store import scan_labels, scan_rollouts

STEPS = 16
TEMPLATE = "{{ bos_token }}{{ messages[-1]['content'] }}"


def settings(runs: Path) -> tuple[str, ...]:
    """Settings of the runs in this folder, which also has their chat template."""
    return (*SMALL, "data.verified=8", f"model.chat_template={runs / 'template.jinja'}")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    path.with_name("template.jinja").write_text(TEMPLATE)
    train = Train(path, settings(path.parent))
    assert train.end() == 0, train.output
    return path


def test_the_tables_are_complete(run):
    labels, rollouts = scan_labels(run).collect(), scan_rollouts(run).collect()
    assert stored_steps(run) == list(range(1, STEPS + 1))
    assert len(labels) == 80 * 8
    assert len(rollouts) == 80 * 8 * 8
    assert labels.group_by("prompt_id").len()["len"].to_list() == [8] * 80
    assert labels.group_by("step").len()["len"].to_list() == [40] * STEPS
    visits = labels.sort("step").group_by("prompt_id", maintain_order=True).agg("visit")
    assert all(v == list(range(1, 9)) for v in visits["visit"].to_list())
    for column in (
        "response",
        "tokens",
        "truncated",
        "mean_logprob",
        "entropy",
        "self_certainty",
        "reward",
    ):
        assert rollouts[column].null_count() == 0
    assert rollouts["tokens"].is_between(1, 5).all()
    assert (rollouts["mean_logprob"] <= 0).all()


def test_every_step_has_its_metrics_once(run):
    lines = metrics(run)
    assert [line["step"] for line in lines] == list(range(STEPS + 1))
    for name in (
        "policy/kl",
        "policy/entropy",
        "policy/grad_norm",
        "policy/lr",
        "rollout/reward",
        "rollout/sampler_gap",
        "time/verification",
        "time/labels",
        "time/update",
        "time/step",
    ):
        assert all(name in line for line in lines[1:]), name
    for name in ("speed/generated_tokens", "speed/trained_tokens", "speed/samples"):
        assert all(line[name] > 0 for line in lines[1:]), name
    assert {line["memory/gpu_peak"] for line in lines[1:]} == {None}
    tokens = (
        scan_rollouts(run)
        .group_by("step")
        .agg(pl.col("tokens").sum())
        .sort("step")
        .collect()
    )
    for line, (step, generated) in zip(lines[1:], tokens.rows(), strict=True):
        assert line["step"] == step
        assert line["speed/generated_tokens"] == pytest.approx(
            generated / line["time/rollouts"]
        )
        assert line["speed/samples"] <= 40 * 8 / (
            line["time/rollouts"] + line["time/update"]
        )
    assert {line["policy/lr"] for line in lines[1:]} == {1e-3}
    assert all(0 < line["rollout/sampler_gap"] < 0.05 for line in lines[1:])


def test_the_manifest_tells_what_ran_and_how_it_departs(run):
    manifest = read_manifest(run)
    assert manifest["status"] == "finished"
    assert manifest["engine"] == "openrlhf"
    assert manifest["versions"]["openrlhf"] == "0.11.2"
    assert any("standard deviation" in departure for departure in manifest["departures"])
    outcomes = [attempt.get("outcome") for attempt in manifest["attempts"]]
    assert outcomes == ["finished"]


def test_new_weights_reach_vllm(run):
    """VLLM's held-out accuracy is that of the checkpoint's weights, sampled by another engine, not the start's."""
    from olr_cli.answers import Judge
    from olr_cli.data.sets import held_out_prompts
    from olr_cli.engines.held_out import held_out_accuracy
    from olr_cli.engines.local.engine import encode_prompts
    from olr_cli.engines.local.policy import Policy
    from olr_cli.engines.local.sampler import sample
    from olr_cli.seeding import rollout_keys

    recipe = load_recipe(run / "recipe.yaml")
    held_out = held_out_prompts(recipe, "arithmetic", "test")
    prompts, policy = (
        held_out.prompts,
        Policy.load(checkpoint_path(run, STEPS), device="cpu"),
    )
    sampled = sample(
        policy,
        encode_prompts(policy, held_out, recipe),
        rollout_keys("test", 7, 0, [prompt.prompt_id for prompt in prompts], 8),
        Sampling(recipe.train.evaluation_temperature, 5),
        batch_tokens=65536,
    )
    with Judge() as judge:
        here = held_out_accuracy(prompts, sampled.texts_PG, judge)["avg"]
    lines = metrics(run)
    start, end = lines[0]["eval/avg"], lines[-1]["eval/avg"]
    # 4,000 rollouts each: two independent estimates of one share differ by less than .045 (four standard errors).
    assert abs(end - here) < 0.045
    assert end - start > 0.045


def test_the_last_checkpoint_is_a_model_in_hugging_face_layout(run):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = checkpoint_path(run, STEPS)
    model = AutoModelForCausalLM.from_pretrained(folder, use_safetensors=True)
    assert sum(weight.numel() for weight in model.parameters()) == 131_520
    assert AutoTokenizer.from_pretrained(folder)("12+3=")["input_ids"]
    assert checkpoint_steps(run) == [12, 16]


def test_a_replay_under_the_runs_own_criteria_decides_as_the_run_did(run):
    ended = subprocess.run(
        [sys.executable, "-m", "olr_cli", "replay", str(run)],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert "640 of 640" in ended.stdout


def test_a_finished_run_is_trained_further(run, tmp_path):
    """Its first epochs stay as they were; the order of prompts in the next one is that of a longer run."""
    longer = tmp_path / "longer"
    shutil.copytree(run, longer)
    train = Train(longer, (*settings(run.parent), "train.epochs=9"), "--resume")
    assert train.end() == 0, train.output
    assert read_manifest(longer)["status"] == "finished"
    assert stored_steps(longer) == list(range(1, STEPS + 3))
    labels = scan_labels(longer).sort("step", "prompt_id").collect()
    before = scan_labels(run).sort("step", "prompt_id").collect()
    assert labels.head(len(before)).equals(before)
    assert labels.filter(pl.col("visit") == 9)["prompt_id"].n_unique() == 80
    assert [line["step"] for line in metrics(longer)] == list(range(STEPS + 3))
    assert {line["policy/lr"] for line in metrics(longer)[1:]} == {1e-3}


def test_a_chat_template_of_the_recipe_reaches_prompts_and_checkpoints(run):
    from transformers import AutoTokenizer

    prompts = pl.read_parquet(JobFiles(run).prompts)["input"]
    assert len(prompts) == 80 and all(prompt.startswith("<bos>") for prompt in prompts)
    assert (
        AutoTokenizer.from_pretrained(checkpoint_path(run, STEPS)).chat_template == TEMPLATE
    )
