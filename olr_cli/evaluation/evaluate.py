"""Evaluate a model: sample, grade and store benchmark after benchmark; go on where an earlier call stopped.

Problems are worked on in chunks. A chunk's samples are stored together, so a kill costs one chunk at most; and since a
sample is a function of its prompt and its own seed, the evaluation that goes on ends as it would have uninterrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from olr_cli import seeding
from olr_cli.answers import Judge
from olr_cli.errors import UserError
from olr_cli.evaluation.backends import Backend, Output, Sampling
from olr_cli.evaluation.backends.model_facts import model_digest
from olr_cli.evaluation.benchmark import Benchmark
from olr_cli.evaluation.folder import (
    Asked,
    EvaluationRecord,
    Target,
    begin,
    holding,
    read_scores,
    write_evaluation,
    write_scores,
)
from olr_cli.evaluation.generations import Generation, GenerationStore
from olr_cli.evaluation.grading import VERIFICATION_SECONDS, Graded, grade
from olr_cli.evaluation.problems import Problem, load_problems
from olr_cli.evaluation.scores import Score
from olr_cli.runs.directory import GIVEN_UP
from olr_cli.runs.interrupts import Interrupted, StopRequest, stop_requests

SAMPLES_AT_A_TIME = {"cpu": 64, "transformers": 256, "vllm": 1024}
"""Samples of a chunk, roughly: on a CPU, and on a GPU by backend.

