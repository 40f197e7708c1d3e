"""The rollouts of a log as a table: columns under olr's names, whose prompt and visit each is, and what was right."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from olr_cli.data.chat import as_text, messages, response_text, turns_of
from olr_cli.data.columns import STATISTICS
from olr_cli.data.labels import label_of
from olr_cli.data.log_formats import TABLE, LogFormat
from olr_cli.data.questions import question_ids
from olr_cli.data.rows import Rows
from olr_cli.data.values import Origins, row_error
from olr_cli.errors import UserError

_CORRECTNESS = re.compile("acc|correct|match|verif|solve|answer|math", re.IGNORECASE)
"""In the name of a reward function: it rewards right answers, unlike one that rewards a format or a length."""

_REWARDS = re.compile(r"reward|^scores\.", re.IGNORECASE)
"""In the name of a column: it is a reward function's, whichever numbers stand beside it."""


@dataclass(frozen=True)
class Layout:
    """Which of a file's columns hold what: `places` is name in `COLUMNS` -> path; `rewards` are of reward functions."""

    columns: Sequence[str]
    format: LogFormat
    places: Mapping[str, str]
    rewards: Sequence[str]

    @property
    def verdict(self) -> str | None:
        """Of several rewards the one whose name says that it is about the answer, or the only one."""
        told = [
            name
            for name in self.rewards
            if len(self.rewards) == 1 or _CORRECTNESS.search(name)
        ]
        return told[0] if len(told) == 1 and "is_correct" not in self.places else None

    def note(self, source: Path, files: int, *, is_shaped: bool) -> str:
        """Return a sentence on which columns were read as what; a shaped reward is not named as a verdict."""
        kind = (
            "a table of rollouts"
            if self.format is TABLE
            else f"a log of {self.format.name}"
        )
        renamed = [
            f"{column} as {name}"
            for name, column in self.places.items()
            if name != column and not (is_shaped and name == "is_correct")
        ]
        if self.rewards and "reward" not in self.places:
            renamed.append(f"{' + '.join(self.rewards)} as reward")
        if self.verdict and not is_shaped:
            renamed.append(f"{self.verdict} as is_correct")
        several = f" of {files} files" if files > 1 else ""
        identity = (
            "" if "prompt_id" in self.places else "; prompts are told apart by their text"
        )
        columns = f": {', '.join(renamed)}" if renamed else ""
        return f"{source} was read as {kind}{several}{columns}{identity}."


_OF_VERDICTS: Mapping[str, type[pl.DataType]] = {
    "is_correct": pl.Boolean,
    "reward": pl.Float64,
    "truncated": pl.Boolean,
}
"""Columns that may say true or false, and the type that they have then."""


def _typed(rows: Rows, name: str, path: str) -> pl.Series:
    """Return a column with the type that its name stands for."""
    if name in _OF_VERDICTS or name in STATISTICS:
        return _numeric(rows, name, path)
    is_flat = path in rows.table.column_names and not pa.types.is_nested(
        rows.table[path].type
    )
    if name in ("prompt", "response") and not is_flat:
        chats = [
            chat_text(cell, name, path, row, rows.origins)
            for row, cell in enumerate(rows.values(path))
        ]
        texts = pl.Series(name, chats, dtype=pl.String)
    else:
        texts = pl.Series(name, rows.text_column(path))
    if name == "response":  # an empty one is a response too
        return texts
    if name in ("given_label", "true_answer"):
        texts = _as_labels(texts)
    is_given = texts.str.strip_chars() != ""
    given = pl.select(pl.when(is_given).then(texts).alias(name)).to_series()
    return _whole(given, pl.Int64(), rows.place) if name in ("visit", "step") else given


