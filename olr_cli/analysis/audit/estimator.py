"""How many labels are wrong, and which: a mixture model of labels given what the rollouts said, fitted by EM.

    votes     n(c) = sum over visits v of decay^(last - v) count(c, v)               for every answer c of a prompt
    truth     prior(c) ~ n(c)^sharpness,  prior(nobody gave it) ~ 1
    label L   the truth with 1 - rho; else an answer nobody gave with 1 - alpha; else a wrong answer of the rollouts,
              drawn by share(c) ~ n(c)^draw:
                right(L) = prior(L)
                wrong(L) = sum over c != L of prior(c) share(L) / (1 - share(c))
                (an L that nobody gave: right = prior(nobody gave it), wrong = 1)
    EM        P(L wrong) = rho a wrong(L) / [rho a wrong(L) + (1 - rho) right(L)],
              a = alpha if L was given, else 1 - alpha
              rho = mean of P(L wrong);  alpha = share of that mass on labels that were given
    draw      that of `DRAWS` under which the labels are likeliest: 0 takes all wrong answers alike, 1 a random wrong
              rollout

It sees neither the truth nor the marks of injected noise. `sharpness` must exceed 1: at 1, and draw 1, a label that is
the truth and one that is a random wrong rollout are equally likely, and nothing can be learned. The labels hardly
determine it, so it is an assumption: 3 for a policy in training, whose errors fade from visit to visit, 2 for one that
stays as it is, whose systematic errors do not (docs/audit.md has the measurements).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from olr_cli import seeding
from olr_cli.analysis.audit.tally import MISSING, Tally

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Labels: TypeAlias = NDArray[np.int64]
"""(P,) as `Tally.label_answers`."""

DRAWS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""How much wrong labels may favour answers that are given often."""

_SMALL, _FLOOR, _TINY = 1e-9, 1e-12, 1e-300
_MOST_ROUNDS = 500
_REPLICATES = 200
_TAILS = (50 * (1 - 0.95), 50 * (1 + 0.95))
_RESOLUTION = 0.01  # of log-likelihood ratios, within which prompts are one to the bootstrap


@dataclass(frozen=True)
class Assumptions:
    """What the model takes for granted of a policy; the values were chosen on seeds 101 to 103 (docs/audit.md).

    Attributes:
        decay: weight of a visit's votes against those of the next.
        sharpness: how much likelier an answer with more votes is the truth.
        sharpnesses: those that the interval of the noise ratio spans.
    """

    decay: float
    sharpness: float
    sharpnesses: tuple[float, ...]


IN_TRAINING = Assumptions(0.8, 3.0, (2.0, 3.0, 4.0))
UNTRAINED = Assumptions(1.0, 2.0, (1.5, 2.0, 3.0))
"""The visits of a policy that stays as it is are worth the same."""


@dataclass(frozen=True)
class Votes:
    """The pooled votes of P prompts over A answers.

    Attributes:
        prompts: (A,) the prompt of each answer.
        counts: (A,) n(c).
    """

    prompts: NDArray[np.int64]
    counts: Floats
    size: int

    def summed(self, values: Floats) -> Floats:
        """(A,) -> (P,): the sum over each prompt's answers."""
        return np.asarray(np.bincount(self.prompts, values, self.size), dtype=float)


@dataclass(frozen=True)
class Noise:
    """How labels come to be wrong.

    Attributes:
        ratio: rho, the share of wrong labels.
        seen_share: alpha, the share of the wrong labels that some rollout gave.
        draw: how much the wrong labels that were given favour frequent answers.
    """

    ratio: float
    seen_share: float
    draw: float

    @property
    def can_be_told(self) -> bool:
        """Whether labels are more often right than wrong and given by rollouts: 1 - rho > rho alpha.

        Beyond it, agreement of the labels with the leading answer no longer shows how often that answer is right.
        """
        return 1 - self.ratio > self.ratio * self.seen_share


