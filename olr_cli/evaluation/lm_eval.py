"""Evaluations from sample logs of lm-evaluation-harness (``lm_eval --log_samples --output_path DIR``), version 0.4.13.

    DIR/<model>/results_<date>.json            scores, settings, versions
    DIR/<model>/samples_<task>_<date>.jsonl    a line a problem and filter: doc_id, doc, target, resps, filter, …

`resps` holds the responses as generated; a task with several filters has a line for each, with the same responses.
With benchmarks named, each task becomes the benchmark whose problems it asked, so it can be compared, problem by
problem, with any other evaluation of that benchmark. Without, a task is a benchmark with the golds of the log.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from olr_cli.answers import Judge
from olr_cli.answers.extraction import option_letter
from olr_cli.data.chat import Message
from olr_cli.data.labels import golds_of, read_cells
from olr_cli.data.prompts import Prompt
from olr_cli.data.questions import QuestionIndex
from olr_cli.errors import UserError, taken
from olr_cli.evaluation.backends import Sampling
from olr_cli.evaluation.benchmark import Benchmark, ProblemSource, choose, read_by
from olr_cli.evaluation.grading import grade
from olr_cli.evaluation.plan import Evaluation, EvaluationRequest, Say
from olr_cli.evaluation.problems import load_problems
from olr_cli.evaluation.published import model_name
from olr_cli.evaluation.results import check_reference, scores_answer
from olr_cli.evaluation.store import Generation, Target, Task
from olr_cli.files import read_json, read_lines, storable
from olr_cli.recipe.layers import folder_name
from olr_cli.runs.directory import GIVEN_UP
from olr_cli.tables import Answer

TOOL = "lm-eval"
_PATTERN = "samples_*.jsonl"
_MAX_NEW_TOKENS = 256
"""The length limit that lm-eval takes where a task names none."""
_LETTER = re.compile(r"\(?[A-J]\)?")


class _Record(NamedTuple):
    """What a log says of a problem; `texts` are all of its ``doc``, usually with the bare question."""

    problem_id: str
    prompt: str
    responses: Sequence[str]
    target: Any
    texts: Sequence[str]


class _LoggedTask(NamedTuple):
    """A task with generated text; `metrics` are the tool's own scores, of each metric that every problem has."""

    name: str
    file: Path
    records: Sequence[_Record]
    metrics: Mapping[str, float]
    sampling: Sampling


def sample_logs(place: Path) -> list[Path]:
    """The sample logs that a path means: a file, or those in a folder or right below it."""
    return [place] if place.is_file() else sorted({*place.glob(_PATTERN), *place.glob(f"*/{_PATTERN}")})


def import_log(request: EvaluationRequest, log: Path, say: Say) -> Answer:
    """Grade the responses in a sample log, a file or a folder with logs of one model."""
    if request.data is not None and request.benchmarks is None:
        raise UserError("data are the problems of a benchmark; name the one that was asked", "benchmarks")
    if request.compare != "paper":
        check_reference(request.compare, [])
    benchmarks = choose(request.benchmarks) if request.benchmarks else []
    model, version, logged = _read_logs(log, say)
    name = model if re.fullmatch(r"[\w.-]+/[\w.-]+", model) else model_name(model)
    folder = request.out or Path("evaluations") / f"{folder_name(name).strip('-.') or 'model'}-{TOOL}"
    known = [(benchmark, load_problems(benchmark, data=request.data)) for benchmark in benchmarks]
    tasks: dict[str, Task] = {}
    for task in logged:
        benchmark, problems = _asked(task, known) if known else _of_its_own(task)
        [benchmark] = read_by(request.extractor, [benchmark], request.tolerance)
        data = str(request.data) if request.data is not None else None
        tasks[benchmark.name] = Task(benchmark, problems, len(task.records[0].responses), data)
    if len(tasks) < len(logged) or len({task.sampling.temperature for task in logged}) > 1:
        raise UserError(
            f"{log} has tasks of one benchmark, or at several temperatures; import them one by one, each into another"
            " folder",
            "out",
        )
    origin = {
        "imported": str(log.absolute()),
        "tool": f"{TOOL} {version}".strip(),
        "metrics": {name: task.metrics for name, task in zip(tasks, logged, strict=True)},
    }
    target = Target(model, folder, f"{name} ({TOOL})", origin)
    sampling = max((task.sampling for task in logged), key=lambda it: it.max_new_tokens)
    record = Evaluation(target, [*tasks.values()], replace(request, sampling=sampling)).record()
    record = record.model_copy(update={"generated_by": ({"name": TOOL, "version": version},)})
    store = target.store
    with store.locked(), Judge(ledger=folder / GIVEN_UP) as judge:
        if not store.is_empty:
            raise taken(folder, place="out")
        pairs = zip(tasks.values(), logged, strict=True)
        graded = [_graded(task, it, judge, None if known else _golds(it)) for task, it in pairs]
        for name, rows in zip(tasks, graded, strict=True):
            store.replace(name, rows)
        store.write_record(record)
        scores = store.rescore()
    return scores_answer([(target, [scores[name] for name in tasks])], request.compare)


