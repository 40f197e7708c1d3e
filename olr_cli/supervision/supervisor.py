"""The one place where labels are decided: a step's rollouts in, rewards and records out (the seam).

    engine:  K rollouts per prompt ──► Supervisor.supervise(step) ──► rewards, which prompts train ──► update
                                           │
                                           └─ answers → vote → history → criteria → effective label → records

Decisions are a function of the rollouts, the history and the seed alone, so both engines and a replay decide alike.
The order of the groups does not matter, and that of the rollouts within a group only where TTRL and Co-Reward break a
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
"""Counts the time of a block as a part of the step."""


class Supervisor:
    """Decides every label of a run, visit by visit.

    Args:
        method: how labels and rewards are made.
        judge: decides which answers mean the same.
        seed: of the draws of noisy labels (R3) and of the prompts that train.
        draw: how an active noisy label is drawn from the wrong answers.
        extractor: name of the answer extractor; by default that of each prompt's data source (R6).
        keep_fraction: share of a step's prompts that train, if the method chooses among them.
        history: earlier visits, when a run is resumed.
        verifier: what its errors make of rewards (R25); None: it makes none.
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
        self._timeouts_ahead = 0  # of the step that `read_ahead` has verified

    def supervise(self, step: Step, measure: Measure = nullcontext) -> Decided:
        """Decide the labels and rewards of one step; the history grows by it.

        Args:
            step: its complete rollout groups, in any order.
            measure: times two parts: ``verification`` (which answers there are, and which mean the same) and
                ``labels`` (vote, history, criteria, decision and rewards).

        Raises:
            ValueError: a group repeats or skips a visit of its prompt, lacks a view, or lacks a statistic that the
                method's rewards or choice of prompts need. Nothing is recorded then.
        """
        self._check(step)
        timeouts_before = self.judge.timeouts - self._timeouts_ahead
        with measure("verification"):
            answers = self._answers(step)
            grading = self._grading(step, answers)
        with measure("labels"):
            groups = self._groups(step, answers, grading)
            for group in groups:
                group.noisy_label = noisy_label(group, self._draw, self._seed)
        with measure("verification"):
            grading.ask(_golds(group.prompt, group.noisy_label) for group in groups)
        with measure("labels"):
            decided = _columns(step, groups, [self._decide(group) for group in groups])
            if self._verifier is None:
                decided = replace(decided, oracle_rewards=None)
            if self.method.rank is not None:
                trains = prompts_that_train(
                    decided, self.method.rank, self._keep_fraction, self._seed
                )
                decided = replace(decided, labels={**decided.labels, "trains": trains})
            # Last, when nothing can fail any more: visits were once added group by group, and if a later group lacked a
            # statistic, the retry of the step began at visit 2.
            self.history.extend({group.prompt.prompt_id: group.past for group in groups})
        self._timeouts_ahead = 0
        return replace(decided, timeouts=self.judge.timeouts - timeouts_before)

    def expect(self, prompts: Sequence[Prompt]) -> None:
        """Start the verifier in the background, if the labels of these prompts show that it is needed."""
        texts = (
            text for prompt in prompts for text in (prompt.given_label, prompt.true_answer)
        )
        self.judge.expect(text for text in texts if text not in (None, SENTINEL))

    def read_ahead(self, step: Step) -> None:
        """Verify the answers of a step that `supervise` will get next, which then finds it done.

        Reads the responses alone, and records nothing but its timeouts: it can run in another thread while the step's
        statistics are still being computed.
        """
        timeouts_before = self.judge.timeouts
        self._grading(step, self._answers(step))
        self._timeouts_ahead += self.judge.timeouts - timeouts_before

    def _check(self, step: Step) -> None:
        if len({prompt.prompt_id for prompt in step.prompts}) < len(step.prompts):
            raise ValueError("a prompt comes twice in one step")
        # Visits first: a step that is handed over twice is no fault of its views.
        for prompt, visit in zip(step.prompts, step.visits, strict=True):
            due = self.history.of(prompt.prompt_id).visits + 1
            if visit != due:
                raise ValueError(
                    f"prompt {prompt.prompt_id}: visit {visit} where visit {due} is due"
                )
        views = list(self.method.views)
        for prompt, visit, (start, end) in zip(
            step.prompts, step.visits, pairwise(step.starts), strict=True
        ):
            there = [view for view, _ in groupby(step.views[start:end])]
            if there != views:
                raise ValueError(
                    f"prompt {prompt.prompt_id}: visit {visit} has rollouts of the views"
                    f" {there or 'none'}, and {self.method.name} takes {views}"
                )

    def _answers(self, step: Step) -> list[str | None]:
        if step.answers is not None:
            return [None if answer == SENTINEL else answer for answer in step.answers]
        answers: list[str | None] = []
        for prompt, (start, end) in zip(step.prompts, pairwise(step.starts), strict=True):
            extractor = self._extractor or default_extractor(prompt.data_source)
            opened = ending(prompt.messages)  # it may end inside the thinking
            answers += [
                read_answer(response, extractor, opened)
                for response in step.responses[start:end]
            ]
        return answers

    def _grading(self, step: Step, answers: Sequence[str | None]) -> Grading:
        """The class of every answer, and whether it matches the label and the truth that its prompt has (R7)."""
        grading = Grading(
            [answers[start:end] for start, end in pairwise(step.starts)], self.judge
        )
        grading.ask(
            _golds(prompt, prompt.true_answer, prompt.given_label)
            for prompt in step.prompts
        )
        # A given label needs a verdict also where no rollout gives it: `effective_label_is_correct` asks for it.
        grading.ask_pairs({
            (true, prompt.given_label): None
            for prompt in step.prompts
            for true in _golds(prompt, prompt.true_answer)
            if prompt.given_label not in (None, SENTINEL)
        })  # fmt: skip
        return grading

    def _groups(
        self, step: Step, answers: Sequence[str | None], grading: Grading
    ) -> list[Group]:
        """The step's groups with their votes; each past includes this visit."""
        parts, views = list(pairwise(step.parts)), len(self.method.views)
        texts = [answers[start:end] for start, end in parts]
        votes = [vote(text, grading.keys) for text in texts]
        groups = []
        for place, (prompt, visit) in enumerate(
            zip(step.prompts, step.visits, strict=True)
        ):
            here = slice(place * views, (place + 1) * views)
            # The original view votes in the history; a rephrased one only at its visit.
            past = self.history.of(prompt.prompt_id).after(votes[here.start])
            groups.append(
                Group(
                    step,
                    prompt,
                    visit,
                    parts[here],
                    texts[here],
                    votes[here],
                    grading,
                    past,
                )
            )
        return groups

    def _decide(self, group: Group) -> Decision:
        """The label of a visit, and the rewards of its rollouts before and after the verifier's errors (R25)."""
        label = self._label(group)
        # What a verifier without errors gives, and what one with errors makes of it.
        rewards = oracle = [
            self._rewards(group, view, label) for view in range(len(group.votes))
        ]
        if self._verifier is not None and self._verifier.grades(label.source):
            rewards = [
                self._verifier.rewards(group, view, label, due)
                for view, due in enumerate(oracle)
            ]
        # A majority rewards its class, so that no verdict is open.
        asked = label.answers if label.source in ("given", "noisy", "verified") else ()
        undecided = sum(
            group.undecided(answer, view) for view, answer in enumerate(asked) if answer
        )
        return Decision(group.record(label, rewards), rewards, oracle, undecided)

    def _label(self, group: Group) -> Label:
        """The label that counts: in every method the verified one (R23), else that of the rule."""
        if group.prompt.is_verified:
            return Label((group.prompt.true_answer,) * len(group.votes), "verified")
        # Only what does not depend on the true answer.
        visit = group.seen()
        if self.method.orders_rollouts:
            visit = visit._replace(first_majorities=group.first_majorities())
        return self.method.rule(visit)

    def _rewards(self, group: Group, view: int, label: Label) -> list[float]:
        """Return the rewards of one view: a majority rewards its class, another label whatever matches it (R16)."""
        answers, answer = group.answers[view], label.answers[view]
        # A verified label rewards in every method (R23).
        if self.method.score is not None and label.source != "verified":
            return self.method.score.rewards(group.step, *group.parts[view])
        # By class, not by match: `5` matches a majority of `5 cm`, although it voted against it.
        if label.source == "majority" and answer is not None:
            keys = group.grading.keys
            return [
                float(said is not None and keys[said] == keys[answer]) for said in answers
            ]
        # Without a label nothing is right: the prompt teaches nothing at this visit.
        right = group.right(answer)
        return [float(said in right) for said in answers]


