"""Tell a response's thinking from its answer by the marks of thinking, and decode responses with these marks (R6).

A chat template may open the thinking itself, at the end of the prompt. In every engine and backend, that opening mark
is then added to the response. Without it, a box in a thought that was cut off would be taken for an answer.
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
"""Mark that opens the thinking of a family of models -> mark that closes it."""

_ALL_MARKS = (*THOUGHT_MARKS, *THOUGHT_MARKS.values())
_MARK = re.compile("|".join(map(re.escape, _ALL_MARKS)))
# Gemma 4 and gpt-oss put the channel's name, or a mark that ends the header, before the thinking.
_OPENED = re.compile(
    rf"(?:{'|'.join(map(re.escape, THOUGHT_MARKS))})(?:thought|<\|message\|>)?\s*\Z"
)
_LONGEST_OPENED = 64
"""Length of a prompt's end that is searched for an opening mark: longer than any mark and the space after it.

It counts characters of a text, and tokens of a prompt, of which a mark has no more than it has characters.
"""


def _last_mark(response: str) -> re.Match[str] | None:
    """Return the last mark of thinking in a response, such as `<think>` or `</think>`, or None without any."""
    # Every mark has one of these. Most responses have none of them, and this test takes 1 % of the search's time.
    if "<" not in response and "THINK]" not in response and "◁" not in response:
        return None
    marks = [*_MARK.finditer(response)]
    return marks[-1] if marks else None


def is_thinking(response: str) -> bool | None:
    """Return whether a response ends inside its thinking, or None without a mark such as `<think>` or `</think>`."""
    last = _last_mark(response)
    return None if last is None else last[0] in THOUGHT_MARKS


def after_thinking(response: str) -> str | None:
    """Return the text of a response after its thinking, or None if the response ends inside it.

    A response without a mark of thinking, such as `</think>`, is returned as it is.
    """
    last = _last_mark(response)
    if last is None:
        return response
    return None if last[0] in THOUGHT_MARKS else response[last.end() :]


def opened_by(prompt: str) -> str:
    """Return the opening mark of thinking that a rendered prompt ends with, such as `<think>`, or "" if it has none.

    White space after the mark is part of the result.
    """
    match = _OPENED.search(prompt[-_LONGEST_OPENED:])
    return match[0] if match else ""


def with_opened(prompt: str, response: str) -> str:
    """Return a response that begins with its prompt's opening mark of thinking, such as `<think>`.

    Some chat templates end the prompt with such a mark. It is then put before the response, unless the response already
    begins with it. If the prompt ends without a mark, the response is returned as it is.
    """
    mark = opened_by(prompt)
    return response if response.startswith(mark.rstrip()) else mark + response


class ResponseTexts:
    """A decoder that turns the token ids of responses into the texts that are graded and stored.

    It leaves out special tokens, except those that form marks of thinking, such as `<think>`. Without these marks, a
    thought that was cut off would look like an answer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        added_tokens = tokenizer.added_tokens_decoder
        special = {
            *tokenizer.all_special_ids,
            *(id for id, token in added_tokens.items() if token.special),
        }
        names = {id: str(tokenizer.convert_ids_to_tokens(id)) for id in special}
        # A mark may consist of several tokens: the `<|channel|>` of `<|channel|>analysis` is one.
        marks = {
            id for id, name in names.items() if any(name in mark for mark in _ALL_MARKS)
        }
        self._ids_left_out = special - marks if marks else None

    def decode(self, tokens: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each row of token ids."""
        left_out = self._ids_left_out
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
        """Return the mark of thinking that each prompt ends with, such as `<think>`, or "" for a prompt without one.

        The caller puts this mark before the text of the prompt's responses.

        Args:
            prompts: the token ids of each prompt.
        """
        return [
            opened_by(text)
            for text in self.decode([prompt[-_LONGEST_OPENED:] for prompt in prompts])
        ]
