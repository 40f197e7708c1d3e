"""Where the time of the local engine's step goes, and how far from the time of its matrix products it is.

    OMP_NUM_THREADS=1 taskset -c 0 python benchmarks/local_step.py

First a run of laptop/quickstart: medians of its steps' parts, and what storing a step costs. Then generate + update
alone (80 prompts x 8 rollouts, KL term), of the built-in policy and of one four times as wide with random weights: the
share of each kind of kernel in a step's time (the rest is Python and torch's dispatch), and the share of the limit.
These are CPU seconds, which other programs on the machine disturb less. With `--model smollm2-135m --steps 3`: steps of
a pretrained model (`make smollm` first) instead.

The limit is the time of the floating-point operations that no step can do without (each prompt read once, backward
twice the forward, attention included) at the rate of a matrix product of this size, measured in the same run.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import transformers
from torch.profiler import ProfilerActivity, profile

from olr_cli import seeding
from olr_cli.data.chat import Message
from olr_cli.data.few_shot import few_shot_prompts
from olr_cli.engines.launch import launch
from olr_cli.engines.local.engine import LocalRunner, set_up_torch
from olr_cli.engines.local.grpo import Grpo
from olr_cli.engines.local.policy import Policy, shared_prefix
from olr_cli.engines.local.sampler import SampledRollouts, sample
from olr_cli.engines.models import policy_path
from olr_cli.engines.prompt_text import ChatFormat
from olr_cli.recipe.layers import load_recipe
from olr_cli.recipe.methods import METHODS
from olr_cli.recipe.sampling import Sampling
from olr_cli.recipe.sections import TrainSection
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.progress import Progress

MODEL = "builtin:addition-easier"
RECIPE = "laptop/quickstart"
LEARNING_RATE = 1e-6
CLIP = 0.2
WARM_UP_STEPS = 3

KINDS = {
    "matrix products": ("mm", "addmm", "bmm", "baddbmm"),
    "attention": (
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
    ),
    "moving data": (
        "cat",
        "copy_",
        "fill_",
        "zero_",
        "index",
        "index_put_",
        "repeat_interleave",
        "gather",
    ),
}
"""Kinds of kernels; one that is of none is elementwise or a reduction."""
LEAST_WORK = 5.0
"""Microseconds of a call; one that takes less was a view, or all dispatch."""


@dataclass(frozen=True)
class Setting:
    """What a step does."""

    prompts: list[str]
    rollouts: int
    max_new_tokens: int
    kl_weight: float
    model: str = MODEL

    def policy(self) -> Policy:
        """The model at the start, which takes prompts as plain text unless it is a toy."""
        policy = Policy.load(policy_path(self.model), device="cpu")
        if self.model != MODEL:
            ChatFormat.read("none").put_into(policy.tokenizer)
        return policy

    @property
    def rows(self) -> int:
        """Rollouts of one step."""
        return len(self.prompts) * self.rollouts


def arithmetic(prompts: int) -> list[str]:
    """Prompts of the built-in task."""
    numbers = iter(seeding.permutation(900, "benchmark prompts"))
    return [f"{100 + next(numbers)}+{100 + next(numbers)}=" for _ in range(prompts)]


def few_shot(prompts: int) -> list[str]:
    """Prompts of some 35 tokens, of which most are common to all."""
    return [
        prompt.messages[0].content
        for prompt in few_shot_prompts("products", prompts, 0, "train")
    ]


def long_prompts(prompts: int) -> list[str]:
    """Prompts of some 200 tokens with nothing in common."""
    numbers = iter(seeding.permutation(900, "benchmark prompts"))
    lines = [
        f"{100 + next(numbers)} + {100 + next(numbers)} = {next(numbers)}"
        for _ in range(16 * prompts)
    ]
    return ["\n".join(lines[16 * p : 16 * p + 16]) for p in range(prompts)]


def reward(text: str) -> float:
    """Nobody's work: a coin flip by the response."""
    return float(sum(text.encode()) % 2)


