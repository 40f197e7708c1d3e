"""The two criteria of Online Label Refinement, as pure functions of a prompt's history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

from olr_cli.answers import Key
from olr_cli.supervision.history import Past


def slope(past: Past) -> Fraction:
    """Least-squares slope of the majority's pass rate over visits 1..t (Eq. slope, R12), exact.

    A visit without majority counts with pass rate 0 (R11). With one visit the slope is 0.
    """
    t = past.visits
    if t < 2:
        return Fraction(0)
    # With x(i) = i - (t + 1) / 2, sum x(i)^2 = t (t^2 - 1) / 12 and sum x(i) p(i) = rise / (2 scale).
    rise = 2 * past.moment - (t + 1) * past.total
    return Fraction(6 * rise, past.scale * t * (t * t - 1))


def historical_majority(majorities: Mapping[Key, int]) -> Key | None:
    """The one class that was the majority most often (Eq. hist_consistency, R13).

    Args:
        majorities: how many visits had each class as their majority, the current visit included.

    Returns:
        The key of the class, or None on a tie or if there never was a majority.
    """
    ranking = Counter(majorities).most_common(2)
    if not ranking or (len(ranking) == 2 and ranking[0][1] == ranking[1][1]):
        return None
    return ranking[0][0]
