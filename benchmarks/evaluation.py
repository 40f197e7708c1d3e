"""Samples a second of `olr evaluate` on vLLM, beside `generate` of the same engine with all prompts in one call.

OMP_NUM_THREADS=1 python benchmarks/evaluation.py builtin:addition-easier
OMP_NUM_THREADS=1 python benchmarks/evaluation.py MODEL --scale 0.2 --max-new-tokens 64 --rounds 3

Three benchmarks of sums with 1, 4 and 32 samples a problem, in four ways that take turns: `pool` generates, grades and
stores; in `pool, mixed answers` what is graded is not the model's text but 2,000 characters with an answer as in MATH;
`stream` generates alone; `generate` is vLLM's, which gets tokens and parameters ready-made and returns tokens.

Beside the samples a second (the clock, which other programs on the machine change) stand processor milliseconds a
sample: of the thread that drives the engine, and of grading, storing and rendering beside it. Where the model is on a
GPU and cores are free, the first of these are what an evaluation takes beyond `generate`. Take one thread (as above):
threads of OpenMP spin while they wait for each other.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from label_update import mixed

from olr_cli.engines.backends import BackendOptions
from olr_cli.engines.backends.backend import GenerationRequest
from olr_cli.engines.backends.vllm_backend import VllmBackend
from olr_cli.engines.models import is_builtin, policy_path
from olr_cli.evaluation.benchmark import read_benchmark
from olr_cli.evaluation.evaluate import Progress, evaluate
from olr_cli.evaluation.plan import Evaluation, EvaluationRequest
from olr_cli.evaluation.pool import pool_of
from olr_cli.evaluation.record import Task
from olr_cli.evaluation.store import EvaluationStore, Target
from olr_cli.recipe.sampling import Sampling
from olr_cli.supervision import Rollout

SHAPES = {"once": (600, 1), "four": (150, 4), "many": (30, 32)}
"""Problems, and samples of each."""
CHARACTERS = 2000


class Silent(Progress):
    """Shows nothing."""

    def say(self, sentence: str) -> None:
        """Nothing."""


class MixedAnswers:
    """A backend whose responses are replaced by texts with answers of many forms, right and wrong."""

    def __init__(self, backend: VllmBackend) -> None:
        self._backend = backend
        self._random = random.Random(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def stream(
        self, requests: Sequence[GenerationRequest], sampling: Sampling
    ) -> Generator[Mapping[int, list[Rollout]], None, None]:
        """The backend's rollouts with other texts."""
        for finished in self._backend.stream(requests, sampling):
            yield {
                number: [
                    replace(rollout, response=self._response()) for rollout in rollouts
                ]
                for number, rollouts in finished.items()
            }

    def _response(self) -> str:
        answer = self._random.choice(mixed(self._random))
        return ("we therefore consider both sides " * CHARACTERS)[
            : CHARACTERS - len(answer)
        ] + (f"\\boxed{{{answer}}}")


def tasks_in(folder: Path, scale: float, settings: EvaluationRequest) -> list[Task]:
    """The benchmarks, written to a folder."""
    benchmarks = []
    for place, (name, (problems, samples)) in enumerate(SHAPES.items()):
        rows = [
            {
                "question": f"{100 + number % 800}+{17 * place + number // 8}=",
                "answer": str(100 + number % 800 + 17 * place + number // 8),
            }
            for number in range(max(1, int(problems * scale)))
        ]
        (folder / f"{name}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows)
        )
        entries = {
            "name": name,
            "samples": samples,
            "source": {"file": f"{name}.jsonl"},
            "system": "",
        }
        (folder / f"{name}.yaml").write_text(
            "".join(f"{key}: {json.dumps(value)}\n" for key, value in entries.items())
        )
        benchmarks.append(read_benchmark(folder / f"{name}.yaml"))
    return settings.tasks(benchmarks)


def ways(
    backend: VllmBackend, tasks: Sequence[Task], settings: EvaluationRequest, folder: Path
) -> dict[str, Callable[[], object]]:
    """The ways to compare by their names."""
    from vllm import SamplingParams

    def pool(of: Any) -> None:
        place = Path(tempfile.mkdtemp(dir=folder)) / "evaluation"
        evaluation = Evaluation(Target("model", place, "model", {}), tasks, settings)
        evaluate(evaluation, Silent(), lambda: nullcontext(of))

    problems = pool_of(EvaluationStore(folder), tasks, settings.seed)
    texts = backend.render([entry.problem.messages for entry in problems])
    requests = [entry.request(text) for entry, text in zip(problems, texts, strict=True)]
    tokens, limits = backend.encode(texts, settings.sampling)
    prompts, params = [], []
    for request, ids, limit in zip(requests, tokens, limits, strict=True):
        for seed in request.seeds:
            seeded = {"seed": seed} if backend.facts["seeds"] == "of each sample" else {}
            prompts.append({"prompt_token_ids": ids})
            params.append(
                SamplingParams(
                    temperature=1.0, max_tokens=limit, detokenize=False, **seeded
                )
            )
    return {
        "pool": lambda: pool(backend),
        "pool, mixed answers": lambda: pool(MixedAnswers(backend)),
        "stream": lambda: list(backend.stream(requests, settings.sampling)),
        "generate": lambda: backend._llm.generate(prompts, params, use_tqdm=False),
    }


def cost(call: Callable[[], object]) -> tuple[float, float, float]:
    """Seconds of the clock, of this thread's processor, and of other threads and processes."""

    def now() -> tuple[float, float, float]:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        others = (
            time.process_time() - time.thread_time() + children.ru_utime + children.ru_stime
        )
        return time.perf_counter(), time.thread_time(), others

    before = now()
    call()
    clock, thread, others = (
        after - start for after, start in zip(now(), before, strict=True)
    )
    return clock, thread, others


def main() -> None:
    """Print a line a way."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of the numbers of problems"
    )
    parser.add_argument("--max-new-tokens", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=9)
    words = parser.parse_args()
    model = str(policy_path(words.model)) if is_builtin(words.model) else words.model
    settings = EvaluationRequest(sampling=Sampling(1.0, words.max_new_tokens))
    with (
        tempfile.TemporaryDirectory() as name,
        BackendOptions("vllm").open(model) as backend,
    ):
        assert isinstance(backend, VllmBackend)
        tasks = tasks_in(Path(name), words.scale, settings)
        starting = backend.requests([tasks[0].problems[0].messages], [[0]])
        list(backend.stream(starting, settings.sampling))  # starts the engine
        samples = sum(len(task.problems) * task.samples for task in tasks)
        calls = ways(backend, tasks, settings, Path(name))
        costs: dict[str, list[tuple[float, float, float]]] = {way: [] for way in calls}
        for _ in range(words.rounds):
            for way, call in calls.items():
                backend._llm.reset_prefix_cache()
                costs[way].append(cost(call))
    print(f"{samples} samples, medians of {words.rounds}")
    for way, seconds in costs.items():
        clock, thread, others = (
            1000 * statistics.median(part) / samples for part in zip(*seconds, strict=True)
        )
        of_generate = statistics.median(
            alone[0] / own[0] for own, alone in zip(seconds, costs["generate"], strict=True)
        )
        print(
            f"{way:<20}{1000 / clock:9.1f} samples a second, {of_generate:.2f} of generate;"
            f" {thread:.3f} ms of the engine's thread, {others:.3f} ms beside it"
        )


if __name__ == "__main__":
    main()
