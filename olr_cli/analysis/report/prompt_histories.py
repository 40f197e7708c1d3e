"""Every prompt's history in the arrays that the page's script shows: majorities, votes and labels by visit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olr_cli.analysis.arms import Run
from olr_cli.data.prompts import SENTINEL
from olr_cli.supervision.records import LabelSource

Array = NDArray[Any]

NO_VISIT, NO_MAJORITY, RIGHT, WRONG_LABEL, GIVEN, OTHER = range(6)
"""What a visit's majority answer is: the true answer; a label that is known to be wrong; the given label, which may be
right; another answer."""

SOURCES: tuple[LabelSource, ...] = get_args(LabelSource)
"""Where a visit's label comes from, as the arrays number it from 1; 0 without a visit."""

_LONGEST_ANSWER = 300

_COLUMNS = (
    "prompt_id",
    "visit",
    "step",
    "noise_type",
    "true_answer",
    "given_label",
    "given_label_count",
    "majority_answer",
    "majority_count",
    "rollouts",
    "effective_label",
    "label_source",
    "majority_is_correct",
    "majority_is_noisy_label",
    "effective_label_is_correct",
)


@dataclass(frozen=True)
class PromptHistories:
    """The prompts of a run.

    Attributes:
        ids: of the prompts, in natural order, shape (P,).
        left_out: prompts beyond the limit.
        visits: of the prompt with the most, V.
        rollouts: K.
        strings: every answer and label once; the first stands for none.
        prompts: name -> a value a prompt, shape (P,): noise (index into `noise_types`), given, true (into `strings`),
            last (visits made), label_right (of the last label: 0 unknown, 1 wrong, 2 right).
        by_visit: name -> a value a visit, prompt by prompt, shape (P V,): kind, votes, majority, label, source.
        noise_types: those that there are; the empty one stands for unknown.
        ends: columns prompt_id, visit, step: first and last visit of every prompt.
    """

    ids: Sequence[str]
    left_out: int
    visits: int
    rollouts: int
    strings: Sequence[str]
    prompts: Mapping[str, Array]
    by_visit: Mapping[str, Array]
    noise_types: Sequence[str]
    ends: pl.DataFrame

    def header(self) -> dict[str, Any]:
        """What is not an array, as JSON values; the answers are cut."""
        return {
            "ids": list(self.ids),
            "visits": self.visits,
            "rollouts": self.rollouts,
            "strings": [_cut(text) for text in self.strings],
            "sentinel": self.strings.index(SENTINEL) if SENTINEL in self.strings else -1,
            "noiseTypes": list(self.noise_types),
            "sources": ["", *SOURCES],
        }


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_ANSWER else text[: _LONGEST_ANSWER - 1] + "\N{HORIZONTAL ELLIPSIS}"


def prompt_histories(run: Run, most_visits: int) -> PromptHistories:
    """Read the histories of a run's prompts, or of the first of them.

    Args:
        run: one with a complete step.
        most_visits: prompts beyond so many visits in all are left out.

    Raises:
        UserError: there are no labels yet, or a shard is torn or foreign.
    """
    made = run.labels.group_by("prompt_id").agg(pl.col("visit").max().alias("last")).collect()
    visits = int(made["last"].max())  # type: ignore[arg-type]  # of a column that is not empty
    ids = sorted(made["prompt_id"], key=natural)
    kept = ids[: max(1, most_visits // visits)]
    labels = run.labels.select(_COLUMNS)
    if len(kept) < len(ids):
        labels = labels.filter(pl.col("prompt_id").is_in(kept))
    rows = labels.with_columns(_kind().alias("kind")).collect()
    place = dict(zip(kept, range(len(kept)), strict=True))
    prompt = rows["prompt_id"].replace_strict(place, return_dtype=pl.Int64).to_numpy()
    strings = _strings(rows)
    last = np.zeros(len(kept), dtype=np.int64)
    np.maximum.at(last, prompt, rows["visit"].to_numpy())
    final = rows["visit"].to_numpy() == last[prompt]
    cells = prompt * visits + rows["visit"].to_numpy() - 1
    noise_types = rows["noise_type"].fill_null("").unique().sort().to_list()

    def of_prompts(values: pl.Series) -> Array:
        filled = np.zeros(len(kept), dtype=np.int64)
        filled[prompt[final]] = values.to_numpy()[final]
        return filled

    def of_visits(values: pl.Series) -> Array:
        filled = np.zeros(len(kept) * visits, dtype=np.int64)
        filled[cells] = values.to_numpy()
        return filled

    right = rows["effective_label_is_correct"].cast(pl.Int64) + 1
    return PromptHistories(
        ids=kept,
        left_out=len(ids) - len(kept),
        visits=visits,
        rollouts=int(rows["rollouts"].max()),  # type: ignore[arg-type]
        strings=strings,
        prompts={
            "noise": of_prompts(_codes(rows["noise_type"].fill_null(""), noise_types)),
            "given": of_prompts(_codes(rows["given_label"], strings)),
            "true": of_prompts(_codes(rows["true_answer"], strings)),
            "last": last,
            "label_right": of_prompts(right.fill_null(0)),
        },
        by_visit={
            "kind": of_visits(rows["kind"]),
            "votes": of_visits(rows["majority_count"]),
            "majority": of_visits(_codes(rows["majority_answer"], strings)),
            "label": of_visits(_codes(rows["effective_label"], strings)),
            "source": of_visits(_codes(rows["label_source"], SOURCES) + 1),
        },
        noise_types=noise_types,
        ends=rows.filter(pl.Series(final) | (pl.col("visit") == 1)).select("prompt_id", "visit", "step"),
    )


def _kind() -> pl.Expr:
    # The majority is the one class with the most rollouts (R9): a label that as many match is the majority.
    is_given = pl.col("given_label").is_not_null() & (pl.col("given_label_count") >= pl.col("majority_count"))
    right = pl.col("majority_is_correct").cast(pl.Boolean)
    is_noise = pl.col("majority_is_noisy_label").cast(pl.Boolean).fill_null(value=False)
    return (
        pl.when(pl.col("majority_count") == 0)
        .then(NO_MAJORITY)
        .when(right.fill_null(value=False))
        .then(RIGHT)
        .when(is_noise | (is_given & right.is_not_null()))
        .then(WRONG_LABEL)
        .when(is_given)
        .then(GIVEN)
        .otherwise(OTHER)
    )


def _strings(rows: pl.DataFrame) -> list[str]:
    names = ("true_answer", "given_label", "majority_answer", "effective_label")
    found = pl.concat([rows[name].drop_nulls().unique().alias("text") for name in names])
    return ["", *sorted(set(found) - {""})]


def _codes(values: pl.Series, among: Sequence[str]) -> pl.Series:
    """The place of each value among others; null is 0."""
    return values.cast(pl.Enum(among)).to_physical().cast(pl.Int64).fill_null(0)


def natural(name: str) -> list[Any]:
    """A key that sorts names with their numbers as numbers: a2 before a10."""
    parts = re.split("([0-9]+)", name)
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]
