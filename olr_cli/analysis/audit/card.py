"""The card of an exported data set in Markdown: it tells users of the data what an audit did to the rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from olr_cli import __version__
from olr_cli.analysis.audit.answer import NOT_VERIFIED
from olr_cli.analysis.audit.audit import Audit
from olr_cli.analysis.audit.export import UNJUDGED, Choice, Row, has_truth, rows_of
from olr_cli.data.prompts import PromptSet
from olr_cli.files import write_new
from olr_cli.tables import Answer, File, Line


def write_card(
    file: Path,
    audit: Audit,
    data: PromptSet,
    answer: Answer,
    *,
    choice: Choice,
    command: str,
) -> File:
    """Write the card of an exported data set: a Markdown file that says what the audit did to the rows.

    The same audit and command always give the same bytes.

    Args:
        file: the file to write.
        audit: the result of the audit.
        data: the data set before the export.
        answer: the audit's output. The card repeats its summary and notes.
        choice: which rows are exported.
        command: the `olr audit` command that exports the rows. The card shows it.
    """
    rows = rows_of(audit, data, choice)
    kept = {*choice.keeps(rows)}
    fates = Counter(_fate(row, choice, is_kept=at in kept) for at, row in enumerate(rows))
    counts = "\n".join(f"| {fate} | {count:,} |" for fate, count in sorted(fates.items()))
    # Leave out the advice to verify labels: it is for the auditor, not for users of the data.
    lines = [it for it in answer.parts if isinstance(it, Line) and it.text != NOT_VERIFIED]
    sentences = [": ".join(filter(None, (line.head, line.text))) for line in lines]
    if audit.verified is None:
        sentences.append("Verified: no label, so a status is what the models say, no more")
    models = ", ".join(sorted(audit.models)) or "their names are not known"
    text = f"""\
# {file.stem}

{len(kept):,} of {len(data):,} rows of {data.source}, after an audit of their labels by olr {__version__}:

    {command}

| rows | |
|---|---:|
{counts}

{"".join(f"- {one}{chr(10)}" for one in [*sentences, f"Models: {models}", *answer.notes])}
Nothing is drawn at random: the same command with the same files writes the same bytes. The source:
{data.source}{f", revision {data.revision}" if data.revision else ""}, sha256 of all that training sees of it
{data.digest}.
"""
    is_new = write_new(file, lambda path: path.write_text(text, encoding="utf-8"), "export")
    return File.written(file, " (what was done to the rows)", is_new=is_new)


def _fate(row: Row | None, choice: Choice, *, is_kept: bool) -> str:
    """Return what happened to a row and why, such as ``left out: doubted`` or ``kept: fine``.

    Args:
        row: the audit's verdict on the row, or None without rollouts.
        choice: the choice of the export, which gives the reason if a row is left out.
        is_kept: whether the export has the row.
    """
    status = UNJUDGED if row is None else row["status"]
    if not is_kept:
        reason = status if status in choice.drop else f"pass rate not in {choice.pass_rate}"
        return f"left out: {reason}"
    if row is None or row["change"] == "kept":
        return f"kept: {status}"
    by = "as people verified it" if has_truth(row) else "to what most answers say"
    return f"kept, label {row['change']} {by}"
