"""Inference from verified labels to the others: the noise ratio, a label's chance to be wrong, the changes' gain.

The ratio needs labels that were drawn at random, and uses nothing else. A chance given the answers is not biased by the
choice of labels to verify, so the map

    P(label is wrong) = 1 / (1 + exp(-(intercept + slope * log odds))),  slope > 0

uses every verified label. Its prior is wide; the gain's interval has the quantiles of draws from its posterior.
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
"""Mean and standard deviation of the priors of intercept and log slope."""

_REACH = 20.0
"""Largest log odds that count; larger ones are clipped to it."""


@dataclass(frozen=True)
class Verified:
    """True answers to P prompts and errors in their labels, as far as people have verified them; made by `Verified.of`.

    `is_drawn` says which prompts were chosen for verification by a random draw.
    """

    answers: tuple[str | None, ...]
    """(P,) the true answer; None if unknown."""

    is_wrong: Floats
    """(P,) 1 if the given label is wrong or its question flawed, else 0; NaN if unknown."""

    is_drawn: Bools
    """(P,) whether the prompt was drawn at random."""

    @classmethod
    def of(
        cls,
        answers: Mapping[str, str | None],
        drawn: Set[str],
        prompts: Sequence[Prompt],
        labels: Sequence[str | None],
        judge: Judge,
    ) -> Verified:
        """Compare verified answers with the given labels of P prompts.

        Args:
            answers: prompt_id -> the true answer, or None if only the label is known to be wrong. Prompts that nobody
                verified are missing.
            drawn: ids of the prompts that were drawn at random.
            prompts: the P prompts.
            labels: the label of each prompt; None for a prompt without one.
            judge: compares labels with answers.
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
        """(P,) whether anything about the prompt is verified."""
        return np.array([answer is not None for answer in self.answers]) | ~np.isnan(
            self.is_wrong
        )

    @property
    def labels(self) -> int:
        """Number of labels that are known to be right or wrong."""
        return int((~np.isnan(self.is_wrong)).sum())


def asked_truths(
    prompts: Iterable[Prompt], truths: Iterable[str | None]
) -> list[Gold | None]:
    """Return each prompt's true answer as a `Gold`, or None if it is unknown.

    A `Gold` is what a `Judge` compares answers with: a text, and whether the question asks for a percentage. `truths`
    has the text for each prompt, or None.
    """
    return [
        None if truth is None else prompt.asked(truth)
        for prompt, truth in zip(prompts, truths, strict=True)
    ]


def is_right(
    labels: Sequence[str | None], truths: Sequence[Gold | str | None], judge: Judge
) -> Floats:
    """Return (P,) 1.0 if the label matches the true answer, else 0.0; NaN if the label or the true answer is None."""
    right = np.full(len(truths), np.nan)
    pairs = {
        p: (truth, label)
        for p, (label, truth) in enumerate(zip(labels, truths, strict=True))
        if label is not None and truth is not None
    }
    right[list(pairs)] = [verdict is True for verdict in judge.matches(pairs.values())]
    return right


