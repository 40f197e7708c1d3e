"""Advantages of rollouts within their group (R17)."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

STD_EPSILON = 1e-6
"""Added to the standard deviation of a group's rewards (R17)."""


def group_advantages(rewards: Sequence[float]) -> tuple[float, ...]:
    """Return the advantage of each reward within its group (Eq. 1, R17): (reward - mean) / (std + 1e-6).

    `rewards` holds the rewards of one prompt's rollouts, at least one. `std` is their population standard deviation. If
    all rewards are equal, all advantages are exactly 0.
    """
    # Exactly 0: a rounding error left by `reward - mean` would count as a gradient in `Grpo._with_gradient`.
    if len(set(rewards)) == 1:
        return (0.0,) * len(rewards)
    # fsum rounds once, at the end, so the order of the rollouts cannot change a bit of the result.
    mean = fsum(rewards) / len(rewards)
    deviations = [reward - mean for reward in rewards]
    std = (fsum(deviation**2 for deviation in deviations) / len(rewards)) ** 0.5
    return tuple(deviation / (std + STD_EPSILON) for deviation in deviations)
