"""The majority answer of a rollout group (R9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from olr_cli.answers.forms import Key


@dataclass(frozen=True)
class Vote:
    """How the K rollouts of a group voted.

    Attributes:
        majority: key of the one class with the most rollouts; None if classes tie for the top or nobody answered.
        majority_count: rollouts in the majority class, 0 without one.
        rollouts: K, missing answers included.
        answered: rollouts that have an answer.
        counts: rollouts in each class that got any.
        spelling: most frequent spelling of each of these classes, ties in lexicographic order.
    """

    majority: Key | None
    majority_count: int
    rollouts: int
    answered: int
    counts: Mapping[Key, int]
    spelling: Mapping[Key, str]

    @property
    def majority_answer(self) -> str | None:
        """The majority as it is spelled; None without one."""
        return None if self.majority is None else self.spelling[self.majority]


def vote(answers: Sequence[str | None], keys: Mapping[str, Key]) -> Vote:
    """Count the answers of a group's K rollouts; None is a missing answer, which doesn't vote but counts in K (R9).

    Raises:
        KeyError: an answer has no key.
    """
    spellings = Counter(answer for answer in answers if answer is not None)
    counts: Counter[Key] = Counter()
    spelling: dict[Key, str] = {}
    for answer, count in sorted(spellings.items(), key=lambda item: (-item[1], item[0])):
        key = keys[answer]
        counts[key] += count
        spelling.setdefault(key, answer)
    most = max(counts.values(), default=0)
    top = [key for key, count in counts.items() if count == most]
    majority = top[0] if len(top) == 1 else None
    return Vote(
        majority=majority,
        majority_count=0 if majority is None else counts[majority],
        rollouts=len(answers),
        answered=spellings.total(),
        counts=dict(counts),
        spelling=spelling,
    )


def first_majority(answers: Sequence[str | None], tally: Vote, keys: Mapping[str, Key]) -> Key | None:
    """The majority class; in a tie, that of the classes at the top which had all its rollouts first.

    Args:
        answers: in the order in which the rollouts were sampled.
        tally: their `vote`.
        keys: of the answers.

    Returns:
        None if nobody answered.
    """
    most, reached = max(tally.counts.values(), default=0), Counter[Key]()
    for answer in answers:
        if answer is not None:
            key = keys[answer]
            reached[key] += 1
            if reached[key] == most:
                return key
    return None
