"""What an audit says of the label of every prompt in the list."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from olr_cli.analysis.arms import Run
from olr_cli.analysis.audit.audit import Audit, audit, audit_history
from olr_cli.analysis.audit.calibration import is_right
from olr_cli.analysis.audit.export import evidence
from olr_cli.analysis.audit.tally import Tally
from olr_cli.analysis.report.texts import asked, shortened
from olr_cli.answers import Judge
from olr_cli.data.logs import natural
from olr_cli.data.prompts import NEVER_REWARDED, Prompt
from olr_cli.errors import UserError

MOST_PROMPTS = 5_000
"""Prompts of a run or log that the list shows: nobody reads more, and a page of more is slow."""

_SHOWN = ("status", "rank", "confidence", "given_label", "proposed_label", "proposal_confidence", "change")
_MOST_ANSWERS = 6


@dataclass(frozen=True)
class Labels:
    """The prompts that the list shows, and what an audit says of their labels.

    Attributes:
        ids: at most `MOST_PROMPTS`, in natural order: verified ones and the first of the queue, or, where there is no
            audit, the first of all.
        left_out: number of all others.
        values: lists with a value a prompt, null where there is none: status, rank (place in the queue), confidence
            (that the given label is wrong), given_label (the label that was audited), proposed_label,
            proposal_confidence, change, proposal_is_right (where the truth is known), evidence (a sentence) and answers
            (`_answers`). None where there is no audit.
        questions: of the prompts, as `texts.asked`; none where there is no audit, or nobody knows them.
        notes: the audit's warnings, or why there is none.
    """

    ids: Sequence[str]
    left_out: int
    values: Mapping[str, list[Any]] | None
    questions: Mapping[str, tuple[str, str]]
    notes: Sequence[str]

    @classmethod
    def of(cls, result: Audit, prompts: Mapping[str, Prompt], judge: Judge) -> Labels:
        """Of an audit."""
        first = result.prompts.sort("is_trusted", descending=True, maintain_order=True).head(MOST_PROMPTS)
        rows = {row["prompt_id"]: row for row in first.iter_rows(named=True)}
        ids = sorted(rows, key=natural)
        values: dict[str, list[Any]] = {name: [rows[prompt][name] for prompt in ids] for name in _SHOWN}
        truths = [prompts[name].true_answer for name in ids]
        right = is_right(values["proposed_label"], truths, judge)
        for name in ("confidence", "proposal_confidence"):
            values[name] = [None if value is None else round(value, 3) for value in values[name]]
        # The given label is never cut: it may be exported as verified.
        values["given_label"] = [
            None if label == NEVER_REWARDED else label for label in values["given_label"]
        ]
        values["proposed_label"] = [text and shortened(text) for text in values["proposed_label"]]
        values["proposal_is_right"] = [None if np.isnan(verdict) else bool(verdict) for verdict in right]
        values["evidence"] = [shortened(evidence(rows[name])) for name in ids]
        answers = _answers(result.tally, set(ids))
        values["answers"] = [answers.get(name) for name in ids]
        notes = [f"Audit: {warning}." for warning in result.warnings]
        questions = asked(prompts[name] for name in ids if prompts[name].messages)
        return cls(ids, len(result.prompts) - len(ids), values, questions, notes)


def audited_labels(run: Run, trusted: Path | None = None) -> Labels:
    """The audit of a run (`olr audit RUN`, with `--trusted` if there is such a file).

    Raises:
        UserError: with verified labels the run cannot be audited.
    """
    try:
        history = audit_history(run.path, [])
        with Judge(ledger=history.given_up, keep=False, tolerance=history.recipe.data.tolerance) as judge:
            return Labels.of(audit(history, judge, trusted=trusted), history.prompts, judge)
    except UserError as error:
        if trusted is not None:
            raise
        ids = sorted(run.labels.select(pl.col("prompt_id").unique()).collect()["prompt_id"], key=natural)
        shown = ids[:MOST_PROMPTS]
        return Labels(shown, len(ids) - len(shown), None, {}, [f"The labels are not audited: {error}."])


def _answers(tally: Tally, ids: Container[str]) -> dict[str, list[list[Any]]]:
    """prompt_id -> answers, the most frequent first: ``[spelling, is it the label's, count, counts by model]``.

    Of several models a count is ``[model's number, count]``, of a single one there is none.
    """
    wanted = [place for place, name in enumerate(tally.prompt_ids) if name in ids]
    counts = (
        tally.counts.filter(pl.col("prompt").is_in(wanted))
        .group_by("answer")
        .agg(pl.col("count").sum(), by=pl.concat_list("model", "count").sort_by("count", descending=True))
    )
    places = pl.int_range(pl.len(), dtype=pl.Int64).alias("answer")
    rows = (
        tally.answers.with_columns(places)
        .join(counts, on="answer")
        .sort("prompt", "count", "spelling", descending=[False, True, False])
        .group_by("prompt", maintain_order=True)
        .head(_MOST_ANSWERS)
    )
    answers: dict[str, list[list[Any]]] = {}
    for prompt, spelling, answer, count, by in rows.select(
        "prompt", "spelling", "answer", "count", "by"
    ).iter_rows():
        is_label = bool(answer == tally.label_answers[prompt])
        known = [shortened(spelling), is_label, count, by if len(tally.models) > 1 else []]
        answers.setdefault(tally.prompt_ids[prompt], []).append(known)
    return answers
