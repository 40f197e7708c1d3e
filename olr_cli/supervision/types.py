"""Rollouts as an engine hands them over, by prompt visit, and the two tables of them that a run stores.

The labels table has one row per prompt visit, the rollouts table one row per rollout.

Columns are named in the field's terms, and the same everywhere: here, in Parquet, in `olr replay --json` and in
figures. `visit` and `step` count from 1; one epoch visits each prompt once.
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
    """One sampled response, with the statistics that the engine has measured.

    A statistic that the engine has not measured is None. `RolloutRecord` explains the statistics.
    """

    response: str
    tokens: int | None = None
    truncated: bool | None = None
    view: View = "original"
    mean_logprob: float | None = None
    entropy: float | None = None
    self_certainty: float | None = None
    ended_by: str | None = None
    """The server's reason to stop early, if it was neither the response's end nor the length limit.

    It is ``content_filter``, ``refusal`` or ``tool_calls``.
    """


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """All rollouts of one visit of a prompt: K rollouts for each view (wording), the original view's first.

    `visit` and `step` count from 1.
    """

    prompt: Prompt
    visit: int
    step: int
    rollouts: tuple[Rollout, ...]
    answers: tuple[str | None, ...] | None = None
    """One answer per rollout if already known, as in a replay; None to extract them from the responses (R6)."""


SCHEMA_VERSION = 1
"""Raised whenever a column changes its meaning or disappears; readers refuse a newer version."""

LabelSource = Literal["given", "noisy", "sentinel", "majority", "verified", "none"]
"""Origin of a label.

- ``given``: the file.
- ``noisy``: noise, on a marked prompt.
- ``sentinel``: noise or the file, with the sentinel as label, which no answer matches (R2).
- ``majority``: the rollouts, because the method replaced the label.
- ``verified``: a person who checked the true answer.
- ``none``: there is no label.
"""


@dataclass(frozen=True, slots=True)
class LabelRecord:
    """A row of the labels table: the decision about one prompt at one visit, and the facts behind it (R7).

    None means unknown or not applicable, never 0. If a method also rolls out a second wording of the prompt, votes,
    counts and label are those of the original wording. Counts are numbers of this visit's rollouts.
    """

    prompt_id: str
    visit: int
    step: int
    noise_type: NoiseType | None
    """None for labels of unknown quality."""

    true_answer: str | None
    given_label: str | None
    """The label in the file; the same at every visit."""

    noisy_label: str | None
    """This visit's wrong label on a marked prompt (R3); the sentinel if no answer is proved wrong."""

    noisy_label_count: int | None
    true_answer_count: int | None
    given_label_count: int | None
    majority_answer: str | None
    """Most frequent spelling of the majority class (R9); None without a majority."""

    majority_count: int
    """Number of rollouts in the majority class; 0 without a majority."""

    rollouts: int
    """Number of responses, K, in the original view."""

    answered: int
    """Number of rollouts that have an answer."""

    pass_rate: float
    """majority_count / rollouts (R10)."""

    slope: float
    """Least-squares slope of pass_rate over visits 1..visit (R12), correctly rounded to a double."""

    historical_majority: str | None
    """The class that was the majority most often so far (R13); None on a tie."""

    is_consistent: bool
    """Whether the majority is the historical majority."""

    is_selected: bool
    """Whether a majority replaces the label (R14): the prompt's own or, in Co-Reward, the other view's."""

    effective_label: str | None
    """The label that the rewards were computed with (R15)."""

    label_source: LabelSource
    """Origin of the effective label.

    It is `verified` at every visit of a prompt whose true answer a person has checked. given_label and noisy_label then
    say what the label would be otherwise.
    """

    majority_is_correct: bool | None
    """False without a majority; None if the true answer is unknown."""

    majority_is_noisy_label: bool | None
    """None on prompts that are not marked."""

    effective_label_is_correct: bool | None
    """False for the sentinel (R2); None without a label, or if the true answer is unknown."""

    reward_mean: float
    """Mean reward over the rollouts of all views."""

    has_zero_variance: bool
    """Whether the rewards within each view are all equal, so that the group teaches nothing."""

    trains: bool
    """Whether the prompt takes part in the update."""

    in_percent: bool | None = None
    """True if the question asks for a percentage, else None.

    Verdicts then accept a percent sign that the label lacks (R7).
    """


