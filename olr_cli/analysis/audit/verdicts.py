"""An audit's verdict on each prompt, as one frame: a row a prompt, with the confidence that its label is wrong.

| column | |
|---|---|
| status | of `STATUSES`; undecided, and not wrong, if nobody solved the prompt: no answer leads the pooled votes, or the leading one never got two rollouts of one visit (of any two visits, where a visit has one rollout) |
| given_label, proposed_label | the proposal is the leading answer where it is not the given one; a tie proposes nothing |
| confidence | that the given label is wrong; null if undecided or missing |
| proposal_confidence | that the proposed label is right |
| visits, rollouts, answered | rollouts is K of the last visit, answered counts all visits |
| pass_rate, slope, consistency | of the proposal, else of the leading answer |
| given_pass_rate | 0 for a label that nobody gave, null without a label |
| log_odds, proposal_log_odds | before calibration; the latter that the proposal is right, if the label is wrong or missing |
| is_trusted | somebody has verified the true answer, or that the label is wrong |
| change | of `CHANGES`; before that is decided, is_likelier: whether the proposal is likelier right than the label, or than not |
"""  # noqa: E501

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olr_cli.analysis.audit.confidence import Calibrations, TrustedLabels
from olr_cli.analysis.audit.estimator import Floats, Model, Votes, logistic
from olr_cli.analysis.audit.tally import MISSING, Tally

STATUSES = ("doubted", "undecided", "fine", "missing")
"""What an audit says of a label: rather wrong; nothing, as nobody solved the prompt; rather right; there is none."""

CHANGES = ("changed", "added", "kept", "undecided")
"""What becomes of a prompt's label in the repaired data set."""

_SMALL, _DECIMALS = 1e-9, 9


def judged(tally: Tally, model: Model, calibrations: Calibrations) -> pl.DataFrame:
    """The verdict on every prompt, in the order of the tally, before trusted labels and changes."""
    leaders = leading_answers(model.votes)
    is_solved, is_missing = _is_solved(tally, leaders), tally.label_answers == MISSING
    odds = model.wrong_log_odds()
    proposed = np.where(is_solved & (leaders != tally.label_answers), leaders, -1)
    is_wrong = np.nan_to_num(logistic(odds), nan=1.0)
    chances = np.clip(_of_answers(model.answer_chances(), proposed) / is_wrong, 1e-12, 1 - 1e-12)
    proposal_odds = np.log(chances) - np.log1p(-chances)
    shares, wrong = calibrations.wrong.of_parts, calibrations.wrong.by_part(odds)
    right = np.where(
        is_missing,
        calibrations.unlabelled.by_part(proposal_odds),
        wrong * calibrations.proposal.by_part(proposal_odds),
    )
    confidence = np.where(is_solved & ~is_missing, shares @ wrong, np.nan)
    proposal_confidence = shares @ right
    # Which labels to change is decided as for a policy like the toys. Of one that is not, none should be changed; the
    # forecast reckons with it.
    assumed = shares if calibrations.is_measured else np.eye(len(shares))[0]
    is_likelier = assumed @ right > np.where(is_missing, 0.5, 1 - assumed @ wrong)
    status = np.select(
        [~is_solved, is_missing, confidence >= 0.5], ["undecided", "missing", "doubted"], default="fine"
    )
    visits = tally.visits.group_by("prompt", maintain_order=True).agg(
        visits=pl.len().cast(pl.Int64), rollouts=pl.col("rollouts").last(), answered=pl.col("answered").sum()
    )
    given_rates = answer_over_visits(tally, tally.label_answers)["pass_rate"].fill_null(0.0)
    numbers = {
        "confidence": confidence,
        "proposal_confidence": proposal_confidence,
        "log_odds": np.where(is_missing, np.nan, odds),
        "proposal_log_odds": proposal_odds,
    }
    table = pl.DataFrame(
        {
            "prompt_id": tally.prompt_ids,
            "status": status,
            "given_label": pl.Series(tally.labels, dtype=pl.String),
            "proposed_label": tally.answers["spelling"].gather(
                pl.Series(proposed).set(pl.Series(proposed < 0), None)
            ),
            **{name: pl.Series(values, nan_to_null=True) for name, values in numbers.items()},
            "given_pass_rate": given_rates.set(pl.Series(is_missing), None),
            "is_likelier": is_likelier,
        }
    )
    table = pl.concat(
        [table, visits.drop("prompt"), answer_over_visits(tally, leaders).drop("prompt")], how="horizontal"
    )
    last = ("given_pass_rate", "log_odds", "proposal_log_odds", "is_likelier")
    return table.select(pl.exclude(last), *last)


def leading_answers(votes: Votes) -> NDArray[np.int64]:
    """(P,) the one answer with the most pooled votes; -1 on a tie or without answers."""
    top = np.zeros(votes.size)
    np.maximum.at(top, votes.prompts, votes.counts)
    at_top = votes.counts >= top[votes.prompts] - _SMALL
    leaders = np.full(votes.size, -1, dtype=np.int64)
    leaders[votes.prompts[at_top]] = np.flatnonzero(at_top)
    leaders[np.bincount(votes.prompts[at_top], minlength=votes.size) != 1] = -1
    return leaders


