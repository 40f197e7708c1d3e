"""Which label looks wrong: every model is an annotator with an accuracy, and the label is one more annotator.

The model is that of Dawid & Skene (1979) with one accuracy per annotator. Theirs is for annotators who answer a
question once. An annotator who answers it often errs alike each time, so its answers are drawn from Pólya's urn. The
frequency with which annotator j is right differs from question to question, as Beta(s a_j, s (1 - a_j)). A wrong answer
is a new one of the M possible ones, or one that j gave before. Then, of n(c) answers c in one prompt,

    P(truth is c | j's answers)  ~  Γ(s a_j + n(c)) / (Γ(s a_j) Γ(n(c))) * M / (s (1 - a_j))       for n(c) > 0
                                 ~  1                                                             for n(c) = 0
    P(truth is c | the label c)  ~  λ M / (1 - λ)

and their product over all annotators. It grows with n(c) as a power, not exponentially as with independent answers; for
n(c) = 1 it is Dawid and Skene's. M counts the different answers and "none of them". EM estimates every a_j and λ. The
strength s measures how alike one annotator's accuracies on different questions are; it is the one of `STRENGTHS` with
the highest likelihood.

Several models have more in common than the truth:

- Hard questions are hard for all: the difficulty of a question lowers the log odds of every a_j. It is normal with mean
0, and its standard deviation is the one of `SPREADS` with the highest likelihood. P(truth is c) sums over it.
- They err alike: their wrong answers to a question are drawn from one more urn, which begins with α = `_ATTRACTION`
balls, α / M of each answer. If m(c) of m answers of models are c, then Γ(α/M) / Γ(α/M + m(c)) * Γ(α + m) / Γ(α + m -
m(c)) replaces M^m(c).
- M is the same for all questions, its mean. With a question's own M, a few models that scatter would add weight to the
many that agree, so dissent would count as evidence.
- Of many models, only the most accurate ones vote (`_VOTERS`).

An answer that agrees with a label never counts against the label, compared with no answer: bounds of the accuracies
ensure that.

The model uses neither the truth nor the marks of injected noise. Its chances are too bold if models err alike, so no
output shows them before verified labels calibrate them (`calibration`); only the order counts.
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
"""Candidate values of s, in rollouts."""

SPREADS = (0.0, 0.5, 1.0, 1.5)
"""Candidate standard deviations of difficulty, in log odds."""

_DIFFICULTIES = 5
"""Number of difficulties to sum over, by Gauss-Hermite quadrature."""

_ATTRACTION = 30.0
"""α, in models. The smaller it is, the less surprising is a wrong answer on which many models agree."""

_VOTERS, _NEARLY = 8, 0.5
"""Number of most accurate models that vote; models whose log odds are at most `_NEARLY` lower vote too."""

_ACCURACY, _TRUST = (2.0, 2.0), (9.0, 1.0)
"""Prior counts of right and wrong answers, for every annotator and for the label."""

_BOUNDS = (1 / 3, 0.99)
"""Bounds of the accuracies that count.

If M is 2, an answer of a model below 1/3 would speak against the label that it agrees with. For several models the
lower bound is `_least_accuracy`, if that is higher.
"""

_ESTIMATED = (0.0025, 0.9975)
"""Bounds of the estimated accuracies, on a question of middling difficulty."""

_MOST_ROUNDS, _CLOSE, _DIGITS = 100, 1e-6, 6


@dataclass(frozen=True)
class AnnotatorModel:
    """Estimates of how accurate each of J models is, and how likely the label of each of P prompts is wrong.

    `fit` makes it. Every language model is treated as an annotator with an accuracy. The labels are treated as the
    answers of one more annotator.
    """

    odds: Floats
    """(P,) log odds that the label is wrong; NaN without a label."""

    leaders: Numbers
    """(P,) the likeliest answer regardless of the label; -1 without answers, or on a tie."""

    agreement: Floats
    """(P,) the leader's share of the answers, each weighted by its model's accuracy."""

    accuracies: Floats
    """(J,) accuracies of the models, on average over all difficulties."""

    label_accuracy: float
    """Accuracy of the labels; NaN without labels."""

    strength: float
    """The value of `STRENGTHS` with the highest likelihood."""

    spread: float
    """The value of `SPREADS` with the highest likelihood."""

    is_voter: Bools
    """(J,) whether the model's answers count; of many models only the best do."""

    @property
    def is_settled(self) -> Bools:
        """(P,) whether one answer to the prompt is likelier than all others, and has at least half of the votes.

        The votes of each model are weighted by its accuracy. Labels do not vote.
        """
        return (self.leaders >= 0) & (self.agreement >= 0.5)


