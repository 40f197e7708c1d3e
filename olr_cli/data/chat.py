"""Chat turns from any source: the one place that knows the forms of a message.

A message is ``{role, content}`` or ShareGPT's ``{from, value}``. Its content is a text or a list of parts, and only
parts with text count. Parts are joined without a separator, so that a question has the same id in either form.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_ROLES = {"human": "user", "gpt": "assistant"}
"""ShareGPT's name of a role -> the usual name."""

_CHAT = "\x1e"
"""The mark at the beginning of messages that `as_text` has written as one text."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat: the role of the speaker, such as ``user``, and the text."""

    role: str
    content: str


def message(value: Any) -> Message | None:
    """Convert {role, content} or ShareGPT's {from, value} to a `Message`; return None for any other value.

    Missing content, as in a turn that only calls tools, becomes an empty text.
    """
    if not isinstance(value, Mapping):
        return None
    for role_key, content_key in (("role", "content"), ("from", "value")):
        role = value.get(role_key)
        if isinstance(role, str) and (text := _text(value.get(content_key))) is not None:
            return Message(role if role_key == "role" else _ROLES.get(role, role), text)
    return None


def _text(content: Any) -> str | None:
    """Return a message's content as one text; missing content gives an empty text.

    Content may be a text or a list of parts. Parts without text are skipped. Any other value gives None.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list | tuple):
        return None
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
    return "".join(text for text in texts if isinstance(text, str))


def unseen_part(value: Any) -> str | None:
    """Return the type, such as ``image``, of a question's first part that is not text, or None if all parts are text.

    `value` is the question as a text or a list of chat turns.
    """
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
    """Return the type of a content part, such as ``image``, or None if the part is text.

    A part without a `type` and without text is named after its first field that has a value.
    """
    if part.get("type"):
        name = str(part["type"])
    elif part.get("text") is not None:
        return None
    else:
        name = str(next((key for key, value in part.items() if value), "text"))
    # The Responses API also has `input_text` and `output_text`.
    return None if name.endswith("text") else name


def messages(value: Any) -> tuple[Message, ...] | None:
    """Convert a list of chat turns to messages; return None for any other value, or if an item is no turn."""
    if not isinstance(value, list | tuple):
        return None
    turns = [message(item) for item in value]
    return None if None in turns else tuple(turn for turn in turns if turn is not None)


def prompt_messages(
    value: Any, before: tuple[Message, ...] = (), after: tuple[Message, ...] = ()
) -> tuple[Message, ...] | None:
    """Convert a prompt to chat turns; return None if it is neither a text nor a list of turns.

    A text becomes one user turn, with the turns `before` and `after` around it. A list of turns is used as it is.
    """
    return (
        (*before, Message("user", value), *after)
        if isinstance(value, str)
        else messages(value)
    )


def response_text(value: Any) -> str | None:
    """Return the text of a response, or None if it is neither a text nor messages with a turn of the assistant.

    A text is returned unchanged. In messages, only the assistant's turns count, and they are joined by line breaks.
    """
    if isinstance(value, str):
        return value
    items = value if isinstance(value, list | tuple) else ()
    texts = [
        turn.content
        for turn in map(message, items)
        if turn is not None and turn.role == "assistant"
    ]
    return "\n".join(texts) if texts else None


def completion_text(completion: str | Iterable[Any] | None) -> str:
    """Return the text of a completion, or an empty text if the completion is None.

    A completion may be a text or messages. In messages, only the assistant's turns count; without any, the text is
    empty.
    """
    # Not `completion or ()`: an array of turns, as numpy has it, is neither true nor false.
    turns = () if completion is None else completion
    return response_text(turns if isinstance(turns, str) else list(turns)) or ""


def as_text(value: Any) -> str | None:
    """Encode a prompt as one string, which `turns_of` can decode.

    A text stays unchanged. A list of chat turns becomes JSON after a control character, by which `turns_of` tells it
    from plain text. Any other value, and an empty list, gives None.
    """
    if isinstance(value, str):
        return value
    turns = messages(value)
    return _CHAT + json.dumps(pairs(turns)) if turns else None


def turns_of(text: str) -> tuple[Message, ...]:
    """Decode the chat turns of a prompt that `as_text` has encoded; a plain text becomes one user turn."""
    if not text.startswith(_CHAT):
        return (Message("user", text),)
    return tuple(Message(role, content) for role, content in json.loads(text[1:]))


def ending(turns: Sequence[Message]) -> str:
    """Return the text that comes right before the response: the content of the prompt's last turn.

    Without turns, the text is empty. What a chat template adds after the last turn is not included.
    """
    return turns[-1].content if turns else ""


def pairs(turns: Iterable[Message]) -> Sequence[tuple[str, str]]:
    """Return each turn as a (role, content) pair, for JSON and for digests of prompts."""
    return [(turn.role, turn.content) for turn in turns]
