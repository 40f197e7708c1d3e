"""What an engine hands over: rollouts, grouped by the prompt visit they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from olr_cli.data.prompts import Prompt, View


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sampled response, as an engine hands it over; statistics as in `RolloutRecord`."""

    response: str
    tokens: int | None = None
    truncated: bool | None = None
    view: View = "original"
    mean_logprob: float | None = None
    entropy: float | None = None
    self_certainty: float | None = None


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """All rollouts of one visit of a prompt: K of each view, the original's first; `visit` and `step` count from 1.

    Attributes:
        answers: one a rollout, where they are known already, as in a replay; by default the supervisor extracts them
            from the responses (R6).
    """

    prompt: Prompt
    visit: int
    step: int
    rollouts: tuple[Rollout, ...]
    answers: tuple[str | None, ...] | None = None

    def of(self, view: View) -> slice:
        """Where the rollouts of a view are, which are neighbours."""
        views = [rollout.view for rollout in self.rollouts]
        return slice(views.index(view), views.index(view) + views.count(view))


def statistics(rollouts: Sequence[Rollout], name: str) -> list[float]:
    """One statistic of every rollout.

    Raises:
        ValueError: a rollout has none.
    """
    values = [getattr(rollout, name) for rollout in rollouts]
    if None in values:
        raise ValueError(f"rollout {values.index(None)} of a group has no {name}, which the method needs")
    return values
