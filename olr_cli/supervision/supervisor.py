"""The one place where labels are decided: a step's rollouts in, rewards and records out (the seam).

    engine:  K rollouts per prompt ──► Supervisor.supervise(step) ──► rewards, which prompts train ──► update
                                           │
                                           └─ answers → vote → history → criteria → effective label → records

Decisions are a function of the rollouts, the history and the seed alone, so both engines and a replay decide alike.
The order of the groups does not matter, and that of the rollouts within a group only where TTRL and Co-Reward break a
tie.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from fractions import Fraction
from itertools import chain, groupby, pairwise
from typing import Any, TypeAlias, assert_never

from olr_cli import seeding
from olr_cli.answers import Judge, Key, Pair, Vote, default_extractor, extract, first_majority, is_read, vote
from olr_cli.data.prompts import SENTINEL, Prompt
from olr_cli.data.sets import noise_draw
from olr_cli.recipe.schema import NoiseDraw, Recipe
from olr_cli.supervision.history import History, Past
from olr_cli.supervision.methods import Method, compose
from olr_cli.supervision.selection import prompts_that_train
from olr_cli.supervision.types import LABEL_COLUMNS, Decided, LabelSource, Step
from olr_cli.supervision.verifier import Graded, Verifier
from olr_cli.supervision.visit import Label, Visit

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
            verdicts = self._verdicts(step, answers)
        with measure("labels"):
            texts = [answers[start:end] for start, end in pairwise(step.parts)]
            votes = [vote(text, verdicts.keys) for text in texts]
            tallies = votes[:: len(self.method.views)]
            noisy_labels = [
                self._noisy_label(prompt, visit, tally, verdicts)
                for prompt, visit, tally in zip(step.prompts, step.visits, tallies, strict=True)
            ]
        with measure("verification"):
            verdicts.compare(self.judge, step.prompts, noisy_labels)
        with measure("labels"):
            pasts = {
                prompt.prompt_id: self.history.of(prompt.prompt_id).after(tally)
                for prompt, tally in zip(step.prompts, tallies, strict=True)
            }
            decided = self._decide(step, texts, votes, noisy_labels, [*pasts.values()], verdicts)
            if self.method.rank is not None:
                trains = prompts_that_train(decided, self.method.rank, self._keep_fraction, self._seed)
                decided = replace(decided, labels={**decided.labels, "trains": trains})
            # Last, when nothing can fail any more: visits were once added group by group, and if a later group lacked a
            # statistic, the retry of the step began at visit 2.
            self.history.extend(pasts)
        self._timeouts_ahead = 0
        return replace(decided, timeouts=self.judge.timeouts - timeouts_before)

    def expect(self, prompts: Sequence[Prompt]) -> None:
        """Start the verifier in the background, if the labels of these prompts show that it is needed."""
        texts = (text for prompt in prompts for text in (prompt.given_label, prompt.true_answer))
        self.judge.expect(text for text in texts if text not in (None, SENTINEL))

    def read_ahead(self, step: Step) -> None:
        """Verify the answers of a step that `supervise` will get next, which then finds it done.

        Reads the responses alone, and records nothing but its timeouts: it can run in another thread while the step's
        statistics are still being computed.
        """
        timeouts_before = self.judge.timeouts
        self._verdicts(step, self._answers(step))
        self._timeouts_ahead += self.judge.timeouts - timeouts_before

    def _check(self, step: Step) -> None:
        if len({prompt.prompt_id for prompt in step.prompts}) < len(step.prompts):
            raise ValueError("a prompt comes twice in one step")
        for prompt, visit in zip(step.prompts, step.visits, strict=True):
            due = self.history.of(prompt.prompt_id).visits + 1
            if visit != due:
                raise ValueError(f"prompt {prompt.prompt_id}: visit {visit} where visit {due} is due")
        views = list(self.method.views)
        for prompt, visit, (start, end) in zip(step.prompts, step.visits, pairwise(step.starts), strict=True):
            there = [view for view, _ in groupby(step.views[start:end])]
            if there != views:
                raise ValueError(
                    f"prompt {prompt.prompt_id}: visit {visit} has rollouts of the views"
                    f" {there or 'none'}, and {self.method.name} takes {views}"
                )

    def _answers(self, step: Step) -> list[str | None]:
        answers = step.answers
        if answers is None:
            answers = [
                extract(response, self._extractor or default_extractor(prompt.data_source))
                for prompt, (start, end) in zip(step.prompts, pairwise(step.starts), strict=True)
                for response in step.responses[start:end]
            ]
        # A policy that writes the sentinel itself has given no answer: the sentinel is never rewarded (R16).
        return [None if answer == SENTINEL else answer for answer in answers]

    def _verdicts(self, step: Step, answers: Sequence[str | None]) -> _Verdicts:
        """The class of every answer, and whether it matches the label and the truth that its prompt has (R7)."""
        said = [
            dict.fromkeys(answer for answer in answers[start:end] if answer is not None)
            for start, end in pairwise(step.starts)
        ]
        verdicts = _Verdicts(self.judge.keys(dict.fromkeys(chain.from_iterable(said))), said)
        trues = [prompt.true_answer for prompt in step.prompts]
        givens = [prompt.given_label for prompt in step.prompts]
        verdicts.compare(self.judge, step.prompts, trues, givens)
        # A given label needs a verdict also where no rollout gives it: `effective_label_is_correct` asks for it.
        itself = [[] if it in (None, SENTINEL) else [it] for it in givens]
        verdicts.add(self.judge, _pairs(step.prompts, trues, itself))
        return verdicts

    def _noisy_label(self, prompt: Prompt, visit: int, tally: Vote, verdicts: _Verdicts) -> str | None:
        """The label that noise puts on a prompt (R2 to R4); None on a prompt without noise."""
        match prompt.noise_type:
            case "clean" | None:
                return None
            case "inactive" | "active_frozen":
                return prompt.given_label  # as the file has it, at every visit
            case "active":
                return self._active_label(prompt, visit, tally, verdicts)
        assert_never(prompt.noise_type)

    def _active_label(self, prompt: Prompt, visit: int, tally: Vote, verdicts: _Verdicts) -> str:
        """One of this visit's wrong answers (R3); the sentinel if none is proved wrong."""
        true = prompt.true_answer
        if true is None:
            return SENTINEL
        # Sorted, or the order of the rollouts would decide (R18). An unread answer is never drawn: it may be right, and
        # would be no noise.
        wrong = sorted(
            (spelling, tally.counts[key])
            for key, spelling in tally.spelling.items()
            if is_read(key) and verdicts.is_wrong(prompt, true, spelling)
        )
        if not wrong:
            return SENTINEL
        # Keyed by the visit, not the step: the draw does not depend on the number of prompts per step (R3).
        u = seeding.uniform("noisy label", self._seed, prompt.prompt_id, visit)
        return draw_wrong_answer(wrong, self._draw, u)

    def _decide(
        self,
        step: Step,
        texts: Sequence[Sequence[str | None]],
        votes: Sequence[Vote],
        noisy_labels: Sequence[str | None],
        pasts: Sequence[Past],
        verdicts: _Verdicts,
    ) -> Decided:
        """Labels and rewards of each visit; all prompts train. `texts` and `votes` are of each view of each group."""
        views, parts = len(self.method.views), step.parts
        rows, rewards, classes, is_correct = [], list[float](), list[str | None](), list[bool | None]()
        oracle = list[float]()
        for group, (prompt, number) in enumerate(zip(step.prompts, step.visits, strict=True)):
            here = slice(group * views, (group + 1) * views)
            answers, tallies, starts = texts[here], votes[here], parts[here]
            noisy_label, past = noisy_labels[group], pasts[group]
            visit, row = self._visit(prompt, number, answers[0], tallies[0], noisy_label, past, verdicts)
            label = self._label(prompt, visit, answers, tallies, verdicts.keys)
            due = [
                self._rewards(step, start, of_view, prompt, answer, label.source, verdicts)
                for start, of_view, answer in zip(starts, answers, label.answers, strict=True)
            ]
            given = [
                self._seen(step, group, start, of_view, answer, label.source, right, verdicts)
                for start, of_view, answer, right in zip(starts, answers, label.answers, due, strict=True)
            ]
            of_visit = [*chain.from_iterable(given)]
            oracle += chain.from_iterable(due)
            rewards += of_visit
            true, right_answers = prompt.true_answer, verdicts.right(prompt, prompt.true_answer)
            for of_view, tally in zip(answers, tallies, strict=True):
                spelling, keys = tally.spelling, verdicts.keys
                classes += [None if answer is None else spelling[keys[answer]] for answer in of_view]
                is_correct += [None if true is None else answer in right_answers for answer in of_view]
            row |= {
                "step": step.number,
                "is_selected": label.is_selected,
                "effective_label": label.answers[0],
                "label_source": label.source,
                "effective_label_is_correct": _label_is_correct(label.answers[0], true, right_answers),
                "reward_mean": sum(of_visit) / len(of_visit),
                "has_zero_variance": all(len(set(of_view)) == 1 for of_view in given),
                "trains": True,
                "in_percent": prompt.in_percent or None,  # as in runs of before the column
            }
            rows.append(row)
        return Decided(
            step,
            {name: [row[name] for row in rows] for name in LABEL_COLUMNS},
            answers=[*chain.from_iterable(texts)],
            answer_classes=classes,
            is_correct=is_correct,
            rewards=rewards,
            oracle_rewards=None if self._verifier is None else oracle,
        )

    def _label(
        self,
        prompt: Prompt,
        visit: Visit,
        answers: Sequence[Sequence[str | None]],
        tallies: Sequence[Vote],
        keys: Mapping[str, Key],
    ) -> Label:
        """The label that counts: in every method the verified one (R23), else that of the rule; `answers` by view."""
        if prompt.is_verified:
            return Label((prompt.true_answer,) * len(answers), "verified")
        if self.method.orders_rollouts:
            firsts = [
                first_majority(of_view, tally, keys) for of_view, tally in zip(answers, tallies, strict=True)
            ]
            spelt = (
                None if key is None else tally.spelling[key]
                for key, tally in zip(firsts, tallies, strict=True)
            )
            visit = visit._replace(first_majorities=tuple(spelt))
        return self.method.rule(visit)

    def _visit(
        self,
        prompt: Prompt,
        number: int,
        answers: Sequence[str | None],
        tally: Vote,
        noisy_label: str | None,
        past: Past,
        verdicts: _Verdicts,
    ) -> tuple[Visit, dict[str, Any]]:
        """A visit as its rule sees it, of the original view; and the columns of its row up to the decision."""
        majority, historical, (rise, run) = tally.majority_answer, past.historical_majority, past.slope_ratio
        is_consistent = tally.majority is not None and tally.majority == historical
        true, given, is_marked = prompt.true_answer, prompt.given_label, prompt.is_marked
        noisy_count, given_count = (verdicts.count(prompt, it, answers) for it in (noisy_label, given))
        label, source = _standing_label(prompt, noisy_label)
        visit = Visit(
            prompt.prompt_id,
            number,
            tally.rollouts,
            majority,
            tally.majority_count,
            is_consistent,
            label,
            source,
            noisy_count if is_marked else given_count,
            tally,
            (rise, run),
        )
        return visit, {
            "prompt_id": prompt.prompt_id,
            "visit": number,
            "noise_type": prompt.noise_type,
            "true_answer": true,
            "given_label": given,
            "noisy_label": noisy_label,
            "noisy_label_count": noisy_count,
            "true_answer_count": verdicts.count(prompt, true, answers),
            "given_label_count": given_count,
            "majority_answer": majority,
            "majority_count": tally.majority_count,
            "rollouts": tally.rollouts,
            "answered": tally.answered,
            "pass_rate": tally.majority_count / tally.rollouts,
            "slope": rise / run,
            "historical_majority": _spelling(historical, past, tally),
            "is_consistent": is_consistent,
            "majority_is_correct": None if true is None else majority in verdicts.right(prompt, true),
            "majority_is_noisy_label": majority in verdicts.right(prompt, noisy_label) if is_marked else None,
        }

    def _rewards(
        self,
        step: Step,
        start: int,
        answers: Sequence[str | None],
        prompt: Prompt,
        label: str | None,
        source: LabelSource,
        verdicts: _Verdicts,
    ) -> list[float]:
        """A majority rewards its class, another label whatever matches it (R16); a verified one in every method."""
        if self.method.score is not None and source != "verified":
            return self.method.score.rewards(step, start, start + len(answers))
        if source == "majority" and label is not None:
            # By class, not by match: `5` matches a majority of `5 cm`, although it voted against it.
            keys = verdicts.keys
            key = keys[label]
            return [1.0 if answer is not None and keys[answer] == key else 0.0 for answer in answers]
        right = verdicts.right(prompt, label)
        return [1.0 if answer in right else 0.0 for answer in answers]

    def _seen(
        self,
        step: Step,
        group: int,
        start: int,
        answers: Sequence[str | None],
        label: str | None,
        source: LabelSource,
        due: list[float],
        verdicts: _Verdicts,
    ) -> list[float]:
        """The rewards of one view, from `start` on, after the verifier's errors (R25)."""
        if self._verifier is None or not self._verifier.grades(source):
            return due
        prompt, visit, first = step.prompts[group], step.visits[group], step.starts[group]
        return [
            # A missing answer is never accepted.
            reward
            if text is None
            else self._verifier.reward(
                Graded(prompt, visit, i - first, step.responses[i], text, verdicts.keys[text], label), reward
            )
            for i, (text, reward) in enumerate(zip(answers, due, strict=True), start)
        ]


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


