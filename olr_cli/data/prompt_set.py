"""A data set in memory: its prompts, and the rows they came from, so that nothing is lost on the way back to a file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from olr_cli import seeding
from olr_cli.data.prompts import REPHRASED_COLUMN, Prompt
from olr_cli.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class PromptSet:
    """Prompts and where they came from.

    Attributes:
        prompts: in file order.
        table: the same rows in the interchange format, with whatever other columns the source had. Of its label
            fields nothing is used any more: the labels are those of `prompts`.
        source: file or folder name, hub id, or the name of the built-in set.
        revision: commit of a hub data set.
        label_column: where the labels were found; None: there is no such column.
        facts: what was done to the rows (noise type, ratio, seed, ...), for the metadata of a written file.
    """

    prompts: tuple[Prompt, ...]
    table: pa.Table
    source: str
    revision: str | None = None
    label_column: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.prompts)

    @cached_property
    def digest(self) -> str:
        """sha256 (hexadecimal) of everything training sees of the prompts; the same in every file format."""
        digest = hashlib.sha256()
        for p in self.prompts:
            turns = [(m.role, m.content) for m in p.messages]
            row = [p.prompt_id, turns, p.given_label, p.true_answer, p.noise_type, p.data_source]
            if p.rephrased is not None:
                row.append([(m.role, m.content) for m in p.rephrased])
            digest.update(json.dumps(row).encode())
        return digest.hexdigest()

    @property
    def is_marked(self) -> bool:
        """Whether some label is known to be noise."""
        return any(prompt.is_marked for prompt in self.prompts)

    def subset(self, rows: Sequence[int]) -> PromptSet:
        """The prompts at `rows` (the first is 0), in that order."""
        return replace(
            self, prompts=tuple(self.prompts[row] for row in rows), table=self.table.take(list(rows))
        )

    def sample(self, size: int, seed: int) -> PromptSet:
        """A random subset in file order; of one seed, a larger sample contains a smaller one (R18).

        Raises:
            UserError: there are fewer than `size` prompts.
        """
        if size > len(self):
            raise UserError(
                f"{self.source} has {len(self)} prompts, so {size} cannot be sampled; ask for fewer"
            )
        chosen = sorted(seeding.permutation(len(self), "sample", seed)[:size])
        facts = {**self.facts, "sample.size": str(size), "sample.seed": str(seed)}
        return replace(self.subset(chosen), facts=facts)

    def with_prompts(self, prompts: Iterable[Prompt], facts: Mapping[str, str]) -> PromptSet:
        """The same rows with other labels."""
        return replace(self, prompts=tuple(prompts), facts={**self.facts, **facts})

    def require_labels(self, purpose: str) -> None:
        """Make sure that every prompt has a label (R5).

        Args:
            purpose: what needs the labels, to complete "... needs the label of every prompt".

        Raises:
            UserError: labels are missing; says how many, and which is the first.
        """
        missing = [row for row, prompt in enumerate(self.prompts) if prompt.given_label is None]
        if not missing:
            return
        if self.label_column is None:
            raise UserError(
                f"{purpose} needs the label of every prompt, and {self.source} has no column of labels; name it"
                " reward_model.ground_truth, answer, label, ground_truth or solution"
            )
        first = missing[0]
        raise UserError(
            f"{purpose} needs the label of every prompt, and {len(missing)} of the {len(self)} in {self.source} have"
            f" none in '{self.label_column}' (the first: row {first}, prompt_id {self.prompts[first].prompt_id});"
            " fill them in or leave these rows out"
        )

    def require_rephrasings(self, purpose: str) -> None:
        """Make sure that every prompt has a rephrasing, as Co-Reward (arXiv:2508.00410) needs it.

        Args:
            purpose: what needs them, to complete "... needs a rephrasing of every prompt".

        Raises:
            UserError: rephrasings are missing; says how many, and which is the first.
        """
        missing = [row for row, prompt in enumerate(self.prompts) if prompt.rephrased is None]
        if not missing:
            return
        if REPHRASED_COLUMN not in self.table.column_names:
            raise UserError(
                f"{purpose} needs a rephrasing of every prompt, and {self.source} has no column"
                f" '{REPHRASED_COLUMN}'; add it: in each row the same question in other words"
            )
        first = missing[0]
        raise UserError(
            f"{purpose} needs a rephrasing of every prompt, and {len(missing)} of the {len(self)} in {self.source}"
            f" have none in '{REPHRASED_COLUMN}' (the first: row {first}, prompt_id"
            f" {self.prompts[first].prompt_id}); fill them in or leave these rows out"
        )
