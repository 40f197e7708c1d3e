"""The question in a prompt, and which prompts of two sources ask the same one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

import polars as pl

from olr_cli.data.prompts import Message, Prompt

_TEMPLATES = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r".*<\|im_start\|>user\n(.*?)<\|im_end\|>",
        r".*<\|start_header_id\|>user<\|end_header_id\|>\n\n(.*?)<\|eot_id\|>",
        r".*<start_of_turn>user\n(.*?)<end_of_turn>",
        r".*\[INST\](.*?)\[/INST\]",
        r".*<｜User｜>(.*?)<｜Assistant｜>",
        r".*<\|user\|>\n?(.*?)(?:<\|end\|>|<\|assistant\|>|</s>)",
        r"(?:.*\n)?user\n(.*)\nassistant\n(?:<think>\n*)?(?:</think>\n*)?$",  # without the special tokens, as in verl
        r".*\bUser: ?(.*?)\s*Assistant:(?:.*<think>)?\s*$",
    )
)
"""What chat templates put around the last question of the user."""


def question_of(messages: Sequence[Message]) -> str:
    """What the user asks last, without other turns and without what a chat template put around it."""
    asked = [message.content for message in messages if message.role == "user"]
    text = asked[-1] if asked else "\n\n".join(message.content for message in messages)
    matches = (template.match(text) for template in _TEMPLATES)
    return next((match[1].strip() for match in matches if match is not None), text)


def same_prompts(logged: Mapping[str, Prompt], prompts: Sequence[Prompt]) -> dict[str, Prompt]:
    """Which of `prompts` each logged prompt is, by the text of the question; others are left out.

    Differences in white space do not count. A log may have more text than the data set around its question: then the
    longest question of the data set that stands in it as whole words counts. Of several with one text, it is the one
    with the same label.

    Args:
        logged: by prompt_id; those without messages are left out.
        prompts: of a data set.
    """
    by_text: defaultdict[str, list[Prompt]] = defaultdict(list)
    for prompt in prompts:
        by_text[_spaced(question_of(prompt.messages))].append(prompt)
    texts = {
        name: _spaced(question_of(prompt.messages)) for name, prompt in logged.items() if prompt.messages
    }
    longer = {name: text for name, text in texts.items() if text not in by_text}
    texts |= _contained(longer, list(by_text))
    same: dict[str, Prompt] = {}
    for name, text in texts.items():
        namesakes = by_text.get(text)
        if namesakes:
            label = logged[name].given_label
            same[name] = next((one for one in namesakes if one.given_label == label), namesakes[0])
    return same


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _contained(longer: Mapping[str, str], questions: Sequence[str]) -> dict[str, str]:
    """The longest question that stands in each of the longer texts, where there is one."""
    if not longer:
        return {}
    patterns = [question for question in questions if question]
    hits = pl.Series(list(longer.values())).str.extract_many(patterns, overlapping=True)
    longest: dict[str, str] = {}
    for (name, text), hit in zip(longer.items(), hits, strict=True):
        whole = (q for q in hit if re.search(rf"(?<!\w){re.escape(q)}(?!\w)", text))
        question = max(whole, key=len, default="")
        if question:
            longest[name] = question
    return longest
