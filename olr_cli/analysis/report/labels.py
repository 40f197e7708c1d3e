"""What an audit says of the label of every prompt in the list."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from olr_cli.analysis.arms import Run
from olr_cli.analysis.audit.audit import audit, audit_history
from olr_cli.analysis.audit.calibration import is_right
from olr_cli.analysis.audit.export import evidence
from olr_cli.analysis.report.texts import shortened
from olr_cli.answers import Judge
from olr_cli.errors import UserError

_SHOWN = ("status", "rank", "confidence", "given_label", "proposed_label", "proposal_confidence", "change")


def audited_labels(
    run: Run, ids: Sequence[str], trusted: Path | None = None
) -> tuple[dict[str, list[Any]] | None, list[str]]:
    """The audit of a run (`olr audit RUN`, with `--trusted` if there is such a file) as JSON values.

    Returns:
        Lists with a value a prompt, null where there is none: status, rank (place in the queue), confidence (that
        the given label is wrong), given_label (the label that was audited), proposed_label, proposal_confidence,
        change, proposal_is_right (where the truth is known) and evidence (a sentence); None if the run cannot be
        audited. And sentences: the audit's warnings, or why there is none.

    Raises:
        UserError: with verified labels the run cannot be audited.
    """
    try:
        history = audit_history(run.path, [])
        with Judge(ledger=history.given_up, keep=False, tolerance=history.recipe.data.tolerance) as judge:
            result = audit(history, judge, trusted=trusted)
            rows = {row["prompt_id"]: row for row in result.prompts.iter_rows(named=True)}
            proposals = [rows[name]["proposed_label"] if name in rows else None for name in ids]
            truths = [history.prompts[name].true_answer if name in rows else None for name in ids]
            right = is_right(proposals, truths, judge)
    except UserError as error:
        if trusted is not None:
            raise
        return None, [f"The labels are not audited: {error}."]
    shown = [rows.get(name, {}) for name in ids]
    values: dict[str, list[Any]] = {name: [row.get(name) for row in shown] for name in _SHOWN}
    for name in ("confidence", "proposal_confidence"):
        values[name] = [None if value is None else round(value, 3) for value in values[name]]
    # A label is never cut: it may be exported as verified.
    values["proposed_label"] = [text and shortened(text) for text in values["proposed_label"]]
    values["proposal_is_right"] = [None if np.isnan(verdict) else bool(verdict) for verdict in right]
    values["evidence"] = [shortened(evidence(row)) if row else None for row in shown]
    return values, [f"Audit: {warning}." for warning in result.warnings]
