"""What DeepSpeed does on a GPU around a checkpoint, on a CPU: its states sleep, are saved, wake up, and go on.

The engine, its sleep (runtime/zero/offload_states.py) and its checkpoints are DeepSpeed's, with OpenRLHF's settings;
one rank, whose GPU memory and host memory are one.
"""

from pathlib import Path

import pytest
import torch
from policy_rank import policy, update

FP32 = {"ds.grad_accum_dtype": "fp32"}
SLEEPS = pytest.mark.parametrize(
    "settings",
    [(1, {}), (2, {}), (3, {}), (3, FP32)],
    ids=["ZeRO 1", "ZeRO 2", "ZeRO 3", "ZeRO 3, float32 gradients"],
)


def asleep(settings, folder, checkpoint=None):
    """The policy actor for a ZeRO stage and flags."""
    zero_stage, flags = settings
    return policy(zero_stage, folder, checkpoint, flags=flags)


def train(actor, number):
    """One update, between waking up and going to sleep."""
    actor.reload_states()
    update(actor, number)
    actor.offload_states()


def weights(actor):
    """The float32 weights, on the rank that holds all of them."""
    optimizer = actor.actor_optim
    groups = getattr(optimizer, "fp32_partitioned_groups_flat", None)
    groups = optimizer.single_partition_of_fp32_groups if groups is None else groups
    return torch.cat([group.detach().clone().flatten() for group in groups])


@SLEEPS
def test_a_policy_that_is_saved_in_its_sleep_goes_on_as_if_it_had_not_been_saved(settings, tmp_path):
    undisturbed, saved = (asleep(settings, tmp_path / name) for name in ("undisturbed", "saved"))
    start = weights(saved)
    for number in range(3):
        for actor in (undisturbed, saved):
            train(actor, number)
        saved.save_checkpoint_to(str(tmp_path / f"step-{number}"), number)
    assert (weights(saved) - start).abs().max() > 1e-3
    assert torch.equal(weights(saved), weights(undisturbed))


@SLEEPS
def test_a_resume_from_a_sleeping_policys_checkpoint_makes_the_same_next_step(settings, tmp_path):
    first = asleep(settings, tmp_path)
    train(first, 0)
    first.save_checkpoint_to(str(tmp_path / "step-1"), 1)
    assert (
        saved_states(tmp_path / "step-1") == [{"exp_avg", "exp_avg_sq"}] * 2
    )  # of weights that decay, and the others
    train(first, 1)
    resumed = asleep(settings, tmp_path, tmp_path / "step-1")
    train(resumed, 1)
    assert torch.equal(weights(resumed), weights(first))


def saved_states(checkpoint):
    """Names of the optimizer's tensors in a checkpoint, for each group of weights; a buffer of sleep would be one."""
    (file,) = Path(checkpoint).glob("openrlhf/_actor/global_step1/*optim_states.pt")
    saved = torch.load(file, weights_only=False)["optimizer_state_dict"]
    states = saved.get("base_optimizer_state", saved.get("optimizer_state_dict"))["state"]
    return [
        {name for name, value in state.items() if torch.is_tensor(value) and value.ndim}
        for state in states.values()
    ]
