"""Where the numbers of the paper's tables come from: benchmark scores in the runs, else their held-out accuracy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Protocol

from olr_cli.analysis.arms import Arm, Run, telling_settings
from olr_cli.errors import UserError
from olr_cli.evaluation.benchmark import PAPER, registry
from olr_cli.evaluation.published import model_name
from olr_cli.evaluation.scores import StoredScores, stored_scores
from olr_cli.evaluation.tables import Column
from olr_cli.runs.checkpoints import checkpoint_steps

HELD_OUT = Column("eval/avg", "held-out accuracy", None)
AVERAGES = (Column("in", "ID", "in", is_average=True), Column("out", "OOD", "out", is_average=True))
"""The paper's means over the in- and the out-of-distribution benchmarks."""

_TASK = ("model.path", "data.train", "data.test")
"""Runs that agree in these started from one policy and are measured on the same prompts."""

BySeed = dict[int, float]


@dataclass(frozen=True)
class BeforeTraining:
    """A policy before training.

    Attributes:
        model: as the paper's tables would call it.
        detail: what tells it from others of the table; empty if there are none.
        values: column -> seed -> share.
    """

    model: str
    detail: str
    values: Mapping[str, BySeed]


class Source(Protocol):
    """Where the numbers come from.

    Attributes:
        columns: what is measured of each run.
        published: the columns of the paper's scores that are shown.
    """

    @property
    def columns(self) -> Sequence[Column]: ...

    @property
    def published(self) -> Sequence[Column]: ...

    def values(self, run: Run) -> Mapping[str, float]:
        """What was measured of a run at its end, by column."""

    def before_training(self) -> list[BeforeTraining]:
        """The policies that the runs started from, as far as they were measured."""

    def notes(self) -> Iterator[str]:
        """What a reader should know about the numbers."""


def source_of(arms: Sequence[Arm], models: Sequence[Path]) -> Source:
    """Benchmark scores if any run has some of the paper's benchmarks or models are given, else held-out accuracy.

    Args:
        arms: of the table.
        models: evaluations of policies before training.
    """
    runs = [run for arm in arms for run in arm.runs]
    scores = {run.path: last for run in runs if (last := _last_scores(run.path)) is not None}
    return (
        BenchmarkScores(runs, scores, [_of_a_model(place) for place in models])
        if scores or models
        else HeldOut(runs)
    )


def _last_scores(run: Path) -> StoredScores | None:
    """The scores of the last checkpoint that `olr evaluate RUN` scored on some of the paper's benchmarks (R22)."""
    evaluations = [stored_scores(file.parent) for file in run.glob("evaluation/*/scores.json")]
    of_paper = [scores for scores in evaluations if not scores.benchmarks.keys().isdisjoint(PAPER)]
    return max(of_paper, key=lambda scores: scores.step or 0, default=None)


def _of_a_model(place: Path) -> StoredScores:
    scores = stored_scores(place)
    if scores.step is not None:
        raise UserError(f"{place} is the evaluation of a run's checkpoint; name the run itself")
    if scores.benchmarks.keys().isdisjoint(PAPER):
        raise UserError(
            f"{place} has scores on none of the paper's benchmarks ({', '.join(PAPER)}); leave it out: the runs have"
            " their own held-out accuracy before training"
        )
    return scores


def task(run: Run) -> dict[str, object]:
    """From which policy a run started, and on which prompts it is measured."""
    return {key: run.settings.get(key, "unset") for key in _TASK}


class HeldOut:
    """Held-out accuracy as it was logged during training: the last value, and at step 0."""

    columns = (HELD_OUT,)
    published = AVERAGES

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = runs

    def values(self, run: Run) -> Mapping[str, float]:
        """The last value; nothing if there is none."""
        last = run.last_logged(HELD_OUT.name)
        return {} if last is None else {HELD_OUT.name: last}

    def before_training(self) -> list[BeforeTraining]:
        """Of each policy the values at step 0, averaged over the runs of a seed."""
        tasks = list({repr(task(run)): task(run) for run in self._runs}.values())
        found = []
        for own, detail in zip(tasks, telling_settings(tasks), strict=True):
            seeds: defaultdict[int, list[float]] = defaultdict(list)
            for run in self._runs:
                start = run.logged_before_training(HELD_OUT.name)
                if start is not None and task(run) == own:
                    seeds[run.seed].append(start)
            values = {seed: fmean(starts) for seed, starts in sorted(seeds.items())}
            found.append(BeforeTraining(model_name(str(own["model.path"])), detail, {HELD_OUT.name: values}))
        return found

    def notes(self) -> Iterator[str]:
        """What ours are."""
        yield "Ours: held-out accuracy at the end of training, on the run's own task."


class BenchmarkScores:
    """Scores that `olr evaluate` left.

    Args:
        runs: of the table.
        scores: run directory -> the scores of its last evaluated checkpoint.
        models: the scores of policies before training.
    """

    def __init__(
        self, runs: Sequence[Run], scores: Mapping[Path, StoredScores], models: Sequence[StoredScores]
    ) -> None:
        self._runs, self._scores, self._models = runs, scores, models
        named = [registry()[name] for name in PAPER]
        self.columns = tuple(
            column
            for average in AVERAGES
            for column in (
                *(
                    Column(each.name, each.title, average.group)
                    for each in named
                    if each.distribution == average.group
                ),
                average,
            )
        )
        self.published = self.columns

    def values(self, run: Run) -> Mapping[str, float]:
        """The scores of the last evaluated checkpoint; nothing if there is none."""
        scores = self._scores.get(run.path)
        return {} if scores is None else self._of_columns(scores)

    def before_training(self) -> list[BeforeTraining]:
        """The models that were given, each a seed of its own."""
        several = len(self._models) > 1
        return [
            BeforeTraining(
                model_name(each.name),
                each.name if several else "",
                {name: {0: share} for name, share in self._of_columns(each).items()},
            )
            for each in self._models
        ]

    def _of_columns(self, scores: StoredScores) -> dict[str, float]:
        return {
            column.name: scores.shares[column.name] for column in self.columns if column.name in scores.shares
        }

    def notes(self) -> Iterator[str]:
        """Which scores were taken, and where they don't compare."""
        yield (
            "Ours: what `olr evaluate` left in the runs, of each run's last checkpoint that was scored; held-out"
            " accuracy is left out."
        )
        for run in self._runs:
            steps, scores = checkpoint_steps(run.path), self._scores.get(run.path)
            if scores is not None and steps and scores.step != steps[-1]:
                yield (
                    f"The scores of {run.path} are of step {scores.step}; its last checkpoint is of step {steps[-1]}."
                )
        if not self._models:
            yield (
                "The policy before training has no scores here: name its evaluation too, the folder that"
                " `olr evaluate MODEL` wrote."
            )
        yield from self._unequal()

    def _unequal(self) -> Iterator[str]:
        """Benchmarks of which not all problems were scored, or not always as many samples."""
        everything = [*self._scores.values(), *self._models]
        for name in PAPER:
            found = [scores.benchmarks[name] for scores in everything if name in scores.benchmarks]
            title = registry()[name].title
            if any(not score.is_whole for score in found):
                yield f"{title}: only some of the problems were scored, so it does not compare with the paper's."
            if len({(score.samples, score.problems) for score in found}) > 1:
                yield f"{title}: not all runs were scored on the same number of problems and samples."
