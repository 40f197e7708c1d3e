"""How problems are put to a model, where the command says so: system message, few-shot examples, chat template."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from olr_cli.data.chat import Message
from olr_cli.data.prompts import Prompt
from olr_cli.engines.prompt_text import AS_THE_MODEL_HAS_IT, NONE, ChatFormat
from olr_cli.errors import UserError, no_path
from olr_cli.evaluation.benchmark import Benchmark
from olr_cli.evaluation.problems import Example, load_examples
from olr_cli.recipe.layers import read_pairs

SETTINGS = ("system", "shots", "examples", "chat_template", "template")
"""The keys of `Prompting.settings`."""


@dataclass(frozen=True)
class Prompting:
    """Settings that change what a model reads; by default a benchmark, its rows and the model decide.

    Attributes:
        system: takes the place of every system message; empty: there is none; None: as benchmark and
            rows have it (R21).
        chat: how messages become text.
        shots: how many examples stand before each problem, as turns of user and assistant.
        examples: the file that has them.
    """

    system: str | None = None
    chat: ChatFormat = AS_THE_MODEL_HAS_IT
    shots: int = 0
    examples: Path | None = None

    def ask(self, benchmark: Benchmark, problems: Sequence[Prompt]) -> list[Prompt]:
        """A benchmark's problems with the messages that the model is given.

        The examples of a problem are the first `shots` of the file that ask something else.

        Raises:
            UserError: examples cannot be read, or are too few.
        """
        examples = load_examples(benchmark, self.examples) if self.examples is not None else []
        return [replace(problem, messages=self._messages(problem, examples)) for problem in problems]

    def _messages(self, problem: Prompt, examples: Sequence[Example]) -> tuple[Message, ...]:
        system = tuple(message for message in problem.messages if message.role == "system")
        turns = tuple(message for message in problem.messages if message.role != "system")
        if self.system is not None:
            system = (Message("system", self.system),) if self.system else ()
        others = [example for example in examples if example.question != turns[-1].content][: self.shots]
        if len(others) < self.shots:
            raise UserError(
                f"--shots is {self.shots}, and {self.examples} has {len(others)} examples for problem"
                f" {problem.prompt_id}; lower it, or add examples"
            )
        for example in reversed(others):
            turns = (Message("user", example.question), Message("assistant", example.response), *turns)
        return (*system, *turns)

    def settings(self) -> dict[str, Any]:
        """What an evaluation's record says: the settings that differ from the defaults, as JSON values."""
        settings: dict[str, Any] = {}
        if self.system is not None:
            settings["system"] = self.system or NONE
        if self.examples is not None:
            settings["shots"] = self.shots
            settings["examples"] = _digest(self.examples.read_bytes())
        if self.chat.template is not None:
            text = self.chat.template
            settings["chat_template"] = _digest(text.encode()) if text else NONE
        if self.chat.variables:
            settings["template"] = dict(self.chat.variables)
        return settings


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()[:16]}"


def read_prompting(
    system: str | None,
    template: str | None,
    variables: Iterable[str],
    shots: int | None = None,
    examples: Path | None = None,
) -> Prompting:
    """The settings that a command line has: a message or file, or ``none``; variables of the template as ``key=value``.

    Raises:
        UserError: a file cannot be read or is empty, a variable is no ``key=value``, or examples have no number.
    """
    if (shots is None) != (examples is None):
        raise UserError("--shots is the number of examples of --examples FILE; give both, or neither")
    if examples is not None and not os.path.isfile(examples):
        raise no_path(examples, "give a file with questions and answers")
    if system is not None and not system.strip():
        raise UserError("--system is empty; give a text, or --system none for no system message")
    pairs = read_pairs("--template", variables)
    chat = ChatFormat.read(template, "--chat-template", pairs)
    return Prompting("" if system == NONE else system, chat, shots or 0, examples)
