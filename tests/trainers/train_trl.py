"""A training with TRL that may be killed after some step: OUT DATA POLICY SETTINGS (JSON) [kill STEP | resume]."""

import json
import os
import sys

import torch
from datasets import load_dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from olr_cli.trainers.trl import OlrReward

RECIPE = {"method": {"warmup_epochs": 1, "slope_threshold": 0.0}}


class Kill(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            os._exit(9)


def make_trainer(out, data, policy, settings, callbacks=(), recipe=None, reward=None):
    """A trainer of the built-in policy and its reward; an epoch of 16 prompts has two steps of two micro-batches."""
    torch.set_num_threads(1)
    reward = reward or OlrReward(recipe={**RECIPE, **(recipe or {})})
    config = {
        "output_dir": str(out),
        "num_train_epochs": 3,
        "per_device_train_batch_size": 16,
        "gradient_accumulation_steps": 2,
        "num_generations": 4,
        "max_completion_length": 6,
        "learning_rate": 1e-3,
        "shuffle_dataset": False,  # on a resume, TRL shuffles another way
        "save_steps": 3,
        "logging_steps": 1,
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
    }
    dataset = (
        load_dataset("parquet", data_files=str(data), split="train")
        if isinstance(data, str | os.PathLike)
        else data
    )
    evaluation = settings.pop("eval_dataset", None)
    return GRPOTrainer(
        str(policy),
        reward_funcs=reward,
        callbacks=[reward, *callbacks],
        args=GRPOConfig(**{**config, **settings}),
        train_dataset=dataset,
        eval_dataset=evaluation,
    )


if __name__ == "__main__":
    out, data, policy, settings, *rest = sys.argv[1:]
    kill = [Kill(int(rest[1]))] if rest[:1] == ["kill"] else []
    make_trainer(out, data, policy, json.loads(settings), kill).train(
        resume_from_checkpoint=rest == ["resume"]
    )
