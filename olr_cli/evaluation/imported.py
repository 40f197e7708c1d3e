"""Evaluations of the responses in a log: of lm-evaluation-harness, or of any trainer (`olr_cli.data.log_formats`).

    DIR/<model>/results_<date>.json            of lm-eval: scores, versions
    DIR/<model>/samples_<task>_<date>.jsonl    a task each (``lm_eval --log_samples --output_path DIR``, 0.4.13)

Each task of lm-eval's is a benchmark; of any other log all prompts are one, each with the rollouts of its last visit.
With benchmarks named, each becomes the benchmark whose problems it asked, so it can be compared, problem by problem,
with any other evaluation of that benchmark. Without, the golds are those of the log.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from olr_cli.answers import Judge, any_of, option_letter
from olr_cli.data.chat import Message
from olr_cli.data.labels import golds_of, read_cells
from olr_cli.data.log_files import is_log
from olr_cli.data.log_formats import INSPECT, LM_EVAL
from olr_cli.data.logs import RolloutLog, read_log
from olr_cli.data.prompts import Prompt
from olr_cli.data.questions import QuestionIndex
from olr_cli.data.values import Origins
from olr_cli.engines.prompt_text import ChatFormat, render_all
from olr_cli.errors import NoRows, UserError, taken
from olr_cli.evaluation.benchmark import Benchmark, ProblemSource, choose, read_by
from olr_cli.evaluation.grading import grade
from olr_cli.evaluation.plan import Evaluation, EvaluationRequest, Say
from olr_cli.evaluation.pool import PooledProblem
from olr_cli.evaluation.problems import MOST_OPTIONS, load_problems
from olr_cli.evaluation.published import model_name
from olr_cli.evaluation.record import Generation, Task
from olr_cli.evaluation.results import check_reference, scores_answer
from olr_cli.evaluation.store import Target, evaluation_folders
from olr_cli.files import read_json, storable
from olr_cli.recipe.layers import folder_name
from olr_cli.recipe.sampling import Sampling
from olr_cli.runs.directory import GIVEN_UP, is_run
from olr_cli.supervision import Rollout
from olr_cli.tables import Answer

_PATTERN = "samples_*.jsonl"
_WANTED = (
    "response",
    "true_answer",
    "given_label",
    "tokens",
    "truncated",
    "model",
    "doc",
    "request",
)
_MAX_NEW_TOKENS = 256
"""The length limit that lm-eval takes where a task names none."""
_LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""Its names, the first of which counts."""
_LETTER = re.compile(r"\(?[A-J]\)?")


class _Problem(NamedTuple):
    """A problem of a log: its label is a cell that `golds_of` reads, and `texts` may each be its bare question."""

    prompt: Prompt
    text: str
    texts: Sequence[str]
    rollouts: Sequence[Rollout]


class _LoggedTask(NamedTuple):
    """A task with generated text.

    `results` is the file with its scores, of lm-eval; `unknown` are the settings that the log does not say: lm-eval
    left them to the model's generation config or to a server.
    """

    name: str
    file: Path
    trainer: str
    problems: Sequence[_Problem]
    results: Mapping[str, Any]
    sampling: Sampling
    unknown: Sequence[str]


def holds_log(place: Path) -> bool:
    """Whether there is a log at a place, and neither a run nor an evaluation."""
    is_olrs = is_run(place) or bool(evaluation_folders(place))
    return not is_olrs and (bool(_sample_logs(place)) or is_log(place))


def import_log(
    request: EvaluationRequest, log: Path, columns: Mapping[str, str], say: Say
) -> Answer:
    """Grade the responses in a log; `columns` as of `read_log`."""
    benchmarks = _named_benchmarks(request)
    logged = _read_tasks(log, columns, request.extractor, say)
    tasks = _as_tasks(logged, benchmarks, request)
    temperatures = {task.sampling.temperature for task in logged}
    if len(tasks) < len(logged) or len(temperatures) > 1:
        raise UserError(
            f"{log} has tasks of one benchmark, or at several temperatures",
            "import them one by one, each into another folder",
            "out",
        )
    trainer = logged[0].trainer
    results: Mapping[str, Any] = next((it.results for it in logged if it.results), {})
    version = str(results.get("lm_eval_version") or "")
    origin = {
        "imported": str(log.absolute()),
        "tool": f"{trainer} {version}".strip(),
        "metrics": {name: _metrics(it) for name, it in zip(tasks, logged, strict=True)},
    }
    target = _target(logged[0], results, request.out, origin)
    sampling, left_open = _common_sampling(logged)
    made = {"name": trainer, "version": version, "sampling": left_open}
    record = Evaluation(
        target, [*tasks.values()], replace(request, sampling=sampling)
    ).record()
    record = record.model_copy(update={"generated_by": (made,)})
    store = target.store
    with store.locked(), Judge(ledger=target.folder / GIVEN_UP) as judge:
        if not store.is_empty:
            raise taken(target.folder, place="out")
        for (name, task), it in zip(tasks.items(), logged, strict=True):
            store.replace(name, grade(task.benchmark, [*_samples(task, it)], judge))
        store.write_record(record)
        scores = store.rescore(record)
    return scores_answer([(target, [scores[name] for name in tasks])], request.compare)


