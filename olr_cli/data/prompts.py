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
"""Placeholder for the label of a prompt in a log without labels that rewarded none of the prompt's rollouts."""

SYSTEM_PROMPT = r"Let's think step by step and output the final answer within \boxed{}."
"""Default system message of a question that has none (R21)."""

NoiseType = Literal["clean", "inactive", "active", "active_frozen"]
NOISE_TYPES: tuple[NoiseType, ...] = get_args(NoiseType)

View = Literal["original", "rephrased"]
"""The wording of a question; Co-Reward (arXiv:2508.00410) asks each question in both."""


@dataclass(frozen=True)
class Prompt:
    """One row of a data set: a question with its given label and, if known, its true answer and type of noise."""

    prompt_id: str
    """The row's id in the file, else a digest of the question; unique in the data set.

    If several rows ask the same question, the digests from the second row on end in a number.
    """

    messages: tuple[Message, ...]
    """The chat turns shown to the policy."""

    given_label: str | None
    """The label in the file (`SENTINEL` on inactive and active rows), or None without one."""

    true_answer: str | None
    """The correct answer, or None if it is unknown."""

    noise_type: NoiseType | None
    """The kind of noise put on the label, or None for a label of unknown quality."""

    data_source: str = ""
    """The data set that the row comes from; it selects the default answer extractor."""

    rephrased: tuple[Message, ...] | None = None
    """The chat turns that ask the same question in other words, or None without a rephrasing."""

    choices: int | None = None
    """Number of options in a benchmark's question.

    None if it is not multiple choice, or shows its options in another form.
    """

    is_verified: bool = False
    """Whether somebody has verified the true answer, which then is the label in training (`data.verified`)."""

    stored_in_percent: bool | None = None
    """The value of `in_percent` as a run has stored it, or None if it follows from the messages."""

    def turns(self, view: View) -> tuple[Message, ...]:
        """Return the chat turns of the question in its original or rephrased wording, as `view` says.

        Raises:
            ValueError: the rephrased wording is asked for, and the prompt has none.
        """
        if view == "original":
            return self.messages
        if self.rephrased is None:
            raise ValueError(f"prompt {self.prompt_id} has no rephrasing")
        return self.rephrased

    # Cached, because every label needs it at every visit.
    @cached_property
    def in_percent(self) -> bool:
        """Whether the question asks for a percentage; its answer may then have a percent sign or not (R7)."""
        if self.stored_in_percent is not None:
            return self.stored_in_percent
        return in_percent(self.messages)

    def asked(self, label: str) -> Gold:
        """Return a label or true answer as a `Gold`, the form in which the judge takes it.

        A `Gold` also says whether the question asks for a percentage.
        """
        return Gold(label, self.in_percent)

    @property
    def is_marked(self) -> bool:
        """Whether the label is known to be noise."""
        return self.noise_type is not None and self.noise_type != "clean"

    @property
    def gold(self) -> str | None:
        """The answer by which held-out responses are graded.

        It is the true answer or, if that is unknown, the label. It is None if the true answer is unknown and the label
        is missing or known to be noise.
        """
        if self.true_answer is None and not self.is_marked:
            return self.given_label
        return self.true_answer

    @property
    def file_label(self) -> str | None:
        """The label or, if it is missing or is the sentinel, the true answer, which may be None.

        The sentinel is the text by which noise replaces a label.
        """
        # If the sentinel has replaced the label, the true answer is the label from before.
        return self.given_label if self.given_label not in (None, SENTINEL) else self.gold


def in_percent(messages: Sequence[Message]) -> bool:
    """Return whether the user's last turn asks for a percentage (R7)."""
    return asks_for_percent(
        next((turn.content for turn in messages[::-1] if turn.role == "user"), "")
    )


def digested(prompt: Prompt) -> bytes:
    """Return, as JSON, everything that training sees of a prompt; a data set's digest is computed from this."""
    row = [
        prompt.prompt_id,
        pairs(prompt.messages),
        prompt.given_label,
        prompt.true_answer,
        prompt.noise_type,
        prompt.data_source,
    ]
    # Appended only where they are set, so that the digests of all other data sets do not depend on them.
    if prompt.is_verified:
        row.append("verified")
    if prompt.rephrased is not None:
        row.append(pairs(prompt.rephrased))
    return json.dumps(row).encode()


