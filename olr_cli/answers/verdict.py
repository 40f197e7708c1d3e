"""The verdict on an answer: right, wrong, or not to be scored for a reason (R7)."""

from __future__ import annotations

from collections import Counter
from enum import Enum


class Verdict(Enum):
    """The verdict on an answer; only `RIGHT` is true in a boolean context.

    All but `RIGHT` and `WRONG` say why the answer cannot be scored.
    """

    RIGHT = "right"
    WRONG = "wrong"
    NO_GOLD = "the gold cannot be read"
    TWO_READINGS = "the gold can be read in two ways"
    NO_ANSWER = "no answer"
    UNREAD = "the answer cannot be read"
    TOO_LARGE = "too large to compute"
    TOO_MUCH_WORK = "too much work to compare"
    UNDECIDED = "neither proved right nor proved wrong"

    def __bool__(self) -> bool:
        return self is Verdict.RIGHT

    @property
    def reason(self) -> str | None:
        """The reason why the answer cannot be scored, or None if it is right or wrong."""
        return None if self in (Verdict.RIGHT, Verdict.WRONG) else self.value


def unscorable(counted: Counter[Verdict]) -> str:
    """Return a text that says how many answers could not be scored and why. If all could be scored, it is empty.

    `counted` holds the number of answers with each verdict.
    """
    return ", ".join(
        f"{counted[verdict]:,} ({verdict.reason})"
        for verdict in Verdict
        if verdict.reason and counted[verdict]
    )
