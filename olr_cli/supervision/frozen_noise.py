"""Which stored answers may become frozen noise (R4): those that could be drawn during training (R3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from olr_cli.answers import Judge, Key, is_read
from olr_cli.data.prompts import Prompt


def proved_wrong(
    answers: Mapping[str, Sequence[str]], prompts: Sequence[Prompt], judge: Judge
) -> dict[str, list[str]]:
    """Of each prompt's answers, one spelling of every class that is proved to differ from its label.

    Args:
        answers: by prompt_id.
        prompts: labelled ones; their labels count as true.
        judge: tells the classes of answers, and which match a label.

    Returns:
        By prompt_id, the lexicographically first spelling of each wrong class (R3: parsed and proved different).
    """
    asked = [(prompt.prompt_id, prompt.given_label) for prompt in prompts if prompt.prompt_id in answers]
    labelled = [(prompt_id, label) for prompt_id, label in asked if label is not None]
    keys = judge.keys(answer for prompt_id, _ in labelled for answer in answers[prompt_id])
    verdicts = judge.matches(
        (label, answer) for prompt_id, label in labelled for answer in answers[prompt_id]
    )
    proved: dict[str, list[str]] = {}
    for prompt_id, label in labelled:
        spellings: dict[Key, str] = {}
        for answer in sorted(answers[prompt_id]):
            if is_read(keys[answer]) and verdicts[label, answer] is False:
                spellings.setdefault(keys[answer], answer)
        proved[prompt_id] = list(spellings.values())
    return proved
