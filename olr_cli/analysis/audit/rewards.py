"""An audit of rewards: how often they contradict the grader, in both directions, and how often they are wrong.

A contradiction is not yet an error of the verifier that made the reward: the grader's verdict is a second reader's, and
where it reads no answer nothing is blamed on anybody. What people say of some contradictions (`read_verdicts`) tells
apart the verifier's errors and the grader's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from pathlib import Path

import numpy as np
import polars as pl

from olr_cli.analysis.audit.annotators import Floats
from olr_cli.analysis.histories import RolloutHistory
from olr_cli.answers import EXTRACTORS, Judge, exact_number, extract
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.table_files import read_table
from olr_cli.errors import UserError
from olr_cli.evaluation.intervals import percentile_interval
from olr_cli.runs.store import scan_labels, scan_rollouts
from olr_cli.seeding import key
from olr_cli.tables import Answer, Block, Cell, Column, Line, Row, Table, one_line

_INDENT = 13
_ROWS = 15
_DRAWS = 2000
_NEAR = 0.1
"""Relative distance of a number that is near the label's."""

_MOST_UNREAD = 0.1
"""Share of rewarded rollouts without an answer from which on the extractor is doubted, not the verifier."""

_UNIT = re.compile(r"[A-Za-z]{2}|[%$\N{DEGREE SIGN}]")
_ENDING = 200
"""Characters of a response that people see in the queue: its end, where the answer is."""

_TRIED, _FEWEST = 200, 5
"""Answers on which other extractors are tried, the most frequent ones; from how many on they say something."""

VERDICTS = {"right": True, "wrong": False, "cannot be scored": None}
"""What people say of an answer, and whether it is right then."""

_CASE = ("prompt_id", "label", "answer")
"""Columns of what one verdict is about: in a run, a prompt's label may change from visit to visit."""

_CELLS = {
    "agreed wrong": (False, False),
    "rejected": (False, True),
    "accepted": (True, False),
    "agreed right": (True, True),
}
"""Reward and verdict of the rollouts of each cell, which arrays have in this order."""
_IN_CELL = {
    name: (pl.col("is_rewarded") == reward) & (pl.col("verdict") == right)
    for name, (reward, right) in _CELLS.items()
}
"""Which rollouts are in each."""
_BY_AGREEMENT = [float(name == "agreed right") for name in _CELLS]
"""The share of right rollouts in each, where nobody has judged any."""
_REWARDED, _RIGHT_BY_GRADER = np.array([*_CELLS.values()]).T
_OF_GRADER = [
    list(_CELLS).index(name)
    for name in ("agreed wrong", "accepted", "rejected", "agreed right")
]
"""The cells where the grader's verdict takes the place of the reward."""


@dataclass(frozen=True)
class Rates:
    """How often right answers are not rewarded, and wrong ones are, with 95 % intervals; and TPR - FPR (Youden's J)."""

    false_negative_rate: Cell
    false_positive_rate: Cell
    youden: float | None


@dataclass(frozen=True)
class RewardAudit:
    """How a history's rewards and the grader's verdicts differ.

    Attributes:
        rewards, prompts: how many are audited.
        left_out: rollouts without a reward or a label, or whose reward asked no verifier.
        without_answer, undecided: rollouts among them in which olr reads no answer, or whose answer it cannot grade.
        rewarded_without_answer: share of the rewarded rollouts without an answer; None without any rewarded one.
        rates: of the rewards, as if every verdict of the grader were right.
        extractor: another one, and in which share of the wrong but rewarded responses it reads a right answer, if that
            is more than half: then the verifier probably reads answers as it does.
        contradicted_again: where an answer to a prompt was contradicted, how often another rollout with it is too.
        verified: rates by what people say, of the ``verifier`` and of the ``grader``.
        queue: contradictions by prompt and answer, the most frequent first.
    """

    source: Path
    rewards: int
    prompts: int
    left_out: int
    without_answer: int
    undecided: int
    rewarded_without_answer: float | None
    rates: Rates
    extractor: tuple[str, float] | None
    contradicted_again: float | None
    verified: Mapping[str, Rates]
    queue: pl.DataFrame
    notes: Sequence[str] = field(repr=False)


