"""Evaluations out of lm-eval's sample logs: the stored responses, graded by olr's rules.

    log (`olr_cli.evaluation.lm_eval`)  →  generations  →  grade  →  an evaluation's folder, as `olr evaluate` writes it

With benchmarks named, each task becomes the benchmark whose problems it asked: their names, golds and grader count, so
the evaluation can be compared, problem by problem, with any other of that benchmark. Without, a task is a benchmark of
its own, with the golds of the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from olr_cli.answers import RULES, Judge
from olr_cli.answers.choices import option_letter
from olr_cli.data.chat import Message
from olr_cli.data.prompts import Prompt
from olr_cli.errors import UserError, taken
from olr_cli.evaluation.backends import Sampling
from olr_cli.evaluation.benchmark import Benchmark, Source
from olr_cli.evaluation.folder import (
    VERSION,
    EvaluationRecord,
    Target,
    TaskRecord,
    holding,
    rescore,
    write_evaluation,
)
from olr_cli.evaluation.generations import Generation
from olr_cli.evaluation.grading import VERIFICATION_SECONDS, grade
from olr_cli.evaluation.lm_eval import TOOL, LoggedSample, LoggedTask, read_log
from olr_cli.evaluation.problems import digest, load_problems
from olr_cli.evaluation.published import model_name
from olr_cli.evaluation.scores import Score, is_evaluation
from olr_cli.recipe.layers import folder_name
from olr_cli.runs.directory import GIVEN_UP

_SHOWN = 5
"""Answers that are shown of those that two graders grade differently."""

_LETTER = re.compile(r"\(?[A-J]\)?")
_OPTIONS = 10


@dataclass(frozen=True)
class Imported:
    """A log that became an evaluation, and where its tool graded otherwise.

    Attributes:
        target: the model and the evaluation's folder.
        scores: by olr's rules.
        sentences: what was imported, and how the tool's grades differ.
    """

    target: Target
    scores: Sequence[Score]
    sentences: Sequence[str]


def import_evaluation(
    path: Path,
    out: Path | None,
    benchmarks: Sequence[Benchmark] = (),
    data: Path | None = None,
    extractor: str | None = None,
) -> Imported:
    """Make an evaluation of a sample log.

    Args:
        path: a log, or a folder of logs of one model.
        out: the evaluation's folder; by default ``evaluations/<model>-lm-eval``.
        benchmarks: what the tasks asked; none: each task is a benchmark of its own.
        data: where the problems of `benchmarks` are, in place of their sources.
        extractor: how answers are read, in place of the benchmark's; by default the last box.

    Raises:
        UserError: the log can't be read or doesn't fit the benchmarks, or the folder is taken.
    """
    log = read_log(path)
    name = log.model if re.fullmatch(r"[\w.-]+/[\w.-]+", log.model) else model_name(log.model)
    words = folder_name(name).strip("-.") or "model"
    folder = out or Path("evaluations") / f"{words}-{TOOL}"
    if is_evaluation(folder):
        raise taken(folder, "--out", " and holds an evaluation")
    problems = {benchmark.name: load_problems(benchmark, data=data) for benchmark in benchmarks}
    sampled, generations, records = [], dict[str, list[Generation]](), dict[str, TaskRecord]()
    for task in log.tasks:
        if benchmarks:
            benchmark, asked = _asked(task, benchmarks, problems)
        else:
            benchmark, asked = _of_its_own(task)
        if extractor is not None:
            benchmark = benchmark.model_copy(update={"extractor": extractor})
        if benchmark.name in records:
            raise UserError(
                f"{path} has several tasks that ask {benchmark.name}; import them one by one, each with another --out"
            )
        samples = len(task.samples[0].responses)
        records[benchmark.name] = TaskRecord(
            definition=benchmark,
            samples=samples,
            problems=len(asked),
            problems_digest=digest(asked),
            answer_rules=RULES,
            data=str(data) if benchmarks and data is not None else None,
        )
        generations[benchmark.name] = _generations(benchmark.name, task, asked, samples)
        sampled.append((task, benchmark.name))
    origin = {
        "imported": str(path.absolute()),
        "tool": f"{TOOL} {log.version}".strip(),
        "metrics": {name: task.metrics for task, name in sampled},
    }
    target = Target(log.model, folder, f"{name} ({TOOL})", origin)
    record = EvaluationRecord(
        schema_version=VERSION,
        name=target.name,
        model=log.model,
        origin=origin,
        sampling=_sampling(path, log.tasks),
        seed=0,
        benchmarks=records,
        generated_by=({"name": TOOL, "version": log.version, **log.facts},),
    )
    with (
        holding(folder),
        Judge(time_limit=VERIFICATION_SECONDS, ledger=folder / GIVEN_UP) as judge,
    ):
        if any(file.name != GIVEN_UP and not file.name.startswith(".") for file in folder.iterdir()):
            raise taken(folder, "--out")
        graded = {name: grade(records[name].definition, rows, judge) for name, rows in generations.items()}
        for name, rows in graded.items():
            store = target.store(name)
            store.append(rows)
            store.finish(list(dict.fromkeys(row.problem_id for row in rows)))
        write_evaluation(folder, record)
        scores = rescore(folder)
    sentences = [
        f"{name} has likelihoods of given answers and no generated text; left out" for name in log.left_out
    ]
    sentences += [sentence for task, name in sampled for sentence in _comparison(task, graded[name])]
    return Imported(target, [scores[name] for name in records], sentences)


def _sampling(path: Path, tasks: Sequence[LoggedTask]) -> Sampling:
    temperatures = sorted({task.temperature for task in tasks})
    if len(temperatures) > 1:
        raise UserError(
            f"{path} has tasks at temperatures {', '.join(map(str, temperatures))}; import them one by one, each with"
            " another --out"
        )
    return Sampling(temperatures[0], max(task.max_new_tokens for task in tasks))


def _of_its_own(task: LoggedTask) -> tuple[Benchmark, list[Prompt]]:
    """A benchmark out of what the log says of a task."""
    letters = all(_LETTER.fullmatch(sample.gold) for sample in task.samples)
    benchmark = Benchmark(
        name=re.sub(r"[^A-Za-z0-9._:+-]+", "-", task.name).strip("-._:+") or "task",
        title=task.name,
        grader="choice" if letters else "math",
        source=Source(file=str(task.file.absolute())),
        system=None,
    )
    problems = []
    for sample in task.samples:
        gold = option_letter(sample.gold, _OPTIONS) if letters else sample.gold
        if not gold:
            raise UserError(
                f"{task.file}: problem {sample.problem_id} has no gold; name the benchmark with --benchmarks"
            )
        message = Message("user", sample.prompt)
        problems.append(Prompt(sample.problem_id, (message,), gold, gold, None, benchmark.name))
    return benchmark, problems


def _asked(
    task: LoggedTask, benchmarks: Sequence[Benchmark], problems: Mapping[str, Sequence[Prompt]]
) -> tuple[Benchmark, list[Prompt]]:
    """The benchmark that a task asks, and its problems in the order of the log.

    Raises:
        UserError: no benchmark has all of the task's problems.
    """
    nearest = ("", -1)
    for benchmark in benchmarks:
        by_question = {_plain(problem.messages[-1].content): problem for problem in problems[benchmark.name]}
        asked = [_problem(sample, by_question) for sample in task.samples]
        matched = [problem for problem in asked if problem is not None]
        if len(matched) == len(asked):
            if len({problem.prompt_id for problem in matched}) < len(matched):
                raise UserError(
                    f"{task.file} asks a problem of {benchmark.name} more than once; import it without --benchmarks"
                )
            return benchmark, matched
        nearest = max(nearest, (benchmark.name, len(matched)), key=lambda pair: pair[1])
    raise UserError(
        f"{task.file}: {len(task.samples) - nearest[1]} of {len(task.samples)} problems are none of {nearest[0]};"
        " name the benchmark that was asked, or none"
    )


def _problem(sample: LoggedSample, by_question: Mapping[str, Prompt]) -> Prompt | None:
    """The problem whose question is a text of the record, or stands in the prompt."""
    for text in sample.texts:
        if (problem := by_question.get(_plain(text))) is not None:
            return problem
    prompt = _plain(sample.prompt)
    inside = [question for question in by_question if question in prompt]
    return by_question[max(inside, key=len)] if inside else None


def _plain(text: str) -> str:
    """A question with spaces and line breaks alike."""
    return " ".join(text.split())


def _generations(
    benchmark: str, task: LoggedTask, problems: Sequence[Prompt], samples: int
) -> list[Generation]:
    rows = []
    for problem, sample in zip(problems, task.samples, strict=True):
        if len(sample.responses) != samples:
            raise UserError(
                f"{task.file}: problem {sample.problem_id} has {len(sample.responses)} responses, the first problem"
                f" {samples}; all must have as many (R19)"
            )
        assert problem.gold is not None  # of a benchmark, or checked above
        for number, response in enumerate(sample.responses):
            rows.append(
                Generation(
                    benchmark=benchmark,
                    problem_id=problem.prompt_id,
                    sample=number,
                    prompt=sample.prompt,
                    response=response,
                    gold=problem.gold,
                    choices=problem.choices,
                    tokens=None,
                    truncated=None,
                    seed=None,
                )
            )
    return rows


def _comparison(task: LoggedTask, rows: Sequence[Generation]) -> Iterator[str]:
    """Where the tool's grades differ from olr's: of tasks with one response to each problem, graded 0 or 1."""
    if len(rows) > len(task.samples):
        return
    for metric in task.metrics:
        theirs = [sample.metrics[metric] for sample in task.samples]
        if not set(theirs) <= {0.0, 1.0}:
            continue
        pairs = list(zip(rows, theirs, strict=True))
        ours_alone = [row for row, grade in pairs if row.is_correct and not grade]
        theirs_alone = [row for row, grade in pairs if grade and not row.is_correct]
        yield (
            f"{task.name}: olr and {metric} of {TOOL} agree on {len(rows) - len(ours_alone) - len(theirs_alone):,}"
            f" of {len(rows):,} responses"
        )
        for who, alone in (("olr", ours_alone), (metric, theirs_alone)):
            for row in alone[:_SHOWN]:
                answer = "no answer" if row.answer is None else row.answer
                yield f"  right by {who} alone: {answer} for {row.gold} (problem {row.problem_id})"
            if len(alone) > _SHOWN:
                yield f"  … and {len(alone) - _SHOWN:,} more that are right by {who} alone"
