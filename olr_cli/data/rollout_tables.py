"""Tables of rollouts, a run's or another trainer's log; wrong answers in them can become frozen noise (R4)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from olr_cli.answers import Judge, Key, default_extractor, extract, is_read
from olr_cli.data.columns import numbers, text_column
from olr_cli.data.files import matching_files, read_table
from olr_cli.data.prompts import Prompt, PromptSet
from olr_cli.errors import UserError, no_rows
from olr_cli.shards import complete_steps, table_shards

if TYPE_CHECKING:
    import pyarrow as pa

STATISTICS = ("tokens", "mean_logprob", "entropy", "self_certainty")
"""Columns of numbers: what some rewards and choices of prompts need of every rollout, besides its answer."""


def read_rollouts(files: Sequence[Path], columns: Collection[str], place: Path) -> pl.DataFrame:
    """The rollouts in Parquet or JSON files, with those of `columns` that the files have.

    `visit` and `tokens` are whole numbers, the other `STATISTICS` numbers, `is_correct` true or false; all else is
    text, null where it is blank (but for a response, which may well be empty).

    Raises:
        UserError: a file can't be read, there is no row, or a column has other values.
    """
    table = read_table(files, columns)
    if table.num_rows == 0:
        raise no_rows(place, "rollout")
    names = [name for name in table.column_names if name in columns]
    return pl.DataFrame([_column(table.column(name), name, place) for name in names])


def _column(column: pa.ChunkedArray, name: str, place: Path) -> pl.Series:
    import pyarrow as pa

    if name == "is_correct":
        if not pa.types.is_boolean(column.type) and column.null_count < len(column):
            raise UserError(f"{place}: is_correct must be true or false where it is known")
        return pl.Series(name, column.cast(pa.bool_()))
    if name in STATISTICS:
        values = pl.Series(name, numbers(column, name, str(place)), dtype=pl.Float64)
        return _whole(values, pl.Int32(), place) if name == "tokens" else values
    texts = pl.Series(name, text_column(column, name, str(place)))
    if name == "response":
        return texts
    given = pl.select(pl.when(texts.str.strip_chars() != "").then(texts).alias(name)).to_series()
    return _whole(given, pl.Int64(), place) if name == "visit" else given


def _whole(values: pl.Series, kind: pl.DataType, place: Path) -> pl.Series:
    try:
        whole = values.cast(kind)
    except pl.exceptions.PolarsError:
        whole = None
    if whole is None or (values.dtype == pl.Float64 and not values.equals(whole.cast(pl.Float64))):
        raise UserError(f"{place}: the column {values.name} must hold whole numbers, and it holds others")
    return whole


def wrong_answers(source: Path, prompts: PromptSet) -> dict[str, list[str]]:
    """The different answers to each prompt that are marked wrong, over all its visits; none for other prompts.

    Where no rollout is marked, as on data without truth, all answers: `proved_wrong` tells which are wrong.

    Args:
        source: a run directory (its complete steps), or a Parquet or JSON table with ``prompt_id``, one of
            ``answer_class``, ``answer``, ``response`` (the first that is there counts) and, where known,
            ``is_correct``.
        prompts: whose rollouts they must be.

    Raises:
        UserError: nothing is there, a column is missing, or they are of other prompts.
    """
    files, columns = _files(source), {"prompt_id", "is_correct"}
    choices = ("answer_class", "answer", "response")
    rollouts = read_rollouts(files, {*columns, *choices[:2]}, source)
    if not set(choices) & set(rollouts.columns):  # responses are long: read only where they must be
        rollouts = read_rollouts(files, {*columns, "response"}, source)
    column = next((name for name in choices if name in rollouts.columns), None)
    if column is None or "prompt_id" not in rollouts.columns:
        raise UserError(
            f"{source} lacks the column {'prompt_id' if column else 'answer'}; stored rollouts have prompt_id, answer"
            " or response, and is_correct where it is known"
        )
    if "is_correct" in rollouts.columns and rollouts["is_correct"].null_count() < len(rollouts):
        rollouts = rollouts.filter(~pl.col("is_correct"))
    wrong = rollouts.filter(pl.col(column).str.strip_chars() != "").drop_nulls("prompt_id")
    unique = wrong.select("prompt_id", column).unique().sort("prompt_id", column)
    grouped = unique.group_by("prompt_id", maintain_order=True).agg(column)
    answers: dict[str, list[str]] = dict(grouped.iter_rows())
    if not answers.keys() & {prompt.prompt_id for prompt in prompts.prompts}:
        theirs, ours = next(iter(answers), "none"), prompts.prompts[0].prompt_id
        raise UserError(
            f"{source} has no wrong answer to a prompt of {prompts.source} (its first prompt_id: {theirs}, here:"
            f" {ours}); name a run on the same data, or give the seed it was made with (--seed)"
        )
    if column != "response":
        return answers
    extractor = default_extractor(prompts.prompts[0].data_source)
    read = {prompt_id: [extract(text, extractor) for text in texts] for prompt_id, texts in answers.items()}
    return {prompt_id: [text for text in texts if text is not None] for prompt_id, texts in read.items()}


def _files(source: Path) -> list[Path]:
    if not source.is_dir():
        return matching_files(str(source))
    if not (source / "rollouts").is_dir():
        raise UserError(f"{source} is not a run directory: it has no folder rollouts; name a run or a table")
    complete = complete_steps([source / "rollouts", source / "labels"])
    if not complete:
        raise UserError(f"{source} holds no complete step yet; train it for at least one step")
    return [shard.path for shard in table_shards(source / "rollouts") if shard.last <= complete[-1]]


def proved_wrong(
    answers: Mapping[str, Sequence[str]], prompts: Sequence[Prompt], judge: Judge
) -> dict[str, list[str]]:
    """Stored answers, by prompt_id, that may become frozen noise (R4): those that could be drawn during training (R3).

    That is the lexicographically first spelling of each class that is parsed and proved to be wrong; the labels of
    `prompts` count as true.
    """
    labels = {
        prompt.prompt_id: prompt.given_label
        for prompt in prompts
        if prompt.prompt_id in answers and prompt.given_label is not None
    }
    keys = judge.keys(answer for prompt_id in labels for answer in answers[prompt_id])
    verdicts = judge.matches(
        (label, answer) for prompt_id, label in labels.items() for answer in answers[prompt_id]
    )
    wrong: dict[str, list[str]] = {}
    for prompt_id, label in labels.items():
        spellings: dict[Key, str] = {}
        for answer in sorted(answers[prompt_id]):
            if is_read(keys[answer]) and verdicts[label, answer] is False:
                spellings.setdefault(keys[answer], answer)
        wrong[prompt_id] = list(spellings.values())
    return wrong
