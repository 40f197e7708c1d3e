"""Grade responses and count their votes: training, evaluation, audit and other trainers all do it here.

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
"""Label that no policy outputs (R2); the authors' data sets use the same text."""


def read_answer(response: str, extractor: str, prompt: str = "") -> str | None:
    """Return the answer that a response claims, or None if it claims none (R16, R6).

    Noise may replace a label by the text `SENTINEL`. A response that claims this text gets None, too, so it is never
    rewarded.

    Args:
        response: the text of a rollout.
        extractor: setting of an extractor, such as ``boxed`` or ``after:####`` (`find_extractor` lists all).
        prompt: the text that the response continues, if known. If the prompt ends with a mark that opens the thinking,
            such as ``<think>``, the response begins inside its thinking.
    """
    answer = extract(with_opened(prompt, response), extractor)
    # A policy that writes the sentinel itself must not be rewarded, although the text equals the label.
    return None if answer == SENTINEL else answer


class Grading:
    """The answers to several prompts, the class of each answer, and the judge's verdicts on them (R7).

    Answers with the same meaning form a class. A gold is a label or true answer. `ask` and `ask_pairs` have the judge
    compare answers with golds. `right`, `wrong` and `verdict` use the results, so call them afterwards: a pair that was
    not compared counts as undecided.

    Args:
        answers: the answers to each prompt, one per response; None for a response without an answer.
        judge: decides on classes and matches.
        tolerance: relative tolerance for numbers; by default the judge's.
    """

    def __init__(
        self,
        answers: Sequence[Sequence[str | None]],
        judge: Judge,
        tolerance: float | None = None,
    ) -> None:
        self.answers = answers
        """Answers to each prompt, one per response; None for a response without an answer."""

        self._judge, self._tolerance = judge, tolerance
        self._distinct_answers = [
            dict.fromkeys(answer for answer in prompt_answers if answer is not None)
            for prompt_answers in answers
        ]
        self.keys = judge.keys(
            {
                answer: None
                for prompt_answers in self._distinct_answers
                for answer in prompt_answers
            }
        )
        """Class of each answer, by its text."""

        self._right: defaultdict[Gold, set[str | None]] = defaultdict(set)
        self._wrong: defaultdict[Gold, set[str | None]] = defaultdict(set)

    def ask(self, golds: Iterable[Iterable[Gold]]) -> None:
        """Ask the judge which answers to each prompt match each of the prompt's golds, and keep its verdicts.

        `golds` has the golds of each prompt, in the order of the prompts.
        """
        self.ask_pairs({
            (gold, answer): None
            for prompt_golds, distinct in zip(golds, self._distinct_answers, strict=True)
            for gold in prompt_golds
            for answer in distinct
        })  # fmt: skip

    def ask_pairs(self, pairs: Collection[tuple[Gold, str]]) -> None:
        """Ask the judge whether the answer of each pair (gold, answer) matches the gold, and keep its verdicts."""
        # An undecided answer (None) is stored in neither set: it is not right, and R3 must not draw it as a wrong one.
        verdicts = self._judge.matches(pairs, self._tolerance)
        for (gold, answer), verdict in zip(pairs, verdicts, strict=True):
            if verdict is not None:
                (self._right if verdict else self._wrong)[gold].add(answer)

    def right(self, gold: Gold) -> Collection[str | None]:
        """Return the answers, to any of the prompts, that match a gold.

        The result holds only answers that `ask` or `ask_pairs` compared with this gold. It never holds None.
        """
        return self._right.get(gold, frozenset())

    def wrong(self, gold: Gold) -> Collection[str | None]:
        """Return the answers, to any of the prompts, that are proved not to match a gold.

        The result holds only answers that `ask` or `ask_pairs` compared with this gold. It never holds None.
        """
        return self._wrong.get(gold, frozenset())

    def verdict(self, golds: Sequence[Gold], answer: str | None) -> Verdict:
        """Return the verdict on an answer. The answer is right if it matches any of the golds.

        A missing answer (None) is never right. Call `ask` first, so that the judge has compared the answer with each
        gold.
        """
        if any(answer in self.right(gold) for gold in golds):
            return Verdict.RIGHT
        # Before `NO_ANSWER`: without a readable gold, even a missing answer has no verdict.
        if not any(is_read(self._judge.keys([text])[text]) for text, _ in golds):
            return Verdict.NO_GOLD
        if not answer:
            return Verdict.NO_ANSWER
        # The reason comes from the first gold that leaves the answer undecided.
        undecided = next((gold for gold in golds if answer not in self.wrong(gold)), None)
        return (
            Verdict.WRONG
            if undecided is None
            else Verdict[self._judge.reason((undecided, answer))]
        )

    def votes(self) -> list[Vote]:
        """Return the vote of the responses to each prompt, in the order of the prompts."""
        return [vote(prompt_answers, self.keys) for prompt_answers in self.answers]


