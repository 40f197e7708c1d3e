"""A few responses of every prompt: the first ones of its first and of its last visit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from olr_cli.analysis.report import cuts
from olr_cli.runs.store import read_rollout_steps

SAMPLES = 4
"""Responses of a visit and view."""

LONGEST = 4000
"""Characters of a response, whatever the budget."""

_COLUMNS = (
    "prompt_id",
    "visit",
    "sample",
    "view",
    "response",
    "answer",
    "reward",
    "is_correct",
    "tokens",
    "truncated",
)


def read_responses(run: Any, ends: pl.DataFrame) -> pl.DataFrame:
    """Responses as stored, one step's shard in memory at a time; what is beyond `LONGEST` characters is dropped.

    Args:
        run: the run directory.
        ends: prompt_id, visit and step of the visits to read.

    Returns:
        Columns prompt_id, visit, sample, view, answer, reward, is_correct, tokens, truncated, head, tail, length (of
        the whole response, in characters); by prompt_id, visit, view and sample.

    Raises:
        UserError: a shard is torn or foreign.
    """
    wanted = ends.select("prompt_id", "visit")
    steps = set(ends["step"])
    place = pl.col("sample").rank("ordinal").over("prompt_id", "visit", "view")
    length = pl.col("response").str.len_chars().cast(pl.Int64)
    head = int(LONGEST * cuts.HEAD)
    fits = length <= LONGEST
    kept = [
        shard.join(wanted, on=["prompt_id", "visit"], how="semi")
        .filter(place <= SAMPLES)
        .with_columns(
            length=length,
            head=pl.when(fits).then("response").otherwise(pl.col("response").str.head(head)),
            tail=pl.when(fits).then(pl.lit("")).otherwise(pl.col("response").str.tail(LONGEST - head)),
        )
        .drop("response")
        for shard in read_rollout_steps(run, _COLUMNS, steps)
    ]
    return pl.concat(kept).sort("prompt_id", "visit", "view", "sample")


def by_prompt(responses: pl.DataFrame, ids: Sequence[str], budget: int) -> tuple[list[list[Any]], int]:
    """Responses as JSON values, cut so that all of them fit into a budget.

    Args:
        responses: as `read_responses` gives them.
        ids: of the prompts.
        budget: characters in all.

    Returns:
        Of each prompt a list of ``[visit, sample, view, answer, reward, is_correct, tokens, truncated, head, tail,
        characters left out between the two]``; and the characters to which responses were cut.
    """
    lengths = responses["length"].to_numpy()
    limit = cuts.longest(np.minimum(lengths, LONGEST), budget, LONGEST)
    found: Mapping[str, list[Any]] = {name: [] for name in ids}
    for row in responses.iter_rows(named=True):
        found[row["prompt_id"]].append(_plain(row, limit))
    return list(found.values()), limit


def _plain(row: Mapping[str, Any], limit: int) -> list[Any]:
    head, tail = row["head"], row["tail"]
    if len(head) + len(tail) > limit:
        head, tail = cuts.ends(head + tail, limit)
    reward = row["reward"]
    return [
        row["visit"],
        row["sample"],
        row["view"],
        row["answer"],
        reward if reward is None or math.isfinite(reward) else str(reward),
        row["is_correct"],
        row["tokens"],
        row["truncated"],
        head,
        tail,
        row["length"] - len(head) - len(tail),
    ]