def answer_over_visits(tally: Tally, answers: NDArray[np.int64]) -> pl.DataFrame:
    """How one answer of each prompt, by its number (P,), fared visit by visit; negative: none.

    Returns:
        A row a prompt: prompt, pass_rate (of the answer at the last visit), slope (of its pass rate over the visits, by
        least squares; 0 with one visit), consistency (share of the visits whose majority it is, R9); null without one.
    """
    chosen = pl.DataFrame({"prompt": np.arange(len(tally), dtype=np.int32), "chosen": answers})
    votes = (
        tally.counts.join(chosen, on="prompt")
        .group_by("prompt", "visit")
        .agg(
            given=pl.col("count").filter(pl.col("answer") == pl.col("chosen")).sum(),
            top=pl.col("count").max(),
            at_top=(pl.col("count") == pl.col("count").max()).sum(),
        )
    )
    rows = tally.visits.join(votes, on=["prompt", "visit"], how="left", maintain_order="left").with_columns(
        rate=pl.col("given").fill_null(0) / pl.col("rollouts"),
        won=((pl.col("given") == pl.col("top")) & (pl.col("at_top") == 1)).fill_null(False),
        time=pl.int_range(pl.len()).over("prompt") - (pl.len().over("prompt") - 1) / 2,
    )
    shares = rows.group_by("prompt", maintain_order=True).agg(
        pass_rate=pl.col("rate").last(),
        slope=((pl.col("time") * pl.col("rate")).sum() / (pl.col("time") ** 2).sum()).fill_nan(0.0),
        consistency=pl.col("won").mean(),
    )
    return shares.with_columns(pl.when(chosen["chosen"] >= 0).then(pl.exclude("prompt")))


def _is_solved(tally: Tally, leaders: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether an answer leads that more than one rollout gave: of one visit, or of all where K is 1."""
    most = (
        tally.counts.group_by("answer").agg(pl.col("count").max(), total=pl.col("count").sum()).sort("answer")
    )
    is_single = np.ones(len(tally), dtype=bool)
    is_single[tally.visits.filter(pl.col("rollouts") > 1)["prompt"].to_numpy()] = False
    counts, totals = (_of_answers(most[name].to_numpy(), leaders) for name in ("count", "total"))
    return np.where(is_single, totals, counts) >= 2


def _of_answers(values: NDArray[Any], answers: NDArray[np.int64]) -> Floats:
    """(A,) -> (P,): the value of each answer; NaN where its number is negative."""
    chosen = np.full(len(answers), np.nan)
    chosen[answers >= 0] = values[answers[answers >= 0]]
    return chosen


def with_trusted(table: pl.DataFrame, trusted: TrustedLabels | None) -> pl.DataFrame:
    """Where the truth is trusted, it is the proposal, and nothing is left to estimate; else the proposal may still be
    that of the policy, for a label that is known to be wrong.
    """
    if trusted is None:
        return table.with_columns(is_trusted=pl.lit(False))
    truth = pl.lit(pl.Series(trusted.answers, dtype=pl.String))
    is_wrong = pl.lit(pl.Series(trusted.is_wrong, nan_to_null=True))
    is_replaced = is_wrong.fill_null(1) == 1  # also where there was no label
    verdict = {
        "status": pl.when(is_wrong == 1)
        .then(pl.lit("doubted"))
        .when(is_wrong == 0)
        .then(pl.lit("fine"))
        .otherwise(pl.lit("missing")),
        "confidence": is_wrong,
        "proposed_label": pl.when(is_replaced).then(pl.coalesce(truth, "proposed_label")),
        "proposal_confidence": pl.when(is_replaced).then(
            pl.when(truth.is_null()).then("proposal_confidence").otherwise(1.0)
        ),
    }
    is_trusted = truth.is_not_null() | is_wrong.is_not_null()
    return table.with_columns(
        is_trusted.alias("is_trusted"),
        *(pl.when(is_trusted).then(value).otherwise(name).alias(name) for name, value in verdict.items()),
    )


def with_changes(table: pl.DataFrame, threshold: float | None) -> pl.DataFrame:
    """Change a label if the proposal is likelier right, fill in one that is likelier right than not.

    The surest to be wrong come first; equal confidences in the order of the evidence, then as they came.

    Args:
        table: of the verdicts.
        threshold: the least confidence that the label is wrong, or the filled-in one right; None: any.
    """
    confidence, proposal = pl.col("confidence"), pl.col("proposal_confidence")
    is_missing = pl.col("status") == "missing"
    is_known_likelier = proposal > 1 - confidence.fill_null(0.5)
    is_likelier = pl.when("is_trusted").then(is_known_likelier).otherwise("is_likelier")
    is_sure = pl.when(is_missing).then(proposal).otherwise(confidence) >= (threshold or 0.0)
    changes = table.with_columns(
        change=pl.when(is_likelier & is_sure)
        .then(pl.when(is_missing).then(pl.lit("added")).otherwise(pl.lit("changed")))
        .when(pl.col("status").is_in(["undecided", "missing"]) | (pl.col("is_trusted") & (confidence == 1)))
        .then(pl.lit("undecided"))
        .otherwise(pl.lit("kept"))
    ).drop("is_likelier")
    # What differs by the rounding of a processor's vector units alone is a tie, and stays in the order of the prompts.
    keys = (pl.col(name).round(_DECIMALS) for name in ("confidence", "log_odds"))
    return changes.sort(*keys, descending=True, nulls_last=True, maintain_order=True)