def any_of(golds: Sequence[str]) -> str:
    """Write one or several golds as one text: a single gold as it is, several as a JSON list."""
    return golds[0] if len(golds) == 1 else json.dumps(golds, ensure_ascii=False)


def right_answers(gold: str) -> list[str]:
    """Return the golds in a text that `any_of` wrote: one gold as it is, or several as a JSON list (R16).

    Placeholders for a missing answer, such as N/A, are left out.
    """
    golds = [gold]
    # A gold that only begins like a JSON list stays one gold.
    with suppress(ValueError, RecursionError):
        golds = [str(item) for item in json.loads(gold)] if gold.startswith('["') else golds
    return [text for text in golds if not is_placeholder(text)]


def verdicts(
    golds: Sequence[Iterable[str]],
    answers: Sequence[str | None],
    judge: Judge,
    tolerance: float | None = None,
    *,
    in_percent: Sequence[bool],
) -> list[Verdict]:
    """Return the verdict on each answer. An answer is right if it matches any of its golds.

    Args:
        golds: the golds of each answer: labels or true answers. Placeholders for a missing answer are ignored.
        answers: the answers, None for a missing one.
        judge: decides which answers match.
        tolerance: relative tolerance for numbers; by default the judge's.
        in_percent: for each answer, whether its question asks for a percentage.
    """
    # A placeholder such as N/A is no gold: an answer that repeats it must not be right.
    golds_by_answer = [
        [Gold(text, is_percent) for text in answer_golds if not is_placeholder(text)]
        for answer_golds, is_percent in zip(golds, in_percent, strict=True)
    ]
    grading = Grading([[answer] for answer in answers], judge, tolerance)
    grading.ask(golds_by_answer)
    return [
        grading.verdict(answer_golds, answer)
        for answer_golds, answer in zip(golds_by_answer, answers, strict=True)
    ]


def verify(
    gold: str | float | Iterable[str | float | None] | None,
    answer: str | float | None,
    *,
    in_percent: bool = False,
    tolerance: float = 0,
) -> Verdict:
    """Return the verdict on an answer. The answer is right if it matches any of the golds.

    If no gold can be read, and none has the same text as the answer, the verdict is `NO_GOLD`. Otherwise a missing
    answer gets `NO_ANSWER`. The function may be called in any thread or process.

    Args:
        gold: one gold or several. A number stands for its usual spelling (7 for ``7``), and None for no gold.
        answer: an answer as `parse` returns it, or a number; None for a missing answer.
        in_percent: whether the question asks for a percentage. The answer may then have a percent sign that the gold
            lacks.
        tolerance: largest relative difference of two numbers, unless both are integers; 0.01 allows 1 %.
    """
    values = gold if isinstance(gold, Iterable) and not isinstance(gold, str) else [gold]
    golds = [str(value) for value in values if value is not None]
    answer_text = None if answer is None else str(answer)
    return verdicts(
        [golds], [answer_text], shared_judge(), tolerance, in_percent=[in_percent]
    )[0]


def parse(response: str | None, extractor: str = "last_answer") -> str | None:
    """Return the answer that a response claims, or None if it claims none (R6).

    The default extractor, `last_answer`, accepts all common marks of an answer. `find_extractor` lists the other
    extractors. A response of None counts as an empty one.
    """
    return extract(response or "", extractor)
