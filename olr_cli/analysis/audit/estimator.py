"""How many labels are wrong, and which: a mixture model of labels given what the rollouts said, fitted by EM.

    visits    weight(v) ~ chance that a rollout of visit v agrees with one of another visit of its prompt
    votes     n(c) = sum over visits v of weight(v) count(c, v)                      for every answer c of a prompt
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
determine it, so it is an assumption: 2, times the square root of the number of visits if the policy is in training.
Its errors then change from visit to visit, so that every visit is new evidence; those of a policy that stays as it is
are the same every time (docs/audit.md has the measurements).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olr_cli.analysis.audit.tally import MISSING, Tally

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Labels: TypeAlias = NDArray[np.int64]
"""(P,) as `Tally.label_answers`."""

DRAWS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""How much wrong labels may favour answers that are given often."""

SHARPNESS = 2.0
"""How much likelier an answer with more votes is the truth, after one visit."""

_SMALL, _FLOOR, _TINY = 1e-9, 1e-12, 1e-300
_MOST_ROUNDS = 500


@dataclass(frozen=True)
class Votes:
    """The pooled votes of P prompts over A answers.

    Attributes:
        prompts: (A,) the prompt of each answer.
        counts: (A,) n(c).
        sharpness: (P,) of each prompt's prior.
    """

    prompts: NDArray[np.int64]
    counts: Floats
    sharpness: Floats

    @property
    def size(self) -> int:
        """P."""
        return len(self.sharpness)

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
    def of(cls, votes: Votes, labels: Labels, noise: Noise) -> Model:
        """The model under a noise, of which only the draw counts for right(L) and wrong(L)."""
        powers, weights = votes.counts ** votes.sharpness[votes.prompts], votes.counts**noise.draw
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
        return self.log_ratio + _log_prior_odds(self.noise.ratio, self.noise.seen_share, self.is_seen)

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


def pooled_votes(tally: Tally, *, is_training: bool) -> Votes:
    """The votes of every prompt, a visit weighing as much as it agrees with the others.

    Args:
        tally: of P prompts.
        is_training: whether the policy changed from visit to visit.
    """
    others = pl.col("count").sum().over("answer") - pl.col("count")
    rest = pl.col("count").sum().over("prompt") - pl.col("count").sum().over("prompt", "visit")
    agreements = (
        tally.counts.select("visit", "count", agreeing=pl.col("count") * others / rest)
        .filter(pl.col("agreeing").is_finite())
        .group_by("visit")
        .agg(weight=pl.col("agreeing").sum() / pl.col("count").sum())
        .with_columns(pl.col("weight") / pl.col("weight").max())
        .filter(pl.col("weight").is_finite())
    )
    weighted = tally.counts.join(agreements, on="visit", how="left", maintain_order="left")
    weights = (weighted["count"] * weighted["weight"].fill_null(1.0)).to_numpy()
    counts = np.bincount(tally.counts["answer"].to_numpy(), weights, minlength=len(tally.answers))
    visits = np.bincount(tally.visits["prompt"].to_numpy(), minlength=len(tally))
    sharpness = SHARPNESS * np.sqrt(visits) if is_training else np.full(len(tally), SHARPNESS)
    prompts = tally.answers["prompt"].to_numpy().astype(np.int64)
    return Votes(prompts, np.asarray(counts, dtype=float), sharpness)


def fit(votes: Votes, labels: Labels, known_wrong: Floats | None = None) -> Model:
    """The model with the noise under which the labels are likeliest.

    If nothing can be said of any label, the noise is arbitrary: nothing depends on it.

    Args:
        votes: of P prompts.
        labels: their answers' numbers; prompts of which nothing can be said do not count.
        known_wrong: (P,) 1 and 0 where it is known whether the label is wrong, else NaN.
    """
    models = []
    for draw in DRAWS:
        model = Model.of(votes, labels, Noise(0.5, 0.5, draw))
        used = model.is_known
        if used.any():
            known = np.full(used.sum(), np.nan) if known_wrong is None else known_wrong[used]
            model = replace(model, noise=Noise(*_em(model.log_ratio[used], model.is_seen[used], known), draw))
        models.append(model)
    return max(models, key=Model.log_likelihood)


def _em(log_ratio: Floats, is_seen: Bools, known_wrong: Floats) -> tuple[float, float]:
    """The rho and alpha of N prompts; half a prompt of each kind keeps both inside (0, 1)."""
    rho, alpha = 0.3, 0.5
    is_known = ~np.isnan(known_wrong)
    for _ in range(_MOST_ROUNDS):
        odds = log_ratio + _log_prior_odds(rho, alpha, is_seen)
        chance = np.where(is_known, known_wrong, logistic(odds))
        mass = float(chance.sum())
        before, rho = rho, (mass + 0.5) / (len(chance) + 1)
        alpha = (float(chance[is_seen].sum()) + 0.5) / (mass + 1)
        if abs(rho - before) < 1e-6:
            break
    return rho, alpha


def _log_prior_odds(rho: float, alpha: float, is_seen: Bools) -> Floats:
    """(N,) log rho a / (1 - rho)."""
    return np.asarray(np.where(is_seen, np.log(alpha), np.log1p(-alpha)) + np.log(rho) - np.log1p(-rho))


def floats(values: pl.Series) -> Floats:
    """A column of numbers; NaN where one is missing."""
    return values.cast(pl.Float64).fill_null(np.nan).to_numpy()


def logistic(odds: Floats) -> Floats:
    """Chances from log odds, any shape; NaN stays NaN."""
    return np.asarray(1 / (1 + np.exp(-np.clip(odds, -700, 700))))
