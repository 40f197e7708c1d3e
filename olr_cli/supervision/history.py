"""The past of each prompt (R11), and the two criteria of Online Label Refinement that are computed from it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from olr_cli.answers import Key, Vote


class Past(NamedTuple):
    """A prompt's visits 1..t as sums: as small after 10,000 visits as after ten.

    Sums of integers, since a slope that equals the threshold must not exceed it (R12): majority counts 0, 0, 1, 1 of 8
    have a slope of exactly 1/20, the paper's threshold, and numpy's polyfit gives 0.05000000000000002.

    Attributes:
        visits: t.
        majorities: how often each class was the majority, by spelling.
        scale: common denominator of the pass rates p(i).
        total: scale * sum of p(i).
        moment: scale * sum of i p(i).
    """

    visits: int = 0
    majorities: Mapping[Key, Mapping[str, int]] = MappingProxyType({})
    scale: int = 1
    total: int = 0
    moment: int = 0

    def after(self, visit: Vote) -> Past:
        """The past with one more visit."""
        return self.plus(visit, 1, (self.visits + 1) * visit.majority_count)

    def plus(self, visit: Vote, visits: int, moment: int) -> Past:
        """The past with more visits of the same K, majority and spelling.

        Args:
            visit: their vote; its majority count is the sum of theirs.
            visits: how many they are.
            moment: the sum of visit number times majority count.
        """
        answer, majorities = visit.majority_answer, self.majorities
        if visit.majority is not None and answer is not None:
            # New mappings: the past before this visit must stay as it is, in case the step turns out to be invalid.
            spellings = majorities.get(visit.majority, {})
            majorities = {
                **majorities,
                visit.majority: {**spellings, answer: spellings.get(answer, 0) + visits},
            }
        scale, total, before, rollouts = self.scale, self.total, self.moment, visit.rollouts
        if scale != rollouts:  # K may differ from visit to visit
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
        """Least-squares slope of the majority's pass rate over visits 1..t (Eq. slope, R12), exact; 0 with one visit.

        A visit without majority counts with pass rate 0 (R11). It is numerator and denominator, not in lowest terms:
        a `Fraction` takes six times as long to make.
        """
        t = self.visits
        if t < 2:
            return 0, 1
        # With x(i) = i - (t + 1) / 2, sum x(i)^2 = t (t^2 - 1) / 12 and sum x(i) p(i) = rise / (2 scale).
        rise = 2 * self.moment - (t + 1) * self.total
        return 6 * rise, self.scale * t * (t * t - 1)

    @property
    def historical_majority(self) -> Key | None:
        """The one class that was the majority most often (Eq. hist_consistency, R13); None on a tie or without one."""
        # Most prompts have one majority for many visits.
        if len(self.majorities) == 1:
            return next(iter(self.majorities))
        times = {key: sum(spellings.values()) for key, spellings in self.majorities.items()}
        most = max(times.values(), default=0)
        leaders = [key for key, count in times.items() if count == most]
        return leaders[0] if len(leaders) == 1 else None

    @classmethod
    def of(cls, visits: Iterable[Vote]) -> Past:
        """The past that consists of these visits, oldest first."""
        past = cls()
        for visit in visits:
            past = past.after(visit)
        return past


class History:
    """The past of every prompt. Grows by one visit at a time and is never rewritten."""

    def __init__(self, pasts: Mapping[str, Past] = MappingProxyType({})) -> None:
        self._pasts = dict(pasts)

    def of(self, prompt_id: str) -> Past:
        """The prompt's visits so far; none before the first."""
        return self._pasts.get(prompt_id, _NO_VISIT)

    def extend(self, pasts: Mapping[str, Past]) -> None:
        """Record a step whose visits follow those so far: the past of each of its prompts that includes it."""
        self._pasts.update(pasts)


_NO_VISIT = Past()
