"""What an engine hands over, rollouts by prompt visit, and the two tables that a run stores of it.

A row a prompt visit (labels) and a row a rollout (rollouts).

Column names are the field's terms and the same everywhere: here, in Parquet, in `olr replay --json`, in figures.
`visit` and `step` count from 1; one visit of each prompt is one epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from olr_cli.data.prompts import NoiseType, Prompt, View


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


SCHEMA_VERSION = 1
"""Raised whenever a column changes its meaning or disappears; a reader refuses a newer version."""

LabelSource = Literal["given", "noisy", "sentinel", "majority", "trusted", "none"]


@dataclass(frozen=True, slots=True)
class LabelRecord:
    """What was decided for one prompt at one visit. None in a column: unknown or not applicable, never 0.

    Where a method rolls out a rephrased prompt too, votes, counts and label are those of the original view. A count is
    of this visit's rollouts in a class (R7).

    Attributes:
        noise_type: None for labels of unknown quality.
        given_label: what the file says; constant over visits.
        noisy_label: this visit's wrong label on a marked prompt (R3); the sentinel if there is none.
        majority_answer: most frequent spelling of the majority class (R9); None without a majority.
        majority_count: 0 without a majority.
        rollouts: K of the view.
        answered: rollouts that have an answer.
        pass_rate: majority_count / rollouts (R10).
        slope: least-squares slope of pass_rate over visits 1..visit (R12), correctly rounded to a double.
        historical_majority: the class that most often was the majority so far (R13); None on a tie.
        is_consistent: the majority is the historical majority.
        is_selected: a majority replaces the label at this visit (R14): the prompt's own or, in Co-Reward, that of its
            other view.
        effective_label: the label the rewards were computed with (R15).
        label_source: where it comes from; `trusted` at every visit of a prompt whose true answer somebody has verified,
            where given and noisy label say what the label would be without that.
        majority_is_correct: False without a majority; None if the true answer is unknown.
        majority_is_noisy_label: None on prompts that are not marked.
        effective_label_is_correct: False for the sentinel (R2); else None if the true answer is unknown or there is
            no effective label.
        reward_mean: over the rollouts of all views.
        has_zero_variance: all rewards of each view are equal, so it teaches nothing.
        trains: the prompt takes part in the update.
    """

    prompt_id: str
    visit: int
    step: int
    noise_type: NoiseType | None
    true_answer: str | None
    given_label: str | None
    noisy_label: str | None
    noisy_label_count: int | None
    true_answer_count: int | None
    given_label_count: int | None
    majority_answer: str | None
    majority_count: int
    rollouts: int
    answered: int
    pass_rate: float
    slope: float
    historical_majority: str | None
    is_consistent: bool
    is_selected: bool
    effective_label: str | None
    label_source: LabelSource
    majority_is_correct: bool | None
    majority_is_noisy_label: bool | None
    effective_label_is_correct: bool | None
    reward_mean: float
    has_zero_variance: bool
    trains: bool


@dataclass(frozen=True, slots=True)
class RolloutRecord:
    """One sampled response.

    Attributes:
        sample: number within the visit, from 0; rollouts of the original view first.
        view: ``original``, or ``rephrased`` where a method rolls out a rephrased prompt too.
        answer: the extracted answer (R6); None if there is none.
        answer_class: spelling that stands for the answer's class at this visit (R7).
        reward: what the update saw.
        is_correct: the answer is in the true answer's class; None if the true answer is unknown.
        tokens: length of the response, end token included.
        truncated: the length limit cut the response.
        mean_logprob: mean over response tokens of log pi(token) at the sampling temperature.
        entropy: mean over response tokens of the policy's entropy, in nats.
        self_certainty: mean over response tokens of KL(uniform || policy), in nats.
    """

    prompt_id: str
    visit: int
    step: int
    sample: int
    view: str
    response: str
    answer: str | None
    answer_class: str | None
    reward: float
    is_correct: bool | None
    tokens: int | None
    truncated: bool | None
    mean_logprob: float | None
    entropy: float | None
    self_certainty: float | None


Record = LabelRecord | RolloutRecord


@cache
def arrow_schema(record: type[LabelRecord] | type[RolloutRecord]) -> Any:
    """The `pyarrow.Schema` of a record type; columns that may be None are nullable."""
    import pyarrow as pa

    arrow = {str: pa.string(), int: pa.int32(), float: pa.float64(), bool: pa.bool_()}
    columns = []
    for name, hint in get_type_hints(record).items():
        kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        kind = next(kind for kind in kinds if kind is not NoneType)
        arrow_type = arrow[str if get_origin(kind) is Literal else kind]
        columns.append(pa.field(name, arrow_type, nullable=NoneType in kinds))
    return pa.schema(columns)
