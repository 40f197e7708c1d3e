"""The one place where labels are decided: rollout groups in, rewards and records out (the seam).

    engine:  K rollouts per prompt ──► Supervisor.supervise(groups) ──► rewards, which prompts train ──► update
                                           │
                                           └─ answers → vote → history → criteria → effective label → records

Decisions are a function of the rollouts, the history and the seed alone, so both engines and a replay decide alike.
The order of the groups does not matter, and that of the rollouts within a group only where TTRL and Co-Reward break a
tie.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from itertools import groupby
from typing import TypeAlias

from olr_cli import seeding
from olr_cli.answers import (
    Judge,
    Key,
    Pair,
    Vote,
    default_extractor,
    extract,
    first_majority,
    is_read,
    vote,
)
from olr_cli.data.prompts import SENTINEL, Prompt, View
from olr_cli.data.sets import noise_draw
from olr_cli.recipe.schema import NoiseDraw, Recipe
from olr_cli.supervision.history import History, Past, Visit
from olr_cli.supervision.methods import EffectiveLabel, Evidence, Method, compose, given_label
from olr_cli.supervision.rewards import group_advantages, verifier_reward
from olr_cli.supervision.selection import Candidate, keep_fraction, prompts_that_train
from olr_cli.supervision.self_training import Calibration, Counts, Outcome, calibrate
from olr_cli.supervision.types import LabelRecord, LabelSource, Rollout, RolloutGroup, RolloutRecord

Measure: TypeAlias = Callable[[str], AbstractContextManager[object]]
"""Counts the time of a block as a part of the step."""


@dataclass(frozen=True, slots=True)
class SupervisedGroup:
    """What was decided for a group: its records, and the advantage of each rollout within its view (Eq. 1)."""

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


class Supervisor:
    """Decides every label of a run, visit by visit.

    Args:
        method: how labels and rewards are made.
        judge: decides which answers mean the same.
        seed: of the draws of noisy labels (R3) and of the prompts that train.
        draw: how an active noisy label is drawn from the wrong answers.
        extractor: name of the answer extractor; by default what each prompt's data source calls for (R6).
        keep_fraction: share of a step's prompts that train, if the method chooses among them.
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
        keep_fraction: Fraction = Fraction(1),
        history: History | None = None,
    ) -> None:
        self.method = method
        self.judge = judge
        self.history = History() if history is None else history
        self._seed = seed
        self._draw = draw
        self._extractor = extractor
        self._keep_fraction = keep_fraction

    def supervise(
        self, groups: Sequence[RolloutGroup], measure: Measure = nullcontext
    ) -> list[SupervisedGroup]:
        """Decide the labels and rewards of one step's complete rollout groups; the history grows by them.

        Args:
            groups: at most one a prompt, in any order.
            measure: times two parts: ``verification`` (which answers there are, and which mean the same) and
                ``labels`` (vote, history, criteria, decision, rewards and records).

        Returns:
            One decision a group, in the order given.

        Raises:
            ValueError: a group repeats or skips a visit of its prompt (nothing is recorded then), lacks a view, or
                lacks a statistic that the method's rewards or choice of prompts need.
        """
        self._check_visits(groups)
        with measure("verification"):
            answers = [self._answers(group) for group in groups]
            verified = self._verified(groups, answers)
        with measure("labels"):
            ballots = [
                {view: _Ballot.of(group, view, texts, verified.keys) for view in self.method.views}
                for group, texts in zip(groups, answers, strict=True)
            ]
            noisy_labels = [
                self._noisy_label(group, views["original"].tally, verified)
                for group, views in zip(groups, ballots, strict=True)
            ]
        with measure("verification"):
            drawn = zip(noisy_labels, answers, strict=True)
            verified.add(self.judge, (pair for label, texts in drawn for pair in _pairs(label, texts)))
        with measure("labels"):
            decided: dict[int, SupervisedGroup] = {}
            # Verified prompts first: what their visits show says how far to trust the others' votes.
            places = sorted(range(len(groups)), key=lambda place: not groups[place].prompt.is_trusted)
            for is_trusted, part in groupby(places, key=lambda place: groups[place].prompt.is_trusted):
                calibration = None if is_trusted else self._calibration()
                for place in part:
                    group, views, noisy_label = groups[place], ballots[place], noisy_labels[place]
                    tally = views["original"].tally
                    visit = Visit(tally.majority, tally.majority_answer, tally.majority_count, tally.rollouts)
                    decided[place] = self._decide(group, views, visit, noisy_label, verified, calibration)
                    self.history.add(group.prompt.prompt_id, group.visit, visit)
                    if is_trusted:
                        is_right = verified.matches(group.prompt.true_answer, group.prompt.given_label)
                        outcome = Outcome.of_row(asdict(decided[place].label), given_is_right=is_right)
                        self.history.verified[group.prompt.prompt_id] = outcome
            return self._choose(groups, [decided[place] for place in range(len(groups))])

    def expect(self, prompts: Sequence[Prompt]) -> None:
        """Let the verifier start beside whatever comes next, if the labels of these prompts say that it is needed."""
        texts = (text for prompt in prompts for text in (prompt.given_label, prompt.true_answer))
        self.judge.expect(text for text in texts if text not in (None, SENTINEL))

    def read_ahead(self, groups: Sequence[RolloutGroup]) -> None:
        """Verify the answers of groups that `supervise` will get next, which then finds it done.

        Takes the responses alone, and records nothing: it can run in another thread while the groups' statistics are
        still being made.
        """
        self._verified(groups, [self._answers(group) for group in groups])

    def _calibration(self) -> Calibration | None:
        """What the verified prompts' latest visits say, where the method asks; the same after a resume to the bit."""
        if not self.method.calibrates:
            return None
        return calibrate(outcome for _, outcome in sorted(self.history.verified.items()))

    def _check_visits(self, groups: Sequence[RolloutGroup]) -> None:
        if len({group.prompt.prompt_id for group in groups}) < len(groups):
            raise ValueError("a prompt comes twice in one step")
        for group in groups:
            due = self.history.of(group.prompt.prompt_id).visits + 1
            if group.visit != due:
                raise ValueError(
                    f"prompt {group.prompt.prompt_id}: visit {group.visit} where visit {due} is due"
                )
            views = [view for view, _ in groupby(rollout.view for rollout in group.rollouts)]
            if views != list(self.method.views):
                raise ValueError(
                    f"prompt {group.prompt.prompt_id}: visit {group.visit} has rollouts of the views"
                    f" {views or 'none'}, and {self.method.name} takes {list(self.method.views)}"
                )

    def _answers(self, group: RolloutGroup) -> list[str | None]:
        answers: Iterable[str | None] | None = group.answers
        if answers is None:
            extractor = self._extractor or default_extractor(group.prompt.data_source)
            answers = (extract(_storable(rollout.response), extractor) for rollout in group.rollouts)
        # A policy that writes the sentinel itself has given no answer: the sentinel is never rewarded (R16).
        return [None if answer == SENTINEL else answer for answer in answers]

    def _verified(self, groups: Sequence[RolloutGroup], answers: Sequence[Sequence[str | None]]) -> _Verified:
        """The class of every answer, and whether it matches the label and the truth that its prompt has (R7)."""
        verified = _Verified(self.judge.keys(text for texts in answers for text in texts if text is not None))
        pairs: list[Pair] = []
        for group, texts in zip(groups, answers, strict=True):
            given, true = group.prompt.given_label, group.prompt.true_answer
            pairs += [*_pairs(true, [*texts, given]), *_pairs(given, texts)]
        verified.add(self.judge, pairs)
        return verified

    def _choose(
        self, groups: Sequence[RolloutGroup], decided: list[SupervisedGroup]
    ) -> list[SupervisedGroup]:
        """The same decisions, with the prompts that don't train marked."""
        if self.method.rank is None:
            return decided
        step = [Candidate(group, one.advantages) for group, one in zip(groups, decided, strict=True)]
        chosen = prompts_that_train(step, self.method.rank, self._keep_fraction, self._seed)
        return [
            one if trains else replace(one, label=replace(one.label, trains=False))
            for one, trains in zip(decided, chosen, strict=True)
        ]

    def _decide(
        self,
        group: RolloutGroup,
        ballots: Mapping[View, _Ballot],
        visit: Visit,
        noisy_label: str | None,
        verified: _Verified,
        calibration: Calibration | None,
    ) -> SupervisedGroup:
        prompt, tally = group.prompt, ballots["original"].tally
        majority = tally.majority_answer
        past = self.history.of(prompt.prompt_id).after(visit)
        slope, historical = past.slope, past.historical_majority
        label, source = _standing_label(prompt, noisy_label)
        is_consistent = tally.majority is not None and tally.majority == historical
        answers = ballots["original"].answers
        noisy_count, given_count = (
            verified.count(text, answers) for text in (noisy_label, prompt.given_label)
        )
        label_count = (noisy_count if prompt.is_marked else given_count) or 0
        counts = Counts(tally.majority_count, label_count, tally.rollouts, is_consistent)
        evidence = Evidence(group.visit, majority, slope, is_consistent, label, source, counts, calibration)
        labels = (
            dict.fromkeys(ballots, given_label(evidence))
            if prompt.is_trusted
            else self._labels(evidence, ballots)
        )
        effective = labels["original"]
        rewards = {view: self._rewards(ballot, labels[view], verified) for view, ballot in ballots.items()}
        rollouts = tuple(
            _rollout_record(group, ballot.place.start + number, answer, reward, ballot.tally, verified)
            for view, ballot in ballots.items()
            for number, (answer, reward) in enumerate(zip(ballot.answers, rewards[view], strict=True))
        )
        record = LabelRecord(
            prompt_id=prompt.prompt_id,
            visit=group.visit,
            step=group.step,
            noise_type=prompt.noise_type,
            true_answer=prompt.true_answer,
            given_label=prompt.given_label,
            noisy_label=noisy_label,
            noisy_label_count=noisy_count,
            true_answer_count=verified.count(prompt.true_answer, answers),
            given_label_count=given_count,
            majority_answer=majority,
            majority_count=tally.majority_count,
            rollouts=tally.rollouts,
            answered=tally.answered,
            pass_rate=tally.majority_count / tally.rollouts,
            slope=float(slope),
            historical_majority=_spelling(historical, past, tally),
            is_consistent=is_consistent,
            is_selected=effective.is_selected,
            effective_label=effective.answer,
            label_source=effective.source,
            majority_is_correct=verified.is_correct(majority, prompt),
            majority_is_noisy_label=verified.matches(noisy_label, majority) if prompt.is_marked else None,
            effective_label_is_correct=_label_is_correct(effective, prompt, verified),
            reward_mean=sum(rollout.reward for rollout in rollouts) / len(rollouts),
            has_zero_variance=all(len(set(of_view)) == 1 for of_view in rewards.values()),
            trains=effective.teaches,
        )
        advantages = tuple(value for of_view in rewards.values() for value in group_advantages(of_view))
        return SupervisedGroup(record, rollouts, advantages)

    def _labels(self, evidence: Evidence, ballots: Mapping[View, _Ballot]) -> dict[View, EffectiveLabel]:
        """The effective label of each view."""
        labels = {}
        for view, ballot in ballots.items():
            others = [other.first_majority for name, other in ballots.items() if name != view]
            other = others[0] if others else None
            seen = replace(evidence, first_majority=ballot.first_majority, other_view=other)
            labels[view] = self.method.label(seen)
        return labels

    def _rewards(self, ballot: _Ballot, label: EffectiveLabel, verified: _Verified) -> tuple[float, ...]:
        """A majority rewards its class, another label whatever matches it (R16); a trusted one in every method."""
        if label.source == "majority" and label.answer is not None:
            majority = verified.keys[label.answer]
            hits = [answer is not None and verified.keys[answer] == majority for answer in ballot.answers]
        else:
            hits = [verified.matches(label.answer, answer) for answer in ballot.answers]
        reward = verifier_reward if label.source == "trusted" else self.method.reward
        return reward(hits, ballot.rollouts)

    def _noisy_label(self, group: RolloutGroup, tally: Vote, verified: _Verified) -> str | None:
        """This visit's wrong label on a marked prompt (R2 to R4); None on the others."""
        prompt = group.prompt
        if not prompt.is_marked:
            return None
        if prompt.noise_type != "active":
            return prompt.given_label
        if prompt.true_answer is None:
            return SENTINEL
        wrong = sorted(
            (tally.spelling[key], count)
            for key, count in tally.counts.items()
            if is_read(key) and verified.verdicts.get((prompt.true_answer, tally.spelling[key])) is False
        )
        if not wrong:
            return SENTINEL
        u = seeding.uniform("noisy label", self._seed, prompt.prompt_id, group.visit)
        return draw_wrong_answer(wrong, self._draw, u)


