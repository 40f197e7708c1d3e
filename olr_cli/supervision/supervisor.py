"""The one place where labels are decided: rollout groups in, rewards and records out (the seam).

    engine:  K rollouts per prompt ──► Supervisor.supervise(groups) ──► rewards, which prompts train ──► update
                                           │
                                           └─ answers → vote → history → criteria → effective label → records

Decisions are a function of the rollouts, the history and the seed alone: neither the order of the groups nor
that of the rollouts within a group matters, so both engines and a replay decide alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from olr_cli import seeding
from olr_cli.answers import AnswerClasses, Judge, Vote, default_extractor, extract, vote
from olr_cli.data.prompts import SENTINEL, Prompt
from olr_cli.recipe import NoiseDraw
from olr_cli.supervision.criteria import historical_majority, slope
from olr_cli.supervision.history import History, Visit
from olr_cli.supervision.methods import EffectiveLabel, Evidence, Method
from olr_cli.supervision.records import LabelRecord, LabelSource, RolloutRecord


@dataclass(frozen=True, slots=True)
class Rollout:
    """One sampled response, as an engine hands it over; statistics as in `RolloutRecord`."""

    response: str
    tokens: int | None = None
    truncated: bool | None = None
    view: str = "original"
    mean_logprob: float | None = None
    entropy: float | None = None
    self_certainty: float | None = None


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """All K rollouts of one visit of a prompt; `visit` and `step` count from 1."""

    prompt: Prompt
    visit: int
    step: int
    rollouts: tuple[Rollout, ...]


@dataclass(frozen=True, slots=True)
class SupervisedGroup:
    """What was decided for a group: its records, and what the update needs."""

    label: LabelRecord
    rollouts: tuple[RolloutRecord, ...]
    rewards: tuple[float, ...]
    trains: bool


class Supervisor:
    """Decides every label of a run, visit by visit.

    Args:
        method: how labels and rewards are made.
        judge: tells which answers mean the same.
        seed: of the noisy labels' draws (R3).
        draw: how an active noisy label is drawn from the wrong answers.
        extractor: name of the answer extractor; by default what each prompt's data source calls for (R6).
        history: earlier visits, when a run is resumed.
    """

    def __init__(
        self,
        method: Method,
        judge: Judge,
        *,
        seed: int,
        draw: NoiseDraw = "uniform",
        extractor: str | None = None,
        history: History | None = None,
    ) -> None:
        self.method = method
        self.judge = judge
        self.history = History() if history is None else history
        self._seed = seed
        self._draw = draw
        self._extractor = extractor

    def supervise(self, groups: Sequence[RolloutGroup]) -> list[SupervisedGroup]:
        """Decide the labels and rewards of one step's complete rollout groups; the history grows by them.

        Args:
            groups: at most one a prompt, in any order.

        Returns:
            One decision a group, in the order given.

        Raises:
            ValueError: a group repeats or skips a visit of its prompt; nothing is recorded then.
        """
        self._check_visits(groups)
        answers = [self._answers(group) for group in groups]
        majorities = [
            [visit.majority_answer for visit in self.history.of(g.prompt.prompt_id)] for g in groups
        ]
        strings = [
            {text for text in (*own, *earlier, *_label_texts(group.prompt)) if text is not None}
            for group, own, earlier in zip(groups, answers, majorities, strict=True)
        ]
        decided = []
        for group, own, classes in zip(groups, answers, self.judge.classify(strings), strict=True):
            supervised = self._decide(group, own, classes)
            label = supervised.label
            visit = Visit(label.majority_answer, label.majority_count, label.rollouts)
            self.history.add(group.prompt.prompt_id, group.visit, visit)
            decided.append(supervised)
        return decided

    def _check_visits(self, groups: Sequence[RolloutGroup]) -> None:
        if len({group.prompt.prompt_id for group in groups}) < len(groups):
            raise ValueError("a prompt comes twice in one step")
        for group in groups:
            due = len(self.history.of(group.prompt.prompt_id)) + 1
            if group.visit != due:
                raise ValueError(
                    f"prompt {group.prompt.prompt_id}: visit {group.visit} where visit {due} is due"
                )
            if not group.rollouts:
                raise ValueError(f"prompt {group.prompt.prompt_id}: visit {group.visit} has no rollouts")

    def _answers(self, group: RolloutGroup) -> list[str | None]:
        extractor = self._extractor or default_extractor(group.prompt.data_source)
        answers = (extract(_storable(rollout.response), extractor) for rollout in group.rollouts)
        # A policy that writes the sentinel itself has given no answer: the sentinel is never rewarded (R16).
        return [None if answer == SENTINEL else answer for answer in answers]

    def _decide(
        self, group: RolloutGroup, answers: Sequence[str | None], classes: AnswerClasses
    ) -> SupervisedGroup:
        prompt = group.prompt
        tally = vote(answers, classes)
        majority = None if tally.majority is None else tally.spelling[tally.majority]
        visits = (
            *self.history.of(prompt.prompt_id),
            Visit(majority, tally.majority_count, tally.rollouts),
        )
        trend = slope(visits)
        historical = _historical_majority(visits, tally, classes)
        noisy_label = self._noisy_label(group, tally, classes)
        label, source = _standing_label(prompt, noisy_label)
        is_consistent = majority is not None and historical is not None and classes.same(majority, historical)
        effective = self.method.label(Evidence(group.visit, majority, trend, is_consistent, label, source))
        hits = [_same(answer, effective.answer, classes) for answer in answers]
        rewards = self.method.reward(hits)
        record = LabelRecord(
            prompt_id=prompt.prompt_id,
            visit=group.visit,
            step=group.step,
            noise_type=prompt.noise_type,
            true_answer=prompt.true_answer,
            given_label=prompt.given_label,
            noisy_label=noisy_label,
            noisy_label_count=_count(noisy_label, tally, classes),
            true_answer_count=_count(prompt.true_answer, tally, classes),
            given_label_count=_count(prompt.given_label, tally, classes),
            majority_answer=majority,
            majority_count=tally.majority_count,
            rollouts=tally.rollouts,
            answered=tally.answered,
            pass_rate=tally.majority_count / tally.rollouts,
            slope=float(trend),
            historical_majority=historical,
            is_consistent=is_consistent,
            is_selected=effective.is_selected,
            effective_label=effective.answer,
            label_source=effective.source,
            majority_is_correct=_known_same(majority, prompt.true_answer, classes),
            majority_is_noisy_label=_same(majority, noisy_label, classes) if prompt.is_marked else None,
            effective_label_is_correct=_label_is_correct(effective, prompt, classes),
            reward_mean=sum(rewards) / len(rewards),
            has_zero_variance=len(set(rewards)) == 1,
            trains=True,
        )
        rollouts = tuple(
            _rollout_record(group, sample, answer, reward, tally, classes)
            for sample, (answer, reward) in enumerate(zip(answers, rewards, strict=True))
        )
        return SupervisedGroup(record, rollouts, rewards, trains=record.trains)

    def _noisy_label(self, group: RolloutGroup, tally: Vote, classes: AnswerClasses) -> str | None:
        """This visit's wrong label on a marked prompt (R2 to R4); None on the others."""
        prompt = group.prompt
        if not prompt.is_marked:
            return None
        if prompt.noise_type != "active":
            return prompt.given_label
        if prompt.true_answer is None:
            return SENTINEL
        wrong = sorted(
            (tally.spelling[c], count)
            for c, count in tally.counts.items()
            if classes.proved_different(tally.spelling[c], prompt.true_answer)
        )
        if not wrong:
            return SENTINEL
        u = seeding.uniform("noisy label", self._seed, prompt.prompt_id, group.visit)
        return _draw(wrong, self._draw, u)


