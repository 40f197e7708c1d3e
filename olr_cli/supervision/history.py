"""The history of each prompt (R11), and the two criteria of Online Label Refinement computed from it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from olr_cli.answers import Key, Vote


class Past(NamedTuple):
    """A prompt's visits 1..t, kept as integer sums, so that 10,000 visits take no more memory than ten.

    Slope and historical majority are computed from the sums. The slope is exact, because all sums are integers. A
    rounded slope might exceed a threshold that the exact slope only equals (R12).
    """

    visits: int = 0
    """Number of visits, t."""

    majorities: Mapping[Key, Mapping[str, int]] = MappingProxyType({})
    """How often each class was the majority, by the spelling it had."""

    scale: int = 1
    """Common denominator of the pass rates p(i)."""

    total: int = 0
    """scale * sum of p(i)."""

    moment: int = 0
    """scale * sum of i p(i)."""

    def after(self, visit: Vote) -> Past:
        """Return a new past that includes the prompt's next visit; `visit` holds the votes of its rollouts."""
        return self.plus(visit, 1, (self.visits + 1) * visit.majority_count)

    def plus(self, visit: Vote, visits: int, moment: int) -> Past:
        """Return a new past with several more visits, all with the same majority, spelling and number of rollouts (K).

        Args:
            visit: has the majority, spelling and K of each added visit. Its majority count is the sum of theirs.
            visits: how many visits are added.
            moment: the sum, over the added visits, of visit number times majority count. The slope is computed from it.
        """
        answer, majorities = visit.majority_answer, self.majorities
        if visit.majority is not None and answer is not None:
            # Copy, don't update: if a later group of the step is invalid, the history keeps the past before this visit.
            spellings = majorities.get(visit.majority, {})
            majorities = {
                **majorities,
                visit.majority: {**spellings, answer: spellings.get(answer, 0) + visits},
            }
        scale, total, before, rollouts = self.scale, self.total, self.moment, visit.rollouts
        # K may change between visits, so bring all pass rates to one denominator.
        if scale != rollouts:
            scale = math.lcm(scale, rollouts)
            total, before = total * (scale // self.scale), before * (scale // self.scale)
        unit = scale // rollouts
        return Past(
            self.visits + visits,
            majorities,
            scale,
            total + visit.majority_count * unit,
            before + moment * unit,
        )

    @property
    def slope_ratio(self) -> tuple[int, int]:
        """Numerator and denominator of the slope of the majority's pass rate over visits 1..t (Eq. slope, R12).

        It is the exact least-squares slope, or (0, 1) with fewer than two visits. A visit without a majority counts
        with pass rate 0 (R11). The ratio may not be in lowest terms.
        """
        # A pair, because a `Fraction` takes six times as long to build.
        t = self.visits
        if t < 2:
            return 0, 1
        # Majority counts of 0, 0, 1, 1 in 8 rollouts have a slope of exactly 1/20, the paper's threshold, but numpy's
        # polyfit returns 0.05000000000000002.
        # With x(i) = i - (t + 1) / 2, sum x(i)^2 = t (t^2 - 1) / 12 and sum x(i) p(i) = rise / (2 scale).
        rise = 2 * self.moment - (t + 1) * self.total
        return 6 * rise, self.scale * t * (t * t - 1)

    @property
    def historical_majority(self) -> Key | None:
        """Key of the class of answers that was the majority most often (Eq. hist_consistency, R13).

        None on a tie, or before the first majority.
        """
        # No need to count: most prompts have one majority for many visits, and this runs at every visit.
        if len(self.majorities) == 1:
            return next(iter(self.majorities))
        wins = {key: sum(spellings.values()) for key, spellings in self.majorities.items()}
        highest = max(wins.values(), default=0)
        leaders = [key for key, count in wins.items() if count == highest]
        return leaders[0] if len(leaders) == 1 else None

    @classmethod
    def of(cls, visits: Iterable[Vote]) -> Past:
        """Build the past from the votes of a prompt's visits, oldest first."""
        past = cls()
        for visit in visits:
            past = past.after(visit)
        return past


class History:
    """Keeps a summary of the past visits of every prompt. Visits are added step by step and never removed."""

    def __init__(self, pasts: Mapping[str, Past] = MappingProxyType({})) -> None:
        self._pasts = dict(pasts)

    def of(self, prompt_id: str) -> Past:
        """Return a summary of the prompt's visits so far, empty before its first visit."""
        return self._pasts.get(prompt_id, _NO_VISIT)

    def extend(self, pasts: Mapping[str, Past]) -> None:
        """Record the visits of one step.

        `pasts` maps the prompt_id of each prompt in the step to a summary of all its visits, including the new one.
        """
        self._pasts.update(pasts)


_NO_VISIT = Past()
