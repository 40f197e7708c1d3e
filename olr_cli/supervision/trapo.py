"""TraPO: which unverified prompts learn as the verified ones do (Yang et al. 2025, arXiv:2512.13106; R24).

A prompt's trajectory is its pass rate at visits 1..t: the share of right rollouts on a verified prompt, of the majority
on another (0 without one, R9). The reference is the mean trajectory of the verified prompts. The similarity of a
prompt is the cosine of its trajectory and the reference, both over the visits that all verified prompts have had and
both centred on their mean, as in the authors' code: pass rates are never negative, so without centring all are alike.
After `method.warmup_epochs` visits a prompt trains on its majority if its similarity is among the largest
`method.top_share` of the step's prompts without a verified label, at least one of them, or is at least
`method.threshold`. No other prompt without a verified label trains. Sums are exact, so no order changes a decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import fsum, sqrt
from typing import Any

Trajectory = tuple[float, ...]


def pass_rate(visit: Mapping[str, Any], *, is_verified: bool) -> float:
    """Share of right rollouts on a verified prompt, of the majority on another, by counts of the labels table."""
    return float((visit["true_answer_count" if is_verified else "majority_count"] or 0) / visit["rollouts"])


def mean_trajectory(trajectories: Sequence[Trajectory]) -> Trajectory:
    """The mean over the visits that all have had; none without any trajectory."""
    return tuple(fsum(rates) / len(trajectories) for rates in zip(*trajectories, strict=False))


def similarity(trajectory: Trajectory, reference: Trajectory) -> float:
    """Cosine of two centred trajectories over the visits that both have, in [-1, 1]; 0 where one is constant."""
    visits = min(len(trajectory), len(reference))
    ours, theirs = (_centred(rates[:visits]) for rates in (trajectory, reference))
    lengths = sqrt(fsum(x * x for x in ours) * fsum(y * y for y in theirs))
    return fsum(x * y for x, y in zip(ours, theirs, strict=True)) / lengths if lengths else 0.0


def resembling(ranks: Sequence[tuple[float, float]], share: Fraction, threshold: float) -> list[bool]:
    """Whether each similarity is among the largest `share`, at least one, or reaches the threshold.

    Args:
        ranks: similarity and the draw that decides a tie, of every candidate of a step.
        share: in [0, 1].
        threshold: a similarity.
    """
    most = sorted(range(len(ranks)), key=ranks.__getitem__, reverse=True)[: max(1, int(share * len(ranks)))]
    chosen = {*most}
    return [place in chosen or rank[0] >= threshold for place, rank in enumerate(ranks)]


def _centred(rates: Trajectory) -> list[float]:
    if len({*rates}) < 2:
        return [0.0] * len(rates)
    mean = fsum(rates) / len(rates)
    return [rate - mean for rate in rates]
