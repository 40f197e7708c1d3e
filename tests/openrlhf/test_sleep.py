"""What DeepSpeed does on a GPU around a checkpoint, on a CPU: its states sleep, are saved, wake up, and go on.

The engine, its sleep (runtime/zero/offload_states.py) and its checkpoints are DeepSpeed's, with OpenRLHF's settings;
one rank, whose GPU memory and host memory are one.
"""

import pytest
import torch
from policy_rank import policy, update
from transformers import AutoConfig, GenerationConfig

from olr_cli.engines.local.loading import end_ids

IN_EVERY_RUN = {
    "ZeRO 2": (2, {}),
    "ZeRO 3, float32 gradients": (3, {"ds.grad_accum_dtype": "fp32"}),
}
WITH_LONG = {"ZeRO 1": (1, {}), "ZeRO 3": (3, {})}


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


@pytest.mark.parametrize("settings", IN_EVERY_RUN | WITH_LONG)
def test_a_policy_that_is_saved_in_its_sleep_goes_on_and_is_resumed_as_if_it_had_not_been_saved(
    settings, tmp_path, is_long
):
    if settings in WITH_LONG and not is_long:
        pytest.skip("with --long: a quarter of a minute each")
    zero_stage, flags = (IN_EVERY_RUN | WITH_LONG)[settings]
    undisturbed, saved = (
        policy(zero_stage, tmp_path / name, flags=flags) for name in ("one", "two")
    )
    start = weights(saved)
    for number in range(3):
        for actor in (undisturbed, saved):
            train(actor, number)
        saved.save_checkpoint_to(str(tmp_path / f"step-{number + 1}"), number + 1)
    assert (weights(saved) - start).abs().max() > 1e-3
    assert torch.equal(weights(saved), weights(undisturbed))
    ends = GenerationConfig.from_pretrained(tmp_path / "step-1").eos_token_id
    assert ends == end_ids(saved.actor.model.module, saved.tokenizer)
    assert AutoConfig.from_pretrained(tmp_path / "step-1").use_cache
    assert not saved.actor.model.module.config.use_cache  # it trains on
    # Of weights that decay, and the others; a buffer of sleep would be one more.
    assert saved_states(tmp_path / "step-2", 2) == [{"exp_avg", "exp_avg_sq"}] * 2
    resumed = policy(zero_stage, tmp_path / "three", tmp_path / "step-2", flags=flags)
    train(resumed, 2)
    assert torch.equal(weights(resumed), weights(saved))


def saved_states(checkpoint, step):
    """Names of the optimizer's tensors in a checkpoint, for each group of weights."""
    (file,) = checkpoint.glob(f"openrlhf/_actor/global_step{step}/*optim_states.pt")
    saved = torch.load(file, weights_only=False)["optimizer_state_dict"]
    states = saved.get("base_optimizer_state", saved.get("optimizer_state_dict"))["state"]
    return [
        {name for name, value in state.items() if torch.is_tensor(value) and value.ndim}
        for state in states.values()
    ]
