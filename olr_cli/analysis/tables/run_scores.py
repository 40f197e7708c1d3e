"""What `olr evaluate` left of a run or model: the scores of one checkpoint, without its generations."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from olr_cli.errors import UserError


@dataclass(frozen=True)
class BenchmarkScore:
    """A score on one benchmark.

    Attributes:
        avg: avg@n, a share.
        samples: n, of every problem.
        problems: how many were scored.
        whole: how many the benchmark has, where that is known.
    """

    avg: float
    samples: int
    problems: int
    whole: int | None

    @property
    def is_whole(self) -> bool:
        """Whether no problem was left out."""
        return self.whole is None or self.problems >= self.whole


@dataclass(frozen=True)
class RunScores:
    """The scores of one checkpoint or model.

    Attributes:
        folder: the evaluation's.
        name: of what was evaluated.
        step: the checkpoint's; None for a model that is no run's.
        benchmarks: benchmark -> score.
        averages: ``in`` and ``out`` -> the mean over its benchmarks, if all are there.
    """

    folder: Path
    name: str
    step: int | None
    benchmarks: Mapping[str, BenchmarkScore]
    averages: Mapping[str, float]

    @property
    def shares(self) -> dict[str, float]:
        """Scores and averages by name."""
        return {name: score.avg for name, score in self.benchmarks.items()} | dict(self.averages)


def last_scores(run: Path, benchmarks: Collection[str]) -> RunScores | None:
    """The scores of the last checkpoint of a run that `olr evaluate RUN` scored on any of these benchmarks (R22).

    Returns:
        None if there is no such checkpoint.

    Raises:
        UserError: a scores.json is damaged.
    """
    found = [read(file.parent) for file in run.glob("evaluation/*/scores.json")]
    scored = [scores for scores in found if not scores.benchmarks.keys().isdisjoint(benchmarks)]
    return max(scored, key=lambda scores: scores.step or 0, default=None)


def is_evaluation(place: Path) -> bool:
    """Whether a folder is an evaluation of some model, not a run."""
    return (place / "evaluation.json").is_file()


def read(folder: Path) -> RunScores:
    """The scores in an evaluation's folder.

    Raises:
        UserError: there are none yet, or scores.json is damaged.
    """
    file = folder / "scores.json"
    if not file.is_file():
        raise UserError(f"{folder} has no scores yet; run `olr evaluate` again to finish it")
    try:
        return _parse(folder, json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(
            f"{file} is damaged; `olr evaluate --regrade {folder}` writes it again from the generations"
        ) from None


def _parse(folder: Path, plain: Any) -> RunScores:
    return RunScores(
        folder=folder,
        name=str(plain["name"]),
        step=plain["origin"].get("step"),
        benchmarks={
            each["benchmark"]: BenchmarkScore(
                float(each["avg"]), int(each["samples"]), int(each["problems"]), each["whole"]
            )
            for each in plain["scores"]
        },
        averages={name: float(mean) for name, mean in plain["averages"].items()},
    )