def _numeric(rows: Rows, name: str, path: str) -> pl.Series:
    """Return a column of numbers or verdicts; `is_correct` may hold either, and has no type if all of it is null."""
    if name in _OF_VERDICTS and path in rows.table.column_names:
        column = rows.table.column(path)
        if pa.types.is_boolean(column.type) or pa.types.is_null(column.type):
            verdicts = pl.Series(name, column)
            return verdicts if name == "is_correct" else verdicts.cast(_OF_VERDICTS[name])
    elif name in _OF_VERDICTS:  # within objects, as a judge may write its verdict
        cells = [*rows.values(path)]
        if all(cell is None or isinstance(cell, bool) for cell in cells):
            return pl.Series(name, cells, pl.Boolean).cast(_OF_VERDICTS[name])
    numbers = pl.Series(name, rows.numbers(path))
    if name == "truncated":
        return numbers > 0
    return _whole(numbers, pl.Int32(), rows.place) if name == "tokens" else numbers


def _as_labels(texts: pl.Series) -> pl.Series:
    """Labels read as in a file of prompts; one that holds several answers which differ stays as it is."""
    labels = {}
    for text in texts.drop_nulls().unique():
        with suppress(ValueError):
            labels[text] = label_of(text)
    return texts.replace({text: label for text, label in labels.items() if label != text})


def _whole(column: pl.Series, kind: pl.DataType, place: str) -> pl.Series:
    try:
        whole = column.cast(kind)
    except pl.exceptions.PolarsError:
        whole = None
    if whole is None or (
        column.dtype == pl.Float64 and not column.equals(whole.cast(pl.Float64))
    ):
        raise UserError(
            f"{place}: the column {column.name} must hold whole numbers, and it holds others",
            "correct it",
        )
    return whole


def chat_text(cell: Any, name: str, path: str, row: int, origins: Origins) -> str | None:
    """A prompt or a response, which may be messages, as text."""
    text = (
        None if cell is None else as_text(cell) if name == "prompt" else response_text(cell)
    )
    if text is None and cell is not None and messages(cell) is None:
        raise row_error(
            origins.name(row),
            path,
            f"a {type(cell).__name__}",
            "text or a list of messages with role and content",
        )
    return text


def reward_columns(schema: pa.Schema, places: Mapping[str, str]) -> list[str]:
    """The columns of reward functions: the numbers that are nothing else, those called rewards if there are any."""
    # What another column holds already, or is made of the rewards, is none of them.
    others = {*places.values(), "advantage", "advantages"}
    numeric = [
        one.name
        for one in schema
        if pa.types.is_floating(one.type)
        and one.name not in others
        and not one.name.startswith("task.")
    ]
    return [*filter(_REWARDS.search, numeric)] or numeric


def renamed(rows: Rows, layout: Layout, step: int) -> pl.DataFrame:
    """Rows with olr's names; `step` is that of rows which have none."""
    frame = pl.DataFrame(
        [_typed(rows, name, path) for name, path in layout.places.items() if rows.has(path)]
    )
    if layout.rewards:
        sums = [
            pl.Series(name, rows.numbers(name)).cast(pl.Float64) for name in layout.rewards
        ]
        # TRL weighs every reward function alike unless it is told otherwise, and skips those that give none.
        if "reward" not in frame.columns:
            frame = frame.with_columns(pl.DataFrame(sums).sum_horizontal().alias("reward"))
        if layout.verdict:
            verdict = sums[layout.rewards.index(layout.verdict)]
            frame = frame.with_columns(verdict.alias("verdict"))
    if "step" not in frame.columns or frame["step"].null_count():
        known = [pl.col("step")] if "step" in frame.columns else []
        frame = frame.with_columns(
            pl.coalesce(*known, pl.lit(step, pl.Int64)).alias("step")
        )
    return frame


# All rollouts of a log -----------------------------------------------------------------------------------------------

_MOST_REWARDS = 4
"""Different rewards of which those in the upper half mean right; more of them are a score, which says nothing of it."""


def with_ids(rows: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, str]]:
    """The rows with an id a prompt instead of its text, and the texts by id."""
    if "prompt" not in rows.columns:
        return rows, {}
    if "prompt_id" not in rows.columns:
        texts = (
            rows["prompt"]
            .drop_nulls()
            .unique(maintain_order=True)
            .cast(pl.String)
            .to_list()
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
    # p/1 and p/2 are the prompts of one text with its first and its second label.
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
        "s have different labels and count"
        if count > 1
        else " has different labels and counts"
    )
    return rows, [f"{count:,} prompt{are} once for each label."]