@dataclass
class Steps:
    """Generate + update, a step a call."""

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
            TrainSection(
                learning_rate=LEARNING_RATE,
                kl_weight=self.setting.kl_weight,
                clip=CLIP,
                mini_batch_prompts=len(self.setting.prompts),
            ),
            METHODS["grpo"].section(name="grpo"),
        )

    def step(self) -> None:
        """Generate and update once."""
        began = time.process_time()
        draws = [
            [
                seeding.key("benchmark", len(self.seconds), p, g)
                for g in range(self.setting.rollouts)
            ]
            for p in range(len(self.setting.prompts))
        ]
        ids = self.policy.encode(
            [(Message("user", prompt),) for prompt in self.setting.prompts]
        )
        sampled = sample(
            self.policy,
            ids,
            np.array(draws, dtype=np.uint64),
            Sampling(1.0, self.setting.max_new_tokens),
        )
        rewards_PG = torch.tensor(
            [[reward(text) for text in texts] for texts in sampled.texts_PG]
        )
        self.grpo.update(sampled, rewards_PG, [True] * len(ids))
        self.seconds.append(time.process_time() - began)
        self.sampled.append(sampled)
        self.teaches.append((rewards_PG != rewards_PG[:, :1]).any(dim=1))

    def needed_flops(self, step: int) -> float:
        """Operations that a step cannot do without; a rollout's last token is fed to nothing.

        What all prompts begin with, and equal beginnings of responses to a prompt, count once.
        """
        config, sampled = self.policy.model.config, self.sampled[step]
        modules = self.policy.model.modules()
        linear = sum(m.weight.numel() for m in modules if isinstance(m, torch.nn.Linear))
        head = self.policy.model.get_output_embeddings().weight.numel()
        head_width = (
            getattr(config, "head_dim", None)
            or config.hidden_size // config.num_attention_heads
        )
        width = config.num_attention_heads * head_width * config.num_hidden_layers
        shared = shared_prefix(sampled.prompts)

        def forward(read: int, responses: list[tuple[int, ...]]) -> float:
            """Of one prompt of so many tokens, and what is fed of its responses."""
            fed = {text[:end] for text in responses for end in range(1, len(text))}
            weights = (read - shared + len(fed)) * (linear - head) + (1 + len(fed)) * head
            attended = (read * (read + 1) - shared * (shared + 1)) // 2 + sum(
                read + len(text) for text in fed
            )
            return 2 * weights + 4 * width * attended

        beginning = 2 * shared * (linear - head) + 2 * width * shared * (shared + 1)
        texts_PG = [
            [tuple(tokens[:length]) for tokens, length in zip(group, lengths, strict=True)]
            for group, lengths in zip(
                sampled.tokens_PGT.tolist(), sampled.lengths_PG.tolist(), strict=True
            )
        ]
        forward_P = [
            forward(len(p), texts)
            for p, texts in zip(sampled.prompts, texts_PG, strict=True)
        ]
        if self.setting.kl_weight:
            return 5 * (
                beginning + sum(forward_P)
            )  # sampling, reference, forward, and twice that backward
        trained = [
            f
            for f, teaches in zip(forward_P, self.teaches[step].tolist(), strict=True)
            if teaches
        ]
        return 4 * beginning + sum(forward_P) + 3 * sum(trained)

    def gemm_rate(self) -> float:
        """Operations a second of a matrix product of the step's shape."""
        config = self.policy.model.config
        fed = self.sampled[-1].lengths_PG.float().mean().item() - 1
        return gemm_rate(
            round(self.setting.rows * fed), config.hidden_size, config.intermediate_size
        )

    def share_of_limit(self, steps: range, rate: float) -> float:
        """Median over the steps of the limit's time, at this rate of operations, over the step's."""
        return statistics.median(
            self.needed_flops(step) / rate / self.seconds[step] for step in steps
        )


def gemm_rate(rows: int, inner: int, columns: int) -> float:
    """Median operations a second of a matrix product, over about a second."""
    a, b = torch.randn(rows, inner), torch.randn(inner, columns)
    seconds: list[float] = []
    while sum(seconds) < 1 or len(seconds) < 5:
        began = time.process_time()
        a @ b
        seconds.append(time.process_time() - began)
    return 2 * rows * inner * columns / statistics.median(seconds)


def wider(times: int) -> Policy:
    """A policy like the built-in one but so many times as wide, with random weights."""
    policy = Policy.load(policy_path(MODEL), device="cpu")
    config = policy.model.config.to_dict()
    for name in (
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
    ):
        config[name] *= times
    torch.manual_seed(0)
    return Policy(
        transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**config)),
        policy.tokenizer,
        policy.device,
    )


