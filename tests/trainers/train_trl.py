"""Training with TRL on the built-in policy, in this process or in one that is killed after a step."""

import os
import socket

import torch
from datasets import load_dataset
from forks import fork, preload, status
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from olr_cli.engines.models import policy_path
from olr_cli.trainers.trl import OlrReward

# The fork server then imports TRL once, before the first process.
preload(__name__)

RECIPE = {"method": {"warmup_epochs": 1, "slope_threshold": 0.0}}


class Kill(TrainerCallback):
    """A callback of the trainer that kills the process at the end of a step, as `kill -9` would."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            # Like kill -9: no exit handler runs, and no last checkpoint is written.
            os._exit(9)


def make_trainer(out, data, settings, callbacks=(), recipe=None, reward=None, adapter=None):
    """Return TRL's GRPOTrainer for the built-in policy; an epoch of 16 prompts has two steps of two micro-batches.

    Args:
        out: folder for its output.
        data: a Parquet file of prompts, or a data set.
        settings: changes to GRPOConfig, and ``eval_dataset``, which is removed from it.
        callbacks: further callbacks.
        recipe: changes to olr's recipe.
        reward: the reward; None: an `OlrReward`.
        adapter: configuration of a PEFT adapter.
    """
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
        "shuffle_dataset": False,  # after a resume, TRL shuffles differently
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
        str(policy_path("builtin:addition-easier")), reward_funcs=reward, callbacks=[reward, *callbacks],
        args=GRPOConfig(**{**config, **settings}), train_dataset=dataset, eval_dataset=evaluation,
        peft_config=adapter,
    )  # fmt: skip


def train(out, data, settings=None, *, kill=None, resume=False, ranks=1):
    """Train with TRL in a process per rank; return True if all finished, and False if a step `kill` ended them.

    `resume` continues from the last checkpoint. The other arguments are those of `make_trainer`. A rank that fails
    otherwise fails the test.
    """
    # The kernel chooses a port that is free now, and the ranks meet there a moment later.
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    processes = [
        fork(_train, out, data, settings or {}, kill, resume, rank, ranks, port)
        for rank in range(ranks)
    ]
    codes = {status(process) for process in processes}
    assert codes <= {0, 9}, (out / "log0.txt").read_text()[-4000:]
    return codes == {0}


def _train(out, data, settings, kill, resume, rank, ranks, port):
    """Train as number `rank` of `ranks` in this process, which was forked for it; output goes to log<rank>.txt."""
    with (out / f"log{rank}.txt").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    if ranks > 1:
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks}
        place |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in place.items()})
    callbacks = [] if kill is None else [Kill(kill)]
    make_trainer(out, data, settings, callbacks).train(resume_from_checkpoint=resume)
