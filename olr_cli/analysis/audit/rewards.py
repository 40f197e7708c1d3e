"""An audit of rewards: how often they contradict the grader, in both directions, and how often they are wrong.

A contradiction is not yet an error of the verifier that made the reward: the grader's verdict is a second reader's, and
where it reads no answer nothing is blamed on anybody. What people say of some contradictions (`read_verdicts`) tells
apart the verifier's errors and the grader's.

| cell of a rollout | reward | grader |
|---|---|---|
| accepted | 1 | wrong |
| rejected | 0 | right |
| agreed right, agreed wrong | as the grader says | |
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olr_cli.analysis.audit.answer import write_table
from olr_cli.analysis.audit.calibration import Estimate
from olr_cli.analysis.histories import RolloutHistory
from olr_cli.answers import Judge, exact_number
from olr_cli.data.prompts import SENTINEL
from olr_cli.data.rows import read_table
from olr_cli.errors import UserError
from olr_cli.runs.store import scan_labels, scan_rollouts
from olr_cli.tables import Answer, Block, Cell, Column, Line, Row, Table, one_line, percent

_INDENT = 13
_ROWS = 15
_DRAWS = 2000
_NEAR = 0.1
"""Relative distance of a number that is near the label's."""

_MOST_UNREAD = 0.1
"""Share of rewarded rollouts without an answer from which on the extractor is doubted, not the verifier."""

_UNIT = re.compile(r"[A-Za-z]{2}|[%$\N{DEGREE SIGN}]")

VERDICTS = ("right", "wrong", "cannot be scored")
"""What people say of an answer."""


@dataclass(frozen=True)
class RewardAudit:
    """What came of it.

    Attributes:
        rows: one row per rollout whose reward is known: ``prompt_id``, ``label``, ``answer``, ``is_rewarded``,
            ``verdict`` (null: no answer, or undecided).
        queue: contradictions by prompt and answer, the most frequent first.
        false_negative, false_positive: how often what the grader calls right is not rewarded, and what it calls wrong
            is; prompts are resampled for the intervals. None where nothing can be counted.
        again: where an answer to a prompt was contradicted, how often another rollout with it is too.
        verified: rates by what people say: ``verifier`` and ``grader``, each false negatives and false positives.
    """

    source: Path
    rows: pl.DataFrame
    queue: pl.DataFrame
    false_negative: Estimate | None
    false_positive: Estimate | None
    again: float | None
    verified: Mapping[str, tuple[Estimate, Estimate]]
    notes: Sequence[str]

    @property
    def youden(self) -> float | None:
        """TPR - FPR of the rewards against the grader."""
        if self.false_negative is None or self.false_positive is None:
            return None
        return 1 - self.false_negative.mean - self.false_positive.mean


def audit_rewards(history: RolloutHistory, judge: Judge, verified: Sequence[Path] = ()) -> RewardAudit:
    """Compare every stored reward with the verdict about its answer and label.

    Raises:
        UserError: the history has no rewards that say right or wrong, or no labels.
    """
    rows = _rows_of_run(history) if history.is_run else _rows_of_log(history)
    if rows.is_empty():
        raise UserError(
            f"{history.source} has no rewards of 0 and 1 beside labels, so there is nothing to audit; name them with"
            " --columns {reward: COLUMN, given_label: COLUMN}"
        )
    pairs = rows.select("asked", "answer").drop_nulls().unique()
    verdicts = pairs.with_columns(verdict=pl.Series(judge.matches(list(pairs.iter_rows())), dtype=pl.Boolean))
    rows = rows.join(verdicts, on=["asked", "answer"], how="left", maintain_order="left")
    known = rows.filter(pl.col("verdict").is_not_null())
    reward, right, prompt = (known[name].to_numpy() for name in ("is_rewarded", "verdict", "prompt_id"))
    wrong = known.filter(pl.col("is_rewarded") != pl.col("verdict"))
    kinds = [_kind(answer, label) for answer, label in wrong.select("answer", "label").iter_rows()]
    by_answer = ["prompt_id", "label", "answer", "is_rewarded"]
    queue = (
        wrong.with_columns(pl.Series("kind", kinds, dtype=pl.String))
        .group_by(*by_answer, "kind", maintain_order=True)
        .agg(rollouts=pl.len(), response=pl.col("response").first().str.slice(-200))
        .sort("rollouts", *by_answer, descending=[True, *[False] * len(by_answer)])
    )
    people = read_verdicts(verified) if verified else None
    return RewardAudit(
        history.source,
        rows.drop("asked"),
        queue,
        _rate(~reward & right, right, prompt),
        _rate(reward & ~right, ~right, prompt),
        _again(known),
        {} if people is None else _by_people(known, people),
        history.notes,
    )