@dataclass(frozen=True, slots=True)
class RolloutRecord:
    """A row of the rollouts table: one sampled response, its answer, its reward and its statistics."""

    prompt_id: str
    visit: int
    step: int
    sample: int
    """Number within the visit, from 0; the original view's rollouts come first."""

    view: str
    """``original``, or ``rephrased`` if a method also rolls out a rephrased prompt."""

    response: str
    answer: str | None
    """The extracted answer (R6); None if there is none."""

    answer_class: str | None
    """The spelling that represents the answer's class at this visit (R7)."""

    reward: float
    """The reward that the update used."""

    is_correct: bool | None
    """Whether the answer matches the true answer; None if the true answer is unknown."""

    tokens: int | None
    """Length of the response, end token included."""

    truncated: bool | None
    """Whether the length limit cut the response off."""

    mean_logprob: float | None
    """Mean over response tokens of log pi(token) at the sampling temperature."""

    entropy: float | None
    """Mean over response tokens of the policy's entropy, in nats."""

    self_certainty: float | None
    """Mean over response tokens of KL(uniform || policy), in nats."""

    oracle_reward: float | None = None
    """Reward from a verifier without errors; None if the recipe has no `verifier` section (R25)."""


LABEL_COLUMNS = tuple(field.name for field in fields(LabelRecord))

MEASURED = tuple(
    field.name
    for field in fields(Rollout)
    if field.name not in ("response", "view", "ended_by")
)
"""Statistics that an engine measures for each rollout; each is a column of `RolloutRecord`."""


