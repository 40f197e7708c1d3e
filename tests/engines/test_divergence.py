"""A run that diverges stops before the step, with a sentence that names the last checkpoint whose policy is sound."""

import pytest
import torch
from cases import each
from commands import olr
from diverging import SETTINGS, save_diverging_model
from safetensors.torch import load_file, save_file

from olr_cli.runs.checkpoints import checkpoint_path, checkpoint_steps
from olr_cli.runs.directory import read_manifest
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.shards import stored_steps

WARM_UP = {"train.lr_warmup_ratio": "0.2"}
HELD_OUT = {"train.evaluate_every": "1"}


@each(
    "scaling, changes, step, quantity, good",
    (3e-37, {}, 2, "its loss or gradient is", None),
    (3e-39, WARM_UP, 4, "its logits are", 2),
    (3e-39, WARM_UP | HELD_OUT, 3, "its logits are", 2),
    ids=["gradient", "logits", "held-out logits"],
)
def test_a_run_that_diverges_keeps_its_last_good_checkpoint(
    here, scaling, changes, step, quantity, good
):
    save_diverging_model(here / "model", scaling)
    settings = SETTINGS | {"model.path": "model"} | changes
    words = [
        word for key, value in settings.items() for word in ("--set", f"{key}={value}")
    ]
    train = olr("train", "laptop/quickstart", *words, "--run-dir", "run")
    run = here / "run"
    lines, steps = read_metrics(run), checkpoint_steps(run)
    assert (train.exit_code, len(lines) - 1) == (2, step), train.stderr
    said = train.stderr.splitlines()[-1]
    assert (
        f"at step {step} {quantity} not finite (train.learning_rate 1), and the step is not kept"
        in said
    )
    assert (
        f"model.path=run/checkpoints/step-{good:06d} "
        if good
        else "no checkpoint was due before"
    ) in said
    assert steps == stored_steps(run) == list(range(1, step))
    assert all(
        weight.isfinite().all()
        for done in steps
        for weight in load_file(checkpoint_path(run, done) / "model.safetensors").values()
    )
    assert [line["policy/nonfinite"] for line in lines[1:]] == [0] * (step - 1) + [1]
    assert read_manifest(run)["status"] == "diverged"
    resumed = olr("train", "--resume", "--run-dir", "run")
    assert (resumed.exit_code, resumed.stderr.splitlines()[-1]) == (2, said)
    assert (checkpoint_steps(run), len(read_metrics(run))) == (steps, len(lines))


def change_weight(model, name, change):
    weights = load_file(model / "model.safetensors")
    change(weights[name])
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.usefixtures("here")
def test_evaluate_names_a_model_whose_logits_are_not_finite(model):
    change_weight(model, "model.norm.weight", lambda weight: weight.fill_(3e38))
    evaluation = olr(
        "evaluate", "model", "--benchmarks", "arithmetic", "--backend", "transformers"
    )
    assert evaluation.exit_code == 2
    assert "model cannot answer: its logits are not finite" in evaluation.stderr


def test_weights_that_are_not_finite_are_refused_before_anything_is_written(here, model):
    name = "model.layers.0.mlp.down_proj.weight"
    change_weight(model, name, lambda weight: weight[3].fill_(torch.nan))
    for words in (
        ["train", "laptop/quickstart", "--set", "model.path=model", "--run-dir", "out"],
        ["rollouts", "model", "arithmetic", "--run-dir", "out"],
        ["evaluate", "model", "--benchmarks", "arithmetic", "--out", "out"],
    ):
        refused = olr(*words)
        assert refused.exit_code == 2
        assert f"has weights that are not finite ({name})" in refused.stderr
        assert not (here / "out").exists()