def read_verdicts(files: Sequence[Path]) -> pl.DataFrame:
    """What people say of answers: ``prompt_id``, ``answer``, ``says_right`` (null: cannot be scored).

    Raises:
        UserError: a file is no such table, or a verdict is none of `VERDICTS`.
    """
    tables = []
    for file in files:
        table = pl.DataFrame(pl.from_arrow(read_table([file])))
        if missing := {"prompt_id", "answer", "verdict"} - {*table.columns}:
            raise UserError(
                f"{file} has no column {min(missing)}; take the table that --out wrote, with its verdicts"
            )
        tables.append(table.select(pl.col("prompt_id", "answer", "verdict").cast(pl.String)))
    said = pl.concat(tables).filter(pl.col("verdict").str.strip_chars() != "")
    words = said["verdict"].str.strip_chars().str.to_lowercase()
    if strange := sorted({*words} - {*VERDICTS}):
        raise UserError(f"verdict '{strange[0]}' is none of {', '.join(VERDICTS)}; correct it in the table")
    right = {"right": True, "wrong": False}
    said = said.with_columns(says_right=pl.Series([right.get(word) for word in words], dtype=pl.Boolean))
    return said.drop("verdict").unique(["prompt_id", "answer"], keep="last", maintain_order=True)


def _rows_of_log(history: RolloutHistory) -> pl.DataFrame:
    columns = ("prompt_id", "answer", "is_rewarded", "response")
    steps = [step.select(c for c in columns if c in step.columns) for step in history.steps]
    rows = pl.concat(steps).cast({pl.Categorical: pl.String})
    if "is_rewarded" not in rows.columns or not history.knows_labels:
        return pl.DataFrame()
    labels = {name: prompt.given_label for name, prompt in history.prompts.items()}
    label = rows["prompt_id"].replace_strict(labels, default=None, return_dtype=pl.String)
    return _asked(rows.with_columns(label.alias("label")), history)


def _rows_of_run(history: RolloutHistory) -> pl.DataFrame:
    """Of a run: rewards by the label that counted, where it asked the verifier (R25)."""
    labels = scan_labels(history.source).filter(pl.col("label_source").is_in(["majority", "none"]).not_())
    rows = (
        scan_rollouts(history.source)
        .select("prompt_id", "visit", "answer", "response", "reward", is_rewarded=pl.col("reward") == 1)
        .join(labels.select("prompt_id", "visit", label="effective_label"), on=["prompt_id", "visit"])
        .filter(pl.col("reward").is_in([0.0, 1.0]))
        .collect()
    )
    return _asked(rows.drop("reward", "visit"), history)


def _asked(rows: pl.DataFrame, history: RolloutHistory) -> pl.DataFrame:
    """With the label as its question asks for it, and a response where there is none; rows without a label left out."""
    rows = rows.filter(pl.col("label").is_not_null(), pl.col("is_rewarded").is_not_null())
    rows = rows.filter(pl.col("label") != SENTINEL)  # which nothing matches: no verifier was asked
    pairs = rows.select("prompt_id", "label").unique()
    asked = [history.prompts[name].asked(label) for name, label in pairs.iter_rows()]
    rows = rows.join(
        pairs.with_columns(asked=pl.Series(asked, dtype=pl.String)),
        on=["prompt_id", "label"],
        maintain_order="left",
    )
    return rows if "response" in rows.columns else rows.with_columns(response=pl.lit(None, pl.String))


def _kind(answer: str, label: str) -> str:
    """What a contradiction looks like."""
    claimed, due = exact_number(answer), exact_number(label)
    if claimed is not None and due is not None and claimed != due:
        return "near value" if abs(claimed - due) < _NEAR * abs(due) else "other value"
    return "words or unit" if _UNIT.search(answer) else "spelling"


