"""Whether responses are right and how they vote: the one reading of training, evaluation, audit and other trainers.

response, prompt ──read_answer──► answer ──► its class ──► vote (R9)
                                    └────► verdict, given golds (R7)
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from olr_cli.answers.classes import Vote, is_read, vote
from olr_cli.answers.extraction import extract
from olr_cli.answers.golds import Gold, is_placeholder
from olr_cli.answers.judge import Judge, shared_judge
from olr_cli.answers.thinking import with_opened
from olr_cli.answers.verdict import Verdict

SENTINEL = "__NoCorrectAnswer__"
"""The label that no policy outputs (R2); the authors' data sets have the same."""


def read_answer(response: str, extractor: str, prompt: str = "") -> str | None:
    """Return the answer that a response to a prompt claims; None if it claims none, or writes the sentinel (R6, R16).

    Args:
        response: the text of a rollout.
        extractor: as in `find_extractor`.
        prompt: the text that the response continues, as far as it is known: it may end inside the thinking.
    """
    answer = extract(with_opened(prompt, response), extractor)
    # A policy that writes the sentinel itself has given no answer: the sentinel is never rewarded.
    return None if answer == SENTINEL else answer


class Grading:
    """The answers to P prompts as a judge sees them: the class of each, and which answers match which golds (R7).

    What nobody has asked for does not match.

    Attributes:
        answers: of each prompt, one per response; None where there is none.
        keys: the class of each answer.
    """

    def __init__(
        self,
        answers: Sequence[Sequence[str | None]],
        judge: Judge,
        tolerance: float | None = None,
    ) -> None:
        self.answers = answers
        self._judge, self._tolerance = judge, tolerance
        self._said = [
            dict.fromkeys(answer for answer in of_one if answer is not None)
            for of_one in answers
        ]
        self.keys = judge.keys({answer: None for of_one in self._said for answer in of_one})
        self._right: defaultdict[Gold, set[str | None]] = defaultdict(set)
        self._wrong: defaultdict[Gold, set[str | None]] = defaultdict(set)

    def ask(self, golds: Iterable[Iterable[Gold]]) -> None:
        """Ask which answers to each prompt match each of its golds."""
        self.ask_pairs({
            (gold, answer): None
            for of_one, said in zip(golds, self._said, strict=True)
            for gold in of_one
            for answer in said
        })  # fmt: skip

    def ask_pairs(self, pairs: Collection[tuple[Gold, str]]) -> None:
        """Ask whether the answer of each pair matches its gold."""
        # None, neither right nor wrong, is in none of the two.
        verdicts = self._judge.matches(pairs, self._tolerance)
        for (gold, answer), verdict in zip(pairs, verdicts, strict=True):
            if verdict is not None:
                (self._right if verdict else self._wrong)[gold].add(answer)

    def right(self, gold: Gold) -> Collection[str | None]:
        """Return the answers that match a gold."""
        return self._right.get(gold, frozenset())

    def wrong(self, gold: Gold) -> Collection[str | None]:
        """Return the answers that are proved not to match a gold."""
        return self._wrong.get(gold, frozenset())

    def verdict(self, golds: Sequence[Gold], answer: str | None) -> Verdict:
        """Return the verdict on an answer, given golds of which each is right."""
        if any(answer in self.right(gold) for gold in golds):
            return Verdict.RIGHT
        # A gold that cannot be read decides nothing about an answer, whatever that is.
        if not any(is_read(self._judge.keys([text])[text]) for text, _ in golds):
            return Verdict.NO_GOLD
        if not answer:
            return Verdict.NO_ANSWER
        # The first gold that leaves it open says why.
        undecided = next((gold for gold in golds if answer not in self.wrong(gold)), None)
        return (
            Verdict.WRONG
            if undecided is None
            else Verdict[self._judge.reason((undecided, answer))]
        )

    def votes(self) -> list[Vote]:
        """Return the vote of each prompt's responses."""
        return [vote(of_one, self.keys) for of_one in self.answers]


def any_of(golds: Sequence[str]) -> str:
    """Return the one gold, or several golds, each of which is right, as one text: a list in JSON."""
    return golds[0] if len(golds) == 1 else json.dumps(golds, ensure_ascii=False)


def right_answers(gold: str) -> list[str]:
    """Return the golds that `any_of` wrote as one text, without those that stand for a missing answer (R16)."""
    golds = [gold]
    with suppress(ValueError, RecursionError):
        golds = [str(item) for item in json.loads(gold)] if gold.startswith('["') else golds
    return [one for one in golds if not is_placeholder(one)]


def verdicts(
    golds: Sequence[Iterable[str]],
    answers: Sequence[str | None],
    judge: Judge,
    tolerance: float | None = None,
    in_percent: Sequence[bool] | None = None,
) -> list[Verdict]:
    """Return the verdict on each answer, given its golds, of which each is right.

    Where a question asks for its result `in_percent`, its golds are read so (`Gold`).
    """
    asks = [False] * len(golds) if in_percent is None else in_percent
    # What stands for a missing answer is nobody's gold.
    of_all = [
        [Gold(gold, is_percent) for gold in of_one if not is_placeholder(gold)]
        for of_one, is_percent in zip(golds, asks, strict=True)
    ]
    grading = Grading([[answer] for answer in answers], judge, tolerance)
    grading.ask(of_all)
    return [
        grading.verdict(of_one, answer)
        for of_one, answer in zip(of_all, answers, strict=True)
    ]


def verify(
    gold: str | float | Iterable[str | float | None] | None,
    answer: str | float | None,
    *,
    in_percent: bool = False,
    tolerance: float = 0,
) -> Verdict:
    """Return the verdict on an answer (`parse`), given its gold or golds, of which each is right.

    It works in any thread or process. Where a question asks for a result `in_percent`, a gold accepts a percent sign
    that it lacks. With a relative `tolerance`, numbers that are no integers may differ by so much. A number counts as
    it is written: 7 as ``7``.
    """
    each = gold if isinstance(gold, Iterable) and not isinstance(gold, str) else [gold]
    golds = [str(one) for one in each if one is not None]
    # A number counts as it is written.
    said = None if answer is None else str(answer)
    return verdicts([golds], [said], shared_judge(), tolerance, [in_percent])[0]


def parse(response: str | None, extractor: str = "last_answer") -> str | None:
    """Return the answer that a response claims, however it is marked, or None if it claims none (R6)."""
    return extract(response or "", extractor)
