"""From the model's log odds to confidences that mean what they say, and how good they are where the outcome is known.

    P = 1 / (1 + exp(-(intercept + slope * log odds))),  slope > 0

How far a history's map lies from the identity is not known before labels of it are verified, the less so as policies
differ; it has a prior, which verified labels narrow. Confidences are means over the maps that remain, and the intervals
of everything that confidences add up to come from the same maps. The order of the prompts stays as it is, and no
confidence is 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from olr_cli import seeding
from olr_cli.analysis.audit.estimator import Bools, Floats, Model, fit, logistic
from olr_cli.answers import Judge

FOLDS = 10
FEWEST = 10
"""Fewer trusted labels than this are not cross-validated."""

_SMALL_ERROR, _ONE_SIDED = 0.05, 1.645
_CHANCE = 0.005
"""So unlikely a random draw is none."""

_NODES, _REACH = 11, 3.0
"""Maps along each direction, as far as so many standard deviations."""
_MOST_ROUNDS = 100
_LEAST = -200.0
_PROMPTS_AT_ONCE = 8192

# Calibration ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prior:
    """How far the map of a history may lie from the identity: means and standard deviations of two normals."""

    intercept: float
    log_slope: float
    intercept_sd: float
    log_slope_sd: float


Mixture: TypeAlias = Sequence[tuple[float, Prior]]
"""Probabilities, and the priors that hold with them."""

OTHER = 0.25
"""The probability that a policy is unlike the toys on whose histories the first priors below were fitted."""


def priors(*, is_training: bool, is_doubtful: bool) -> tuple[Mixture, Mixture]:
    """The priors of a history: of the map that a label is wrong, and of that that the proposal in its place is right.

    Those of the toys are the spread of maps fitted to histories of seeds 101 to 103 (`benchmarks/audit_quality.py
    --spread`). The errors of a policy that is not trained look like wrong labels, so that there is too much doubt;
    votes that are doubtful mean less than they say. The votes of the other policies mean little at any time: theirs
    is the spread over histories of a pretrained model, seed 101 of docs/real-model.md, before and in training.

    Args:
        is_training: whether the policy was in training.
        is_doubtful: after a single visit, or beyond the guard (`Noise.can_be_told`).
    """
    if not is_training:
        wrong = Prior(-2.6, 0.2, 1.5, 0.3) if is_doubtful else Prior(-1.0, 0.1, 1.8, 0.4)
        proposal = Prior(-0.4, -0.7, 0.7, 0.7)
    elif is_doubtful:
        wrong, proposal = Prior(0.0, -0.9, 0.8, 0.8), Prior(-0.4, -0.9, 0.6, 0.7)
    else:
        wrong, proposal = Prior(0.4, 0.0, 0.9, 0.4), Prior(-0.1, -0.2, 0.7, 0.5)
    others = Prior(-1.0, -2.8, 1.8, 1.4), Prior(-1.7, -1.6, 0.9, 0.7)
    return ((1 - OTHER, wrong), (OTHER, others[0])), ((1 - OTHER, proposal), (OTHER, others[1]))


@dataclass(frozen=True)
class Calibration:
    """The maps that a prior and verified labels leave, G of them.

    Attributes:
        intercepts: (G,)
        slopes: (G,) above 0.
        weights: (G,) their probabilities.
        parts: (G,) the part of the prior that each belongs to.
    """

    intercepts: Floats
    slopes: Floats
    weights: Floats
    parts: NDArray[np.int64]

    @property
    def of_parts(self) -> Floats:
        """(M,) the probabilities of the prior's parts."""
        return np.asarray(np.bincount(self.parts, self.weights))

    def chances(self, log_odds: Floats) -> Floats:
        """(G, N) under each map, of (N,) log odds; NaN stays NaN."""
        return logistic(self.intercepts[:, None] + self.slopes[:, None] * log_odds)

    def by_part(self, log_odds: Floats) -> Floats:
        """(M, N) confidences: the means over the maps of each of the prior's parts."""
        is_of_part = self.parts == np.arange(len(self.of_parts))[:, None]
        weights = np.where(is_of_part, self.weights, 0.0) / self.of_parts[:, None]
        pieces = np.split(log_odds, range(_PROMPTS_AT_ONCE, len(log_odds), _PROMPTS_AT_ONCE))
        return np.concatenate([weights @ self.chances(piece) for piece in pieces], axis=1)

    def apply(self, log_odds: Floats) -> Floats:
        """(N,) confidences: the means over the maps."""
        return self.of_parts @ self.by_part(log_odds)


