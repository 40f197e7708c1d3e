"""The majority answer of a rollout group (R9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from olr_cli.answers.judge import AnswerClasses


@dataclass(frozen=True)
class Vote:
    """How the K rollouts of a group voted. Classes are those of the `AnswerClasses` the vote was taken with.

    Attributes:
        majority: the one class with the most rollouts; None if classes tie for the top or nobody answered.
        majority_count: rollouts in the majority class, 0 without one.
        rollouts: K, missing answers included.
        answered: rollouts that have an answer.
        counts: rollouts in each class that got any.
        spelling: most frequent spelling of each of these classes, ties in lexicographic order.
    """

    majority: int | None
    majority_count: int
    rollouts: int
    answered: int
    counts: Mapping[int, int]
    spelling: Mapping[int, str]


def vote(answers: Sequence[str | None], classes: AnswerClasses) -> Vote:
    """Count the answers of a group's K rollouts; None is a missing answer, which doesn't vote but counts in K (R9).

    Raises:
        KeyError: an answer isn't in the collection that `classes` is of.
    """
    spellings = Counter(answer for answer in answers if answer is not None)
    counts: Counter[int] = Counter()
    spelling: dict[int, str] = {}
    for answer, count in sorted(spellings.items(), key=lambda item: (-item[1], item[0])):
        answer_class = classes.class_of(answer)
        counts[answer_class] += count
        spelling.setdefault(answer_class, answer)
    top = [c for c, count in counts.items() if count == max(counts.values())]
    majority = top[0] if len(top) == 1 else None
    return Vote(
        majority=majority,
        majority_count=0 if majority is None else counts[majority],
        rollouts=len(answers),
        answered=spellings.total(),
        counts=dict(counts),
        spelling=spelling,
    )


def first_majority(answers: Sequence[str | None], tally: Vote, classes: AnswerClasses) -> str | None:
    """The majority answer; in a tie, that of the classes at the top which had all its rollouts first.

    Args:
        answers: in the order in which the rollouts were sampled.
        tally: their `vote`.
        classes: that it was taken with.

    Returns:
        As its class is spelled; None if nobody answered.
    """
    most, reached = max(tally.counts.values(), default=0), Counter[int]()
    for answer in answers:
        if answer is not None:
            answer_class = classes.class_of(answer)
            reached[answer_class] += 1
            if reached[answer_class] == most:
                return tally.spelling[answer_class]
    return None
