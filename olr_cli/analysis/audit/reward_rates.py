"""How often rewards are wrong in both directions, with the grader's verdicts for the truth, or people's.

A cell is a reward with the grader's verdict. Intervals are of prompts that are drawn anew.
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
"""What people say of an answer, and whether it is right then."""

CASE = ("prompt_id", "label", "answer")
"""Columns of what one verdict is about: in a run, a prompt's label may change from visit to visit."""

_CELLS = {
    "agreed wrong": (False, False),
    "rejected": (False, True),
    "accepted": (True, False),
    "agreed right": (True, True),
}
"""Reward and verdict of the rollouts of each cell, which arrays have in this order."""
_IN_CELL = {
    name: (pl.col("is_rewarded") == reward) & (pl.col("verdict") == right)
    for name, (reward, right) in _CELLS.items()
}
"""Which rollouts are in each."""
_BY_AGREEMENT = [float(name == "agreed right") for name in _CELLS]
"""The share of right rollouts in each, where nobody has judged any."""
_REWARDED, _RIGHT_BY_GRADER = np.array([*_CELLS.values()]).T
_OF_GRADER = [
    list(_CELLS).index(name)
    for name in ("agreed wrong", "accepted", "rejected", "agreed right")
]
"""The cells where the grader's verdict takes the place of the reward."""


@dataclass(frozen=True)
class Rates:
    """How often right answers are not rewarded, and wrong ones are, with 95 % intervals; and TPR - FPR (Youden's J)."""

    false_negative_rate: Cell
    false_positive_rate: Cell
    youden: float | None


def read_verdicts(files: Sequence[Path]) -> pl.DataFrame:
    """People's verdicts on answers: `CASE`, and ``is_right``, which is null where they cannot say.

    Raises:
        UserError: a file is no such table, a verdict is none of `VERDICTS`, or two of one answer differ.
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
    said = pl.concat(tables).filter(pl.col("verdict") != "")
    if strange := sorted({*said["verdict"]} - {*VERDICTS}):
        raise UserError(
            f"verdict '{strange[0]}' is none of {', '.join(VERDICTS)}",
            "correct it in the table",
        )
    said = said.unique(maintain_order=True)
    if not (twice := said.filter(pl.struct(CASE).is_duplicated())).is_empty():
        prompt, label, answer, _ = twice.row(0)
        raise UserError(
            f"the answer {answer} to prompt {prompt}, whose label is {label}, has several verdicts",
            "leave one",
        )
    is_right = pl.col("verdict").replace_strict(VERDICTS, return_dtype=pl.Boolean)
    return said.select(*CASE, is_right=is_right)


def verdict_notes(people: pl.DataFrame, known: pl.DataFrame) -> Iterator[str]:
    """How much of what is known people's verdicts are about."""
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
    """(1 + draws, counts): how many rows each holds for, first of all prompts, then of prompts that are drawn anew.

    Prompts of equal counts are drawn together, so that memory does not grow with the prompts.
    """
    if rows.is_empty():
        return np.zeros((1, len(counted)))
    of_prompts = rows.group_by("prompt_id").agg(
        counts.sum().alias(str(i)) for i, counts in enumerate(counted)
    )
    counts, prompts = np.unique(
        of_prompts.drop("prompt_id").to_numpy(), axis=0, return_counts=True
    )
    random = np.random.default_rng(key("audit of rewards"))
    draws = (
        random.multinomial(prompts.sum(), prompts / prompts.sum()) for _ in range(_DRAWS)
    )
    return np.stack(
        [np.asarray(drawn @ counts, dtype=float) for drawn in (prompts, *draws)]
    )


def _rate(bad: Floats, of: Floats, prompts: int) -> Cell:
    """The share of `of` that is `bad`, each (1 + draws,) as of `_resampled`.

    Where all rollouts are alike, so are all draws: then every prompt is one draw, and the interval is exact.
    """
    if not of[0]:
        return Cell(kind="percent")
    rates = bad / np.maximum(of, 1)
    rate, edge = float(rates[0]), 0.05 ** (1 / prompts)
    ends = {0.0: (0.0, 1 - edge), 1.0: (edge, 1.0)}.get(rate) or percentile_interval(
        rates[1:]
    )
    return Cell(rate, "percent", ends=ends)


def by_grader(known: pl.DataFrame) -> Rates:
    """The verifier's rates if the grader's verdicts were the truth."""
    cells, is_right = _resampled(known, [*_IN_CELL.values()]), pl.col("verdict")
    right, wrong = (
        known.filter(which)["prompt_id"].n_unique() for which in (is_right, ~is_right)
    )
    return _rates(cells * _RIGHT_BY_GRADER, cells * ~_RIGHT_BY_GRADER, right, wrong)


def by_people(known: pl.DataFrame, people: pl.DataFrame) -> dict[str, Rates]:
    """The verifier's and the grader's rates, by what people say of some answers.

    In each cell (reward, verdict) the share of right ones is that of the rollouts whose answers people have judged;
    where they judged none of a cell in which both agree, both are taken to be right.
    """
    judged = known.join(people, on=CASE, how="left")
    right, wrong = _by_cell(judged)

    def prompts_with(*answers: pl.Expr) -> int:
        return judged.filter(pl.any_horizontal(False, *answers))["prompt_id"].n_unique()

    asked_prompts = prompts_with(pl.col("is_right").is_not_null())
    if not asked_prompts:
        raise UserError(
            "people call no answer here right or wrong",
            "judge some in the table that --out writes for this history",
        )
    # As unsure as the fewest: prompts with a verdict, or prompts with right answers, or with wrong ones.
    prompts = [
        min(asked_prompts, prompts_with(*compress(_IN_CELL.values(), sums[0])))
        for sums in (right, wrong)
    ]
    return {
        "verifier": _rates(right, wrong, *prompts),
        "grader": _rates(right[:, _OF_GRADER], wrong[:, _OF_GRADER], *prompts),
    }


def _by_cell(judged: pl.DataFrame) -> tuple[Floats, Floats]:
    """Return how many rollouts of each cell are right, and how many wrong, by people: (1 + draws, 4) both."""
    is_right, cells = pl.col("is_right"), _IN_CELL.values()
    counted = [
        *cells,
        *(cell & is_right for cell in cells),
        *(cell & is_right.is_not_null() for cell in cells),
    ]
    sizes, said, asked = np.split(_resampled(judged, counted), 3, axis=1)
    for (reward, verdict), size, of_cell in zip(
        _CELLS.values(), sizes[0], asked[0], strict=True
    ):
        if reward != verdict and size and not of_cell:
            raise UserError(
                f"none of the {size:,.0f} rollouts in the queue with reward {int(reward)} has an answer that"
                " people call right or wrong",
                "judge some in the table that --out writes for this history",
            )
    of_all = np.where(asked[0] > 0, said[0] / np.maximum(asked[0], 1), _BY_AGREEMENT)
    shares = np.where(asked > 0, said / np.maximum(asked, 1), of_all)
    return sizes * shares, sizes * (1 - shares)


def _rates(right: Floats, wrong: Floats, right_prompts: int, wrong_prompts: int) -> Rates:
    """The rates of whoever rewarded, from how many rollouts of each cell are right and wrong, (1 + draws, 4)."""
    missed = _rate(right[:, ~_REWARDED].sum(1), right.sum(1), right_prompts)
    passed = _rate(wrong[:, _REWARDED].sum(1), wrong.sum(1), wrong_prompts)
    is_known = missed.value is not None and passed.value is not None
    return Rates(missed, passed, 1 - missed.number - passed.number if is_known else None)
