"""Evaluate a model: sample, grade and store benchmark after benchmark; go on where an earlier call stopped.

`regrade` grades stored samples again, without a model: after the grader, or a benchmark's extractor, was mended.

Problems are worked on in chunks. A chunk's samples are stored together, so a kill costs one chunk at most; and since a
sample is a function of its prompt and its own seed, the evaluation that goes on ends as it would have uninterrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from olr_cli import seeding
from olr_cli.answers import RULES, Judge
from olr_cli.data.prompts import Prompt
from olr_cli.errors import UserError
from olr_cli.evaluation.backends import Backend, Sampling, model_digest
from olr_cli.evaluation.benchmark import Benchmark
from olr_cli.evaluation.folder import (
    Asked,
    EvaluationRecord,
    Target,
    begin,
    drop_leftovers,
    finished,
    holding,
    read_evaluation,
    read_scores,
    write_evaluation,
    write_scores,
)
from olr_cli.evaluation.generations import Generation, GenerationStore
from olr_cli.evaluation.grading import VERIFICATION_SECONDS, grade
from olr_cli.evaluation.problems import load_problems
from olr_cli.evaluation.progress import Progress
from olr_cli.evaluation.scores import Score
from olr_cli.runs.directory import GIVEN_UP, held
from olr_cli.runs.interrupts import Interrupted, StopRequest, stop_requests
from olr_cli.supervision import Rollout

SAMPLES_AT_A_TIME = {"cpu": 64, "transformers": 256, "vllm": 1024}
"""About how many samples a chunk has: on a CPU, and on a GPU for each backend.

Larger chunks keep a GPU busy while the last samples of a chunk finish; smaller ones show progress. The numbers are
fixed, so that a resumed evaluation has the same chunks.
"""


@dataclass(frozen=True)
class Settings:
    """What is generated.

    Attributes:
        seed: every sample's seed is made from it (`sample_seed`).
        samples: of each problem; None: as many as the benchmark says.
        limit: only the first problems of each benchmark.
        data: interchange file, or folder of them, in place of the benchmarks' sources.
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
        by_default = benchmark.samples if self.sampling.temperature else 1
        return Asked(benchmark, problems, self.samples or by_default)


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
        progress: shows how far it is.
        backend: the one that was asked for, if one was.

    Returns:
        A score a benchmark.

    Raises:
        UserError: something the user can mend; what is done is stored.
        Interrupted: Ctrl-C or SIGTERM came; likewise.
    """
    with holding(target.folder):
        record = begin(target, asked, settings.sampling, settings.seed)
        left = [_left(target.store(part.benchmark), part) for part in asked]
        total, to_do = (sum(len(part.problems) * part.samples for part in parts) for parts in (asked, left))
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
        for part in asked:  # killed after its last problem, it is still in several files
            _finish(target, part)
        scores = {score.benchmark: score for score in read_scores(target.folder)}
        write_scores(target.folder, list(scores.values()))
    return [scores[part.benchmark.name] for part in asked]


def _left(store: GenerationStore, asked: Asked) -> Asked:
    """What is asked without the problems that have all their samples."""
    stored: dict[str, list[int]] = {}
    for problem_id, sample in store.read(["problem_id", "sample"]).iter_rows():
        stored.setdefault(problem_id, []).append(sample)
    numbers = list(range(asked.samples))
    left = [problem for problem in asked.problems if sorted(stored.get(problem.prompt_id, [])) != numbers]
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
    target.store(asked.benchmark).finish([problem.prompt_id for problem in asked.problems])


def _generate(left: Asked, settings: Settings, backend: Backend, judge: Judge) -> Iterator[list[Generation]]:
    """Graded samples, some problems at a time."""
    benchmark = left.benchmark
    device = backend.facts["device"]
    size = max(1, SAMPLES_AT_A_TIME["cpu" if device == "cpu" else backend.facts["name"]] // left.samples)
    for first in range(0, len(left.problems), size):
        chunk = left.problems[first : first + size]
        seeds_PG = [
            [sample_seed(settings.seed, benchmark.name, problem.prompt_id, g) for g in range(left.samples)]
            for problem in chunk
        ]
        rollouts_PG = backend.generate([problem.messages for problem in chunk], seeds_PG, settings.sampling)
        samples = [
            _generation(benchmark, problem, backend.render(problem.messages), number, seed, rollout)
            for problem, seeds, rollouts in zip(chunk, seeds_PG, rollouts_PG, strict=True)
            for number, (seed, rollout) in enumerate(zip(seeds, rollouts, strict=True))
        ]
        yield grade(benchmark, samples, judge)


def _generation(
    benchmark: Benchmark, problem: Prompt, prompt: str, number: int, seed: int, rollout: Rollout
) -> Generation:
    # A problem has a gold, and a backend counts tokens.
    assert problem.gold is not None and rollout.tokens is not None and rollout.truncated is not None
    return Generation(
        benchmark=benchmark.name,
        problem_id=problem.prompt_id,
        sample=number,
        prompt=prompt,
        response=rollout.response,
        gold=problem.gold,
        choices=problem.choices,
        tokens=rollout.tokens,
        truncated=rollout.truncated,
        seed=seed,
    )


def sample_seed(seed: int, benchmark: str, problem_id: str, sample: int) -> int:
    """A sample's own seed, whatever else is sampled with it; 63 bits, as vLLM and torch take them."""
    return seeding.key("evaluation", seed, benchmark, problem_id, sample) >> 1


