"""What verified labels say of the other labels: the noise ratio, each label's chance to be wrong, the changes' gain.

The ratio needs labels that were drawn at random, and uses nothing else. A chance given the answers is not biased by
which labels were looked at, so the map

    P(label is wrong) = 1 / (1 + exp(-(intercept + slope * log odds))),  slope > 0

takes every verified label. Its prior is wide; the gain's interval has the quantiles of draws from its posterior.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from olr_cli import seeding
from olr_cli.analysis.audit.annotators import Bools, Floats
from olr_cli.answers import Gold, Judge
from olr_cli.data.prompts import Prompt
from olr_cli.evaluation.intervals import percentile_interval
from olr_cli.tables import Cell

_DRAWS = 2000
_INTERCEPTS, _LOG_SLOPES = np.linspace(-10, 6, 65), np.linspace(-4, 1.5, 45)
_INTERCEPT, _LOG_SLOPE = (-1.0, 2.5), (-0.7, 1.0)
"""Mean and standard deviation of their priors."""
_REACH = 20.0
"""Log odds beyond it decide no more than those at it."""


@dataclass(frozen=True)
class Verified:
    """What somebody has verified of P prompts.

    Attributes:
        answers: (P,) the true answer; None where it is not known.
        is_wrong: (P,) 1 or 0: whether the given label is wrong, or its question flawed; NaN where that is not known.
        is_drawn: (P,) whether the prompt was drawn at random.
    """

    answers: tuple[str | None, ...]
    is_wrong: Floats
    is_drawn: Bools

    @classmethod
    def of(
        cls,
        answers: Mapping[str, str | None],
        drawn: Set[str],
        prompts: Sequence[Prompt],
        labels: Sequence[str | None],
        judge: Judge,
    ) -> Verified:
        """Compare the given labels of P prompts with verified answers; those to `drawn` prompts are a random draw.

        An answer is None where all that is known is that the label is wrong.
        """
        truths = tuple(answers.get(prompt.prompt_id) for prompt in prompts)
        is_wrong = 1 - is_right(labels, asked_truths(prompts, truths), judge)
        for p, (prompt, label) in enumerate(zip(prompts, labels, strict=True)):
            if prompt.prompt_id in answers and truths[p] is None and label is not None:
                is_wrong[p] = 1
        return cls(
            truths, is_wrong, np.array([prompt.prompt_id in drawn for prompt in prompts])
        )

    @property
    def is_known(self) -> Bools:
        """(P,) whether something is verified of the prompt."""
        return np.array([answer is not None for answer in self.answers]) | ~np.isnan(
            self.is_wrong
        )

    @property
    def labels(self) -> int:
        """How many labels are known to be right or wrong."""
        return int((~np.isnan(self.is_wrong)).sum())


def asked_truths(
    prompts: Iterable[Prompt], truths: Iterable[str | None]
) -> list[Gold | None]:
    """Return truths as the judge is asked for them (`Prompt.asked`); None where there is none."""
    return [
        None if truth is None else prompt.asked(truth)
        for prompt, truth in zip(prompts, truths, strict=True)
    ]


def is_right(
    labels: Sequence[str | None], truths: Sequence[Gold | str | None], judge: Judge
) -> Floats:
    """(P,) 1 or 0: whether a label means the truth; NaN where one of them is not known."""
    right = np.full(len(truths), np.nan)
    pairs = {
        p: (truth, label)
        for p, (label, truth) in enumerate(zip(labels, truths, strict=True))
        if label is not None and truth is not None
    }
    right[list(pairs)] = [verdict is True for verdict in judge.matches(pairs.values())]
    return right


def noise_ratio(verified: Verified, is_labelled: Bools) -> Cell | None:
    """The share of wrong labels, from those drawn at random among all. None without a random draw.

    Labels that were looked at for another reason stand for no others: they only say how many are wrong, and how many
    are right, at least.

    The interval is Jeffreys', of a finite number of labels; where all that were drawn are alike, with the ends that
    Brown, Cai and DasGupta (2001, "Interval Estimation for a Binomial Proportion") put in their place.
    """
    from scipy.stats import betabinom

    is_known = ~np.isnan(verified.is_wrong)
    known, drawn = (
        verified.is_wrong[is_known],
        verified.is_wrong[is_known & verified.is_drawn],
    )
    if not len(drawn):
        return None
    labels, wrong, right = int(is_labelled.sum()), drawn.sum(), (1 - drawn).sum()
    others = labels - len(drawn)
    shape = (
        (wrong + 0.5, right + 0.5) if wrong and right else (max(wrong, 1), max(right, 1))
    )
    low, high = betabinom.ppf((0.025, 0.975), others, *shape)
    counts = (others * wrong / len(drawn), low if wrong else 0, high if right else others)
    bounds = known.sum(), labels - (1 - known).sum()
    mean, low, high = (float(np.clip(wrong + count, *bounds)) / labels for count in counts)
    return Cell(mean, ends=(low, high))


@dataclass(frozen=True)
class Calibration:
    """Maps that verified labels leave likely, a draw each.

    All are (D,); `mended` are chances that the proposal is right where the label is wrong.
    """

    intercepts: Floats
    slopes: Floats
    mended: Floats

    def chances(self, odds: Floats) -> Floats:
        """(N,) chance that each label is wrong: the mean over the maps; NaN stays NaN."""
        values, places = np.unique(np.round(odds, 1), return_inverse=True)
        return np.asarray(self._by_map(values).mean(axis=0)[places])

    def changes(self, odds: Floats, may_change: Bools) -> tuple[Bools, Cell | None]:
        """Which labels their proposals replace, and how many more are right then.

        Labels that a proposal more likely corrects than spoils, if more are surely (95 %) right then; else none.

        `odds` and `may_change` are (P,); a label may change if it has a proposal, and nobody has verified it.
        """
        chance = self.chances(odds)
        is_better = may_change & (chance * self.mended.mean() > 1 - chance)
        if not is_better.any():
            return is_better, None
        gain = self.gain(odds[is_better])
        return is_better & (gain.low > 0), gain

    def gain(self, odds: Floats) -> Cell:
        """How many more labels are right if the proposals replace N labels of these log odds."""
        values, sizes = np.unique(np.round(odds, 1), return_counts=True)
        generator = _random("audit gain")
        wrong = generator.binomial(sizes, self._by_map(values)).sum(axis=1)
        gains = generator.binomial(wrong, self.mended) - (len(odds) - wrong)
        return Cell(float(gains.mean()), "number", ends=percentile_interval(gains))

    def _by_map(self, odds: Floats) -> Floats:
        """(D, N)"""
        bounded = np.clip(odds, -_REACH, _REACH)
        return np.asarray(
            1 / (1 + np.exp(-(self.intercepts[:, None] + self.slopes[:, None] * bounded)))
        )


def calibrate(odds: Floats, is_wrong: Floats, proposal_right: Floats) -> Calibration:
    """The maps after what is verified of P prompts.

    Args:
        odds: (P,) log odds that the label is wrong, of the annotator model.
        is_wrong: (P,) 1 or 0; NaN where that is not known.
        proposal_right: (P,) 1 or 0: whether the proposal is right; NaN where that is not known.
    """
    is_known = ~np.isnan(odds) & ~np.isnan(is_wrong)
    bounded, sign = (
        np.clip(odds[is_known], -_REACH, _REACH),
        np.where(is_wrong[is_known] == 1, 1.0, -1.0),
    )
    intercepts, log_slopes = (
        axis.ravel() for axis in np.meshgrid(_INTERCEPTS, _LOG_SLOPES)
    )
    loss = ((intercepts - _INTERCEPT[0]) / _INTERCEPT[1]) ** 2 / 2
    loss += ((log_slopes - _LOG_SLOPE[0]) / _LOG_SLOPE[1]) ** 2 / 2
    for value, outcome in zip(bounded, sign, strict=True):
        loss += np.logaddexp(0, -outcome * (intercepts + np.exp(log_slopes) * value))
    weights = np.exp(loss.min() - loss)
    generator = _random("audit maps")
    chosen = generator.choice(len(weights), _DRAWS, p=weights / weights.sum())
    mended = proposal_right[(is_wrong == 1) & ~np.isnan(proposal_right)]
    shares = generator.beta(mended.sum() + 0.5, len(mended) - mended.sum() + 0.5, _DRAWS)
    return Calibration(intercepts[chosen], np.exp(log_slopes[chosen]), shares)


def _random(purpose: str) -> np.random.Generator:
    return np.random.default_rng(seeding.key(purpose))


# How good a ranking is --------------------------------------------------------------------------------------------


def auroc(scores: Floats, is_true: Bools) -> float | None:
    """Area under the ROC curve, ties counting half; None where all outcomes are alike."""
    from scipy.stats import mannwhitneyu

    pairs = int(is_true.sum()) * int((~is_true).sum())
    return (
        float(mannwhitneyu(scores[is_true], scores[~is_true]).statistic / pairs)
        if pairs
        else None
    )


def is_no_random_draw(verified: Verified, odds: Floats) -> bool:
    """Whether labels that should be a random draw are in more or less doubt than chance allows (p < .005), by the rank
    test of Mann and Whitney.
    """
    from scipy.stats import mannwhitneyu

    drawn, others = (
        odds[which & ~np.isnan(odds)] for which in (verified.is_drawn, ~verified.is_drawn)
    )
    return bool(len(drawn) and len(others) and mannwhitneyu(drawn, others).pvalue < 0.005)
