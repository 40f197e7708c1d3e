"""One pool of all missing samples: generated in one stream, graded in parallel, stored in small parts.

    missing problems of all benchmarks  →  backend.stream  →  recorder: grade, store, finish a benchmark
                                           (this thread)      (another one, and the judge's processes)

The backend gets everything at once, so that it is busy until the last samples of the last benchmark. Finished samples
are stored every `STORED_AT_ONCE` samples or `STORED_EVERY` seconds, whichever comes first, so a kill loses little. The
order in which samples finish depends on the backend; a finished benchmark's file is in the order of its problems.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from olr_cli import seeding
from olr_cli.answers import Judge, Verdict
from olr_cli.data.prompts import Prompt
from olr_cli.engines.backends.backend import GenerationRequest
from olr_cli.evaluation.grading import grade
from olr_cli.evaluation.record import EvaluationRecord, Generation, Task
from olr_cli.evaluation.store import EvaluationStore
from olr_cli.supervision import Rollout

STORED_AT_ONCE = 64
"""Number of finished samples that are stored together."""
STORED_EVERY = 15.0
"""Seconds after which finished samples are stored, even if there are only a few."""


@dataclass(frozen=True)
class PooledProblem:
    """A problem that lacks samples, with the seeds of the missing samples, and with its stored samples."""

    task: Task
    problem: Prompt
    seeds: Mapping[int, int | None]
    """Number of each missing sample -> its seed; None for a sample that was imported."""

    stored: Sequence[Generation] = ()
    """Samples of an earlier call that asked for fewer."""

    def request(self, prompt: str) -> GenerationRequest:
        """Return the request to a backend for the missing samples.

        Args:
            prompt: the text that the model reads.
        """
        seeds = [seed for seed in self.seeds.values() if seed is not None]
        return GenerationRequest(self.problem.messages, seeds, prompt)

    def generations(
        self, prompt: str, rollouts: Sequence[Rollout | None]
    ) -> Iterator[Generation]:
        """Yield the stored samples of the problem, then the new ones, which are not graded yet (R7).

        All of them have to be graded together, because a class of equivalent answers is named after its most frequent
        spelling, which new samples may change.

        Args:
            prompt: the text that the model read.
            rollouts: the responses in the order of `seeds`; None for a response that was lost, which yields no sample.
        """
        gold, problem = self.problem.gold, self.problem
        assert gold is not None  # a benchmark's problems have one
        yield from self.stored
        for (number, seed), rollout in zip(self.seeds.items(), rollouts, strict=True):
            if rollout is not None:
                yield Generation(
                    benchmark=self.task.benchmark.name,
                    problem_id=problem.prompt_id,
                    sample=number,
                    prompt=prompt,
                    response=rollout.response,
                    gold=gold,
                    choices=problem.choices,
                    tokens=rollout.tokens,
                    truncated=rollout.truncated,
                    ended_by=rollout.ended_by,
                    seed=seed,
                )


def pool_of(
    store: EvaluationStore, tasks: Sequence[Task], seed: int
) -> list[PooledProblem]:
    """Return all problems with missing samples, in the order in which the model is asked.

    Args:
        store: has the samples of earlier calls.
        tasks: the benchmarks with their problems.
        seed: the evaluation's seed, from which each sample's seed is made.
    """
    pool = []
    for task in tasks:
        name, missing = task.benchmark.name, store.missing(task)
        stored: dict[str, list[Generation]] = {}
        # Read the long responses only if a problem has some of its samples: they are graded again with the new ones.
        if any(len(numbers) < task.samples for numbers in missing.values()):
            for sample in filter(
                lambda it: it.problem_id in missing, store.generations(name)
            ):
                stored.setdefault(sample.problem_id, []).append(sample)
        pool += [
            PooledProblem(
                task,
                problem,
                {
                    number: sample_seed(seed, name, problem.prompt_id, number)
                    for number in numbers
                },
                stored.get(problem.prompt_id, []),
            )
            for problem in task.problems
            if (numbers := missing.get(problem.prompt_id))
        ]
    return pool


def sample_seed(seed: int, benchmark: str, problem_id: str, sample: int) -> int:
    """Return the seed of one sample, a number of 63 bits, which vLLM and torch accept.

    The seed does not depend on other samples, so limits and interruptions do not change a sample.

    Args:
        seed: the evaluation's seed.
        benchmark: the benchmark's name.
        problem_id: the problem's id in the benchmark.
        sample: the number of the sample among the problem's samples, from 0.
    """
    return seeding.key("evaluation", seed, benchmark, problem_id, sample) >> 1


@dataclass
class Recorder(AbstractContextManager["Recorder"]):
    """Grade and store finished problems in a second thread while the model works on others.

    The end of the `with` block waits until all added problems are stored. evaluation.json is written with the first
    samples, and again whenever the backend's `facts` change. They change, for example, if a server's reply shows that
    it refuses a setting.
    """

    store: EvaluationStore
    record: EvaluationRecord
    facts: Mapping[str, Any]
    pool: Sequence[PooledProblem]
    judge: Judge
    stored: Callable[[int], None]
    """Called in the thread with the number of new samples after each part."""

    finished: Callable[[Task], None]
    """Called in the thread with a benchmark when all its problems are stored."""

    counted: Counter[Verdict] = field(default_factory=Counter)
    """Verdicts on all samples so far, without multiple choice; complete after the block."""

    def __post_init__(self) -> None:
        self._left = Counter(
            entry.task.benchmark.name for entry in self.pool for _ in entry.seeds
        )
        self._waiting: list[tuple[PooledProblem, list[Generation]]] = []
        self._is_recorded = False
        self._last = time.monotonic()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="olr-grading")
        self._jobs: list[Future[None]] = []

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Wait until all added problems are graded and stored, and raise any error of the thread.

        If the program has to end at once, as after a second Ctrl-C, problems that wait to be graded are dropped.
        """
        try:
            # A first Ctrl-C (`Interrupted`) is an `Exception`. A second one is not, and must not wait for the grading.
            if kind is None or issubclass(kind, Exception):
                self._hand_over()
                for job in self._jobs:
                    job.result()
        finally:
            self._thread.shutdown(cancel_futures=True)

    def add(self, problems: Iterable[tuple[PooledProblem, list[Generation]]]) -> None:
        """Queue finished problems, each with all its samples, old and new, to be graded and stored.

        This call passes the queue to the second thread if the queue holds at least 64 samples, or if it was last passed
        on more than 15 seconds ago. If the thread has failed, its error is raised here.
        """
        self._waiting += problems
        # Raise an error of the thread now, not after hours of generation that cannot be stored.
        while self._jobs and self._jobs[0].done():
            self._jobs.pop(0).result()
        is_much = sum(len(samples) for _, samples in self._waiting) >= STORED_AT_ONCE
        if is_much or time.monotonic() - self._last > STORED_EVERY:
            self._hand_over()

    def _hand_over(self) -> None:
        """Let the thread grade and store the waiting problems."""
        self._last = time.monotonic()
        if self._waiting:
            self._jobs.append(self._thread.submit(self._grade, self._waiting))
            self._waiting = []

    def _grade(self, problems: Sequence[tuple[PooledProblem, list[Generation]]]) -> None:
        """Grade and store problems, benchmark by benchmark; this runs in the second thread.

        After each benchmark, the callback `stored` gets the number of its new samples. If the benchmark lacks no sample
        any more, the callback `finished` gets the benchmark as a task.
        """
        for task in {
            entry.task.benchmark.name: entry.task for entry, _ in problems
        }.values():
            part = [(entry, samples) for entry, samples in problems if entry.task is task]
            samples = [sample for _, of_problem in part for sample in of_problem]
            graded = grade(task.benchmark, samples, self.judge, self.counted)
            record = self.store.with_backend(self.record, self.facts)
            if record is not self.record or not self._is_recorded:
                # Write the record only with the first samples: until then, the user may still change the settings.
                self.store.write_record(record)
                self.record, self._is_recorded = record, True
            self.store.append(task.benchmark.name, graded)
            # Samples of an earlier call are graded again and are not new.
            new = len(graded) - sum(len(entry.stored) for entry, _ in part)
            self.stored(new)
            self._left[task.benchmark.name] -= new
            if not self._left[task.benchmark.name]:
                self.finished(task)
