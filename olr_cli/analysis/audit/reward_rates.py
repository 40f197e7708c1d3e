"""How often rewards are wrong in both directions, if the grader's verdicts are the truth, or people's.

A cell is a reward with a verdict of the grader. Intervals come from drawing prompts anew (bootstrap).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import numpy as np
import polars as pl

from olr_cli.analysis.audit.annotators import Floats
from olr_cli.data.table_files import read_table
from olr_cli.errors import UserError
from olr_cli.evaluation.intervals import percentile_interval
from olr_cli.seeding import key
from olr_cli.tables import Cell

_DRAWS = 2000

VERDICTS = {"right": True, "wrong": False, "cannot be scored": None}
"""People's verdicts on an answer, and whether the answer is right then."""

CASE = ("prompt_id", "label", "answer")
"""Columns that identify the subject of a verdict; a prompt's label may change from visit to visit."""

_CELLS = {
    "agreed wrong": (False, False),
    "rejected": (False, True),
    "accepted": (True, False),
    "agreed right": (True, True),
}
"""Reward and verdict of the rollouts in each cell; arrays have the cells in this order."""

_IN_CELL = {
    name: (pl.col("is_rewarded") == reward) & (pl.col("verdict") == right)
    for name, (reward, right) in _CELLS.items()
}
"""Whether a rollout is in a cell."""

_BY_AGREEMENT = [float(name == "agreed right") for name in _CELLS]
"""Share of right rollouts in each cell if people have judged none of it."""

_REWARDED, _RIGHT_BY_GRADER = np.array([*_CELLS.values()]).T
_OF_GRADER = [
    list(_CELLS).index(name)
    for name in ("agreed wrong", "accepted", "rejected", "agreed right")
]
"""Order of the cells after the grader's verdict takes the place of the reward."""


@dataclass(frozen=True)
class Rates:
    """How often a verifier or grader errs, with 95 % intervals.

    It errs by rejecting right answers (false negatives) or accepting wrong ones (false positives). `youden` is Youden's
    J, the true minus the false positive rate; None if one of the two rates is unknown.
    """

    false_negative_rate: Cell
    false_positive_rate: Cell
    youden: float | None


def read_verdicts(files: Sequence[Path]) -> pl.DataFrame:
    """Read people's verdicts on answers from tables with the columns prompt_id, label, answer and verdict.

    Returns:
        A frame with the columns prompt_id, label, answer and ``is_right``, which is null if people could not say. Rows
            without a verdict are left out.

    Raises:
        UserError: a file lacks a column, a verdict is none of `VERDICTS`, or an answer has two different verdicts.
    """
    tables = []
    for file in files:
        table = pl.DataFrame(pl.from_arrow(read_table([file])))
        if missing := {*CASE, "verdict"} - {*table.columns}:
            raise UserError(
                f"{file} has no column {min(missing)}",
                "take the table that --out wrote, with its verdicts",
            )
        table = table.select(pl.col(*CASE, "verdict").cast(pl.String))
        tables.append(
            table.with_columns(pl.col("verdict").str.strip_chars().str.to_lowercase())
        )
    verdicts = pl.concat(tables).filter(pl.col("verdict") != "")
    if unknown := sorted({*verdicts["verdict"]} - {*VERDICTS}):
        raise UserError(
            f"verdict '{unknown[0]}' is none of {', '.join(VERDICTS)}",
            "correct it in the table",
        )
    verdicts = verdicts.unique(maintain_order=True)
    if not (ambiguous := verdicts.filter(pl.struct(CASE).is_duplicated())).is_empty():
        prompt, label, answer, _ = ambiguous.row(0)
        raise UserError(
            f"the answer {answer} to prompt {prompt}, whose label is {label}, has several verdicts",
            "leave one",
        )
    is_right = pl.col("verdict").replace_strict(VERDICTS, return_dtype=pl.Boolean)
    return verdicts.select(*CASE, is_right=is_right)