def make_supervisor(
    recipe: Recipe, prompts: Collection[Prompt], judge: Judge, history: History | None
) -> Supervisor:
    """The supervisor that a recipe asks for on these prompts, with the history of the visits so far."""
    return Supervisor(
        compose(recipe.method),
        judge,
        seed=recipe.seed,
        draw=noise_draw(recipe),
        extractor=recipe.data.extractor,
        keep_fraction=keep_fraction(recipe.method, prompts),
        history=history,
    )


class _Verified:
    """What the judge said about one step: the class of each answer, and verdicts.

    A verdict says whether the second text of a pair matches the first, a label or truth; None where it is not proved.
    """

    def __init__(self, keys: Mapping[str, Key]) -> None:
        self.keys = keys
        self.verdicts: dict[Pair, bool | None] = {}

    def add(self, judge: Judge, pairs: Iterable[Pair]) -> None:
        """Ask for verdicts that are not there yet."""
        self.verdicts |= judge.matches(pair for pair in pairs if pair not in self.verdicts)

    def matches(self, label: str | None, answer: str | None) -> bool:
        """Whether an answer matches a label; never if either is missing or the sentinel (R16)."""
        return label is not None and answer is not None and self.verdicts.get((label, answer)) is True

    def is_correct(self, answer: str | None, prompt: Prompt) -> bool | None:
        """Whether an answer is right; None where the true answer is unknown."""
        return None if prompt.true_answer is None else self.matches(prompt.true_answer, answer)

    def count(self, label: str | None, answers: Iterable[str | None]) -> int | None:
        """How many answers match a label; None without a label, 0 for the sentinel."""
        return None if label is None else sum(self.matches(label, answer) for answer in answers)


