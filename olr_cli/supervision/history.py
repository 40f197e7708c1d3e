"""What earlier visits of each prompt showed (R11)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Visit:
    """The vote of one visit.

    Attributes:
        majority_answer: None if the visit had no majority.
        majority_count: rollouts in the majority class, 0 without one.
        rollouts: K.
    """

    majority_answer: str | None
    majority_count: int
    rollouts: int


class History:
    """The visits of every prompt, oldest first. Grows by one visit at a time and is never rewritten."""

    def __init__(self) -> None:
        self._visits: defaultdict[str, list[Visit]] = defaultdict(list)

    def of(self, prompt_id: str) -> tuple[Visit, ...]:
        """The prompt's visits so far, oldest first; empty before the first."""
        return tuple(self._visits.get(prompt_id, ()))

    def add(self, prompt_id: str, number: int, visit: Visit) -> None:
        """Append visit `number` (from 1) of a prompt.

        Raises:
            ValueError: a visit is missing or comes twice.
        """
        visits = self._visits[prompt_id]
        if number != len(visits) + 1:
            raise ValueError(f"prompt {prompt_id}: visit {number} follows visit {len(visits)}")
        visits.append(visit)

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]]) -> History:
        """The history that stored label rows tell; rows ordered by visit within each prompt."""
        history = cls()
        for row in rows:
            visit = Visit(row["majority_answer"], row["majority_count"], row["rollouts"])
            history.add(row["prompt_id"], row["visit"], visit)
        return history
