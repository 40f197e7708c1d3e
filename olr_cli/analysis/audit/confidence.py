"""From the model's log odds to confidences that mean what they say, and how good they are where the outcome is known.

    P = 1 / (1 + exp(-(intercept + slope * log odds))),  slope > 0

A logistic map of two parameters rather than isotonic regression: the order of the prompts stays as it is without ties,
no confidence is 0 or 1, and a few trusted labels can move the map without tearing it. The built-in maps were fitted on
the arithmetic task (`benchmarks/audit_quality.py --fit` makes calibration.json anew).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

from olr_cli import seeding
from olr_cli.analysis.audit.estimator import Bools, Floats, Model, fit
from olr_cli.answers import Judge
from olr_cli.data.interchange import Reading
from olr_cli.data.prompts import Prompt
from olr_cli.data.trusted import verified_answers

BUILT_IN = "calibration.json"

INTERCEPT_SD, LOG_SLOPE_SD = 2.0, 1.0
"""How far one's own data may lie from the built-in map, as standard deviations of the shrinkage's normal priors."""

FOLDS = 10
FEWEST = 10
"""Fewer trusted labels than this are not cross-validated."""

# Calibration ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Calibration:
    """One map; its slope is above 0."""

    intercept: float = 0.0
    slope: float = 1.0

    def apply(self, log_odds: Floats) -> Floats:
        """Confidences, shape like `log_odds`; NaN stays NaN."""
        return 1 / (1 + np.exp(-np.clip(self.intercept + self.slope * log_odds, -700, 700)))


@dataclass(frozen=True)
class Calibrations:
    """The maps of an audit.

    Attributes:
        wrong: that the given label is wrong.
        proposal: that the proposal in its place is right.
        unlabelled: that the proposal is right for a prompt without a label.
    """

    wrong: Calibration
    proposal: Calibration
    unlabelled: Calibration


def built_in() -> Calibrations:
    """The maps fitted on the arithmetic task."""
    text = resources.files("olr_cli.analysis.audit").joinpath(BUILT_IN).read_text("utf-8")
    return Calibrations(**{name: Calibration(**values) for name, values in json.loads(text).items()})


def fitted(log_odds: Floats, is_true: Bools, prior: Calibration | None = None) -> Calibration:
    """The map of largest likelihood; with a prior, the most probable map, of data with a few known outcomes.

    The priors are independent and normal, around the intercept and the logarithm of the slope of `prior`, with sd
    `INTERCEPT_SD` and `LOG_SLOPE_SD`; without outcomes the map is `prior`.

    Args:
        log_odds: (N,) of the prompts with a known outcome.
        is_true: (N,) their outcomes.
        prior: the map to shrink toward.
    """
    from scipy.optimize import minimize

    start = prior or Calibration()
    # The values decide little beyond where a confidence is 0 or 1 to four digits; they would decide all of a fit.
    bounded = np.clip(log_odds, -20, 20)
    sign = np.where(is_true, 1.0, -1.0)

    def loss(parameters: Floats) -> float:
        intercept, log_slope = parameters
        misses = np.logaddexp(0, -sign * (intercept + math.exp(log_slope) * bounded)).sum()
        off = (intercept - start.intercept) / INTERCEPT_SD, (log_slope - math.log(start.slope)) / LOG_SLOPE_SD
        return float(misses + (prior is not None) * (off[0] ** 2 + off[1] ** 2) / 2)

    best = minimize(loss, [start.intercept, math.log(start.slope)], bounds=[(-20, 20), (-6, 3)])
    return Calibration(float(best.x[0]), math.exp(float(best.x[1])))


# How good confidences are -----------------------------------------------------------------------------------------


def quality(confidence: Floats, is_wrong: Bools, *, threshold: float = 0.5) -> dict[str, float | None]:
    """How well doubt finds wrong labels.

    Args:
        confidence: (N,) that a label is wrong; NaN where undecided.
        is_wrong: (N,) the truth.
        threshold: from which confidence a label counts as doubted.

    Returns:
        Counts ``labels``, ``wrong`` and ``doubted``; ``precision``: share of wrong ones among the doubted; ``recall``:
        share of doubted ones among the wrong, undecided ones counting as missed; ``auroc`` among decided prompts. None
        for a share of nothing.
    """
    is_decided = ~np.isnan(confidence)
    is_doubted = is_decided & (np.nan_to_num(confidence) >= threshold)
    hits, doubted, wrong = (int(which.sum()) for which in (is_doubted & is_wrong, is_doubted, is_wrong))
    return {
        "labels": len(is_wrong),
        "wrong": wrong,
        "doubted": doubted,
        "precision": hits / doubted if doubted else None,
        "recall": hits / wrong if wrong else None,
        "auroc": auroc(confidence[is_decided], is_wrong[is_decided]),
    }


def auroc(scores: Floats, is_true: Bools) -> float | None:
    """Area under the ROC curve, ties counting half; None where all outcomes are alike."""
    from scipy.stats import rankdata

    positives = int(is_true.sum())
    negatives = len(is_true) - positives
    if not positives or not negatives:
        return None
    ranks = rankdata(scores)[is_true].sum()
    return float((ranks - positives * (positives + 1) / 2) / (positives * negatives))


def brier(confidence: Floats, is_true: Bools) -> float:
    """Mean squared error of confidences."""
    return float(np.mean((confidence - is_true) ** 2))


# Trusted labels ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrustedLabels:
    """What somebody has verified of P prompts.

    Attributes:
        answers: (P,) the true answer; None where it is not known, though the label may be known to be wrong.
        is_wrong: (P,) 1 or 0: whether the given label is wrong; NaN where that is not known.
        strangers: how many trusted prompts the history does not have.
    """

    answers: tuple[str | None, ...]
    is_wrong: Floats
    strangers: int = 0

    @property
    def labels(self) -> int:
        """How many labels are known to be right or wrong."""
        return int((~np.isnan(self.is_wrong)).sum())

    @property
    def unlabelled(self) -> int:
        """How many true answers are known of prompts without a label."""
        has_answer = np.array([answer is not None for answer in self.answers])
        return int((has_answer & np.isnan(self.is_wrong)).sum())

    @property
    def wrong(self) -> int:
        """How many of them are wrong."""
        return int((self.is_wrong == 1).sum())

    @property
    def wrong_interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the share of wrong labels if the trusted ones were drawn at random."""
        from scipy.stats import binomtest

        interval = binomtest(self.wrong, self.labels).proportion_ci(0.95, method="wilson")
        return float(interval.low), float(interval.high)


