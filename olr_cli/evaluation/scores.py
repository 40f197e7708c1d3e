"""Scores of benchmarks with bootstrap intervals over problems, averages, and paired differences (R19).

`olr_cli.evaluation.store` writes them to scores.json, which `stored_scores` reads.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import comb
from pathlib import Path
from statistics import fmean
from typing import Literal

import polars as pl
from pydantic import TypeAdapter

from olr_cli.errors import UserError
from olr_cli.evaluation.benchmark import Benchmark, registry
from olr_cli.evaluation.intervals import bootstrap_interval
from olr_cli.grouping import gathered
from olr_cli.tables.table import Cell, Ends

Group = Literal["in", "out"]
"""The paper's averages: in-distribution and out-of-distribution benchmarks."""


@dataclass(frozen=True)
class ScoreColumn:
    """A row or column of a table: a benchmark, or the average of the paper's in- or out-of-distribution benchmarks."""

    name: str
    """Name of the benchmark, or ``in`` or ``out``."""

    title: str
    """Name of the benchmark in tables; empty for an average."""

    group: Group | None
    is_average: bool = False

    @property
    def label(self) -> str:
        """The heading of the benchmark or average in a table."""
        return (
            {"in": "in-distribution", "out": "out-of-distr."}[self.name]
            if self.is_average
            else self.title
        )


@dataclass(frozen=True)
class Score:
    """The score of a model on one benchmark, as `score` computes it.

    Shares lie in 0 .. 1. In avg@n, maj@n and pass@n, n is the field `samples`.
    """

    benchmark: str
    title: str
    distribution: Group | None
    """Average of the paper that the benchmark is part of, if any."""

    problems: int
    """Number of problems that were scored."""

    whole: int | None
    """Number of problems that the benchmark has, or None if it does not say."""

    samples: int
    avg: float
    """avg@n, the mean over problems of the share of samples that are right; an estimate of pass@1."""

    interval: Ends | None
    """95 % bootstrap interval of `avg` over problems. None if all problems score the same, because a bootstrap then
    sees no spread.
    """

    pass_at: Mapping[int, float]
    """k -> pass@k, for k = 1, 2, 4, ... and n."""

    majority: float
    """maj@n, the share of problems whose most frequent answer class is right; a tie counts as wrong."""

    truncated: float | None
    """Share of samples that the length limit cut or that end inside their thinking; None for an imported log that
    does not contain it.
    """

    missing_answers: float
    """Share of samples without an answer."""

    mean_tokens: float | None
    """Mean length of the responses; None for an imported log that does not contain it."""

    unfinished_thoughts: float | None = None
    """Share of samples that end inside their thinking; None if no sample thinks."""

    ended_by: Mapping[str, int] = field(default_factory=dict)
    """Any other reason why responses ended (`Rollout.ended_by`) -> number of responses."""

    by_problem: Mapping[tuple[str, str], float] = field(repr=False, default_factory=dict)
    """Problem id and gold -> share of the problem's samples that are right. The gold is part of the key because other
    files may have the same ids. Not in scores.json.
    """

    @property
    def is_whole(self) -> bool:
        """Whether all problems were scored; True also if the benchmark does not say how many problems it has."""
        return self.whole is None or self.problems >= self.whole


