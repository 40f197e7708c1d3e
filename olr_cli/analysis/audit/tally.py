"""How often each answer was given at each visit of each prompt: all that an audit sees of the rollouts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olr_cli.analysis.histories import RolloutHistory
from olr_cli.answers import Judge, Key
from olr_cli.data.prompts import SENTINEL
from olr_cli.errors import UserError
from olr_cli.runs.store import scan_labels

UNSEEN, MISSING = -1, -2
"""In place of a label's class: no rollout ever gave it; there is no label."""

_STEPS_AT_ONCE = 64
_PROMPTS_AT_ONCE = 512


@dataclass(frozen=True)
class Tally:
    """Counts of P prompts. An answer is one class of equivalent spellings (R7), numbered over all prompts.

    Attributes:
        prompt_ids: in the order of their first visit.
        visits: a row a visit: prompt (its number, from 0), visit, rollouts (K), answered; ordered by both.
        counts: a row an answer of a visit: prompt, visit, answer (its number), count; ordered by all three.
        answers: a row an answer: prompt, spelling (the most frequent one, ties in lexicographic order); ordered by
            prompt, so that the answers of one prompt lie together.
        labels: (P,) the given label's spelling; None if there is none.
        label_answers: (P,) its answer's number, `UNSEEN` or `MISSING`.
    """

    prompt_ids: tuple[str, ...]
    visits: pl.DataFrame
    counts: pl.DataFrame
    answers: pl.DataFrame
    labels: tuple[str | None, ...]
    label_answers: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.prompt_ids)


def tally(history: RolloutHistory, judge: Judge, *, until: int | None = None) -> Tally:
    """Count the rollouts of the original wording.

    Args:
        history: whose `steps` are read, once.
        judge: tells which answers mean the same.
        until: leave later visits out.

    Raises:
        UserError: there are no such rollouts.
    """
    counted = _counted(history.steps, until)
    if counted.is_empty():
        raise UserError(
            f"{history.source} has no rollouts of the original wording, so there is nothing to audit"
        )
    prompt_ids = counted["prompt_id"].unique(maintain_order=True)
    numbers = pl.DataFrame({"prompt_id": prompt_ids, "prompt": np.arange(len(prompt_ids), dtype=np.int32)})
    counted = counted.join(numbers, on="prompt_id", how="left", maintain_order="left").drop("prompt_id")
    visits = (
        counted.group_by("prompt", "visit")
        .agg(
            rollouts=pl.col("count").sum(),
            answered=pl.col("count").filter(pl.col("text").is_not_null()).sum(),
        )
        .sort("prompt", "visit")
    )
    labels = audited_labels(history, prompt_ids.to_list(), visits)
    given = counted.filter(pl.col("text").is_not_null())
    spellings = given.group_by("prompt", "text").agg(uses=pl.col("count").sum()).sort("prompt", "text")
    classes, label_answers = _classified(spellings, labels, judge)
    return Tally(
        tuple(prompt_ids),
        visits,
        given.join(classes.select("prompt", "text", "answer"), on=["prompt", "text"])
        .group_by("prompt", "visit", "answer")
        .agg(pl.col("count").sum())
        .sort("prompt", "visit", "answer"),
        classes.sort("answer", "uses", "text", descending=[False, True, False])
        .group_by("answer", maintain_order=True)
        .agg(pl.col("prompt").first(), spelling=pl.col("text").first())
        .select("prompt", "spelling"),
        labels,
        label_answers,
    )


def audited_labels(
    history: RolloutHistory, prompt_ids: Iterable[str], visits: pl.DataFrame
) -> tuple[str | None, ...]:
    """The label of each prompt that an audit judges; None without one, which the sentinel (R2) says too.

    It is the given label. Of a marked prompt of a run with active noise, whose noisy label is drawn anew at every visit
    (R3), it is that of the last visit.
    """
    labels = {prompt_id: prompt.given_label for prompt_id, prompt in history.prompts.items()}
    last = visits.group_by("prompt", maintain_order=True).agg(pl.col("visit").max())["visit"]
    of_last = pl.DataFrame({"prompt_id": list(prompt_ids), "visit": last})
    if history.is_run:
        drawn = (
            scan_labels(history.source)
            .filter(pl.col("noisy_label").is_not_null())
            .select("prompt_id", "visit", "noisy_label")
            .collect()
        )
        drawn = of_last.join(drawn, on=["prompt_id", "visit"])
        labels |= dict(zip(drawn["prompt_id"], drawn["noisy_label"], strict=True))
    found = (labels.get(prompt_id) for prompt_id in of_last["prompt_id"])
    return tuple(None if label == SENTINEL else label for label in found)


def _counted(steps: Iterable[pl.DataFrame], until: int | None) -> pl.DataFrame:
    """prompt_id, visit, text (null: no answer), count; a few steps at a time, so that few rollouts are in memory."""
    parts = []
    for some in _batches(steps):
        rows = pl.concat(some).filter(pl.col("view") == "original")
        if until is not None:
            rows = rows.filter(pl.col("visit") <= until)
        counted = rows.group_by(
            "prompt_id", "visit", pl.col("answer").alias("text"), maintain_order=True
        ).len("count")
        parts.append(counted.with_columns(pl.col("count").cast(pl.Int32)))
    return pl.concat(parts) if parts else pl.DataFrame()


def _batches(steps: Iterable[pl.DataFrame]) -> Iterator[list[pl.DataFrame]]:
    remaining = iter(steps)
    while some := list(islice(remaining, _STEPS_AT_ONCE)):
        yield some


def _classified(
    spellings: pl.DataFrame, labels: tuple[str | None, ...], judge: Judge
) -> tuple[pl.DataFrame, NDArray[np.int64]]:
    """The spellings with the number of their answer, and the number of each label's answer.

    Args:
        spellings: prompt, text, uses; ordered by prompt.
        labels: (P,)
        judge: tells the classes of spellings, and which match a label: all these are the label's answer.
    """
    of_prompt = spellings.group_by("prompt", maintain_order=True).agg("text")
    texts: Mapping[int, list[str]] = dict(of_prompt.iter_rows())
    numbers: list[int] = []
    label_answers = np.full(len(labels), UNSEEN, dtype=np.int64)
    first = 0
    for start in range(0, len(labels), _PROMPTS_AT_ONCE):
        prompts = range(start, min(start + _PROMPTS_AT_ONCE, len(labels)))
        keys = judge.keys(text for prompt in prompts for text in texts.get(prompt, ()))
        verdicts = judge.matches(
            (label, text) for p in prompts if (label := labels[p]) is not None for text in texts.get(p, ())
        )
        for prompt in prompts:
            own: dict[
                Key | None, int
            ] = {}  # class of this prompt, None for the label's -> number of the answer
            for text in texts.get(prompt, ()):
                label = labels[prompt]
                key = None if label is not None and verdicts[label, text] else keys[text]
                numbers.append(first + own.setdefault(key, len(own)))
            if labels[prompt] is None:
                label_answers[prompt] = MISSING
            elif None in own:
                label_answers[prompt] = first + own[None]
            first += len(own)
    return spellings.with_columns(answer=pl.Series(numbers, dtype=pl.Int64)), label_answers
