"""Evaluations of one benchmark as the history that an audit reads: each model votes on the benchmark's keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, starmap
from pathlib import Path
from string import ascii_uppercase

import polars as pl

from olr_cli.analysis.histories import (
    RolloutHistory,
    columns_of_no_log,
    log_history,
    log_recipe,
)
from olr_cli.data.log_files import common_place
from olr_cli.data.logs import RolloutLog
from olr_cli.errors import UserError, at
from olr_cli.evaluation.keys import stored_task
from olr_cli.evaluation.record import EvaluationRecord
from olr_cli.evaluation.scores import is_evaluation
from olr_cli.evaluation.store import EvaluationStore, evaluation_folders
from olr_cli.recipe.layers import override
from olr_cli.runs.directory import has_run

EVALUATIONS = "olr evaluate"
"""The trainer that a history of evaluations names."""

_COLUMNS = ("problem_id", "gold", "answer", "answer_class", "tokens")


def evaluations_among(
    places: Sequence[Path],
    columns: Mapping[str, str] | None = None,
    benchmark: str | None = None,
) -> list[EvaluationStore]:
    """Return the evaluations at some places, each once; an empty list if the places are runs or logs.

    Args:
        places: files and folders. An evaluation is found by its own folder or by the folder above it.
        columns: value of the command's option for the columns of logs.
        benchmark: value of the command's option for the benchmark of evaluations.

    Raises:
        UserError: only some of the places hold evaluations, `columns` is given for evaluations, or `benchmark` is given
            for anything else.
    """
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
    if at_places and columns:
        raise columns_of_no_log()
    if benchmark is not None and not at_places:
        raise UserError("only evaluations have benchmarks", "leave it out", "benchmark")
    folders = chain.from_iterable(at_places.values())
    return [*map(EvaluationStore, {it.resolve(): it for it in folders}.values())]


def is_of_evaluations(history: RolloutHistory) -> bool:
    """Return whether a history was made from evaluations (`evaluations_history`), not from a run or a log."""
    return history.log is not None and history.log.trainer == EVALUATIONS


def evaluations_history(
    stores: Sequence[EvaluationStore],
    benchmark: str | None,
    settings: Iterable[str] = (),
    *,
    keeps_responses: bool = False,
) -> RolloutHistory:
    """Return the graded samples of a benchmark as a history, with the benchmark's reference answers (keys) as labels.

    If a model was evaluated several times, each evaluation becomes a visit. A sample's answer is the one that was
    extracted for grading. In multiple choice it is a letter, or a number if the keys are numbers. Problems with several
    keys are left out.

    Args:
        stores: at least one evaluation.
        benchmark: name of the benchmark; None for the only one that is finished.
        settings: texts ``KEY=VALUE`` for the recipe by which the history is read.
        keeps_responses: whether the steps include the responses.

    Raises:
        UserError: the benchmark is not finished; or none is named, and not exactly one is finished.
    """
    source = common_place([store.folder for store in stores])
    finished = {store.folder: store.finished() for store in stores}
    name = _benchmark(source, finished, benchmark)
    all_asked = {it: it.record() for it in stores if name in finished[it.folder]}
    asked, under_keys = _under_one_key(all_asked, name)
    rows = _graded_samples(asked, name, ["response"] * keeps_responses)
    # Evaluations with the same digest have the same problems, so reading the questions of one is enough.
    by_digest = {
        record.benchmarks[name].problems_digest: (store, record.benchmarks[name])
        for store, record in asked.items()
    }
    tasks = list(starmap(stored_task, by_digest.values()))
    # A problem with alternative keys stores them as a JSON list; an audit judges one label per prompt.
    several = pl.col("given_label").str.starts_with('["')
    left_out = rows.filter(several)["prompt_id"].n_unique()
    notes = [
        f"{folder} has no finished {name}, and is left out."
        for folder, names in finished.items()
        if name not in names
    ]
    notes += [
        f"{store.folder} is left out: its keys are verified ones, and those of others are not."
        for store in under_keys
    ]
    for _, why in tasks:
        notes += [f"Questions are shown as a model read them: {why}."] * bool(why)
    if left_out:
        notes.append(
            f"Problems that are left out, for they have several keys: {left_out:,}."
        )
    questions = {it.prompt_id: it.messages for task, _ in tasks for it in task.problems}
    log = RolloutLog(source, rows.filter(~several), questions, EVALUATIONS, notes)
    tolerance = next(iter(asked.values())).benchmarks[name].definition.tolerance
    with at("set"):
        changes = override({}, [*settings, f"data.tolerance={tolerance}"])
    return log_history(log, log_recipe(changes))


def _under_one_key(
    asked: Mapping[EvaluationStore, EvaluationRecord], name: str
) -> tuple[Mapping[EvaluationStore, EvaluationRecord], Sequence[EvaluationStore]]:
    """Split the evaluations of the benchmark `name` into those that vote and those that are left out.

    An evaluation may be graded under verified keys, which can differ from the benchmark's own keys (reference answers).
    Votes on different keys cannot be mixed. Evaluations under verified keys are therefore left out, unless there are no
    others.

    Args:
        asked: evaluation -> its record.
        name: name of the benchmark.

    Returns:
        Evaluation -> its record, for those that vote.
        The evaluations that are left out.
    """
    verified = [it for it, record in asked.items() if record.benchmarks[name].verified]
    if len(verified) == len(asked):
        return asked, []
    return {it: record for it, record in asked.items() if it not in verified}, verified


def _graded_samples(
    asked: Mapping[EvaluationStore, EvaluationRecord], name: str, more: Sequence[str]
) -> pl.DataFrame:
    """Return the samples of one benchmark in several evaluations, one row per sample, in the columns of a log.

    The benchmark's key (reference answer) is in ``given_label``. The n-th evaluation of a model is its visit n.

    Args:
        asked: evaluation -> its record.
        name: name of the benchmark.
        more: names of further columns to read.
    """
    # Two models may be recorded under one name; then `model` tells them apart.
    names = Counter(name for name, _ in {(it.name, it.model) for it in asked.values()})
    visits, tables = Counter[str](), []
    for store, record in asked.items():
        visits[record.model] += 1
        rows = store.read(name, [*_COLUMNS, *more])
        if record.benchmarks[name].definition.grader == "choice":
            rows = rows.with_columns(answer=_option())
        model_name = record.name if names[record.name] == 1 else record.model
        facts = {"model": model_name, "visit": visits[record.model], "data_source": name}
        tables.append(rows.with_columns(pl.lit(it).alias(key) for key, it in facts.items()))
    return pl.concat(tables).rename({"problem_id": "prompt_id", "gold": "given_label"})


def _benchmark(
    source: Path, finished: Mapping[Path, Sequence[str]], benchmark: str | None
) -> str:
    """Return the name of the benchmark to audit: `benchmark`, or the only finished one if that is None.

    `finished` maps the folder of each evaluation to the names of its finished benchmarks. `source` is for the error.

    Raises:
        UserError: the named benchmark is not finished; or none is named, and not exactly one is finished.
    """
    names = [*dict.fromkeys(name for names in finished.values() for name in names)]
    if benchmark in names or (benchmark is None and len(names) == 1):
        return benchmark or names[0]
    choice = f"the finished benchmarks in {source} are {', '.join(names)}"
    raise UserError(
        choice if names else f"no benchmark is finished in {source}",
        "name one of them" if names else "the same `olr evaluate` continues",
        "benchmark",
    )


def _option() -> pl.Expr:
    """Build the expression for the option that a multiple-choice sample chose.

    The option is a letter. If the key (reference answer) is a number, the option becomes a number too: A is 1.
    """
    numbers = {
        letter: str(position) for position, letter in enumerate(ascii_uppercase, start=1)
    }
    number = pl.col("answer_class").replace_strict(numbers, default=None)
    is_numbered = pl.col("gold").str.contains(r"^\s*\d+\s*$")
    return pl.when(is_numbered).then(number).otherwise("answer_class")
