"""What a label rule sees, a visit of a prompt, and what it answers, the label of that visit (Eq. effective_label)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from olr_cli.answers import Vote
from olr_cli.supervision.types import LabelSource


class Visit(NamedTuple):
    """What is known of a prompt at one visit, when its label is decided. Nothing of it depends on the true answer.

    Attributes:
        prompt_id: of the prompt.
        number: t, from 1; one visit an epoch.
        rollouts: K.
        majority: the majority answer (R9), as most of its rollouts spell it; None without a majority.
        majority_count: rollouts in the majority's class; 0 without one.
        is_consistent: the majority is the historical majority (Eq. hist_consistency, R13).
        label: what the label is unless the rule replaces it: this visit's noisy label on a marked prompt, else the
            given label (R15). None if the file has none.
        source: of `label`.
        label_count: rollouts that match `label`; None without a label.
        tally: the vote (R9), of which `votes` is the readable form.
        slope_ratio: `slope` as a numerator and a denominator.
        first_majorities: the majority of each view; a tie goes to the answer that first had so many rollouts. Only for
            rules that ask for it (TTRL, Co-Reward).
    """

    prompt_id: str
    number: int
    rollouts: int
    majority: str | None
    majority_count: int
    is_consistent: bool
    label: str | None
    source: LabelSource
    label_count: int | None
    tally: Vote
    slope_ratio: tuple[int, int]
    first_majorities: tuple[str | None, ...] = ()

    @property
    def votes(self) -> dict[str, int]:
        """Rollouts in each class, by its most frequent spelling; missing answers do not vote."""
        return {self.tally.spelling[key]: count for key, count in self.tally.counts.items()}

    @property
    def pass_rate(self) -> Fraction:
        """p_maj (R10); 0 without a majority."""
        return Fraction(self.majority_count, self.rollouts)

    @property
    def slope(self) -> Fraction:
        """S_t, the slope of `pass_rate` over visits 1..t (Eq. slope, R12), exact: rounding flips no tie."""
        return Fraction(*self.slope_ratio)


class Label(NamedTuple):
    """The label that the rewards of a visit are computed with (R15).

    Attributes:
        answers: one for each view of the prompt; None: no label.
        source: of the answers.
        is_selected: a majority replaces the label (R14).
    """

    answers: tuple[str | None, ...]
    source: LabelSource
    is_selected: bool = False


Rule: TypeAlias = Callable[[Visit], Label]


def keep(visit: Visit) -> Label:
    """The label as it stands."""
    return Label((visit.label,), visit.source)


def replace_by_majority(visit: Visit) -> Label:
    """The majority of this visit.

    Raises:
        ValueError: it has none.
    """
    if visit.majority is None:
        raise ValueError("the visit has no majority to replace the label by")
    return Label((visit.majority,), "majority", is_selected=True)


def no_label(visit: Visit) -> Label:
    """No label: the verifier rewards nothing, so the prompt teaches nothing at this visit."""
    return Label((None,), "none")
