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

_BOUNDS = (1 / 3, 0.99)
"""Of the accuracies. Where M is 2, an answer of a model below 1/3 would speak against the label that it agrees with."""

_MOST_ROUNDS, _CLOSE, _SMALL = 100, 1e-6, 1e-6


@dataclass(frozen=True)
class AnnotatorModel:
    """The model, fitted to the answers to P prompts and their labels.

    Attributes:
        odds: (P,) log odds that the label is wrong; NaN without a label.
        leaders: (P,) the likeliest answer, whatever the label says; -1 without answers, or on a tie.
        agreement: (P,) its share of the answers, each of which counts as much as its model is right.
        accuracies: of the models, (J,).
        label_accuracy: NaN without labels.
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


class _Candidates:
    """What may be the truth of each prompt: its answers, a label that nobody gave, and "none of them".

    Attributes:
        prompts: (C,) the prompt of each candidate; answers come first.
        possible: (C,) M of the prompt.
        labels: the candidates that are labels.
        is_label: (C,)
    """

    def __init__(self, tally: Tally) -> None:
        self.size, self.seen = len(tally), len(tally.answers)
        unseen = np.flatnonzero(tally.label_answers == UNSEEN)
        self.prompts = np.concatenate(
            [tally.answers["prompt"].to_numpy(), unseen, np.arange(self.size)]
        )
        self.possible = np.maximum(np.bincount(self.prompts), 2).astype(float)[self.prompts]
        places = tally.label_answers.copy()
        places[unseen] = self.seen + np.arange(len(unseen))
        self.labels = places[tally.label_answers != MISSING]
        self.is_label = np.zeros(len(self.prompts), dtype=bool)
        self.is_label[self.labels] = True
        self._answers, self._models, self._counts = (
            tally.counts[name].to_numpy() for name in ("answer", "model", "count")
        )
        # A weight depends on model and count alone, and few pairs of them are distinct.
        both = np.stack([self._models, self._counts])
        (self._of_models, self._often), places = np.unique(
            both, axis=1, return_inverse=True
        )
        self._pairs = places.ravel()  # in numpy 2.0 it has two axes
        self._given = np.bincount(self._models, self._counts, len(tally.models))
        self._log_possible = np.log(self.possible[self._answers])
        of_pairs = self._models.astype(np.int64) * self.size + self.prompts[self._answers]
        self._totals = np.bincount(
            np.unique(of_pairs, return_inverse=True)[1], self._counts
        )

    def by_answers(self, accuracies: Floats, strength: float) -> Floats:
        """(C,) log weights, whatever the labels say."""
        right, wrong = (
            strength * accuracies[self._of_models],
            strength * (1 - accuracies[self._of_models]),
        )
        weights = (
            gammaln(right + self._often)
            - gammaln(right)
            - gammaln(self._often)
            - np.log(wrong)
        )
        weights = weights[self._pairs] + self._log_possible
        return np.asarray(
            np.bincount(self._answers, weights, len(self.prompts)), dtype=float
        )

    def scores(self, accuracies: Floats, trust: float, strength: float) -> Floats:
        """(C,) log weights with the labels, each right with probability `trust`."""
        by_label = np.log(trust * self.possible / (1 - trust))
        return self.by_answers(accuracies, strength) + np.where(
            self.is_label, by_label, 0.0
        )

    def fitted(
        self, accuracies: Floats, trust: float, strength: float
    ) -> tuple[Floats, float]:
        """The accuracies of the models and of the labels by EM, from these on."""
        for _ in range(_MOST_ROUNDS):
            before = (accuracies, trust)
            scores = self.scores(accuracies, trust, strength)
            chances = np.exp(
                scores - _log_sums(scores, self.prompts, self.size)[self.prompts]
            )
            right = np.bincount(
                self._models, chances[self._answers] * self._counts, len(self._given)
            )
            accuracies = np.clip(
                (right + _ACCURACY[0]) / (self._given + sum(_ACCURACY)), *_BOUNDS
            )
            trust = (chances[self.labels].sum() + _TRUST[0]) / (
                len(self.labels) + sum(_TRUST)
            )
            if max(np.abs(accuracies - before[0]).max(), abs(trust - before[1])) < _CLOSE:
                break
        return accuracies, float(trust)

    def log_likelihood(self, accuracies: Floats, trust: float, strength: float) -> float:
        """But for a constant: as if every answer were wrong, and how much likelier it is as one may be right."""
        wrong = np.log(strength * (1 - accuracies))[self._models] - self._log_possible
        urns = gammaln(strength) - gammaln(strength + self._totals)
        gained = _log_sums(
            self.scores(accuracies, trust, strength), self.prompts, self.size
        )
        return float(
            gained.sum() + wrong.sum() + urns.sum() + len(self.labels) * np.log1p(-trust)
        )

    def agreement(self, leaders: Numbers, accuracies: Floats) -> Floats:
        """(P,) share of the answers that are the leading one, each counting as much as its model is right."""
        weights = np.bincount(
            self._answers, self._counts * accuracies[self._models], self.seen
        )
        totals = np.bincount(self.prompts[: self.seen], weights, self.size)
        shares = np.zeros(self.size)
        is_led = leaders >= 0
        shares[is_led] = (weights[leaders[is_led]] / totals[is_led]).round(9)
        return shares


def fit(tally: Tally) -> AnnotatorModel:
    """The model under which all answers and labels are likeliest."""
    candidates = _Candidates(tally)
    accuracies, trust = np.full(len(tally.models), 0.5), _TRUST[0] / sum(_TRUST)
    fits = []
    for strength in STRENGTHS:
        accuracies, trust = candidates.fitted(accuracies, trust, strength)
        fits.append(
            (
                candidates.log_likelihood(accuracies, trust, strength),
                accuracies,
                trust,
                strength,
            )
        )
    # Of annotators who answer once every strength is as likely.
    best = max(likelihood for likelihood, *_ in fits)
    _, accuracies, trust, strength = next(fit for fit in fits if fit[0] > best - _SMALL)
    scores, prompts = candidates.scores(accuracies, trust, strength), candidates.prompts
    others = _log_sums(scores, prompts, len(tally), ~candidates.is_label)
    is_labelled = tally.label_answers != MISSING
    odds = np.full(len(tally), np.nan)
    odds[is_labelled] = others[is_labelled] - scores[candidates.labels]
    alone = candidates.by_answers(accuracies, strength)
    leaders = _leaders(alone[: candidates.seen], prompts[: candidates.seen], len(tally))
    label_accuracy = trust if len(candidates.labels) else np.nan
    agreement = candidates.agreement(leaders, accuracies)
    return AnnotatorModel(odds, leaders, agreement, accuracies, label_accuracy, strength)


def _log_sums(
    scores: Floats, prompts: Numbers, size: int, among: Bools | None = None
) -> Floats:
    """(P,) logarithm of the sum of exp(scores), over all or some candidates of each prompt."""
    if among is not None:
        scores, prompts = scores[among], prompts[among]
    top = np.full(size, -np.inf)
    np.maximum.at(top, prompts, scores)
    return np.asarray(
        top + np.log(np.bincount(prompts, np.exp(scores - top[prompts]), size))
    )


def _leaders(scores: Floats, prompts: Numbers, size: int) -> Numbers:
    """The one likeliest answer of each prompt; -1 if there is none."""
    top = np.full(size, -np.inf)
    np.maximum.at(top, prompts, scores)
    at_top = np.flatnonzero(scores >= top[prompts] - 1e-9)
    leaders = np.full(size, -1)
    leaders[prompts[at_top]] = at_top
    leaders[np.bincount(prompts[at_top], minlength=size) > 1] = -1
    return leaders
