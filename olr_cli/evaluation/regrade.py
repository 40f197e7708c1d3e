"""Grade stored generations again, without a model: after the grader, or a benchmark's extractor, has been mended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from olr_cli.answers import RULES, Judge
from olr_cli.errors import UserError
from olr_cli.evaluation.benchmark import Benchmark
from olr_cli.evaluation.folder import (
    EvaluationRecord,
    Target,
    drop_leftovers,
    finished,
    read_evaluation,
    read_scores,
    write_evaluation,
    write_scores,
)
from olr_cli.evaluation.generations import Generation, rows_of
from olr_cli.evaluation.grading import VERIFICATION_SECONDS, grade
from olr_cli.evaluation.problems import Problem
from olr_cli.evaluation.scores import Score
from olr_cli.runs.directory import held


@dataclass(frozen=True)
class Regraded:
    """What grading an evaluation again came to.

    Attributes:
        target: the evaluated model.
        scores: of the benchmarks that were graded.
        samples: how many were graded.
        now_right: samples that were graded wrong before and are right now: benchmark, problem, gold and answer.
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
        target = Target(record.model, folder, record.name, record.origin)
        before = {name: rows_of(target.store(wanted[name]).read()) for name in done}
        after = {name: _graded_again(wanted[name], before[name], judge) for name in done}
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
    defined = {name: each.definition for name, each in record.benchmarks.items()}
    wanted = defined if benchmarks is None else {each.name: each for each in benchmarks}
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


def _graded_again(benchmark: Benchmark, rows: Sequence[Generation], judge: Judge) -> list[Generation]:
    by_problem: dict[str, list[Generation]] = {}
    for row in rows:
        by_problem.setdefault(row.problem_id, []).append(row)
    groups = list(by_problem.values())
    graded_PG = grade(
        benchmark,
        [Problem(own[0].problem_id, (), own[0].gold, own[0].choices) for own in groups],
        [[row.response for row in own] for own in groups],
        judge,
    )
    return [
        replace(row, answer=new.answer, answer_class=new.answer_class, is_correct=new.is_correct)
        for own, graded in zip(groups, graded_PG, strict=True)
        for row, new in zip(own, graded, strict=True)
    ]
