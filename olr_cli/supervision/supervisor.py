"""The one place where labels are decided (the seam): a step's rollouts go in, rewards and records come out.

    engine:  K rollouts per prompt ──► Supervisor.supervise(step) ──► rewards, which prompts train ──► update
                                           │
                                           └─ answers → vote → history → criteria → effective label → records

Decisions depend on the rollouts, the history and the seed alone, so both engines and a replay decide alike. The order
of the groups does not matter. The order of the rollouts within a group matters only where TTRL and Co-Reward break a
tie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from fractions import Fraction
from itertools import chain, groupby, pairwise
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from olr_cli.answers import (
    Gold,
    Grading,
    Judge,
    default_extractor,
    is_placeholder,
    read_answer,
    vote,
)
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.chat import ending
from olr_cli.data.prompts import Prompt
from olr_cli.data.sets import noise_draw
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.sections import NoiseDraw
from olr_cli.supervision.group import Group
from olr_cli.supervision.history import History
from olr_cli.supervision.methods import Method, compose
from olr_cli.supervision.noisy import noisy_label
from olr_cli.supervision.selection import prompts_that_train
from olr_cli.supervision.types import LABEL_COLUMNS, Decided, LabelRecord, Step
from olr_cli.supervision.verifier import Verifier
from olr_cli.supervision.visit import Label

Measure: TypeAlias = Callable[[str], AbstractContextManager[object]]
"""Returns a context manager that adds the time of its block to the named part of the step."""


class Supervisor:
    """Decides the labels and rewards of a run, step by step, and keeps the history that they depend on.

    Args:
        method: how labels and rewards are made.
        judge: decides which answers mean the same, and which match a label.
        seed: makes the random draws repeatable: those of noisy labels (R3) and of the prompts that train.
        draw: how active noise draws a label from the wrong answers of a visit.
        extractor: name of the answer extractor. By default, each prompt's data source decides (R6).
        keep_fraction: share of a step's prompts that train, if the method chooses among them.
        history: the visits before this run was resumed; None for a new run.
        verifier: makes errors that change rewards (R25); None for no errors.
    """

    def __init__(
        self,
        method: Method,
        judge: Judge,
        *,
        seed: int,
        draw: NoiseDraw = "uniform",
        extractor: str | None = None,
        keep_fraction: Fraction = Fraction(1),
        history: History | None = None,
        verifier: Verifier | None = None,
    ) -> None:
        self.method = method
        self._verifier = verifier
        self.judge = judge
        self.history = History() if history is None else history
        self._seed = seed
        self._draw = draw
        self._extractor = extractor
        self._keep_fraction = keep_fraction
        # Timeouts that `read_ahead` met: they belong to the step that `supervise` gets next.
        self._timeouts_ahead = 0

    def supervise(self, step: Step, measure: Measure = nullcontext) -> Decided:
        """Decide the labels and rewards of one step, and add the step to the history.

        Args:
            step: complete rollout groups, in any order.
            measure: takes the name of a part of the work and returns a context manager that times it. The parts are
                ``verification`` (extracting and comparing answers) and ``labels`` (votes, history, criteria, labels and
                rewards).

        Raises:
            ValueError: a prompt has two groups, or a group repeats or skips a visit, has other views (wordings of the
                prompt) than the method, or lacks a statistic that the method needs. Nothing is recorded then.
        """
        self._check(step)
        # `read_ahead` may have verified this step already: its timeouts count as this step's.
        timeouts_before = self.judge.timeouts - self._timeouts_ahead
        with measure("verification"):
            answers = self._answers(step)
            grading = self._grading(step, answers)
        with measure("labels"):
            groups = self._groups(step, answers, grading)
            for group in groups:
                group.noisy_label = noisy_label(group, self._draw, self._seed)
        # A second round: a noisy label is drawn by the verdicts of the first, and rewards need verdicts on it in turn.
        with measure("verification"):
            grading.ask(_golds(group.prompt, group.noisy_label) for group in groups)
        with measure("labels"):
            decided = _columns(step, groups, [self._decide(group) for group in groups])
            # Without errors, the column would only repeat the rewards.
            if self._verifier is None:
                decided = replace(decided, oracle_rewards=None)
            if self.method.rank is not None:
                trains = prompts_that_train(
                    decided, self.method.rank, self._keep_fraction, self._seed
                )
                decided = replace(decided, labels={**decided.labels, "trains": trains})
            # Last, when nothing can fail any more. Visits were once added group by group; when a later group lacked a
            # statistic, the retried step then began at visit 2.
            self.history.extend({group.prompt.prompt_id: group.past for group in groups})
        self._timeouts_ahead = 0
        return replace(decided, timeouts=self.judge.timeouts - timeouts_before)

    def expect(self, prompts: Sequence[Prompt]) -> None:
        """Start the judge's worker processes in the background if grading these prompts will need them.

        They are needed if parsing some label or true answer takes computer algebra.
        """
        texts = (
            text for prompt in prompts for text in (prompt.given_label, prompt.true_answer)
        )
        self.judge.expect(text for text in texts if text not in (None, SENTINEL))

    def read_ahead(self, step: Step) -> None:
        """Grade the answers of the next step early, so that `supervise` finds the verdicts in the judge's cache.

        The step's statistics are not read, so another thread may call this while the engine still computes them.
        Timeouts of this grading count in the next result of `supervise`.
        """
        timeouts_before = self.judge.timeouts
        self._grading(step, self._answers(step))
        self._timeouts_ahead += self.judge.timeouts - timeouts_before

    def _check(self, step: Step) -> None:
        """Raise ValueError unless each group is its prompt's next visit and has exactly the method's views.

        A view is a wording in which the prompt is rolled out. A prompt with two groups is an error too.
        """
        if len({prompt.prompt_id for prompt in step.prompts}) < len(step.prompts):
            raise ValueError("a prompt comes twice in one step")
        # Check visits before views: for a step that comes twice, an error about views would mislead.
        for prompt, visit in zip(step.prompts, step.visits, strict=True):
            next_visit = self.history.of(prompt.prompt_id).visits + 1
            if visit != next_visit:
                raise ValueError(
                    f"prompt {prompt.prompt_id}: visit {visit} where visit {next_visit} is due"
                )
        views = list(self.method.views)
        for prompt, visit, (start, end) in zip(
            step.prompts, step.visits, pairwise(step.starts), strict=True
        ):
            step_views = [view for view, _ in groupby(step.views[start:end])]
            if step_views != views:
                raise ValueError(
                    f"prompt {prompt.prompt_id}: visit {visit} has rollouts of the views"
                    f" {step_views or 'none'}, and {self.method.name} takes {views}"
                )

    def _answers(self, step: Step) -> list[str | None]:
        """Return one answer per rollout of the step, extracted from its response unless the step has answers already.

        The answer is None if the response has none. It is also None if the response's answer is the sentinel, a label
        that no answer may match.
        """
        # A policy that outputs the sentinel has given no answer, which neither votes nor is rewarded (R2, R16).
        if step.answers is not None:
            return [None if answer == SENTINEL else answer for answer in step.answers]
        answers: list[str | None] = []
        for prompt, (start, end) in zip(step.prompts, pairwise(step.starts), strict=True):
            extractor = self._extractor or default_extractor(prompt.data_source)
            # The prompt's last turn may end inside the thinking; the response then continues it.
            opened = ending(prompt.messages)
            answers += [
                read_answer(response, extractor, opened)
                for response in step.responses[start:end]
            ]
        return answers

    def _grading(self, step: Step, answers: Sequence[str | None]) -> Grading:
        """Return the judge's verdicts on a step: which answers mean the same, and which match a label (R7).

        The labels are each prompt's given label and true answer. The result also says whether the given label matches
        the true answer. `answers` has one answer per rollout of the step; None for none.
        """
        grading = Grading(
            [answers[start:end] for start, end in pairwise(step.starts)], self.judge
        )
        grading.ask(
            _golds(prompt, prompt.true_answer, prompt.given_label)
            for prompt in step.prompts
        )
        # `effective_label_is_correct` needs a verdict on the given label, even if no rollout gave it as an answer.
        grading.ask_pairs({
            (true_answer, prompt.given_label): None
            for prompt in step.prompts
            for true_answer in _golds(prompt, prompt.true_answer)
            if prompt.given_label not in (None, SENTINEL)
        })  # fmt: skip
        return grading

    def _groups(
        self, step: Step, answers: Sequence[str | None], grading: Grading
    ) -> list[Group]:
        """Return the step's groups, each with its answers, its votes, and a past that includes this visit.

        `answers` has one answer per rollout of the step, and `grading` has the judge's verdicts on these answers.
        """
        parts, views = list(pairwise(step.parts)), len(self.method.views)
        answers_by_part = [answers[start:end] for start, end in parts]
        votes = [vote(part, grading.keys) for part in answers_by_part]
        groups = []
        for index, (prompt, visit) in enumerate(
            zip(step.prompts, step.visits, strict=True)
        ):
            span = slice(index * views, (index + 1) * views)
            # Only the original view's vote enters the history: slope and consistency compare like with like.
            past = self.history.of(prompt.prompt_id).after(votes[span.start])
            groups.append(
                Group(
                    step,
                    prompt,
                    visit,
                    parts[span],
                    answers_by_part[span],
                    votes[span],
                    grading,
                    past,
                )
            )
        return groups

    def _decide(self, group: Group) -> Decision:
        """Decide the label of a visit, and the rewards of its rollouts with and without the verifier's errors (R25)."""
        label = self._label(group)
        rewards = oracle_rewards = [
            self._rewards(group, view, label) for view in range(len(group.votes))
        ]
        if self._verifier is not None and self._verifier.grades(label.source):
            rewards = [
                self._verifier.rewards(group, view, label, view_rewards)
                for view, view_rewards in enumerate(oracle_rewards)
            ]
        # A majority rewards its own class, so no verdict can be undecided; the sentinel has no verdicts.
        graded_labels = (
            label.answers if label.source in ("given", "noisy", "verified") else ()
        )
        undecided = sum(
            group.undecided(label_answer, view)
            for view, label_answer in enumerate(graded_labels)
            if label_answer
        )
        return Decision(group.record(label, rewards), rewards, oracle_rewards, undecided)

    def _label(self, group: Group) -> Label:
        """Return the label of a visit: the true answer on a verified prompt (R23), else what the method's rule says."""
        if group.prompt.is_verified:
            return Label((group.prompt.true_answer,) * len(group.votes), "verified")
        # A `Visit`, not the group: a rule that could see the true answer would cheat.
        visit = group.seen()
        if self.method.orders_rollouts:
            visit = visit._replace(first_majorities=group.first_majorities())
        return self.method.rule(visit)

    def _rewards(self, group: Group, view: int, label: Label) -> list[float]:
        """Return one reward per rollout of a view, before the errors of a verifier (R16).

        `view` is the index of a wording of the prompt. The first case that applies decides:

        - The method has an intrinsic reward, and the label is not verified: the intrinsic reward.
        - The label is a majority: 1 for the answers in the majority's class, and 0 for all others.
        - There is any other label: 1 for the answers that match it, and 0 for all others.
        - There is no label: 0.
        """
        answers, label_answer = group.answers[view], label.answers[view]
        # A verified label rewards under every method, even in place of an intrinsic reward (R23).
        if self.method.score is not None and label.source != "verified":
            return self.method.score.rewards(group.step, *group.parts[view])
        # By class, not by match: an answer `5` matches the majority `5 cm`, yet it voted against it (R16).
        if label.source == "majority" and label_answer is not None:
            keys = group.grading.keys
            return [
                float(answer is not None and keys[answer] == keys[label_answer])
                for answer in answers
            ]
        # Without a label no answer is right, so all rewards are 0 and the prompt teaches nothing.
        right_answers = group.right(label_answer)
        return [float(answer in right_answers) for answer in answers]