def _pairs(label: str | None, answers: Iterable[str | None]) -> Iterator[Pair]:
    """A label with every answer that can be compared with it."""
    if label is None or label == SENTINEL:
        return
    for answer in dict.fromkeys(answers):
        if answer is not None and answer != SENTINEL:
            yield label, answer


@dataclass(frozen=True, slots=True)
class _Ballot:
    """The rollouts of one view of a prompt, and how they voted."""

    place: slice
    rollouts: tuple[Rollout, ...]
    answers: Sequence[str | None]
    tally: Vote
    first_majority: str | None

    @classmethod
    def of(
        cls, group: RolloutGroup, view: View, answers: Sequence[str | None], keys: Mapping[str, Key]
    ) -> _Ballot:
        place = group.of(view)
        texts = answers[place]
        tally = vote(texts, keys)
        first = first_majority(texts, tally, keys)
        return cls(
            place, group.rollouts[place], texts, tally, None if first is None else tally.spelling[first]
        )


def draw_wrong_answer(wrong: Sequence[tuple[str, int]], draw: NoiseDraw, u: float) -> str:
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


def _spelling(historical: Key | None, past: Past, tally: Vote) -> str | None:
    """The historical majority (R13), shown as this visit spells it, else in its most frequent spelling."""
    if historical is None:
        return None
    if historical in tally.spelling:
        return tally.spelling[historical]
    spellings = past.majorities[historical]
    return min(spellings, key=lambda answer: (-spellings[answer], answer))


