"""A prompt with its labels, and a data set of them, as every other part of the project sees them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

from olr_cli import seeding
from olr_cli.answers import SENTINEL as SENTINEL, Gold
from olr_cli.data.chat import Message, pairs
from olr_cli.data.columns import OF_PROMPTS, REPHRASED_COLUMN
from olr_cli.data.percent import asks_for_percent
from olr_cli.data.values import Origins
from olr_cli.errors import UserError, at

if TYPE_CHECKING:
    import pyarrow as pa

NEVER_REWARDED = "__NeverRewarded__"
"""Stands for the label of a prompt in a log without labels, in which no rollout of the prompt was rewarded."""

SYSTEM_PROMPT = r"Let's think step by step and output the final answer within \boxed{}."
"""What a question without a system message is asked with (R21)."""

NoiseType = Literal["clean", "inactive", "active", "active_frozen"]
NOISE_TYPES: tuple[NoiseType, ...] = get_args(NoiseType)

View = Literal["original", "rephrased"]
"""In which words a question is asked; Co-Reward (arXiv:2508.00410) asks each question in both."""


@dataclass(frozen=True)
class Prompt:
    """One row of a data set.

    Attributes:
        prompt_id: unique in its data set: its id in the file, else a digest of the question, with a number from the
            second row on that asks the same.
        messages: the chat turns shown to the policy.
        given_label: what the file says the answer is (`SENTINEL` on inactive and active rows); None if nothing.
        true_answer: the correct answer; None when unknown.
        noise_type: what was done to the label; None when unknown (labels of unknown quality).
        data_source: where the row comes from; selects the default answer extractor.
        rephrased: the chat turns that ask the same question in other words; None when the row has none.
        choices: how many options a benchmark's question shows; None: it is not multiple choice, or shows them in
            another form.
        is_verified: somebody has verified the true answer, which then is the label in training (`data.verified`).
        stored_in_percent: what a run has stored of `in_percent`; None: the messages say it.
    """

    prompt_id: str
    messages: tuple[Message, ...]
    given_label: str | None
    true_answer: str | None
    noise_type: NoiseType | None
    data_source: str = ""
    rephrased: tuple[Message, ...] | None = None
    choices: int | None = None
    is_verified: bool = False
    stored_in_percent: bool | None = None

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

    @cached_property  # asked of every label at every visit
    def in_percent(self) -> bool:
        """Whether the question asks for a percentage (R7)."""
        if self.stored_in_percent is not None:
            return self.stored_in_percent
        return in_percent(self.messages)

    def asked(self, label: str) -> Gold:
        """Return a label or truth as the judge is asked for it."""
        return Gold(label, self.in_percent)

    @property
    def is_marked(self) -> bool:
        """Whether the label is known to be noise."""
        return self.noise_type is not None and self.noise_type != "clean"

    @property
    def gold(self) -> str | None:
        """The answer that measures held-out responses: the true one, else a label that is not known to be noise."""
        if self.true_answer is None and not self.is_marked:
            return self.given_label
        return self.true_answer

    @property
    def file_label(self) -> str | None:
        """The label before noise was put on it; None if it has gone."""
        return self.given_label if self.given_label not in (None, SENTINEL) else self.gold


def in_percent(messages: Sequence[Message]) -> bool:
    """Whether the last that a user says asks for a percentage (R7)."""
    return asks_for_percent(
        next((turn.content for turn in messages[::-1] if turn.role == "user"), "")
    )


def digested(prompt: Prompt) -> bytes:
    """The part of a prompt that a data set's digest covers: everything that training sees."""
    row = [
        prompt.prompt_id,
        pairs(prompt.messages),
        prompt.given_label,
        prompt.true_answer,
        prompt.noise_type,
        prompt.data_source,
    ]
    if prompt.is_verified:
        row.append("verified")
    if prompt.rephrased is not None:
        row.append(pairs(prompt.rephrased))
    return json.dumps(row).encode()


