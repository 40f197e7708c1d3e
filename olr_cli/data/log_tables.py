"""The rollouts of a log as a table: olr's names of columns, the prompt and visit of each rollout, and its verdict."""

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
"""A name of a reward function that rewards right answers, and not a format or a length."""

_REWARDS = re.compile(r"reward|^scores\.", re.IGNORECASE)
"""A name of a column that surely holds the values of a reward function."""


@dataclass(frozen=True)
class Layout:
    """The columns of a log file, and what each of them is read as."""

    columns: Sequence[str]
    """Names of all columns."""

    format: LogFormat
    """The format of the trainer that wrote the file."""

    places: Mapping[str, str]
    """Name in `COLUMNS` -> path in the file."""

    rewards: Sequence[str]
    """Columns with the values of reward functions."""

    @property
    def verdict(self) -> str | None:
        """The name of the column of rewards that says whether the answer is right, or None if it is not clear which.

        A file's only column of rewards is taken. Of several, the only one whose name speaks of correctness, such as
        ``accuracy``, is taken. The result is also None if the file has a column `is_correct`, which already says what
        is right.
        """
        candidates = [
            name
            for name in self.rewards
            if len(self.rewards) == 1 or _CORRECTNESS.search(name)
        ]
        return (
            candidates[0]
            if len(candidates) == 1 and "is_correct" not in self.places
            else None
        )

    def note(self, source: Path, files: int, *, is_shaped: bool) -> str:
        """Return a sentence on how the columns were read.

        Args:
            source: the file, or the folder of the files.
            files: number of files.
            is_shaped: whether the rewards have more than two values; the sentence then does not call them verdicts.
        """
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
"""Columns that may hold true and false -> the type that these are converted to."""


def _typed(rows: Rows, name: str, path: str) -> pl.Series:
    """Return the column at a path as a series called `name`, in the type that olr uses for columns of that name.

    `name` is a name in `COLUMNS`. Blank texts become null, except in `response`, where an empty text is a response.

    Raises:
        UserError: a value does not fit the type.
    """
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
    # An empty response is a response; an empty text in any other column is a missing value.
    if name == "response":
        return texts
    if name in ("given_label", "true_answer"):
        texts = _as_labels(texts)
    is_given = texts.str.strip_chars() != ""
    given = pl.select(pl.when(is_given).then(texts).alias(name)).to_series()
    return (
        _as_integers(given, pl.Int64(), rows.place) if name in ("visit", "step") else given
    )


def _numeric(rows: Rows, name: str, path: str) -> pl.Series:
    """Return the column at a path as a series called `name`, which has numbers or booleans.

    `truncated` becomes booleans, `tokens` integers, and any other column floats. As an exception, `is_correct` keeps
    booleans, and has the type null if it is empty.

    Raises:
        UserError: a value is no number.
    """
    if name in _OF_VERDICTS and path in rows.table.column_names:
        column = rows.table.column(path)
        if pa.types.is_boolean(column.type) or pa.types.is_null(column.type):
            verdicts = pl.Series(name, column)
            return verdicts if name == "is_correct" else verdicts.cast(_OF_VERDICTS[name])
    # A path into objects, in which judges write their verdicts, has no Arrow column to look at.
    elif name in _OF_VERDICTS:
        cells = [*rows.values(path)]
        if all(cell is None or isinstance(cell, bool) for cell in cells):
            return pl.Series(name, cells, pl.Boolean).cast(_OF_VERDICTS[name])
    numbers = pl.Series(name, rows.numbers(path))
    if name == "truncated":
        return numbers > 0
    return _as_integers(numbers, pl.Int32(), rows.place) if name == "tokens" else numbers


def _as_labels(texts: pl.Series) -> pl.Series:
    """Replace each text by the label in it (`label_of`): a worked solution, for example, by its final answer.

    A text with several different answers stays unchanged.
    """
    labels = {}
    for text in texts.drop_nulls().unique():
        with suppress(ValueError):
            labels[text] = label_of(text)
    return texts.replace({text: label for text, label in labels.items() if label != text})


