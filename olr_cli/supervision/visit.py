"""The interface of a label rule: it sees a visit of a prompt and returns its label (Eq. effective_label)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from olr_cli.answers import Vote
from olr_cli.supervision.types import LabelSource


class Visit(NamedTuple):
    """What a label rule may know about one visit of a prompt; the true answer is not part of it."""

    prompt_id: str
    number: int
    """t, from 1; each epoch is one visit."""

    rollouts: int
    """Number of responses, K."""

    majority: str | None
    """The majority answer (R9) in its most frequent spelling; None without a majority."""

    majority_count: int
    """Number of rollouts in the majority's class; 0 without a majority."""

    is_consistent: bool
    """Whether the majority is the historical majority (Eq. hist_consistency, R13)."""

    label: str | None
    """The label unless the rule replaces it: the visit's noisy label on a marked prompt, else the given label (R15).

    None if the file has no label.
    """

    source: LabelSource
    """Origin of `label`."""

    label_count: int | None
    """Number of rollouts that match `label`; None without a label."""

    tally: Vote
    """The vote (R9); `votes` is its readable form."""

    slope_ratio: tuple[int, int]
    """`slope` as a numerator and a denominator."""

    first_majorities: tuple[str | None, ...] = ()
    """The majority of each view; on a tie, the first answer to reach the top count.

    Filled only for rules that ask for it (TTRL, Co-Reward).
    """

    @property
    def votes(self) -> dict[str, int]:
        """Most frequent spelling of each class of equivalent answers -> number of rollouts in the class.

        Missing answers do not vote.
        """
        return {self.tally.spelling[key]: count for key, count in self.tally.counts.items()}

    @property
    def pass_rate(self) -> Fraction:
        """p_maj, the majority's share of the rollouts (R10); 0 without a majority."""
        return Fraction(self.majority_count, self.rollouts)

    @property
    def slope(self) -> Fraction:
        """S_t, the slope of `pass_rate` over visits 1..t (Eq. slope, R12).

        It is exact, so rounding cannot decide whether it exceeds a threshold.
        """
        return Fraction(*self.slope_ratio)


class Label(NamedTuple):
    """The label that the rewards of a visit are computed with (R15), and where it comes from.

    Label rules return it.
    """

    answers: tuple[str | None, ...]
    """One answer per view of the prompt; None for no label."""

    source: LabelSource
    """Origin of the answers."""

    is_selected: bool = False
    """Whether a majority replaces the label (R14)."""


Rule: TypeAlias = Callable[[Visit], Label]
"""A label rule: decides the label of a visit."""


def keep(visit: Visit) -> Label:
    """Return the label that the visit has already, unchanged."""
    return Label((visit.label,), visit.source)


def replace_by_majority(visit: Visit) -> Label:
    """Replace the label by this visit's majority.

    Raises:
        ValueError: the visit has no majority.
    """
    if visit.majority is None:
        raise ValueError("the visit has no majority to replace the label by")
    return Label((visit.majority,), "majority", is_selected=True)


def no_label(visit: Visit) -> Label:
    """Give the visit no label: nothing is rewarded, so the prompt teaches nothing this time."""
    return Label((None,), "none")
