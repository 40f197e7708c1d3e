"""Evaluations of one benchmark as the history that an audit reads: each model votes on the benchmark's keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_uppercase

import polars as pl

from olr_cli.analysis.histories import RolloutHistory, log_recipe
from olr_cli.analysis.log_tables import steps_of
from olr_cli.answers import right_answers
from olr_cli.data.log_files import common_place
from olr_cli.data.logs import RolloutLog
from olr_cli.data.prompts import Prompt
from olr_cli.data.questions import asks_the_same
from olr_cli.errors import UserError, at
from olr_cli.evaluation.keys import stored_task
from olr_cli.evaluation.record import EvaluationRecord
from olr_cli.evaluation.scores import is_evaluation
from olr_cli.evaluation.store import EvaluationStore, evaluation_folders
from olr_cli.grouping import gathered
from olr_cli.recipe.layers import override
from olr_cli.runs.directory import has_run

EVALUATIONS = "olr evaluate"
"""The trainer, so to say, of a history of evaluations."""

_READ = (
    "problem_id",
    "gold",
    "answer",
    "answer_class",
    "tokens",
    "truncated",
    "is_correct",
)
_STEP = ("prompt_id", "visit", "step", "sample", "view", "model", "answer", *_READ[4:])


def evaluations_among(places: Sequence[Path]) -> list[EvaluationStore]:
    """Return the evaluations at some places, each an evaluation or a folder of some; none if they are runs or logs."""
    at_places = {
        place: evaluation_folders(place)
        for place in places
        if is_evaluation(place)
        or (any(place.glob("*/evaluation.json")) and not has_run(place))
    }
    if at_places and (others := [place for place in places if place not in at_places]):
        raise UserError(
            f"{next(iter(at_places))} holds evaluations, and {others[0]} is something else",
            "audit the two apart",
        )
    folders = {
        folder.resolve(): folder for folders in at_places.values() for folder in folders
    }
    return [*map(EvaluationStore, folders.values())]


def is_of_evaluations(history: RolloutHistory) -> bool:
    """Whether a history is that of `evaluations_history`."""
    return history.log is not None and history.log.trainer == EVALUATIONS


def evaluations_history(
    stores: Sequence[EvaluationStore],
    benchmark: str | None,
    settings: Iterable[str] = (),
    *,
    keeps_responses: bool = False,
) -> RolloutHistory:
    """Return the samples of a benchmark in some evaluations as a history whose labels are the benchmark's keys.

    Evaluations of one model are visits of one policy. Answers are those that were graded: of multiple choice letters,
    or numbers where the keys are.

    Args:
        stores: at least one.
        benchmark: its name; None: the only one that is finished.
        settings: how files of data and verified labels are read.
        keeps_responses: whether the steps have the responses.

    Raises:
        UserError: no benchmark of that name is finished, or several are and none is named; two evaluations have
            different keys or questions for a problem.
    """
    if any(setting.partition("=")[0].strip() == "data.extractor" for setting in settings):
        raise UserError(
            "the answers of an evaluation are those that were graded",
            "read them otherwise by `olr regrade --extractor`",
            "set data.extractor",
        )
    source = common_place([store.folder for store in stores])
    finished = {store.folder: (store, store.finished()) for store in stores}
    name = _benchmark(source, [names for _, names in finished.values()], benchmark)
    asked = [store for store, names in finished.values() if name in names]
    notes = [
        f"{folder} has no finished {name} and is left out."
        for folder, (_, names) in finished.items()
        if name not in names
    ]
    records = [store.record() for store in asked]
    prompts, of_prompts = _problems(asked, records, name)
    models = _model_names(records)
    columns = [*_READ, *["response"] * keeps_responses]
    tables, visits = [], Counter[str]()
    for store, record in zip(asked, records, strict=True):
        visits[record.model] += 1
        said = {"model": models[record.model], "visit": visits[record.model]}
        rows = store.read(name, columns).with_columns(
            *(pl.lit(value).alias(column) for column, value in said.items())
        )
        is_choice = record.benchmarks[name].definition.grader == "choice"
        tables.append(rows.with_columns(answer=_option()) if is_choice else rows)
    notes += of_prompts + [
        f"{models[model]} was evaluated {count} times: visits of one model."
        for model, count in visits.items()
        if count > 1
    ]
    table = pl.concat(tables).rename({"problem_id": "prompt_id"})
    table = table.filter(pl.col("prompt_id").is_in([*prompts]))
    with at("set"):
        recipe = log_recipe(override({}, settings))
    tolerance = records[0].benchmarks[name].definition.tolerance
    data = recipe.data.model_copy(update={"tolerance": tolerance})
    return RolloutHistory(
        source,
        steps_of(table, [*_STEP, *columns[len(_READ) :]]),
        prompts,
        recipe.model_copy(update={"data": data}),
        log=RolloutLog(source, pl.DataFrame(), trainer=EVALUATIONS),
        notes=notes,
    )


def _benchmark(
    source: Path, finished: Sequence[Sequence[str]], benchmark: str | None
) -> str:
    """Return the name of the benchmark to audit."""
    names = [*dict.fromkeys(name for of_one in finished for name in of_one)]
    if benchmark is None and len(names) == 1:
        return names[0]
    if benchmark in names:
        return benchmark
    if not names:
        raise UserError(
            f"no benchmark is done yet in {source}", "finish it by the same `olr evaluate`"
        )
    problem = f"{source} has {', '.join(names)}"
    if benchmark is not None:
        problem += f" and no finished {benchmark}"
    raise UserError(problem, "name one of them", "benchmark")


def _model_names(records: Sequence[EvaluationRecord]) -> dict[str, str]:
    """Return what each model is called: its name, or the model itself where another has the same name."""
    models = gathered((record.name, record.model) for record in records)
    return {
        model: name if len({*of_name}) == 1 else model
        for name, of_name in models.items()
        for model in of_name
    }


def _problems(
    stores: Sequence[EvaluationStore], records: Sequence[EvaluationRecord], name: str
) -> tuple[dict[str, Prompt], list[str]]:
    """Return the problems of a benchmark by their ids, with their keys as labels, and sentences about them."""
    # Evaluations with one digest have the same problems and keys.
    by_digest = {
        record.benchmarks[name].problems_digest: (store, record.benchmarks[name])
        for store, record in zip(stores, records, strict=True)
    }
    prompts, reasons = dict[str, Prompt](), dict[str, None]()
    for store, asked in by_digest.values():
        task, why = stored_task(store, asked)
        for problem in task.problems:
            # Where the questions are those that a model read, they differ by its template.
            messages = () if why and problem.prompt_id in prompts else problem.messages
            keyed = replace(
                problem, given_label=problem.gold, true_answer=None, noise_type=None
            )
            known = prompts.setdefault(problem.prompt_id, keyed)
            is_exact = bool(messages) and not reasons
            is_other = is_exact and not asks_the_same(known.messages, messages)
            if is_other or known.given_label != problem.gold:
                what = "question" if is_other else "key"
                raise UserError(
                    f"{name}: problem {problem.prompt_id} has another {what} in {store.folder} than in the"
                    " evaluations before it",
                    "name evaluations of the same problems and keys",
                )
        reasons |= {why: None} if why else {}
    several = {
        key for key, it in prompts.items() if len(right_answers(it.given_label or "")) > 1
    }
    notes = [f"The questions of {name}: {why}." for why in reasons]
    if several:
        notes.append(
            f"{len(several):,} problems of {name} have several keys and are left out."
        )
    return {key: it for key, it in prompts.items() if key not in several}, notes


def _option() -> pl.Expr:
    """The option that a sample of multiple choice names: its letter, or its number where the key is one."""
    numbers = {letter: str(place) for place, letter in enumerate(ascii_uppercase, start=1)}
    is_numbered = pl.col("gold").str.contains(r"^\s*\d+\s*$")
    number = pl.col("answer_class").replace_strict(numbers, default=None)
    return pl.when(is_numbered).then(number).otherwise("answer_class")
