"""The local engine on one GPU: tokens generated and trained a second, and the most memory that torch had meanwhile.

    python benchmarks/gpu.py --out FOLDER                  five minutes of one card
    python benchmarks/gpu.py --model tiny --prompts 4 --rollouts 4 --new-tokens 16 --long 64     a CPU tries it

Through the engine itself (`sample`, `Grpo`), with a Qwen3-0.6B of random weights that is made here. A random policy
hardly ever ends a response, so every response has all its tokens. Each line is printed, and appended to gpu.jsonl, as
soon as it is known, and nothing begins after `--until` seconds. Beside the engine stands one forward and backward pass
of the bare model in bfloat16 weights over one long sequence, which is what card and library allow.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from make_toys import build_tokenizer

from olr_cli import seeding
from olr_cli.engines.local.grpo import Grpo
from olr_cli.engines.local.policy import Policy
from olr_cli.engines.local.sampler import SampledRollouts, sample
from olr_cli.recipe.methods import PlainMethod
from olr_cli.recipe.sections import TrainSection

SHAPES = {
    "qwen3-0.6b": {
        "vocab_size": 151_936,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
    },
    "tiny": {
        "vocab_size": 16_384,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
    },
}
BEGAN = time.perf_counter()


def random_policy(name: str, dtype: torch.dtype) -> Policy:
    """A Qwen3 of this shape; as in the small published ones, the LM head is the embedding."""
    shape = SHAPES[name]
    heads = shape["hidden_size"] // 64
    config = transformers.Qwen3Config(
        **shape,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        head_dim=128,
        max_position_embeddings=40_960,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with device:
        model = transformers.Qwen3ForCausalLM(config)
    return Policy(model, build_tokenizer(40_960), device, dtype)


class Log:
    """Lines on the screen and in a file, at once."""

    def __init__(self, folder: Path, until: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file, self.until = folder / "gpu.jsonl", until

    def __call__(self, what: str, **values: Any) -> None:
        """Say what was measured."""
        values = {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in values.items()
        }
        at = round(time.perf_counter() - BEGAN, 1)
        print(
            f"{at:6.1f} s  {what:<36}",
            *(f"{name}={value}" for name, value in values.items()),
            flush=True,
        )
        with self.file.open("a") as file:
            file.write(json.dumps({"at": at, "what": what, **values}) + "\n")

    def measure(
        self, what: str, work: Callable[[], Any], tokens: int, **values: Any
    ) -> None:
        """Time `work` on so many tokens, twice: the first time has what is set up once. A failure is said too."""
        for lap in (1, 2):
            if time.perf_counter() - BEGAN > self.until:
                return self(what, **values, skipped="no time left")
            try:
                seconds, peak = timed(work)
            except (RuntimeError, torch.OutOfMemoryError) as error:
                return self(
                    what,
                    **values,
                    failed=f"{type(error).__name__}: {str(error).splitlines()[0][:160]}",
                )
            self(
                what,
                **values,
                lap=lap,
                seconds=seconds,
                tokens_s=tokens / seconds,
                peak_gb=peak,
            )


def timed(work: Callable[[], Any]) -> tuple[float, float | None]:
    """Seconds, and the most GB that torch had meanwhile."""
    gc.collect()
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    if on_gpu:
        torch.cuda.synchronize()
    return (
        time.perf_counter() - began,
        torch.cuda.max_memory_allocated() / 1e9 if on_gpu else None,
    )


def keys_of(prompts: int, rollouts: int) -> Any:
    """One key per rollout."""
    keys = [
        [seeding.key("benchmark", p, g) for g in range(rollouts)] for p in range(prompts)
    ]
    return np.array(keys, dtype=np.uint64)


def given(
    policy: Policy, prompts: list[list[int]], rollouts: int, tokens: int
) -> SampledRollouts:
    """Responses that nobody sampled, for an update of a known number of tokens."""
    shape, device = (len(prompts), rollouts), policy.device
    drawn = torch.randint(
        4, 90, (*shape, tokens), generator=torch.Generator().manual_seed(1)
    )
    return SampledRollouts(
        prompts=prompts,
        tokens_PGT=drawn.to(device),
        lengths_PG=torch.full(shape, tokens, device=device),
        truncated_PG=torch.ones(shape, dtype=torch.bool, device=device),
        logprobs_PGT=torch.full((*shape, tokens), -12.0, device=device),
        entropy_PG=torch.zeros(shape, device=device),
        self_certainty_PGT=torch.zeros(*shape, tokens, device=device),
        texts_PG=[[""] * rollouts for _ in prompts],
    )


def generate(
    log: Log, policy: Policy, prompts: list[list[int]], rollouts: int, new: int
) -> None:
    """So many tokens of each rollout of some prompts."""
    keys = keys_of(len(prompts), rollouts)
    work = partial(sample, policy, prompts, keys, max_new_tokens=new)
    log.measure("generate", work, keys.size * new, rows=keys.size, new=new)


def update(
    log: Log, grpo: Grpo, prompts: list[list[int]], rollouts: int, tokens: int
) -> None:
    """An optimiser step on rollouts of so many tokens."""
    some = given(grpo.policy, prompts, rollouts, tokens)
    advantages = torch.randn(
        len(prompts), rollouts, generator=torch.Generator().manual_seed(2)
    )
    work = partial(grpo.update, some, advantages, [True] * len(prompts))
    shape = f"{len(prompts)} x {rollouts} x {tokens}"
    log.measure("update", work, len(prompts) * rollouts * tokens, shape=shape)


def bare(log: Log, policy: Policy, tokens: int) -> None:
    """One forward and backward pass of the same weights in bfloat16, activations computed twice, loss in pieces."""
    model = policy.model.to(torch.bfloat16).train()
    model.set_attn_implementation("sdpa")
    model.gradient_checkpointing_enable({"use_reentrant": False})
    said_1T = torch.randint(4, 90, (1, tokens), device=policy.device)

    def once() -> None:
        hidden_1TD = model.model(input_ids=said_1T, use_cache=False).last_hidden_state
        cut_1TD = hidden_1TD.detach().requires_grad_()
        for piece, said in zip(
            cut_1TD.split(2048, dim=1), said_1T.split(2048, dim=1), strict=True
        ):
            logits_TV = model.lm_head(piece)[0].float()
            torch.nn.functional.cross_entropy(
                logits_TV, said[0], reduction="sum"
            ).backward()
        hidden_1TD.backward(cut_1TD.grad)

    log.measure("bare forward and backward", once, tokens)


def main() -> None:
    """Run as a program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("build/gpu"))
    parser.add_argument("--model", default="qwen3-0.6b", choices=list(SHAPES))
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=512)
    parser.add_argument(
        "--long", type=int, default=16_384, help="tokens of one sequence alone"
    )
    parser.add_argument(
        "--micro-batch-tokens", type=int, help="as engine.micro_batch_tokens"
    )
    parser.add_argument(
        "--gradient-checkpointing",
        action="store_true",
        help="as engine.gradient_checkpointing",
    )
    parser.add_argument(
        "--memory", type=float, help="GB that torch may have, as if the card had no more"
    )
    parser.add_argument(
        "--until", type=float, default=320, help="begin nothing after so many seconds"
    )
    of = parser.parse_args()
    log, on_gpu = Log(of.out, of.until), torch.cuda.is_available()
    card = torch.cuda.get_device_name() if on_gpu else "cpu"
    log(
        "machine", card=card, torch=torch.__version__, transformers=transformers.__version__
    )
    if of.memory and on_gpu:
        torch.cuda.set_per_process_memory_fraction(
            of.memory * 1e9 / torch.cuda.mem_get_info()[1]
        )
    policy = random_policy(of.model, getattr(torch, of.dtype))
    if of.gradient_checkpointing:
        policy.recompute()
    log("policy", weights=policy.model.num_parameters(), dtype=of.dtype)
    draw = np.random.default_rng(0)
    prompts = [draw.integers(4, 90, of.prompt_tokens).tolist() for _ in range(of.prompts)]
    few = max(8, of.new_tokens // 8)
    for new in (few, of.new_tokens):
        generate(log, policy, prompts, of.rollouts, new)
    settings = TrainSection(
        learning_rate=1e-6, kl_weight=0.0, mini_batch_prompts=len(prompts)
    )
    grpo = Grpo(
        policy,
        None,
        settings,
        PlainMethod(name="grpo"),
        micro_batch_tokens=of.micro_batch_tokens,
    )
    log("update", tokens_of_a_pass=grpo.micro_batch_tokens)
    for some, rollouts, tokens in (
        (8, of.rollouts, few),
        (8, of.rollouts, of.new_tokens),
        (1, 1, of.long),
    ):
        update(log, grpo, prompts[:some], rollouts, tokens)
    del grpo
    bare(log, policy, of.long)
    log("end")


if __name__ == "__main__":
    main()
