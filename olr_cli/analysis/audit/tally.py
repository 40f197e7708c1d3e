"""How often each model gave each answer to each prompt, over all visits: an audit reads nothing else of the
rollouts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olr_cli.analysis.histories import RolloutHistory, chunks
from olr_cli.answers import Gold, Judge, Key
from olr_cli.answers.graded import SENTINEL
from olr_cli.errors import UserError
from olr_cli.runs.store import scan_labels

UNSEEN, MISSING = -1, -2
"""Placeholders for the answer's number of a label: no rollout gave it; there is no label."""

_PROMPTS_AT_ONCE = 512


@dataclass(frozen=True)
class Tally:
    """How often each model gave each answer to each of P prompts; made by `tally` (R7).

    Equivalent spellings are one answer. Answers are numbered from 0 over all prompts.
    """

    prompt_ids: tuple[str, ...]
    """Ids of the prompts, in the order of their first visit."""

    models: tuple[str, ...]
    """Names of the models that answered; one empty name if the history has no column of models."""

    prompts: pl.DataFrame
    """One row per prompt: visits (the most of any model), rollouts, answered."""

    counts: pl.DataFrame
    """One row per answer of a model: prompt, model (its number), answer (its number), count."""

    answers: pl.DataFrame
    """One row per answer: prompt, spelling (the most frequent one, ties in lexicographic order).

    They are ordered by prompt, so that the answers to one prompt are adjacent.
    """

    labels: tuple[str | None, ...]
    """(P,) the label that is judged (`_audited_labels`)."""

    label_answers: NDArray[np.int64]
    """(P,) number of the label's answer, `UNSEEN` or `MISSING`."""

    def __len__(self) -> int:
        return len(self.prompt_ids)


def tally(history: RolloutHistory, judge: Judge) -> Tally:
    """Count how often each model gave each answer to each prompt, and find the answer that is the prompt's label.

    Only answers to the original wording of a prompt count. The history's `steps` are read once, so an iterator is used
    up.

    Raises:
        UserError: no rollout answers the original wording of a prompt.
    """
    counted = _counted(history.steps)
    if counted.is_empty():
        raise UserError(
            f"{history.source} has no rollouts of the original wording, so there is nothing to audit",
            "name a history that has some",
        )
    ids = counted["prompt_id"].unique(maintain_order=True)
    models = counted["model"].unique(maintain_order=True)
    numbers = pl.DataFrame(
        {"prompt_id": ids, "prompt": np.arange(len(ids), dtype=np.int32)}
    )
    counted = counted.join(
        numbers, on="prompt_id", how="left", maintain_order="left"
    ).with_columns(
        pl.col("model").replace_strict(models, range(len(models)), return_dtype=pl.Int32)
    )
    labels = _audited_labels(
        history, counted.group_by("prompt_id").agg(pl.col("visit").max()), ids
    )
    given = counted.filter(pl.col("text").is_not_null())
    spellings = (
        given.group_by("prompt", "text")
        .agg(uses=pl.col("count").sum())
        .sort("prompt", "text")
    )
    asked = tuple(
        None if label is None else history.prompts[name].asked(label)
        for name, label in zip(ids, labels, strict=True)
    )
    classes, label_answers = _classified(spellings, asked, judge)
    return Tally(
        tuple(ids),
        tuple(models),
        counted.group_by("prompt")
        .agg(
            visits=pl.col("visit").n_unique().cast(pl.Int64),
            rollouts=pl.col("count").sum().cast(pl.Int64),
            answered=pl.col("count")
            .filter(pl.col("text").is_not_null())
            .sum()
            .cast(pl.Int64),
        )
        .sort("prompt"),
        given.join(classes.select("prompt", "text", "answer"), on=["prompt", "text"])
        .group_by("prompt", "model", "answer")
        .agg(pl.col("count").sum())
        .sort("prompt", "model", "answer"),
        classes.sort("answer", "uses", "text", descending=[False, True, False])
        .group_by("answer", maintain_order=True)
        .agg(pl.col("prompt").first(), spelling=pl.col("text").first())
        .select("prompt", "spelling"),
        labels,
        label_answers,
    )