def _standing_label(prompt: Prompt, noisy_label: str | None) -> tuple[str | None, LabelSource]:
    """The label that counts unless the method replaces it (R15), as it never does a trusted one."""
    if prompt.is_trusted:
        return prompt.true_answer, "trusted"
    label = noisy_label if prompt.is_marked else prompt.given_label
    if label is None:
        return None, "none"
    if label == SENTINEL:
        return label, "sentinel"
    return label, "noisy" if prompt.is_marked else "given"


def _rollout_record(
    group: RolloutGroup, place: int, answer: str | None, reward: float, tally: Vote, verified: _Verified
) -> RolloutRecord:
    rollout = group.rollouts[place]
    return RolloutRecord(
        prompt_id=group.prompt.prompt_id,
        visit=group.visit,
        step=group.step,
        sample=place,
        view=rollout.view,
        response=_storable(rollout.response),
        answer=answer,
        answer_class=None if answer is None else tally.spelling[verified.keys[answer]],
        reward=reward,
        is_correct=verified.is_correct(answer, group.prompt),
        tokens=rollout.tokens,
        truncated=rollout.truncated,
        mean_logprob=rollout.mean_logprob,
        entropy=rollout.entropy,
        self_certainty=rollout.self_certainty,
    )


def _label_is_correct(effective: EffectiveLabel, prompt: Prompt, verified: _Verified) -> bool | None:
    if effective.answer is None:
        return None
    if effective.answer == SENTINEL:
        return False  # right of no prompt, whatever its true answer (R2)
    return verified.is_correct(effective.answer, prompt)


def _storable(text: str) -> str:
    """`text` as UTF-8 can hold it: what is decided and what is stored must be the same text."""
    return text.encode("utf-8", "replace").decode("utf-8")
