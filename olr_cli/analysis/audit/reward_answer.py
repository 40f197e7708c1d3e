"""An audit of rewards as an answer: a few sentences, the queue, rates by visit, and the rows that were paid most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import polars as pl

from olr_cli.analysis.audit.rewards import RatesOfVisits, RewardAudit
from olr_cli.tables import Answer, Block, Cell, Column, Line, Row, Table, one_line

_INDENT = 13
_ROWS = 15
_WIDEST = 76
"""Characters of a response in the terminal, so that each stays on one line."""

_MOST_UNREAD = 0.1
"""Share of rewarded rollouts without an answer above which we doubt the extractor, not the verifier."""


def rewards_answer(audit: RewardAudit, top: int | None) -> Answer:
    """Return the output of `olr audit --rewards`: a few sentences, the error rates by visit, and two tables.

    The first table has contradictions, that is answers whose reward differs from the grader's verdict. The second has
    wrong answers with the highest rewards.

    Args:
        audit: result of the audit.
        top: number of rows of each table. If None, JSON has all rows, and a terminal 15 contradictions and no second
            table.
    """
    parts: list[Line | Table | str] = [*_lines(audit)]
    reward = pl.col("is_rewarded").cast(pl.Int8).alias("reward")
    contradictions = audit.queue.head(_ROWS if top is None else top)
    if audit.by_visit:
        parts += ["", _visits_table(audit.by_visit)]
    if not contradictions.is_empty():
        parts += ["", _cases_table(contradictions, reward, "kind"), ""]
    paid_most = audit.paid_most.head(top or 0)
    if not paid_most.is_empty():
        text = "wrong by the grader, and rewarded; below each the end of its response"
        parts += [Line("Paid most", text), "", _paid_table(paid_most), ""]
    if top is not None:
        audit = replace(audit, queue=contradictions, paid_most=paid_most)
    return Answer(parts, audit, audit.notes, indent=_INDENT)


def _visits_table(by_visit: Sequence[RatesOfVisits]) -> Table:
    """Return a table of how often rewards are wrong, with one row for each range of visits."""
    heads = ("visits", "rewards", "right, not rewarded", "wrong, rewarded", "TPR - FPR")
    rows = []
    for part in by_visit:
        visits = f"{part.first}" + f" to {part.last}" * (part.last > part.first)
        rates = part.rates
        cells = [rates.false_negative_rate.full, rates.false_positive_rate.full]
        rows.append(
            Row([visits, f"{part.rewards:,}", *cells, Cell(rates.youden, "number")])
        )
    return Table([Block([*map(Column, heads)], rows)])


def _cases_table(queue: pl.DataFrame, *more: str | pl.Expr) -> Table:
    """Return contradictions between rewards and the grader as a table with a row per prompt and answer.

    The columns are prompt, label, answer, the columns `more`, and the number of rollouts.
    """
    texts = queue.select(
        pl.col("prompt_id").alias("prompt"), "label", "answer", *more, "rollouts"
    )
    columns = [Column(head, is_text=head != "rollouts") for head in texts.columns]
    rows = [
        Row(
            [
                Cell(one_line(text), "text", short=one_line(text, 22))
                for text in map(str, row)
            ]
        )
        for row in texts.iter_rows()
    ]
    return Table([Block(columns, rows)])


def _paid_table(queue: pl.DataFrame) -> Table:
    """Return a table of answers that the grader finds wrong, each with its highest reward.

    Below each row is the end of the response that got this reward. `queue` has contradictions between rewards and the
    grader.
    """
    block = _cases_table(queue, pl.col("paid").round(3)).blocks[0]
    rows = []
    for row, response in zip(block.rows, queue["response"], strict=True):
        # The answer is at the end of a response, so cut its beginning.
        rows += [row, Row([one_line(response)[-_WIDEST:]], "note")]
    return Table([replace(block, rows=rows)])


def _lines(audit: RewardAudit) -> Iterator[Line]:
    line = partial(Line, is_wrapped=True)
    unread = audit.rewarded_without_answer
    if unread is not None and unread > _MOST_UNREAD:
        yield line(
            "Warning",
            f"in {unread:.0%} of the rewarded rollouts olr reads no answer: its extractor is not the verifier's,"
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
    for who, measured in audit.verified.items():
        yield line(
            who.capitalize(),
            f"by people's verdicts: false negatives {measured.false_negative_rate.full}, false positives"
            f" {measured.false_positive_rate.full}",
        )