@dataclass(frozen=True)
class Model:
    """The mixture model of P prompts' labels.

    Attributes:
        priors: (A,) prior(c).
        shares: (A,) share(c).
        right: (P,) right(L); NaN where nothing can be said: no label, or no answer at all.
        wrong: (P,) wrong(L).
        is_seen: (P,) whether some rollout gave the label.
    """

    votes: Votes
    labels: Labels
    priors: Floats
    shares: Floats
    right: Floats
    wrong: Floats
    is_seen: Bools
    noise: Noise

    @classmethod
    def of(cls, votes: Votes, labels: Labels, sharpness: float, noise: Noise) -> Model:
        """The model under a noise, of which only the draw counts for right(L) and wrong(L)."""
        powers, weights = votes.counts**sharpness, votes.counts**noise.draw
        normaliser = votes.summed(powers) + 1
        priors, unseen = powers / normaliser[votes.prompts], 1 / normaliser
        shares = weights / votes.summed(weights)[votes.prompts]
        # Where the rollouts gave nothing else, no wrong answer is left to become a label.
        per_wrong = np.where(shares < 1 - _SMALL, priors / np.maximum(1 - shares, _SMALL), 0.0)
        others = votes.summed(per_wrong) + unseen
        is_seen = labels >= 0
        given = labels[is_seen]
        right, wrong = unseen.copy(), np.ones(votes.size)
        right[is_seen] = priors[given]
        wrong[is_seen] = shares[given] * (others[is_seen] - per_wrong[given])
        right[(labels == MISSING) | (votes.summed(votes.counts) == 0)] = np.nan
        return cls(votes, labels, priors, shares, right, wrong, is_seen, noise)

    @property
    def is_known(self) -> Bools:
        """(P,) whether something can be said of the label."""
        return ~np.isnan(self.right)

    @property
    def log_ratio(self) -> Floats:
        """(P,) log wrong(L) / right(L)."""
        return np.asarray(np.log(np.maximum(self.wrong, _FLOOR)) - np.log(np.maximum(self.right, _FLOOR)))

    @property
    def _kind(self) -> Floats:
        """(P,) a: the share of the wrong labels that were given, or not, as the prompt's label was."""
        return np.where(self.is_seen, self.noise.seen_share, 1 - self.noise.seen_share)

    def log_likelihood(self) -> float:
        """Of all labels of which something can be said."""
        chance = (1 - self.noise.ratio) * self.right + self.noise.ratio * self._kind * self.wrong
        return float(np.log(np.maximum(chance[self.is_known], _TINY)).sum())

    def wrong_log_odds(self) -> Floats:
        """(P,) log odds that the label is wrong; NaN where nothing can be said."""
        rho, alpha = np.array([self.noise.ratio]), np.array([self.noise.seen_share])
        return np.asarray(self.log_ratio + _log_prior_odds(rho, alpha, self.is_seen)[0])

    def answer_chances(self) -> Floats:
        """(A,) the chance that each answer is the truth, given the label; without a label its prior."""
        rho, prompts, is_seen = self.noise.ratio, self.votes.prompts, self.is_seen
        weight = rho * self._kind
        total = np.maximum(weight * self.wrong + (1 - rho) * self.right, _TINY)
        given = self.labels[is_seen]
        label_share = np.ones(len(self.labels))
        label_share[is_seen] = self.shares[given]
        # P(L | the truth is c): of a label that was given, its share among the answers that are wrong then.
        drawn = label_share[prompts] / np.maximum(1 - self.shares, _SMALL)
        drawn = np.where(is_seen[prompts], drawn, 1.0)
        chances = self.priors * (weight / total)[prompts] * drawn
        chances[given] = (1 - rho) * self.priors[given] / total[is_seen]
        return np.where(np.isnan(self.right)[prompts], self.priors, chances)


def pooled_votes(tally: Tally, decay: float) -> Votes:
    """The votes of every prompt, its last visit counting full."""
    last = np.zeros(len(tally), dtype=np.int64)
    np.maximum.at(last, tally.visits["prompt"].to_numpy(), tally.visits["visit"].to_numpy())
    age = last[tally.counts["prompt"].to_numpy()] - tally.counts["visit"].to_numpy()
    weights = tally.counts["count"].to_numpy() * decay**age
    counts = np.bincount(tally.counts["answer"].to_numpy(), weights, minlength=len(tally.answers))
    prompts = tally.answers["prompt"].to_numpy().astype(np.int64)
    return Votes(prompts, np.asarray(counts, dtype=float), len(tally))


