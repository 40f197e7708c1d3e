"""Speed of the local engine: rollouts per second of generate + update, next to TRL's GRPOTrainer.

Both train the same built-in policy in one process, alternating step by step on one thread: same prompts, rollouts,
length limit, float32, one optimiser step over all rollouts, once without and once with the KL term. Timed is the way
from prompt text to changed weights, decoded responses and a trivial reward included, TRL's data loading left out.
Without KL term our update leaves out groups of equal rewards, which have no gradient; their share is printed, and
they are not part of the limit.

Printed: medians, the median of the paired ratios, and the share of the matrix-multiply limit that our step reaches.
The limit is the time of the floating-point operations that no step can do without (each prompt read once, backward
twice the forward, attention included) at the rate of a matrix product of this size, measured in the same run.

TRL is a dependency of this file only. To install and run it (no GPU needed, two minutes):

    python3.11 -m venv build/benchmark
    build/benchmark/bin/pip install --editable '.[benchmark]' datasets
    OMP_NUM_THREADS=1 build/benchmark/bin/python benchmarks/local_engine.py
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from olr_cli import seeding
from olr_cli.data.prompts import Message
from olr_cli.engines.local.builtin import policy_path
from olr_cli.engines.local.grpo import Grpo
from olr_cli.engines.local.policy import Policy
from olr_cli.engines.local.sampler import SampledRollouts, sample

MODEL = "builtin:addition-easier"
LEARNING_RATE = 1e-6
CLIP = 0.2
WARM_UP_STEPS = 3


@dataclass(frozen=True)
class Setting:
    """What both sides do in a step."""

    prompts: list[str]
    rollouts: int
    max_new_tokens: int
    steps: int
    kl_weight: float

    @property
    def rows(self) -> int:
        """Rollouts of one step."""
        return len(self.prompts) * self.rollouts


def reward(text: str) -> float:
    """Neither side's work: a coin flip by the response."""
    return float(sum(text.encode()) % 2)