def noise_ratio(verified: Verified, is_labelled: Bools) -> Cell | None:
    """Estimate the share of wrong labels, with a 95 % interval, from verified labels that were drawn at random.

    If none was drawn at random, the result is None. Labels that were verified for another reason are not
    representative. They only set limits: labels known to be wrong always count as wrong, and labels known to be right
    never do.

    The interval is Jeffreys', for a finite number of labels. If the drawn labels are all wrong or all right, its ends
    are those of Brown, Cai and DasGupta (2001, "Interval Estimation for a Binomial Proportion").

    Args:
        verified: the verified labels, with the marks of the random draw.
        is_labelled: (P,) whether the prompt has a label.
    """
    from scipy.stats import betabinom

    is_known = ~np.isnan(verified.is_wrong)
    all_known, drawn = (
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
    # The drawn labels are known, so only the others are uncertain; without a drawn wrong one there may be none among
    # them.
    counts = (others * wrong / len(drawn), low if wrong else 0, high if right else others)
    bounds = all_known.sum(), labels - (1 - all_known).sum()
    mean, low, high = (float(np.clip(wrong + count, *bounds)) / labels for count in counts)
    return Cell(mean, ends=(low, high))


@dataclass(frozen=True)
class Calibration:
    """D maps from log odds to a calibrated chance that a label is wrong; made by `calibrate`.

    The annotator model's log odds are overconfident. Each map is a logistic function that corrects them. Its intercept
    and slope are one draw from their posterior, given the verified labels.
    """

    intercepts: Floats
    """(D,) intercepts."""

    slopes: Floats
    """(D,) slopes."""

    mended: Floats
    """(D,) chances that the proposal is right if the label is wrong."""

    def chances(self, odds: Floats) -> Floats:
        """Return (N,) the chance that each label is wrong, averaged over the D maps.

        `odds` are (N,) log odds that the labels are wrong; NaN gives NaN. To save memory, they are rounded to tenths
        first.
        """
        # Tenths are exact enough, and few values are distinct. A column of 2,000 maps for every label would need
        # gigabytes for a large data set.
        values, indices = np.unique(np.round(odds, 1), return_inverse=True)
        return np.asarray(self._by_map(values).mean(axis=0)[indices])

    def changes(self, odds: Floats, may_change: Bools) -> tuple[Bools, Cell | None]:
        """Decide which labels to replace by their proposals, that is by the answers that the models prefer.

        A replacement is considered if the proposal more likely corrects the label than spoils it. All considered
        replacements are made if the 95 % interval of their total gain lies above 0, otherwise none.

        Args:
            odds: (P,) log odds that the label is wrong.
            may_change: (P,) whether the label has a proposal and nobody has verified it.

        Returns:
            (P,) whether the label is replaced.
            The total gain: the expected number of additional right labels, with its interval. None if no replacement is
                considered.
        """
        chance = self.chances(odds)
        is_better = may_change & (chance * self.mended.mean() > 1 - chance)
        if not is_better.any():
            return is_better, None
        gain = self.gain(odds[is_better])
        return is_better & (gain.low > 0), gain

    def gain(self, odds: Floats) -> Cell:
        """Estimate how many right labels are gained if N labels are replaced, with a 95 % interval.

        Each label is replaced by the answer that the models prefer. The gain is negative if this spoils more labels
        than it corrects. `odds` are (N,) log odds that the labels are wrong.
        """
        values, sizes = np.unique(np.round(odds, 1), return_counts=True)
        generator = _random("audit gain")
        wrong = generator.binomial(sizes, self._by_map(values)).sum(axis=1)
        # A wrong label gains one right label with chance `mended`; replacing a right label always loses one.
        gains = generator.binomial(wrong, self.mended) - (len(odds) - wrong)
        return Cell(float(gains.mean()), "number", ends=percentile_interval(gains))

    def _by_map(self, odds: Floats) -> Floats:
        """Return (D, N) the chance that each of N labels is wrong, by each of D maps.

        `odds` are (N,) log odds that the labels are wrong.
        """
        bounded = np.clip(odds, -_REACH, _REACH)
        return np.asarray(
            1 / (1 + np.exp(-(self.intercepts[:, None] + self.slopes[:, None] * bounded)))
        )


def calibrate(odds: Floats, is_wrong: Floats, proposal_right: Floats) -> Calibration:
    """Fit maps from log odds to calibrated chances that a label is wrong, and return draws from their posterior.

    The posterior follows from what people have verified about P prompts.

    Args:
        odds: (P,) log odds of the annotator model that the label is wrong; NaN without a label.
        is_wrong: (P,) 1 if the label is verified to be wrong, 0 if right; NaN if unknown.
        proposal_right: (P,) 1 if the answer that the models prefer is verified to be right, 0 if wrong; NaN if unknown.
    """
    is_known = ~np.isnan(odds) & ~np.isnan(is_wrong)
    bounded, sign = (
        np.clip(odds[is_known], -_REACH, _REACH),
        np.where(is_wrong[is_known] == 1, 1.0, -1.0),
    )
    intercepts, log_slopes = (
        axis.ravel() for axis in np.meshgrid(_INTERCEPTS, _LOG_SLOPES)
    )
    # Negative log posterior: two normal priors, then the logistic loss of every verified label.
    loss = ((intercepts - _INTERCEPT[0]) / _INTERCEPT[1]) ** 2 / 2
    loss += ((log_slopes - _LOG_SLOPE[0]) / _LOG_SLOPE[1]) ** 2 / 2
    for value, outcome in zip(bounded, sign, strict=True):
        loss += np.logaddexp(0, -outcome * (intercepts + np.exp(log_slopes) * value))
    # The posterior is computed on a grid: two parameters need no sampler.
    weights = np.exp(loss.min() - loss)
    generator = _random("audit maps")
    chosen = generator.choice(len(weights), _DRAWS, p=weights / weights.sum())
    mended = proposal_right[(is_wrong == 1) & ~np.isnan(proposal_right)]
    # Jeffreys' prior, as for the noise ratio.
    shares = generator.beta(mended.sum() + 0.5, len(mended) - mended.sum() + 0.5, _DRAWS)
    return Calibration(intercepts[chosen], np.exp(log_slopes[chosen]), shares)


def _random(purpose: str) -> np.random.Generator:
    return np.random.default_rng(seeding.key(purpose))


# How good a ranking is --------------------------------------------------------------------------------------------


def auroc(scores: Floats, is_true: Bools) -> float | None:
    """Return the area under the ROC curve, or None if `is_true` is the same for all.

    The area is the chance that a true case has a higher score than a false one. A tie counts half.
    """
    from scipy.stats import mannwhitneyu

    pairs = int(is_true.sum()) * int((~is_true).sum())
    return (
        float(mannwhitneyu(scores[is_true], scores[~is_true]).statistic / pairs)
        if pairs
        else None
    )


def is_no_random_draw(verified: Verified, odds: Floats) -> bool:
    """Return whether the labels that `verified` marks as a random draw cannot be one.

    They cannot if they are clearly more or clearly less doubtful than all labels without the mark (the rank test of
    Mann and Whitney finds p < .005). If either group is empty, the result is False. `odds` are (P,) log odds that the
    label is wrong; NaN without a label.
    """
    from scipy.stats import mannwhitneyu

    drawn, others = (
        odds[which & ~np.isnan(odds)] for which in (verified.is_drawn, ~verified.is_drawn)
    )
    return bool(len(drawn) and len(others) and mannwhitneyu(drawn, others).pvalue < 0.005)
