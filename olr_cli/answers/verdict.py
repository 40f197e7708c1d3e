"""Whether an answer is right, wrong or cannot be scored, and why: what a grader is asked for (R7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum

from olr_cli.answers.classes import is_read
from olr_cli.answers.extraction import extract
from olr_cli.answers.judge import Judge, shared_judge
from olr_cli.answers.matching import as_asked
from olr_cli.answers.placeholders import is_placeholder


class Verdict(Enum):
    """The verdict on an answer; true if it is right. All but the first two are unscorable, for the reason they name."""

    RIGHT = "right"
    WRONG = "wrong"
    NO_GOLD = "the gold cannot be read"
    NO_ANSWER = "no answer"
    GIVEN_UP = "given up: not to be read or compared within the limits of size and work"

    def __bool__(self) -> bool:
        return self is Verdict.RIGHT

    @property
    def reason(self) -> str | None:
        """Why the answer cannot be scored; None if it is right or wrong."""
        return None if self in (Verdict.RIGHT, Verdict.WRONG) else self.value


def verdicts(
    golds: Sequence[Iterable[str]],
    answers: Sequence[str | None],
    judge: Judge,
    tolerance: float | None = None,
    in_percent: Sequence[bool] | None = None,
) -> list[Verdict]:
    """The verdict on each answer, of whose golds each is right; where the result is asked for `in_percent`, so read."""
    of_all = zip(golds, answers, in_percent or [False] * len(golds), strict=True)
    cases = [
        ([as_asked(gold, asks) for gold in of_one if not is_placeholder(gold)], answer)
        for of_one, answer, asks in of_all
    ]
    pairs = [(gold, answer) for of_one, answer in cases if answer for gold in of_one]
    asked = dict(zip(pairs, judge.matches(pairs, tolerance), strict=True))

    def verdict(of_one: Sequence[str], answer: str | None) -> Verdict:
        found = [asked[gold, answer] for gold in of_one if answer]
        if True in found:
            return Verdict.RIGHT
        if not any(is_read(judge.keys([gold])[gold]) for gold in of_one):
            return Verdict.NO_GOLD
        return Verdict.GIVEN_UP if None in found else Verdict.WRONG if answer else Verdict.NO_ANSWER

    return [verdict(*case) for case in cases]


def verify(
    gold: str | float | Iterable[str | float | None] | None,
    answer: str | float | None,
    *,
    in_percent: bool = False,
    tolerance: float = 0,
) -> Verdict:
    """The verdict on an answer (`parse`), given its gold or several, of which each is right; in any thread or process.

    Where a question asks for a result `in_percent`, a gold accepts a percent sign that it lacks. With a relative
    `tolerance`, numbers that are no integers may differ by so much. A number counts as it is written: 7 as ``7``.
    """
    each = gold if isinstance(gold, Iterable) and not isinstance(gold, str) else [gold]
    golds = [str(one) for one in each if one is not None]
    said = None if answer is None else str(answer)
    return verdicts([golds], [said], shared_judge(), tolerance, [in_percent])[0]


def parse(response: str | None, extractor: str = "last_answer") -> str | None:
    """The answer that a response claims, however it is marked; None if it claims none (R6)."""
    return extract(response or "", extractor)


def unscorable(counted: Counter[Verdict]) -> str:
    """How many answers could not be scored, by reason; empty if all could."""
    return ", ".join(f"{counted[one]:,} ({one.reason})" for one in Verdict if one.reason and counted[one])