@dataclass
class Ours:
    """The local engine, a step a call."""

    policy: Policy
    setting: Setting
    seconds: list[float] = field(default_factory=list)
    sampled: list[SampledRollouts] = field(default_factory=list)
    teaches: list[torch.Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Set up the update as `olr train` does."""
        self.grpo = Grpo(
            self.policy,
            self.policy.frozen_copy() if self.setting.kl_weight else None,
            learning_rate=LEARNING_RATE,
            kl_weight=self.setting.kl_weight,
            clip=CLIP,
            mini_batch_prompts=len(self.setting.prompts),
            temperature=1.0,
        )

    def step(self) -> None:
        """Generate and update once."""
        began = time.perf_counter()
        draws = [
            [seeding.key("benchmark", len(self.seconds), p, g) for g in range(self.setting.rollouts)]
            for p in range(len(self.setting.prompts))
        ]
        ids = self.policy.encode([(Message("user", prompt),) for prompt in self.setting.prompts])
        sampled = sample(
            self.policy, ids, np.array(draws, dtype=np.uint64), max_new_tokens=self.setting.max_new_tokens
        )
        rewards_PG = torch.tensor([[reward(text) for text in texts] for texts in sampled.texts_PG])
        self.grpo.update(sampled, rewards_PG, [True] * len(ids))
        self.seconds.append(time.perf_counter() - began)
        self.sampled.append(sampled)
        self.teaches.append((rewards_PG != rewards_PG[:, :1]).any(dim=1))


class Alternate(TrainerCallback):
    """Times TRL's steps and lets us take one of ours after each."""

    def __init__(self, ours: Ours) -> None:
        self.ours = ours
        self.seconds: list[float] = []
        self.response_length = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """TRL is about to generate."""
        self.began = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """TRL has updated."""
        self.seconds.append(time.perf_counter() - self.began)
        self.ours.step()


def alternate(setting: Setting) -> Alternate:
    """Run both for the same number of steps."""
    both = Alternate(Ours(Policy.load(policy_path(MODEL), device="cpu"), setting))
    theirs = Policy.load(policy_path(MODEL), device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=theirs.model,
            processing_class=theirs.tokenizer,
            train_dataset=Dataset.from_dict({"prompt": setting.prompts}),
            reward_funcs=lambda completions, **_: [reward(text) for text in completions],
            callbacks=[both],
            args=GRPOConfig(
                output_dir=folder,
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                per_device_train_batch_size=setting.rows,
                generation_batch_size=setting.rows,
                num_generations=setting.rollouts,
                max_completion_length=setting.max_new_tokens,
                max_steps=setting.steps + WARM_UP_STEPS,
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
        both.response_length = trainer.state.log_history[-1]["completions/mean_length"]
    return both


def needed_flops(ours: Ours, step: int) -> float:
    """Operations that a step cannot do without; a rollout's last token is fed to nothing."""
    model, sampled = ours.policy.model, ours.sampled[step]
    linear = sum(m.weight.numel() for m in model.modules() if isinstance(m, torch.nn.Linear))
    head = model.get_output_embeddings().weight.numel()
    width = model.config.num_attention_heads * model.config.head_dim * model.config.num_hidden_layers

    read_P = torch.tensor([len(prompt) for prompt in sampled.prompts])
    fed_PG = sampled.lengths_PG - 1
    weights_P = (read_P + fed_PG.sum(1)) * (linear - head) + (1 + fed_PG.sum(1)) * head
    attended_P = read_P * (read_P + 1) // 2 + (fed_PG * read_P[:, None] + fed_PG * (fed_PG + 1) // 2).sum(1)
    forward_P = 2 * weights_P + 4 * width * attended_P
    if ours.setting.kl_weight:
        return float(5 * forward_P.sum())  # sampling, reference, forward, and twice that backward
    return float(forward_P.sum() + 3 * forward_P[ours.teaches[step]].sum())


def gemm_rate(rows: int, inner: int, columns: int) -> float:
    """Median operations a second of a matrix product, over about a second."""
    a, b = torch.randn(rows, inner), torch.randn(inner, columns)
    seconds: list[float] = []
    while sum(seconds) < 1 or len(seconds) < 5:
        began = time.perf_counter()
        a @ b
        seconds.append(time.perf_counter() - began)
    return 2 * rows * inner * columns / statistics.median(seconds)


def report(both: Alternate) -> None:
    """Print one setting's figures."""
    setting, config = both.ours.setting, both.ours.policy.model.config
    steps = range(WARM_UP_STEPS, WARM_UP_STEPS + setting.steps)
    ours, theirs = ([seconds[step] for step in steps] for seconds in (both.ours.seconds, both.seconds))
    length = statistics.mean(both.ours.sampled[step].lengths_PG.float().mean().item() for step in steps)
    teaching = statistics.mean(both.ours.teaches[step].float().mean().item() for step in steps)
    rate = gemm_rate(round(setting.rows * (length - 1)), config.hidden_size, config.intermediate_size)
    square = gemm_rate(2048, 2048, 2048)
    flops = [needed_flops(both.ours, step) for step in steps]
    ratio = statistics.median(t / o for t, o in zip(theirs, ours, strict=True))
    share = statistics.median(f / rate / o for f, o in zip(flops, ours, strict=True))

    print(f"KL weight {setting.kl_weight:g}: {setting.steps} steps, {setting.rows} rollouts each")
    print(f"  response tokens: {length:.2f}, TRL's {both.response_length:.2f}")
    print(f"  groups of equal rewards: {1 - teaching:.0%}")
    for name, seconds in (("local engine", ours), ("TRL", theirs)):
        median = statistics.median(seconds)
        print(f"  {name}: {setting.rows / median:.0f} rollouts/s, {1e3 * median:.0f} ms a step")
    print(f"  paired ratio: {ratio:.2f}")
    print(
        f"  matrix product: {rate / 1e9:.0f} GFLOP/s at the step's shape, {square / 1e9:.0f} at 2048 x 2048"
    )
    print(f"  share of the limit: {share:.2f}, {statistics.mean(flops) / 1e9:.2f} GFLOP a step\n", flush=True)


def main() -> None:
    """Measure without and with the KL term."""
    parser = argparse.ArgumentParser(description="The local engine's speed next to TRL's GRPOTrainer.")
    parser.add_argument("--prompts", type=int, default=80)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=6)
    parser.add_argument("--steps", type=int, default=40)
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    numbers = iter(seeding.permutation(900, "benchmark prompts"))
    prompts = [f"{100 + next(numbers)}+{100 + next(numbers)}=" for _ in range(arguments.prompts)]
    for kl_weight in (0.0, 1e-3):
        setting = Setting(prompts, arguments.rollouts, arguments.max_new_tokens, arguments.steps, kl_weight)
        report(alternate(setting))


if __name__ == "__main__":
    main()