class _Verdicts:
    """The judge's verdicts about one step: the class of each answer, and which answers match which labels.

    A label is a prompt's label or truth, which counts as its question asks for it (`Prompt.asked`). Nothing matches the
    sentinel or a missing label (R16).
    """

    def __init__(self, keys: Mapping[str, Key], said: Sequence[Iterable[str]]) -> None:
        self.keys = keys
        self._said = said
        self._right: defaultdict[str | None, set[str | None]] = defaultdict(set)
        self._wrong: set[Pair] = set()

    def compare(self, judge: Judge, prompts: Sequence[Prompt], *columns: Sequence[str | None]) -> None:
        """Ask which of the answers to each prompt match its label in each of these columns."""
        self.add(judge, {pair: None for labels in columns for pair in _pairs(prompts, labels, self._said)})

    def add(self, judge: Judge, pairs: Collection[Pair]) -> None:
        """Ask for verdicts about these pairs of a label and an answer."""
        for pair, verdict in zip(pairs, judge.matches(pairs), strict=True):
            if verdict:
                self._right[pair[0]].add(pair[1])
            elif verdict is False:
                self._wrong.add(pair)

    def right(self, prompt: Prompt, label: str | None) -> Collection[str | None]:
        """The answers that match a label of a prompt."""
        return frozenset() if label is None else self._right.get(prompt.asked(label), frozenset())

    def is_wrong(self, prompt: Prompt, label: str, answer: str) -> bool:
        """Whether it is proved that an answer does not match a label of a prompt."""
        return (prompt.asked(label), answer) in self._wrong

    def count(self, prompt: Prompt, label: str | None, answers: Iterable[str | None]) -> int | None:
        """How many answers match a label of a prompt; None without a label, 0 for the sentinel."""
        return None if label is None else sum(map(self.right(prompt, label).__contains__, answers))


def _pairs(
    prompts: Sequence[Prompt], labels: Sequence[str | None], said: Sequence[Iterable[str]]
) -> dict[Pair, None]:
    """Each prompt's label with every answer to it, each pair once."""
    return {
        (gold, answer): None
        for prompt, label, answers in zip(prompts, labels, said, strict=True)
        if label is not None and label != SENTINEL
        for gold in [prompt.asked(label)]
        for answer in answers
    }


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
    """The label that counts unless the method replaces it (R15), as it never does a verified one."""
    if prompt.is_verified:
        return prompt.true_answer, "verified"
    label = noisy_label if prompt.is_marked else prompt.given_label
    if label is None:
        return None, "none"
    if label == SENTINEL:
        return label, "sentinel"
    return label, "noisy" if prompt.is_marked else "given"


def _label_is_correct(label: str | None, true: str | None, right: Collection[str | None]) -> bool | None:
    if label is None:
        return None
    if label == SENTINEL:
        return False  # wrong even where the true answer is unknown (R2)
    return None if true is None else label in right