def _draw(wrong: Sequence[tuple[str, int]], draw: NoiseDraw, u: float) -> str:
    """One of the wrong classes (spelling, count), sorted by spelling, at the uniform number `u` in [0, 1)."""
    if draw == "most_frequent":
        return min(wrong, key=lambda item: (-item[1], item[0]))[0]
    weights = [count if draw == "frequency" else 1 for _, count in wrong]
    target = u * sum(weights)
    for (spelling, _), weight in zip(wrong, weights, strict=True):
        target -= weight
        if target < 0:
            return spelling
    return wrong[-1][0]


def _historical_majority(visits: Sequence[Visit], tally: Vote, classes: AnswerClasses) -> str | None:
    """The historical majority (R13), shown as this visit spells it, else in its most frequent spelling."""
    answers = [visit.majority_answer for visit in visits]
    winner = historical_majority([None if a is None else classes.class_of(a) for a in answers])
    if winner is None:
        return None
    if winner in tally.spelling:
        return tally.spelling[winner]
    spellings = [a for a in answers if a is not None and classes.class_of(a) == winner]
    return min(spellings, key=lambda a: (-spellings.count(a), a))


def _standing_label(prompt: Prompt, noisy_label: str | None) -> tuple[str | None, LabelSource]:
    """The label that counts unless the method replaces it (R15)."""
    label = noisy_label if prompt.is_marked else prompt.given_label
    if label is None:
        return None, "none"
    if label == SENTINEL:
        return label, "sentinel"
    return label, "noisy" if prompt.is_marked else "given"


def _rollout_record(
    group: RolloutGroup, sample: int, answer: str | None, reward: float, tally: Vote, classes: AnswerClasses
) -> RolloutRecord:
    rollout = group.rollouts[sample]
    return RolloutRecord(
        prompt_id=group.prompt.prompt_id,
        visit=group.visit,
        step=group.step,
        sample=sample,
        view=rollout.view,
        response=_storable(rollout.response),
        answer=answer,
        answer_class=None if answer is None else tally.spelling[classes.class_of(answer)],
        reward=reward,
        is_correct=_known_same(answer, group.prompt.true_answer, classes),
        tokens=rollout.tokens,
        truncated=rollout.truncated,
        mean_logprob=rollout.mean_logprob,
        entropy=rollout.entropy,
        self_certainty=rollout.self_certainty,
    )


def _label_texts(prompt: Prompt) -> tuple[str | None, ...]:
    return tuple(None if text == SENTINEL else text for text in (prompt.given_label, prompt.true_answer))


def _same(answer: str | None, label: str | None, classes: AnswerClasses) -> bool:
    """Whether an answer is in the label's class; never for a missing answer or label or the sentinel (R16)."""
    if answer is None or label is None or SENTINEL in (answer, label):
        return False
    return classes.same(answer, label)


def _known_same(answer: str | None, truth: str | None, classes: AnswerClasses) -> bool | None:
    return None if truth is None else _same(answer, truth, classes)


def _label_is_correct(effective: EffectiveLabel, prompt: Prompt, classes: AnswerClasses) -> bool | None:
    if effective.answer is None:
        return None
    if effective.answer == SENTINEL:
        return False  # right of no prompt, whatever its true answer (R2)
    return _known_same(effective.answer, prompt.true_answer, classes)


def _count(label: str | None, tally: Vote, classes: AnswerClasses) -> int | None:
    """Rollouts in a label's class; None without a label, 0 for the sentinel."""
    if label is None:
        return None
    return 0 if label == SENTINEL else tally.counts.get(classes.class_of(label), 0)


def _storable(text: str) -> str:
    """`text` as UTF-8 can hold it: what is decided and what is stored must be the same text."""
    return text.encode("utf-8", "replace").decode("utf-8")