@dataclass(frozen=True)
class Calibrations:
    """The maps of an audit, whose parts have one probability: a policy is unlike the toys in all of them, or in none.

    Attributes:
        wrong: that the given label is wrong.
        proposal: that the proposal in its place is right, if the label is wrong.
        unlabelled: that the proposal is right for a prompt without a label.
        is_measured: verified labels took part, so that they know the policy too.
    """

    wrong: Calibration
    proposal: Calibration
    unlabelled: Calibration
    is_measured: bool = False

    @property
    def joint_weights(self) -> Floats:
        """(G, H) the probabilities of a map that a label is wrong together with one of its proposal."""
        weights = (
            np.outer(self.wrong.weights, self.proposal.weights) / self.wrong.of_parts[self.proposal.parts]
        )
        return np.where(self.wrong.parts[:, None] == self.proposal.parts, weights, 0.0)


def calibration(prior: Mixture, log_odds: Floats, is_true: Bools) -> Calibration:
    """The maps that remain likely after N outcomes: of each part of the prior a grid around the most probable one.

    A grid's shape is that of the normal distribution which approximates theirs; their weights are exact, and so are,
    up to the grids' width, those of the parts.

    Args:
        prior: of the intercept and the logarithm of the slope.
        log_odds: (N,) of the prompts with a known outcome.
        is_true: (N,) their outcomes.
    """
    parts = [_grid(part, log_odds, is_true) for _, part in prior]
    losses = np.concatenate([loss - math.log(p) for (p, _), (_, loss) in zip(prior, parts, strict=True)])
    # What outcomes all but rule out keeps a probability that one can divide by.
    grid = np.concatenate([maps for maps, _ in parts])
    weights = np.exp(np.maximum(losses.min() - losses, _LEAST))
    numbers = np.repeat(np.arange(len(parts)), [len(maps) for maps, _ in parts])
    return Calibration(grid[:, 0], np.exp(grid[:, 1]), weights / weights.sum(), numbers)


def _grid(prior: Prior, log_odds: Floats, is_true: Bools) -> tuple[Floats, Floats]:
    """(G, 2) intercepts and log slopes, and (G,) minus the logarithm of their probability together with the outcomes,
    but for a constant that is the same for every prior.
    """
    # The values decide little beyond where a confidence is 0 or 1 to four digits; they would decide all of a fit.
    bounded = np.clip(log_odds, -20, 20)
    sign = np.where(is_true, 1.0, -1.0)
    mean, sd = (
        np.array([prior.intercept, prior.log_slope]),
        np.array([prior.intercept_sd, prior.log_slope_sd]),
    )

    def loss(parameters: Floats) -> Floats:  # (G, 2) -> (G,)
        odds = parameters[:, :1] + np.exp(parameters[:, 1:]) * bounded
        off = ((parameters - mean) / sd) ** 2
        return np.asarray(np.logaddexp(0, -sign * odds).sum(axis=1) + off.sum(axis=1) / 2)

    best = mean
    for _ in range(_MOST_ROUNDS):  # Newton's method with the Fisher information, halving steps that overshoot
        slope = math.exp(best[1])
        chance = logistic(best[0] + slope * bounded)
        changes = np.stack([np.ones(len(bounded)), slope * bounded])
        information = (changes * chance * (1 - chance)) @ changes.T + np.diag(sd**-2.0)
        step = np.linalg.solve(information, changes @ (is_true - chance) - (best - mean) / sd**2)
        while loss((best + step)[None])[0] > loss(best[None])[0] and np.abs(step).max() > 1e-6:
            step = step / 2
        best = best + step
        if np.abs(step).max() <= 1e-6:
            break
    ticks = np.linspace(-_REACH, _REACH, _NODES)
    axes = np.linalg.cholesky(np.linalg.inv(information))
    grid = best + np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2) @ axes.T
    cell = np.log(np.diag(axes)).sum() - np.log(sd).sum()
    return grid, loss(grid) - cell


# How good confidences are -----------------------------------------------------------------------------------------