def read_trusted(
    file: Path,
    prompts: Mapping[str, Prompt],
    prompt_ids: Sequence[str],
    labels: Sequence[str | None],
    judge: Judge,
    reading: Reading = Reading(),  # noqa: B008 - it is immutable
) -> TrustedLabels:
    """What a file of verified answers (`verified_answers`) says of P prompts and their given labels.

    Args:
        file: of verified answers.
        prompts: by prompt_id, with the messages of those whose text is known.
        prompt_ids: (P,) of the history.
        labels: (P,) given labels.
        judge: decides which labels are right.
        reading: which columns of a data set hold what.

    Raises:
        UserError: the file can't be read or has no true answer, or none of its prompts is in the history.
    """
    answers = verified_answers(file, prompts, prompt_ids, reading)
    truths = tuple(answers.get(prompt_id) for prompt_id in prompt_ids)
    is_known = np.array([prompt_id in answers for prompt_id in prompt_ids])
    is_wrong = 1 - is_right(labels, truths, judge)
    is_wrong[
        is_known
        & np.array([truth is None and label is not None for truth, label in zip(truths, labels, strict=True)])
    ] = 1
    return TrustedLabels(truths, is_wrong, len(answers) - int(is_known.sum()))


def is_right(labels: Sequence[str | None], truths: Sequence[str | None], judge: Judge) -> Floats:
    """(P,) 1 or 0: whether a label means the truth; NaN where one of them is not known."""
    right = np.full(len(truths), np.nan)
    pairs = {
        p: (truth, label)
        for p, (label, truth) in enumerate(zip(labels, truths, strict=True))
        if label is not None and truth is not None
    }
    verdicts = judge.matches(pairs.values())
    for p, pair in pairs.items():
        right[p] = verdicts[pair] is True
    return right


