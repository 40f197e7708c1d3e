"""A log's table in the form that a history needs: the labels of its prompts, its steps, and a sample of its rewards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import polars as pl

from olr_cli.data.columns import LABELS, STATISTICS
from olr_cli.data.prompts import NOISE_TYPES, View
from olr_cli.errors import UserError

_COMPARED = 1_000
"""Approximate number of rewards compared with verdicts: enough to measure a share of _MOST_CONTRADICTIONS."""


def labels_of_prompts(table: pl.DataFrame, file: Path) -> pl.DataFrame:
    """Return what a log says about each prompt, as a frame with one row per prompt.

    The columns are prompt_id, given_label, true_answer, noise_type and ``data_source``. Those that the log lacks are
    left out. `file` is the log's path, for errors.

    Raises:
        UserError: a prompt has different values at different visits, or a noise type is unknown.
    """
    columns = [name for name in (*LABELS, "data_source") if name in table.columns]
    labels = (
        table.select("prompt_id", *columns)
        .unique(maintain_order=True)
        .cast({pl.Categorical: pl.String})
    )
    ambiguous = labels.filter(pl.col("prompt_id").is_duplicated())
    if not ambiguous.is_empty():
        raise UserError(
            f"{file}: prompt {ambiguous['prompt_id'][0]} has several values of {', '.join(columns)}",
            "give each prompt one, the same at all its visits",
        )
    if "noise_type" in columns:
        unknown = labels.filter(~pl.col("noise_type").is_in(NOISE_TYPES))
        if not unknown.is_empty():
            raise UserError(
                f"{file}: noise_type '{unknown['noise_type'][0]}' of prompt {unknown['prompt_id'][0]} is not one of"
                f" {', '.join(NOISE_TYPES)}",
                "correct that column",
            )
    return labels


def require_views(table: pl.DataFrame, source: Path) -> None:
    """Raise `UserError` if the column ``view`` of a log has an unknown value.

    A view is the wording of a prompt, ``original`` or ``rephrased``. `source` is the log's path, for the error.
    """
    views = table["view"].drop_nulls().unique().to_list() if "view" in table.columns else []
    unknown = [view for view in views if view not in get_args(View)]
    if unknown:
        raise UserError(
            f"{source}: view '{unknown[0]}' is not one of {', '.join(get_args(View))}",
            "correct that column",
        )


def steps_of(table: pl.DataFrame, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Yield a log's rollouts in steps: a frame of all first visits, then one of all second visits, and so on.

    The frames have these `columns`. A column that the log lacks is null, except that a missing view is ``original``.
    The column step has the number of the visit. The column sample counts the responses to a prompt at that visit, from
    0.
    """
    dtypes = {
        "prompt_id": pl.String,
        "view": pl.String,
        "answer": pl.String,
        "tokens": pl.Int32,
    }
    dtypes |= dict.fromkeys(STATISTICS[1:], pl.Float64)
    # A log has no steps of its own: all first visits are step 1, all second visits step 2, and so on.
    table = table.select(name for name in (*columns,) if name in table.columns)
    for visit in range(1, 1 + int(table["visit"].max())):  # type: ignore[arg-type]  # whole numbers
        rows = table.filter(pl.col("visit") == visit).with_columns(step=pl.col("visit"))
        yield (
            rows.with_columns(
                pl.lit(None, dtype).alias(name)
                if name not in rows.columns
                else pl.col(name).cast(dtype)
                for name, dtype in dtypes.items()
            )
            .with_columns(
                # A log without views has only the original wording.
                pl.col("view").fill_null("original"),
                sample=pl.int_range(pl.len()).over("prompt_id").cast(pl.Int32),
            )
            .select(columns)
        )


def rewarded_labels(table: pl.DataFrame) -> dict[str, str]:
    """Return prompt_id -> the answer that was rewarded most often; prompts without a rewarded answer are left out.

    A log without rewards gives an empty dict.
    """
    if "is_rewarded" not in table.columns:
        return {}
    # A rewarded response without an answer, such as one for its format, says nothing about the label.
    rewarded = table.filter(pl.col("is_rewarded"), pl.col("answer").is_not_null())
    counts = (
        rewarded.group_by("prompt_id", "answer").len().cast({pl.Categorical: pl.String})
    )
    # The answer breaks ties, so that the order of rows in the log cannot change a label.
    counts = counts.sort("len", "answer", descending=[True, False])
    return dict(
        counts.unique("prompt_id", maintain_order=True)
        .select("prompt_id", "answer")
        .iter_rows()
    )


def some_rewards(table: pl.DataFrame) -> pl.DataFrame | None:
    """Return a sample of a log's rewards, to be compared with the grader's verdicts; None for a log without rewards.

    The sample has every n-th rollout, about `_COMPARED` in all. The columns are prompt_id, answer and is_rewarded.
    """
    if "is_rewarded" not in table.columns:
        return None
    rows = (
        table.select("prompt_id", "answer", "is_rewarded")
        .drop_nulls()
        .cast({pl.Categorical: pl.String})
    )
    # `| 1` makes the stride odd: an even one could meet only the even samples of every group.
    return rows.gather_every(max(1, len(rows) // _COMPARED) | 1)