def _read_logs(place: Path, say: Say) -> tuple[str, str, list[_LoggedTask]]:
    """The model's name, the tool's version, and the tasks; of a task that was run several times the latest run."""
    files = sample_logs(place)
    folders = sorted({str(file.parent) for file in files})
    if len(folders) > 1:
        raise UserError(f"there are logs of {len(folders)} models; name one of {', '.join(folders)}")
    latest: dict[str, tuple[str, Path]] = {}
    for file in files:
        # Such as samples_gsm8k_2026-01-31T12-00-00.123456.jsonl; a renamed one may lack the date.
        name, _, date = file.stem.removeprefix("samples_").rpartition("_")
        name, date = (name, date) if name else (date, "")
        latest[name] = max(latest.get(name, ("", file)), (date, file))
    tasks, results = [], dict[str, Any]()
    for name, (date, file) in latest.items():
        task = _task(name, file)
        if task is None:
            say(f"{name} has likelihoods of given answers and no generated text; left out")
            continue
        tasks.append(task)
        with suppress(UserError):  # there may be none
            results = results or read_json(file.with_name(f"results_{date}.json"))
    if not tasks:
        raise UserError(
            f"{place} has likelihoods of given answers and no generated text, so there is nothing to grade again;"
            " import a task that generates"
        )
    model = results.get("model_name") or Path(folders[0]).name.replace("__", "/")
    return str(model), str(results.get("lm_eval_version") or ""), tasks