def score(
    benchmark: Benchmark,
    generations: pl.DataFrame,
    samples: int,
    *,
    problems: int | None = None,
) -> Score:
    """Return the score of one benchmark, computed from its graded samples (R19).

    Args:
        benchmark: the benchmark.
        generations: one row per sample, with the columns ``problem_id``, ``gold``, ``sample``, ``answer``,
            ``answer_class``, ``is_correct``, ``tokens``, ``truncated`` and ``unfinished_thought``, and maybe
            ``ended_by``.
        samples: the number of samples that each problem must have. It is the n of avg@n.
        problems: the number of problems that there must be; None: any number.

    Raises:
        UserError: samples or problems are missing.
    """
    _assert_complete(benchmark.name, generations, samples, problems)
    by_problem = generations.group_by("problem_id", maintain_order=True).agg(
        pl.col("gold").first(),
        right=pl.col("is_correct").sum(),
        share=pl.col("is_correct").mean(),
    )
    shares = by_problem["share"].to_list()
    ended_by = (
        generations["ended_by"].drop_nulls() if "ended_by" in generations.columns else ()
    )
    # The largest power is at most n: bit_length counts the powers of two up to n.
    powers_of_two = {1 << i for i in range(samples.bit_length())}
    is_unfinished = pl.col("unfinished_thought").fill_null(False)
    overall = generations.select(
        # null if any sample's length is unknown: a share of the others would look like a share of all.
        truncated=pl.when(pl.col("truncated").is_not_null().all()).then(
            (pl.col("truncated") | is_unfinished).mean()
        ),
        missing_answers=pl.col("answer").is_null().mean(),
        mean_tokens=pl.col("tokens").mean(),
        unfinished_thoughts=pl.when(pl.col("unfinished_thought").is_not_null().any()).then(
            is_unfinished.mean()
        ),
    )
    return Score(
        benchmark=benchmark.name,
        title=benchmark.title,
        distribution=benchmark.distribution,
        problems=by_problem.height,
        whole=benchmark.problems,
        samples=samples,
        avg=fmean(shares),
        interval=bootstrap_interval([shares], benchmark.name),
        pass_at={
            k: fmean(pass_at(k, samples, right) for right in by_problem["right"])
            for k in sorted({samples, *powers_of_two})
        },
        majority=_majority(generations) / by_problem.height,
        **overall.row(0, named=True),
        ended_by=dict(sorted(Counter(ended_by).items())),
        by_problem=dict(
            zip(by_problem.select("problem_id", "gold").iter_rows(), shares, strict=True)
        ),
    )


def _assert_complete(
    name: str, generations: pl.DataFrame, samples: int, problems: int | None
) -> None:
    """Raise `UserError` unless each problem has all its samples and no problem is missing.

    Args:
        name: the benchmark's name, for the error.
        generations: the stored samples, one row each.
        samples: the number of samples that each problem must have, numbered from 0.
        problems: the number of problems that there must be; None: any number but 0.
    """
    remedy = "run `olr evaluate` again to make what is missing"
    problem_rows = generations.group_by("problem_id", maintain_order=True).agg(
        rows=pl.len(),
        complete=(pl.len() == samples)
        & (pl.col("sample").n_unique() == samples)
        & pl.col("sample").is_between(0, samples - 1).all(),
    )
    for problem, rows, complete in problem_rows.iter_rows():
        if not complete:
            raise UserError(
                f"{name}: problem {problem} has {rows} stored sample{'s' * (rows != 1)}, not the {samples} numbered"
                f" 0 to {samples - 1} that were asked for",
                remedy,
            )
    if problem_rows.is_empty() or problems not in (None, problem_rows.height):
        wanted = "" if problems is None else f" of {problems}"
        raise UserError(
            f"{name}: {problem_rows.height}{wanted} problems have generations", remedy
        )


def pass_at(k: int, n: int, right: int) -> float:
    """Return the unbiased estimate of pass@k if `right` of n samples are right (Chen et al. 2021, Eq. 1).

    Args:
        k: the number of samples, 1 <= k <= n, of which at least one has to be right.
        n: the number of samples that were drawn.
        right: how many of the n samples are right.
    """
    return 1 - comb(n - right, k) / comb(n, k)


def _majority(generations: pl.DataFrame) -> int:
    """Return the number of problems whose most frequent answer class is right.

    A class is a group of equivalent answers. Missing answers do not count. If two classes are equally frequent, the
    problem counts as wrong.
    """
    votes = (
        generations.drop_nulls("answer_class")
        .group_by("problem_id", "answer_class")
        .agg(count=pl.len(), is_correct=pl.col("is_correct").any())
    )
    top = votes.filter(pl.col("count") == pl.col("count").max().over("problem_id"))
    # Two rows of one problem are a tie, which counts as wrong even if one of them is right.
    winners = top.group_by("problem_id").agg(
        wins=(pl.len() == 1) & pl.col("is_correct").all()
    )
    return int(winners["wins"].sum())


def groups(names: Collection[str]) -> dict[Group, list[str]]:
    """Return the names of the benchmarks in each of the paper's averages.

    The averages are ``in`` and ``out``, over in-distribution and out-of-distribution benchmarks. An average is left out
    if one of its benchmarks has no score.

    Args:
        names: the benchmarks that have scores.
    """
    members = gathered(
        (benchmark.distribution, name)
        for name, benchmark in registry().items()
        if benchmark.distribution is not None
    )
    return {group: members[group] for group in members if set(members[group]) <= set(names)}


