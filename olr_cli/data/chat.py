"""Chat turns, whoever wrote them: the one place that knows which forms a message has.

A message is ``{role, content}`` or ShareGPT's ``{from, value}``. Its content is a text, or a list of parts, of which
those with text count. Parts are joined without anything between them, so a question has one id however it comes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_ROLES = {"human": "user", "gpt": "assistant"}
"""Roles as ShareGPT calls them."""

_CHAT = "\x1e"
"""Begins messages that are written as one text."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat prompt."""

    role: str
    content: str


def message(value: Any) -> Message | None:
    """The chat turn that a value is; None for anything else. A missing content, as beside tool calls, is empty."""
    if not isinstance(value, Mapping):
        return None
    for role_key, content_key in (("role", "content"), ("from", "value")):
        role = value.get(role_key)
        if isinstance(role, str) and (text := _text(value.get(content_key))) is not None:
            return Message(role if role_key == "role" else _ROLES.get(role, role), text)
    return None


def _text(content: Any) -> str | None:
    """The text of a message's content; None if it is neither text nor parts."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list | tuple):
        return None
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
    return "".join(text for text in texts if isinstance(text, str))


def unseen_part(value: Any) -> str | None:
    """Return the type of the first part of a prompt that is no text, such as ``image``; None if all of it is text."""
    for turn in value if isinstance(value, list | tuple) else ():
        if not isinstance(turn, Mapping):
            continue
        content = turn.get("content", turn.get("value"))
        for part in content if isinstance(content, list | tuple) else ():
            name = _type_of_part(part) if isinstance(part, Mapping) else None
            if name:
                return name
    return None


def _type_of_part(part: Mapping[str, Any]) -> str | None:
    """Return the type of a part that is no text, by its name or else by its first field; None for text."""
    if part.get("type"):
        name = str(part["type"])
    elif part.get("text") is not None:
        return None
    else:
        name = str(next((key for key, value in part.items() if value), "text"))
    return None if name.endswith("text") else name


def messages(value: Any) -> tuple[Message, ...] | None:
    """The turns that a list holds; None if it is no list, or holds something else."""
    if not isinstance(value, list | tuple):
        return None
    turns = [message(item) for item in value]
    return None if None in turns else tuple(turn for turn in turns if turn is not None)


def prompt_messages(
    value: Any, before: tuple[Message, ...] = (), after: tuple[Message, ...] = ()
) -> tuple[Message, ...] | None:
    """Messages as they are, or a text as the user's turn between `before` and `after`; None for anything else."""
    return (
        (*before, Message("user", value), *after)
        if isinstance(value, str)
        else messages(value)
    )


def response_text(value: Any) -> str | None:
    """The model's words: a text as it is, of messages the assistant's turns, one per line; else None."""
    if isinstance(value, str):
        return value
    items = value if isinstance(value, list | tuple) else ()
    said = [
        turn.content
        for turn in map(message, items)
        if turn is not None and turn.role == "assistant"
    ]
    return "\n".join(said) if said else None


def completion_text(completion: str | Iterable[Any] | None) -> str:
    """The model's words (`response_text`); an empty text where there are none."""
    # An array of turns is neither true nor false
    said = () if completion is None else completion
    return response_text(said if isinstance(said, str) else list(said)) or ""


def as_text(value: Any) -> str | None:
    """A prompt as one text, the same for the same prompt: a text as it is, messages as JSON after a mark; else None."""
    if isinstance(value, str):
        return value
    turns = messages(value)
    return _CHAT + json.dumps(pairs(turns)) if turns else None


def turns_of(text: str) -> tuple[Message, ...]:
    """The turns of a prompt that `as_text` wrote."""
    if not text.startswith(_CHAT):
        return (Message("user", text),)
    return tuple(Message(role, content) for role, content in json.loads(text[1:]))


def ending(turns: Sequence[Message]) -> str:
    """Return the text that a response continues, as far as it is known without the chat template: the last turn's."""
    return turns[-1].content if turns else ""


def pairs(turns: Iterable[Message]) -> Sequence[tuple[str, str]]:
    """Role and content of each turn, as digests see them."""
    return [(turn.role, turn.content) for turn in turns]
