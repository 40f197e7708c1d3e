"""What DeepSpeed does on a GPU around a checkpoint, on a CPU: its states sleep, are saved, wake up, and go on.

The engine, its sleep (runtime/zero/offload_states.py) and its checkpoints are DeepSpeed's, with OpenRLHF's settings;
one rank, whose GPU memory and host memory are one.
"""

import os
from pathlib import Path

import pytest
import torch
from openrlhf.utils.config import hierarchize
from openrlhf.utils.deepspeed import DeepspeedStrategy

from olr_cli.engines.local.builtin import policy_path
from olr_cli.engines.openrlhf.flags import Places, arguments, openrlhf_parser, recipe_flags
from olr_cli.engines.openrlhf.policy import PolicyActor
from olr_cli.recipe.validation import validate

PATH = str(policy_path("addition-easier"))
SLEEPS = pytest.mark.parametrize("zero_stage", [1, 2, 3])


@pytest.fixture(autouse=True)
def variables(monkeypatch):
    """Leave the variables of a rank as they were."""
    for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, os.environ.get(name, ""))


def policy(zero_stage, folder, checkpoint=None, **flags):
    """The policy actor of a recipe for one GPU, with DeepSpeed's engine, but no vLLM to train for."""
    recipe = validate(
        {
            "train": {"learning_rate": 1e-2, "prompts_per_step": 1, "rollouts_per_prompt": 2},
            "engine": {
                "name": "openrlhf",
                "zero_stage": zero_stage,
                "micro_batch_samples": 1,
                "gradient_checkpointing": False,
                "flags": flags,
            },
        },
        "test",
    )
    words = recipe_flags(recipe, Places(PATH, "p", None, checkpoint, folder, 64), "sdpa", 0)
    args = hierarchize(openrlhf_parser().parse_args(arguments(words | {"vllm.sync_backend": "gloo"})))
    args.actor.eps_clip_low_high = (args.actor.eps_clip,) * 2  # as the command line goes on
    args.ckpt.path = args.ckpt.path or str(folder)
    strategy = DeepspeedStrategy(
        micro_train_batch_size=args.train.micro_batch_size,
        train_batch_size=args.train.batch_size,
        zero_stage=args.ds.zero_stage,
        args=args,
    )
    actor = PolicyActor(world_size=1, rank=0, master_addr="127.0.0.1", master_port=None)
    actor.init_model_from_pretrained(strategy, PATH, max_steps=10)
    return actor


def train(actor, number):
    """One update of two micro-batches, between waking up and going to sleep."""
    actor.reload_states()
    generator = torch.Generator().manual_seed(number)
    for _ in range(2):
        tokens = torch.randint(3, 12, (1, 16), generator=generator)
        log_probs = actor.actor(tokens, torch.ones(1, 15), torch.ones_like(tokens))
        actor.strategy.backward(-log_probs.mean(), actor.actor, actor.actor_optim)
        actor.strategy.optimizer_step(actor.actor_optim, actor.actor, actor.actor_scheduler)
    actor.offload_states()


def weights(actor):
    """The float32 weights, on the rank that holds all of them."""
    optimizer = actor.actor_optim
    groups = getattr(optimizer, "fp32_partitioned_groups_flat", None)
    groups = optimizer.single_partition_of_fp32_groups if groups is None else groups
    return torch.cat([group.detach().clone().flatten() for group in groups])


@SLEEPS
def test_a_policy_that_is_saved_in_its_sleep_goes_on_as_if_it_had_not_been_saved(zero_stage, tmp_path):
    undisturbed, saved = (policy(zero_stage, tmp_path / name) for name in ("undisturbed", "saved"))
    start = weights(saved)
    for number in range(3):
        for actor in (undisturbed, saved):
            train(actor, number)
        saved.save_checkpoint_to(str(tmp_path / f"step-{number}"), number)
    assert (weights(saved) - start).abs().max() > 1e-3
    assert torch.equal(weights(saved), weights(undisturbed))


@SLEEPS
def test_a_resume_from_a_sleeping_policys_checkpoint_makes_the_same_next_step(zero_stage, tmp_path):
    first = policy(zero_stage, tmp_path)
    train(first, 0)
    first.save_checkpoint_to(str(tmp_path / "step-1"), 1)
    train(first, 1)
    resumed = policy(zero_stage, tmp_path, tmp_path / "step-1")
    train(resumed, 1)
    assert torch.equal(weights(resumed), weights(first))


@SLEEPS
def test_a_checkpoint_holds_two_moments_of_every_weight_and_no_host_buffer(zero_stage, tmp_path):
    actor = policy(zero_stage, tmp_path)
    train(actor, 0)
    actor.save_checkpoint_to(str(tmp_path), 1)
    (file,) = Path(tmp_path).glob("openrlhf/_actor/global_step1/*optim_states.pt")
    saved = torch.load(file, weights_only=False)["optimizer_state_dict"]
    states = saved.get("base_optimizer_state", saved.get("optimizer_state_dict"))["state"]
    assert len(states) == 2  # weights that decay, and those that do not
    for state in states.values():
        assert {name for name, value in state.items() if torch.is_tensor(value) and value.ndim} == {
            "exp_avg",
            "exp_avg_sq",
        }
