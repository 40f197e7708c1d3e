"""Rollouts as an engine hands them over, by prompt visit, and the two tables that a run stores of them.

Labels have one row per prompt visit, rollouts one row per rollout.

Column names are the field's terms and the same everywhere: here, in Parquet, in `olr replay --json`, in figures.
`visit` and `step` count from 1; one visit of each prompt is one epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property
from itertools import accumulate, chain, pairwise
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import polars as pl
import pyarrow as pa

from olr_cli.data.prompts import NoiseType, Prompt, View
from olr_cli.files import storable
from olr_cli.supervision.advantages import group_advantages


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sampled response, as an engine hands it over; statistics as in `RolloutRecord`.

    Attributes:
        ended_by: what ended it in place of its end or the length limit, as a server says: ``content_filter``,
            ``refusal`` or ``tool_calls``.
    """

    response: str
    tokens: int | None = None
    truncated: bool | None = None
    view: View = "original"
    mean_logprob: float | None = None
    entropy: float | None = None
    self_certainty: float | None = None
    ended_by: str | None = None


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """All rollouts of one visit of a prompt: K of each view, the original's first; `visit` and `step` count from 1.

    Attributes:
        answers: one per rollout, where they are known already, as in a replay; by default the supervisor extracts them
            from the responses (R6).
    """

    prompt: Prompt
    visit: int
    step: int
    rollouts: tuple[Rollout, ...]
    answers: tuple[str | None, ...] | None = None


SCHEMA_VERSION = 1
"""Raised whenever a column changes its meaning or disappears; a reader refuses a newer version."""

LabelSource = Literal["given", "noisy", "sentinel", "majority", "verified", "none"]


