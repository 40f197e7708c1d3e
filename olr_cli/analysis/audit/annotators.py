r"""Which label looks wrong: every model is an annotator with an accuracy, and the label is one annotator more.

The model is that of Dawid & Skene (1979) with one accuracy an annotator. It is for annotators who answer a question
once. One that answers it often errs alike each time, so its answers are drawn from Pólya's urn: how often annotator j
is right differs from question to question, as Beta(s a_j, s (1 - a_j)); a wrong answer is a new one of the M possible
ones, or one that it gave before. Then, of n(c) answers c in one prompt,

    P(truth is c | j's answers)  ~  Γ(s a_j + n(c)) / (Γ(s a_j) Γ(n(c))) * M / (s (1 - a_j))       for n(c) > 0
                                 ~  1                                                             for n(c) = 0
    P(truth is c | the label c)  ~  λ M / (1 - λ)

and their product over all annotators. It grows with n(c) as a power, not exponentially as with independent answers; for
n(c) = 1 it is Dawid and Skene's. M counts the different answers and "none of them". EM estimates every a_j and λ; s,
how alike one annotator's accuracies on different questions are, is that of `STRENGTHS` under which all is likeliest.

It sees neither the truth nor the marks of injected noise. Its chances are too bold where models err alike, so nothing
shows them before verified labels calibrate them (`calibration`); what counts is the order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from olr_cli.analysis.audit.tally import MISSING, UNSEEN, Tally

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Numbers: TypeAlias = NDArray[np.int64]

STRENGTHS = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
"""Values of s, in rollouts."""

_ACCURACY, _TRUST = (2.0, 2.0), (9.0, 1.0)
"""Right and wrong answers that every annotator, and the label, is taken to have given before."""

_BOUNDS = (0.01, 0.99)
_MOST_ROUNDS, _CLOSE, _SMALL = 100, 1e-6, 1e-6


@dataclass(frozen=True)
class AnnotatorModel:
    """The model, fitted to the answers to P prompts and their labels.

    Attributes:
        odds: (P,) log odds that the label is wrong; NaN without a label.
        leaders: (P,) the likeliest answer, whatever the label says; -1 without answers, or on a tie.
        agreement: (P,) its share of the answers, each of which counts as much as its model is right.
        accuracies: of the models, (J,).
        label_accuracy: of the labels; NaN without labels.
        strength: s.
    """

    odds: Floats
    leaders: Numbers
    agreement: Floats
    accuracies: Floats
    label_accuracy: float
    strength: float

    @property
    def is_settled(self) -> Bools:
        """(P,) whether at least half of the answers agree; else they scatter."""
        return (self.leaders >= 0) & (self.agreement >= 0.5)


def fit(tally: Tally) -> AnnotatorModel:
    """The model that is likeliest, given all answers and labels."""
    size, seen = len(tally), len(tally.answers)
    is_labelled = tally.label_answers != MISSING
    unseen = np.flatnonzero(tally.label_answers == UNSEEN)
    # Candidates for the truth: the answers, labels that nobody gave, and for every prompt "none of them".
    prompts = np.concatenate([tally.answers["prompt"].to_numpy(), unseen, np.arange(size)])
    label_places = tally.label_answers.copy()
    label_places[unseen] = seen + np.arange(len(unseen))
    labels = label_places[is_labelled]
    possible = np.maximum(np.bincount(prompts, minlength=size), 2).astype(float)[prompts]
    is_label = np.zeros(len(prompts), dtype=bool)
    is_label[labels] = True
    answers, models, counts = (tally.counts[name].to_numpy() for name in ("answer", "model", "count"))
    given = np.bincount(models, counts, len(tally.models))
    totals = np.bincount(models * size + prompts[answers], counts, len(given) * size).reshape(
        len(given), size
    )

    def by_answers(accuracies: Floats, strength: float) -> Floats:
        weights = _log_weights(counts, accuracies[models], strength) + np.log(possible[answers])
        return np.asarray(np.bincount(answers, weights, len(prompts)), dtype=float)

    def with_labels(scores: Floats, trust: float) -> Floats:
        return scores + np.where(is_label, np.log(trust * possible / (1 - trust)), 0.0)

    def likelihood(scores: Floats, accuracies: Floats, trust: float, strength: float) -> float:
        """But for a constant: as if no answer were right, and how much likelier it is if one is."""
        wrong = np.log(strength * (1 - accuracies))[models] - np.log(possible[answers])
        urns = gammaln(strength) - gammaln(strength + totals)
        return float(
            _log_sums(scores, prompts, size).sum() + wrong.sum() + urns.sum() + len(labels) * np.log1p(-trust)
        )

    accuracies, trust = np.full(len(tally.models), 0.5), _TRUST[0] / sum(_TRUST)
    fits = []
    for strength in STRENGTHS:
        for _ in range(_MOST_ROUNDS):
            before = (accuracies, trust)
            scores = with_labels(by_answers(accuracies, strength), trust)
            chances = np.exp(scores - _log_sums(scores, prompts, size)[prompts])
            right = np.bincount(models, chances[answers] * counts, len(tally.models))
            accuracies = np.clip((right + _ACCURACY[0]) / (given + sum(_ACCURACY)), *_BOUNDS)
            trust = (chances[labels].sum() + _TRUST[0]) / (len(labels) + sum(_TRUST))
            if max(np.abs(accuracies - before[0]).max(), abs(trust - before[1])) < _CLOSE:
                break
        scores = with_labels(by_answers(accuracies, strength), trust)
        fits.append((likelihood(scores, accuracies, trust, strength), strength, accuracies, trust))
    # Of annotators who answer once every strength is as likely.
    best = max(fit[0] for fit in fits)
    _, strength, accuracies, trust = next(fit for fit in fits if fit[0] > best - _SMALL)
    alone = by_answers(accuracies, strength)
    scores = with_labels(alone, trust)
    odds = np.full(size, np.nan)
    odds[is_labelled] = _log_sums(scores, prompts, size, ~is_label)[is_labelled] - scores[labels]
    leaders = _leaders(alone[:seen], prompts[:seen], size)
    weights = np.bincount(answers, counts * accuracies[models], seen)
    agreement = np.zeros(size)
    is_led = leaders >= 0
    agreement[is_led] = (weights[leaders[is_led]] / np.bincount(prompts[:seen], weights, size)[is_led]).round(
        9
    )
    return AnnotatorModel(
        odds, leaders, agreement, accuracies, float(trust) if len(labels) else np.nan, strength
    )


def _log_weights(counts: NDArray[np.int32], accuracies: Floats, strength: float) -> Floats:
    """(N,) of so many answers of an annotator with such an accuracy, without M."""
    right, wrong = strength * accuracies, strength * (1 - accuracies)
    return np.asarray(gammaln(right + counts) - gammaln(right) - gammaln(counts) - np.log(wrong))


def _log_sums(scores: Floats, prompts: Numbers, size: int, among: Bools | None = None) -> Floats:
    """(P,) logarithm of the sum of exp(scores), over all or some candidates of each prompt."""
    if among is not None:
        scores, prompts = scores[among], prompts[among]
    top = np.full(size, -np.inf)
    np.maximum.at(top, prompts, scores)
    return np.asarray(top + np.log(np.bincount(prompts, np.exp(scores - top[prompts]), size)))


def _leaders(scores: Floats, prompts: Numbers, size: int) -> Numbers:
    """The one likeliest answer of each prompt; -1 if there is none."""
    top = np.full(size, -np.inf)
    np.maximum.at(top, prompts, scores)
    at_top = np.flatnonzero(scores >= top[prompts] - 1e-9)
    leaders = np.full(size, -1)
    leaders[prompts[at_top]] = at_top
    leaders[np.bincount(prompts[at_top], minlength=size) > 1] = -1
    return leaders