def _counted(steps: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Count equal answers to the original wording of each prompt.

    The columns are prompt_id, visit, model, text (the answer, or null for none) and count. Rollouts are counted in
    chunks to save memory, so several rows may have the same prompt, visit, model and text.
    """
    parts = []
    for chunk in chunks(steps, ["prompt_id", "visit", "answer", "view", "model"]):
        model = pl.col("model") if "model" in chunk.columns else pl.lit("")
        rows = chunk.filter(pl.col("view") == "original").with_columns(
            model.fill_null("").alias("model")
        )
        keys = ("prompt_id", "visit", "model", pl.col("answer").alias("text"))
        parts.append(
            rows.group_by(*keys, maintain_order=True).agg(
                pl.len().cast(pl.Int32).alias("count")
            )
        )
    return pl.concat(parts) if parts else pl.DataFrame()


def _audited_labels(
    history: RolloutHistory, last_visits: pl.DataFrame, prompt_ids: Iterable[str]
) -> tuple[str | None, ...]:
    """Return the label to audit for each prompt, in the order of `prompt_ids` (R2, R3).

    It is the given label. If a run drew a new noisy label for the prompt at every visit (active noise), it is the noisy
    label of the last visit. It is None for a prompt without a label, or with the sentinel, which no answer matches.

    `last_visits` has one row per prompt: prompt_id and visit.
    """
    labels = {
        prompt_id: prompt.given_label for prompt_id, prompt in history.prompts.items()
    }
    if history.is_run:
        noisy = scan_labels(history.source).filter(pl.col("noisy_label").is_not_null())
        drawn = noisy.select("prompt_id", "visit", "noisy_label").collect()
        drawn = last_visits.join(drawn, on=["prompt_id", "visit"])
        labels |= dict(zip(drawn["prompt_id"], drawn["noisy_label"], strict=True))
    judged = (labels.get(prompt_id) for prompt_id in prompt_ids)
    # No answer matches the sentinel, so it says as little as no label.
    return tuple(None if label == SENTINEL else label for label in judged)


def _classified(
    spellings: pl.DataFrame, labels: tuple[Gold | None, ...], judge: Judge
) -> tuple[pl.DataFrame, NDArray[np.int64]]:
    """Group the spellings of each prompt into answers, and find the answer that is its label.

    Spellings that match the label are one answer. Other spellings are one answer if they mean the same. The answers are
    numbered from 0 over all prompts.

    Args:
        spellings: one row per spelling of each prompt, ordered by prompt, with the columns prompt (its index), text and
            uses (how often it was given).
        labels: (P,) labels; None for a prompt without one.
        judge: compares spellings.

    Returns:
        The spellings, with a column ``answer`` that holds the number of the answer.
        (P,) the number of the label's answer; `UNSEEN` if no rollout gave it, `MISSING` without a label.
    """
    of_prompt = spellings.group_by("prompt", maintain_order=True).agg("text")
    texts: Mapping[int, list[str]] = dict(of_prompt.iter_rows())
    numbers: list[int] = []
    label_answers = np.full(len(labels), UNSEEN, dtype=np.int64)
    first = 0
    for start in range(0, len(labels), _PROMPTS_AT_ONCE):
        prompts = range(start, min(start + _PROMPTS_AT_ONCE, len(labels)))
        keys = judge.keys(text for prompt in prompts for text in texts.get(prompt, ()))
        pairs = [
            (label, text)
            for p in prompts
            if (label := labels[p]) is not None
            for text in texts.get(p, ())
        ]
        # One call for many prompts, since the judge grades pairs in parallel.
        verdicts = dict(zip(pairs, judge.matches(pairs), strict=True))
        for prompt in prompts:
            label = labels[prompt]
            # Key of a class -> position among this prompt's answers; None is the key of all that match the label.
            positions: dict[Key | None, int] = {}
            for text in texts.get(prompt, ()):
                key = None if label is not None and verdicts[label, text] else keys[text]
                numbers.append(first + positions.setdefault(key, len(positions)))
            if label is None:
                label_answers[prompt] = MISSING
            elif None in positions:
                label_answers[prompt] = first + positions[None]
            first += len(positions)
    return spellings.with_columns(answer=pl.Series(numbers, dtype=pl.Int64)), label_answers
