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

Several models have more in common than the truth:

- Hard questions are hard for all: the difficulty of a question lowers the log odds of every a_j. It is normal with mean
  0, and its standard deviation is that of `SPREADS` under which all is likeliest. P(truth is c) sums over it.
- They err alike: their wrong answers to a question are drawn from one more urn, which begins with α = `_ATTRACTION`
  balls, α / M of each answer. If m(c) of m answers of models are c, in place of M^m(c) stands
  Γ(α/M) / Γ(α/M + m(c)) * Γ(α + m) / Γ(α + m - m(c)).
- M is the same for all questions, its mean. With a question's own M a few models that scatter would add weight to the
  many that agree, so dissent would count as evidence.
- Of many models only the likeliest to be right vote (`_VOTERS`).

An answer that agrees with a label never counts against it, compared with none: bounds of the accuracies see to that.

It sees neither the truth nor the marks of injected noise. Its chances are too bold where models err alike, so nothing
shows them before verified labels calibrate them (`calibration`); what counts is the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import gammaln

from olr_cli.analysis.audit.tally import MISSING, UNSEEN, Tally

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Numbers: TypeAlias = NDArray[np.int64]

STRENGTHS = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
"""Values of s, in rollouts."""

SPREADS = (0.0, 0.5, 1.0, 1.5)
"""Standard deviations of difficulty, in log odds."""

_DIFFICULTIES = 5
"""Values of it over which is summed, by Gauss and Hermite."""

_ATTRACTION = 30.0
"""α, in models. The smaller it is, the less a wrong answer on which many models agree surprises."""

_VOTERS, _NEARLY = 8, 0.5
"""The models likeliest to be right vote: so many, and those whose log odds are at most so much lower."""

_ACCURACY, _TRUST = (2.0, 2.0), (9.0, 1.0)
"""Right and wrong answers that every annotator, and the label, is taken to have given before."""

_BOUNDS = (1 / 3, 0.99)
"""Of the accuracies that count. Where M is 2, an answer of a model below 1/3 would speak against the label that it
agrees with; of several models it is `_least_accuracy` if that is more."""

_ESTIMATED = (0.0025, 0.9975)
"""Bounds of those that are estimated, on a question of middling difficulty."""

_MOST_ROUNDS, _CLOSE, _DIGITS = 100, 1e-6, 6


@dataclass(frozen=True)
class AnnotatorModel:
    """The model, fitted to the answers to P prompts and their labels.

    Attributes:
        odds: (P,) log odds that the label is wrong; NaN without a label.
        leaders: (P,) the likeliest answer, whatever the label says; -1 without answers, or on a tie.
        agreement: (P,) its share of the answers, each of which counts as much as its model is right.
        accuracies: (J,) of the models, on average over all difficulties.
        label_accuracy: NaN without labels.
        strength, spread: those under which all answers and labels are likeliest.
        is_voter: (J,) whether the model's answers count; of many models only those of the best do.
    """

    odds: Floats
    leaders: Numbers
    agreement: Floats
    accuracies: Floats
    label_accuracy: float
    strength: float
    spread: float
    is_voter: Bools

    @property
    def is_settled(self) -> Bools:
        """(P,) whether at least half of the answers agree; else they scatter."""
        return (self.leaders >= 0) & (self.agreement >= 0.5)


