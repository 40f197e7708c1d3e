"""Decisions by group, records as columns, and metrics that equal runs share, for use in tests."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
from polars.testing import assert_frame_equal

from olr_cli.recipe.methods import METHODS, MethodSection
from olr_cli.runs.metrics import Metrics
from olr_cli.runs.store import arrow_table, scan_labels, scan_rollouts
from olr_cli.supervision import Decided, LabelRecord, RolloutRecord


def make_method(name: str, **keys: Any) -> MethodSection:
    """Return the recipe section of a built-in method, with these `keys` in it."""
    return METHODS[name].section(name=name, **keys)


LABEL = LabelRecord(
    prompt_id="clean", visit=2, step=2, noise_type="clean", true_answer="1", given_label="1", noisy_label=None,
    noisy_label_count=None, true_answer_count=3, given_label_count=3, majority_answer="1", majority_count=3, rollouts=4,
    answered=4, pass_rate=0.75, slope=0.25, historical_majority="1", is_consistent=True, is_selected=False,
    effective_label="1", label_source="given", majority_is_correct=True, majority_is_noisy_label=None,
    effective_label_is_correct=True, reward_mean=0.75, has_zero_variance=False, trains=True,
)  # fmt: skip
"""A clean prompt's second visit, at which three of four rollouts are right."""
ROLLOUT = RolloutRecord(
    "clean",
    2,
    2,
    0,
    "original",
    "\\boxed{1}",
    "1",
    "1",
    1.0,
    True,
    6,
    False,
    None,
    None,
    None,
)


@dataclass(frozen=True)
class Group:
    """What was decided for one group, that is one prompt's rollouts at one step.

    Attributes:
        label: the record about its label.
        rollouts: a record per rollout.
        advantages: one per rollout.
    """

    label: LabelRecord
    rollouts: tuple[RolloutRecord, ...]
    advantages: tuple[float, ...]

    @property
    def rewards(self) -> tuple[float, ...]:
        """The reward of each rollout."""
        return tuple(rollout.reward for rollout in self.rollouts)

    @property
    def trains(self) -> bool:
        """Whether the prompt takes part in the update."""
        return self.label.trains


def by_group(decided: Decided) -> list[Group]:
    """Return the decisions of a step, which are stored by column, as a `Group` for each prompt, in the step's order."""
    labels = [LabelRecord(*row) for row in zip(*decided.labels.values(), strict=True)]
    rollouts = [RolloutRecord(*row) for row in zip(*decided.rollouts.values(), strict=True)]
    return [
        Group(label, tuple(rollouts[start:end]), tuple(decided.advantages[start:end]))
        for label, (start, end) in zip(labels, pairwise(decided.step.starts), strict=True)
    ]


def columns(kind: type, records: Sequence[Any]) -> dict[str, list[Any]]:
    """Turn records of the dataclass `kind` into columns: by field name, the values of all records."""
    return {
        field.name: [getattr(record, field.name) for record in records]
        for field in fields(kind)
    }


def table_of(name: str, records: Sequence[Any]) -> Any:
    """Return records as the Arrow table in which olr stores them; `name` is ``labels`` or ``rollouts``."""
    return arrow_table(
        name, columns({"labels": LabelRecord, "rollouts": RolloutRecord}[name], records)
    )


def stored_tables(run: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the labels table and the rollouts table of a run, sorted by step and prompt (and sample)."""
    order = ["step", "prompt_id"]
    labels, rollouts = scan_labels(run).sort(order), scan_rollouts(run)
    return labels.collect(), rollouts.sort([*order, "sample"]).collect()


def assert_same_tables(run: Path, other: Path) -> None:
    """Assert that two runs have stored the same labels and rollouts."""
    for ours, theirs in zip(stored_tables(run), stored_tables(other), strict=True):
        assert_frame_equal(ours, theirs)


def untimed(lines: Sequence[Metrics]) -> list[Metrics]:
    """Return lines of metrics without times, speeds and memory, which differ between two equal runs."""
    of_the_machine = ("time/", "speed/", "memory/")
    return [
        {name: value for name, value in line.items() if not name.startswith(of_the_machine)}
        for line in lines
    ]
