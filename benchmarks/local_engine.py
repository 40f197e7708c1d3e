"""Speed of the local engine: rollouts per second of generate + update, next to TRL's GRPOTrainer.

Each trains the same built-in policy in a process of its own, as its users have it, and both take turns, a step each, on
one thread: same prompts, rollouts, length limit, float32, one optimiser step over all rollouts, once without and once
with the KL term. Timed is the way from prompt text to changed weights, decoded responses and a trivial reward included,
TRL's data loading left out. Without KL term our update leaves out groups of equal rewards, which have no gradient;
their share is printed, and they are not part of the limit.

Printed, of CPU seconds, which other programs on the machine disturb less: medians, the median of the paired ratios, and
the share of the matrix-multiply limit that our step reaches. The limit is the time of the floating-point operations
that no step can do without (each prompt read once, backward twice the forward, attention included) at the rate of a
matrix product of this size, measured in the same run.

TRL is a dependency of this file only. To install and run it (no GPU needed, two minutes):

    python3.11 -m venv build/benchmark
    build/benchmark/bin/pip install --editable '.[benchmark]' datasets
    OMP_NUM_THREADS=1 build/benchmark/bin/python benchmarks/local_engine.py

A pretrained model (`make smollm` first), as docs/results/real-model.md has it:

    build/benchmark/bin/python benchmarks/local_engine.py --model smollm2-135m --prompts 32 --max-new-tokens 4 --steps 5
    … --model smollm2-135m --long --prompts 2 --max-new-tokens 50 --steps 3
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from typing import Any

import torch
from datasets import Dataset
from local_step import (
    CLIP,
    LEARNING_RATE,
    MODEL,
    RECIPE,
    WARM_UP_STEPS,
    Setting,
    Steps,
    arithmetic,
    few_shot,
    gemm_rate,
    long_prompts,
    reward,
)
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PrinterCallback,
    TrainerCallback,
)
from trl import GRPOConfig, GRPOTrainer

from olr_cli.engines.local.engine import set_up_torch
from olr_cli.engines.models import policy_path
from olr_cli.recipe.layers import load_recipe


class TakingTurns(TrainerCallback):
    """Lets TRL take a step when it is asked to, and tells how many CPU seconds the step took."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """TRL is about to generate."""
        self.pipe.recv()
        self.began = time.process_time()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """TRL has updated."""
        self.pipe.send(time.process_time() - self.began)


def train_with_trl(setting: Setting, steps: int, threads: int, pipe: Connection) -> None:
    """Take so many steps, one whenever the pipe says so; in the end say the mean length of a response."""
    torch.set_num_threads(threads)
    folder = policy_path(setting.model)
    with tempfile.TemporaryDirectory() as output:
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
            processing_class=AutoTokenizer.from_pretrained(folder),
            train_dataset=Dataset.from_dict({"prompt": setting.prompts}),
            reward_funcs=lambda completions, **_: [reward(text) for text in completions],
            callbacks=[TakingTurns(pipe)],
            args=GRPOConfig(
                output_dir=output,
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                per_device_train_batch_size=setting.rows,
                generation_batch_size=setting.rows,
                num_generations=setting.rollouts,
                max_completion_length=setting.max_new_tokens,
                max_steps=steps,
                learning_rate=LEARNING_RATE,
                lr_scheduler_type="constant",
                beta=setting.kl_weight,
                epsilon=CLIP,
                loss_type="bnpo",  # the mean over response tokens, as ours
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                disable_tqdm=True,
            ),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        pipe.send((trainer.state.log_history[-1]["completions/mean_length"], peak_memory()))


def peak_memory() -> float:
    """The most memory that this process has had, in gigabytes; of ours it grows with each setting that is measured."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def measure(setting: Setting, count: int, warm_up: int) -> None:
    """Let both take turns, and print what came of it."""
    steps = warm_up + count
    pipe, its_end = multiprocessing.Pipe()
    trl = multiprocessing.get_context("spawn").Process(
        target=train_with_trl,
        args=(setting, steps, torch.get_num_threads(), its_end),
        daemon=True,
    )
    trl.start()
    its_end.close()
    ours, theirs = Steps(setting.policy(), setting), []
    for _ in range(steps):
        ours.step()
        pipe.send("your turn")
        theirs.append(pipe.recv())
    memory = peak_memory()
    length_of_trl, memory_of_trl = pipe.recv()
    report(ours, theirs, length_of_trl, warm_up)
    print(f"  peak memory: {memory:.2f} GB, TRL's {memory_of_trl:.2f} GB\n", flush=True)
    trl.join()


def report(own: Steps, of_trl: list[float], length_of_trl: float, warm_up: int) -> None:
    """Print one setting's figures."""
    setting, steps = own.setting, range(warm_up, len(of_trl))
    ours, theirs = ([seconds[step] for step in steps] for seconds in (own.seconds, of_trl))
    length = statistics.mean(
        own.sampled[step].lengths_PG.float().mean().item() for step in steps
    )
    teaching = statistics.mean(own.teaches[step].float().mean().item() for step in steps)
    rate, square = own.gemm_rate(), gemm_rate(2048, 2048, 2048)
    ratio = statistics.median(t / o for t, o in zip(theirs, ours, strict=True))

    print(
        f"KL weight {setting.kl_weight:g}: {len(steps)} steps, {setting.rows} rollouts each"
    )
    tokens = statistics.mean(len(prompt) for prompt in own.sampled[0].prompts)
    print(f"  prompt tokens: {tokens:.0f}; threads: {torch.get_num_threads()}")
    print(f"  response tokens: {length:.2f}, TRL's {length_of_trl:.2f}")
    print(f"  groups of equal rewards: {1 - teaching:.0%}")
    for name, seconds in (("local engine", ours), ("TRL", theirs)):
        median = statistics.median(seconds)
        print(
            f"  {name}: {setting.rows / median:.3g} rollouts/s, {1e3 * median:.0f} ms a step"
        )
    print(f"  paired ratio: {ratio:.2f}")
    print(
        f"  matrix product: {rate / 1e9:.0f} GFLOP/s at the step's shape, {square / 1e9:.0f} at 2048 x 2048"
    )
    flops = statistics.mean(own.needed_flops(step) for step in steps)
    print(
        f"  share of the limit: {own.share_of_limit(steps, rate):.2f}, {flops / 1e9:.2f} GFLOP a step"
    )


def main() -> None:
    """Measure without and with the KL term."""
    parser = argparse.ArgumentParser(
        description="The local engine's speed next to TRL's GRPOTrainer."
    )
    parser.add_argument("--model", default=MODEL, help="a built-in policy")
    parser.add_argument(
        "--long",
        action="store_true",
        help="prompts of 200 tokens that have nothing in common",
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompts", type=int, default=80)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=6)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument(
        "--warm-up", type=int, default=WARM_UP_STEPS, help="steps before those that count"
    )
    parser.add_argument("--kl-weights", type=float, nargs="+", default=[0.0, 1e-3])
    arguments = parser.parse_args()
    set_up_torch(load_recipe(RECIPE, [f"engine.threads={arguments.threads}"]))
    make = (
        arithmetic
        if arguments.model == MODEL
        else long_prompts
        if arguments.long
        else few_shot
    )
    prompts = make(arguments.prompts)
    for kl_weight in arguments.kl_weights:
        setting = Setting(
            prompts,
            arguments.rollouts,
            arguments.max_new_tokens,
            kl_weight,
            arguments.model,
        )
        measure(setting, arguments.steps, arguments.warm_up)


if __name__ == "__main__":
    main()