def audit_rewards(
    history: RolloutHistory, judge: Judge, verified: Sequence[Path] = ()
) -> RewardAudit:
    """Compare every stored reward with the verdict about its answer and label.

    Raises:
        UserError: the history has no rewards that say right or wrong, or no labels.
    """
    people = read_verdicts(verified) if verified else None
    rows, left_out = _rows(history)
    cases = rows.select(_CASE).drop_nulls().unique(maintain_order=True)
    asked = (
        (history.prompts[name].asked(label), answer)
        for name, label, answer in cases.iter_rows()
    )
    verdicts = cases.with_columns(verdict=pl.Series(judge.matches(asked), dtype=pl.Boolean))
    rows = rows.join(verdicts, on=_CASE, how="left", maintain_order="left")
    known = rows.drop_nulls("verdict")
    is_wrong = pl.col("is_rewarded") != pl.col("verdict")
    counts = known.group_by(_CASE).agg(
        bad=is_wrong.sum().cast(pl.Int64), of=pl.len().cast(pl.Int64)
    )
    again, pairs = (
        int((counts["bad"] * (counts[others] - 1)).sum()) for others in ("bad", "of")
    )
    queue = (
        known.filter(is_wrong)
        .group_by(*_CASE, "is_rewarded", maintain_order=True)
        .agg(rollouts=pl.len(), response=pl.col("response").first())
        .sort("rollouts", *_CASE, "is_rewarded", descending=[True, *[False] * 4])
    )
    kinds = [
        _kind(answer, label)
        for answer, label in queue.select("answer", "label").iter_rows()
    ]
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
        rates=_by_grader(known),
        extractor=_other_extractor(
            queue.filter("is_rewarded").drop_nulls("response").head(_TRIED), history, judge
        ),
        contradicted_again=again / pairs if pairs else None,
        verified={} if people is None else _by_people(known, people),
        queue=queue.insert_column(4, pl.Series("kind", kinds, dtype=pl.String)),
        notes=[*history.notes, *(() if people is None else _notes_on(people, known))],
    )


def _notes_on(people: pl.DataFrame, known: pl.DataFrame) -> Iterator[str]:
    """How much of what is known people's verdicts are about."""
    here = people.join(known, on=_CASE, how="semi").height
    yield f"{here:,} of {people.height:,} verdicts are about answers here, {people.height - here:,} about none."
    contradicted = known.filter(pl.col("is_rewarded") != pl.col("verdict"))
    judged = contradicted.join(people.drop_nulls(), on=_CASE, how="semi").height
    if judged < contradicted.height:
        yield (
            f"They judge {judged:,} of {contradicted.height:,} contradicted rollouts; the others are taken to be like"
            " these, which holds of rows of the table that were chosen at random, not of its first."
        )


def read_verdicts(files: Sequence[Path]) -> pl.DataFrame:
    """People's verdicts on answers: `_CASE`, and ``is_right``, which is null where they cannot say.

    Raises:
        UserError: a file is no such table, a verdict is none of `VERDICTS`, or two of one answer differ.
    """
    tables = []
    for file in files:
        table = pl.DataFrame(pl.from_arrow(read_table([file])))
        if missing := {*_CASE, "verdict"} - {*table.columns}:
            raise UserError(
                f"{file} has no column {min(missing)}",
                "take the table that --out wrote, with its verdicts",
            )
        table = table.select(pl.col(*_CASE, "verdict").cast(pl.String))
        tables.append(
            table.with_columns(pl.col("verdict").str.strip_chars().str.to_lowercase())
        )
    said = pl.concat(tables).filter(pl.col("verdict") != "")
    if strange := sorted({*said["verdict"]} - {*VERDICTS}):
        raise UserError(
            f"verdict '{strange[0]}' is none of {', '.join(VERDICTS)}",
            "correct it in the table",
        )
    said = said.unique(maintain_order=True)
    if not (twice := said.filter(pl.struct(_CASE).is_duplicated())).is_empty():
        prompt, label, answer, _ = twice.row(0)
        raise UserError(
            f"the answer {answer} to prompt {prompt}, whose label is {label}, has several verdicts",
            "leave one",
        )
    is_right = pl.col("verdict").replace_strict(VERDICTS, return_dtype=pl.Boolean)
    return said.select(*_CASE, is_right=is_right)


