"""OpenRLHF's policy actor, with checkpoints that are also models in Hugging Face layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ray
from openrlhf.trainer.ray import ppo_actor
from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer, PolicyModelActor
from openrlhf.utils.distributed_util import torch_dist_barrier_and_cuda_sync

OPENRLHF_PART = "openrlhf"
"""Folder of a checkpoint that holds DeepSpeed's state; OpenRLHF finds it there by `--ckpt.path`."""


class PolicyUpdate(ActorPPOTrainer):  # type: ignore[misc]
    """OpenRLHF's update, whose means over tokens are means over tokens."""

    def training_step(
        self, experience: Any, kl_ctl: float, step: int, loss_batch_info: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """OpenRLHF's, for one micro-batch.

        It reports these sums over tokens divided by the tokens of the whole mini-batch, and averages them weighted by
        each micro-batch's tokens, so that long micro-batches count twice.
        """
        status: dict[str, Any] = super().training_step(experience, kl_ctl, step, loss_batch_info)
        tokens = status["num_action_tokens"]
        if loss_batch_info is not None and tokens:
            correction = float(loss_batch_info["batch_num_tokens"]) / loss_batch_info["dp_size"] / tokens
            for name in ("policy_loss", "entropy_loss", "kl"):
                if name in status["metrics"]:
                    status["metrics"][name] = status["metrics"][name] * correction
        return status


class PolicyActor(PolicyModelActor.__ray_metadata__.modified_class):  # type: ignore[misc]
    """One rank of the policy."""

    def init_model_from_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """OpenRLHF's, with our update."""
        ppo_actor.ActorPPOTrainer = PolicyUpdate
        super().init_model_from_pretrained(*args, **kwargs)

    def save_checkpoint_to(self, folder: str, step: int) -> None:
        """Write this rank's part of the checkpoint after `step` steps into `folder`; all ranks at once."""
        self.strategy.save_model(self.actor, self.tokenizer, folder)
        _drop_offload_buffers(self.actor.model)
        self.strategy.save_ckpt(
            self.actor.model,
            str(Path(folder, OPENRLHF_PART, "_actor")),
            f"global_step{step}",
            client_state={"global_step": step},
        )
        torch_dist_barrier_and_cuda_sync()

    def save_model(self) -> None:
        """Nothing: the last checkpoint is the model."""


def _drop_offload_buffers(engine: Any) -> None:
    """Leave the buffers of sleeping states out of a checkpoint.

    With ZeRO 3 DeepSpeed keeps them among the optimiser's states. Loaded again they would lie on the GPU, and the
    states that sleep in them too.
    """
    states = getattr(getattr(engine.optimizer, "optimizer", None), "state", {})
    for state in states.values():
        for name in [name for name in state if name.endswith("_offload_buffer")]:
            del state[name]


def policy_actor() -> object:
    """The Ray actor class that takes the place of OpenRLHF's."""
    return ray.remote(num_gpus=1)(PolicyActor)