def _named_benchmarks(request: EvaluationRequest) -> list[Benchmark]:
    """Return the benchmarks that a request names, if what else it asks for goes with a log."""
    if request.data is not None and request.benchmarks is None:
        raise UserError(
            "data are the problems of a benchmark",
            "name the one that was asked",
            "benchmarks",
        )
    if request.compare != "paper":
        check_reference(request.compare, [])
    return choose(request.benchmarks) if request.benchmarks else []


def _as_tasks(
    logged: Sequence[_LoggedTask],
    benchmarks: Sequence[Benchmark],
    request: EvaluationRequest,
) -> dict[str, Task]:
    """Return what each task asks, by its benchmark: one of those that are named, if any, else one of its own."""
    known = [
        (benchmark, load_problems(benchmark, data=request.data)) for benchmark in benchmarks
    ]
    data = str(request.data) if request.data is not None else None
    tasks = {}
    for task in logged:
        benchmark, problems = _asked(task, known) if known else _of_its_own(task)
        [benchmark] = read_by(request.extractor, [benchmark], request.tolerance)
        tasks[benchmark.name] = Task(
            benchmark, problems, len(task.problems[0].rollouts), data
        )
    return tasks


def _target(
    first: _LoggedTask,
    results: Mapping[str, Any],
    out: Path | None,
    origin: Mapping[str, Any],
) -> Target:
    """Return the model that a log is of, as its file of scores or its path names it, and its evaluation's folder."""
    is_lm_eval = first.trainer == LM_EVAL
    in_path = first.file.parent.name.replace("__", "/") if is_lm_eval else first.file.stem
    model = str(results.get("model_name") or in_path)
    name = model if re.fullmatch(r"[\w.-]+/[\w.-]+", model) else model_name(model)
    by_default = f"{folder_name(name).strip('-.') or 'model'}-{first.trainer}"
    folder = out or Path("evaluations") / by_default
    return Target(model, folder, f"{name} ({first.trainer})", origin)


def _common_sampling(logged: Sequence[_LoggedTask]) -> tuple[Sampling, dict[str, str]]:
    """Return how the tasks' responses were drawn, and the settings that differ by task or that nobody knows."""
    sampling = max((task.sampling for task in logged), key=lambda it: it.max_new_tokens)
    first, *others = (asdict(task.sampling) for task in logged)
    left_open = {
        name: "differs by task"
        for name, value in first.items()
        if any(other[name] != value for other in others)
    }
    return sampling, left_open | {
        name: "unknown" for task in logged for name in task.unknown
    }


def _samples(task: Task, logged: _LoggedTask) -> Iterator[Generation]:
    """Yield the responses of a log as samples of the benchmark, not graded yet."""
    seeds = dict.fromkeys(range(task.samples))
    for problem, it in zip(task.problems, logged.problems, strict=True):
        yield from PooledProblem(task, problem, seeds).generations(it.text, it.rollouts)


def _sample_logs(place: Path) -> list[Path]:
    """The sample logs of lm-eval in a folder or right below it."""
    return sorted({*place.glob(_PATTERN), *place.glob(f"*/{_PATTERN}")})


def _read_tasks(
    place: Path, columns: Mapping[str, str], extractor: str | None, say: Say
) -> list[_LoggedTask]:
    """The tasks of lm-eval's that have generated text, of each the latest run; any other log is one task."""
    files = _sample_logs(place)
    folders = sorted({str(file.parent) for file in files})
    if len(folders) > 1:
        raise UserError(
            f"there are logs of {len(folders)} models", f"name one of {', '.join(folders)}"
        )
    tasks = []
    for name, (date, file) in _latest(files or [place]).items():
        try:
            log = read_log(
                [file], columns, wanted=_WANTED, extractor=extractor, keeps_responses=True
            )
        except NoRows:
            if not file.match(_PATTERN):
                raise
            say(f"{name} has likelihoods of given answers and no generated text; left out")
            continue
        tasks.append(_task(name, date, file, log, say))
    if not tasks:
        raise UserError(
            f"{place} has likelihoods of given answers and no generated text, so there is nothing to grade again",
            "import a task that generates",
        )
    return tasks


