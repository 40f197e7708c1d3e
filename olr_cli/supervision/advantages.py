"""Rewards as the update sees them (R17)."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

STD_EPSILON = 1e-6


def group_advantages(rewards: Sequence[float]) -> tuple[float, ...]:
    """Eq. 1: (reward - mean) / (std + 1e-6) within a group, with the population std (R17).

    Exactly 0 where all rewards are equal.
    """
    if len(set(rewards)) == 1:
        return (0.0,) * len(rewards)
    mean = fsum(rewards) / len(rewards)
    deviations = [reward - mean for reward in rewards]
    std = (fsum(deviation**2 for deviation in deviations) / len(rewards)) ** 0.5
    return tuple(deviation / (std + STD_EPSILON) for deviation in deviations)