def kernel_shares(steps: Steps, count: int) -> dict[str, float]:
    """Share of each kind of kernel in the time of so many steps, by the clock, as the profiler has it."""
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        began = time.perf_counter()
        for _ in range(count):
            steps.step()
        whole = time.perf_counter() - began
    shares = dict.fromkeys([*KINDS, "elementwise and reductions"], 0.0)
    for event in profiled.key_averages():
        name = event.key.removeprefix("aten::")
        if (
            not event.key.startswith("aten::")
            or event.self_cpu_time_total < LEAST_WORK * event.count
        ):
            continue
        kind = next(
            (kind for kind, names in KINDS.items() if name in names),
            "elementwise and reductions",
        )
        shares[kind] += event.self_cpu_time_total / 1e6 / whole
    return shares


def print_run(epochs: int | None) -> None:
    """Medians of the parts of a run's steps, held-out evaluation apart."""
    settings = [] if epochs is None else [f"train.epochs={epochs}"]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        launch(load_recipe(RECIPE, settings), run, LocalRunner, Progress())
        lines = [line for line in read_metrics(run) if line["step"]]
    plain = [line for line in lines if "time/evaluation" not in line]
    whole = statistics.median(line["time/step"] for line in plain)
    parts = sorted(
        {name for line in plain for name in line if name.startswith("time/")}
        - {"time/step"}
    )
    medians = {
        name.removeprefix("time/"): statistics.median(line[name] for line in plain)
        for name in parts
    }
    medians["metrics and the rest"] = whole - sum(medians.values())
    print(f"{RECIPE}, {len(lines)} steps, one without evaluation: {1e3 * whole:.0f} ms")
    for name, seconds in medians.items():
        print(f"  {name:<28}{1e3 * seconds:6.1f} ms  {seconds / whole:5.1%}")
    evaluation = statistics.median(
        line["time/evaluation"] for line in lines if "time/evaluation" in line
    )
    print(
        f"  held-out evaluation, every {len(lines) // (len(lines) - len(plain))} steps{1e3 * evaluation:8.0f} ms\n"
    )


def print_steps(
    name: str, policy: Policy, count: int, setting: Setting | None = None
) -> None:
    """Time, share of the limit, and kernels of one policy's steps."""
    steps = Steps(policy, setting or Setting(arithmetic(80), 8, 6, 1e-3))
    for _ in range(WARM_UP_STEPS + count):
        steps.step()
    measured = range(WARM_UP_STEPS, WARM_UP_STEPS + count)
    rate = steps.gemm_rate()
    seconds = statistics.median(steps.seconds[step] for step in measured)
    print(
        f"{name}: {1e3 * seconds:.0f} ms a step, {steps.setting.rows / seconds:.0f} rollouts/s"
    )
    print(
        f"  share of the limit: {steps.share_of_limit(measured, rate):.2f} ({rate / 1e9:.0f} GFLOP/s)"
    )
    shares = kernel_shares(steps, count)
    for kind, share in (shares | {"Python and dispatch": 1 - sum(shares.values())}).items():
        print(f"  {kind:<28}{share:5.0%}")
    print(flush=True)


def main() -> None:
    """Print the parts of a run's step, then the kernels of two policies' steps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, help="of the run; by default the recipe's")
    parser.add_argument(
        "--steps",
        type=int,
        default=20,
        help="of the built-in policy; a third of that of the wide one",
    )
    parser.add_argument(
        "--model", help="only steps of this policy, on 32 few-shot prompts: smollm2-135m"
    )
    arguments = parser.parse_args()
    if arguments.model:
        set_up_torch(load_recipe(RECIPE))
        setting = Setting(few_shot(32), 8, 4, 1e-3, arguments.model)
        print_steps(arguments.model, setting.policy(), arguments.steps, setting)
        return
    print_run(arguments.epochs)
    set_up_torch(load_recipe(RECIPE))
    print_steps(
        "built-in policy", Policy.load(policy_path(MODEL), device="cpu"), arguments.steps
    )
    print_steps("four times as wide", wider(4), -(-arguments.steps // 3))


if __name__ == "__main__":
    main()
