"""An audit of rewards: how often they contradict the grader, in both directions, and how often they are wrong.

A contradiction is not yet an error of the verifier that made the reward, because the grader is only a second reader. If
the grader reads no answer, nothing is concluded. People's verdicts on some contradictions (`read_verdicts`) separate
the verifier's errors from the grader's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from olr_cli.analysis.audit.reward_rates import (
    CASE,
    Rates,
    by_grader,
    by_people,
    read_verdicts,
    verdict_notes,
)
from olr_cli.analysis.histories import RolloutHistory
from olr_cli.answers import EXTRACTORS, Judge, exact_number, extract
from olr_cli.answers.graded import SENTINEL
from olr_cli.errors import UserError
from olr_cli.runs.store import scan_labels, scan_rollouts

_NEAR = 0.1
"""Relative distance within which a number counts as near the label's."""

_UNIT = re.compile(r"[A-Za-z]{2}|[%$\N{DEGREE SIGN}]")
_ENDING = 200
"""Number of characters of a response that people see in the queue: its end, since the answer is there."""

_TRIED, _FEWEST = 200, 5
"""Number of most frequent answers on which other extractors are tried; fewer than `_FEWEST` say nothing."""


_PARTS = 6
"""Largest number of parts of the visits that have rates of their own."""


@dataclass(frozen=True)
class RatesOfVisits:
    """Error rates of a verifier in a range of visits.

    The range goes from visit `first` to visit `last`, both included. `rewards` is the number of rewards in it.
    """

    first: int
    last: int
    rewards: int
    rates: Rates


@dataclass(frozen=True)
class RewardAudit:
    """How a history's stored rewards compare with the verdicts of the grader, olr's own check of answers.

    `audit_rewards` makes it.
    """

    source: Path
    rewards: int
    """Number of rewards that are audited."""

    prompts: int
    """Number of prompts that are audited."""

    left_out: int
    """Number of rollouts that have no reward or label, or whose reward did not involve a verifier."""

    without_answer: int
    """Number of audited rollouts in which olr reads no answer."""

    undecided: int
    """Number of audited rollouts whose answer olr cannot grade."""

    rewarded_without_answer: float | None
    """Share of the rewarded rollouts without an answer; None if no rollout is rewarded."""

    rates: Rates
    """Rates of the rewards if every verdict of the grader were right."""

    extractor: tuple[str, float] | None
    """Another extractor, and the share of wrong but rewarded responses in which it reads a right answer.

    Given only if that is more than half: then the verifier probably reads answers in the same way.
    """

    contradicted_again: float | None
    """If a rollout with an answer to a prompt was contradicted, how often another rollout with that answer is too."""

    verified: Mapping[str, Rates]
    """Rates by people's verdicts, for the ``verifier`` and for the ``grader``."""

    by_visit: Sequence[RatesOfVisits]
    """Rates of earlier and later visits; empty for a single visit.

    They drift if the policy learns the answers on which the verifier errs.
    """

    queue: pl.DataFrame
    """Contradictions by prompt and answer, the most frequent first.

    ``paid`` is the highest logged reward of its rollouts, and ``response`` the end of that rollout's response.
    """

    paid_most: pl.DataFrame
    """Rewarded rows of the queue, the highest ``paid`` first."""

    known: pl.DataFrame = field(repr=False)
    """Rollouts whose answer the grader could judge, each with ``is_rewarded`` and ``verdict``."""

    notes: Sequence[str] = field(repr=False)


