"""What an audit says of the label of every prompt in the list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from olr_cli.analysis.arms import Run
from olr_cli.analysis.audit.audit import Audit, audit, audit_history
from olr_cli.analysis.audit.calibration import is_right
from olr_cli.analysis.audit.export import evidence
from olr_cli.analysis.audit.tally import Tally
from olr_cli.analysis.report.texts import shortened
from olr_cli.answers import Judge
from olr_cli.data.prompts import NEVER_REWARDED, Prompt
from olr_cli.errors import UserError

_SHOWN = ("status", "rank", "confidence", "given_label", "proposed_label", "proposal_confidence", "change")
_MOST_ANSWERS = 6


def audited_labels(
    run: Run, ids: Sequence[str], trusted: Path | None = None
) -> tuple[dict[str, list[Any]] | None, list[str]]:
    """The audit of a run (`olr audit RUN`, with `--trusted` if there is such a file), as `label_values`.

    Returns:
        The values, None if the run cannot be audited; and sentences: the audit's warnings, or why there is none.

    Raises:
        UserError: with verified labels the run cannot be audited.
    """
    try:
        history = audit_history(run.path, [])
        with Judge(ledger=history.given_up, keep=False, tolerance=history.recipe.data.tolerance) as judge:
            result = audit(history, judge, trusted=trusted)
            values = label_values(result, history.prompts, ids, judge)
    except UserError as error:
        if trusted is not None:
            raise
        return None, [f"The labels are not audited: {error}."]
    return values, [f"Audit: {warning}." for warning in result.warnings]


def label_values(
    result: Audit, prompts: Mapping[str, Prompt], ids: Sequence[str], judge: Judge
) -> dict[str, list[Any]]:
    """An audit as JSON values.

    Returns:
        Lists with a value a prompt, null where there is none: status, rank (place in the queue), confidence (that
        the given label is wrong), given_label (the label that was audited), proposed_label, proposal_confidence,
        change, proposal_is_right (where the truth is known), evidence (a sentence) and answers (`_answers`).
    """
    rows = {row["prompt_id"]: row for row in result.prompts.iter_rows(named=True)}
    proposals = [rows[name]["proposed_label"] if name in rows else None for name in ids]
    truths = [prompts[name].true_answer if name in rows else None for name in ids]
    right = is_right(proposals, truths, judge)
    shown = [rows.get(name, {}) for name in ids]
    values: dict[str, list[Any]] = {name: [row.get(name) for row in shown] for name in _SHOWN}
    for name in ("confidence", "proposal_confidence"):
        values[name] = [None if value is None else round(value, 3) for value in values[name]]
    # The given label is never cut: it may be exported as verified.
    values["given_label"] = [None if label == NEVER_REWARDED else label for label in values["given_label"]]
    values["proposed_label"] = [text and shortened(text) for text in values["proposed_label"]]
    values["proposal_is_right"] = [None if np.isnan(verdict) else bool(verdict) for verdict in right]
    values["evidence"] = [shortened(evidence(row)) if row else None for row in shown]
    answers = _answers(result.tally)
    values["answers"] = [answers.get(name) for name in ids]
    return values


def _answers(tally: Tally) -> dict[str, list[list[Any]]]:
    """prompt_id -> its answers, the most frequent first: ``[spelling, is it the label's, count, counts by model]``.

    Of several models a count is ``[model's number, count]``, of a single one there is none.
    """
    counts = tally.counts.group_by("answer").agg(
        pl.col("count").sum(), by=pl.concat_list("model", "count").sort_by("count", descending=True)
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