def _as_integers(column: pl.Series, dtype: pl.DataType, place: str) -> pl.Series:
    """Convert a column to the type `dtype` of integers; raise UserError if that changes a value.

    `place` names the file in the error.
    """
    try:
        whole = column.cast(dtype)
    except pl.exceptions.PolarsError:
        whole = None
    # A cast cuts off decimals without an error, so compare with the original.
    if whole is None or (
        column.dtype == pl.Float64 and not column.equals(whole.cast(pl.Float64))
    ):
        raise UserError(
            f"{place}: the column {column.name} must hold whole numbers, and it holds others",
            "correct it",
        )
    return whole


def chat_text(cell: Any, name: str, path: str, row: int, origins: Origins) -> str | None:
    """Return a prompt or a response, which may be messages, as text; return None for a missing one.

    Args:
        cell: the value in the log.
        name: ``prompt`` if the cell is a prompt; with any other name, the cell is a response.
        path: the cell's column, for errors.
        row: index of the cell's row, for errors.
        origins: names of the rows, for errors.

    Raises:
        UserError: the cell is neither text nor messages.
    """
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
    """Return the names of the columns with the values of reward functions.

    These are the columns of floats that olr does not read as anything else. If some of them have "reward" in their
    names or begin with ``scores.``, only those are returned. `places` is olr's name of a column (`COLUMNS`) -> its
    path, for all columns that olr reads as something else.
    """
    # Advantages are computed from the rewards, so they are no rewards.
    others = {*places.values(), "advantage", "advantages"}
    numeric = [
        column.name
        for column in schema
        if pa.types.is_floating(column.type)
        and column.name not in others
        and not column.name.startswith("task.")
    ]
    return [*filter(_REWARDS.search, numeric)] or numeric


def renamed(rows: Rows, layout: Layout, step: int) -> pl.DataFrame:
    """Return the rows of a file as a frame with olr's names of columns.

    If the file has no column for `reward`, the sum of its columns of rewards becomes `reward`. If one of these columns
    says whether the answer is right (`Layout.verdict`), a copy of it becomes `verdict`. Rows without a step get `step`.
    """
    frame = pl.DataFrame(
        [_typed(rows, name, path) for name, path in layout.places.items() if rows.has(path)]
    )
    if layout.rewards:
        sums = [
            pl.Series(name, rows.numbers(name)).cast(pl.Float64) for name in layout.rewards
        ]
        # TRL by default gives all reward functions the weight 1, and skips those that return None.
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
"""Number of different rewards up to which those in the upper half of their range mean right.

More of them are a score, and no value of a score means right.
"""


def with_ids(rows: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, str]]:
    """Replace the column `prompt` by `prompt_id`; return the rows, and prompt_id -> the prompt's text.

    If the rows have no ids, ids are made from the texts. If one id has several texts, the first is returned. Rows
    without the column `prompt` stay unchanged, and no texts are returned.
    """
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
    # An id may come with several texts, such as a rephrasing: the first one counts.
    pairs = rows.select(pl.col("prompt_id", "prompt").cast(pl.String)).drop_nulls()
    return rows.drop("prompt"), dict(pairs.unique("prompt_id", keep="first").iter_rows())


