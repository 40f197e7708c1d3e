"""Results at the end of runs, shared by figures and tables: metrics of arms, and scores or held-out accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import polars as pl

from olr_cli.analysis.arms import Arm, measured, telling_settings
from olr_cli.analysis.frame import mean_cell
from olr_cli.errors import UserError
from olr_cli.evaluation.benchmark import PAPER, registry
from olr_cli.evaluation.published import model_name
from olr_cli.evaluation.scores import ScoreColumn, StoredScores, stored_scores
from olr_cli.grouping import gathered
from olr_cli.runs.stored import Run
from olr_cli.supervision.metrics import LABEL_METRICS
from olr_cli.tables import Cell

TITLES = {
    "eval/avg": "held-out accuracy",
    "majority/accuracy_noisy": "majority accuracy on noisy prompts",
    "label/selected_accuracy": "accuracy of selected labels",
    "label/effective_noise": "effective noise",
}
"""Metrics of arms: held-out accuracy is the last logged value, the others are counted from the last epoch's labels."""

HELD_OUT = ScoreColumn("eval/avg", "held-out accuracy", None)
BELOW_START = "below_start"
"""1 for a run that ended below its own held-out accuracy before training, else 0."""

AVERAGES = (
    ScoreColumn("in", "ID", "in", is_average=True),
    ScoreColumn("out", "OOD", "out", is_average=True),
)
"""The paper's means over the in- and the out-of-distribution benchmarks."""

_TASK = ("model.path", "data.train", "data.test")
"""Settings that define a task: runs that agree in them started from one policy and are measured on the same prompts."""


def at_the_end(arms: Sequence[Arm]) -> pl.DataFrame:
    """Return how each run ended: its held-out accuracy and measures of its labels (the metrics of `TITLES`).

    The columns are arm, seed, metric, ``at`` (null) and value. Metrics without a value are left out.
    """
    counted = [name for name in TITLES if name in LABEL_METRICS]
    last: dict[Path, Any] = {}
    for arm in arms:
        for run, rows in zip(arm.runs, arm.by_epoch(), strict=True):
            at_end = rows.row(-1, named=True)
            last[run.path] = {name: at_end[name] for name in counted}
    return measured(
        arms, lambda run: {HELD_OUT.name: run.last_logged(HELD_OUT.name), **last[run.path]}
    )


@dataclass(frozen=True)
class Start:
    """A policy before training and its scores: a row of a table, to compare the rows of trained runs with."""

    model: str
    """The policy's name as in the paper's tables."""

    detail: str
    """The settings that distinguish it from other starts in the table; empty if there are none."""

    cells: Mapping[str, Cell]


@dataclass(frozen=True)
class Source:
    """The scores that a table shows, from benchmarks or from held-out accuracy logged during training.

    `source_of` makes it. It has the scores of trained runs, and those of the policies that they started from.
    """

    columns: Sequence[ScoreColumn]
    shares: Mapping[Path, Mapping[str, float]]
    """Run directory -> column -> measurement at the run's end; held-out accuracy has `BELOW_START` too."""

    starts: Sequence[Start]
    """The policies that the runs started from, as far as they were measured."""

    notes: Sequence[str]

    @property
    def is_held_out(self) -> bool:
        """Whether the numbers are held-out accuracy, on the runs' own task."""
        return HELD_OUT in self.columns

    @property
    def published(self) -> Sequence[ScoreColumn]:
        """The paper's columns of scores to show beside those of the runs.

        They are the columns of the same benchmarks, or the paper's averages over benchmarks if the runs have only
        held-out accuracy.
        """
        return AVERAGES if self.is_held_out else self.columns

    def values(self, run: Run) -> Mapping[str, float]:
        """Return the run's scores at its end, a mapping from columns to scores; empty if the run has none."""
        return self.shares.get(run.path, {})


def source_of(arms: Sequence[Arm], models: Sequence[Path]) -> Source:
    """Return the scores of the arms' runs.

    They are benchmark scores if any run has a score on one of the paper's benchmarks, or if `models` is not empty.
    Otherwise they are held-out accuracy. `models` are folders of evaluations of policies before training.
    """
    runs = [run for arm in arms for run in arm.runs]
    scores = {
        run.path: last for run in runs if (last := _last_scores(run.path)) is not None
    }
    if scores or models:
        return _benchmark_scores(scores, [_model_scores(place) for place in models])
    return _held_out(runs)


def task(run: Run) -> dict[str, object]:
    """Return the settings that define what a run is measured on: its starting policy, training data and held-out data.

    The dict maps a dotted key of the recipe to its value, or to ``unset``. Runs with the same task can be compared.
    """
    return {key: run.settings.get(key, "unset") for key in _TASK}


