"""Evaluations of the responses in a log of lm-evaluation-harness or of any trainer (`olr_cli.data.log_formats`).

lm-eval writes these files (``lm_eval --log_samples --output_path DIR``, version 0.4.13):

    DIR/<model>/results_<date>.json            scores and versions
    DIR/<model>/samples_<task>_<date>.jsonl    the samples of one task

Each task of lm-eval is a benchmark. All prompts of any other log are one benchmark, each with the responses of its last
visit. If the command names benchmarks, each task becomes the benchmark whose problems it asked. It can then be
compared, problem by problem, with any other evaluation of that benchmark. Otherwise the golds come from the log.
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

_SAMPLE_LOGS = "samples_*.jsonl"
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
"""lm-eval's length limit for a task that names none."""
_LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""Names of the length limit; the first in this order counts."""
# `B`, `(B)`; at most as many letters as a problem may have options (`MOST_OPTIONS`)
_LETTER = re.compile(r"\(?[A-J]\)?")


class _Problem(NamedTuple):
    """One prompt of a log, its text, and the responses that are imported as its samples."""

    prompt: Prompt
    """The prompt; its label is still a cell that `golds_of` has to read."""

    text: str
    """The prompt's messages as plain text."""

    texts: Sequence[str]
    """Texts that may be the bare question."""

    rollouts: Sequence[Rollout]


class _LoggedTask(NamedTuple):
    """One task of lm-eval with its logged responses, or the whole log of any other program."""

    name: str
    file: Path
    trainer: str
    problems: Sequence[_Problem]
    results: Mapping[str, Any]
    """Content of lm-eval's file with the scores, or ``model_name`` of another log; empty if there is neither."""

    sampling: Sampling
    unknown: Sequence[str]
    """Settings that the log does not contain. lm-eval left them to the model's generation config or to a server."""


def holds_log(place: Path) -> bool:
    """Return whether a file or folder is a log of responses that `import_log` can read.

    A run of olr is no such log, and neither is an evaluation of olr.
    """
    is_olrs = is_run(place) or bool(evaluation_folders(place))
    return not is_olrs and (bool(_sample_logs(place)) or is_log(place))


def import_log(
    request: EvaluationRequest, log: Path, columns: Mapping[str, str], say: Say
) -> Answer:
    """Grade the responses in a log, store them as an evaluation, and return the output of `olr regrade`.

    Args:
        request: benchmarks, data, extractor and tolerance to grade with, and where to store the evaluation.
        log: the log's file or folder.
        columns: maps a role, such as ``response``, to the log's column for it. Any other role is read from the column
            with its standard name.
        say: is called with notes on the log, and with the tasks that are left out.

    Raises:
        UserError: the log cannot be read or graded, two of its tasks belong to one benchmark or have different
            temperatures, or the folder for results is not empty.
    """
    benchmarks = _named_benchmarks(request)
    logged = _read_tasks(log, columns, request.extractor, say)
    tasks = _as_tasks(logged, benchmarks, request)
    temperatures = {task.sampling.temperature for task in logged}
    # Tasks are stored by benchmark, and an evaluation has one temperature: a second one would replace the first.
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
    """Check a request for an import, and return the benchmarks that it names; empty if it names none.

    Raises:
        UserError: the request has `data` but names no benchmark; a name is unknown; or the path `request.compare` has
            no evaluation with scores.
    """
    if request.data is not None and request.benchmarks is None:
        raise UserError(
            "data are the problems of a benchmark",
            "name the one that was asked",
            "benchmarks",
        )
    # The paper's row depends on the model, which is not known before the log is read.
    if request.compare != "paper":
        check_reference(request.compare, [])
    return choose(request.benchmarks) if request.benchmarks else []


