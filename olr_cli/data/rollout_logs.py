"""Rollouts in files, whoever stored them: one table with olr's names, prompts told apart by text, visits by step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import polars as pl

from olr_cli.answers import default_extractor, extract
from olr_cli.data.log_files import common_place, log_files, numbered
from olr_cli.data.log_formats import COLUMNS, TABLE, LogFormat, named_columns, turns_of
from olr_cli.data.log_tables import LogFile, read_log_file
from olr_cli.data.prompts import Message
from olr_cli.data.questions import QuestionIds
from olr_cli.errors import UserError, no_rows

LABELS = ("given_label", "true_answer", "noise_type")
"""What is known of a prompt's label."""

_REPEATED = ("prompt_id", "view", "answer", "answer_class", *LABELS, "data_source")
"""Texts of which many rollouts have the same."""

_MOST_REWARDS = 4
"""Different rewards of which those in the upper half mean right; more of them are a score, which says nothing of it."""


Report: TypeAlias = Callable[[str], None]
"""Takes a sentence, without a full stop, on how far something is that takes long."""


def silent(sentence: str) -> None:
    """A `Report` that says nothing."""


@dataclass(frozen=True)
class RolloutLog:
    """Rollouts that are stored in files.

    Attributes:
        source: the file or folder; of several files the folder that they have in common.
        rows: a row a rollout, in the order of the files: those of `COLUMNS` that the files have, always prompt_id,
            visit (1, 2, … for each prompt) and step (1 where unknown); texts that repeat are categories. `answer` is
            read from the response. `is_correct` is what the log says of the truth, `is_rewarded` whether the reward
            says that the answer is the label.
        questions: prompt_id -> the turns, where the files have prompts.
        trainer: whose log it is; "olr" for a table with olr's names.
        notes: what was taken for what, and what was left out.
        has_ids: whether the files name their prompts; else they have the ids of `QuestionIds`.
    """

    source: Path
    rows: pl.DataFrame
    questions: Mapping[str, tuple[Message, ...]] = field(default_factory=dict)
    trainer: str = TABLE.name
    notes: Sequence[str] = ()
    has_ids: bool = True


def read_log(
    places: Sequence[Path],
    columns: Sequence[str] = (),
    *,
    wanted: Collection[str] = COLUMNS,
    extractor: str | None = None,
    keeps_responses: bool = False,
    takes_stored_answers: bool = False,
    report: Report = silent,
) -> RolloutLog:
    """Rollouts from files of any trainer, few of the responses in memory at a time.

    Prompts are told apart by `prompt_id`, else by their text. A visit of a prompt is its rollouts of one step; where
    they are a multiple of the usual number of rollouts, each such group is a visit, as each was voted on by itself.

    Args:
        places: files, patterns, or folders of files.
        columns: what ``--columns`` says (`named_columns`).
        wanted: those of `COLUMNS` that are read.
        extractor: how answers are read from responses; None: as the data source calls for (R6).
        keeps_responses: whether the rows have `response`.
        takes_stored_answers: of a table with answers, responses are not read.
        report: takes a sentence on how many rollouts are read, now and then.

    Raises:
        UserError: a file can't be read, lacks a column, or is of another trainer than the first.
    """
    names, source = named_columns(columns), common_place(places)
    parts: list[pl.DataFrame] = []
    repeated: list[int] = []
    prompts = _Prompts()
    read = 0

    def reduce(rows: pl.DataFrame, kind: LogFormat) -> pl.DataFrame:
        nonlocal read
        read += len(rows)
        report(f"Read {read:,} rollouts")
        rows = prompts.identify(rows)
        if kind is not TABLE:  # a rollout that failed has no response
            rows = rows.drop_nulls("response")
        if kind.repeats_steps:
            rows = rows.with_columns(_digest=rows.drop("step").hash_rows())
        rows = _answered(rows, extractor, keeps_responses=keeps_responses)
        return rows.cast({name: pl.Categorical() for name in _REPEATED if name in rows.columns})

    first = before = None
    for path, step in numbered(log_files(places)):
        file = read_log_file(path, names, wanted, step, reduce, takes_stored_answers=takes_stored_answers)
        if file is None:
            continue
        first = first or replace(file, rows=pl.DataFrame())
        if file.format.name != first.format.name:
            raise UserError(
                f"{path} looks like a log of {file.format.name}, and {first.path} like one of {first.format.name};"
                " read them apart"
            )
        rows = file.rows
        if file.format.repeats_steps:
            digest, rows = rows["_digest"], rows.drop("_digest")
            if before is not None and digest.equals(before):
                repeated += rows["step"].unique().to_list()
                continue
            before = digest
        parts.append(rows)
    if first is None or not parts:
        raise no_rows(source, "rollout")
    rows = pl.concat(parts, how="diagonal_relaxed")
    if rows.is_empty():
        raise no_rows(source, "rollout")
    if rows["prompt_id"].null_count() or ("visit" in rows.columns and rows["visit"].null_count()):
        raise UserError(f"{source} has rows without prompt_id or visit; remove or complete them")
    notes = [first.note(source, len(parts) + len(repeated))] if names or first.format is not TABLE else []
    if repeated:
        shown = (
            f"{len(repeated)} steps (the first is {repeated[0]})"
            if len(repeated) > 1
            else f"Step {repeated[0]}"
        )
        notes.append(f"{shown} logged the rollouts of the step before once more; they count once.")
    if "prompt_id" not in first.places:
        rows, conflicts = _apart_by_label(rows)
        notes += conflicts
    rows, groups = _with_visits(rows)
    notes += groups
    rows, verdicts = _with_verdicts(rows, first)
    notes += verdicts
    texts = (
        (name, prompts.texts.get(name) or prompts.texts.get(name.rpartition("/")[0]))
        for name in rows["prompt_id"].unique().cast(pl.String)
    )
    questions = {name: turns_of(text) for name, text in texts if text is not None}
    return RolloutLog(source, rows, questions, first.format.name, notes, "prompt_id" in first.places)


