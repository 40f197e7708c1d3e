"""Self-training: what verified labels say of the other prompts' votes and labels.

Verified labels (`data.trusted`) train from the first visit. Another prompt trains on a pseudo-label, which is the
majority answer or the given label, once its chance to be right reaches `method.confidence`. At a visit with K rollouts,
of which m are in the majority's class and l match the label, the chances are those of a conditional logit (McFadden
1974):

    P(majority is right) = exp(a log(m/K) + b [the label is the majority] + c [it is the historical majority]) / Z
    P(label is right)    = exp(a log(l/K) + b) / Z            if the label is another answer, and l > 0
    P(neither)           = exp(d) / Z

`calibrate` fits a, b, c, d to the latest visit of every verified prompt, as a posterior mode under a normal prior.

A prompt that is not that sure trains on its label as it stands where labels help, and not at all elsewhere. Whether
they help is read from the verified prompts, whose labels without the verified one are known too: the advantages A that
such a label gives change the chance to be right, to first order, by the mean of A over right rollouts. Labels help
while the mean of that over the verified prompts is surely above 0. (Reweighting by the agreement of gradients with
those of trusted data: Ren et al. 2018, arXiv:1803.09050.) In the first visits, `method.warmup_epochs`, there are no
pseudo-labels: under much noise verified prompts train alone, until what the policy learns of them shows in its votes.

Pseudo-labels chosen by confidence: Lee 2013; Rizve et al. 2021, arXiv:2101.06329. A trusted part of the data that says
what the rest is worth: Hendrycks et al. 2018, arXiv:1802.05300.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MAJORITY, LABEL, NEITHER = range(3)

_MEAN = np.array([1.5, 0.5, 0.5, -2.0])
_SD = np.array([0.7, 1.0, 0.7, 1.0])
"""The prior of a, b, c and d; with few verified labels a majority counts for little more than its share."""

_ONE_SIDED = 1.645
_MOST_ROUNDS, _CLOSE = 100, 1e-10


@dataclass(frozen=True, slots=True)
class Counts:
    """What a visit's votes say of a prompt's two candidates for a pseudo-label, as counts of its K rollouts.

    Attributes:
        majority: in the majority's class; 0 without a majority (R9).
        label: that match the label.
        is_consistent: the majority is the historical majority (R13).
    """

    majority: int
    label: int
    rollouts: int
    is_consistent: bool

    @property
    def label_is_majority(self) -> bool:
        """The majority is the one class with the most rollouts: a label that as many match is the majority."""
        return 0 < self.majority <= self.label

    @property
    def is_candidate(self) -> tuple[bool, bool, bool]:
        """Whether each of majority, label and neither can be right."""
        return self.majority > 0, self.label > 0 and not self.label_is_majority, True

    @property
    def features(self) -> list[list[float]]:
        """(3, 4) features of majority, label and neither."""
        agrees, share = float(self.label_is_majority), 1 / self.rollouts
        return [
            [log(max(self.majority, 1) * share), agrees, float(self.is_consistent), 0.0],
            [log(max(self.label, 1) * share), 1.0, 0.0, 0.0],
            [0.0, 0.0, 0.0, 1.0],
        ]


@dataclass(frozen=True, slots=True)
class VerifiedVisit:
    """What a visit of a verified prompt says about the others.

    Attributes:
        right_rollouts: how many of its K rollouts are right.
        right_candidate: which candidate is right: `MAJORITY`, `LABEL` or `NEITHER`.
        label_is_right: whether the label that it would have without the verified one is right.
    """

    counts: Counts
    right_rollouts: int
    right_candidate: int
    label_is_right: bool

    @classmethod
    def of_row(cls, row: Mapping[str, Any], *, given_is_right: bool) -> VerifiedVisit:
        """The visit in a row of the labels table.

        Args:
            row: of a verified prompt.
            given_is_right: whether its given label matches its true answer.
        """
        is_marked = row["noisy_label"] is not None
        label = row["noisy_label_count" if is_marked else "given_label_count"] or 0
        counts = Counts(row["majority_count"], label, row["rollouts"], row["is_consistent"])
        label_is_right = given_is_right and not is_marked
        right = NEITHER
        if row["majority_is_correct"]:
            right = MAJORITY
        elif label_is_right and counts.is_candidate[LABEL]:
            right = LABEL
        return cls(counts, row["true_answer_count"], right, label_is_right)

    @property
    def gain_of_label(self) -> float:
        """The mean over its rollouts of A [is right], with the advantages A that the label gives (Eq. 1): the change
        of the chance to be right, to first order, if the label trains.
        """
        share, right = self.counts.label / self.counts.rollouts, self.right_rollouts / self.counts.rollouts
        if share in (0, 1):
            return 0.0
        return sqrt(share * (1 - share)) if self.label_is_right else -right * sqrt(share / (1 - share))


@dataclass(frozen=True)
class Calibration:
    """What verified labels say about votes and labels.

    Attributes:
        weights: (4,) a, b, c and d.
        labels_help: whether the mean of `VerifiedVisit.gain_of_label` is surely, at 95 %, above 0.
    """

    weights: Floats
    labels_help: bool

    def chances(self, counts: Counts) -> Floats:
        """(3,) the chances that the majority, the label or neither is right."""
        features, possible = np.array([counts.features]), np.array([counts.is_candidate])
        return np.asarray(_chances(self.weights, features, possible)[0])


def calibrate(visits: Iterable[VerifiedVisit]) -> Calibration | None:
    """The weights that these visits leave most probable, by Newton's method on a concave function; None without any."""
    known = list(visits)
    if not known:
        return None
    features = np.array([visit.counts.features for visit in known])
    possible = np.array([visit.counts.is_candidate for visit in known])
    happened = np.eye(3)[[visit.right_candidate for visit in known]]
    precision, weights = np.diag(_SD**-2.0), _MEAN
    for _ in range(_MOST_ROUNDS):
        chances = _chances(weights, features, possible)
        expected = np.einsum("nkd,nk->nd", features, chances)
        gradient = np.einsum("nkd,nk->d", features, happened - chances) - precision @ (weights - _MEAN)
        curvature = (
            np.einsum("nkd,nk,nke->de", features, chances, features) - expected.T @ expected + precision
        )
        step = np.linalg.solve(curvature, gradient)
        weights = weights + np.clip(step, -1, 1)
        if np.abs(step).max() < _CLOSE:
            break
    gains = np.array([visit.gain_of_label for visit in known])
    error = gains.std(ddof=1) / sqrt(len(gains)) if len(gains) > 1 else np.inf
    return Calibration(weights, bool(gains.mean() > _ONE_SIDED * error))


def _chances(weights: Floats, features: Floats, possible: NDArray[np.bool_]) -> Floats:
    """(N, 3) of (N, 3, 4) features."""
    scores = np.where(possible, features @ weights, -np.inf)
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))
