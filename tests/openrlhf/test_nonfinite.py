"""A loss or gradient that is not finite ends the run before DeepSpeed changes a weight."""

from __future__ import annotations

import pytest
import torch
from diverging import SETTINGS, save_diverging_model
from policy_rank import policy, update
from safetensors.torch import load_file
from stack import Train, metrics

from olr_cli.engines.run import NonFinite
from olr_cli.runs.checkpoints import checkpoint_path, checkpoint_steps
from olr_cli.runs.directory import read_manifest
from olr_cli.runs.shards import stored_steps


def parameters(actor):
    """The weights that compute, on the one rank that holds all of them."""
    values = (
        getattr(weight, "ds_tensor", weight)
        for weight in actor.actor.model.module.parameters()
    )
    return torch.cat([value.detach().float().flatten() for value in values])


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
@pytest.mark.parametrize("broken", ["loss", "gradient"])
def test_weights_stay_where_a_loss_or_gradient_is_not_finite(zero_stage, broken, tmp_path):
    actor = policy(zero_stage, tmp_path, sleep=False)
    actor.strategy = actor.trainer.strategy
    start = parameters(actor)
    update(actor, 1)
    before = parameters(actor)
    assert not torch.equal(start, before)
    tokens = torch.full((1, 16), 5)
    with pytest.raises(NonFinite):
        for is_broken in (True, False):  # an optimiser step has two micro-batches
            loss = actor.actor(tokens, torch.ones(1, 15), torch.ones_like(tokens)).mean()
            # infinite, with a finite gradient; or finite, with an infinite gradient
            if is_broken:
                loss = loss + torch.inf if broken == "loss" else (loss * 0).abs().sqrt()
            actor.strategy.backward(loss, actor.actor, actor.actor_optim)
            actor.strategy.optimizer_step(
                actor.actor_optim, actor.actor, actor.actor_scheduler
            )
    assert torch.equal(parameters(actor), before)


def test_a_run_that_diverges_ends_in_a_sentence_with_its_last_good_checkpoint(tmp_path):
    run = tmp_path / "run"
    model = save_diverging_model(tmp_path / "model", 3e-39, heads=1)
    settings = SETTINGS | {"model.path": model, "train.lr_warmup_ratio": "0.2"}
    train = Train(run, [f"{key}={value}" for key, value in settings.items()])
    assert train.end() == 2, train.output
    assert "Traceback" not in train.output
    lines, steps = metrics(run), checkpoint_steps(run)
    step = len(lines) - 1
    assert f"the policy has diverged: at step {step} its " in train.output
    assert f"from here with model.path={checkpoint_path(run, step - 2)} " in train.output
    assert [line["policy/nonfinite"] for line in lines[1:]] == [0] * (step - 1) + [1]
    assert steps == stored_steps(run) == list(range(1, step))
    for done in steps:
        for file in checkpoint_path(run, done).glob("*.safetensors"):
            assert all(weight.isfinite().all() for weight in load_file(file).values())
    assert read_manifest(run)["status"] == "diverged"
