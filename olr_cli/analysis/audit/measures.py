"""How good confidences are where the outcome is known."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from olr_cli.analysis.audit.estimator import Bools, Floats


@dataclass(frozen=True)
class Quality:
    """How well doubt finds wrong labels.

    Attributes:
        labels: how many labels are known to be right or wrong.
        wrong: how many of them are wrong.
        doubted: how many are doubted.
        precision: share of the doubted ones that are wrong; None if none is doubted.
        recall: share of the wrong ones that are doubted, undecided ones counting as missed; None if none is wrong.
        auroc: chance that a wrong label has a higher confidence than a right one, among decided prompts; None if
            there are not both.
    """

    labels: int
    wrong: int
    doubted: int
    precision: float | None
    recall: float | None
    auroc: float | None

    def plain(self) -> dict[str, float | int | None]:
        """For JSON."""
        return asdict(self)


def quality(confidence: Floats, is_wrong: Bools, *, threshold: float = 0.5) -> Quality:
    """Measure confidences that labels are wrong.

    Args:
        confidence: (N,), not a number where undecided.
        is_wrong: (N,) the truth.
        threshold: from which confidence a label counts as doubted.
    """
    decided = ~np.isnan(confidence)
    doubted = decided & (np.nan_to_num(confidence) >= threshold)
    hits = int((doubted & is_wrong).sum())
    return Quality(
        len(is_wrong),
        int(is_wrong.sum()),
        int(doubted.sum()),
        hits / int(doubted.sum()) if doubted.any() else None,
        hits / int(is_wrong.sum()) if is_wrong.any() else None,
        auroc(confidence[decided], is_wrong[decided]),
    )


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


def reliability(confidence: Floats, is_true: Bools, edges: Floats) -> list[tuple[float, float, int]]:
    """Mean confidence, share of true outcomes, and size of each bin [edge, next edge) that has any.

    The last bin is closed.
    """
    bins = np.clip(np.digitize(confidence, edges) - 1, 0, len(edges) - 2)
    chosen = (bins == b for b in range(len(edges) - 1))
    return [(float(confidence[c].mean()), float(is_true[c].mean()), int(c.sum())) for c in chosen if c.any()]