class _Prompts:
    """The prompts of a log: their texts by id, and the ids of those that come without."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        self._new_ids = QuestionIds()

    def identify(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows with an id a prompt instead of its text."""
        if "prompt" not in rows.columns:
            return rows
        if "prompt_id" in rows.columns:
            pairs = rows.select("prompt_id", "prompt").unique("prompt_id", keep="first").drop_nulls()
            self.texts.update(pairs.iter_rows())
            return rows.drop("prompt")
        texts = rows["prompt"].unique(maintain_order=True).drop_nulls().to_list()
        for text in texts:
            if text not in self._ids:
                self._ids[text] = self._new_ids.next(turns_of(text))
                self.texts[self._ids[text]] = text
        names = [self._ids[text] for text in texts]
        ids = pl.col("prompt").replace_strict(texts, names, default=None, return_dtype=pl.String)
        return rows.with_columns(ids.alias("prompt_id")).drop("prompt")


def _answered(rows: pl.DataFrame, extractor: str | None, *, keeps_responses: bool) -> pl.DataFrame:
    """The rows with the answers that their responses claim."""
    if "response" not in rows.columns:
        return rows.with_columns(
            pl.col(name).str.strip_chars() for name in ("answer",) if name in rows.columns
        )
    sources = rows["data_source"] if "data_source" in rows.columns else None
    answers = answers_of(rows["response"], sources, extractor)
    kept = rows.with_columns(answers, characters=pl.col("response").str.len_chars())
    return kept if keeps_responses else kept.drop("response")


def answers_of(responses: pl.Series, sources: pl.Series | None, extractor: str | None) -> pl.Series:
    """The answers that responses claim; without an `extractor` read as their data `sources` call for (R6)."""
    if extractor is not None or sources is None:
        name = extractor or default_extractor("")
        answers = [None if text is None else extract(text, name) for text in responses]
    else:
        names = {source: default_extractor(source or "") for source in sources.unique()}
        answers = [
            None if text is None else extract(text, names[source])
            for text, source in zip(responses, sources, strict=True)
        ]
    return pl.Series("answer", answers, dtype=pl.String)


def _apart_by_label(rows: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
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
        several.with_columns(apart=apart), on=["prompt_id", "given_label"], how="left", maintain_order="left"
    )
    rows = joined.with_columns(pl.coalesce("apart", "prompt_id").alias("prompt_id")).drop("apart")
    count = several["prompt_id"].n_unique()
    are = "s have different labels and count" if count > 1 else " has different labels and counts"
    return rows, [f"{count:,} prompt{are} once for each label."]


def _with_visits(rows: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """The rows with `visit` 1, 2, … of each prompt."""
    notes: list[str] = []
    if "visit" in rows.columns:
        order = pl.col("visit")
    elif "group" in rows.columns and rows["group"].null_count() == 0:
        first = pl.col("_group").min().over("prompt_id", "step", "group")
        rows, order = rows.with_row_index("_group").with_columns(first), pl.struct("step", "_group")
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


def _with_verdicts(rows: pl.DataFrame, file: LogFile) -> tuple[pl.DataFrame, list[str]]:
    """The rows with `is_correct` and `is_rewarded` where they can be known."""
    column = file.places.get("is_correct")
    is_of_reward = column is not None and file.format is not TABLE
    if "is_correct" in rows.columns and rows["is_correct"].dtype == pl.Boolean and not is_of_reward:
        if rows["is_correct"].null_count() < len(rows):
            return rows, []
        rows = rows.drop("is_correct")
    source = next((name for name in ("is_correct", "verdict", "reward") if name in rows.columns), None)
    if source is None or (source == "reward" and len(file.rewards) > 1):
        notes = []
        if len(file.rewards) > 1:
            notes.append(
                f"Which of {', '.join(file.rewards)} rewards right answers is not known; say it with --columns"
                " is_correct=COLUMN."
            )
        return rows.drop("verdict", "is_correct", strict=False), notes
    rewards = rows[source].cast(pl.Float64)
    different = rewards.drop_nulls().unique()
    kept = rows.drop("verdict", "is_correct", strict=False)
    if different.is_empty() or len(different) > _MOST_REWARDS:
        return kept, []
    low, high = min(0.0, *different), max(0.0, *different)
    verdicts = (rewards > (low + high) / 2).alias("is_rewarded")
    is_named = column is not None and source == "is_correct" and file.format is TABLE
    return kept.with_columns(verdicts.alias("is_correct") if is_named else verdicts), []