def _task(name: str, file: Path) -> _LoggedTask | None:
    """A task; None if it has no generated text."""
    by_problem: dict[str, list[dict[str, Any]]] = {}
    records, settings = [], dict[str, Any]()
    try:
        for line in map(json.loads, read_lines(file)):
            by_problem.setdefault(str(line["doc_id"]), []).append(line)
        for problem_id, (line, *_) in by_problem.items():
            responses = [
                "" if text is None else text  # a request that failed
                for part in line["resps"]
                for text in (part if isinstance(part, list) else [part])
            ]
            if not all(isinstance(text, str) for text in responses):
                return None
            request = next(iter(line["arguments"].values()))
            prompt, settings = request["arg_0"], request["arg_1"]
            prompt = prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False)
            responses, texts = [*map(storable, responses)], [*_texts(line["doc"])]
            records.append(_Record(problem_id, storable(prompt), responses, line["target"], texts))
        if len({len(record.responses) for record in records}) != 1:
            raise ValueError("counts")
        metrics = [_metrics(lines) for lines in by_problem.values()]
        means = {
            key: fmean(it[key] for it in metrics) for key in metrics[0] if all(key in it for it in metrics)
        }
        temperature = 0.0 if settings.get("do_sample") is False else float(settings.get("temperature", 1))
        limit = int(settings.get("max_gen_toks") or settings.get("max_tokens") or _MAX_NEW_TOKENS)
        return _LoggedTask(name, file, records, means, Sampling(temperature, limit))
    except (ValueError, TypeError, LookupError, AttributeError, StopIteration):
        raise UserError(
            f"{file} is no sample log of {TOOL}, or its problems have different numbers of responses; name another"
        ) from None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def _metrics(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """``metric,filter`` -> score; the filter only where there are several."""
    return {
        f"{name},{line.get('filter')}" if len(lines) > 1 else str(name): float(value)
        for line in lines
        for name in line.get("metrics", ())
        if isinstance(value := line.get(name), int | float) and math.isfinite(value)
    }


def _golds(task: _LoggedTask) -> list[list[str]]:
    """The golds of each problem, any of which is right."""
    targets = read_cells(golds_of, (record.target for record in task.records), str(task.file), "target")
    for record, of_problem in zip(task.records, targets, strict=True):
        if not of_problem:
            raise UserError(
                f"{task.file}: problem {record.problem_id} has no gold; name its benchmark", "benchmarks"
            )
    return [[*map(storable, of_problem)] for of_problem in targets]


def _of_its_own(task: _LoggedTask) -> tuple[Benchmark, list[Prompt]]:
    """A benchmark with the problems and golds of the log."""
    firsts = [first for first, *_ in _golds(task)]
    letters = all(map(_LETTER.fullmatch, firsts))
    benchmark = Benchmark(
        name=re.sub(r"[^A-Za-z0-9._:+-]+", "-", task.name).strip("-._:+") or "task",
        title=task.name,
        grader="choice" if letters else "math",
        source=ProblemSource(file=str(task.file.absolute())),
        system=None,
    )
    problems = []
    for record, first in zip(task.records, firsts, strict=True):
        gold = option_letter(first, 10) if letters else first
        turns = (Message("user", record.prompt),)
        problems.append(Prompt(record.problem_id, turns, gold, gold, None, benchmark.name))
    return benchmark, problems


def _asked(
    task: _LoggedTask, known: Sequence[tuple[Benchmark, Sequence[Prompt]]]
) -> tuple[Benchmark, list[Prompt]]:
    """The benchmark that a task asks, and its problems in the order of the log."""
    for benchmark, problems in known:
        places = _places(task, QuestionIndex([problem.messages for problem in problems]))
        if len(places) == len(task.records) == len(set(places)):
            return benchmark, [problems[place] for place in places]
    names = ", ".join(benchmark.name for benchmark, _ in known)
    raise UserError(
        f"{task.file} asks other problems than {names}, or one twice; name the benchmark that was asked, or none"
    )


def _places(task: _LoggedTask, problems: QuestionIndex) -> list[int]:
    """Which problem each record of a task is: the longest that is a text of the record, else the longest that stands in
    its prompt. Records of other problems are left out.
    """
    within = problems.find_within({it.problem_id: it.prompt for it in task.records})
    places: list[int] = []
    for it in task.records:
        same = within.get(it.problem_id, ())
        for text in sorted(it.texts, key=len):
            turns = (Message("user", text),)
            found = problems.find(turns)
            same = problems.in_same_words(turns, found) or found or same
        places += same[:1]
    return places


def _graded(
    task: Task, logged: _LoggedTask, judge: Judge, golds: Sequence[Sequence[str]] | None
) -> list[Generation]:
    """The responses with their grades; where `golds` has several of a problem, by the one that a response matches."""
    samples = _generations(task, logged)
    graded = grade(task.benchmark, samples, judge)
    of_samples = [it for it in golds or () for _ in logged.records[0].responses]
    for number in range(1, max(map(len, of_samples), default=1)):
        pairs = zip(samples, of_samples, strict=True)
        others = [replace(it, gold=of_it[number]) if number < len(of_it) else it for it, of_it in pairs]
        again = grade(task.benchmark, others, judge)
        graded = [
            new if new.is_correct > old.is_correct else old for new, old in zip(again, graded, strict=True)
        ]
    return graded


def _generations(task: Task, logged: _LoggedTask) -> list[Generation]:
    return [
        Generation(
            benchmark=task.benchmark.name,
            problem_id=problem.prompt_id,
            sample=number,
            prompt=record.prompt,
            response=response,
            gold=str(problem.gold),
            choices=problem.choices,
            tokens=None,
            truncated=None,
            seed=None,
        )
        for problem, record in zip(task.problems, logged.records, strict=True)
        for number, response in enumerate(record.responses)
    ]
