"""Decisions a group at a time, records as columns, and metrics that two runs share, as tests read and write them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

from olr_cli.runs.metrics import Metrics
from olr_cli.runs.store import arrow_table
from olr_cli.supervision import Decided, LabelRecord, RolloutRecord


@dataclass(frozen=True)
class Group:
    """What was decided for a group."""

    label: LabelRecord
    rollouts: tuple[RolloutRecord, ...]
    advantages: tuple[float, ...]

    @property
    def rewards(self) -> tuple[float, ...]:
        """A reward a rollout."""
        return tuple(rollout.reward for rollout in self.rollouts)

    @property
    def trains(self) -> bool:
        """Whether the prompt takes part in the update."""
        return self.label.trains


def by_group(decided: Decided) -> list[Group]:
    """The decisions of a step, in the order of its groups."""
    labels = [LabelRecord(*row) for row in zip(*decided.labels.values(), strict=True)]
    rollouts = [RolloutRecord(*row) for row in zip(*decided.rollouts.values(), strict=True)]
    return [
        Group(label, tuple(rollouts[start:end]), tuple(decided.advantages[start:end]))
        for label, (start, end) in zip(labels, pairwise(decided.step.starts), strict=True)
    ]


def columns(kind: type, records: Sequence[Any]) -> dict[str, list[Any]]:
    """The columns of some records of one kind."""
    return {field.name: [getattr(record, field.name) for record in records] for field in fields(kind)}


def table_of(name: str, records: Sequence[Any]) -> Any:
    """Records as the table that is stored of them."""
    return arrow_table(name, columns({"labels": LabelRecord, "rollouts": RolloutRecord}[name], records))


def untimed(lines: Sequence[Metrics]) -> list[Metrics]:
    """What an equal run on another machine measures too; time, speed and memory depend on it and its load."""
    of_the_machine = ("time/", "speed/", "memory/")
    return [
        {name: value for name, value in line.items() if not name.startswith(of_the_machine)} for line in lines
    ]