def verdict_notes(people: pl.DataFrame, known: pl.DataFrame) -> Iterator[str]:
    """Yield notes on how many of people's verdicts are about these rollouts, and how many contradictions they cover.

    `people` is the result of `read_verdicts`. `known` has the rollouts with their reward (``is_rewarded``) and the
    grader's ``verdict``.
    """
    here = people.join(known, on=CASE, how="semi").height
    yield f"{here:,} of {people.height:,} verdicts are about answers here, {people.height - here:,} about none."
    contradicted = known.filter(pl.col("is_rewarded") != pl.col("verdict"))
    judged = contradicted.join(people.drop_nulls(), on=CASE, how="semi").height
    if judged < contradicted.height:
        yield (
            f"They judge {judged:,} of {contradicted.height:,} contradicted rollouts; the others are taken to be like"
            " these, which holds of rows of the table that were chosen at random, not of its first."
        )


def _resampled(rows: pl.DataFrame, counted: Sequence[pl.Expr]) -> Floats:
    """Count the rows for which each expression is true: over all prompts, and in each draw of a bootstrap.

    A draw takes as many prompts as there are, with replacement. It counts all rows of a prompt each time it takes the
    prompt.

    Args:
        rows: one row per rollout, with its prompt_id.
        counted: boolean expressions.

    Returns:
        (1 + draws, expressions) counts: the first row over all prompts, each further row over one draw. If `rows` is
            empty, there are no draws, and all counts are 0.
    """
    if rows.is_empty():
        return np.zeros((1, len(counted)))
    # Prompts with equal counts are drawn together, so that memory does not grow with the number of prompts.
    of_prompts = rows.group_by("prompt_id").agg(
        counts.sum().alias(str(i)) for i, counts in enumerate(counted)
    )
    counts, prompts = np.unique(
        of_prompts.drop("prompt_id").to_numpy(), axis=0, return_counts=True
    )
    # A fixed seed: the same log always gives the same interval.
    random = np.random.default_rng(key("audit of rewards"))
    draws = (
        random.multinomial(prompts.sum(), prompts / prompts.sum()) for _ in range(_DRAWS)
    )
    return np.stack(
        [np.asarray(drawn @ counts, dtype=float) for drawn in (prompts, *draws)]
    )


def _rate(errors: Floats, cases: Floats, prompts: int) -> Cell:
    """Return the share of errors among some cases, with a 95 % interval; an empty cell if there are no cases.

    The interval comes from the draws of the bootstrap. If the share is 0 or 1, all draws agree and give none. The
    interval is then exact for independent cases, as many as there are prompts.

    Args:
        errors: (1 + draws,) number of cases with an error, over all prompts, then in each draw.
        cases: (1 + draws,) number of cases with or without an error.
        prompts: number of prompts.
    """
    if not cases[0]:
        return Cell(kind="percent")
    rates = errors / np.maximum(cases, 1)
    # If the true rate were 1 - edge, n prompts without an error would have a chance of edge ** n = 5 %.
    rate, edge = float(rates[0]), 0.05 ** (1 / prompts)
    ends = {0.0: (0.0, 1 - edge), 1.0: (edge, 1.0)}.get(rate) or percentile_interval(
        rates[1:]
    )
    return Cell(rate, "percent", ends=ends)


def by_grader(known: pl.DataFrame) -> Rates:
    """Return how often the verifier's rewards are wrong if every verdict of the grader is right.

    `known` has a row per rollout: prompt_id, ``is_rewarded`` and the grader's ``verdict``.
    """
    cells, is_right = _resampled(known, [*_IN_CELL.values()]), pl.col("verdict")
    right, wrong = (
        known.filter(which)["prompt_id"].n_unique() for which in (is_right, ~is_right)
    )
    return _rates(cells * _RIGHT_BY_GRADER, cells * ~_RIGHT_BY_GRADER, right, wrong)


