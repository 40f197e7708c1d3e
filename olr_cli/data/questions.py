"""The question in a prompt: its text, its id, and which prompts of two sources ask the same one."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
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

_UNSPOKEN = re.compile(r"\$|\\[()\[\],;: ]|\\(?:left|right)(?![a-zA-Z])")
_OUTER_SPACE = re.compile(r"(?<!\w)\s+|\s+(?!\w)")


def question_of(messages: Sequence[Message]) -> str:
    """What the user asks last, without other turns and without what a chat template put around it."""
    asked = [message.content for message in messages if message.role == "user"]
    return _without_template(asked[-1] if asked else "\n\n".join(message.content for message in messages))


def turns_digest(turns: Iterable[Message]) -> str:
    """sha256 (hexadecimal) of the roles and contents of chat turns."""
    return hashlib.sha256(json.dumps([(turn.role, turn.content) for turn in turns]).encode()).hexdigest()


def _without_template(text: str) -> str:
    matches = (template.match(text) for template in _TEMPLATES)
    return next((match[1].strip() for match in matches if match is not None), text)


def normal_question(messages: Iterable[Message]) -> str:
    """What the user asks in all turns, without what hardly makes another question: chat template, case, space beside
    symbols, LaTeX's dollar signs, marks at the end. Two prompts with the same text are near-duplicates.
    """
    turns = list(messages)
    asked = [turn.content for turn in turns if turn.role == "user"] or [turn.content for turn in turns]
    return _normal("\n".join(map(_without_template, asked)))


def _normal(question: str) -> str:
    text = unicodedata.normalize("NFKC", question).casefold()
    words = " ".join(_UNSPOKEN.sub(" ", text).split())
    return _OUTER_SPACE.sub("", words).rstrip(".?:;,=") or text


class QuestionIds:
    """Ids of the prompts of one source that come without: digests of `normal_question`, so that a prompt has the same
    id in a file, a log and another trainer, whatever its system message and label.
    """

    def __init__(self) -> None:
        self._prompts: Counter[str] = Counter()

    def next(self, messages: Iterable[Message]) -> str:
        """The id of one more prompt; from the second that asks the same question on, it ends in a number."""
        name = f"q-{hashlib.sha256(normal_question(messages).encode()).hexdigest()[:12]}"
        self._prompts[name] += 1
        return name if self._prompts[name] == 1 else f"{name}-{self._prompts[name]}"


def same_prompts(logged: Mapping[str, Prompt], prompts: Sequence[Prompt]) -> dict[str, Prompt]:
    """Which of `prompts` each logged prompt is, by the text of the question; others are left out.

    What `normal_question` leaves out does not count. A log may have more text than the data set around its question:
    then the longest question of the data set counts that stands in it, word for word. Of several with one text, it is
    the one with the same label.

    Args:
        logged: by prompt_id; those without messages are left out.
        prompts: of a data set.
    """
    by_text: defaultdict[str, list[Prompt]] = defaultdict(list)
    for prompt in prompts:
        by_text[_normal(question_of(prompt.messages))].append(prompt)
    texts = {name: question_of(prompt.messages) for name, prompt in logged.items() if prompt.messages}
    longer = {name: _spaced(text) for name, text in texts.items() if _normal(text) not in by_text}
    words = {_spaced(question_of(namesakes[0].messages)) for namesakes in by_text.values()} if longer else ()
    texts |= _contained(longer, sorted(words))
    same: dict[str, Prompt] = {}
    for name, text in texts.items():
        if namesakes := by_text.get(_normal(text)):
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