def apart_by_label(rows: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Split each prompt that has several labels into one prompt per label; return the rows, and a list of notes.

    The id p becomes p/1, p/2 and so on. A note counts the prompts that were split; the list is empty if there are none.
    """
    if "given_label" not in rows.columns:
        return rows, []
    labels = rows.select("prompt_id", "given_label").drop_nulls().unique()
    several = labels.filter(pl.len().over("prompt_id") > 1).sort("prompt_id", "given_label")
    if several.is_empty():
        return rows, []
    # Prompt p becomes p/1 and p/2, for its first and its second label in the order of their texts.
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
    """Add the column `visit`, which numbers each prompt's visits from 1; return the rows, and a list of notes.

    A visit is one group of rollouts that were sampled for a prompt together. Usually, all rollouts of the prompt in one
    step are a group. If only the number of rollouts shows that a step holds several groups, a note says so.
    """
    rows, order, notes = _with_groups(rows)
    rank = order.rank("dense").over("prompt_id").cast(pl.Int32)
    return rows.with_columns(rank.alias("visit")).drop(
        "_group", "group", strict=False
    ), notes


def _with_groups(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.Expr, list[str]]:
    """Find out which rollouts are one visit, that is, one group that was sampled for a prompt together.

    Returns:
        The rows, an expression and a list of notes. For each rollout of a prompt, the expression gives a value that is
        equal within a visit and larger in later visits. If it needs a column `_group`, the rows have this column too.
        There is a note only if the number of rollouts shows that a step holds several visits.
    """
    if "visit" in rows.columns:
        return rows, pl.col("visit"), []
    in_groups = pl.struct("step", "_group")
    if "group" in rows.columns and rows["group"].null_count() == 0:
        first = pl.col("_group").min().over("prompt_id", "step", "group")
        return rows.with_row_index("_group").with_columns(first), in_groups, []
    # Without a column of groups, only sizes show them: 16 rollouts in a step, where 8 are usual, are two groups.
    sizes = rows.group_by("prompt_id", "step").len()["len"]
    usual = int(sizes.mode().min())  # type: ignore[arg-type]  # of whole numbers
    more = int(((sizes > usual) & (sizes % usual == 0)).sum())
    if not more:
        return rows, pl.col("step"), []
    # Each group had its own vote, so it is a visit of its own.
    several = (pl.len() > usual) & (pl.len() % usual == 0)
    place = pl.when(several).then(pl.int_range(pl.len()) // usual).otherwise(0)
    rows = rows.with_columns(place.over("prompt_id", "step").alias("_group"))
    times = f"{more:,} times" if more > 1 else "once"
    note = f"A step holds several groups of {usual} rollouts of one prompt {times}; each group counts as a visit."
    return rows, in_groups, [note]


def is_shaped(rows: pl.DataFrame) -> bool:
    """Return whether `is_correct` or `verdict` has more than two different values, which makes it a score."""
    names = [name for name in ("is_correct", "verdict") if name in rows.columns]
    return any(rows[name].drop_nulls().n_unique() > 2 for name in names)


def with_verdicts(rows: pl.DataFrame, layout: Layout) -> tuple[pl.DataFrame, list[str]]:
    """Add the boolean columns `is_correct` and `is_rewarded` where the log allows it; return the rows and notes.

    `is_correct` says whether the answer matches the true answer. It is added only for olr's own tables.

    `is_rewarded` says whether the answer matches the label. It is made from the verdicts or rewards in the log. It is
    left out if the log has neither, or if they do not show which answers are right.

    The notes say which numbers were read as right, or why none were.
    """
    kept, notes = rows.drop("verdict", "is_correct", strict=False), list[str]()
    if layout.format is TABLE and "is_correct" in rows.columns:
        # In a table of olr's, `is_correct` is about the true answer, whichever label was rewarded.
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
    """Convert numbers to verdicts; return a list with one boolean series, true for right, and a list of notes.

    A number means right if it is above the middle between the lowest and the highest number. 0 always counts as one of
    these numbers, so that 1 means right even in a column of nothing but 1. A note states the middle, unless all numbers
    are -1, 0 or 1.

    If the column is empty, both lists are empty. If it has more than `_MOST_REWARDS` different numbers, these are
    scores: the list of series is empty, and a note says so.
    """
    numbers = column.cast(pl.Float64)
    different = numbers.drop_nulls().unique()
    if len(different) > _MOST_REWARDS:
        count = f"Rewards have {len(different):,} different values"
        return [], [f"{count}, so they do not say which answers are right."]
    if different.is_empty():
        return [], []
    # With 0 in the range: rewards that are all 1 mean right, and rewards that are all -1 mean wrong.
    low, high = min(0.0, *different), max(0.0, *different)
    notes = []
    if not {*different} <= {-1.0, 0.0, 1.0}:
        values = ", ".join(f"{value:g}" for value in sorted(different))
        notes = [
            f"Rewards are {values}; those above {(low + high) / 2:g} are taken to say that an answer is right."
        ]
    return [numbers > (low + high) / 2], notes
