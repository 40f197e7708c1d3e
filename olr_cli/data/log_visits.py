"""The rollouts of a log as one table: whose prompt each is, which visit of it, and whether it was right."""

from __future__ import annotations

import polars as pl

from olr_cli.data.chat import turns_of
from olr_cli.data.log_columns import Layout
from olr_cli.data.log_formats import TABLE
from olr_cli.data.questions import question_ids

_MOST_REWARDS = 4
"""Different rewards of which those in the upper half mean right; more of them are a score, which says nothing of it."""


def with_ids(rows: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, str]]:
    """The rows with an id a prompt instead of its text, and the texts by id."""
    if "prompt" not in rows.columns:
        return rows, {}
    if "prompt_id" not in rows.columns:
        texts = (
            rows["prompt"].drop_nulls().unique(maintain_order=True).cast(pl.String).to_list()
        )
        ids, prompt = question_ids(map(turns_of, texts)), pl.col("prompt").cast(pl.String)
        names = prompt.replace_strict(texts, ids, default=None, return_dtype=pl.String)
        rows = rows.with_columns(names.cast(pl.Categorical()).alias("prompt_id"))
        return rows.drop("prompt"), dict(zip(ids, texts, strict=True))
    pairs = rows.select(pl.col("prompt_id", "prompt").cast(pl.String)).drop_nulls()
    return rows.drop("prompt"), dict(pairs.unique("prompt_id", keep="first").iter_rows())


def apart_by_label(rows: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Prompts of one text that have different labels are different prompts."""
    if "given_label" not in rows.columns:
        return rows, []
    labels = rows.select("prompt_id", "given_label").drop_nulls().unique()
    several = labels.filter(pl.len().over("prompt_id") > 1).sort("prompt_id", "given_label")
    if several.is_empty():
        return rows, []
    number = pl.int_range(1, pl.len() + 1).over("prompt_id").cast(pl.String)
    apart = (pl.col("prompt_id").cast(pl.String) + "/" + number).cast(pl.Categorical())
    joined = rows.join(
        several.with_columns(apart=apart),
        on=["prompt_id", "given_label"],
        how="left",
        maintain_order="left",
    )
    rows = joined.with_columns(pl.coalesce("apart", "prompt_id").alias("prompt_id")).drop(
        "apart"
    )
    count = several["prompt_id"].n_unique()
    are = (
        "s have different labels and count" if count > 1 else " has different labels and counts"
    )
    return rows, [f"{count:,} prompt{are} once for each label."]


def with_visits(rows: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """The rows with `visit` 1, 2, … of each prompt."""
    notes: list[str] = []
    if "visit" in rows.columns:
        order = pl.col("visit")
    elif "group" in rows.columns and rows["group"].null_count() == 0:
        first = pl.col("_group").min().over("prompt_id", "step", "group")
        rows, order = (
            rows.with_row_index("_group").with_columns(first),
            pl.struct("step", "_group"),
        )
    else:
        order = pl.col("step")
        sizes = rows.group_by("prompt_id", "step").len()["len"]
        usual = int(sizes.mode().min())  # type: ignore[arg-type]  # of whole numbers
        more = int(((sizes > usual) & (sizes % usual == 0)).sum())
        if more:
            several = (pl.len() > usual) & (pl.len() % usual == 0)
            place = pl.when(several).then(pl.int_range(pl.len()) // usual).otherwise(0)
            rows = rows.with_columns(place.over("prompt_id", "step").alias("_group"))
            order = pl.struct("step", "_group")
            times = f"{more:,} times" if more > 1 else "once"
            notes.append(
                f"A step holds several groups of {usual} rollouts of one prompt {times}; each group counts as a visit."
            )
    rank = order.rank("dense").over("prompt_id").cast(pl.Int32)
    return rows.with_columns(rank.alias("visit")).drop("_group", "group", strict=False), notes


def with_verdicts(rows: pl.DataFrame, layout: Layout) -> tuple[pl.DataFrame, list[str]]:
    """The rows with `is_correct` and `is_rewarded` where they can be known."""
    kept, notes = rows.drop("verdict", "is_correct", strict=False), list[str]()
    if (
        layout.format is TABLE and "is_correct" in rows.columns
    ):  # of the truth, whatever was rewarded
        verdicts, notes = _verdicts(rows["is_correct"])
        kept, rows = kept.with_columns(*verdicts), rows.drop("is_correct")
    source = next(
        (name for name in ("is_correct", "verdict", "reward") if name in rows.columns), None
    )
    if source is None or (source == "reward" and len(layout.rewards) > 1):
        note = (
            f"Which of {', '.join(layout.rewards)} rewards right answers is not known; name it as the column of"
            " is_correct."
        )
        return kept, [note] if len(layout.rewards) > 1 else notes
    verdicts, more = _verdicts(rows[source])
    return kept.with_columns(one.alias("is_rewarded") for one in verdicts), notes + more


def _verdicts(column: pl.Series) -> tuple[list[pl.Series], list[str]]:
    """Which of these numbers say right, and a note if that is not plain; nothing of a score."""
    numbers = column.cast(pl.Float64)
    different = numbers.drop_nulls().unique()
    if different.is_empty() or len(different) > _MOST_REWARDS:
        return [], []
    low, high = min(0.0, *different), max(0.0, *different)
    notes = []
    if not {*different} <= {-1.0, 0.0, 1.0}:
        values = ", ".join(f"{value:g}" for value in sorted(different))
        notes = [
            f"Rewards are {values}; those above {(low + high) / 2:g} are taken to say that an answer is right."
        ]
    return [numbers > (low + high) / 2], notes