def _rows(history: RolloutHistory) -> tuple[pl.DataFrame, int]:
    """The rollouts with a reward and the label that it was for, and how many others: some asked no verifier (R25)."""
    keys = ("prompt_id", "visit", "view", "sample")
    columns = (*keys, "answer", "is_rewarded", "response")
    rows = pl.concat(
        step.select(c for c in columns if c in step.columns) for step in history.steps
    )
    rollouts = len(rows)
    remedy = "name --columns {reward: COLUMN, given_label: COLUMN}, or in --data the data set with all labels"
    if history.is_run:
        remedy = "a majority label asks no verifier"
        unasked = (
            ("none", "majority")
            if history.recipe.method.majority_graded_by == "class"
            else ("none",)
        )
        labels = scan_labels(history.source).filter(
            pl.col("label_source").is_in(unasked).not_()
        )
        rewards = scan_rollouts(history.source).filter(pl.col("reward").is_in([0.0, 1.0]))
        # The majority that labels the other view is not stored.
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
        given = {name: prompt.given_label for name, prompt in history.prompts.items()}
        rows = rows.with_columns(
            label=pl.col("prompt_id").replace_strict(
                given, default=None, return_dtype=pl.String
            )
        )
    if "label" in rows.columns:
        # Nothing matches the sentinel: no verifier was asked.
        rows = rows.drop_nulls(["label", "is_rewarded"]).filter(pl.col("label") != SENTINEL)
    if "label" not in rows.columns or rows.is_empty():
        raise UserError(
            f"{history.source} has no rewards of 0 and 1 beside labels, so there is nothing to audit",
            remedy,
        )
    response = pl.col("response") if "response" in rows.columns else pl.lit(None, pl.String)
    ending = response.cast(pl.String).str.slice(-_ENDING).alias("response")
    answer = pl.col("answer").cast(pl.String)
    return rows.select("prompt_id", "label", answer, "is_rewarded", ending), rollouts - len(
        rows
    )


def _other_extractor(
    accepted: pl.DataFrame, history: RolloutHistory, judge: Judge
) -> tuple[str, float] | None:
    """See `RewardAudit`; of what was rewarded and is wrong."""
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
    """The kind of a contradiction."""
    claimed, due = exact_number(answer), exact_number(label)
    if claimed is not None and due is not None and claimed != due:
        return "near value" if abs(claimed - due) < _NEAR * abs(due) else "other value"
    return (
        "same text"
        if answer == label
        else "words or unit"
        if _UNIT.search(answer)
        else "spelling"
    )


def _resampled(rows: pl.DataFrame, counted: Sequence[pl.Expr]) -> Floats:
    """(1 + draws, counts): how many rows each holds for, first of all prompts, then of prompts that are drawn anew.

    Prompts of equal counts are drawn together, so that memory does not grow with the prompts.
    """
    if rows.is_empty():
        return np.zeros((1, len(counted)))
    of_prompts = rows.group_by("prompt_id").agg(
        counts.sum().alias(str(i)) for i, counts in enumerate(counted)
    )
    counts, prompts = np.unique(
        of_prompts.drop("prompt_id").to_numpy(), axis=0, return_counts=True
    )
    random = np.random.default_rng(key("audit of rewards"))
    draws = (
        random.multinomial(prompts.sum(), prompts / prompts.sum()) for _ in range(_DRAWS)
    )
    return np.stack(
        [np.asarray(drawn @ counts, dtype=float) for drawn in (prompts, *draws)]
    )


