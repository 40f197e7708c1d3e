"""What a history says of each prompt's given label: a row a prompt, with the confidence that the label is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from olr_cli.analysis.audit.estimator import (
    Floats,
    Likelihoods,
    Noise,
    Votes,
    answer_chances,
    wrong_log_odds,
)
from olr_cli.analysis.audit.tally import MISSING, Tally

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from olr_cli.analysis.audit.calibration import Calibrations

STATUSES = ("doubted", "undecided", "fine", "missing")
"""What an audit says of a label: rather wrong; nothing, as nobody solved the prompt; rather right; there is none."""

_SMALL = 1e-9


def prompt_evidence(tally: Tally) -> pl.DataFrame:
    """What the visits of each prompt show, whatever the given label is.

    Returns:
        A row a prompt: prompt, visits, rollouts (K of the last visit), answered (of all visits), most (the most
        rollouts that any answer got in one visit).
    """
    own = (
        tally.visits.group_by("prompt", maintain_order=True)
        .agg(visits=pl.len(), rollouts=pl.col("rollouts").last(), answered=pl.col("answered").sum())
        .with_columns(pl.col("visits").cast(pl.Int64))
    )
    most = tally.counts.group_by("prompt").agg(most=pl.col("count").max())
    return own.join(most, on="prompt", how="left", maintain_order="left").with_columns(
        pl.col("most").fill_null(0)
    )


def leading_answers(votes: Votes) -> NDArray[np.int64]:
    """(P,) the one answer with the most pooled votes; -1 on a tie or without answers."""
    size = len(votes.totals)
    top = np.zeros(size)
    np.maximum.at(top, votes.prompts, votes.counts)
    at_top = votes.counts >= top[votes.prompts] - _SMALL
    leaders = np.full(size, -1, dtype=np.int64)
    leaders[votes.prompts[at_top]] = np.flatnonzero(at_top)
    leaders[np.bincount(votes.prompts[at_top], minlength=size) != 1] = -1
    return leaders


def answer_over_visits(tally: Tally, answers: NDArray[np.int64]) -> pl.DataFrame:
    """How one answer of each prompt fared, visit by visit.

    Args:
        tally: of P prompts.
        answers: (P,) numbers of answers; negative: none.

    Returns:
        A row a prompt: prompt, pass_rate (of the answer at the last visit), slope (of its pass rate over the visits, by
        least squares; 0 with one visit), consistency (share of the visits whose majority it is, R9); null without one.
    """
    chosen = pl.DataFrame({"prompt": np.arange(len(tally), dtype=np.int32), "chosen": answers})
    votes = (
        tally.counts.join(chosen, on="prompt")
        .group_by("prompt", "visit")
        .agg(
            own=pl.col("count").filter(pl.col("answer") == pl.col("chosen")).sum(),
            top=pl.col("count").max(),
            at_top=(pl.col("count") == pl.col("count").max()).sum(),
        )
    )
    rows = tally.visits.join(votes, on=["prompt", "visit"], how="left", maintain_order="left").with_columns(
        rate=pl.col("own").fill_null(0) / pl.col("rollouts"),
        won=((pl.col("own") == pl.col("top")) & (pl.col("at_top") == 1)).fill_null(False),
        time=pl.int_range(pl.len()).over("prompt") - (pl.len().over("prompt") - 1) / 2,
    )
    found = rows.group_by("prompt", maintain_order=True).agg(
        pass_rate=pl.col("rate").last(),
        slope=((pl.col("time") * pl.col("rate")).sum() / (pl.col("time") ** 2).sum()).fill_nan(0.0),
        consistency=pl.col("won").mean(),
    )
    has_answer = chosen.sort("prompt")["chosen"] >= 0
    return found.with_columns(pl.when(has_answer).then(pl.exclude("prompt")))


def judged(
    tally: Tally, votes: Votes, found: Likelihoods, noise: Noise, calibrations: Calibrations
) -> pl.DataFrame:
    """Every prompt with its evidence and what the audit makes of it, in the order of the tally.

    A prompt is *undecided*, and not wrong, if nobody solved it: no answer leads the pooled votes, or the leading one
    never got two rollouts of one visit (of any two visits, where a visit has one rollout). A tie proposes nothing.

    Returns:
        Columns prompt_id, status (`STATUSES`), given_label, proposed_label (the leading answer where it is not the
        given one), confidence (that the given label is wrong; null if undecided or missing), proposal_confidence (that
        the proposed label is right), visits, rollouts (K of the last visit), answered (rollouts of all visits),
        pass_rate, slope, consistency (of the proposal, else of the leading answer), given_pass_rate, and before
        calibration log_odds and proposal_log_odds.
    """
    leaders = leading_answers(votes)
    table = prompt_evidence(tally)
    is_solved = _is_solved(tally, leaders)
    is_missing = tally.label_answers == MISSING
    odds = wrong_log_odds(found, noise)
    chances = answer_chances(votes, found, tally.label_answers, noise)
    proposed = np.where(is_solved & (leaders != tally.label_answers), leaders, -1)
    proposal_odds = _log_odds(_of_answers(chances, proposed))
    confidence = np.where(is_solved & ~is_missing, calibrations.wrong.apply(odds), np.nan)
    proposal_map = (calibrations.unlabelled, calibrations.proposal)
    proposal_confidence = np.where(is_missing, *(c.apply(proposal_odds) for c in proposal_map))
    status = np.select(
        [~is_solved, is_missing, confidence >= 0.5], ["undecided", "missing", "doubted"], default="fine"
    )
    fared = answer_over_visits(tally, leaders).drop("prompt")
    given_rates = answer_over_visits(tally, tally.label_answers)["pass_rate"]
    spellings = tally.answers["spelling"]
    return pl.DataFrame(
        {
            "prompt_id": tally.prompt_ids,
            "status": status,
            "given_label": pl.Series(tally.labels, dtype=pl.String),
            "proposed_label": spelled(spellings, proposed),
            "confidence": _numbers(confidence),
            "proposal_confidence": _numbers(proposal_confidence),
            **{name: table[name] for name in ("visits", "rollouts", "answered")},
            **{name: fared[name] for name in fared.columns},
            "given_pass_rate": _given_rates(given_rates, is_missing),
            "log_odds": _numbers(np.where(is_missing, np.nan, odds)),
            "proposal_log_odds": _numbers(proposal_odds),
        }
    )


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
    """(A,) -> (P,): the value of each answer; not a number where its number is negative."""
    found = np.full(len(answers), np.nan)
    found[answers >= 0] = values[answers[answers >= 0]]
    return found


def spelled(spellings: pl.Series, answers: NDArray[np.int64]) -> pl.Series:
    """(P,) the spelling of each answer; null where it is negative."""
    return spellings.gather(pl.Series(answers).set(pl.Series(answers < 0), None))


def _numbers(values: Floats) -> pl.Series:
    return pl.Series(values, nan_to_null=True)


def _given_rates(rates: pl.Series, is_missing: NDArray[np.bool_]) -> pl.Series:
    """0 for a label that nobody gave, null without a label."""
    return pl.select(pl.when(~pl.Series(is_missing)).then(rates.fill_null(0.0))).to_series()


def _log_odds(chances: Floats) -> Floats:
    inside = np.clip(chances, 1e-12, 1 - 1e-12)
    return np.log(inside) - np.log1p(-inside)