def _resampled(prompts: NDArray[Any], *counts: NDArray[Any]) -> list[NDArray[np.float64]]:
    """Sums of each column over prompts that are drawn anew, (1 + draws,); the first is of all as they are."""
    names, place = np.unique(prompts.astype(str), return_inverse=True)
    drawn = np.random.default_rng(0).integers(len(names), size=(_DRAWS, len(names)))
    sums = [np.bincount(place, column, len(names)) for column in counts]
    return [np.concatenate([[column.sum()], column[drawn].sum(1)]) for column in sums]


def _rate(bad: NDArray[np.bool_], of: NDArray[np.bool_], prompts: NDArray[Any]) -> Estimate | None:
    """The share of `of` that is `bad`; where none is, the upper end is exact, as each prompt is one draw."""
    if not of.any():
        return None
    some, all_ = _resampled(prompts, bad, of)
    rate = _estimate(some, all_)
    if bad.any():
        return rate
    return replace(rate, high=1 - 0.05 ** (1 / len(np.unique(prompts[of].astype(str)))))


def _estimate(some: NDArray[np.float64], of: NDArray[np.float64]) -> Estimate:
    """A share, with an interval from the draws behind the first value of each (`_resampled`)."""
    rates = some / np.maximum(of, 1)
    low, high = np.quantile(rates[1:], [0.025, 0.975])
    return Estimate(float(rates[0]), float(low), float(high))


def _again(known: pl.DataFrame) -> float | None:
    """Of two rollouts with one answer to a prompt, of which one is contradicted: the chance that the other is too."""
    contradicted = (pl.col("is_rewarded") != pl.col("verdict")).sum()
    counts = known.group_by("prompt_id", "label", "answer").agg(contradicted, pl.len())
    bad, of = (counts.to_series(place).to_numpy().astype(np.int64) for place in (-2, -1))
    pairs = int((bad * (of - 1)).sum())
    return int((bad * (bad - 1)).sum()) / pairs if pairs else None


def _by_people(known: pl.DataFrame, people: pl.DataFrame) -> dict[str, tuple[Estimate, Estimate]]:
    """The verifier's and the grader's false negatives and positives, by what people say of some answers.

    In each cell (reward, verdict) the share of right ones is that of the rollouts whose answers people have judged;
    where they judged none of a cell in which both agree, both are taken to be right.
    """
    judged = known.join(people, on=["prompt_id", "answer"], how="inner", maintain_order="left")
    judged = judged.filter(pl.col("says_right").is_not_null())
    if judged.is_empty():
        raise UserError(
            "no verdict is about an answer of this history; take the table that --out wrote for it"
        )
    prompts, says = judged["prompt_id"].to_numpy(), judged["says_right"].to_numpy()
    shares, sizes = {}, {}
    for rewarded in (True, False):
        for right in (True, False):
            is_in = (pl.col("is_rewarded") == rewarded) & (pl.col("verdict") == right)
            here = judged.select(is_in).to_series().to_numpy()
            sizes[rewarded, right] = known.filter(is_in).height
            said, all_ = _resampled(prompts, here & says, here)
            assumed = float(right) if rewarded == right else float(rewarded)
            shares[rewarded, right] = np.where(all_ > 0, said / np.maximum(all_, 1), assumed)
    right_ones = {cell: sizes[cell] * share for cell, share in shares.items()}
    wrong_ones = {cell: sizes[cell] * (1 - share) for cell, share in shares.items()}

    def rate(parts: Mapping[tuple[bool, bool], Any], cells: Sequence[tuple[bool, bool]]) -> Estimate:
        return _estimate(sum(parts[cell] for cell in cells), sum(parts.values()))

    return {
        "verifier": (
            rate(right_ones, [(False, True), (False, False)]),
            rate(wrong_ones, [(True, True), (True, False)]),
        ),
        "grader": (
            rate(right_ones, [(True, False), (False, False)]),
            rate(wrong_ones, [(True, True), (False, True)]),
        ),
    }


# What it says -----------------------------------------------------------------------------------------------------