@dataclass(frozen=True, eq=False)
class PromptSet:
    """Prompts in file order, with the rows that they came from.

    The rows have all columns of the source. A file that is written from the set therefore keeps these columns.
    """

    prompts: tuple[Prompt, ...]

    make_table: Callable[[], pa.Table]
    """Builds `table` at the first call and keeps it; most commands never need it."""

    source: str
    """File or folder name, hub id, or the name of the built-in set."""

    revision: str | None = None
    """Commit of a hub data set."""

    label_column: str | None = None
    """Path of the column that the labels come from, or None without one."""

    has_ids: bool = True
    """Whether the source names its prompts; else their ids are digests of the questions."""

    hint: str = ""
    """The columns of the source, and the setting that assigns roles to them; for errors."""

    notes: Sequence[str] = ()
    """Sentences without a full stop on how the rows were read, such as the column of the labels."""

    origins: Origins = field(default_factory=lambda: Origins(""))
    """The places of the rows in the source, for messages."""

    facts: Mapping[str, str] = field(default_factory=dict)
    """Changes made to the rows (noise type, ratio, seed, …), for the metadata of a written file."""

    left_out: Sequence[str] = ()
    """Ids of the prompts that were too long for the policy (`data.drop_long`)."""

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def table(self) -> pa.Table:
        """The rows in the interchange format, with all columns of the source.

        The table may still have the labels of the source. If noise or verified answers have changed labels, only
        `prompts` has the new ones.
        """
        return self.make_table()

    @cached_property
    def digest(self) -> str:
        """The sha256 (hexadecimal) of everything training sees of the prompts; the same in every file format."""
        digest = hashlib.sha256()
        for prompt in self.prompts:
            digest.update(digested(prompt))
        return digest.hexdigest()

    @property
    def is_marked(self) -> bool:
        """Whether some label is known to be noise."""
        return any(prompt.is_marked for prompt in self.prompts)

    def name(self, row: int) -> str:
        """Return a name of a prompt for messages: its id or, if the file has no ids, its place, such as ``line 33``.

        An id that olr has made cannot be found in the file. `row` is the prompt's index in this set.
        """
        has_place = self.origins.files and not self.has_ids
        return (
            self.origins.name(row, is_short=True)
            if has_place
            else self.prompts[row].prompt_id
        )

    def place(self, row: int) -> str:
        """Return a prompt's place in the source and its id, such as ``line 33 of f.csv, prompt_id 7``.

        If the source is unknown, only the id is returned. `row` is the prompt's index in this set.
        """
        prompt_id = self.prompts[row].prompt_id
        named = f"{self.origins.name(row)}, prompt_id {prompt_id}"
        return named if self.origins.source else prompt_id

    def subset(self, rows: Sequence[int]) -> PromptSet:
        """Return a set of the prompts with these indices, in that order."""
        table = self.table.take(list(rows))
        return replace(
            self,
            prompts=tuple(self.prompts[row] for row in rows),
            make_table=lambda: table,
            origins=self.origins.take(rows),
        )

    def sample(self, size: int, seed: int) -> PromptSet:
        """Draw a random subset, in file order; with the same seed, a larger sample contains a smaller one (R18).

        Raises:
            UserError: there are fewer than `size` prompts.
        """
        if size > len(self):
            raise UserError(
                f"{self.source} has {len(self)} prompts, so {size} cannot be sampled",
                "ask for fewer",
            )
        # A prefix of one permutation, so that samples of different sizes are nested.
        chosen = sorted(seeding.permutation(len(self), "sample", seed)[:size])
        facts = {**self.facts, "sample.size": str(size), "sample.seed": str(seed)}
        return replace(self.subset(chosen), facts=facts)

    def with_prompts(
        self, prompts: Iterable[Prompt], facts: Mapping[str, str]
    ) -> PromptSet:
        """Return a set with the same rows and these prompts, one for each row.

        `facts` describe the changes, such as the ratio of noise. They are added to the facts that the set already has.
        """
        return replace(self, prompts=tuple(prompts), facts={**self.facts, **facts})

    def require_labels(self, purpose: str) -> None:
        """Raise UserError if a prompt has no label; `purpose` completes "… needs the label of every prompt" (R5)."""
        # The last of these columns holds objects and exists in one source only, so the error does not suggest it.
        lack = f"no column of labels ({', '.join(OF_PROMPTS['answer'].known[:-1])})"
        if self.hint:
            lack += f"; {self.hint}"
        labels = [prompt.given_label for prompt in self.prompts]
        with at("" if self.label_column else "data.columns"):
            self._require_all(f"{purpose} needs the label", labels, self.label_column, lack)

    def require_rephrasings(self, purpose: str) -> None:
        """Raise UserError if a prompt has no rephrasing, which Co-Reward (arXiv:2508.00410) needs.

        `purpose` completes "… needs a rephrasing of every prompt".
        """
        lack = f"no column '{REPHRASED_COLUMN}'; add it: in each row the same question in other words"
        column = REPHRASED_COLUMN if REPHRASED_COLUMN in self.table.column_names else None
        rephrasings = [prompt.rephrased for prompt in self.prompts]
        self._require_all(f"{purpose} needs a rephrasing", rephrasings, column, lack)

    def _require_all(
        self, need: str, values: Sequence[object], column: str | None, lack: str
    ) -> None:
        """Raise UserError if one of `values` is None; there is one value for each prompt, in their order.

        Args:
            need: beginning of the error, such as ``training needs the label``; "of every prompt" follows.
            values: one value for each prompt, such as its label.
            column: the source's column of these values, or None if it has no such column.
            lack: what the source has if `column` is None, such as ``no column of labels``, for the error.
        """
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
