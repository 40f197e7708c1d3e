"""The two criteria of Online Label Refinement, as pure functions of a prompt's history."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

from olr_cli.supervision.history import Visit

AnswerClass = TypeVar("AnswerClass", int, str)


def slope(visits: Sequence[Visit]) -> Fraction:
    """Least-squares slope of the majority's pass rate over visits 1..t (Eq. slope, R12), exact.

    A visit without majority counts with pass rate 0 (R11). With one visit the slope is 0.
    """
    t = len(visits)
    if t < 2:
        return Fraction(0)
    scale = math.lcm(*(visit.rollouts for visit in visits))
    rise = sum(
        (2 * i - t - 1) * visit.majority_count * (scale // visit.rollouts)
        for i, visit in enumerate(visits, 1)
    )
    # With x centred, sum x(i)^2 = t (t^2 - 1) / 12 and sum x(i) p(i) = rise / (2 scale).
    return Fraction(6 * rise, scale * t * (t * t - 1))


def historical_majority(majorities: Sequence[AnswerClass | None]) -> AnswerClass | None:
    """The one class that was the majority most often (Eq. hist_consistency, R13).

    Args:
        majorities: the majority's class at each visit, the current one included; None where there was none.

    Returns:
        The class, or None on a tie or if there never was a majority.
    """
    ranking = Counter(majority for majority in majorities if majority is not None).most_common(2)
    if not ranking or (len(ranking) == 2 and ranking[0][1] == ranking[1][1]):
        return None
    return ranking[0][0]
