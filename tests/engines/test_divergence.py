"""A run that diverges stops before the step, with a sentence that names the last checkpoint whose policy is sound."""

import shutil

import pytest
import torch
from cases import each
from diverging import SETTINGS, save_diverging_model
from forks import olr
from safetensors.torch import load_file, save_file

from olr_cli.engines.models import policy_path
from olr_cli.runs.checkpoints import checkpoint_path, checkpoint_steps
from olr_cli.runs.directory import read_manifest
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.store import stored_steps

WARM_UP = {"train.lr_warmup_ratio": "0.2"}
HELD_OUT = {"train.evaluate_every": "1"}


@each(
    "scaling, changes, step, quantity, good",
    (3e-37, {}, 2, "its loss or gradient is", None),
    (3e-39, WARM_UP, 4, "its logits are", 2),
    (3e-39, WARM_UP | HELD_OUT, 3, "its logits are", 2),
    ids=["gradient", "logits", "held-out logits"],
)
def test_a_run_that_diverges_keeps_its_last_good_checkpoint(tmp_path, scaling, changes, step, quantity, good):
    save_diverging_model(tmp_path / "model", scaling)
    settings = SETTINGS | {"model.path": "model"} | changes
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    status, train = olr(tmp_path, "train", "laptop/quickstart", *words, "--run-dir", "run")
    run = tmp_path / "run"
    lines, steps = read_metrics(run), checkpoint_steps(run)
    assert (status, len(lines) - 1, "Traceback" in train.err) == (2, step, False), train.err
    assert (
        f"at step {step} {quantity} not finite (train.learning_rate 1), and the step is not kept" in train.err
    )
    named = "no checkpoint was due before" if good is None else f"model.path=run/checkpoints/step-{good:06d} "
    assert named in train.err
    assert steps == stored_steps(run) == list(range(1, step))
    assert all(
        weight.isfinite().all()
        for done in steps
        for weight in load_file(checkpoint_path(run, done) / "model.safetensors").values()
    )
    assert [line["policy/nonfinite"] for line in lines[1:]] == [0] * (step - 1) + [1]
    assert read_manifest(run)["status"] == "diverged"
    status, resumed = olr(tmp_path, "train", "--resume", "--run-dir", "run")
    assert (status, resumed.err.splitlines()[-1]) == (2, train.err.splitlines()[-1])
    assert (checkpoint_steps(run), len(read_metrics(run))) == (steps, len(lines))


@pytest.fixture
def model(tmp_path):
    """A copy of a built-in policy, to damage."""
    return shutil.copytree(policy_path("addition-easier"), tmp_path / "model")


def change_weight(model, name, change):
    weights = load_file(model / "model.safetensors")
    change(weights[name])
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})


def test_evaluate_names_a_model_whose_logits_are_not_finite(tmp_path, model):
    change_weight(model, "model.norm.weight", lambda weight: weight.fill_(3e38))
    words = ["model", "--benchmarks", "arithmetic", "--backend", "transformers"]
    status, evaluation = olr(tmp_path, "evaluate", *words)
    assert (status, "model cannot answer: its logits are not finite" in evaluation.err) == (2, True), (
        evaluation.err
    )


def test_weights_that_are_not_finite_are_refused_before_anything_is_written(tmp_path, model):
    name = "model.layers.0.mlp.down_proj.weight"
    change_weight(model, name, lambda weight: weight[3].fill_(torch.nan))
    for words in (
        ["train", "laptop/quickstart", "--set", "model.path=model", "--run-dir", "out"],
        ["rollouts", "model", "arithmetic", "--run-dir", "out"],
        ["evaluate", "model", "--benchmarks", "arithmetic", "--out", "out"],
    ):
        status, command = olr(tmp_path, *words)
        assert (status, f"has weights that are not finite ({name})" in command.err) == (2, True), command.err
        assert not (tmp_path / "out").exists()