def quality(confidence: Floats, is_wrong: Bools) -> dict[str, float | None]:
    """How well doubt finds wrong labels.

    Args:
        confidence: (N,) that a label is wrong; NaN where undecided.
        is_wrong: (N,) the truth.

    Returns:
        Counts ``labels``, ``wrong`` and ``doubted``; ``precision``: share of wrong ones among the doubted; ``recall``:
        share of doubted ones among the wrong, undecided ones counting as missed; ``auroc`` among decided prompts. None
        for a share of nothing.
    """
    is_decided = ~np.isnan(confidence)
    is_doubted = is_decided & (np.nan_to_num(confidence) >= 0.5)
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
    """

    answers: tuple[str | None, ...]
    is_wrong: Floats

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


def trusted_labels(
    answers: Mapping[str, str | None], prompt_ids: Sequence[str], labels: Sequence[str | None], judge: Judge
) -> TrustedLabels:
    """What verified answers say of P prompts and their given labels.

    Args:
        answers: prompt_id -> true answer; None where all that is known is that the label is wrong.
        prompt_ids: (P,) of the history.
        labels: (P,) given labels.
        judge: decides which labels are right.
    """
    truths = tuple(answers.get(prompt_id) for prompt_id in prompt_ids)
    is_known = np.array([prompt_id in answers for prompt_id in prompt_ids])
    is_wrong = 1 - is_right(labels, truths, judge)
    has_no_truth = [truth is None and label is not None for truth, label in zip(truths, labels, strict=True)]
    is_wrong[is_known & np.array(has_no_truth)] = 1
    return TrustedLabels(truths, is_wrong)


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


def calibrations(
    prior: tuple[Mixture, Mixture],
    trusted: TrustedLabels | None,
    odds: Floats,
    proposal_odds: Floats,
    proposal_right: Floats,
) -> Calibrations:
    """The maps after what is trusted.

    Args:
        prior: as of `priors`.
        trusted: of P prompts.
        odds: (P,) model log odds that the label is wrong; NaN where undecided.
        proposal_odds: (P,) that the proposal is right, if the label is wrong or missing; NaN without one.
        proposal_right: (P,) 1 or 0: whether the proposal is right; NaN where that is not known.
    """
    of_wrong, of_proposal = prior
    if trusted is None:
        nothing = np.empty(0)
        wrong, proposal = (calibration(p, nothing, nothing > 0) for p in prior)
        return Calibrations(wrong, proposal, proposal)
    is_wrong = trusted.is_wrong
    maps = (
        _moved(of_wrong, odds, is_wrong),
        _moved(of_proposal, np.where(is_wrong == 1, proposal_odds, np.nan), proposal_right),
        _moved(of_proposal, np.where(np.isnan(is_wrong), proposal_odds, np.nan), proposal_right),
    )
    before = np.array([p for p, _ in of_wrong])
    shares = before * np.prod([one.of_parts / before for one in maps], axis=0)
    shares = shares / shares.sum()
    wrong, proposal, unlabelled = (
        replace(one, weights=one.weights * (shares / one.of_parts)[one.parts]) for one in maps
    )
    return Calibrations(wrong, proposal, unlabelled, is_measured=True)


def _moved(prior: Mixture, log_odds: Floats, outcomes: Floats) -> Calibration:
    known = ~(np.isnan(log_odds) | np.isnan(outcomes))
    return calibration(prior, log_odds[known], outcomes[known] > 0.5)


def selection(trusted: TrustedLabels, log_odds: Floats) -> float | None:
    """How far trusted labels are from a random draw: the share of pairs of a trusted and another label in which the
    trusted one is in more doubt; None if that is as near to one half as chance may bring it.

    By the rank test of Mann and Whitney, on (P,) log odds that a label is wrong, NaN where nothing can be said.
    """
    from scipy.stats import mannwhitneyu

    is_known = ~np.isnan(trusted.is_wrong)
    drawn, others = (log_odds[which & ~np.isnan(log_odds)] for which in (is_known, ~is_known))
    if not len(drawn) or not len(others):
        return None
    test = mannwhitneyu(drawn, others)
    return float(test.statistic) / (len(drawn) * len(others)) if test.pvalue < _CHANCE else None


@dataclass(frozen=True)
class CrossValidation:
    """How good confidences are on trusted labels, of decided prompts, that took no part in making them.

    Attributes:
        labels: how many they are.
        wrong: how many of them are wrong.
        auroc: of the confidences; None where all are wrong, or none.
        brier: their mean squared error.
        brier_of_ratio: that of the share of wrong labels in place of every confidence.
        is_convincing: whether the first is surely, at 95 %, less than half of the second, or than `_SMALL_ERROR`.
    """

    labels: int
    wrong: int
    auroc: float | None
    brier: float
    brier_of_ratio: float
    is_convincing: bool


def cross_validated(
    trusted: TrustedLabels, model: Model, is_decided: Bools, prior: Mixture
) -> CrossValidation | None:
    """Fit and calibrate without a tenth of the trusted labels, and look at those; all ten times.

    Args:
        trusted: of P prompts.
        model: its votes and labels are used.
        is_decided: (P,) whether the prompt gets a confidence.
        prior: of the map that the label is wrong.

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
        odds = fit(model.votes, model.labels, others).wrong_log_odds()
        moved = _moved(prior, np.where(is_decided, odds, np.nan), others)
        confidence[order[fold::FOLDS]] = moved.apply(odds[held_out])
    size, wrong = len(used), int(is_wrong.sum())
    ratio = (wrong + 0.5) / (size + 1)
    errors, of_ratio = (confidence - is_wrong) ** 2, brier(np.full(size, ratio), is_wrong)
    most = (errors.sum() + 0.5) / (size + 1) + _ONE_SIDED * float(np.std(errors, ddof=1)) / math.sqrt(size)
    return CrossValidation(
        size,
        wrong,
        auroc(confidence, is_wrong),
        float(errors.mean()),
        of_ratio,
        bool(most < max(of_ratio / 2, _SMALL_ERROR)),
    )
