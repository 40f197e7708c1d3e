"""The one place where labels are decided: a step's rollouts in, rewards and records out (the seam).

    engine:  K rollouts per prompt ──► Supervisor.supervise(step) ──► rewards, which prompts train ──► update
                                           │
                                           └─ answers → vote → history → criteria → effective label → records

Decisions are a function of the rollouts, the history and the seed alone, so both engines and a replay decide alike.
The order of the groups does not matter, and that of the rollouts within a group only where TTRL and Co-Reward break a
tie.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from fractions import Fraction
from itertools import groupby, pairwise
from typing import Any, TypeAlias

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
from olr_cli.data.prompts import SENTINEL, Prompt
from olr_cli.data.sets import noise_draw
from olr_cli.recipe.schema import NoiseDraw, Recipe
from olr_cli.supervision.history import History, Past
from olr_cli.supervision.methods import EffectiveLabels, Evidence, Method, compose
from olr_cli.supervision.selection import prompts_that_train
from olr_cli.supervision.self_training import Calibration, VerifiedVisit, calibrate
from olr_cli.supervision.types import LABEL_COLUMNS, Decided, LabelSource, Step

Measure: TypeAlias = Callable[[str], AbstractContextManager[object]]
"""Counts the time of a block as a part of the step."""


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
        with measure("verification"):
            answers = self._answers(step)
            verified = self._verified(step, answers)
        with measure("labels"):
            votes = [vote(answers[start:end], verified.keys) for start, end in pairwise(step.parts)]
            tallies = votes[:: len(self.method.views)]
            noisy_labels = self._noisy_labels(step, tallies, verified)
        with measure("verification"):
            verified.add(self.judge, _pairs(noisy_labels, step, answers))
        with measure("labels"):
            pasts = [
                self.history.of(prompt.prompt_id).after(tally)
                for prompt, tally in zip(step.prompts, tallies, strict=True)
            ]
            decided, verified_visits = self._decide(step, answers, votes, noisy_labels, pasts, verified)
            decided = self._choose(decided)
            names = [prompt.prompt_id for prompt in step.prompts]
            self.history.extend(dict(zip(names, pasts, strict=True)), verified_visits)
            return decided

    def expect(self, prompts: Sequence[Prompt]) -> None:
        """Let the verifier start beside whatever comes next, if the labels of these prompts say that it is needed."""
        texts = (text for prompt in prompts for text in (prompt.given_label, prompt.true_answer))
        self.judge.expect(text for text in texts if text not in (None, SENTINEL))

    def read_ahead(self, step: Step) -> None:
        """Verify the answers of a step that `supervise` will get next, which then finds it done.

        Takes the responses alone, and records nothing: it can run in another thread while the step's statistics are
        still being made.
        """
        self._verified(step, self._answers(step))

    def _check(self, step: Step) -> None:
        if len({prompt.prompt_id for prompt in step.prompts}) < len(step.prompts):
            raise ValueError("a prompt comes twice in one step")
        for prompt, visit in zip(step.prompts, step.visits, strict=True):
            due = self.history.of(prompt.prompt_id).visits + 1
            if visit != due:
                raise ValueError(f"prompt {prompt.prompt_id}: visit {visit} where visit {due} is due")
        views = self.method.views
        if (
            len(views) == 1
            and set(step.views) <= set(views)
            and all(start < end for start, end in pairwise(step.starts))
        ):
            return
        for prompt, visit, (start, end) in zip(step.prompts, step.visits, pairwise(step.starts), strict=True):
            there = [view for view, _ in groupby(step.views[start:end])]
            if there != list(views):
                raise ValueError(
                    f"prompt {prompt.prompt_id}: visit {visit} has rollouts of the views"
                    f" {there or 'none'}, and {self.method.name} takes {list(views)}"
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

    def _verified(self, step: Step, answers: Sequence[str | None]) -> _Verified:
        """The class of every answer, and whether it matches the label and the truth that its prompt has (R7)."""
        verified = _Verified(self.judge.keys(dict.fromkeys(text for text in answers if text is not None)))
        given, true = (
            [getattr(prompt, name) for prompt in step.prompts] for name in ("given_label", "true_answer")
        )
        verified.add(self.judge, _pairs(true, step, answers) | _pairs(given, step, answers))
        verified.add(
            self.judge,
            dict.fromkeys(
                pair for pair in zip(true, given, strict=True) if SENTINEL not in pair and None not in pair
            ),
        )
        return verified

    def _noisy_labels(self, step: Step, tallies: Sequence[Vote], verified: _Verified) -> list[str | None]:
        """This visit's wrong label on each marked prompt (R2 to R4); None on the others."""
        return [
            self._noisy_label(prompt, visit, tally, verified) if prompt.is_marked else None
            for prompt, visit, tally in zip(step.prompts, step.visits, tallies, strict=True)
        ]

    def _noisy_label(self, prompt: Prompt, visit: int, tally: Vote, verified: _Verified) -> str | None:
        if prompt.noise_type != "active":
            return prompt.given_label
        true = prompt.true_answer
        if true is None:
            return SENTINEL
        wrong = sorted(
            (spelling, tally.counts[key])
            for key, spelling in tally.spelling.items()
            if is_read(key) and verified.is_wrong(true, spelling)
        )
        if not wrong:
            return SENTINEL
        u = seeding.uniform("noisy label", self._seed, prompt.prompt_id, visit)
        return draw_wrong_answer(wrong, self._draw, u)

    def _decide(
        self,
        step: Step,
        answers: Sequence[str | None],
        votes: Sequence[Vote],
        noisy_labels: Sequence[str | None],
        pasts: Sequence[Past],
        verified: _Verified,
    ) -> tuple[Decided, dict[str, VerifiedVisit]]:
        """Everything but which prompts train, and what the visits of verified prompts say about the others."""
        prompts, parts, views, right = step.prompts, step.parts, len(self.method.views), verified.right
        tallies, of_original = votes[::views], list(pairwise(parts))[::views]
        texts = [answers[start:end] for start, end in of_original]
        is_correct = [
            None if prompt.true_answer is None else (prompt.true_answer, answer) in right
            for prompt, (start, end) in zip(prompts, pairwise(step.starts), strict=True)
            for answer in answers[start:end]
        ]
        slopes = [past.slope for past in pasts]
        historical = [past.historical_majority for past in pasts]
        majorities = [tally.majority_answer for tally in tallies]
        standing = [_standing_label(*pair) for pair in zip(prompts, noisy_labels, strict=True)]
        trues, givens = [prompt.true_answer for prompt in prompts], [prompt.given_label for prompt in prompts]
        true_counts = [
            None if true is None else sum(is_correct[start:end])  # type: ignore[arg-type]  # none is None
            for true, (start, end) in zip(trues, of_original, strict=True)
        ]
        given_counts = [verified.count(*pair) for pair in zip(givens, texts, strict=True)]
        noisy_counts = [verified.count(*pair) for pair in zip(noisy_labels, texts, strict=True)]
        columns: dict[str, list[Any]] = {
            "prompt_id": [prompt.prompt_id for prompt in prompts],
            "visit": list(step.visits),
            "step": [step.number] * len(prompts),
            "noise_type": [prompt.noise_type for prompt in prompts],
            "true_answer": trues,
            "given_label": givens,
            "noisy_label": list(noisy_labels),
            "noisy_label_count": noisy_counts,
            "true_answer_count": true_counts,
            "given_label_count": given_counts,
            "majority_answer": majorities,
            "majority_count": [tally.majority_count for tally in tallies],
            "rollouts": [tally.rollouts for tally in tallies],
            "answered": [tally.answered for tally in tallies],
            "pass_rate": [tally.majority_count / tally.rollouts for tally in tallies],
            "slope": [float(slope) for slope in slopes],
            "historical_majority": list(map(_spelling, historical, pasts, tallies)),
            "is_consistent": [
                tally.majority is not None and tally.majority == key
                for tally, key in zip(tallies, historical, strict=True)
            ],
            "majority_is_correct": [
                None if true is None else (true, majority) in right
                for true, majority in zip(trues, majorities, strict=True)
            ],
            "majority_is_noisy_label": [
                (noisy, majority) in right if prompt.is_marked else None
                for prompt, noisy, majority in zip(prompts, noisy_labels, majorities, strict=True)
            ],
        }
        verified_visits = self._verified_visits(prompts, columns, verified)
        labels = self.method.label(
            Evidence(
                step.visits,
                majorities,
                columns["majority_count"],
                columns["rollouts"],
                slopes,
                columns["is_consistent"],
                [label for label, _ in standing],
                [source for _, source in standing],
                [
                    (noisy if prompt.is_marked else given) or 0
                    for prompt, noisy, given in zip(prompts, noisy_counts, given_counts, strict=True)
                ],
                self._first_majorities(parts, answers, votes, verified.keys),
                self._calibration(verified_visits),
            )
        )
        _keep_trusted(labels, prompts, standing, views)
        rewards = [
            reward
            for place, span in enumerate(pairwise(parts))
            for reward in self._rewards(
                step, span, answers, labels.answers[place], labels.sources[place], verified
            )
        ]
        effective, sources = labels.answers[::views], labels.sources[::views]
        of_class = [
            None if answer is None else tally.spelling[verified.keys[answer]]
            for tally, (start, end) in zip(votes, pairwise(parts), strict=True)
            for answer in answers[start:end]
        ]
        uniform = [len(set(rewards[start:end])) == 1 for start, end in pairwise(parts)]
        columns |= {
            "is_selected": labels.are_selected[::views],
            "effective_label": effective,
            "label_source": sources,
            "effective_label_is_correct": [
                _label_is_correct(label, true, right) for label, true in zip(effective, trues, strict=True)
            ],
            "reward_mean": [sum(rewards[start:end]) / (end - start) for start, end in pairwise(step.starts)],
            "has_zero_variance": [
                all(uniform[place : place + views]) for place in range(0, len(uniform), views)
            ],
            "trains": labels.teach[::views],
        }
        labels_table = {name: columns[name] for name in LABEL_COLUMNS}
        return Decided(step, labels_table, answers, of_class, is_correct, rewards), verified_visits

    def _rewards(
        self,
        step: Step,
        span: tuple[int, int],
        answers: Sequence[str | None],
        label: str | None,
        source: LabelSource,
        verified: _Verified,
    ) -> list[float]:
        """A majority rewards its class, another label whatever matches it (R16); a trusted one in every method."""
        start, end = span
        if self.method.score is not None and source != "trusted":
            return self.method.score.rewards(step, start, end)
        if source == "majority" and label is not None:
            key, keys = verified.keys[label], verified.keys
            return [float(text is not None and keys[text] == key) for text in answers[start:end]]
        right = verified.right
        return [float((label, text) in right) for text in answers[start:end]]

    def _first_majorities(
        self,
        parts: Sequence[int],
        answers: Sequence[str | None],
        votes: Sequence[Vote],
        keys: Mapping[str, Key],
    ) -> list[str | None]:
        if not self.method.orders_rollouts:
            return []
        firsts = [
            first_majority(answers[start:end], tally, keys)
            for tally, (start, end) in zip(votes, pairwise(parts), strict=True)
        ]
        return [
            None if first is None else tally.spelling[first]
            for first, tally in zip(firsts, votes, strict=True)
        ]

    def _verified_visits(
        self, prompts: Sequence[Prompt], columns: Mapping[str, Sequence[Any]], verified: _Verified
    ) -> dict[str, VerifiedVisit]:
        """What the visits of verified prompts say about the others, by prompt_id."""
        return {
            prompt.prompt_id: VerifiedVisit.of_row(
                {name: values[place] for name, values in columns.items()},
                given_is_right=(prompt.true_answer, prompt.given_label) in verified.right,
            )
            for place, prompt in enumerate(prompts)
            if prompt.is_trusted
        }

    def _calibration(self, of_step: Mapping[str, VerifiedVisit]) -> Calibration | None:
        """What the verified prompts' latest visits say, where the method asks; the same after a resume to the bit."""
        if not self.method.calibrates:
            return None
        visits = {**self.history.verified, **of_step}
        return calibrate(visit for _, visit in sorted(visits.items()))

    def _choose(self, decided: Decided) -> Decided:
        """The same decisions, with the prompts that don't train marked."""
        if self.method.rank is None:
            return decided
        chosen = prompts_that_train(decided, self.method.rank, self._keep_fraction, self._seed)
        trains = [teaches and is_chosen for teaches, is_chosen in zip(decided.trains, chosen, strict=True)]
        return replace(decided, labels={**decided.labels, "trains": trains})