def _golds(prompt: Prompt, *labels: str | None) -> list[Gold]:
    """The labels of a prompt that an answer can match, as its question asks for them: no placeholders (R16)."""
    return [
        prompt.asked(label)
        for label in labels
        if label is not None and not is_placeholder(label)
    ]


class Decision(NamedTuple):
    """What was decided about a group.

    Attributes:
        rewards: of each view, with the verifier's errors.
        oracle_rewards: of each view, without them.
        undecided: rollouts that are proved neither right nor wrong.
    """

    label: LabelRecord
    rewards: list[list[float]]
    oracle_rewards: list[list[float]]
    undecided: int


def _columns(step: Step, groups: Sequence[Group], decisions: Sequence[Decision]) -> Decided:
    """The decisions about a step in columns; all prompts train."""
    answers, classes, is_correct = (
        list[str | None](),
        list[str | None](),
        list[bool | None](),
    )
    labels = [one.label for one in decisions]
    for group in groups:
        keys, true = group.grading.keys, group.prompt.true_answer
        right = group.right(true)
        for texts, tally in zip(group.answers, group.votes, strict=True):
            answers += texts
            classes += [
                None if text is None else tally.spelling[keys[text]] for text in texts
            ]
            # Unknown, not wrong, where nobody knows the true answer.
            is_correct += [None if true is None else text in right for text in texts]
    return Decided(
        step,
        {name: [*map(attrgetter(name), labels)] for name in LABEL_COLUMNS},
        answers,
        classes,
        is_correct,
        rewards=_in_a_row(one.rewards for one in decisions),
        oracle_rewards=_in_a_row(one.oracle_rewards for one in decisions),
        undecided=sum(one.undecided for one in decisions),
    )


def _in_a_row(groups: Iterable[Sequence[Sequence[float]]]) -> list[float]:
    """Return the rewards of all groups, view by view, as a column."""
    return [*chain.from_iterable(chain.from_iterable(groups))]


def make_supervisor(
    recipe: Recipe, keep_fraction: Fraction, judge: Judge, history: History | None
) -> Supervisor:
    """The supervisor that a recipe asks for, with the history of the visits so far."""
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