def fit(votes: Votes, labels: Labels, sharpness: float, known_wrong: Floats | None = None) -> Model:
    """The model with the noise under which the labels are likeliest.

    If nothing can be said of any label, the noise is arbitrary: nothing depends on it.

    Args:
        votes: of P prompts.
        labels: their answers' numbers; prompts of which nothing can be said do not count.
        sharpness: of the prior.
        known_wrong: (P,) 1 and 0 where it is known whether the label is wrong, else NaN.
    """
    models = []
    for draw in DRAWS:
        model = Model.of(votes, labels, sharpness, Noise(0.5, 0.5, draw))
        used = model.is_known
        if used.any():
            known = np.full(used.sum(), np.nan) if known_wrong is None else known_wrong[used]
            rho, alpha = _em(model.log_ratio[used], model.is_seen[used], np.ones((1, used.sum())), known)
            model = replace(model, noise=Noise(float(rho[0]), float(alpha[0]), draw))
        models.append(model)
    return max(models, key=Model.log_likelihood)


def ratio_interval(votes: Votes, labels: Labels, sharpnesses: Sequence[float]) -> tuple[float, float]:
    """A 95 % interval for rho: bootstrap over prompts of the EM, at every one of `sharpnesses`; their hull.

    The bootstrap is about the choice of the prompts; the hull about what the model assumes and the labels do not show.
    Neither covers a failure of the model as such, such as a policy that is mostly wrong in a systematic way.
    """
    rng = np.random.default_rng(seeding.key("audit bootstrap", votes.size))
    ends = []
    for sharpness in sharpnesses:
        model = fit(votes, labels, sharpness)
        used = model.is_known
        rounded = np.round(model.log_ratio[used] / _RESOLUTION) * _RESOLUTION
        kinds, counts = np.unique(np.stack([rounded, model.is_seen[used]]), axis=1, return_counts=True)
        weights = rng.multinomial(counts.sum(), counts / counts.sum(), size=_REPLICATES).astype(float)
        rho, _ = _em(kinds[0], kinds[1] > 0, weights, np.full(len(counts), np.nan))
        ends.append(np.percentile(rho, _TAILS))
    low, high = float(min(low for low, _ in ends)), float(max(high for _, high in ends))
    return (low if low * used.sum() >= 1 else 0.0), high  # less than one label is none


def _em(log_ratio: Floats, is_seen: Bools, weights: Floats, known_wrong: Floats) -> tuple[Floats, Floats]:
    """The rho and alpha (B,) of B weightings (B, N) of N prompts.

    Half a prompt of each kind keeps both inside (0, 1).
    """
    total = weights.sum(axis=1)
    rho, alpha = np.full(len(weights), 0.3), np.full(len(weights), 0.5)
    is_known = ~np.isnan(known_wrong)
    for _ in range(_MOST_ROUNDS):
        odds = log_ratio + _log_prior_odds(rho, alpha, is_seen)
        chance = np.where(is_known, known_wrong, _logistic(odds)) * weights
        mass = chance.sum(axis=1)
        before, rho = rho, (mass + 0.5) / (total + 1)
        alpha = (chance[:, is_seen].sum(axis=1) + 0.5) / (mass + 1)
        if np.abs(rho - before).max() < 1e-6:
            break
    return rho, alpha


def _log_prior_odds(rho: Floats, alpha: Floats, is_seen: Bools) -> Floats:
    """(B, N) log rho a / (1 - rho)."""
    kind = np.where(is_seen, np.log(alpha)[:, None], np.log1p(-alpha)[:, None])
    return np.asarray(kind + (np.log(rho) - np.log1p(-rho))[:, None])


def _logistic(odds: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(odds, -700, 700))))
