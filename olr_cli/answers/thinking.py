"""Where a response thinks and where it answers: the marks of thinking, and responses as text with all of them (R6).

A chat template may open the thinking itself, at the end of the prompt. What it opened belongs to the response, in every
engine and backend, or a box in a thought that was cut off would be taken for an answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

THOUGHT_MARKS: Mapping[str, str] = MappingProxyType({
    "<think>": "</think>",  # DeepSeek, Qwen, GLM and most others
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",  # EXAONE Deep
    "<reasoning>": "</reasoning>",  # Reka Flash
    "<seed:think>": "</seed:think>",  # Seed-OSS
    "<mm:think>": "</mm:think>",  # MiniMax M3
    "<longcat_think>": "</longcat_think>",  # LongCat
    "[THINK]": "[/THINK]",  # Mistral
    "◁think▷": "◁/think▷",  # Kimi-VL
    "<|channel|>analysis": "<|channel|>final",  # gpt-oss
    "<|channel>": "<channel|>",  # Gemma 4
    "<|START_THINKING|>": "<|END_THINKING|>",  # Command A
    "<|begin_of_thought|>": "<|end_of_thought|>",  # OpenThinker, Sky-T1
    "<|inner_prefix|>": "<|inner_suffix|>",  # Apertus
    "<|plamo:begin_think:plamo|>": "<|plamo:end_think:plamo|>",  # PLaMo 3
})  # fmt: skip
"""The mark with which a family of models begins its thinking -> the mark with which it ends it."""

_ALL_MARKS = (*THOUGHT_MARKS, *THOUGHT_MARKS.values())
_MARK = re.compile("|".join(map(re.escape, _ALL_MARKS)))
# Gemma 4 and gpt-oss name the channel, or end its head, before the thinking begins.
_OPENED = re.compile(
    rf"(?:{'|'.join(map(re.escape, THOUGHT_MARKS))})(?:thought|<\|message\|>)?\s*\Z"
)
_LONGEST_OPENED = 64
"""Characters, and so at most as many tokens: more than the longest mark has with the space after it."""


def _last_mark(response: str) -> re.Match[str] | None:
    # Every mark has one of these, and most responses none, which takes a hundredth of the time to find out.
    if "<" not in response and "THINK]" not in response and "◁" not in response:
        return None
    marks = [*_MARK.finditer(response)]
    return marks[-1] if marks else None


def is_thinking(response: str) -> bool | None:
    """Whether a response ends inside its thinking; None if it has no mark of thinking."""
    last = _last_mark(response)
    return None if last is None else last[0] in THOUGHT_MARKS


def after_thinking(response: str) -> str | None:
    """Return what a response says after its thinking, or None if it ends inside it."""
    last = _last_mark(response)
    if last is None:
        return response
    return None if last[0] in THOUGHT_MARKS else response[last.end() :]


def opened_by(prompt: str) -> str:
    """Return the mark, with the space after it, by which a rendered prompt begins the thinking; "" if it does not."""
    opened = _OPENED.search(prompt[-_LONGEST_OPENED:])
    return opened[0] if opened else ""


def with_opened(prompt: str, response: str) -> str:
    """Return a response with what its prompt opened in front, unless it stands there already."""
    opened = opened_by(prompt)
    return response if response.startswith(opened.rstrip()) else opened + response


class ResponseTexts:
    """Turns token ids into responses as they are read and stored.

    Special tokens are left out, but for those of which marks of thinking are made: without them a thought that was cut
    off would look like an answer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.added_tokens_decoder
        special = {
            *tokenizer.all_special_ids,
            *(id for id, token in added.items() if token.special),
        }
        names = {id: str(tokenizer.convert_ids_to_tokens(id)) for id in special}
        marks = {
            id for id, name in names.items() if any(name in mark for mark in _ALL_MARKS)
        }
        self._left_out = special - marks if marks else None

    def decode(self, tokens: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each row of token ids."""
        left_out = self._left_out
        if left_out is not None:
            tokens = [[token for token in row if token not in left_out] for row in tokens]
        return list(
            self._tokenizer.batch_decode(
                tokens,
                skip_special_tokens=left_out is None,
                clean_up_tokenization_spaces=False,
            )
        )

    def opened(self, prompts: Sequence[Sequence[int]]) -> list[str]:
        """Return what each prompt opened, with which the text of a response to it begins (`opened_by`)."""
        return [
            opened_by(text)
            for text in self.decode([prompt[-_LONGEST_OPENED:] for prompt in prompts])
        ]