def rewards_answer(audit: RewardAudit, top: int | None) -> Answer:
    """A few sentences and the queue; JSON has all of it."""
    rows, unread = audit.rows, pl.col("answer").is_null()
    rewarded = rows.filter(pl.col("is_rewarded"))
    lines = []
    blind = rewarded.filter(unread).height / max(1, rewarded.height)
    if blind > _MOST_UNREAD:
        text = (
            f"in {blind:.0%} of the rewarded rollouts olr reads no answer: its extractor is not the verifier's, and"
            " what follows is about the others alone; --set data.extractor=NAME names another (docs/grading.md)"
        )
        lines.append(Line("Warning", text, "yellow", is_wrapped=True))
    undecided = rows.filter(~unread, pl.col("verdict").is_null()).height
    text = (
        f"{rows.height:,} rewards of {rows['prompt_id'].n_unique():,} prompts; olr reads no answer in"
        f" {rows.filter(unread).height:,} and cannot decide {undecided:,}"
    )
    lines.append(Line("Audited", text, is_wrapped=True))
    youden = "" if audit.youden is None else f"; TPR - FPR {audit.youden:.3f}"
    text = (
        f"right by the grader, not rewarded: {_said(audit.false_negative)}; wrong, rewarded:"
        f" {_said(audit.false_positive)}{youden}"
    )
    lines.append(Line("Contradicted", text, is_wrapped=True))
    if audit.again is not None:
        text = f"of rollouts with an answer that was contradicted once, {audit.again:.0%} are contradicted"
        lines.append(
            Line("Systematic", f"{text}; errors drawn anew would have the rates above", is_wrapped=True)
        )
    for who, (missed, accepted) in audit.verified.items():
        text = f"by people's verdicts: false negatives {_said(missed)}, false positives {_said(accepted)}"
        lines.append(Line(who.capitalize(), text, is_wrapped=True))
    shown = audit.queue.head(_ROWS if top is None else top)
    parts: list[Line | Table | str] = [*lines]
    if shown.height:
        columns = [Column(head, is_text=True) for head in ("prompt", "label", "answer", "reward", "kind")]
        cells = [
            Row(
                [
                    *(Cell(one_line(str(text)), "text", short=one_line(str(text), 22)) for text in row[:3]),
                    *row[3:],
                ]
            )
            for row in shown.select(
                "prompt_id",
                "label",
                "answer",
                pl.col("is_rewarded").cast(pl.Int8).cast(pl.String),
                "kind",
                pl.col("rollouts").cast(pl.String),
            ).iter_rows()
        ]
        parts += ["", Table([Block([*columns, Column("rollouts")], cells)], {}), ""]
    return Answer(parts, _plain(audit, top), audit.notes, indent=_INDENT)


def _said(rate: Estimate | None) -> str:
    if rate is None:
        return "unknown"
    return f"{percent(rate.mean)} % ({percent(rate.low)} to {percent(rate.high)})"


def _plain(audit: RewardAudit, top: int | None) -> dict[str, Any]:
    queue = audit.queue if top is None else audit.queue.head(top)
    return {
        "history": str(audit.source),
        "rewards": audit.rows.height,
        "prompts": audit.rows["prompt_id"].n_unique(),
        "without_answer": audit.rows["answer"].null_count(),
        "undecided": audit.rows.filter(pl.col("answer").is_not_null(), pl.col("verdict").is_null()).height,
        "false_negative_rate": audit.false_negative and vars(audit.false_negative),
        "false_positive_rate": audit.false_positive and vars(audit.false_positive),
        "youden": audit.youden,
        "contradicted_again": audit.again,
        "kinds": dict(audit.queue.group_by("kind").agg(pl.col("rollouts").sum()).sort("kind").iter_rows()),
        "verified": {
            who: dict(zip(("false_negative_rate", "false_positive_rate"), map(vars, rates), strict=True))
            for who, rates in audit.verified.items()
        },
        "queue": queue.to_dicts(),
    }


def write_queue_table(audit: RewardAudit, target: Path) -> None:
    """Write the whole queue, with an empty column `verdict` for people: as CSV if the name ends so, else Parquet."""
    write_table(audit.queue.with_columns(verdict=pl.lit("", pl.String)), target)