@dataclass(frozen=True, slots=True)
class LabelRecord:
    """The decision about one prompt at one visit. None in a column: unknown or not applicable, never 0.

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
        label_source: where it comes from; `verified` at every visit of a prompt whose true answer somebody has checked,
            where given and noisy label say what the label would be without that.
        majority_is_correct: False without a majority; None if the true answer is unknown.
        majority_is_noisy_label: None on prompts that are not marked.
        effective_label_is_correct: False for the sentinel (R2); else None if the true answer is unknown or there is
            no effective label.
        reward_mean: over the rollouts of all views.
        has_zero_variance: all rewards of each view are equal, so it teaches nothing.
        trains: the prompt takes part in the update.
        in_percent: True where the question asks for a percentage, so that verdicts accept a percent sign that the label
            lacks (R7); else None.
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
    in_percent: bool | None = None


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
        oracle_reward: what a verifier without errors gives; None in a recipe without `verifier` (R25).
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
    oracle_reward: float | None = None


LABEL_COLUMNS = tuple(field.name for field in fields(LabelRecord))

MEASURED = tuple(
    field.name
    for field in fields(Rollout)
    if field.name not in ("response", "view", "ended_by")
)
"""What an engine measures of a rollout, besides its response; each is a column of `RolloutRecord`."""


@dataclass(frozen=True)
class Step:
    """The complete rollout groups of one step in columns: P groups, of R rollouts together.

    Attributes:
        number: from 1.
        prompts: P, each once.
        visits: P, from 1.
        starts: P + 1; the rollouts of group g are those from starts[g] up to starts[g + 1], views one after the other.
        views: R.
        responses: R, as UTF-8 can hold them.
        answers: R, where they are known already, as in a replay; None: they are extracted from the responses (R6).
        statistics: R of each name in `MEASURED`; absent where nobody asks for them.
    """

    number: int
    prompts: Sequence[Prompt]
    visits: Sequence[int]
    starts: Sequence[int]
    views: Sequence[View]
    responses: Sequence[str]
    answers: Sequence[str | None] | None
    statistics: Mapping[str, Sequence[Any]]

    @classmethod
    def of(cls, groups: Sequence[RolloutGroup]) -> Step:
        """Return the step that consists of these groups.

        Raises:
            ValueError: they are of several steps, or the answers of only some are known.
        """
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        sizes = [len(group.rollouts) for group in groups]
        return cls(
            number=groups[0].step if groups else 0,
            prompts=[group.prompt for group in groups],
            visits=[group.visit for group in groups],
            starts=[*accumulate(sizes, initial=0)],
            views=[rollout.view for rollout in rollouts],
            # Before answers are read: a replay reads what was stored, and must decide alike.
            responses=[storable(rollout.response) for rollout in rollouts],
            answers=_answers_of_step(groups),
            statistics={
                name: [getattr(rollout, name) for rollout in rollouts] for name in MEASURED
            },
        )

    @classmethod
    def sampled(
        cls,
        number: int,
        visit: int,
        prompts: Sequence[Prompt],
        views: Sequence[View],
        *,
        responses: Sequence[str],
        statistics: Mapping[str, Sequence[Any]],
    ) -> Step:
        """Return the step of an engine that rolls out every prompt equally often in each of these views.

        Responses and statistics are prompt by prompt, and of each prompt view by view.
        """
        size = len(responses) // len(prompts)
        of_prompt = [view for view in views for _ in range(size // len(views))]
        return cls(
            number=number,
            prompts=prompts,
            visits=[visit] * len(prompts),
            starts=range(0, len(responses) + 1, size),
            views=of_prompt * len(prompts),
            responses=[storable(response) for response in responses],
            answers=None,
            statistics=statistics,
        )

    @classmethod
    def read(
        cls,
        rollouts: pl.DataFrame,
        prompts: Mapping[str, Prompt],
        names: Iterable[str] = (),
    ) -> Step:
        """A stored step.

        Args:
            rollouts: with the columns prompt_id, visit, step, view, sample, answer, those of `names`, and response if
                a reward depends on it.
            prompts: by prompt_id.
            names: statistics to take along.
        """
        # Rows of several prompts and views may alternate. An index within `over` would begin at 0 in every prompt: that
        # mixed the prompts of stored steps up.
        rows = rollouts.with_row_index("first").with_columns(
            pl.col("first").min().over("prompt_id")
        )
        rows = rows.sort("first", "view", "sample", maintain_order=True)
        groups = rows.with_row_index("start").unique(
            "prompt_id", keep="first", maintain_order=True
        )
        has_responses = "response" in rows.columns
        return cls(
            number=int(rows["step"][0]) if len(rows) else 0,
            prompts=[prompts[name] for name in groups["prompt_id"].to_list()],
            visits=groups["visit"].to_list(),
            starts=[*groups["start"].to_list(), len(rows)],
            views=rows["view"].to_list(),
            responses=rows["response"].to_list() if has_responses else [""] * len(rows),
            answers=rows["answer"].to_list(),
            statistics={name: rows[name].to_list() for name in names},
        )

    @cached_property
    def parts(self) -> list[int]:
        """Where the views of each group start, and R at the end."""
        if len(set(self.views)) < 2:
            return list(self.starts)
        views = self.views
        changes = (
            place for place in range(1, len(views)) if views[place] != views[place - 1]
        )
        return sorted({*self.starts, *changes})

    def statistic(self, name: str, start: int, end: int) -> list[float]:
        """One statistic of the rollouts from `start` up to `end`.

        Raises:
            ValueError: a rollout has none.
        """
        values = list(self.statistics[name][start:end])
        if None in values:
            raise ValueError(
                f"rollout {values.index(None)} of a group has no {name}, which the method needs"
            )
        return values


def _answers_of_step(groups: Sequence[RolloutGroup]) -> list[str | None] | None:
    """Return the answers of a step's rollouts; None where its groups have none.

    Raises:
        ValueError: the groups are of several steps, or only some have answers.
    """
    of_groups = [group.answers for group in groups if group.answers is not None]
    if len({group.step for group in groups}) > 1 or 0 < len(of_groups) < len(groups):
        raise ValueError("a step's groups have several numbers, or only some have answers")
    return [*chain.from_iterable(of_groups)] if of_groups else None


@dataclass(frozen=True)
class Decided:
    """The decisions about a step, in columns as they are stored.

    Attributes:
        labels: the columns of `LabelRecord`, one value per group, in the order of the step's groups.
        answers: R.
        answer_classes: R.
        is_correct: R.
        rewards: R.
        oracle_rewards: R, without the verifier's errors; None if it makes none.
        timeouts: answers and pairs that verification gave up on, those of `Supervisor.read_ahead` included.
        undecided: rollouts whose answer is proved neither right nor wrong by the label that counts.
    """

    step: Step
    labels: Mapping[str, Sequence[Any]]
    answers: Sequence[str | None]
    answer_classes: Sequence[str | None]
    is_correct: Sequence[bool | None]
    rewards: Sequence[float]
    oracle_rewards: Sequence[float] | None = None
    timeouts: int = 0
    undecided: int = 0

    @cached_property
    def advantages(self) -> list[float]:
        """R; of each rollout within its view (Eq. 1)."""
        return [
            advantage
            for start, end in pairwise(self.step.parts)
            for advantage in group_advantages(self.rewards[start:end])
        ]

    @property
    def trains(self) -> Sequence[bool]:
        """Whether each group takes part in the update."""
        return self.labels["trains"]

    @property
    def rollouts(self) -> dict[str, Sequence[Any]]:
        """The columns of `RolloutRecord`, R values each."""
        step = self.step
        samples = [range(end - start) for start, end in pairwise(step.starts)]
        groups = list(zip(step.prompts, step.visits, samples, strict=True))
        unknown = [None] * len(self.rewards)
        return {
            "prompt_id": [prompt.prompt_id for prompt, _, of_one in groups for _ in of_one],
            "visit": [visit for _, visit, of_one in groups for _ in of_one],
            "step": [step.number] * len(self.rewards),
            "sample": [*chain.from_iterable(samples)],
            "view": step.views,
            "response": step.responses,
            "answer": self.answers,
            "answer_class": self.answer_classes,
            "reward": self.rewards,
            "is_correct": self.is_correct,
            **{name: step.statistics.get(name, unknown) for name in MEASURED},
            "oracle_reward": unknown
            if self.oracle_rewards is None
            else self.oracle_rewards,
        }


@cache
def arrow_schema(record: type, integer: Any = None) -> Any:
    """The `pyarrow.Schema` of a record type; columns that may be None are nullable. `integer`: by default int32."""
    arrow = {
        str: pa.string(),
        int: integer or pa.int32(),
        float: pa.float64(),
        bool: pa.bool_(),
    }
    columns = []
    for name, hint in get_type_hints(record).items():
        kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        kind = next(kind for kind in kinds if kind is not NoneType)
        arrow_type = arrow[str if get_origin(kind) is Literal else kind]
        columns.append(pa.field(name, arrow_type, nullable=NoneType in kinds))
    return pa.schema(columns)