def _as_tasks(
    logged: Sequence[_LoggedTask],
    benchmarks: Sequence[Benchmark],
    request: EvaluationRequest,
) -> dict[str, Task]:
    """Turn each task of a log into a task of the new evaluation; return benchmark name -> task.

    If two tasks of the log belong to one benchmark, the result has only the later one. `import_log` then finds fewer
    tasks than in the log, and raises an error.

    Args:
        logged: the log's tasks.
        benchmarks: the benchmarks that the user named. Each logged task must have asked the problems of one of them. If
            empty, each logged task becomes a benchmark of its own, with the golds of the log.
        request: names the extractor, the tolerance, and the data to read the benchmarks' problems from.

    Raises:
        UserError: a logged task asked other problems, or has a problem without a gold.
    """
    known = [
        (benchmark, load_problems(benchmark, data=request.data)) for benchmark in benchmarks
    ]
    data = str(request.data) if request.data is not None else None
    tasks = {}
    for task in logged:
        benchmark, problems = (
            _asked_benchmark(task, known) if known else _as_benchmark(task)
        )
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
    """Return the target of an imported evaluation: the model behind the responses, and the folder for results.

    Args:
        first: the log's first task.
        results: facts stored beside the responses, such as lm-eval's file of scores. Their ``model_name`` is the model;
            without it, the model is named after the path `first.file`.
        out: the folder; None: ``evaluations/<model>-<program>``.
        origin: facts about the log, for `Target.origin`.
    """
    is_lm_eval = first.trainer == LM_EVAL
    # lm-eval names the folder after the model, `Qwen__Qwen3-4B` for `Qwen/Qwen3-4B`.
    in_path = first.file.parent.name.replace("__", "/") if is_lm_eval else first.file.stem
    model = str(results.get("model_name") or in_path)
    name = model if re.fullmatch(r"[\w.-]+/[\w.-]+", model) else model_name(model)
    by_default = f"{folder_name(name).strip('-.') or 'model'}-{first.trainer}"
    folder = out or Path("evaluations") / by_default
    return Target(model, folder, f"{name} ({first.trainer})", origin)


def _common_sampling(logged: Sequence[_LoggedTask]) -> tuple[Sampling, dict[str, str]]:
    """Return sampling settings that stand for all tasks of a log, and why some of the settings are uncertain.

    Returns:
        The settings of the task with the largest length limit, and a mapping of each uncertain setting to the reason,
        ``differs by task`` or ``unknown``.
    """
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
    """Yield the responses of a logged task as samples that are not graded yet.

    `task` and `logged` must have the same problems in the same order.
    """
    seeds = dict.fromkeys(range(task.samples))
    for problem, it in zip(task.problems, logged.problems, strict=True):
        yield from PooledProblem(task, problem, seeds).generations(it.text, it.rollouts)


def _sample_logs(place: Path) -> list[Path]:
    """Return lm-eval's files ``samples_*.jsonl`` in a folder and in the folders right below it, sorted."""
    return sorted({*place.glob(_SAMPLE_LOGS), *place.glob(f"*/{_SAMPLE_LOGS}")})


def _read_tasks(
    place: Path, columns: Mapping[str, str], extractor: str | None, say: Say
) -> list[_LoggedTask]:
    """Read the tasks of a log.

    Of each task of lm-eval, the latest log is read. Tasks without generated text are left out. A log of any other
    program counts as one task.

    Args:
        place: the log's file or folder.
        columns: maps a role, such as ``response``, to the log's column for it. Any other role is read from the column
            with its standard name.
        extractor: the way to read answers from responses; None: the default of each row's data source.
        say: is called with notes, and with the tasks that are left out.

    Raises:
        UserError: there are logs of several models, or no generated text.
    """
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
            # lm-eval also logs tasks that only compare likelihoods; they have no response to grade.
            if not file.match(_SAMPLE_LOGS):
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
    """Return task name -> (date, file) of the task's latest log.

    lm-eval names a log ``samples_<task>_<date>.jsonl``. The date is returned as text, as it stands in that name. A file
    with another kind of name is a task of its own, which is called like the file and has an empty date.
    """
    latest: dict[str, tuple[str, Path]] = {}
    for file in files:
        # An example is samples_gsm8k_2026-01-31T12-00-00.123456.jsonl; a renamed file may lack the date.
        name, _, date = file.stem.removeprefix("samples_").rpartition("_")
        name, date = (name, date) if name and file.match(_SAMPLE_LOGS) else (file.stem, "")
        latest[name] = max(latest.get(name, ("", file)), (date, file))
    return latest