def _latest(files: Sequence[Path]) -> dict[str, tuple[str, Path]]:
    """Return the latest file of each task, by the task's name, with its date."""
    latest: dict[str, tuple[str, Path]] = {}
    for file in files:
        # Such as samples_gsm8k_2026-01-31T12-00-00.123456.jsonl; a renamed one may lack the date.
        name, _, date = file.stem.removeprefix("samples_").rpartition("_")
        name, date = (name, date) if name and file.match(_PATTERN) else (file.stem, "")
        latest[name] = max(latest.get(name, ("", file)), (date, file))
    return latest


def _task(name: str, date: str, file: Path, log: RolloutLog, say: Say) -> _LoggedTask:
    """Return the task of a log that has been read; lm-eval's says how it sampled, and has its scores beside it."""
    for note in log.notes:
        say(note)
    if "response" not in log.rows.columns:
        raise UserError(
            f"{file} has answers and no responses",
            "name the column with the latter",
            "columns",
        )
    sampling, unknown, results = Sampling(), [*asdict(Sampling()), "seed"], dict[str, Any]()
    if log.trainer == INSPECT and log.rows["step"].n_unique() > 1:
        raise UserError(f"{file} holds several logs of {INSPECT}", "name one of them")
    if log.trainer == INSPECT and "model" in log.rows.columns:
        results = {"model_name": log.rows["model"][0]}
    if log.trainer == LM_EVAL:
        if file.is_dir():  # whose tasks lie deeper
            raise UserError(f"{file} is no sample log of {LM_EVAL}", "name another")
        sampling, unknown = _sampling(log.rows["request"][0], file)
        with suppress(UserError):  # there may be none
            read = read_json(file.with_name(f"results_{date}.json"))
            results = read if isinstance(read, dict) else {}
    problems = [*_problems(log.rows, log.questions, say)]
    return _LoggedTask(name, file, log.trainer, problems, results, sampling, unknown)


def _problems(
    rows: pl.DataFrame, questions: Mapping[str, tuple[Message, ...]], say: Say
) -> Iterator[_Problem]:
    """The prompts of a log with the rollouts of their last visits, of each as many as every prompt has."""
    if rows["visit"].max() != 1:
        say("Of each prompt, the rollouts of its last visit count.")
        rows = rows.filter(pl.col("visit") == pl.col("visit").max().over("prompt_id"))
    sizes = rows.group_by("prompt_id").len()["len"]
    samples = int(sizes.min())  # type: ignore[arg-type]  # of whole numbers
    if sizes.max() != samples:
        say(f"Of each prompt, the first {samples} rollouts count: some have no more.")
    golds = [
        pl.col(name).cast(pl.String)
        for name in ("true_answer", "given_label")
        if name in rows.columns
    ]
    rows = rows.with_columns(gold=pl.coalesce(*golds, pl.lit(None, pl.String)))
    for part in rows.partition_by("prompt_id", maintain_order=True):
        logged = part.head(samples).to_dicts()
        prompt_id, gold = str(logged[0]["prompt_id"]), logged[0]["gold"]
        prompt = Prompt(prompt_id, questions.get(prompt_id, ()), gold, gold, None)
        [text] = render_all(None, [prompt.messages], ChatFormat(template=""))
        rollouts = [
            Rollout(it["response"] or "", it.get("tokens"), it.get("truncated"))
            for it in logged
        ]
        yield _Problem(prompt, text, json.loads(logged[0].get("doc") or "[]"), rollouts)


def _sampling(request: str, file: Path) -> tuple[Sampling, list[str]]:
    """Return how a request's settings draw a response, and the settings that they leave open."""
    try:
        asked = json.loads(request)
        sampling = _as_lm_eval_samples(asked)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError):
        raise UserError(f"{file} is no sample log of {LM_EVAL}", "name another") from None
    by_chance = ("top_p", "top_k", "min_p", "seed") if sampling.temperature else ()
    return sampling, [name for name in by_chance if asked.get(name) is None]