def _golds(prompt: Prompt, *labels: str | None) -> list[Gold]:
    """Return labels of a prompt as `Gold` objects, with which the judge compares answers.

    None and placeholders such as ``N/A`` are left out, because no answer matches them (R16).
    """
    return [
        prompt.asked(label)
        for label in labels
        if label is not None and not is_placeholder(label)
    ]


class Decision(NamedTuple):
    """The label and rewards of one group, as `Supervisor._decide` returns them."""

    label: LabelRecord
    """Its row of the labels table."""

    rewards: list[list[float]]
    """Rewards by view, with the verifier's errors."""

    oracle_rewards: list[list[float]]
    """Rewards by view, without the verifier's errors."""

    undecided: int
    """Number of rollouts that are proved neither right nor wrong."""


def _columns(step: Step, groups: Sequence[Group], decisions: Sequence[Decision]) -> Decided:
    """Collect the decisions about a step's groups in one `Decided`.

    Its label column ``trains`` is true for every prompt. If only some prompts train, the caller replaces this column.
    """
    answers, classes, is_correct = (
        list[str | None](),
        list[str | None](),
        list[bool | None](),
    )
    labels = [decision.label for decision in decisions]
    for group in groups:
        keys, true_answer = group.grading.keys, group.prompt.true_answer
        right_answers = group.right(true_answer)
        for view_answers, view_vote in zip(group.answers, group.votes, strict=True):
            answers += view_answers
            classes += [
                None if answer is None else view_vote.spelling[keys[answer]]
                for answer in view_answers
            ]
            # If nobody knows the true answer, an answer is unknown, not wrong.
            is_correct += [
                None if true_answer is None else answer in right_answers
                for answer in view_answers
            ]
    return Decided(
        step,
        {name: [*map(attrgetter(name), labels)] for name in LABEL_COLUMNS},
        answers,
        classes,
        is_correct,
        rewards=_in_a_row(decision.rewards for decision in decisions),
        oracle_rewards=_in_a_row(decision.oracle_rewards for decision in decisions),
        undecided=sum(decision.undecided for decision in decisions),
    )


def _in_a_row(groups: Iterable[Sequence[Sequence[float]]]) -> list[float]:
    """Flatten rewards, nested by group, view (wording) and rollout, into one list in this order."""
    return [*chain.from_iterable(chain.from_iterable(groups))]


def make_supervisor(
    recipe: Recipe, keep_fraction: Fraction, judge: Judge, history: History | None
) -> Supervisor:
    """Build the supervisor that a recipe describes.

    Args:
        recipe: the recipe of the run.
        keep_fraction: share of a step's prompts that train, if the method chooses among them.
        judge: decides which answers mean the same, and which match a label.
        history: the visits before this run was resumed; None for a new run.

    Raises:
        UserError: the recipe was read from a run and names a Python function, in ``method.name`` or ``verifier.where``.
            Its code may be a stranger's, so the user must set that key again.
    """
    # A stored recipe may name a stranger's code: refuse to run it unless the user has named it too.
    recipe.require_named("method.name", "verifier.where")
    return Supervisor(
        compose(recipe.method),
        judge,
        seed=recipe.seed,
        draw=noise_draw(recipe),
        extractor=recipe.data.extractor,
        keep_fraction=keep_fraction,
        history=history,
        verifier=None if recipe.verifier is None else Verifier(recipe),
    )