def _rate(bad: Floats, of: Floats, prompts: int) -> Cell:
    """The share of `of` that is `bad`, each (1 + draws,) as of `_resampled`.

    Where all rollouts are alike, so are all draws: then every prompt is one draw, and the interval is exact.
    """
    if not of[0]:
        return Cell(kind="percent")
    rates = bad / np.maximum(of, 1)
    rate, edge = float(rates[0]), 0.05 ** (1 / prompts)
    ends = {0.0: (0.0, 1 - edge), 1.0: (edge, 1.0)}.get(rate) or percentile_interval(
        rates[1:]
    )
    return Cell(rate, "percent", ends=ends)


def _by_grader(known: pl.DataFrame) -> Rates:
    """The verifier's rates if the grader's verdicts were the truth."""
    cells, is_right = _resampled(known, [*_IN_CELL.values()]), pl.col("verdict")
    right, wrong = (
        known.filter(which)["prompt_id"].n_unique() for which in (is_right, ~is_right)
    )
    return _rates(cells * _RIGHT_BY_GRADER, cells * ~_RIGHT_BY_GRADER, right, wrong)


def _by_people(known: pl.DataFrame, people: pl.DataFrame) -> dict[str, Rates]:
    """The verifier's and the grader's rates, by what people say of some answers.

    In each cell (reward, verdict) the share of right ones is that of the rollouts whose answers people have judged;
    where they judged none of a cell in which both agree, both are taken to be right.
    """
    judged = known.join(people, on=_CASE, how="left")
    right, wrong = _by_cell(judged)

    def prompts_with(*answers: pl.Expr) -> int:
        return judged.filter(pl.any_horizontal(False, *answers))["prompt_id"].n_unique()

    asked_prompts = prompts_with(pl.col("is_right").is_not_null())
    if not asked_prompts:
        raise UserError(
            "people call no answer here right or wrong",
            "judge some in the table that --out writes for this history",
        )
    # As unsure as the fewest: prompts with a verdict, or prompts with right answers, or with wrong ones.
    prompts = [
        min(asked_prompts, prompts_with(*compress(_IN_CELL.values(), sums[0])))
        for sums in (right, wrong)
    ]
    return {
        "verifier": _rates(right, wrong, *prompts),
        "grader": _rates(right[:, _OF_GRADER], wrong[:, _OF_GRADER], *prompts),
    }


def _by_cell(judged: pl.DataFrame) -> tuple[Floats, Floats]:
    """Return how many rollouts of each cell are right, and how many wrong, by people: (1 + draws, 4) both."""
    is_right, cells = pl.col("is_right"), _IN_CELL.values()
    counted = [
        *cells,
        *(cell & is_right for cell in cells),
        *(cell & is_right.is_not_null() for cell in cells),
    ]
    sizes, said, asked = np.split(_resampled(judged, counted), 3, axis=1)
    for (reward, verdict), size, of_cell in zip(
        _CELLS.values(), sizes[0], asked[0], strict=True
    ):
        if reward != verdict and size and not of_cell:
            raise UserError(
                f"none of the {size:,.0f} rollouts in the queue with reward {int(reward)} has an answer that"
                " people call right or wrong",
                "judge some in the table that --out writes for this history",
            )
    of_all = np.where(asked[0] > 0, said[0] / np.maximum(asked[0], 1), _BY_AGREEMENT)
    shares = np.where(asked > 0, said / np.maximum(asked, 1), of_all)
    return sizes * shares, sizes * (1 - shares)


def _rates(right: Floats, wrong: Floats, right_prompts: int, wrong_prompts: int) -> Rates:
    """The rates of whoever rewarded, from how many rollouts of each cell are right and wrong, (1 + draws, 4)."""
    missed = _rate(right[:, ~_REWARDED].sum(1), right.sum(1), right_prompts)
    passed = _rate(wrong[:, _REWARDED].sum(1), wrong.sum(1), wrong_prompts)
    is_known = missed.value is not None and passed.value is not None
    return Rates(missed, passed, 1 - missed.number - passed.number if is_known else None)


# What is printed --------------------------------------------------------------------------------------------------


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