def _task(name: str, date: str, file: Path, log: RolloutLog, say: Say) -> _LoggedTask:
    """Return a log's task: its problems with their responses, how these were sampled, and the log's own scores.

    Only a log of lm-eval says how its responses were sampled; for any other log, all settings are unknown. The scores
    come from lm-eval's file ``results_DATE.json`` beside the log; they are empty if there is none.

    Args:
        name: the task's name.
        date: the date in the log's name, or an empty text.
        file: the log's file or folder.
        log: the content of `file`.
        say: is called with notes on the log.

    Raises:
        UserError: the log has answers but no responses, `file` holds several logs of inspect_ai, or a log of lm-eval is
            damaged.
    """
    for note in log.notes:
        say(note)
    if "response" not in log.rows.columns:
        raise UserError(
            f"{file} has answers and no responses",
            "name the column with the latter",
            "columns",
        )
    sampling, unknown, results = Sampling(), [*asdict(Sampling()), "seed"], dict[str, Any]()
    # Several logs of inspect_ai come as several steps, and taking the last visits would mix them.
    if log.trainer == INSPECT and log.rows["step"].n_unique() > 1:
        raise UserError(f"{file} holds several logs of {INSPECT}", "name one of them")
    if log.trainer == INSPECT and "model" in log.rows.columns:
        results = {"model_name": log.rows["model"][0]}
    if log.trainer == LM_EVAL:
        # `_sample_logs` found nothing here, so the tasks lie deeper than one folder below.
        if file.is_dir():
            raise UserError(f"{file} is no sample log of {LM_EVAL}", "name another")
        sampling, unknown = _sampling(log.rows["request"][0], file)
        # The file of scores may be missing, or renamed.
        with suppress(UserError):
            read = read_json(file.with_name(f"results_{date}.json"))
            results = read if isinstance(read, dict) else {}
    problems = [*_problems(log.rows, log.questions, say)]
    return _LoggedTask(name, file, log.trainer, problems, results, sampling, unknown)


def _problems(
    rows: pl.DataFrame, questions: Mapping[str, tuple[Message, ...]], say: Say
) -> Iterator[_Problem]:
    """Yield each prompt of a log with the responses that count as its samples.

    A log of training may have visited a prompt several times; only the responses of its last visit count. Each
    prompt keeps only its first n responses, where n is the smallest number that any prompt has.

    Args:
        rows: one row for each response.
        questions: prompt id -> chat messages.
        say: is called with a sentence if responses are left out.
    """
    if rows["visit"].max() != 1:
        say("Of each prompt, the rollouts of its last visit count.")
        rows = rows.filter(pl.col("visit") == pl.col("visit").max().over("prompt_id"))
    sizes = rows.group_by("prompt_id").len()["len"]
    # A score is avg@n with one n for all problems (R19), so the smallest prompt decides.
    samples = int(sizes.min())  # type: ignore[arg-type]  # of whole numbers
    if sizes.max() != samples:
        say(f"Of each prompt, the first {samples} rollouts count: some have no more.")
    golds = [
        pl.col(name).cast(pl.String)
        for name in ("true_answer", "given_label")
        if name in rows.columns
    ]
    # A true answer is better than a label, which may be noise. Without either column, the gold is null.
    rows = rows.with_columns(gold=pl.coalesce(*golds, pl.lit(None, pl.String)))
    for part in rows.partition_by("prompt_id", maintain_order=True):
        logged = part.head(samples).to_dicts()
        prompt_id, gold = str(logged[0]["prompt_id"]), logged[0]["gold"]
        prompt = Prompt(prompt_id, questions.get(prompt_id, ()), gold, gold, None)
        # The empty template joins the messages as plain text, as the model of a log is often unknown.
        [text] = render_all(None, [prompt.messages], ChatFormat(template=""))
        rollouts = [
            Rollout(it["response"] or "", it.get("tokens"), it.get("truncated"))
            for it in logged
        ]
        yield _Problem(prompt, text, json.loads(logged[0].get("doc") or "[]"), rollouts)


def _sampling(request: str, file: Path) -> tuple[Sampling, list[str]]:
    """Return the sampling settings of a logged request, and the names of those that the request leaves open.

    At temperature 0, settings that only matter for random draws do not count as open.

    Args:
        request: the settings of a request, as JSON text from a log of lm-eval.
        file: the log, for the error.

    Raises:
        UserError: the text is no request of lm-eval.
    """
    try:
        asked = json.loads(request)
        sampling = _as_lm_eval_samples(asked)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError):
        raise UserError(f"{file} is no sample log of {LM_EVAL}", "name another") from None
    # At temperature 0 nothing is drawn, so these settings do not matter and count as known.
    by_chance = ("top_p", "top_k", "min_p", "seed") if sampling.temperature else ()
    return sampling, [name for name in by_chance if asked.get(name) is None]