def averages(shares: Mapping[str, float]) -> dict[str, float]:
    """Return the means over in-distribution and out-of-distribution benchmarks, with the keys ``in`` and ``out``.

    Args:
        shares: benchmark -> score. If it lacks one of the benchmarks of a mean, the mean is left out.
    """
    return {
        group: fmean(shares[name] for name in names)
        for group, names in groups(shares).items()
    }


def estimates(scores: Iterable[Score]) -> dict[str, Cell]:
    """Return name -> table cell with a bootstrap interval, for each benchmark and the averages ``in`` and ``out``.

    ``in`` and ``out`` are over in-distribution and out-of-distribution benchmarks. An average is left out if one of its
    benchmarks has no score.
    """
    by_name = {score.benchmark: score for score in scores}
    shown = {name: Cell(score.avg, ends=score.interval) for name, score in by_name.items()}
    for group, names in groups(by_name).items():
        # Each benchmark is a stratum: an average weighs all benchmarks equally, large or small.
        strata = [list(by_name[name].by_problem.values()) for name in names]
        mean = fmean(by_name[name].avg for name in names)
        shown[group] = Cell(mean, ends=bootstrap_interval(strata, group))
    return shown


def paired_differences(
    scores: Iterable[Score], baseline: Iterable[Score]
) -> dict[str, Cell]:
    """Return name -> mean difference between two models, for each benchmark and the averages ``in`` and ``out``.

    ``in`` and ``out`` are over in-distribution and out-of-distribution benchmarks. Only problems that both models have
    are compared. A benchmark without such problems is left out, and so is the average that it belongs to. The cells
    have the kind ``points`` and bootstrap intervals. `Cell.n` is the number of compared problems.

    Args:
        scores: the scores of one model.
        baseline: the scores that are subtracted.
    """
    theirs = {score.benchmark: score.by_problem for score in baseline}
    paired: dict[str, list[float]] = {}
    for score in scores:
        shares = theirs.get(score.benchmark, {})
        common = [
            share - shares[problem]
            for problem, share in score.by_problem.items()
            if problem in shares
        ]
        if common:
            paired[score.benchmark] = common
    strata = {name: [common] for name, common in paired.items()}
    strata |= {
        group: [paired[name] for name in names] for group, names in groups(paired).items()
    }
    changes = {}
    for name, parts in strata.items():
        # Resampling the differences of pairs, not the two scores, removes the spread between problems.
        ends = bootstrap_interval(parts, "difference", name)
        changes[name] = Cell(
            fmean(map(fmean, parts)), "points", ends=ends, n=sum(map(len, parts))
        )
    return changes


@dataclass(frozen=True)
class StoredScores:
    """The content of an evaluation's scores.json. Its scores lack `Score.by_problem`."""

    name: str
    step: int | None
    """Step of the checkpoint; None for a model that is not of a run."""

    benchmarks: Mapping[str, Score]
    averages: Mapping[str, float]
    """``in`` and ``out`` -> the mean over its benchmarks, if none is missing."""

    @property
    def shares(self) -> dict[str, float]:
        """Name -> score, for each benchmark and for the averages ``in`` and ``out`` (`averages`)."""
        return {name: score.avg for name, score in self.benchmarks.items()} | dict(
            self.averages
        )


def stored_scores(folder: Path) -> StoredScores:
    """Read the scores in an evaluation's scores.json.

    Raises:
        UserError: the evaluation has no scores yet, or the file is damaged.
    """
    file = folder / "scores.json"
    if not file.is_file():
        raise UserError(
            f"{folder} has no scores yet", "run `olr evaluate` again to finish it"
        )
    try:
        plain = json.loads(file.read_text(encoding="utf-8"))
        return StoredScores(
            name=str(plain["name"]),
            step=plain["origin"].get("step"),
            benchmarks={
                score.benchmark: score
                for score in TypeAdapter(list[Score]).validate_python(plain["scores"])
            },
            averages={name: float(mean) for name, mean in plain["averages"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(
            f"{file} is damaged",
            f"`olr regrade {folder}` writes it again from the generations",
        ) from None


def is_evaluation(place: Path) -> bool:
    """Return whether a folder is that of an evaluation: it has a file evaluation.json."""
    return (place / "evaluation.json").is_file()
