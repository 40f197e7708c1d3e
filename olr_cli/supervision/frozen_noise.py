"""Which stored answers may become frozen noise (R4): those that could be drawn during training (R3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from olr_cli.answers import Judge
from olr_cli.data.prompts import Prompt


def proved_wrong(
    answers: Mapping[str, Sequence[str]], prompts: Sequence[Prompt], judge: Judge
) -> dict[str, list[str]]:
    """Of each prompt's answers, one spelling of every class that is proved to differ from its label.

    Args:
        answers: by prompt_id.
        prompts: labelled ones; their labels count as true.
        judge: tells which answers mean the same.

    Returns:
        By prompt_id, the lexicographically first spelling of each wrong class (R3: parsed and proved different).
    """
    asked = [(prompt.prompt_id, prompt.given_label) for prompt in prompts if prompt.prompt_id in answers]
    pairs = [(prompt_id, label) for prompt_id, label in asked if label is not None]
    collections = [{label, *answers[prompt_id]} for prompt_id, label in pairs]
    proved: dict[str, list[str]] = {}
    for (prompt_id, label), classes in zip(pairs, judge.classify(collections), strict=True):
        spellings: dict[int, str] = {}
        for answer in sorted(answers[prompt_id]):
            if classes.proved_different(answer, label):
                spellings.setdefault(classes.class_of(answer), answer)
        proved[prompt_id] = list(spellings.values())
    return proved
