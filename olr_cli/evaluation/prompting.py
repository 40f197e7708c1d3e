"""The command's changes to the prompts of an evaluation: system message and chat template."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from olr_cli.data.chat import Message
from olr_cli.data.prompts import Prompt
from olr_cli.engines.prompt_text import AS_THE_MODEL_HAS_IT, NONE, ChatFormat
from olr_cli.errors import UserError, at
from olr_cli.recipe.layers import read_pairs

SETTINGS = ("system", "chat_template", "template")
"""The keys of `Prompting.settings`."""


@dataclass(frozen=True)
class Prompting:
    """The command's changes to what the model reads: another system message, another chat template.

    By default, nothing is changed.
    """

    system: str | None = None
    """Message that replaces every system message; empty: there is none; None: each row keeps its own (R21)."""

    chat: ChatFormat = AS_THE_MODEL_HAS_IT

    def ask(self, problems: Sequence[Prompt]) -> list[Prompt]:
        """Return copies of the problems with the system messages that `self.system` asks for.

        If `self.system` is a text, it is the only system message of each copy. If it is empty, the copies have none. If
        it is None, they keep those of the problems.
        """
        asked = []
        for problem in problems:
            system = [message for message in problem.messages if message.role == "system"]
            turns = [message for message in problem.messages if message.role != "system"]
            if self.system is not None:
                system = [Message("system", self.system)] if self.system else []
            asked.append(replace(problem, messages=(*system, *turns)))
        return asked

    def settings(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults, as JSON values for evaluation.json.

        The keys are ``system``, ``chat_template`` and ``template`` (the template's variables). A chat template is
        represented by its digest. An empty system message or template becomes ``none``.
        """
        template = self.chat.template
        # An empty template gets no digest: like an empty system message, it is recorded as `none`.
        digest = template and f"sha256:{hashlib.sha256(template.encode()).hexdigest()[:16]}"
        settings = {
            "system": NONE if self.system == "" else self.system,
            "chat_template": NONE if digest == "" else digest,
            "template": dict(self.chat.variables) or None,
        }
        return {name: value for name, value in settings.items() if value is not None}


def read_prompting(
    system: str | None, template: str | None, variables: Iterable[str]
) -> Prompting:
    """Return the changes to the prompts that a command's options ask for.

    Args:
        system: the system message, or ``none`` to ask without one; None: the option is not given.
        template: the file of a chat template, or ``none`` for plain text without one; None: the option is not given.
        variables: variables of the template, each as ``key=value``.

    Raises:
        UserError: the system message is blank, the template cannot be read, or a variable is not ``key=value``.
    """
    if system is not None and not system.strip():
        raise UserError(
            "the text is empty", "give one, or none for no system message", "system"
        )
    with at("template"):
        pairs = read_pairs(variables)
    with at("chat_template"):
        chat = ChatFormat.read(template, pairs)
    return Prompting("" if system == NONE else system, chat)
