"""Prompts that another trainer passes call by call: give them ids and marks, and check that they stay the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from olr_cli.answers.graded import SENTINEL
from olr_cli.data.chat import Message, prompt_messages
from olr_cli.data.labels import label_of, read_cells
from olr_cli.data.prompt_files import implied_mark
from olr_cli.data.prompts import NOISE_TYPES, NoiseType, Prompt
from olr_cli.data.questions import QuestionIds
from olr_cli.data.values import Origins
from olr_cli.errors import UserError, shortened

DATA_SOURCE = "external"
"""Data source of prompts whose trainer names none."""

Chat: TypeAlias = Sequence[Mapping[str, Any]]
"""Messages as {role, content}; the content is a text or a list of parts, and only parts with text count."""


class ExternalPrompts:
    """A converter from another trainer's prompts to `Prompt` objects; it remembers their ids between calls.

    A prompt without an id gets one that is made from its question, and keeps it in later calls.
    """

    def __init__(self) -> None:
        # By all messages and not by the question, because several prompts may ask the same question.
        self._ids: dict[tuple[Message, ...], str] = {}
        self._taken_ids: set[str] = set()
        self._new_ids = QuestionIds()

    def continue_with(self, prompts: Iterable[Prompt]) -> None:
        """Register the ids of a resumed run's prompts: they keep these ids, and no other prompt gets one of them."""
        self._ids |= {prompt.messages: prompt.prompt_id for prompt in prompts}
        self._taken_ids |= set(self._ids.values())

    def of_call(
        self,
        prompts: Sequence[str | Chat],
        completions: Sequence[Any],
        labels: Sequence[Any],
        *,
        prompt_ids: Sequence[str] | None,
        true_answers: Sequence[Any] | None,
        noise_types: Sequence[NoiseType | None] | None,
        noise_type_of_sentinel: NoiseType,
    ) -> list[Prompt]:
        """Return the prompt of each of N completions, built from the values that a trainer passes in one call.

        Each argument that is a list has N items, in the order of the completions.

        Args:
            prompts: the prompt of each completion, as a text or as messages.
            completions: the completions, of which only the number counts here.
            labels: the label for each completion; an item may be None.
            prompt_ids: the id of each completion's prompt; None to make ids from the questions.
            true_answers: the true answer for each completion, or None if no true answer is known.
            noise_types: the noise type for each completion. None, for one item or for all, means that the type is
                inferred from the label and the true answer.
            noise_type_of_sentinel: the type that is inferred if the label is the sentinel, the text by which noise
                replaces a label.

        Raises:
            UserError: the lists differ in length, a value cannot be read, or one prompt_id has two different prompts.
        """
        size = len(prompts)
        unknown = [None] * size
        if true_answers is not None:
            true_answers = read_cells(
                label_of, true_answers, Origins("the call"), "true_answers"
            )
        columns: dict[str, Sequence[Any]] = {
            "labels": read_cells(label_of, labels, Origins("the call"), "labels"),
            "prompt_ids": unknown if prompt_ids is None else prompt_ids,
            "true_answers": unknown if true_answers is None else true_answers,
            "noise_types": unknown if noise_types is None else noise_types,
        }
        for name, column in {"completions": completions, **columns}.items():
            if len(column) != size:
                raise UserError(
                    f"{size} prompts and {len(column)} {name} were given",
                    "give one of each a completion",
                )
        by_id: dict[str, Prompt] = {}
        by_row: dict[Any, Prompt] = {}
        of_completions = []
        # N completions come from few prompts, so build each prompt once.
        for row in zip(map(turns_of_prompt, prompts), *columns.values(), strict=True):
            if row not in by_row:
                prompt = self._prompt(*row, noise_type_of_sentinel=noise_type_of_sentinel)
                require_same(by_id.setdefault(prompt.prompt_id, prompt), prompt)
                by_row[row] = prompt
            of_completions.append(by_row[row])
        return of_completions

    def _prompt(
        self,
        messages: tuple[Message, ...],
        label: str | None,
        prompt_id: str | None,
        true_answer: str | None,
        noise_type: NoiseType | None,
        *,
        noise_type_of_sentinel: NoiseType,
    ) -> Prompt:
        """Build a prompt from the values that a trainer passes (R1).

        If `prompt_id` is None, an id is made. If the noise type is ``clean`` and there is no true answer, the label
        becomes the true answer.

        A missing noise type is inferred from the label and the true answer (`implied_mark`). It stays None without a
        true answer, unless the label is the sentinel, the text by which noise replaces a label. The sentinel gives the
        type `noise_type_of_sentinel`.

        Raises:
            UserError: the noise type is unknown.
        """
        if noise_type is not None and noise_type not in NOISE_TYPES:
            raise UserError(
                f"there is no noise type '{noise_type}'", f"known: {', '.join(NOISE_TYPES)}"
            )
        if noise_type is None and (true_answer is not None or label == SENTINEL):
            noise_type, true_answer = implied_mark(
                label, true_answer, noise_type_of_sentinel
            )
        elif noise_type == "clean" and true_answer is None:
            true_answer = label
        prompt_id = self._id_of(messages) if prompt_id is None else str(prompt_id)
        return Prompt(prompt_id, messages, label, true_answer, noise_type, DATA_SOURCE)

    def _id_of(self, messages: tuple[Message, ...]) -> str:
        """Return an id for a prompt that comes without one.

        The id is made at the first call with these messages. Later calls with them return the same id.
        """
        if messages not in self._ids:
            name = self._new_ids.next(messages)
            # A resumed run has ids that this process has not made.
            while name in self._taken_ids:
                name = self._new_ids.next(messages)
            self._ids[messages] = name
            self._taken_ids.add(name)
        return self._ids[messages]


def require_same(before: Prompt, now: Prompt) -> None:
    """Raise UserError if two prompts with the same prompt_id differ in label, true answer, noise type or text."""
    pairs = {
        "labels": (before.given_label, now.given_label),
        "true answers": (before.true_answer, now.true_answer),
        "noise types": (before.noise_type, now.noise_type),
    }
    changed = {noun: pair for noun, pair in pairs.items() if pair[0] != pair[1]}
    if before.messages != now.messages:
        changed["texts"] = before.messages[-1].content, now.messages[-1].content
    for noun, (old, new) in changed.items():
        raise UserError(
            f"prompt {now.prompt_id} has two {noun}, '{shortened(str(old))}' and '{shortened(str(new))}'",
            "give two questions two prompt_ids",
        )


def turns_of_prompt(prompt: str | Chat) -> tuple[Message, ...]:
    """Return the turns of a caller's prompt; raise UserError if it is neither a text nor a list of messages."""
    turns = prompt_messages(prompt if isinstance(prompt, str) else list(prompt))
    if turns is None:
        raise UserError(
            f"{shortened(repr(prompt))} is no prompt",
            "give text, or a list of messages with role and content",
        )
    return turns
