"""Evaluations from sample logs of lm-evaluation-harness (``lm_eval --log_samples --output_path DIR``), version 0.4.13.

    DIR/<model>/results_<date>.json            scores, settings, versions
    DIR/<model>/samples_<task>_<date>.jsonl    one line per problem and filter: doc_id, doc, target, resps, filter, …

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
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from olr_cli.answers import Judge
from olr_cli.answers.extraction import option_letter
from olr_cli.data.chat import Message
from olr_cli.data.labels import golds_of, read_cells
from olr_cli.data.prompts import Prompt
from olr_cli.data.questions import QuestionIndex
from olr_cli.data.rows import Origins
from olr_cli.errors import UserError, taken
from olr_cli.evaluation.backends import Sampling
from olr_cli.evaluation.benchmark import Benchmark, ProblemSource, choose, read_by
from olr_cli.evaluation.grading import any_of, grade
from olr_cli.evaluation.plan import Evaluation, EvaluationRequest, Say
from olr_cli.evaluation.problems import MOST_OPTIONS, load_problems
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
_LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""Its names, the first of which counts."""
_LETTER = re.compile(r"\(?[A-J]\)?")


class _Record(NamedTuple):
    """What a log says of a problem: `texts` are all of its ``doc``, with the bare question."""

    problem_id: str
    prompt: str
    responses: Sequence[str]
    target: Any
    texts: Sequence[str]


class _LoggedTask(NamedTuple):
    """A task with generated text.

    `metrics` are the tool's own scores, of each metric that every problem has; `unknown` are the settings that the log
    does not say: the tool left them to the model's generation config or to a server.
    """

    name: str
    file: Path
    records: Sequence[_Record]
    metrics: Mapping[str, float]
    sampling: Sampling
    unknown: Sequence[str]


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
    drawn = [asdict(task.sampling) for task in logged]
    others = {name: "differs by task" for name in drawn[0] if any(it[name] != drawn[0][name] for it in drawn)}
    others |= {name: "unknown" for task in logged for name in task.unknown}
    record = Evaluation(target, [*tasks.values()], replace(request, sampling=sampling)).record()
    made = {"name": TOOL, "version": version, "sampling": others}
    record = record.model_copy(update={"generated_by": (made,)})
    store = target.store
    with store.locked(), Judge(ledger=folder / GIVEN_UP) as judge:
        if not store.is_empty:
            raise taken(folder, place="out")
        for (name, asked), it in zip(tasks.items(), logged, strict=True):
            store.replace(name, grade(asked.benchmark, _generations(asked, it), judge))
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
            if any(isinstance(text, list | float) for text in responses):
                return None
            # An API model's reply without text is logged as null; of anything else `storable` raises.
            responses = ["" if text is None else text for text in responses]
            request = next(iter(line["arguments"].values()))
            prompt, settings = request["arg_0"], request["arg_1"]
            prompt = prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False)
            responses, texts = [*map(storable, responses)], [*_texts(line["doc"])]
            records.append(_Record(problem_id, storable(prompt), responses, line["target"], texts))
        counts = {len(record.responses) for record in records}
        if len(counts) != 1 or 0 in counts:
            raise ValueError("counts")
        metrics = [_metrics(lines) for lines in by_problem.values()]
        means = {
            key: fmean(it[key] for it in metrics) for key in metrics[0] if all(key in it for it in metrics)
        }
        return _LoggedTask(name, file, records, means, *_sampling(settings))
    except (ValueError, TypeError, LookupError, AttributeError, StopIteration, RecursionError, OverflowError):
        raise UserError(
            f"{file} is no sample log of {TOOL}, or its problems have different numbers of responses; name another"
        ) from None


def _sampling(asked: Mapping[str, Any]) -> tuple[Sampling, list[str]]:
    """How a request's arguments draw a response, as lm-eval reads them, and the settings that they leave open."""
    limit = next((int(asked[name]) for name in _LIMITS if asked.get(name) is not None), _MAX_NEW_TOKENS)
    temperature = 0.0 if asked.get("do_sample") is False else float(asked.get("temperature") or 0)
    until = asked.get("until") or []
    sampling = Sampling(
        temperature,
        limit,
        top_p=float(asked.get("top_p") or 1),
        top_k=top_k if (top_k := int(asked.get("top_k") or 0)) > 0 else None,
        min_p=float(asked.get("min_p") or 0),
        stop=tuple(storable(str(text)) for text in ([until] if isinstance(until, str) else until) if text),
    )
    by_chance = ("top_p", "top_k", "min_p", "seed") if temperature else ()
    return sampling, [name for name in by_chance if asked.get(name) is None]


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
    targets = read_cells(
        golds_of, (record.target for record in task.records), Origins(str(task.file)), "target"
    )
    for record, of_problem in zip(task.records, targets, strict=True):
        if not of_problem:
            raise UserError(
                f"{task.file}: problem {record.problem_id} has no gold; name its benchmark", "benchmarks"
            )
    return [[*map(storable, of_problem)] for of_problem in targets]


def _of_its_own(task: _LoggedTask) -> tuple[Benchmark, list[Prompt]]:
    """A benchmark with the problems and golds of the log."""
    golds = _golds(task)
    letters = all(_LETTER.fullmatch(gold) for of_problem in golds for gold in of_problem)
    benchmark = Benchmark(
        name=re.sub(r"[^A-Za-z0-9._:+-]+", "-", task.name).strip("-._:+")[:100] or "task",
        title=task.name,
        grader="choice" if letters else "math",
        source=ProblemSource(file=str(task.file.absolute())),
        system=None,
    )
    problems = []
    for record, of_problem in zip(task.records, golds, strict=True):
        gold = any_of([option_letter(it, MOST_OPTIONS) or it for it in of_problem] if letters else of_problem)
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