def audit_rewards(
    history: RolloutHistory, judge: Judge, verified: Sequence[Path] = ()
) -> RewardAudit:
    """Compare every stored reward with the grader's verdict on the same answer and label.

    `verified` are files with people's verdicts on answers (`read_verdicts`).

    Raises:
        UserError: the history has no rewards that say right or wrong, or no labels.
    """
    people = read_verdicts(verified) if verified else None
    rows, left_out = _audited_rollouts(history)
    cases = rows.select(CASE).drop_nulls().unique(maintain_order=True)
    asked = (
        (history.prompts[name].asked(label), answer)
        for name, label, answer in cases.iter_rows()
    )
    verdicts = cases.with_columns(verdict=pl.Series(judge.matches(asked), dtype=pl.Boolean))
    rows = rows.join(verdicts, on=CASE, how="left", maintain_order="left")
    known = rows.drop_nulls("verdict")
    is_wrong = pl.col("is_rewarded") != pl.col("verdict")
    counts = known.group_by(CASE).agg(
        bad=is_wrong.sum().cast(pl.Int64), of=pl.len().cast(pl.Int64)
    )
    # Count ordered pairs of rollouts with one answer. Of 5 rollouts with 2 contradictions, 2 * 4 pairs begin with a
    # contradicted one, and in 2 * 1 of these the second is contradicted too.
    contradicted_pairs, pairs = (
        int((counts["bad"] * (counts[column] - 1)).sum()) for column in ("bad", "of")
    )
    queue = (
        known.filter(is_wrong)
        .group_by(*CASE, "is_rewarded", maintain_order=True)
        .agg(
            rollouts=pl.len(),
            paid=pl.col("paid").max(),
            response=pl.col("response").get(pl.col("paid").arg_max()),
        )
        # Equally frequent rows are sorted by their texts, so that the same log gives the same queue.
        .sort("rollouts", *CASE, "is_rewarded", descending=[True, *[False] * 4])
    )
    kinds = [
        _kind(answer, label)
        for answer, label in queue.select("answer", "label").iter_rows()
    ]
    # After the columns of `CASE` and is_rewarded.
    queue = queue.insert_column(4, pl.Series("kind", kinds, dtype=pl.String))
    return RewardAudit(
        source=history.source,
        rewards=len(rows),
        prompts=rows["prompt_id"].n_unique(),
        left_out=left_out,
        without_answer=rows["answer"].null_count(),
        undecided=rows["verdict"].null_count() - rows["answer"].null_count(),
        rewarded_without_answer=rows.filter("is_rewarded")
        .select(pl.col("answer").is_null().mean())
        .item(),
        rates=by_grader(known),
        extractor=_other_extractor(
            queue.filter("is_rewarded").drop_nulls("response").head(_TRIED), history, judge
        ),
        contradicted_again=contradicted_pairs / pairs if pairs else None,
        verified={} if people is None else by_people(known, people),
        by_visit=_by_visit(known),
        queue=queue,
        paid_most=queue.filter("is_rewarded").sort(
            "paid", descending=True, maintain_order=True
        ),
        known=known,
        notes=[*history.notes, *(() if people is None else verdict_notes(people, known))],
    )


