"""The questions of a run's prompts and a few responses to each, cut so that a page stays small.

The middle of a long text goes, as questions begin and answers end a text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from olr_cli.analysis.arms import Run
from olr_cli.analysis.histories import run_data
from olr_cli.data.prompts import question_of
from olr_cli.errors import UserError
from olr_cli.runs.store import read_rollout_steps

SAMPLES = 4
"""Responses of a visit and view."""

LONGEST = 4000
"""Characters of a question or response, whatever the budget."""

LONGEST_ANSWER = 300
"""Characters of an answer, or of a sentence of evidence."""

ORDER = ("prompt_id", "visit", "view", "sample")

_HEAD = 1 / 3
"""Share of a cut text that is its beginning."""

_SHOWN = ("prompt_id", "visit", "sample", "view", "answer", "reward", "is_correct", "tokens", "truncated")


def longest(lengths: Iterable[int], budget: int, most: int) -> int:
    """The largest length, `most` at most, to which texts can be cut without exceeding a budget in all."""
    ascending = sorted(lengths)
    for place, length in enumerate(ascending):
        share = budget // (len(ascending) - place)  # with all shorter texts whole, the others share the rest
        if length > share:
            return max(0, min(most, share))
        budget -= length
    return most


def ends(text: str, length: int) -> tuple[str, str]:
    """Beginning and end of a text, together `length` characters; of a text that is no longer, all and nothing."""
    if len(text) <= length:
        return text, ""
    head = int(length * _HEAD)
    return text[:head], text[len(text) - (length - head) :]


def shortened(text: str) -> str:
    """An answer or a sentence in at most `LONGEST_ANSWER` characters; what is left out shows as an ellipsis."""
    return text if len(text) <= LONGEST_ANSWER else f"{text[: LONGEST_ANSWER - 1]}\N{HORIZONTAL ELLIPSIS}"


def questions(run: Run) -> tuple[Mapping[str, str], str]:
    """The questions of a run's prompts, where its data are at hand.

    Returns:
        prompt_id -> the question of the user, then the other turns with the role before each; and why there are none,
        if so.
    """
    texts = {}
    try:
        prompts = run_data(run.path, is_local=True).prompts
    except UserError as error:
        return {}, f"The questions are not shown: {error}."
    for prompt in prompts:
        question = question_of(prompt.messages)
        others = [m for m in prompt.messages if not (m.role == "user" and question in m.content)]
        texts[prompt.prompt_id] = "\n\n".join([question, *(f"[{m.role}] {m.content}" for m in others)])
    return texts, ""


def cut_questions(questions: Mapping[str, str], ids: Sequence[str], budget: int) -> list[list[Any]]:
    """``[head, tail, characters left out between the two]`` a prompt, all of them within a budget of characters."""
    wanted = [questions.get(name, "") for name in ids]
    limit = longest((min(len(text), LONGEST) for text in wanted), budget, LONGEST)
    cut = [(text, *ends(text, limit)) for text in wanted]
    return [[head, tail, len(text) - len(head) - len(tail)] for text, head, tail in cut]


def read_responses(run: Path, visits: pl.DataFrame) -> pl.DataFrame:
    """The first `SAMPLES` responses of some visits (prompt_id, visit, step), one step's shard in memory at a time.

    Returns:
        Columns prompt_id, visit, sample, view, answer, reward, is_correct, tokens, truncated, head, tail (together at
        most `LONGEST` characters) and length (of the whole response); by `ORDER`.
    """
    wanted = visits.select("prompt_id", "visit")
    place = pl.col("sample").rank("ordinal").over("prompt_id", "visit", "view")
    length = pl.col("response").str.len_chars().cast(pl.Int64)
    head = int(LONGEST * _HEAD)
    fits = length <= LONGEST
    shards = [
        shard.join(wanted, on=["prompt_id", "visit"], how="semi")
        .filter(place <= SAMPLES)
        .with_columns(
            length=length,
            head=pl.when(fits).then("response").otherwise(pl.col("response").str.head(head)),
            tail=pl.when(fits).then(pl.lit("")).otherwise(pl.col("response").str.tail(LONGEST - head)),
        )
        .drop("response")
        for shard in read_rollout_steps(run, (*_SHOWN, "response"), set(visits["step"]))
    ]
    return pl.concat(shards).sort(ORDER)


def affordable(visits: pl.DataFrame, read: pl.DataFrame, budget: int) -> pl.DataFrame:
    """Visits whose responses probably fit into what others (of `read_responses`) leave of a budget of characters.

    All, or every second, third, … visit; a visit is taken to have as much text as those that were read.
    """
    size = int(read.select(pl.min_horizontal("length", LONGEST).sum()).item())
    a_visit = max(size, 1) / max(read.n_unique(["prompt_id", "visit"]), 1)
    room = (budget - size) / a_visit
    if room < 1:
        return visits.clear()
    return (
        visits.filter(pl.col("visit") % math.ceil(len(visits) / room) == 0) if len(visits) > room else visits
    )


def by_prompt(responses: pl.DataFrame, ids: Sequence[str], budget: int) -> tuple[list[list[Any]], int]:
    """Responses of `read_responses` as JSON values, cut so that all of them fit into a budget of characters.

    Returns:
        A list a prompt of ``[visit, sample, view, answer, reward, is_correct, tokens, truncated, head, tail,
        characters left out between the two]``; and the characters to which responses were cut.
    """
    limit = longest((min(length, LONGEST) for length in responses["length"]), budget, LONGEST)
    listed: Mapping[str, list[Any]] = {name: [] for name in ids}
    for row in responses.iter_rows(named=True):
        head, tail, reward = row["head"], row["tail"], row["reward"]
        if len(head) + len(tail) > limit:
            head, tail = ends(head + tail, limit)
        if reward is not None and not math.isfinite(reward):
            row["reward"] = str(reward)
        left_out = row["length"] - len(head) - len(tail)
        listed[row["prompt_id"]].append([*(row[name] for name in _SHOWN[1:]), head, tail, left_out])
    return list(listed.values()), limit