def _held_out(runs: Sequence[Run]) -> Source:
    """Return a `Source` with the held-out accuracy that the runs logged during training.

    A run's score is the last accuracy that it logged. The one at step 0 is the score of the policy before training.
    """
    name = HELD_OUT.name
    first = {run.path: run.logged_before_training(name) for run in runs}
    shares: dict[Path, dict[str, float]] = {}
    for run in runs:
        if (end := run.last_logged(name)) is not None:
            start = first[run.path]
            # Without a value at step 0 the key is absent: a False would count the run as not below its start.
            shares[run.path] = {name: end} | (
                {} if start is None else {BELOW_START: float(end < start)}
            )
    # Dicts cannot be keys, so tasks are compared by their texts.
    tasks = {repr(task(run)): task(run) for run in runs}
    starts = []
    for key, detail in zip(tasks, telling_settings(list(tasks.values())), strict=True):
        # Several arms share a start. Average them by seed first, or each arm would count as another seed.
        seeds = gathered(
            (run.seed, start)
            for run in runs
            if repr(task(run)) == key and (start := first[run.path]) is not None
        )
        cells = (
            {name: mean_cell([fmean(values) for values in seeds.values()])} if seeds else {}
        )
        starts.append(Start(model_name(str(tasks[key]["model.path"])), detail, cells))
    notes = ["Ours: held-out accuracy at the end of training, on the run's own task."]
    return Source((HELD_OUT,), shares, starts, notes)


def _last_scores(run: Path) -> StoredScores | None:
    """Return the benchmark scores of a run's last scored checkpoint, or None if there are none (R22).

    `olr evaluate RUN` scores checkpoints. Only evaluations on a benchmark of the paper count.
    """
    evaluations = [
        stored_scores(file.parent) for file in sorted(run.glob("evaluation/*/scores.json"))
    ]
    of_paper = [
        scores for scores in evaluations if not scores.benchmarks.keys().isdisjoint(PAPER)
    ]
    # Scores of the last step, not the newest file: an earlier checkpoint may have been scored later.
    return max(of_paper, key=lambda scores: scores.step or 0, default=None)


def _model_scores(place: Path) -> StoredScores:
    scores = stored_scores(place)
    if scores.step is not None:
        raise UserError(
            f"{place} is the evaluation of a run's checkpoint", "name the run itself"
        )
    if scores.benchmarks.keys().isdisjoint(PAPER):
        raise UserError(
            f"{place} has scores on none of the paper's benchmarks ({', '.join(PAPER)})",
            "leave it out: the runs have their own held-out accuracy before training",
        )
    return scores


def _benchmark_scores(
    scores: Mapping[Path, StoredScores], models: Sequence[StoredScores]
) -> Source:
    """Return a `Source` with the scores on the paper's benchmarks.

    Args:
        scores: run directory -> its scores.
        models: scores of policies before training.
    """
    columns = []
    for average in AVERAGES:
        benchmarks = [
            registry()[name]
            for name in PAPER
            if registry()[name].distribution == average.group
        ]
        columns += [
            *(
                ScoreColumn(benchmark.name, benchmark.title, average.group)
                for benchmark in benchmarks
            ),
            average,
        ]
    # An evaluation may hold benchmarks that the paper does not have; their scores are left out.
    names = {column.name for column in columns}

    def shares(evaluation: StoredScores) -> dict[str, float]:
        return {name: share for name, share in evaluation.shares.items() if name in names}

    # An evaluation has no training seed, so a start is a mean of one value, without sd or interval.
    starts = [
        Start(
            model_name(model.name),
            model.name if len(models) > 1 else "",
            {name: mean_cell([share]) for name, share in shares(model).items()},
        )
        for model in models
    ]
    no_start = (
        "The policy before training has no scores here: name its evaluation too, the folder that `olr evaluate MODEL`"
        " wrote."
    )
    notes = [
        "Ours: what `olr evaluate` left in the runs, of each run's last checkpoint that was scored; held-out accuracy"
        " is left out.",
        *([] if models else [no_start]),
        *_unequal([*scores.values(), *models]),
    ]
    return Source(
        columns, {path: shares(last) for path, last in scores.items()}, starts, notes
    )


def _unequal(evaluations: Sequence[StoredScores]) -> Iterator[str]:
    for name in PAPER:
        scores = [
            scores.benchmarks[name] for scores in evaluations if name in scores.benchmarks
        ]
        title = registry()[name].title
        if any(not score.is_whole for score in scores):
            yield f"{title}: only some of the problems were scored, so it does not compare with the paper's."
        if len({(score.samples, score.problems) for score in scores}) > 1:
            yield f"{title}: not all runs were scored on the same number of problems and samples."