class _Parameters(NamedTuple):
    """What is estimated: by EM the accuracies (J,) at middling difficulty and the labels', by trial the rest."""

    accuracies: Floats
    trust: float
    strength: float = STRENGTHS[0]
    spread: float = 0.0


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
        places = tally.label_answers.copy()
        places[unseen] = self.seen + np.arange(len(unseen))
        self.labels = places[tally.label_answers != MISSING]
        self.is_label = np.zeros(len(self.prompts), dtype=bool)
        self.is_label[self.labels] = True
        self._answers, self._models, self._counts = (
            tally.counts[name].to_numpy() for name in ("answer", "model", "count")
        )
        size, models = len(self.prompts), len(tally.models)
        asked, many = self.prompts[self._answers], self._counts.max(initial=0) + 1
        # A weight depends on model and count alone, and few pairs of them are distinct.
        pairs, places = np.unique(self._models * many + self._counts, return_inverse=True)
        self._of_models, self._often = np.divmod(pairs, many)
        ones = np.ones(len(asked))
        self._votes = _sums(ones, self._answers, places, (size, len(pairs)))
        self._said = _sums(ones, asked, self._models, (self.size, models))
        self._gave = _sums(self._counts, self._models, self._answers, (models, size))
        self._given = _sums(self._counts, self._models, asked, (models, self.size))
        possible = np.maximum(np.bincount(self.prompts), 2).astype(float)
        gave = np.bincount(self._answers, minlength=size)
        if models == 1:
            self.possible = possible[self.prompts]
            self._bounds = _BOUNDS
            self._shared = gave * np.log(self.possible)
        else:
            self.possible = np.full(size, possible.mean())
            self._bounds = (_least_accuracy(self.possible[0], models), _BOUNDS[1])
            given = np.bincount(asked, minlength=self.size)[self.prompts]
            own, all_ = _ATTRACTION / self.possible, _ATTRACTION + given
            self._shared = (
                gammaln(own) - gammaln(own + gave) + gammaln(all_) - gammaln(all_ - gave)
            )

    def by_answers(self, parameters: _Parameters) -> Floats:
        """(C, D) log weights for each of D difficulties, whatever the labels say."""
        strength = parameters.strength
        difficulties, log_chances = _difficulties(parameters.spread)
        accuracies = np.clip(_at(parameters.accuracies, difficulties), *self._bounds)
        right = strength * accuracies[self._of_models]
        wrong = np.log(strength * (1 - accuracies))
        often = self._often[:, None]
        by_pair = gammaln(right + often) - gammaln(right) - gammaln(often)
        weights = self._votes @ (by_pair - wrong[self._of_models])
        # The same for all candidates of a prompt, but not for all difficulties: 0 at the middling one.
        all_wrong = self._said @ wrong
        all_wrong -= all_wrong[:, len(difficulties) // 2, None]
        weights += self._shared[:, None]
        return np.asarray(weights + (all_wrong + log_chances)[self.prompts])

    def scores(self, parameters: _Parameters) -> Floats:
        """(C, D) log weights with the labels, each right with probability `trust`."""
        trust = parameters.trust
        by_label = np.log(trust * self.possible / (1 - trust))
        return self.by_answers(parameters) + np.where(self.is_label, by_label, 0.0)[:, None]

    def sums(self, scores: Floats, among: Bools | None = None) -> Floats:
        """(P,) logarithm of the sum of exp(scores (C, D)), over all or some candidates of each prompt."""
        return _log_sums(
            np.logaddexp.reduce(scores, axis=1), self.prompts, self.size, among
        )

    def chances(self, scores: Floats) -> Floats:
        """(C, D) of each candidate and difficulty among those of its prompt, given their scores."""
        # Column by column: to reduce rows of a few difficulties takes numpy three times as long.
        best = _tops(reduce(np.maximum, scores.T), self.prompts, self.size)
        weights = np.exp(scores - best[self.prompts, None])
        totals = np.bincount(self.prompts, reduce(np.add, weights.T), self.size)
        return np.asarray(weights / totals[self.prompts, None])

    def fitted(self, parameters: _Parameters) -> _Parameters:
        """The accuracies of the models and of the labels by EM, from these on."""
        for _ in range(_MOST_ROUNDS):
            before, scores = parameters, self.scores(parameters)
            chances = self.chances(scores)
            trust = (chances[self.labels].sum() + _TRUST[0]) / (
                len(self.labels) + sum(_TRUST)
            )
            parameters = before._replace(
                accuracies=self._accuracies(before, chances), trust=float(trust)
            )
            moved = np.abs(parameters.accuracies - before.accuracies).max()
            if max(moved, abs(trust - before.trust)) < _CLOSE:
                break
        return parameters

    def _accuracies(self, before: _Parameters, chances: Floats) -> Floats:
        """(J,) accuracies after one step of Newton's method, given the chances (C, D) of all candidates.

        With one difficulty the first step arrives.
        """
        middling = before.accuracies[:, None]
        accuracies = _at(before.accuracies, _difficulties(before.spread)[0])
        slopes = accuracies * (1 - accuracies) / (middling * (1 - middling))
        by_prompt = np.stack(
            [np.bincount(self.prompts, column, self.size) for column in chances.T], axis=1
        )
        given = self._given @ (by_prompt / by_prompt.sum(axis=1, keepdims=True))
        right = self._gave @ chances - given * (accuracies - slopes * middling)
        changed = (given * slopes).sum(axis=1) + sum(_ACCURACY)
        updated = (right.sum(axis=1) + _ACCURACY[0]) / changed
        return np.asarray(np.clip(updated, *_ESTIMATED))

    def log_likelihood(self, parameters: _Parameters) -> float:
        """But for a constant: as if every answer were wrong, and how much likelier it is as one may be right."""
        strength = parameters.strength
        accuracies = np.clip(parameters.accuracies, *self._bounds)
        wrong = np.log(strength * (1 - accuracies))[self._models]
        urns = gammaln(strength) - gammaln(strength + self._given.data)
        gained = self.sums(self.scores(parameters))
        return float(
            gained.sum()
            + wrong.sum()
            + urns.sum()
            + len(self.labels) * np.log1p(-parameters.trust)
        )

    def likeliest(
        self, parameters: _Parameters, shapes: Sequence[tuple[float, float]]
    ) -> _Parameters:
        """The likeliest parameters with one of these strengths and spreads, each fitted from where the last ended."""
        fits = [parameters]
        for strength, spread in shapes:
            fits.append(self.fitted(fits[-1]._replace(strength=strength, spread=spread)))
        # The first one: of annotators who answer once every strength is as likely.
        return max(fits[1:], key=lambda fit: round(self.log_likelihood(fit), _DIGITS))

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
    start = _Parameters(np.full(len(tally.models), 0.5), _TRUST[0] / sum(_TRUST))
    strengths = [(strength, 0.0) for strength in STRENGTHS]
    candidates, answers = _Candidates(tally), np.arange(len(tally.answers))
    best = candidates.likeliest(start, strengths)
    accuracies, is_voter = best.accuracies, _are_voters(best.accuracies)
    if not is_voter.all():
        tally, answers = _answers_of(tally, is_voter)
        candidates = _Candidates(tally)
        start = start._replace(accuracies=accuracies[is_voter])
        best = candidates.likeliest(start, strengths)
    if len(tally.models) > 1:
        best = candidates.likeliest(best, [(best.strength, spread) for spread in SPREADS])
    difficulties, log_chances = _difficulties(best.spread)
    accuracies[is_voter] = _at(best.accuracies, difficulties) @ np.exp(log_chances)
    scores = candidates.scores(best)
    others = candidates.sums(scores, ~candidates.is_label)
    is_labelled = tally.label_answers != MISSING
    odds = np.full(len(tally), np.nan)
    by_label = np.logaddexp.reduce(scores[candidates.labels], axis=1)
    # Sums in another order, or on another processor, differ in the last digits: such labels are equally doubtful.
    odds[is_labelled] = np.round(others[is_labelled] - by_label, 9)
    alone = np.logaddexp.reduce(candidates.by_answers(best)[: candidates.seen], axis=1)
    leaders = _leaders(alone, candidates.prompts[: candidates.seen], len(tally))
    agreement = candidates.agreement(leaders, best.accuracies)
    leaders[leaders >= 0] = answers[leaders[leaders >= 0]]
    return AnnotatorModel(
        odds,
        leaders,
        agreement,
        accuracies,
        best.trust if len(candidates.labels) else np.nan,
        best.strength,
        best.spread,
        is_voter,
    )


def _are_voters(accuracies: Floats) -> Bools:
    """(J,) whether each model votes."""
    log_odds = np.log(accuracies / (1 - accuracies))
    return np.asarray(log_odds >= np.sort(log_odds)[-_VOTERS:][0] - _NEARLY)


def _answers_of(tally: Tally, is_voter: Bools) -> tuple[Tally, Numbers]:
    """The tally of the voters alone, whose answers are numbered anew, and the former number of each answer."""
    counts = tally.counts.filter(is_voter[tally.counts["model"].to_numpy()])
    answers, places = np.unique(counts["answer"].to_numpy(), return_inverse=True)
    models = (np.cumsum(is_voter) - 1)[counts["model"].to_numpy()]
    labels = np.where(
        np.isin(tally.label_answers, answers),
        np.searchsorted(answers, tally.label_answers),
        np.minimum(tally.label_answers, UNSEEN),
    )
    return replace(
        tally,
        models=tuple(np.array(tally.models)[is_voter].tolist()),
        counts=counts.with_columns(model=models, answer=places),
        answers=tally.answers[answers],
        label_answers=labels,
    ), answers


def _difficulties(spread: float) -> tuple[Floats, Floats]:
    """(D,) difficulties of questions, and the logarithms of their chances."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_DIFFICULTIES if spread else 1)
    return spread * nodes, np.log(weights / weights.sum())


def _at(accuracies: Floats, difficulties: Floats) -> Floats:
    """(J, D) accuracies at difficulties, given those at the middling one."""
    middling = accuracies[:, None]
    return np.asarray(middling / (middling + (1 - middling) * np.exp(difficulties)))


def _least_accuracy(possible: float, models: int) -> float:
    """The accuracy below which the last of so many equal answers would speak against the label that it agrees with."""
    own, all_ = _ATTRACTION / possible + models - 1, _ATTRACTION + models - 1
    return max(own / (own + all_), _BOUNDS[0])


def _sums(
    values: Numbers | Floats, rows: Numbers, columns: Numbers, shape: tuple[int, int]
) -> csr_array:
    """The matrix that has at each row and column the sum of these values."""
    return csr_array((values.astype(float), (rows, columns)), shape)


def _log_sums(
    scores: Floats, prompts: Numbers, size: int, among: Bools | None = None
) -> Floats:
    """(P,) logarithm of the sum of exp(scores), over all or some candidates of each prompt."""
    if among is not None:
        scores, prompts = scores[among], prompts[among]
    top = _tops(scores, prompts, size)
    return np.asarray(
        top + np.log(np.bincount(prompts, np.exp(scores - top[prompts]), size))
    )


def _tops(scores: Floats, prompts: Numbers, size: int) -> Floats:
    """(P,) the largest score of each prompt, -inf without any."""
    top = np.full(size, -np.inf)
    np.maximum.at(top, prompts, scores)
    return top


def _leaders(scores: Floats, prompts: Numbers, size: int) -> Numbers:
    """The one likeliest answer of each prompt; -1 if there is none."""
    top = _tops(scores, prompts, size)
    at_top = np.flatnonzero(scores >= top[prompts] - 1e-9)
    leaders = np.full(size, -1)
    leaders[prompts[at_top]] = at_top
    leaders[np.bincount(prompts[at_top], minlength=size) > 1] = -1
    return leaders
