"""The data set with the labels that an audit leaves it: every row as it was, with what was done and why.

In ``extra_info``:

audit_change        changed | added | kept | undecided
audit_confidence    that the given label is wrong; of an added one: that it is right; null where undecided
audit_given_label   the label that was audited; null without one
audit_evidence      one sentence
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from olr_cli.analysis.audit.audit import Audit
from olr_cli.analysis.audit.confidence import is_right
from olr_cli.analysis.histories import RolloutHistory, run_data
from olr_cli.answers import Judge
from olr_cli.data.prompt_files import PROMPT_COLUMNS, read_rows, with_fields
from olr_cli.data.prompts import NEVER_REWARDED, SENTINEL, Prompt, PromptSet, question_of
from olr_cli.data.rows import Rows
from olr_cli.data.writers import write_prompts
from olr_cli.errors import UserError

Row = Mapping[str, Any]

UNVISITED = "no rollout of this prompt is in the history"


def require_exportable(target: Path) -> None:
    """Refuse what `export` could not write, before an audit takes its time.

    Raises:
        UserError: the name has another ending than .parquet or .jsonl.
    """
    if target.suffix not in (".parquet", ".jsonl"):
        raise UserError(
            f"--export {target}: a data set is written as .parquet or .jsonl; give it one of these endings"
        )


def data_of(history: RolloutHistory, *, is_local: bool = False) -> PromptSet:
    """The data set that a history's rollouts were made on, as far as the history tells.

    Of a run that its recipe names (with `is_local`: where no network is needed); of a log its own column of prompts.

    Raises:
        UserError: it can't be had, or is not what it was; `--data` is the remedy.
    """
    if not history.is_run:
        return _of_log(history)
    try:
        return run_data(history.source, is_local=is_local)
    except UserError as error:
        raise UserError(f"{error}; name the data set with --data") from None


def _of_log(history: RolloutHistory) -> PromptSet:
    import pyarrow as pa

    logged = [prompt for prompt in history.prompts.values() if prompt.messages]
    if not logged:
        raise UserError(
            f"{history.source} has no column of prompts ({', '.join(PROMPT_COLUMNS)}), so there is nothing to export"
            " the labels with; name the data set with --data"
        )
    is_chat = any(len(prompt.messages) > 1 for prompt in logged)
    prompts = [[asdict(turn) for turn in p.messages] if is_chat else question_of(p.messages) for p in logged]
    index = pa.StructArray.from_arrays([pa.array([prompt.prompt_id for prompt in logged])], ["index"])
    sources = pa.array([prompt.data_source or None for prompt in logged], pa.string())
    read = read_rows(
        Rows(
            pa.table({"prompt": pa.array(prompts), "data_source": sources, "extra_info": index}),
            str(history.source),
        ),
        data_source=f"local/{history.source.stem}",
        split="train",
    )
    labelled = [
        replace(
            prompt,
            given_label=None if known.given_label == NEVER_REWARDED else known.given_label,
            true_answer=known.true_answer,
            noise_type=known.noise_type,
        )
        for prompt, known in zip(read.prompts, logged, strict=True)
    ]
    return PromptSet(tuple(labelled), read.table, history.source.name)


def export(audit: Audit, data: PromptSet, target: Path, judge: Judge) -> bool:
    """Write the repaired data set, a .parquet or .jsonl file in the interchange format.

    A row's noise marks are mended with its label: of a run with active noise, whose label changed at every visit, the
    file holds the one that was audited, for good (R4).

    Returns:
        False if the file was there already with the same bytes.

    Raises:
        UserError: another file has that name, or the disk doesn't take it.
    """
    if target.exists() and not target.is_file():
        raise UserError(f"--export {target} is a folder; name a file")
    by_id = {row["prompt_id"]: row for row in audit.prompts.iter_rows(named=True)}
    rows = [by_id.get(prompt.prompt_id) for prompt in data.prompts]
    prompts = [
        prompt if row is None else _relabelled(prompt, row)
        for prompt, row in zip(data.prompts, rows, strict=True)
    ]
    counts, trusted = audit.changes, audit.trusted
    facts = {
        "audit.history": audit.source.name,
        "audit.threshold": "none" if audit.threshold is None else f"{audit.threshold:g}",
        "audit.trusted": str(0 if trusted is None else trusted.labels + trusted.unlabelled),
        **{f"audit.{name}": str(counts[name]) for name in ("changed", "added")},
    }
    table = replace(data, table=_with_columns(data, rows))
    repaired = table.with_prompts(_marked(prompts, data.prompts, judge), facts)
    return write_prompts(repaired, target, option="--export")


def evidence(row: Row) -> str:
    """Why a label was changed, or not, in a sentence."""
    if row["is_trusted"]:
        is_answered = row["confidence"] != 1 or row["proposal_confidence"] == 1
        return "the true answer is trusted" if is_answered else "the label is trusted to be wrong"
    visits = f"{row['visits']} visit{'s' * (row['visits'] != 1)}"
    if row["status"] == "undecided":
        return f"{visits}: no answer leads that two rollouts of a visit agree on"
    leader = "the given label" if row["proposed_label"] is None else f"the answer {row['proposed_label']}"
    text = (
        f"{visits}: {leader} has {row['pass_rate']:.0%} of the last visit's rollouts and the majority in"
        f" {row['consistency']:.0%} of the visits"
    )
    if row["proposed_label"] is not None and row["given_pass_rate"] is not None:
        text += f"; the given label has {row['given_pass_rate']:.0%} of the last visit's rollouts"
    return text


def _relabelled(prompt: Prompt, row: Row) -> Prompt:
    """The prompt with the label that the audit leaves it, marks yet to be mended."""
    label = row["proposed_label"] if row["change"] in ("changed", "added") else row["given_label"]
    if label is None:
        # There is nothing to draw the label of a marked prompt from any more.
        return replace(prompt, noise_type="inactive") if prompt.given_label == SENTINEL else prompt
    return replace(prompt, given_label=label)


def _marked(prompts: list[Prompt], old: tuple[Prompt, ...], judge: Judge) -> list[Prompt]:
    """Prompts with other labels than before: clean where the label means the stored truth, else frozen noise (R4)."""
    changed = [
        after.given_label if after.given_label != before.given_label else None
        for after, before in zip(prompts, old, strict=True)
    ]
    right = is_right(changed, [prompt.true_answer for prompt in prompts], judge)
    return [
        prompt if np.isnan(verdict) else replace(prompt, noise_type="clean" if verdict else "active_frozen")
        for prompt, verdict in zip(prompts, right, strict=True)
    ]


def _with_columns(data: PromptSet, rows: Sequence[Row | None]) -> Any:
    """The table of the data set with the audit's columns in ``extra_info``."""
    import pyarrow as pa

    unvisited = {"audit_change": "undecided", "audit_evidence": UNVISITED}
    columns = [unvisited if row is None else _columns(row) for row in rows]
    kinds = dict.fromkeys(
        ("audit_change", "audit_confidence", "audit_given_label", "audit_evidence"), pa.string()
    )
    kinds["audit_confidence"] = pa.float64()
    fields = {name: pa.array([row.get(name) for row in columns], kind) for name, kind in kinds.items()}
    column = with_fields(data.table.column("extra_info"), fields, replace=True)
    return data.table.set_column(data.table.schema.get_field_index("extra_info"), "extra_info", column)


def _columns(row: Row) -> dict[str, Any]:
    confidence = row["proposal_confidence"] if row["change"] == "added" else row["confidence"]
    return {
        "audit_change": row["change"],
        "audit_confidence": None if confidence is None else round(float(confidence), 6),
        "audit_given_label": row["given_label"],
        "audit_evidence": evidence(row),
    }
