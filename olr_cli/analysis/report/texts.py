"""The questions of a run's prompts and a few responses to each, cut so that a page stays small.

The middle of a long text goes, as questions begin and answers end a text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from olr_cli.analysis.histories import run_data
from olr_cli.data.prompts import Prompt
from olr_cli.data.questions import question_of
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

_STORED = (
    "prompt_id",
    "visit",
    "sample",
    "view",
    "answer",
    "reward",
    "is_correct",
    "tokens",
    "truncated",
)
_SHOWN = (*_STORED[1:], "model")


def ends(text: str, length: int) -> tuple[str, str]:
    """Beginning and end of a text, together `length` characters; of a text that is no longer, all and nothing."""
    if len(text) <= length:
        return text, ""
    head = int(length * _HEAD)
    return text[:head], text[len(text) - (length - head) :]


def shortened(text: str) -> str:
    """An answer or a sentence in at most `LONGEST_ANSWER` characters; what is left out shows as an ellipsis."""
    return (
        text
        if len(text) <= LONGEST_ANSWER
        else f"{text[: LONGEST_ANSWER - 1]}\N{HORIZONTAL ELLIPSIS}"
    )


def questions(run: Path) -> tuple[Mapping[str, tuple[str, str]], str]:
    """The questions of a run's prompts, where its data are at hand: as `asked`; and why there are none, if so."""
    try:
        return asked(run_data(run, is_local=True).prompts), ""
    except UserError as error:
        return {}, f"The questions are not shown: {error}."


def asked(prompts: Iterable[Prompt]) -> dict[str, tuple[str, str]]:
    """prompt_id -> the question of the user, and the other turns with the role before each."""
    texts = {}
    for prompt in prompts:
        question = question_of(prompt.messages)
        others = [
            m for m in prompt.messages if not (m.role == "user" and question in m.content)
        ]
        texts[prompt.prompt_id] = (
            question,
            "\n\n".join(f"[{m.role}] {m.content}" for m in others),
        )
    return texts


def cut_questions(
    questions: Mapping[str, tuple[str, str]], ids: Sequence[str], budget: int
) -> list[list[Any]]:
    """Return ``[head, tail, characters left out between the two]`` of each question and, in the same list, of its other
    turns.

    All are within a budget of characters.
    """
    limit = min(LONGEST, budget // max(len(ids), 1))
    cut = []
    for name in ids:
        question, others = questions.get(name, ("", ""))
        asked = _cut(question, limit)
        cut.append([*asked, *_cut(others, limit - len(asked[0]) - len(asked[1]))])
    return cut


def _cut(text: str, length: int) -> list[Any]:
    head, tail = ends(text, length)
    return [head, tail, len(text) - len(head) - len(tail)]


def read_responses(run: Path, visits: pl.DataFrame) -> pl.DataFrame:
    """The first `SAMPLES` responses of some visits (prompt_id, visit, step), one step's shard in memory at a time.

    Returns:
        Columns prompt_id, visit, sample, view, answer, reward, is_correct, tokens, truncated, head, tail (together at
        most `LONGEST` characters) and length (of the whole response); by `ORDER`.
    """
    wanted = visits.select("prompt_id", "visit")
    place = pl.col("sample").rank("ordinal").over("prompt_id", "visit", "view")
    shards = [
        _with_ends(
            rows.join(wanted, on=["prompt_id", "visit"], how="semi").filter(
                place <= SAMPLES
            )
        )
        for rows in read_rollout_steps(
            run,
            (*_STORED, "response"),
            set(visits["step"]),
            visits["prompt_id"].unique(),
        )
    ]
    return pl.concat(shards).sort(ORDER)


def _with_ends(rows: pl.DataFrame) -> pl.DataFrame:
    """Columns head, tail and length in place of the response."""
    length = pl.col("response").str.len_chars().cast(pl.Int64)
    head = int(LONGEST * _HEAD)
    fits = length <= LONGEST
    return rows.with_columns(
        length=length,
        head=pl.when(fits).then("response").otherwise(pl.col("response").str.head(head)),
        tail=pl.when(fits)
        .then(pl.lit(""))
        .otherwise(pl.col("response").str.tail(LONGEST - head)),
    ).drop("response")


class Sampled:
    """A history's steps, as they are; of the responses that pass, a few of every prompt are kept.

    Attributes:
        responses: `2 * SAMPLES` of a prompt at most, as `read_responses` gives them: of each answer one, then others.
    """

    def __init__(self, steps: Iterable[pl.DataFrame]) -> None:
        self._steps = steps
        self._kept: list[pl.DataFrame] = []

    def __iter__(self) -> Iterator[pl.DataFrame]:
        for rows in self._steps:
            if "response" in rows.columns:
                known = [name for name in (*_SHOWN, "response") if name in rows.columns]
                self._kept.append(
                    _with_ends(
                        _few(rows.select("prompt_id", *known).drop_nulls("response"))
                    )
                )
            yield rows

    @property
    def responses(self) -> pl.DataFrame | None:
        """None where the history has no responses."""
        return _few(pl.concat(self._kept)).sort(ORDER) if self._kept else None


def _few(rows: pl.DataFrame) -> pl.DataFrame:
    once_more = pl.int_range(pl.len()).over("prompt_id", "answer")
    return (
        rows.with_columns(once_more.alias("_place"))
        .sort("_place", maintain_order=True)
        .group_by("prompt_id", maintain_order=True)
        .head(2 * SAMPLES)
        .drop("_place")
    )


def affordable(visits: pl.DataFrame, read: pl.DataFrame, budget: int) -> pl.DataFrame:
    """All visits, or none if their responses and those that are read probably exceed a budget of characters.

    A visit is taken to have as much text as those that were read (`read_responses`).
    """
    size = int(read.select(pl.min_horizontal("length", LONGEST).sum()).item())
    known = read.n_unique(["prompt_id", "visit"])
    return visits if size * (known + len(visits)) <= budget * known else visits.clear()


def by_prompt(
    responses: pl.DataFrame, ids: Sequence[str], budget: int
) -> tuple[list[list[Any]], int]:
    """Responses of `read_responses` to some prompts as JSON values, cut so that all fit into a budget of characters.

    Returns:
        A list a prompt of ``[visit, sample, view, answer, reward, is_correct, tokens, truncated, model, head, tail,
        characters left out between the two]``, null where the rows don't say; and the characters to which responses
        were cut.
    """
    responses = responses.filter(pl.col("prompt_id").is_in(ids))
    limit = min(LONGEST, budget // max(len(responses), 1))
    listed: Mapping[str, list[Any]] = {name: [] for name in ids}
    for row in responses.iter_rows(named=True):
        head, tail, reward = row["head"], row["tail"], row.get("reward")
        if len(head) + len(tail) > limit:
            head, tail = ends(head + tail, limit)
        if reward is not None and not math.isfinite(reward):
            row["reward"] = str(reward)
        left_out = row["length"] - len(head) - len(tail)
        listed[row["prompt_id"]].append(
            [*(row.get(name) for name in _SHOWN), head, tail, left_out]
        )
    return list(listed.values()), limit