More of them keep a GPU busy while the last of a chunk are finished; fewer show progress. The numbers are fixed, so that
an evaluation that goes on has the same chunks.
"""


@dataclass(frozen=True)
class Settings:
    """How a model is asked.

    Attributes:
        sampling: temperature, length limit, top_p.
        seed: of every sample's seed.
        samples: per problem, instead of each benchmark's own number.
        limit: only the first problems of each benchmark.
        data: interchange file, or folder of them, instead of the benchmarks' own sources.
    """

    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    samples: int | None = None
    limit: int | None = None
    data: Path | None = None

    def ask(self, benchmarks: Sequence[Benchmark]) -> list[Asked]:
        """The benchmarks with their problems, which are loaded, and their samples.

        At temperature 0 all samples of a problem are the same, and one is taken unless `samples` says otherwise.

        Raises:
            UserError: problems cannot be loaded, or there are none.
        """
        return [self._ask(benchmark) for benchmark in benchmarks]

    def _ask(self, benchmark: Benchmark) -> Asked:
        problems = load_problems(benchmark, data=self.data, limit=self.limit)
        if not problems:
            raise UserError(f"{benchmark.name} has no problems; name other data")
        own = benchmark.samples if self.sampling.temperature else 1
        return Asked(benchmark, problems, self.samples or own)


class Progress(Protocol):
    """Told how far an evaluation is."""

    def start(self, name: str, samples: int, done: int) -> None:
        """So many samples are asked of a model, so many of them are there already; next the model is loaded."""

    def benchmark(self, title: str) -> None:
        """The samples of a benchmark are generated from now on."""

    def advance(self, samples: int) -> None:
        """More samples are stored."""

    def say(self, sentence: str) -> None:
        """Something worth a line."""

    def stop(self) -> None:
        """The evaluation ended, however."""


def evaluate(
    target: Target,
    asked: Sequence[Asked],
    settings: Settings,
    open_model: Callable[[], AbstractContextManager[Backend]],
    progress: Progress,
    backend: str | None = None,
) -> list[Score]:
    """Evaluate a model, or finish what an earlier call began.

    Args:
        target: the model and the evaluation's folder.
        asked: in the order in which they are worked on.
        settings: what `asked` was made with.
        open_model: loads the model; called only if something is left to generate.
        progress: told how far it is.
        backend: the name of the one that was asked for, if one was.

    Returns:
        A score a benchmark.

    Raises:
        UserError: something the user can mend; what is done is stored.
        Interrupted: Ctrl-C or SIGTERM came; likewise.
    """
    with holding(target.folder):
        record = begin(target, asked, settings.sampling, settings.seed)
        left = [_left(target.store(each.benchmark), each) for each in asked]
        total, to_do = (sum(len(each.problems) * each.samples for each in all_) for all_ in (asked, left))
        if to_do:
            progress.start(target.name, total, total - to_do)
            _generate_all(target, list(zip(asked, left, strict=True)), settings, record, open_model, progress)
        else:
            facts = {} if backend is None else {"name": backend}
            if target.is_local:
                facts["model_digest"] = model_digest(target.model, None)
            record.check_backend(target.folder, facts)
            write_evaluation(target.folder, record)
        if record.old_grades:
            progress.say(
                f"Note: {', '.join(record.old_grades)} of {target.folder} were graded by other rules (R7); olr evaluate"
                f" --regrade {target.folder} grades them again."
            )
        for each in asked:  # killed after its last problem, it is still in parts
            _finish(target, each)
        scores = {score.benchmark: score for score in read_scores(target.folder)}
        write_scores(target.folder, list(scores.values()))
    return [scores[each.benchmark.name] for each in asked]


def _left(store: GenerationStore, asked: Asked) -> Asked:
    """What is asked without the problems that have all their samples."""
    rows = store.read(["problem_id", "sample"])
    whole = set(range(asked.samples))
    there: dict[str, list[int]] = {}
    for problem_id, sample in rows.iter_rows():
        there.setdefault(problem_id, []).append(sample)
    left = [
        problem
        for problem in asked.problems
        if len(own := there.get(problem.problem_id, [])) != asked.samples or set(own) != whole
    ]
    return Asked(asked.benchmark, left, asked.samples)


def _generate_all(
    target: Target,
    work: Sequence[tuple[Asked, Asked]],
    settings: Settings,
    record: EvaluationRecord,
    open_model: Callable[[], AbstractContextManager[Backend]],
    progress: Progress,
) -> None:
    """Generate what is left of all that is asked; `work` has both, a benchmark a pair."""
    with (
        stop_requests(lambda: _tell_of_stop(progress)) as stop,
        open_model() as backend,
        Judge(time_limit=VERIFICATION_SECONDS, ledger=target.folder / GIVEN_UP) as judge,
    ):
        _stop_if_asked(stop)
        record = record.with_backend(target.folder, backend.facts)
        for asked, left in work:
            if not left.problems:
                continue
            progress.benchmark(asked.benchmark.title)
            for rows in _generate(left, settings, backend, judge):
                # Not before there are samples: until then, nothing holds the user to what was asked.
                write_evaluation(target.folder, record)
                target.store(asked.benchmark).append(rows)
                progress.advance(len(rows))
                _stop_if_asked(stop)
            _finish(target, asked)
            if len(work) > 1:
                [score] = read_scores(target.folder, [asked.benchmark.name])
                progress.say(f"{score.title}: {100 * score.avg:.1f} %")
        if judge.timeouts:
            progress.say(
                f"Warning: verification gave up on {judge.timeouts} answers or pairs, and graded them wrong"
            )


def _tell_of_stop(progress: Progress) -> None:
    progress.say("Stopping when the samples in progress are stored; Ctrl-C again stops at once.")


def _stop_if_asked(stop: StopRequest) -> None:
    if stop.signal_number is not None:
        raise Interrupted(stop.signal_number)


def _finish(target: Target, asked: Asked) -> None:
    target.store(asked.benchmark).finish([problem.problem_id for problem in asked.problems])


def _generate(left: Asked, settings: Settings, backend: Backend, judge: Judge) -> Iterator[list[Generation]]:
    """Graded samples, some problems at a time."""
    device = backend.facts["device"]
    size = max(1, SAMPLES_AT_A_TIME["cpu" if device == "cpu" else backend.facts["name"]] // left.samples)
    for first in range(0, len(left.problems), size):
        chunk = left.problems[first : first + size]
        seeds_PG = [
            [
                sample_seed(settings.seed, left.benchmark.name, problem.problem_id, g)
                for g in range(left.samples)
            ]
            for problem in chunk
        ]
        outputs_PG = backend.generate([problem.messages for problem in chunk], seeds_PG, settings.sampling)
        responses_PG = [[output.response for output in outputs] for outputs in outputs_PG]
        graded_PG = grade(left.benchmark, chunk, responses_PG, judge)
        prompts = [backend.render(problem.messages) for problem in chunk]
        yield list(_rows(left.benchmark.name, chunk, prompts, seeds_PG, outputs_PG, graded_PG))


def sample_seed(seed: int, benchmark: str, problem_id: str, sample: int) -> int:
    """A sample's own seed, whatever else is sampled with it; 63 bits, as vLLM and torch take them."""
    return seeding.key("evaluation", seed, benchmark, problem_id, sample) >> 1


def _rows(
    benchmark: str,
    problems: Sequence[Problem],
    prompts: Sequence[str],
    seeds_PG: Sequence[Sequence[int]],
    outputs_PG: Sequence[Sequence[Output]],
    graded_PG: Sequence[Sequence[Graded]],
) -> Iterator[Generation]:
    """The samples G of problems P."""
    groups = zip(problems, prompts, seeds_PG, outputs_PG, graded_PG, strict=True)
    for problem, prompt, seeds, outputs, graded in groups:
        samples = zip(seeds, outputs, graded, strict=True)
        for number, (seed, output, grading) in enumerate(samples):
            yield Generation(
                benchmark=benchmark,
                problem_id=problem.problem_id,
                sample=number,
                prompt=prompt,
                response=output.response,
                answer=grading.answer,
                answer_class=grading.answer_class,
                gold=problem.gold,
                choices=problem.choices,
                is_correct=grading.is_correct,
                tokens=output.tokens,
                truncated=output.truncated,
                seed=seed,
            )
