"""A log's table as a history needs it: the labels of its prompts, its steps, and some of its rewards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import polars as pl

from olr_cli.data.columns import LABELS, STATISTICS
from olr_cli.data.prompts import NOISE_TYPES, View
from olr_cli.errors import UserError

_COMPARED = 1_000
"""Rewards, about, that are compared with verdicts: enough to see a share of _MOST_CONTRADICTIONS."""


def labels_of_prompts(table: pl.DataFrame, file: Path) -> pl.DataFrame:
    """One row a prompt with its label columns; they must not change from visit to visit."""
    known = [name for name in (*LABELS, "data_source") if name in table.columns]
    labels = (
        table.select("prompt_id", *known)
        .unique(maintain_order=True)
        .cast({pl.Categorical: pl.String})
    )
    twice = labels.filter(pl.col("prompt_id").is_duplicated())
    if not twice.is_empty():
        raise UserError(
            f"{file}: prompt {twice['prompt_id'][0]} has several values of {', '.join(known)}",
            "give each prompt one, the same at all its visits",
        )
    if "noise_type" in known:
        strange = labels.filter(~pl.col("noise_type").is_in(NOISE_TYPES))
        if not strange.is_empty():
            raise UserError(
                f"{file}: noise_type '{strange['noise_type'][0]}' of prompt {strange['prompt_id'][0]} is not one of"
                f" {', '.join(NOISE_TYPES)}",
                "correct that column",
            )
    return labels


def require_views(table: pl.DataFrame, source: Path) -> None:
    """Make sure that the rollouts are of views that there are."""
    views = table["view"].drop_nulls().unique().to_list() if "view" in table.columns else []
    strange = [view for view in views if view not in get_args(View)]
    if strange:
        raise UserError(
            f"{source}: view '{strange[0]}' is not one of {', '.join(get_args(View))}",
            "correct that column",
        )


def steps_of(table: pl.DataFrame, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    """The rollouts of one visit after the other, as those of a run's steps."""
    kinds = {
        "prompt_id": pl.String,
        "view": pl.String,
        "answer": pl.String,
        "tokens": pl.Int32,
    }
    kinds |= dict.fromkeys(STATISTICS[1:], pl.Float64)
    table = table.select(name for name in (*columns,) if name in table.columns)
    for visit in range(1, 1 + int(table["visit"].max())):  # type: ignore[arg-type]  # whole numbers
        rows = table.filter(pl.col("visit") == visit).with_columns(step=pl.col("visit"))
        yield (
            rows.with_columns(
                pl.lit(None, kind).alias(name)
                if name not in rows.columns
                else pl.col(name).cast(kind)
                for name, kind in kinds.items()
            )
            .with_columns(
                pl.col("view").fill_null("original"),
                sample=pl.int_range(pl.len()).over("prompt_id").cast(pl.Int32),
            )
            .select(columns)
        )


def rewarded_labels(table: pl.DataFrame) -> dict[str, str]:
    """prompt_id -> the answer that was rewarded most often; none where nobody knows what was rewarded."""
    if "is_rewarded" not in table.columns:
        return {}
    rewarded = table.filter(pl.col("is_rewarded"), pl.col("answer").is_not_null())
    counts = (
        rewarded.group_by("prompt_id", "answer").len().cast({pl.Categorical: pl.String})
    )
    counts = counts.sort("len", "answer", descending=[True, False])
    return dict(
        counts.unique("prompt_id", maintain_order=True)
        .select("prompt_id", "answer")
        .iter_rows()
    )


def some_rewards(table: pl.DataFrame) -> pl.DataFrame | None:
    """Return prompt_id, answer and is_rewarded of about `_COMPARED` rollouts; None of a log without rewards."""
    if "is_rewarded" not in table.columns:
        return None
    rows = (
        table.select("prompt_id", "answer", "is_rewarded")
        .drop_nulls()
        .cast({pl.Categorical: pl.String})
    )
    # Odd, so that no stride meets the same place of every group.
    return rows.gather_every(max(1, len(rows) // _COMPARED) | 1)
