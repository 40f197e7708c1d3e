"""Every prompt's history as arrays, for the page's script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olr_cli.analysis.histories import RolloutHistory
from olr_cli.analysis.report import texts
from olr_cli.analysis.report.words import (
    GIVEN,
    NO_MAJORITY,
    OTHER,
    RIGHT,
    SOURCES,
    WRONG_LABEL,
)
from olr_cli.answers.graded import SENTINEL
from olr_cli.runs.stored import Run

Array = NDArray[Any]

_ANSWERS = ("true_answer", "given_label", "majority_answer", "effective_label")
_COLUMNS = (
    *(
        "prompt_id",
        "visit",
        "step",
        "noise_type",
        "given_label_count",
        "majority_count",
        "rollouts",
    ),
    *(
        "label_source",
        "majority_is_correct",
        "majority_is_noisy_label",
        "effective_label_is_correct",
    ),
    *_ANSWERS,
)


@dataclass(frozen=True)
class PromptHistories:
    """Labels, votes and visits of P prompts of a run or log, as arrays for the page.

    `prompt_histories` makes it for a run, `histories_of_log` for a log. In an array by visit, every prompt has V
    entries, where V is the largest number of visits of any prompt.
    """

    header: dict[str, Any]
    """JSON values.

    - ids: P ids, in natural order.
    - visits: V, the largest number of visits of any prompt.
    - rollouts: K, the largest number of rollouts of any visit; null for a log.
    - strings: every answer and label once, long ones shortened; the first is empty and means none.
    - sentinel: its index among the strings, or -1.
    - noiseTypes: the noise types; the empty one means unknown.
    - sources: origins of labels.
    """

    arrays: dict[str, Array]
    """Numbers by prompt or by visit.

    - Of shape (P,): noise (index into noiseTypes), given and true (into strings), last (number of visits), label_right
    (of the last label: 0 unknown, 1 wrong, 2 right).
    - Of shape (P V,), prompt by prompt: kind, votes, majority and label (into strings), source (into sources).
    """

    ends: pl.DataFrame
    """First and last visit of every prompt, in the columns prompt_id, visit and step."""

    middle: pl.DataFrame
    """All other visits, in the same columns."""


def prompt_histories(run: Run, ids: Sequence[str]) -> PromptHistories:
    """Return the labels, votes and decisions of some prompts at each visit of a run, as arrays.

    `ids` are the ids of the prompts, in the order that they have in the arrays.
    """
    labels = run.labels.select(_COLUMNS).filter(pl.col("prompt_id").is_in(ids))
    rows = labels.with_columns(_kind().alias("kind")).collect()
    visits = int(rows["visit"].max())  # type: ignore[arg-type]  # of a column that is not empty
    # The codes of an Enum are positions in `ids`, so they serve as indices into the arrays.
    prompt = rows["prompt_id"].cast(pl.Enum(ids)).to_physical().to_numpy().astype(np.int64)
    visit = rows["visit"].to_numpy()
    last = np.zeros(len(ids), dtype=np.int64)
    # Not `last[prompt] = …`, which would keep the last value written instead of the largest.
    np.maximum.at(last, prompt, visit)
    # Facts by prompt are those of its last visit.
    final = visit == last[prompt]
    visits_made, is_end = (
        rows.select("prompt_id", "visit", "step"),
        pl.Series(final) | (rows["visit"] == 1),
    )
    strings = [
        "",
        *sorted({text for name in _ANSWERS for text in rows[name].unique() if text}),
    ]
    noise_types = rows["noise_type"].fill_null("").unique().sort().to_list()

    def of_prompts(values: pl.Series) -> Array:
        filled = np.zeros(len(ids), dtype=np.int64)
        filled[prompt[final]] = values.to_numpy()[final]
        return filled

    def of_visits(values: pl.Series) -> Array:
        filled = np.zeros(len(ids) * visits, dtype=np.int64)
        filled[prompt * visits + visit - 1] = values.to_numpy()
        return filled

    return PromptHistories(
        header={
            "ids": ids,
            "visits": visits,
            "rollouts": rows["rollouts"].max(),
            "strings": [*map(texts.shortened, strings)],
            "sentinel": strings.index(SENTINEL) if SENTINEL in strings else -1,
            "noiseTypes": noise_types,
            "sources": ["", *SOURCES],
        },
        arrays={
            "noise": of_prompts(_codes(rows["noise_type"].fill_null(""), noise_types)),
            "given": of_prompts(_codes(rows["given_label"], strings)),
            "true": of_prompts(_codes(rows["true_answer"], strings)),
            "last": last,
            # False, True and null become 1, 2 and 0.
            "label_right": of_prompts(
                (rows["effective_label_is_correct"].cast(pl.Int64) + 1).fill_null(0)
            ),
            "kind": of_visits(rows["kind"]),
            "votes": of_visits(rows["majority_count"]),
            "majority": of_visits(_codes(rows["majority_answer"], strings)),
            "label": of_visits(_codes(rows["effective_label"], strings)),
            "source": of_visits(_codes(rows["label_source"], SOURCES) + 1),
        },
        ends=visits_made.filter(is_end),
        middle=visits_made.filter(~is_end),
    )


def histories_of_log(history: RolloutHistory, ids: Sequence[str]) -> PromptHistories:
    """Return some prompts of a log as arrays: their true answers only, since a log has no decisions about labels.

    `ids` are the prompts in order. An unknown true answer is an empty text.
    """
    truths = [history.prompts[name].true_answer or "" for name in ids]
    strings = ["", *sorted(set(truths) - {""})]
    indices = {text: index for index, text in enumerate(strings)}
    header = {
        "ids": ids,
        "visits": 0,
        "rollouts": None,
        "strings": [*map(texts.shortened, strings)],
        "sentinel": -1,
        "noiseTypes": [""],
        "sources": [""],
    }
    no_visits = pl.DataFrame()
    return PromptHistories(
        header, {"true": np.array([indices[text] for text in truths])}, no_visits, no_visits
    )


def _kind() -> pl.Expr:
    # The majority is the only class with the most rollouts (R9), so a label with as many rollouts is the majority.
    is_given = pl.col("given_label").is_not_null() & (
        pl.col("given_label_count") >= pl.col("majority_count")
    )
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


def _codes(values: pl.Series, among: Sequence[str]) -> pl.Series:
    """Return the index of each value in `among`; null becomes 0, the index of the first entry."""
    return values.cast(pl.Enum(among)).to_physical().cast(pl.Int64).fill_null(0)