def make_supervisor(
    recipe: Recipe, keep_fraction: Fraction, judge: Judge, history: History | None
) -> Supervisor:
    """The supervisor that a recipe asks for, with the history of the visits so far."""
    return Supervisor(
        compose(recipe.method),
        judge,
        seed=recipe.seed,
        draw=noise_draw(recipe),
        extractor=recipe.data.extractor,
        keep_fraction=keep_fraction,
        history=history,
    )


class _Verified:
    """What the judge said about one step: the class of each answer, and which answers match which labels.

    Attributes:
        keys: of every answer.
        right: pairs of a label or truth and an answer that matches it. Neither is missing or the sentinel (R16).
    """

    def __init__(self, keys: Mapping[str, Key]) -> None:
        self.keys = keys
        self.right: set[tuple[str | None, str | None]] = set()
        self._wrong: set[Pair] = set()

    def add(self, judge: Judge, pairs: Collection[Pair]) -> None:
        """Ask for verdicts about these pairs."""
        for pair, verdict in judge.matches(pairs).items():
            if verdict:
                self.right.add(pair)
            elif verdict is False:
                self._wrong.add(pair)

    def is_wrong(self, label: str, answer: str) -> bool:
        """Whether it is proved that an answer does not match a label."""
        return (label, answer) in self._wrong

    def count(self, label: str | None, answers: Iterable[str | None]) -> int | None:
        """How many answers match a label; None without a label, 0 for the sentinel."""
        return None if label is None else sum((label, answer) in self.right for answer in answers)