def recalibrated(
    trusted: TrustedLabels, start: Calibrations, odds: Floats, proposal_odds: Floats, proposal_right: Floats
) -> Calibrations:
    """The maps `start` moved by trusted labels.

    Args:
        trusted: of P prompts.
        start: the built-in maps.
        odds: (P,) model log odds that the label is wrong; NaN where undecided.
        proposal_odds: (P,) that the proposal is right; NaN without one.
        proposal_right: (P,) 1 or 0: whether the proposal is right; NaN where that is not known.
    """
    is_labelled = ~np.isnan(trusted.is_wrong)
    return Calibrations(
        _moved(start.wrong, odds, trusted.is_wrong),
        _moved(start.proposal, np.where(is_labelled, proposal_odds, np.nan), proposal_right),
        _moved(start.unlabelled, np.where(is_labelled, np.nan, proposal_odds), proposal_right),
    )


def _moved(start: Calibration, log_odds: Floats, outcomes: Floats) -> Calibration:
    known = ~(np.isnan(log_odds) | np.isnan(outcomes))
    return fitted(log_odds[known], outcomes[known] > 0.5, start)


def calibrated_ratio(confidence: Floats, is_wrong: Floats) -> float:
    """The share of wrong labels that calibrated confidences (NaN where undecided) add up to; known ones count as known.

    Where the model is far from the data, this is nearer to the trusted labels than its rho.
    """
    return float(np.nanmean(np.where(np.isnan(is_wrong), confidence, is_wrong)))


@dataclass(frozen=True)
class CrossValidation:
    """How good confidences are on trusted labels, of decided prompts, that took no part in making them.

    `wrong` of the `labels` are wrong; the mean squared error is `brier`, and `brier_built_in` that of the built-in
    calibration without trusted labels.
    """

    labels: int
    wrong: int
    auroc: float | None
    brier: float
    brier_built_in: float


def cross_validated(
    trusted: TrustedLabels, model: Model, sharpness: float, is_decided: Bools, start: Calibration
) -> CrossValidation | None:
    """Fit and recalibrate without a tenth of the trusted labels, and look at those; all ten times.

    Args:
        trusted: of P prompts.
        model: its votes and labels are used.
        sharpness: of the prior.
        is_decided: (P,) whether the prompt gets a confidence.
        start: the built-in map that the label is wrong.

    Returns:
        None with fewer than `FEWEST` trusted labels of decided prompts.
    """
    used = np.flatnonzero(~np.isnan(trusted.is_wrong) & is_decided)
    if len(used) < FEWEST:
        return None
    is_wrong = trusted.is_wrong[used] > 0.5
    order = np.array(seeding.permutation(len(used), "audit folds", len(used)))
    confidence = np.empty(len(used))
    for fold in range(FOLDS):
        held_out = used[order[fold::FOLDS]]
        others = trusted.is_wrong.copy()
        others[held_out] = np.nan
        odds = fit(model.votes, model.labels, sharpness, others).wrong_log_odds()
        moved = _moved(start, np.where(is_decided, odds, np.nan), others)
        confidence[order[fold::FOLDS]] = moved.apply(odds[held_out])
    built_in_odds = fit(model.votes, model.labels, sharpness).wrong_log_odds()[used]
    return CrossValidation(
        len(used),
        int(is_wrong.sum()),
        auroc(confidence, is_wrong),
        brier(confidence, is_wrong),
        brier(start.apply(built_in_odds), is_wrong),
    )
