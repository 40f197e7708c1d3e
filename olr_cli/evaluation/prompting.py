"""How problems are put to a model, where the command says so: system message and chat template."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from olr_cli.data.prompts import Message, Prompt
from olr_cli.engines.prompt_text import AS_THE_MODEL_HAS_IT, ChatFormat
from olr_cli.errors import UserError, no_path, shown
from olr_cli.files import read_text
from olr_cli.recipe.files import NotPlain, parse_yaml

_MOST_BYTES = 256 * 1024
"""Of a chat template's file."""

SETTINGS = ("system", "chat_template", "template")
"""The keys of `Prompting.settings`."""

NONE = "none"
"""The word for no system message and no chat template."""


@dataclass(frozen=True)
class Prompting:
    """Settings that change what a model reads; by default a benchmark, its rows and the model decide.

    Attributes:
        system: takes the place of every system message; empty: there is none; None: as benchmark and
            rows have it (R21).
        chat: how messages become text.
    """

    system: str | None = None
    chat: ChatFormat = AS_THE_MODEL_HAS_IT

    def ask(self, problem: Prompt) -> Prompt:
        """A problem with the messages that the model is given."""
        messages: Sequence[Message] = problem.messages
        if self.system is not None:
            system = (Message("system", self.system),) if self.system else ()
            messages = (*system, *(message for message in messages if message.role != "system"))
        return replace(problem, messages=tuple(messages))

    def settings(self) -> dict[str, Any]:
        """What an evaluation's record says: the settings that differ from the defaults, as JSON values."""
        settings: dict[str, Any] = {}
        if self.system is not None:
            settings["system"] = self.system or NONE
        if self.chat.template is not None:
            text = self.chat.template
            digest = hashlib.sha256(text.encode()).hexdigest()
            settings["chat_template"] = f"sha256:{digest[:16]}" if text else NONE
        if self.chat.variables:
            settings["template"] = dict(self.chat.variables)
        return settings


def read_prompting(system: str | None, template: str | None, variables: Iterable[str]) -> Prompting:
    """The settings that a command line has.

    Args:
        system: a system message, or ``none``.
        template: a file with a chat template, or ``none``.
        variables: of the template, ``key=value`` each; values are YAML scalars or lists.

    Raises:
        UserError: the file cannot be read or is empty, or a variable is no ``key=value``.
    """
    text = template
    if template == NONE:
        text = ""
    elif template is not None:
        if not os.path.isfile(template):
            raise no_path(template, "give a file with a chat template, or none")
        text = read_text(Path(template), at_most=_MOST_BYTES)
        if not text.strip():
            raise UserError(
                f"{template} is empty; give a chat template, or --chat-template none for plain text"
            )
    if system is not None and not system.strip():
        raise UserError("--system is empty; give a text, or --system none for no system message")
    return Prompting("" if system == NONE else system, ChatFormat(text, dict(map(_variable, variables))))


def _variable(word: str) -> tuple[str, Any]:
    name, equals, value = word.partition("=")
    if not equals or not name.isidentifier():
        raise UserError(f"--template is {shown(word)}; give a variable of the chat template as key=value")
    try:
        return name, parse_yaml(value)
    except NotPlain as error:
        raise UserError(f"--template {name}: the value {error}") from None
