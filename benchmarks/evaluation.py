"""Samples a second of `olr evaluate`: in one pool, in chunks that drain, and by vLLM's own `generate` in one call.

OMP_NUM_THREADS=2 python benchmarks/evaluation.py builtin:addition-easier --backend vllm
OMP_NUM_THREADS=2 python benchmarks/evaluation.py MODEL --backend vllm --scale 0.2 --max-new-tokens 64 --rounds 1

Three benchmarks of sums with 1, 4 and 32 samples a problem. Graded and stored are the first two ways; the third returns
tokens alone. `--seeds` compares samples with seeds of their own to the engine's.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

from olr_cli.answers import Judge
from olr_cli.engines.local.builtin import is_builtin, policy_path
from olr_cli.evaluation.backends import Backend, Sampling, open_backend
from olr_cli.evaluation.benchmark import read_benchmark
from olr_cli.evaluation.evaluate import Progress, Settings, evaluate
from olr_cli.evaluation.folder import Target, Task
from olr_cli.evaluation.grading import grade
from olr_cli.evaluation.pool import pool_of

SHAPES = {"once": (600, 1), "four": (150, 4), "many": (30, 32)}
"""Problems, and samples of each."""


class Silent(Progress):
    """Shows nothing."""

    def say(self, sentence: str) -> None:
        """Nothing."""


def tasks_in(folder: Path, scale: float, settings: Settings) -> list[Task]:
    """The benchmarks, written to a folder."""
    benchmarks = []
    for place, (name, (problems, samples)) in enumerate(SHAPES.items()):
        rows = [
            {
                "question": f"{100 + number}+{17 * place + number}=",
                "answer": str(100 + 2 * number + 17 * place),
            }
            for number in range(max(1, int(problems * scale)))
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        entries = {"name": name, "samples": samples, "source": {"file": f"{name}.jsonl"}, "system": ""}
        (folder / f"{name}.yaml").write_text(
            "".join(f"{key}: {json.dumps(value)}\n" for key, value in entries.items())
        )
        benchmarks.append(read_benchmark(folder / f"{name}.yaml"))
    return settings.tasks(benchmarks)


def lacking(task: Task) -> dict[str, range]:
    """All samples of all problems, as they are missing at the beginning."""
    return {problem.prompt_id: range(task.samples) for problem in task.problems}


def in_one_pool(backend: Backend, tasks: list[Task], settings: Settings, folder: Path) -> None:
    """As `olr evaluate` does it."""
    evaluate(Target("model", folder, "model", {}), tasks, settings, lambda: nullcontext(backend), Silent())


def in_chunks(backend: Backend, tasks: list[Task], settings: Settings, folder: Path, size: int) -> None:
    """Benchmark after benchmark, chunks of `size` samples that drain before they are graded and stored."""
    target = Target("model", folder, "model", {})
    with Judge() as judge:
        for task in tasks:
            pool = pool_of(target, [task], [lacking(task)], settings.seed)
            step = max(1, size // task.samples)
            for first in range(0, len(pool), step):
                chunk = pool[first : first + step]
                rollouts_PG = backend.generate(
                    [entry.problem.messages for entry in chunk],
                    [list(entry.seeds.values()) for entry in chunk],
                    settings.sampling,
                )
                prompts = backend.render([entry.problem.messages for entry in chunk])
                samples = [
                    sample
                    for entry, prompt, rollouts in zip(chunk, prompts, rollouts_PG, strict=True)
                    for sample in entry.generations(prompt, rollouts)
                ]
                target.store(task.benchmark.name).append(grade(task.benchmark, samples, judge))


def in_one_call(
    model: str, backend: Backend, tasks: list[Task], settings: Settings, rounds: int
) -> list[float]:
    """Seconds of `vllm.LLM.generate` with all prompts, an engine like the backend's."""
    from vllm import LLM, SamplingParams

    nowhere = Target("model", Path("nowhere"), "model", {})
    pool = pool_of(nowhere, tasks, list(map(lacking, tasks)), settings.seed)
    tokens, limits = backend.encode([entry.problem.messages for entry in pool], settings.sampling)
    room = max(map(len, tokens)) + max(limits)
    on_cpu = backend.facts["device"] == "cpu"
    where = {"kv_cache_memory_bytes": 2 * 1024**3, "enforce_eager": True} if on_cpu else {}
    llm = LLM(model, dtype=backend.facts["dtype"], max_model_len=room, disable_log_stats=True, **where)
    prompts, params = [], []
    for entry, prompt, limit in zip(pool, tokens, limits, strict=True):
        for seed in entry.seeds.values():
            prompts.append({"prompt_token_ids": prompt})
            seeded = {"seed": seed} if backend.facts["seeds"] == "of each sample" else {}
            params.append(
                SamplingParams(
                    temperature=settings.sampling.temperature, max_tokens=limit, detokenize=False, **seeded
                )
            )
    seconds = []
    for _ in range(rounds):
        llm.reset_prefix_cache()
        began = time.perf_counter()
        llm.generate(prompts, params, use_tqdm=False)
        seconds.append(time.perf_counter() - began)
    return seconds


def main() -> None:
    """Print a line a way."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--backend", default="vllm")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of problems")
    parser.add_argument("--max-new-tokens", type=int, default=8)
    parser.add_argument("--chunk", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", action="store_true", help="compare seeds, not ways")
    words = parser.parse_args()
    model = str(policy_path(words.model)) if is_builtin(words.model) else words.model
    settings = Settings(Sampling(1.0, words.max_new_tokens))
    seconds: dict[str, list[float]] = {}

    def timed(name: str, call: object, *arguments: object) -> None:
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            call(*arguments[:3], Path(folder) / "evaluation", *arguments[3:])  # type: ignore[operator]
            seconds.setdefault(name, []).append(time.perf_counter() - began)

    with tempfile.TemporaryDirectory() as folder:
        tasks = tasks_in(Path(folder), words.scale, settings)
        samples = sum(len(task.problems) * task.samples for task in tasks)
        for each in (True, False) if words.seeds else (None,):
            with open_backend(words.backend, model, seed_each=each) as backend:
                first = tasks[0].problems[0].messages
                backend.generate([first], [[0]], settings.sampling)  # starts the engine
                for _ in range(words.rounds):
                    name = "pool" if each is None else f"pool, seeds {backend.facts['seeds']}"
                    timed(name, in_one_pool, backend, tasks, settings)
                    if each is None:
                        timed(f"chunks of {words.chunk}", in_chunks, backend, tasks, settings, words.chunk)
            gc.collect()
        if words.backend == "vllm" and not words.seeds:
            seconds["vLLM's generate"] = in_one_call(model, backend, tasks, settings, words.rounds)
    for name, values in seconds.items():
        rates = " ".join(f"{samples / value:.1f}" for value in values)
        print(
            f"{name:<32}{samples / statistics.median(values):8.1f} samples a second ({rates}; {samples} samples)"
        )


if __name__ == "__main__":
    main()