class _Parameters(NamedTuple):
    """Parameters of the annotator model.

    Accuracies and trust are estimated by expectation maximisation (EM). Strength and spread are chosen by likelihood,
    among `STRENGTHS` and `SPREADS`.

    Attributes:
        accuracies: (J,) chance that each model is right on a question of middling difficulty.
        trust: chance that a label is right.
        strength: how alike a model's accuracies on different questions are: the larger, the more alike.
        spread: standard deviation of the questions' difficulties, in log odds.
    """

    accuracies: Floats
    trust: float
    strength: float = STRENGTHS[0]
    spread: float = 0.0


class _Candidates:
    """Possible true answers to P prompts, C candidates in all, with the counts that are needed to weigh them.

    The candidates of a prompt are the answers that models gave, its label if no model gave it, and "none of them".

    Attributes:
        size: P.
        seen: number of candidates that models gave as answers. In arrays they come before all others.
        prompts: (C,) index of the prompt that each candidate belongs to.
        possible: (C,) how many answers are possible. With one model: the number of candidates of the same prompt, at
            least 2. With several models: the mean of these numbers over all prompts, the same in every entry.
        labels: indices of the candidates that are the label of their prompt.
        is_label: (C,) the same as a mask: whether the candidate is the label of its prompt.
    """

    def __init__(self, tally: Tally) -> None:
        self.size, self.seen = len(tally), len(tally.answers)
        unseen = np.flatnonzero(tally.label_answers == UNSEEN)
        self.prompts = np.concatenate(
            [tally.answers["prompt"].to_numpy(), unseen, np.arange(self.size)]
        )
        indices = tally.label_answers.copy()
        indices[unseen] = self.seen + np.arange(len(unseen))
        self.labels = indices[tally.label_answers != MISSING]
        self.is_label = np.zeros(len(self.prompts), dtype=bool)
        self.is_label[self.labels] = True
        self._answers, self._models, self._counts = (
            tally.counts[name].to_numpy() for name in ("answer", "model", "count")
        )
        size, models = len(self.prompts), len(tally.models)
        asked, many = self.prompts[self._answers], self._counts.max(initial=0) + 1
        # A weight depends on model and count alone, and few pairs of them are distinct.
        pairs, indices = np.unique(self._models * many + self._counts, return_inverse=True)
        self._of_models, self._often = np.divmod(pairs, many)
        ones = np.ones(len(asked))
        self._votes = _sparse_sums(ones, self._answers, indices, (size, len(pairs)))
        self._said = _sparse_sums(ones, asked, self._models, (self.size, models))
        self._gave = _sparse_sums(self._counts, self._models, self._answers, (models, size))
        self._given = _sparse_sums(self._counts, self._models, asked, (models, self.size))
        # Even without any answer there are two possible ones: the truth and a wrong one.
        possible = np.maximum(np.bincount(self.prompts), 2).astype(float)
        gave = np.bincount(self._answers, minlength=size)
        # A single model has no other to err alike with, so there is no common urn, and each prompt keeps its own M.
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
        """Return (C, D) the log weight of each candidate at each of D difficulties, by the models' answers alone.

        A weight is the product of two chances: that a question has the difficulty (`_difficulties`), and that the
        models give these answers if the candidate is true and the question has this difficulty. Weights are correct up
        to a factor per prompt.
        """
        strength = parameters.strength
        difficulties, log_chances = _difficulties(parameters.spread)
        accuracies = np.clip(
            _accuracies_at(parameters.accuracies, difficulties), *self._bounds
        )
        right = strength * accuracies[self._of_models]
        wrong = np.log(strength * (1 - accuracies))
        often = self._often[:, None]
        by_pair = gammaln(right + often) - gammaln(right) - gammaln(often)
        weights = self._votes @ (by_pair - wrong[self._of_models])
        # This term is equal for all candidates of a prompt, so only its differences between difficulties matter: shift
        # it to 0 at the middling one.
        all_wrong = self._said @ wrong
        all_wrong -= all_wrong[:, len(difficulties) // 2, None]
        weights += self._shared[:, None]
        return np.asarray(weights + (all_wrong + log_chances)[self.prompts])

    def scores(self, parameters: _Parameters) -> Floats:
        """Return (C, D) the log weight of each candidate at each of D difficulties, by answers and labels.

        This is the log weight by the models' answers alone (`by_answers`). A candidate that is the label of its prompt
        gets a bonus on top: the higher the chance that a label is right (`parameters.trust`), the larger the bonus.
        """
        trust = parameters.trust
        by_label = np.log(trust * self.possible / (1 - trust))
        return self.by_answers(parameters) + np.where(self.is_label, by_label, 0.0)[:, None]

    def sums(self, scores: Floats, among: Bools | None = None) -> Floats:
        """Return (P,) the log of each prompt's total weight, over its candidates and all difficulties.

        Args:
            scores: (C, D) log weights.
            among: (C,) whether to count the candidate; by default all count.
        """
        return _log_sums(
            np.logaddexp.reduce(scores, axis=1), self.prompts, self.size, among
        )

    def chances(self, scores: Floats) -> Floats:
        """Return (C, D) the chance that a candidate is the true answer and its question has this difficulty.

        `scores` are (C, D) log weights. The chances are exp(`scores`), scaled so that those of each prompt sum to 1.
        """
        # Reduce column by column: numpy takes three times as long to reduce many rows of a few difficulties.
        best = _tops(reduce(np.maximum, scores.T), self.prompts, self.size)
        weights = np.exp(scores - best[self.prompts, None])
        totals = np.bincount(self.prompts, reduce(np.add, weights.T), self.size)
        return np.asarray(weights / totals[self.prompts, None])

    def fitted(self, parameters: _Parameters) -> _Parameters:
        """Return the parameters with accuracies and trust fitted by EM, starting from the given ones.

        Strength and spread keep their values.
        """
        for _ in range(_MOST_ROUNDS):
            before, scores = parameters, self.scores(parameters)
            chances = self.chances(scores)
            # The M step, with the prior counts added: without them one label would get accuracy 0 or 1.
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
        """Return (J,) updated accuracies of the models on questions of middling difficulty: the M step of EM.

        The update is one step of Newton's method, which is exact if there is only one difficulty.

        Args:
            before: the parameters before the update.
            chances: (C, D) chance of each candidate and difficulty: the result of the E step.
        """
        middling = before.accuracies[:, None]
        accuracies = _accuracies_at(before.accuracies, _difficulties(before.spread)[0])
        # Derivative of the accuracy at each difficulty with respect to the accuracy at the middling one.
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
        """Return the log likelihood of all answers and labels, up to a constant.

        It is the log likelihood if every answer and label were wrong, plus the log of each prompt's total weight
        (`sums`), which says how much more likely the prompt's answers and label are than in that case.
        """
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
        """Fit the parameters once for each of the `shapes`, and return the fit with the highest likelihood.

        If several fits are equally likely, the first of them is returned.

        Args:
            parameters: where the first fit starts. Each later fit starts from the result of the one before.
            shapes: pairs of strength and spread (`_Parameters`). A fit keeps the two and estimates the other
                parameters.
        """
        fits = [parameters]
        for strength, spread in shapes:
            fits.append(self.fitted(fits[-1]._replace(strength=strength, spread=spread)))
        # `max` takes the first of equals. If every annotator answers once, all strengths have the same likelihood; the
        # rounding keeps noise in the last digits from choosing one.
        return max(fits[1:], key=lambda fit: round(self.log_likelihood(fit), _DIGITS))

    def agreement(self, leaders: Numbers, accuracies: Floats) -> Floats:
        """Return (P,) the share of the leading answer among all answers to the prompt.

        Each answer is weighted by the accuracy of the model that gave it.

        Args:
            leaders: (P,) index of the candidate that leads at each prompt; -1 for none, which gives a share of 0.
            accuracies: (J,) accuracies of the models.
        """
        weights = np.bincount(
            self._answers, self._counts * accuracies[self._models], self.seen
        )
        totals = np.bincount(self.prompts[: self.seen], weights, self.size)
        shares = np.zeros(self.size)
        is_led = leaders >= 0
        shares[is_led] = (weights[leaders[is_led]] / totals[is_led]).round(9)
        return shares


def fit(tally: Tally) -> AnnotatorModel:
    """Return the model whose parameters make all answers and labels of the tally likeliest."""
    start = _Parameters(np.full(len(tally.models), 0.5), _TRUST[0] / sum(_TRUST))
    strengths = [(strength, 0.0) for strength in STRENGTHS]
    candidates, answers = _Candidates(tally), np.arange(len(tally.answers))
    best = candidates.likeliest(start, strengths)
    accuracies, is_voter = best.accuracies, _are_voters(best.accuracies)
    if not is_voter.all():
        tally, answers = _of_voters(tally, is_voter)
        candidates = _Candidates(tally)
        # Refit without the models that do not vote, from the accuracies so far.
        start = start._replace(accuracies=accuracies[is_voter])
        best = candidates.likeliest(start, strengths)
    if len(tally.models) > 1:
        # Difficulty only matters between models, and costs `_DIFFICULTIES` times the work, so it is fitted last.
        best = candidates.likeliest(best, [(best.strength, spread) for spread in SPREADS])
    difficulties, log_chances = _difficulties(best.spread)
    accuracies[is_voter] = _accuracies_at(best.accuracies, difficulties) @ np.exp(
        log_chances
    )
    scores = candidates.scores(best)
    # Log odds that the label is wrong: the weight of all other candidates against that of the label.
    others = candidates.sums(scores, ~candidates.is_label)
    is_labelled = tally.label_answers != MISSING
    odds = np.full(len(tally), np.nan)
    by_label = np.logaddexp.reduce(scores[candidates.labels], axis=1)
    # Sums differ in the last digits on other processors. Round, so that equally doubtful labels tie everywhere and
    # the order of the queue is the same.
    odds[is_labelled] = np.round(others[is_labelled] - by_label, 9)
    alone = np.logaddexp.reduce(candidates.by_answers(best)[: candidates.seen], axis=1)
    leaders = _leaders(alone, candidates.prompts[: candidates.seen], len(tally))
    agreement = candidates.agreement(leaders, best.accuracies)
    # The voters' answers have numbers of their own; translate them back to those of the whole tally.
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
    """Return (J,) whether each model votes.

    The `_VOTERS` most accurate models vote. So does every model whose log odds of being right are at most `_NEARLY`
    below those of the least accurate of them.
    """
    log_odds = np.log(accuracies / (1 - accuracies))
    return np.asarray(log_odds >= np.sort(log_odds)[-_VOTERS:][0] - _NEARLY)


def _of_voters(tally: Tally, is_voter: Bools) -> tuple[Tally, Numbers]:
    """Return the tally of the voting models alone, and where its A answers are in the full tally.

    Args:
        tally: the full tally, of all models.
        is_voter: (J,) whether each model votes.

    Returns:
        The new tally, with its answers numbered from 0. A label that no voting model gave as an answer is `UNSEEN` in
            its `label_answers`.
        (A,) the index in the full tally of each answer in the new one.
    """
    counts = tally.counts.filter(is_voter[tally.counts["model"].to_numpy()])
    answers, indices = np.unique(counts["answer"].to_numpy(), return_inverse=True)
    models = (np.cumsum(is_voter) - 1)[counts["model"].to_numpy()]
    labels = np.where(
        np.isin(tally.label_answers, answers),
        np.searchsorted(answers, tally.label_answers),
        # A label that only other models gave becomes UNSEEN; MISSING is smaller and stays.
        np.minimum(tally.label_answers, UNSEEN),
    )
    return replace(
        tally,
        models=tuple(np.array(tally.models)[is_voter].tolist()),
        counts=counts.with_columns(model=models, answer=indices),
        answers=tally.answers[answers],
        label_answers=labels,
    ), answers


def _difficulties(spread: float) -> tuple[Floats, Floats]:
    """Return (D,) difficulties that a question may have, and (D,) the logarithms of how probable each one is.

    Difficulty d lowers every annotator's log odds of a right answer by d. The D points approximate a normal
    distribution with mean 0 and standard deviation `spread`. If `spread` is 0, the only difficulty is 0.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(_DIFFICULTIES if spread else 1)
    return spread * nodes, np.log(weights / weights.sum())


def _accuracies_at(accuracies: Floats, difficulties: Floats) -> Floats:
    """Return (J, D) the accuracy of each model at each difficulty.

    Args:
        accuracies: (J,) the models' accuracies at difficulty 0.
        difficulties: (D,) difficulties in log odds. A positive one lowers all accuracies.
    """
    middling = accuracies[:, None]
    return np.asarray(middling / (middling + (1 - middling) * np.exp(difficulties)))


def _least_accuracy(possible: float, models: int) -> float:
    """Return the lower bound on the accuracy of every model in the annotator model, at least `_BOUNDS[0]`.

    With a lower accuracy, a model that gives the label as its answer could make the label less likely. The bound
    prevents this even if all models give this answer.

    Args:
        possible: number of possible answers to the question.
        models: number of models.
    """
    agreeing, all_ = _ATTRACTION / possible + models - 1, _ATTRACTION + models - 1
    return max(agreeing / (agreeing + all_), _BOUNDS[0])


def _sparse_sums(
    values: Numbers | Floats, rows: Numbers, columns: Numbers, shape: tuple[int, int]
) -> csr_array:
    """Return a sparse matrix in which entry (r, c) is the sum of the values whose row is r and whose column is c."""
    return csr_array((values.astype(float), (rows, columns)), shape)


def _log_sums(
    scores: Floats, prompts: Numbers, size: int, among: Bools | None = None
) -> Floats:
    """Return (P,) the log of the sum of exp(`scores`) over the candidates of each prompt.

    Args:
        scores: (C,) log weight of each candidate.
        prompts: (C,) index of each candidate's prompt.
        size: P, the number of prompts.
        among: (C,) whether to count the candidate; by default all count.
    """
    if among is not None:
        scores, prompts = scores[among], prompts[among]
    top = _tops(scores, prompts, size)
    return np.asarray(
        top + np.log(np.bincount(prompts, np.exp(scores - top[prompts]), size))
    )


def _tops(scores: Floats, prompts: Numbers, size: int) -> Floats:
    """Return (P,) the largest score of each prompt; -inf for a prompt without scores.

    `prompts` has the index of each score's prompt, and `size` is P.
    """
    top = np.full(size, -np.inf)
    np.maximum.at(top, prompts, scores)
    return top


def _leaders(scores: Floats, prompts: Numbers, size: int) -> Numbers:
    """Return (P,) the index of each prompt's highest score; -1 if a prompt has no score or several equally high ones.

    `prompts` has the index of each score's prompt, and `size` is P.
    """
    top = _tops(scores, prompts, size)
    at_top = np.flatnonzero(scores >= top[prompts] - 1e-9)
    leaders = np.full(size, -1)
    leaders[prompts[at_top]] = at_top
    leaders[np.bincount(prompts[at_top], minlength=size) > 1] = -1
    return leaders
