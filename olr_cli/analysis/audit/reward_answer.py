"""An audit of rewards as an answer: a few sentences, the queue, rates by visit, and what was paid most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import polars as pl

from olr_cli.analysis.audit.rewards import RewardAudit
from olr_cli.tables import Answer, Block, Cell, Column, Line, Row, Table, one_line

_INDENT = 13
_ROWS = 15

_MOST_UNREAD = 0.1
"""Share of rewarded rollouts without an answer from which on the extractor is doubted, not the verifier."""


def rewards_answer(audit: RewardAudit, top: int | None) -> Answer:
    """A few sentences and the queue; JSON has all of it."""
    columns = [
        Column(head, is_text=True)
        for head in ("prompt", "label", "answer", "reward", "kind")
    ]
    texts = audit.queue.head(_ROWS if top is None else top).select(
        "prompt_id",
        "label",
        "answer",
        pl.col("is_rewarded").cast(pl.Int8),
        "kind",
        "rollouts",
    )
    rows = [
        Row(
            [
                Cell(one_line(text), "text", short=one_line(text, 22))
                for text in map(str, row)
            ]
        )
        for row in texts.iter_rows()
    ]
    parts: list[Line | Table | str] = [*_lines(audit)]
    if rows:
        parts += ["", Table([Block([*columns, Column("rollouts")], rows)]), ""]
    shown = audit if top is None else replace(audit, queue=audit.queue.head(top))
    return Answer(parts, shown, audit.notes, indent=_INDENT)


def _lines(audit: RewardAudit) -> Iterator[Line]:
    line = partial(Line, is_wrapped=True)
    blind = audit.rewarded_without_answer
    if blind is not None and blind > _MOST_UNREAD:
        yield line(
            "Warning",
            f"in {blind:.0%} of the rewarded rollouts olr reads no answer: its extractor is not the verifier's,"
            " and what follows is about the others alone; --set data.extractor=NAME names another (docs/grading.md)",
            "yellow",
        )
    if audit.extractor is not None:
        name, share = audit.extractor
        yield line(
            "Warning",
            f"in {share:.0%} of the rewarded responses whose answer is wrong the extractor {name} reads a right one, so"
            f" this may be how the verifier reads; --set data.extractor={name}",
            "yellow",
        )
    others = (
        f"; {audit.left_out:,} rollouts have no label or no verifier's reward"
        if audit.left_out
        else ""
    )
    yield line(
        "Audited",
        f"{audit.rewards:,} rewards of {audit.prompts:,} prompts; olr reads no answer in"
        f" {audit.without_answer:,} and cannot decide {audit.undecided:,}{others}",
    )
    rates = audit.rates
    yield line(
        "Contradicted",
        f"right by the grader, not rewarded: {rates.false_negative_rate.full}; wrong, rewarded:"
        f" {rates.false_positive_rate.full}; TPR - FPR {Cell(rates.youden, 'number').full} (95 % intervals)",
    )
    if audit.contradicted_again is not None:
        yield line(
            "Systematic",
            f"of rollouts with an answer that was contradicted once, {audit.contradicted_again:.0%} are contradicted;"
            " errors drawn anew would have the rates above",
        )
    for who, said in audit.verified.items():
        yield line(
            who.capitalize(),
            f"by people's verdicts: false negatives {said.false_negative_rate.full}, false positives"
            f" {said.false_positive_rate.full}",
        )
