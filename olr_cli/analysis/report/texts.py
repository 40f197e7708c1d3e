"""The questions of a run's prompts and a few responses to each, cut so that a page stays small.

A long text loses its middle, since the question is at its beginning and the answer at its end.
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
"""Number of responses of a visit and view."""

LONGEST = 4000
"""Largest number of characters of a question or response, regardless of the budget."""

LONGEST_ANSWER = 300
"""Largest number of characters of an answer, or of a sentence of evidence."""

ORDER = ("prompt_id", "visit", "view", "sample")

_HEAD = 1 / 3
"""Share of a cut text that comes from its beginning."""

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
    """Return the beginning and the end of a text, together `length` characters.

    A text of at most `length` characters is returned whole as the beginning, with an empty end.
    """
    if len(text) <= length:
        return text, ""
    head = int(length * _HEAD)
    return text[:head], text[len(text) - (length - head) :]


def shortened(text: str) -> str:
    """Return a text of at most `LONGEST_ANSWER` characters: a longer one is cut and ends with an ellipsis."""
    return (
        text
        if len(text) <= LONGEST_ANSWER
        else f"{text[: LONGEST_ANSWER - 1]}\N{HORIZONTAL ELLIPSIS}"
    )


def questions(run: Path) -> tuple[Mapping[str, tuple[str, str]], str]:
    """Read the questions of a run's prompts.

    Returns:
        prompt_id -> the question, and the prompt's other messages as one text (`asked`); empty if the data set cannot
            be read on this machine.
        A sentence that says why there are no questions; empty if there are some.
    """
    try:
        return asked(run_data(run, is_local=True).prompts), ""
    except UserError as error:
        return {}, f"The questions are not shown: {error}."


def asked(prompts: Iterable[Prompt]) -> dict[str, tuple[str, str]]:
    """Return prompt_id -> two texts: the user's question, and all other messages of the prompt.

    In the second text, each message begins with its role, such as ``[system]``.
    """
    texts = {}
    for prompt in prompts:
        question = question_of(prompt.messages)
        other_turns = [
            m for m in prompt.messages if not (m.role == "user" and question in m.content)
        ]
        texts[prompt.prompt_id] = (
            question,
            "\n\n".join(f"[{m.role}] {m.content}" for m in other_turns),
        )
    return texts


def cut_questions(
    questions: Mapping[str, tuple[str, str]], ids: Sequence[str], budget: int
) -> list[list[Any]]:
    """Return the question and the other messages of each prompt, cut so that all fit into `budget` characters.

    There is one list per prompt: ``[head, tail, left out, head, tail, left out]``. The first three are the beginning of
    the question, its end, and the number of characters left out between them. The last three are the same for the other
    messages.

    Args:
        questions: prompt_id -> the question, and the other messages as one text. A prompt may be missing if its
            question is unknown.
        ids: the prompts, in the order of the result.
        budget: largest number of characters of all prompts together.
    """
    limit = min(LONGEST, budget // max(len(ids), 1))
    cut = []
    for name in ids:
        question, others = questions.get(name, ("", ""))
        asked = _cut(question, limit)
        # The question comes first: the other turns get the room that it leaves.
        cut.append([*asked, *_cut(others, limit - len(asked[0]) - len(asked[1]))])
    return cut


def _cut(text: str, length: int) -> list[Any]:
    head, tail = ends(text, length)
    return [head, tail, len(text) - len(head) - len(tail)]


def read_responses(run: Path, visits: pl.DataFrame) -> pl.DataFrame:
    """Return the first responses at some visits of a run.

    At each visit, these are at most `SAMPLES` responses to each wording of the prompt (view). Only one step's shard is
    in memory at a time. `visits` has the columns prompt_id, visit and step.

    Returns:
        Columns prompt_id, visit, sample, view, answer, reward, is_correct, tokens, truncated, head, tail and length,
            sorted by `ORDER`. Head and tail are the beginning and the end of a response, together at most `LONGEST`
            characters. Length is that of the whole response.
    """
    wanted = visits.select("prompt_id", "visit")
    # Samples are counted over all views, so those of the rephrased view do not begin at 0.
    position = pl.col("sample").rank("ordinal").over("prompt_id", "visit", "view")
    shards = [
        _with_ends(
            rows.join(wanted, on=["prompt_id", "visit"], how="semi").filter(
                position <= SAMPLES
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
    """Replace the column response by the columns head, tail and length.

    Head and tail are the beginning and the end of the response, together at most `LONGEST` characters. If the response
    fits, it is all head. Length is that of the whole response.
    """
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
    """The steps of a history, passed through unchanged; a few responses to every prompt are kept for the page.

    `responses` has them once the steps have been iterated over.
    """

    def __init__(self, steps: Iterable[pl.DataFrame]) -> None:
        self._steps = steps
        self._kept: list[pl.DataFrame] = []

    def __iter__(self) -> Iterator[pl.DataFrame]:
        for rows in self._steps:
            if "response" in rows.columns:
                names = [name for name in (*_SHOWN, "response") if name in rows.columns]
                self._kept.append(
                    _with_ends(
                        _few(rows.select("prompt_id", *names).drop_nulls("response"))
                    )
                )
            yield rows

    @property
    def responses(self) -> pl.DataFrame | None:
        """The responses kept so far, in the columns of `read_responses` that the history has; None without any.

        There are at most `2 * SAMPLES` to a prompt. One response for each answer is kept before a second one with the
        same answer.
        """
        return _few(pl.concat(self._kept)).sort(ORDER) if self._kept else None


def _few(rows: pl.DataFrame) -> pl.DataFrame:
    # The n-th response with an answer gets number n; sorted by it, one response of each answer comes first.
    once_more = pl.int_range(pl.len()).over("prompt_id", "answer")
    return (
        rows.with_columns(once_more.alias("_place"))
        .sort("_place", maintain_order=True)
        .group_by("prompt_id", maintain_order=True)
        .head(2 * SAMPLES)
        .drop("_place")
    )


def affordable(visits: pl.DataFrame, read: pl.DataFrame, budget: int) -> pl.DataFrame:
    """Return `visits` if the page has room for all their responses too, else an empty frame.

    A visit is assumed to have as much text as an average visit in `read`.

    Args:
        visits: visits whose responses are not read yet, with the columns prompt_id, visit and step.
        read: the responses at other visits, which the page has already (`read_responses`).
        budget: number of characters that the page has room for, in all responses together.
    """
    size = int(read.select(pl.min_horizontal("length", LONGEST).sum()).item())
    visits_read = read.n_unique(["prompt_id", "visit"])
    # size / known <= budget / (known + len(visits)), without a division by zero.
    return (
        visits
        if size * (visits_read + len(visits)) <= budget * visits_read
        else visits.clear()
    )


def by_prompt(
    responses: pl.DataFrame, ids: Sequence[str], budget: int
) -> tuple[list[list[Any]], int]:
    """Return the responses to each prompt as JSON values, cut so that all fit into a budget of characters.

    Args:
        responses: result of `read_responses`, or the responses that `Sampled` kept.
        ids: the prompts, in the order of the result.
        budget: largest number of characters of all responses.

    Returns:
        For each prompt, its list of responses. A response is a list ``[visit, sample, view, answer, reward, is_correct,
            tokens, truncated, model, head, tail, number of characters left out between the two]``, with null where
            unknown.
        The number of characters to which each response was cut.
    """
    responses = responses.filter(pl.col("prompt_id").is_in(ids))
    limit = min(LONGEST, budget // max(len(responses), 1))
    listed: Mapping[str, list[Any]] = {name: [] for name in ids}
    for row in responses.iter_rows(named=True):
        head, tail, reward = row["head"], row["tail"], row.get("reward")
        if len(head) + len(tail) > limit:
            # Both may be cut already, so `left_out` is counted from the length of the whole response.
            head, tail = ends(head + tail, limit)
        if reward is not None and not math.isfinite(reward):
            # JSON has no infinity and no nan.
            row["reward"] = str(reward)
        left_out = row["length"] - len(head) - len(tail)
        listed[row["prompt_id"]].append(
            [*(row.get(name) for name in _SHOWN), head, tail, left_out]
        )
    return list(listed.values()), limit
