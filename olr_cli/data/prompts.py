"""A prompt and its labels, as every other part of the project sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

SENTINEL = "__NoCorrectAnswer__"
"""The label that no policy outputs (R2), spelled as in the authors' files."""

SYSTEM_PROMPT = r"Let's think step by step and output the final answer within \boxed{}."
"""What a question without a system message is asked with (R21)."""

NoiseType = Literal["clean", "inactive", "active", "active_frozen"]
NOISE_TYPES: tuple[NoiseType, ...] = get_args(NoiseType)

View = Literal["original", "rephrased"]
"""In which words a question is asked; Co-Reward (arXiv:2508.00410) asks each question in both."""

REPHRASED_COLUMN = "rephrased_prompt"
"""Where a file holds the rephrasings: a text, or a list of {role, content} messages."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat prompt."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """One row of a data set.

    Attributes:
        prompt_id: unique in its data set: ``extra_info.index`` where that is unique, else row number and digest.
        messages: the chat turns shown to the policy.
        given_label: what the file says the answer is (`SENTINEL` on inactive and active rows); None if nothing.
        true_answer: the correct answer; None when unknown.
        noise_type: what was done to the label; None when unknown (labels of unknown quality).
        data_source: where the row comes from; selects the default answer extractor.
        rephrased: the chat turns that ask the same question in other words; None when the row has none.
        choices: how many options a benchmark's question shows; None: it is not multiple choice, or shows them in
            another form.
    """

    prompt_id: str
    messages: tuple[Message, ...]
    given_label: str | None
    true_answer: str | None
    noise_type: NoiseType | None
    data_source: str = ""
    rephrased: tuple[Message, ...] | None = None
    choices: int | None = None

    def turns(self, view: View) -> tuple[Message, ...]:
        """The chat turns of a view.

        Raises:
            ValueError: the view is the rephrased one and the prompt has no rephrasing.
        """
        if view == "original":
            return self.messages
        if self.rephrased is None:
            raise ValueError(f"prompt {self.prompt_id} has no rephrasing")
        return self.rephrased

    @property
    def is_marked(self) -> bool:
        """Whether the label is known to be noise."""
        return self.noise_type is not None and self.noise_type != "clean"

    @property
    def gold(self) -> str | None:
        """What held-out responses are measured by: the true answer, else a label that is not known to be noise."""
        if self.true_answer is None and not self.is_marked:
            return self.given_label
        return self.true_answer