def _pairs(labels: Sequence[str | None], step: Step, answers: Sequence[str | None]) -> dict[Pair, None]:
    """Each group's label with every answer that can be compared with it, each pair once."""
    return {
        (label, answer): None
        for label, (start, end) in zip(labels, pairwise(step.starts), strict=True)
        if label is not None and label != SENTINEL
        for answer in answers[start:end]
        if answer is not None
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
    """The label that counts unless the method replaces it (R15), as it never does a trusted one."""
    if prompt.is_trusted:
        return prompt.true_answer, "trusted"
    label = noisy_label if prompt.is_marked else prompt.given_label
    if label is None:
        return None, "none"
    if label == SENTINEL:
        return label, "sentinel"
    return label, "noisy" if prompt.is_marked else "given"


def _keep_trusted(
    labels: EffectiveLabels,
    prompts: Sequence[Prompt],
    standing: Sequence[tuple[str | None, LabelSource]],
    views: int,
) -> None:
    """Put verified labels back, which no method replaces."""
    for group, prompt in enumerate(prompts):
        if prompt.is_trusted:
            for place in range(group * views, (group + 1) * views):
                labels.answers[place], labels.sources[place] = standing[group]
                labels.are_selected[place], labels.teach[place] = False, True


def _label_is_correct(
    label: str | None, true: str | None, right: Collection[tuple[str | None, str | None]]
) -> bool | None:
    if label is None:
        return None
    if label == SENTINEL:
        return False  # right of no prompt, whatever its true answer (R2)
    return None if true is None else (true, label) in right