def _as_lm_eval_samples(asked: Mapping[str, Any]) -> Sampling:
    """Return what lm-eval makes of a request's settings, with its own defaults."""
    limit = next(
        (int(asked[name]) for name in _LIMITS if asked.get(name) is not None),
        _MAX_NEW_TOKENS,
    )
    is_greedy = asked.get("do_sample") is False
    top_k = int(asked.get("top_k") or 0)
    until = asked.get("until") or []
    texts = [until] if isinstance(until, str) else until
    return Sampling(
        0.0 if is_greedy else float(asked.get("temperature") or 0),
        limit,
        top_p=float(asked.get("top_p") or 1),
        top_k=top_k if top_k > 0 else None,
        min_p=float(asked.get("min_p") or 0),
        stop=tuple(storable(str(text)) for text in texts if text),
    )


def _metrics(task: _LoggedTask) -> dict[str, float]:
    """``metric,filter`` -> lm-eval's own score; the filter only where there is one."""
    with suppress(AttributeError):  # of a file that is none of lm-eval's
        scores = task.results.get("results", {}).get(task.name, {})
        return {
            name.removesuffix(",none"): value
            for name, value in scores.items()
            if "," in name
            and "_stderr," not in name
            and isinstance(value, int | float)
            and math.isfinite(value)
        }
    return {}


def _of_its_own(task: _LoggedTask) -> tuple[Benchmark, list[Prompt]]:
    """Return a benchmark with the problems and golds of the log."""
    prompts = [it.prompt for it in task.problems]
    golds = _golds_of(task)
    are_letters = all(_LETTER.fullmatch(gold) for of_one in golds for gold in of_one)
    benchmark = Benchmark(
        name=re.sub(r"[^A-Za-z0-9._:+-]+", "-", task.name).strip("-._:+")[:100] or "task",
        title=task.name,
        grader="choice" if are_letters else "math",
        extractor="choice" if are_letters and task.trainer == INSPECT else "boxed",
        source=ProblemSource(file=str(task.file.absolute())),
        system=None,
    )
    if are_letters:
        golds = [_as_letters(of_one) for of_one in golds]
    right = [any_of([*map(storable, of_one)]) for of_one in golds]
    return benchmark, [
        replace(it, given_label=gold, true_answer=gold, data_source=benchmark.name)
        for it, gold in zip(prompts, right, strict=True)
    ]


def _as_letters(golds: Iterable[str]) -> tuple[str, ...]:
    """Return the golds of a problem as letters of its options."""
    return tuple(option_letter(gold, MOST_OPTIONS) or gold for gold in golds)


def _golds_of(task: _LoggedTask) -> list[tuple[str, ...]]:
    """Return the golds of each problem of a log, of which there must be one."""
    cells = (it.prompt.given_label for it in task.problems)
    golds = read_cells(golds_of, cells, Origins(str(task.file)), "gold")
    if () in golds:
        without = task.problems[golds.index(())].prompt.prompt_id
        raise UserError(
            f"{task.file}: problem {without} has no gold",
            "name its benchmark",
            "benchmarks",
        )
    return golds


def _asked(
    task: _LoggedTask, known: Sequence[tuple[Benchmark, Sequence[Prompt]]]
) -> tuple[Benchmark, list[Prompt]]:
    """The benchmark that a task asks, and its problems in the order of the log."""
    for benchmark, problems in known:
        places = _places(task, QuestionIndex([problem.messages for problem in problems]))
        if len(places) == len(task.problems) == len(set(places)):
            return benchmark, [problems[place] for place in places]
    names = ", ".join(benchmark.name for benchmark, _ in known)
    raise UserError(
        f"{task.file} asks other problems than {names}, or one twice",
        "name the benchmark that was asked, or none",
    )


def _places(task: _LoggedTask, problems: QuestionIndex) -> list[int]:
    """Which problem each of a log's is: the longest that is one of its texts, else the longest that stands in its
    prompt. Those of other benchmarks are left out.
    """
    within = problems.find_within({it.prompt.prompt_id: it.text for it in task.problems})
    places: list[int] = []
    for it in task.problems:
        same = within.get(it.prompt.prompt_id, ())
        texts: list[tuple[Message, ...]] = [
            (Message("user", text),) for text in sorted(it.texts, key=len)
        ]
        for turns in texts or [it.prompt.messages]:
            found = problems.find(turns)
            same = problems.in_same_words(turns, found) or found or same
        places += same[:1]
    return places