@dataclass(frozen=True, eq=False)
class PromptSet:
    """Prompts in file order, and the rows they came from, so that nothing is lost on the way back to a file."""

    prompts: tuple[Prompt, ...]
    make_table: Callable[[], pa.Table]
    """Makes `table`, which most commands do without, and keeps it."""
    source: str
    """File or folder name, hub id, or the name of the built-in set."""
    revision: str | None = None
    """Commit of a hub data set."""
    label_column: str | None = None
    has_ids: bool = True
    """Whether the source names its prompts; else their ids are digests of the questions."""
    hint: str = ""
    """Which columns the source has, and the setting that says which of them holds what; for errors."""
    notes: Sequence[str] = ()
    """Sentences without a full stop on what was taken for what, such as verified labels."""
    origins: Origins = field(default_factory=lambda: Origins(""))
    """Where the rows stand in the source, for messages."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What was done to the rows (noise type, ratio, seed, …), for the metadata of a written file."""
    left_out: Sequence[str] = ()
    """Ids of the prompts that were too long for the policy (`data.drop_long`)."""

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def table(self) -> pa.Table:
        """The rows in the interchange format, with all columns of the source.

        The labels that count are those of `prompts`.
        """
        return self.make_table()

    @cached_property
    def digest(self) -> str:
        """sha256 (hexadecimal) of everything training sees of the prompts; the same in every file format."""
        digest = hashlib.sha256()
        for prompt in self.prompts:
            digest.update(digested(prompt))
        return digest.hexdigest()

    @property
    def is_marked(self) -> bool:
        """Whether some label is known to be noise."""
        return any(prompt.is_marked for prompt in self.prompts)

    def name(self, row: int) -> str:
        """A prompt's id, or its row in the file where the file has no ids: nobody finds a digest in it."""
        has_place = self.origins.files and not self.has_ids
        return (
            self.origins.name(row, is_short=True)
            if has_place
            else self.prompts[row].prompt_id
        )

    def place(self, row: int) -> str:
        """Where a prompt stands in its source, and its id; of one that is in no source, its id alone."""
        prompt_id = self.prompts[row].prompt_id
        named = f"{self.origins.name(row)}, prompt_id {prompt_id}"
        return named if self.origins.source else prompt_id

    def subset(self, rows: Sequence[int]) -> PromptSet:
        """The prompts at `rows` (the first is 0), in that order."""
        table = self.table.take(list(rows))
        return replace(
            self,
            prompts=tuple(self.prompts[row] for row in rows),
            make_table=lambda: table,
            origins=self.origins.take(rows),
        )

    def sample(self, size: int, seed: int) -> PromptSet:
        """A random subset in file order; of one seed, a larger sample contains a smaller one (R18)."""
        if size > len(self):
            raise UserError(
                f"{self.source} has {len(self)} prompts, so {size} cannot be sampled",
                "ask for fewer",
            )
        chosen = sorted(seeding.permutation(len(self), "sample", seed)[:size])
        facts = {**self.facts, "sample.size": str(size), "sample.seed": str(seed)}
        return replace(self.subset(chosen), facts=facts)

    def with_prompts(
        self, prompts: Iterable[Prompt], facts: Mapping[str, str]
    ) -> PromptSet:
        """The same rows with other labels."""
        return replace(self, prompts=tuple(prompts), facts={**self.facts, **facts})

    def require_labels(self, purpose: str) -> None:
        """Make sure that every prompt has a label (R5); `purpose` completes "… needs the label of every prompt"."""
        # All but the last, which holds objects of one source.
        lack = f"no column of labels ({', '.join(OF_PROMPTS['answer'].known[:-1])})"
        if self.hint:
            lack += f"; {self.hint}"
        labels = [prompt.given_label for prompt in self.prompts]
        with at("" if self.label_column else "data.columns"):
            self._require_all(f"{purpose} needs the label", labels, self.label_column, lack)

    def require_rephrasings(self, purpose: str) -> None:
        """Make sure that every prompt has a rephrasing, as Co-Reward (arXiv:2508.00410) needs it."""
        lack = f"no column '{REPHRASED_COLUMN}'; add it: in each row the same question in other words"
        column = REPHRASED_COLUMN if REPHRASED_COLUMN in self.table.column_names else None
        rephrasings = [prompt.rephrased for prompt in self.prompts]
        self._require_all(f"{purpose} needs a rephrasing", rephrasings, column, lack)

    def _require_all(
        self, need: str, values: Sequence[object], column: str | None, lack: str
    ) -> None:
        missing = [row for row, value in enumerate(values) if value is None]
        if missing and column is None:
            raise UserError(
                f"{need} of every prompt, and {self.source} has {lack}",
                "add them, or name other data",
            )
        if missing:
            raise UserError(
                f"{need} of every prompt, and {len(missing)} of the {len(self)} in {self.source} have none in"
                f" '{column}' (the first: {self.place(missing[0])})",
                "fill them in or leave these rows out",
            )