def _by_visit(known: pl.DataFrame) -> list[RatesOfVisits]:
    """Split the visits into at most `_PARTS` ranges of about equal length, and return the error rates in each.

    `known` has a row per rollout that the grader could judge, with reward and verdict. If all rollouts are of one
    visit, the list is empty.
    """
    visits = known["visit"].n_unique()
    if visits < 2:
        return []
    rank = pl.col("visit").rank("dense").cast(pl.Int64) - 1
    # -(-a // b) rounds up, so that there are never more than `_PARTS` parts.
    parts = known.with_columns(part=rank // -(-visits // _PARTS))
    return [
        RatesOfVisits(rows["visit"].min(), rows["visit"].max(), len(rows), by_grader(rows))  # type: ignore[arg-type]  # whole numbers
        for rows in parts.sort("part", maintain_order=True).partition_by("part")
    ]


def _audited_rollouts(history: RolloutHistory) -> tuple[pl.DataFrame, int]:
    """Return the rollouts that have a label and a verifier's reward, and the number of rollouts left out.

    A reward that was given without asking a verifier is left out too. The columns are prompt_id, visit, label, answer,
    ``is_rewarded``, response (its end, or null if it is unknown) and ``paid``, the reward as a number.

    Raises:
        UserError: no rollout has a label and a verifier's reward.
    """
    keys = ("prompt_id", "visit", "view", "sample")
    columns = (*keys, "answer", "is_rewarded", "reward", "response")
    rows = pl.concat(
        step.select(c for c in columns if c in step.columns) for step in history.steps
    )
    rollouts = len(rows)
    remedy = "name --columns {reward: COLUMN, given_label: COLUMN}, or in --data the data set with all labels"
    if history.is_run:
        remedy = "a majority label asks no verifier"
        # If a majority label is graded by class, the supervisor compares answers itself and asks no verifier.
        unasked = (
            ("none", "majority")
            if history.recipe.method.majority_graded_by == "class"
            else ("none",)
        )
        labels = scan_labels(history.source).filter(
            pl.col("label_source").is_in(unasked).not_()
        )
        rewards = scan_rollouts(history.source).filter(pl.col("reward").is_in([0.0, 1.0]))
        # In Co-Reward each view is labelled by the other view's majority, but only the original view's label is stored.
        is_stored = (pl.col("label_source") != "majority") | (pl.col("view") == "original")
        stored = (
            rewards.select(*keys, "response", is_rewarded=pl.col("reward") == 1)
            .join(
                labels.select(
                    "prompt_id", "visit", "label_source", label="effective_label"
                ),
                on=keys[:2],
            )
            .filter(is_stored)
            .drop("label_source")
        )
        rows = rows.select(*keys, "answer").join(
            stored.collect(), on=keys, how="left", maintain_order="left"
        )
    elif "is_rewarded" in rows.columns and history.knows_labels:
        label_by_prompt = {
            name: prompt.given_label for name, prompt in history.prompts.items()
        }
        rows = rows.with_columns(
            label=pl.col("prompt_id").replace_strict(
                label_by_prompt, default=None, return_dtype=pl.String
            )
        )
    if "label" in rows.columns:
        # No answer matches the sentinel, so its rewards are 0 without a verifier.
        rows = rows.drop_nulls(["label", "is_rewarded"]).filter(pl.col("label") != SENTINEL)
    if "label" not in rows.columns or rows.is_empty():
        raise UserError(
            f"{history.source} has no rewards of 0 and 1 beside labels, so there is nothing to audit",
            remedy,
        )
    response = pl.col("response") if "response" in rows.columns else pl.lit(None, pl.String)
    ending = response.cast(pl.String).str.slice(-_ENDING).alias("response")
    answer = pl.col("answer").cast(pl.String)
    # `^reward$` is a pattern, not a name: a log of verdicts has no column of rewards, and a pattern may match none.
    paid = pl.coalesce("^reward$", pl.col("is_rewarded").cast(pl.Float64))
    rows = rows.select(
        "prompt_id", "visit", "label", answer, "is_rewarded", ending, paid=paid
    )
    return rows, rollouts - len(rows)


def _other_extractor(
    accepted: pl.DataFrame, history: RolloutHistory, judge: Judge
) -> tuple[str, float] | None:
    """Find an extractor that would explain the rewards: one that reads the right answer in most of these responses.

    The verifier may be using it. All extractors are tried; the best reads the right answer in most responses.

    Args:
        accepted: rewarded rollouts in which olr's present extractor reads a wrong answer.
        history: the history of these rollouts.
        judge: compares answers with labels.

    Returns:
        The name of the best extractor, and the share of the responses in which it reads the right answer. None if the
            share is at most half, or if there are fewer than `_FEWEST` rows.
    """
    if len(accepted) < _FEWEST:
        return None
    rows = [*accepted.select("prompt_id", "label", "response").iter_rows()]
    right = {}
    for name in EXTRACTORS:
        read = (
            (history.prompts[prompt].asked(label), extract(text, name))
            for prompt, label, text in rows
        )
        right[name] = sum(
            map(bool, judge.matches((label, it) for label, it in read if it is not None))
        )
    best = max(right, key=right.__getitem__)
    return (best, right[best] / len(accepted)) if 2 * right[best] > len(accepted) else None


def _kind(answer: str, label: str) -> str:
    """Guess from the texts of answer and label why reward and verdict differ, and return the first of these that fits.

    - ``near value``: two different numbers. They differ by less than `_NEAR` times the label.
    - ``other value``: two different numbers that are further apart.
    - ``same text``: the texts are equal.
    - ``words or unit``: the answer seems to contain words or a unit.
    - ``spelling``: anything else.
    """
    answer_number, label_number = exact_number(answer), exact_number(label)
    if (
        answer_number is not None
        and label_number is not None
        and answer_number != label_number
    ):
        return (
            "near value"
            if abs(answer_number - label_number) < _NEAR * abs(label_number)
            else "other value"
        )
    return (
        "same text"
        if answer == label
        else "words or unit"
        if _UNIT.search(answer)
        else "spelling"
    )