def with_visits(rows: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Return the rows with `visit` 1, 2, … of each prompt, and a note if visits had to be told apart."""
    rows, order, notes = _with_groups(rows)
    rank = order.rank("dense").over("prompt_id").cast(pl.Int32)
    return rows.with_columns(rank.alias("visit")).drop(
        "_group", "group", strict=False
    ), notes


def _with_groups(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.Expr, list[str]]:
    """Return the rows, by what the visits of a prompt are ordered, and a note if a step has several of a prompt."""
    if "visit" in rows.columns:
        return rows, pl.col("visit"), []
    in_groups = pl.struct("step", "_group")
    if "group" in rows.columns and rows["group"].null_count() == 0:
        first = pl.col("_group").min().over("prompt_id", "step", "group")
        return rows.with_row_index("_group").with_columns(first), in_groups, []
    sizes = rows.group_by("prompt_id", "step").len()["len"]
    usual = int(sizes.mode().min())  # type: ignore[arg-type]  # of whole numbers
    more = int(((sizes > usual) & (sizes % usual == 0)).sum())
    if not more:
        return rows, pl.col("step"), []
    # Each group was voted on by itself, so a multiple of the usual number of rollouts is as many visits.
    several = (pl.len() > usual) & (pl.len() % usual == 0)
    place = pl.when(several).then(pl.int_range(pl.len()) // usual).otherwise(0)
    rows = rows.with_columns(place.over("prompt_id", "step").alias("_group"))
    times = f"{more:,} times" if more > 1 else "once"
    note = f"A step holds several groups of {usual} rollouts of one prompt {times}; each group counts as a visit."
    return rows, in_groups, [note]


def is_shaped(rows: pl.DataFrame) -> bool:
    """Whether the numbers that would tell right from wrong are more than two."""
    names = [name for name in ("is_correct", "verdict") if name in rows.columns]
    return any(rows[name].drop_nulls().n_unique() > 2 for name in names)


def with_verdicts(rows: pl.DataFrame, layout: Layout) -> tuple[pl.DataFrame, list[str]]:
    """Return the rows with `is_correct` and `is_rewarded` where they can be known, and notes on how they are."""
    kept, notes = rows.drop("verdict", "is_correct", strict=False), list[str]()
    if layout.format is TABLE and "is_correct" in rows.columns:
        # What a table of olr's says is about the truth, whatever was rewarded.
        verdicts, notes = _verdicts(rows["is_correct"])
        kept, rows = kept.with_columns(*verdicts), rows.drop("is_correct")
    sources = [name for name in ("is_correct", "verdict", "reward") if name in rows.columns]
    has_several = len(layout.rewards) > 1
    if has_several and sources in ([], ["reward"]):
        names = ", ".join(layout.rewards)
        return kept, [
            f"Which of {names} rewards right answers is not known; name it as the column of is_correct."
        ]
    if not sources:
        return kept, notes
    verdicts, more = _verdicts(rows[sources[0]])
    return kept.with_columns(one.alias("is_rewarded") for one in verdicts), notes + more


def _verdicts(column: pl.Series) -> tuple[list[pl.Series], list[str]]:
    """Which of these numbers say right, and a note if that is not plain; nothing of a score."""
    numbers = column.cast(pl.Float64)
    different = numbers.drop_nulls().unique()
    if len(different) > _MOST_REWARDS:
        count = f"Rewards have {len(different):,} different values"
        return [], [f"{count}, so they do not say which answers are right."]
    if different.is_empty():
        return [], []
    low, high = min(0.0, *different), max(0.0, *different)
    notes = []
    if not {*different} <= {-1.0, 0.0, 1.0}:
        values = ", ".join(f"{value:g}" for value in sorted(different))
        notes = [
            f"Rewards are {values}; those above {(low + high) / 2:g} are taken to say that an answer is right."
        ]
    return [numbers > (low + high) / 2], notes