def _as_lm_eval_samples(asked: Mapping[str, Any]) -> Sampling:
    """Return the sampling settings that lm-eval uses for a request.

    Args:
        asked: lm-eval's name of a setting -> its value in the request. A missing setting gets lm-eval's own default.
    """
    limit = next(
        (int(asked[name]) for name in _LIMITS if asked.get(name) is not None),
        _MAX_NEW_TOKENS,
    )
    is_greedy = asked.get("do_sample") is False
    # 0 and -1 mean all tokens, in transformers and in vLLM; `Sampling` has None for it.
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
    """Return lm-eval's own scores of a task as ``metric,filter`` -> value, without standard errors.

    The filter is lm-eval's name for how it read answers; if that is ``none``, the key is ``metric`` alone. The result
    is empty if the log has no file of scores.
    """
    # Another program's file of the same name may hold other types.
    with suppress(AttributeError):
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


def _as_benchmark(task: _LoggedTask) -> tuple[Benchmark, list[Prompt]]:
    """Make a benchmark from a logged task; return the benchmark and its problems.

    The golds come from the log. If all of them are letters of options, A to J, the benchmark is multiple choice.

    Raises:
        UserError: a problem has no gold.
    """
    prompts = [it.prompt for it in task.problems]
    golds = _golds_of(task)
    are_letters = all(_LETTER.fullmatch(gold) for of_one in golds for gold in of_one)
    benchmark = Benchmark(
        name=re.sub(r"[^A-Za-z0-9._:+-]+", "-", task.name).strip("-._:+")[:100] or "task",
        title=task.name,
        grader="choice" if are_letters else "math",
        # inspect_ai's multiple choice asks for `ANSWER: B`, which `boxed` does not read.
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
    """Return a problem's golds as letters of options: ``(B)`` becomes ``B``. Any other gold stays as it is."""
    return tuple(option_letter(gold, MOST_OPTIONS) or gold for gold in golds)


def _golds_of(task: _LoggedTask) -> list[tuple[str, ...]]:
    """Return the golds of each problem of a logged task, in order; a problem may have several right answers.

    Raises:
        UserError: a problem has no gold.
    """
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


def _asked_benchmark(
    task: _LoggedTask, known: Sequence[tuple[Benchmark, Sequence[Prompt]]]
) -> tuple[Benchmark, list[Prompt]]:
    """Return the benchmark whose problems a logged task asked, and the asked problems in the order of the log.

    Args:
        task: the logged task.
        known: the benchmarks to search, each with its problems. The first that has all problems of the task is
            returned.

    Raises:
        UserError: none of the benchmarks has all problems of the task, or the task asks a problem twice.
    """
    for benchmark, problems in known:
        indices = _problem_indices(
            task, QuestionIndex([problem.messages for problem in problems])
        )
        # Every prompt must be found, and no problem twice; otherwise the log is of another benchmark.
        if len(indices) == len(task.problems) == len(set(indices)):
            return benchmark, [problems[index] for index in indices]
    names = ", ".join(benchmark.name for benchmark, _ in known)
    raise UserError(
        f"{task.file} asks other problems than {names}, or one twice",
        "name the benchmark that was asked, or none",
    )


def _problem_indices(task: _LoggedTask, problems: QuestionIndex) -> list[int]:
    """Find each problem of a logged task in a benchmark; return the found problems' indices there, in the log's order.

    A problem that is not found adds no index, so the result may be shorter than the task. For each problem, the second
    way is tried only if the first finds nothing:

    1. Search for a question of the benchmark that equals one of the problem's texts (`_Problem.texts`). If several
       texts equal a question, the longest text decides. For a problem without texts, the prompt's messages are compared
       instead.
    2. Search for the longest question of the benchmark that the prompt contains.
    """
    within = problems.find_within({it.prompt.prompt_id: it.text for it in task.problems})
    indices: list[int] = []
    for it in task.problems:
        same = within.get(it.prompt.prompt_id, ())
        texts: list[tuple[Message, ...]] = [
            (Message("user", text),) for text in sorted(it.texts, key=len)
        ]
        for turns in texts or [it.prompt.messages]:
            found = problems.find(turns)
            # The texts are sorted by length, so the longest one that is a question is left in the end.
            same = problems.in_same_words(turns, found) or found or same
        indices += same[:1]
    return indices