@dataclass(frozen=True)
class Regraded:
    """An evaluation that was graded again.

    Attributes:
        scores: of the benchmarks that were graded.
        samples: how many were graded.
        now_right: samples that were graded wrong before and are right now.
        now_wrong: the other way round.
        unfinished: benchmarks that were left out because they are not done.
    """

    target: Target
    scores: Sequence[Score]
    samples: int
    now_right: Sequence[Generation]
    now_wrong: Sequence[Generation]
    unfinished: Sequence[str]

    @property
    def changed(self) -> int:
        """How many grades changed."""
        return len(self.now_right) + len(self.now_wrong)


def regrade(folder: Path, benchmarks: Sequence[Benchmark] | None = None) -> Regraded:
    """Grade an evaluation's finished benchmarks again.

    Args:
        folder: of the evaluation.
        benchmarks: only these, as they are defined now; by default all, as they were defined when they were asked.

    Raises:
        UserError: it is no evaluation, has no such benchmark or none that is done, or its files cannot be read.
    """
    read_evaluation(folder)  # or else a lock would be put into a folder of something else
    with held(folder, option="folder"), Judge(time_limit=VERIFICATION_SECONDS) as judge:
        drop_leftovers(folder)
        record = read_evaluation(folder)
        wanted = _wanted(folder, record, benchmarks)
        done = [name for name in finished(folder) if name in wanted]
        if not done:
            raise UserError(f"{folder}: no benchmark is done yet; the command that began it goes on")
        target = record.target(folder)
        before = {name: target.store(wanted[name]).generations() for name in done}
        after = {name: grade(wanted[name], before[name], judge) for name in done}
        # All at once, after what takes long: a definition must not stand beside grades of another one.
        write_evaluation(folder, _redefined(record, {name: wanted[name] for name in done}))
        for name in done:
            target.store(wanted[name]).replace(after[name])
        scores = {score.benchmark: score for score in read_scores(folder)}
        write_scores(folder, list(scores.values()))
    pairs = [pair for name in done for pair in zip(after[name], before[name], strict=True)]
    return Regraded(
        target,
        [scores[name] for name in done],
        samples=len(pairs),
        now_right=[new for new, old in pairs if new.is_correct and not old.is_correct],
        now_wrong=[new for new, old in pairs if old.is_correct and not new.is_correct],
        unfinished=[name for name in wanted if name not in done],
    )


def _wanted(
    folder: Path, record: EvaluationRecord, benchmarks: Sequence[Benchmark] | None
) -> dict[str, Benchmark]:
    """The benchmarks to grade, by name."""
    defined = {name: asked.definition for name, asked in record.benchmarks.items()}
    wanted = defined if benchmarks is None else {benchmark.name: benchmark for benchmark in benchmarks}
    unknown = ", ".join(name for name in wanted if name not in defined)
    if unknown:
        raise UserError(f"{folder} has no generations of {unknown}; it has {', '.join(defined)}")
    return wanted


def _redefined(record: EvaluationRecord, benchmarks: Mapping[str, Benchmark]) -> EvaluationRecord:
    changed = {
        name: record.benchmarks[name].model_copy(update={"definition": benchmark, "answer_rules": RULES})
        for name, benchmark in benchmarks.items()
    }
    return record.model_copy(update={"benchmarks": record.benchmarks | changed})
