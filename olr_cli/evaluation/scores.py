"""Scores of a benchmark with their bootstrap intervals over problems, averages, and paired differences (R19).

`olr_cli.evaluation.store` writes them to scores.json; `stored_scores` reads that.
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


@dataclass(frozen=True)
class ScoreColumn:
    """A benchmark, or the average of a group.

    Attributes:
        name: the benchmark's name, or ``in`` or ``out``.
        title: the benchmark as tables call it; empty for an average.
    """

    name: str
    title: str
    group: Group | None
    is_average: bool = False

    @property
    def label(self) -> str:
        """The heading of its row or column."""
        return (
            {"in": "in-distribution", "out": "out-of-distr."}[self.name]
            if self.is_average
            else self.title
        )


@dataclass(frozen=True)
class Score:
    """What a model scores on one benchmark. Shares lie in 0 .. 1; n is `samples`.

    Attributes:
        distribution: which of the paper's averages it is part of, if any.
        whole: how many problems the benchmark has, where it says so; `problems` were scored.
        avg: avg@n, the mean over problems of the share of samples that are right; estimates pass@1.
        interval: the 95 % bootstrap interval of `avg` over problems; None where all problems score the same, since
            a bootstrap then sees no spread.
        pass_at: k -> pass@k, for k = 1, 2, 4, ... and n.
        majority: maj@n, the share of problems whose most frequent answer class is right; a tie for the top isn't.
        truncated: share of samples that the length limit cut, or that end inside their thinking; None if unknown (an
            imported log), as `mean_tokens`.
        unfinished_thoughts: share of samples that end inside their thinking; None if no sample thinks.
        ended_by: what ended responses otherwise (`Rollout.ended_by`) -> how many.
        by_problem: problem id and gold, since other files may have the same ids -> share of its samples that are right;
            not in scores.json.
    """

    benchmark: str
    title: str
    distribution: Group | None
    problems: int
    whole: int | None
    samples: int
    avg: float
    interval: Ends | None
    pass_at: Mapping[int, float]
    majority: float
    truncated: float | None
    missing_answers: float
    mean_tokens: float | None
    unfinished_thoughts: float | None = None
    ended_by: Mapping[str, int] = field(default_factory=dict)
    by_problem: Mapping[tuple[str, str], float] = field(repr=False, default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether no problem was left out, as far as is known."""
        return self.whole is None or self.problems >= self.whole


def score(
    benchmark: Benchmark,
    generations: pl.DataFrame,
    samples: int,
    *,
    problems: int | None = None,
) -> Score:
    """Score the stored generations of one benchmark.

    `generations` have one row per sample, with the columns ``problem_id``, ``gold``, ``sample``, ``answer``,
    ``answer_class``, ``is_correct``, ``tokens``, ``truncated`` and ``unfinished_thought``. There must be n `samples` of
    each problem (R19), and so many `problems`, where that is known.
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
    powers_of_two = {1 << i for i in range(samples.bit_length())}
    is_unfinished = pl.col("unfinished_thought").fill_null(False)
    overall = generations.select(
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
    """Unbiased chance that one of k samples is right if `right` of n are (Chen et al. 2021, Eq. 1); 1 <= k <= n."""
    return 1 - comb(n - right, k) / comb(n, k)


def _majority(generations: pl.DataFrame) -> int:
    """How many problems have one most frequent answer class, and it is right. Missing answers don't vote."""
    votes = (
        generations.drop_nulls("answer_class")
        .group_by("problem_id", "answer_class")
        .agg(count=pl.len(), is_correct=pl.col("is_correct").any())
    )
    top = votes.filter(pl.col("count") == pl.col("count").max().over("problem_id"))
    winners = top.group_by("problem_id").agg(
        wins=(pl.len() == 1) & pl.col("is_correct").all()
    )
    return int(winners["wins"].sum())


def groups(names: Collection[str]) -> dict[Group, list[str]]:
    """The benchmarks of each of the paper's averages, in its order; none of a group that isn't whole in `names`."""
    members = gathered(
        (benchmark.distribution, name)
        for name, benchmark in registry().items()
        if benchmark.distribution is not None
    )
    return {group: members[group] for group in members if set(members[group]) <= set(names)}


def averages(shares: Mapping[str, float]) -> dict[str, float]:
    """The paper's means over in- and out-of-distribution benchmarks, each only when all of its benchmarks are there."""
    return {
        group: fmean(shares[name] for name in names)
        for group, names in groups(shares).items()
    }


def estimates(scores: Iterable[Score]) -> dict[str, Cell]:
    """Scores by benchmark, and averages by ``in`` and ``out``, with their bootstrap intervals."""
    by_name = {score.benchmark: score for score in scores}
    shown = {name: Cell(score.avg, ends=score.interval) for name, score in by_name.items()}
    for group, names in groups(by_name).items():
        strata = [list(by_name[name].by_problem.values()) for name in names]
        mean = fmean(by_name[name].avg for name in names)
        shown[group] = Cell(mean, ends=bootstrap_interval(strata, group))
    return shown


def paired_differences(
    scores: Iterable[Score], baseline: Iterable[Score]
) -> dict[str, Cell]:
    """Paired differences, by benchmark name, and of the averages by ``in`` and ``out``.

    Benchmarks that have no problem in common are left out.
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
        ends = bootstrap_interval(parts, "difference", name)
        changes[name] = Cell(
            fmean(map(fmean, parts)), "points", ends=ends, n=sum(map(len, parts))
        )
    return changes


@dataclass(frozen=True)
class StoredScores:
    """The scores.json of one checkpoint or model; its scores lack `Score.by_problem`.

    Attributes:
        step: the checkpoint's; None for a model that is no run's.
        averages: ``in`` and ``out`` -> the mean over its benchmarks, if all are there.
    """

    name: str
    step: int | None
    benchmarks: Mapping[str, Score]
    averages: Mapping[str, float]

    @property
    def shares(self) -> dict[str, float]:
        """Scores and averages by name."""
        return {name: score.avg for name, score in self.benchmarks.items()} | dict(
            self.averages
        )


def stored_scores(folder: Path) -> StoredScores:
    """The scores in an evaluation's scores.json."""
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
    """Whether a folder is an evaluation."""
    return (place / "evaluation.json").is_file()