def by_people(known: pl.DataFrame, people: pl.DataFrame) -> dict[str, Rates]:
    """Return the error rates by people's verdicts on some answers, under the keys ``verifier`` and ``grader``.

    A cell is a combination of reward and grader's verdict. The share of right rollouts in a cell is estimated from its
    rollouts whose answers people have judged. If a cell has no such rollouts, but its reward and verdict agree, both
    are taken to be right.

    Args:
        known: rollouts with their reward (``is_rewarded``) and the grader's ``verdict``.
        people: people's verdicts, as `read_verdicts` returns them.

    Raises:
        UserError: people judged no answer here, or none in a cell where reward and verdict differ.
    """
    judged = known.join(people, on=CASE, how="left")
    right, wrong = _by_cell(judged)

    def prompts_with(*answers: pl.Expr) -> int:
        # `any_horizontal` of no expressions is an error, hence the False.
        return judged.filter(pl.any_horizontal(False, *answers))["prompt_id"].n_unique()

    asked_prompts = prompts_with(pl.col("is_right").is_not_null())
    if not asked_prompts:
        raise UserError(
            "people call no answer here right or wrong",
            "judge some in the table that --out writes for this history",
        )
    # The interval must be as wide as the smallest number of prompts calls for: those with a verdict of people, or those
    # with right answers (or with wrong ones).
    prompts = [
        min(asked_prompts, prompts_with(*compress(_IN_CELL.values(), sums[0])))
        for sums in (right, wrong)
    ]
    return {
        "verifier": _rates(right, wrong, *prompts),
        "grader": _rates(right[:, _OF_GRADER], wrong[:, _OF_GRADER], *prompts),
    }


def _by_cell(judged: pl.DataFrame) -> tuple[Floats, Floats]:
    """Estimate from people's verdicts how many rollouts of each cell are right, and how many wrong.

    A cell is a combination of reward and grader's verdict; `_CELLS` has the four in order. `judged` has a row per
    rollout: prompt_id, ``is_rewarded``, ``verdict`` and people's ``is_right``, null if they did not judge it.

    Returns:
        (1 + draws, 4) numbers of right rollouts: over all prompts, then in each draw of the bootstrap (`_resampled`).
        (1 + draws, 4) numbers of wrong rollouts.

    Raises:
        UserError: people judged no rollout of a cell where reward and verdict differ.
    """
    is_right, cells = pl.col("is_right"), _IN_CELL.values()
    counted = [
        *cells,
        *(cell & is_right for cell in cells),
        *(cell & is_right.is_not_null() for cell in cells),
    ]
    sizes, right, judged_counts = np.split(_resampled(judged, counted), 3, axis=1)
    for (reward, verdict), size, judged_count in zip(
        _CELLS.values(), sizes[0], judged_counts[0], strict=True
    ):
        # If reward and verdict agree, both may be taken to be right. If they differ, only people can tell which one is.
        if reward != verdict and size and not judged_count:
            raise UserError(
                f"none of the {size:,.0f} rollouts in the queue with reward {int(reward)} has an answer that"
                " people call right or wrong",
                "judge some in the table that --out writes for this history",
            )
    # A draw may hit no judged prompt of a cell; the draw then takes that cell's share over all prompts.
    default_shares = np.where(
        judged_counts[0] > 0, right[0] / np.maximum(judged_counts[0], 1), _BY_AGREEMENT
    )
    shares = np.where(
        judged_counts > 0, right / np.maximum(judged_counts, 1), default_shares
    )
    return sizes * shares, sizes * (1 - shares)


def _rates(right: Floats, wrong: Floats, right_prompts: int, wrong_prompts: int) -> Rates:
    """Return the error rates of the verifier or of the grader.

    A column of the counts is a combination of reward and grader's verdict. The columns are in the order of `_CELLS` for
    the verifier's rates, and in the order `_OF_GRADER` for the grader's.

    Args:
        right: (1 + draws, 4) numbers of rollouts with a right answer: over all prompts, then in each draw of the
            bootstrap.
        wrong: (1 + draws, 4) numbers of rollouts with a wrong answer.
        right_prompts: number of prompts behind the right rollouts. It sets the interval of a rate of 0 or 1.
        wrong_prompts: number of prompts behind the wrong rollouts.
    """
    false_negatives = _rate(right[:, ~_REWARDED].sum(1), right.sum(1), right_prompts)
    false_positives = _rate(wrong[:, _REWARDED].sum(1), wrong.sum(1), wrong_prompts)
    is_known = false_negatives.value is not None and false_positives.value is not None
    return Rates(
        false_negatives,
        false_positives,
        1 - false_negatives.number - false_positives.number if is_known else None,
    )