@dataclass(frozen=True)
class Step:
    """All rollouts of one step, in columns.

    The descriptions of the fields use two lengths. P is the number of prompts, each with one group of rollouts. R is
    the number of all rollouts.
    """

    number: int
    """Counts from 1."""

    prompts: Sequence[Prompt]
    """P prompts, each once."""

    visits: Sequence[int]
    """P numbers, from 1."""

    starts: Sequence[int]
    """P + 1 indices: group g owns the rollouts from starts[g] up to starts[g + 1], one view after the other."""

    views: Sequence[View]
    """R views."""

    responses: Sequence[str]
    """R texts, encodable as UTF-8."""

    answers: Sequence[str | None] | None
    """R answers if they are known already, as in a replay; None to extract them from the responses (R6)."""

    statistics: Mapping[str, Sequence[Any]]
    """R values per name in `MEASURED`; names that nothing reads may be absent."""

    @classmethod
    def of(cls, groups: Sequence[RolloutGroup]) -> Step:
        """Build a step from rollout groups.

        Raises:
            ValueError: the groups have several step numbers, or only some have answers.
        """
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        sizes = [len(group.rollouts) for group in groups]
        return cls(
            number=groups[0].step if groups else 0,
            prompts=[group.prompt for group in groups],
            visits=[group.visit for group in groups],
            starts=[*accumulate(sizes, initial=0)],
            views=[rollout.view for rollout in rollouts],
            # Replace what UTF-8 cannot hold before answers are extracted: a replay sees the stored text
            # and must decide alike.
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
        """Build a step from an engine's responses, equally many for every prompt and view.

        Args:
            number: number of the step, from 1.
            visit: number of the visit, from 1, the same for all prompts.
            prompts: the prompts of the step.
            views: the wordings in which each prompt is rolled out.
            responses: the texts of all prompts, ordered by prompt, then by view.
            statistics: name -> one value per response, in the order of `responses`.
        """
        size = len(responses) // len(prompts)
        prompt_views = [view for view in views for _ in range(size // len(views))]
        return cls(
            number=number,
            prompts=prompts,
            visits=[visit] * len(prompts),
            starts=range(0, len(responses) + 1, size),
            views=prompt_views * len(prompts),
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
        """Rebuild a step from its stored rows of the rollouts table.

        Args:
            rollouts: rows in any order, with the columns prompt_id, visit, step, view, sample and answer, and those in
                `names`. Without the optional column response, all responses are empty.
            prompts: prompt_id -> prompt.
            names: columns of statistics to keep.
        """
        # Rows of different prompts and views may alternate, so sort by each prompt's first row. The index must be taken
        # outside `over`: inside, it starts at 0 for every prompt, which once mixed up the prompts of stored steps.
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
        """Index of the first rollout of each view (wording of the prompt) of each group, ascending.

        The last item is the number of all rollouts. Rollouts ``parts[i]`` to ``parts[i + 1] - 1`` are those of one view
        of one group.
        """
        # Most methods have one view, so a group is its only part.
        if len(set(self.views)) < 2:
            return list(self.starts)
        views = self.views
        changes = (
            index for index in range(1, len(views)) if views[index] != views[index - 1]
        )
        return sorted({*self.starts, *changes})

    def statistic(self, name: str, start: int, end: int) -> list[float]:
        """Return the statistic `name` of the rollouts from index `start` up to, but not including, `end`.

        Raises:
            ValueError: a rollout lacks the statistic.
        """
        values = list(self.statistics[name][start:end])
        if None in values:
            raise ValueError(
                f"rollout {values.index(None)} of a group has no {name}, which the method needs"
            )
        return values


def _answers_of_step(groups: Sequence[RolloutGroup]) -> list[str | None] | None:
    """Return the answers that the groups already have, one per rollout in order, or None if no group has answers.

    Raises:
        ValueError: the groups have several step numbers, or only some have answers.
    """
    known_answers = [group.answers for group in groups if group.answers is not None]
    if len({group.step for group in groups}) > 1 or 0 < len(known_answers) < len(groups):
        raise ValueError("a step's groups have several numbers, or only some have answers")
    return [*chain.from_iterable(known_answers)] if known_answers else None


@dataclass(frozen=True)
class Decided:
    """The labels of a step's prompts, and the rewards and verdicts (right or wrong) of its rollouts.

    `Supervisor.supervise` makes it. In the descriptions of the fields, R is the number of all rollouts of the step.
    """

    step: Step
    labels: Mapping[str, Sequence[Any]]
    """The columns of `LabelRecord`, one value per group, in the order of the step's groups."""

    answers: Sequence[str | None]
    """R answers."""

    answer_classes: Sequence[str | None]
    """R spellings, each representing an answer's class."""

    is_correct: Sequence[bool | None]
    """R verdicts against the true answer."""

    rewards: Sequence[float]
    """R rewards."""

    oracle_rewards: Sequence[float] | None = None
    """R rewards from a verifier without errors; None if the recipe has no `verifier` section."""

    timeouts: int = 0
    """Number of answers and pairs that verification gave up on, including `Supervisor.read_ahead`'s."""

    undecided: int = 0
    """Number of rollouts whose answer is proved neither right nor wrong under the effective label."""

    @cached_property
    def advantages(self) -> list[float]:
        """One advantage per rollout, relative to the rewards of the same prompt and view (Eq. 1)."""
        return [
            advantage
            for start, end in pairwise(self.step.parts)
            for advantage in group_advantages(self.rewards[start:end])
        ]

    @property
    def trains(self) -> Sequence[bool]:
        """Whether each prompt takes part in the update, in the order of the step's prompts."""
        return self.labels["trains"]

    @property
    def rollouts(self) -> dict[str, Sequence[Any]]:
        """The step's part of the rollouts table: column of `RolloutRecord` -> one value per rollout."""
        step = self.step
        samples = [range(end - start) for start, end in pairwise(step.starts)]
        groups = list(zip(step.prompts, step.visits, samples, strict=True))
        no_values = [None] * len(self.rewards)
        return {
            "prompt_id": [prompt.prompt_id for prompt, _, rows in groups for _ in rows],
            "visit": [visit for _, visit, rows in groups for _ in rows],
            "step": [step.number] * len(self.rewards),
            "sample": [*chain.from_iterable(samples)],
            "view": step.views,
            "response": step.responses,
            "answer": self.answers,
            "answer_class": self.answer_classes,
            "reward": self.rewards,
            "is_correct": self.is_correct,
            **{name: step.statistics.get(name, no_values) for name in MEASURED},
            "oracle_reward": no_values
            if self.oracle_rewards is None
            else self.oracle_rewards,
        }


@cache
def arrow_schema(record: type, integer: Any = None) -> Any:
    """Return a `pyarrow.Schema` with a column for each field of a record type such as `LabelRecord`.

    Columns that may be None are nullable. `integer` is the Arrow type of integers, int32 by default.
    """
    arrow_types = {
        str: pa.string(),
        int: integer or pa.int32(),
        float: pa.float64(),
        bool: pa.bool_(),
    }
    columns = []
    for name, hint in get_type_hints(record).items():
        # A nullable column is a union that ends with None: `int | None` is a UnionType, `Optional[int]` a Union.
        members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        value_type = members[0]
        arrow_type = arrow_types[str if get_origin(value_type) is Literal else value_type]
        columns.append(pa.field(name, arrow_type, nullable=NoneType in members))
    return pa.schema(columns)
