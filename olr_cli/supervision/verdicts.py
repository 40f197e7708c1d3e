"""What the judge says about the answers of one step: their classes, and which of them match which labels (R7)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from olr_cli.answers import Judge, Key, Pair, is_placeholder
from olr_cli.data.prompts import Prompt


class Verdicts:
    """The judge's verdicts about one step: the class of each answer, and which answers match which labels.

    A label is a prompt's label or truth, which counts as its question asks for it (`Prompt.asked`). Nothing matches a
    missing label, or what stands for one: the sentinel, a placeholder (R16).
    """

    def __init__(self, keys: Mapping[str, Key], said: Sequence[Iterable[str]]) -> None:
        self.keys = keys
        self._said = said
        self._right: defaultdict[str | None, set[str | None]] = defaultdict(set)
        self._wrong: set[Pair] = set()

    def compare(self, judge: Judge, prompts: Sequence[Prompt], *columns: Sequence[str | None]) -> None:
        """Ask which of the answers to each prompt match its label in each of these columns."""
        self.add(
            judge, {pair: None for labels in columns for pair in label_pairs(prompts, labels, self._said)}
        )

    def add(self, judge: Judge, pairs: Collection[Pair]) -> None:
        """Ask for verdicts about these pairs of a label and an answer."""
        for pair, verdict in zip(pairs, judge.matches(pairs), strict=True):
            if verdict:
                self._right[pair[0]].add(pair[1])
            elif verdict is False:
                self._wrong.add(pair)

    def right(self, prompt: Prompt, label: str | None) -> Collection[str | None]:
        """The answers that match a label of a prompt."""
        return frozenset() if label is None else self._right.get(prompt.asked(label), frozenset())

    def is_wrong(self, prompt: Prompt, label: str, answer: str) -> bool:
        """Whether it is proved that an answer does not match a label of a prompt."""
        return (prompt.asked(label), answer) in self._wrong


def label_pairs(
    prompts: Sequence[Prompt], labels: Sequence[str | None], said: Sequence[Iterable[str]]
) -> dict[Pair, None]:
    """Each prompt's label with every answer to it, each pair once."""
    return {
        (gold, answer): None
        for prompt, label, answers in zip(prompts, labels, said, strict=True)
        if label is not None and not is_placeholder(label)
        for gold in [prompt.asked(label)]
        for answer in answers
    }
