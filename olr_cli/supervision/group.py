"""One prompt's rollouts at one visit, and what is found out about them before its label is decided."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from olr_cli.answers import Grading, Key, Vote, first_majority
from olr_cli.answers.graded import SENTINEL
from olr_cli.data.prompts import Prompt
from olr_cli.supervision.history import Past
from olr_cli.supervision.types import LabelRecord, LabelSource, Step
from olr_cli.supervision.visit import Label, Visit


@dataclass(slots=True)
class Group:
    """The rollouts of a prompt at one visit.

    Attributes:
        parts: of each view, where its rollouts stand in the step.
        answers: of each view, one per rollout.
        votes: of each view.
        past: the prompt's visits, this one included (R11).
        noisy_label: what noise puts on the prompt at this visit; None on a prompt without noise.
    """

    step: Step
    prompt: Prompt
    visit: int
    parts: Sequence[tuple[int, int]]
    answers: Sequence[Sequence[str | None]]
    votes: Sequence[Vote]
    grading: Grading
    past: Past
    noisy_label: str | None = None

    def right(self, label: str | None) -> Collection[str | None]:
        """Return the answers that match a label; none if there is no label."""
        return () if label is None else self.grading.right(self.prompt.asked(label))

    def wrong(self, label: str) -> Collection[str | None]:
        """Return the answers that are proved not to match a label."""
        return self.grading.wrong(self.prompt.asked(label))

    def undecided(self, label: str, view: int) -> int:
        """Return how many rollouts of a view are proved neither right nor wrong by a label."""
        right, wrong = self.right(label), self.wrong(label)
        answered = (answer for answer in self.answers[view] if answer is not None)
        return sum(answer not in right and answer not in wrong for answer in answered)

    def count(self, label: str | None) -> int | None:
        """How many rollouts of the original view match a label; None without a label, 0 for the sentinel."""
        return None if label is None else self._count(self.right(label))

    @property
    def is_consistent(self) -> bool:
        """C_t: the majority is the historical majority (Eq. hist_consistency)."""
        majority = self.votes[0].majority
        return majority is not None and majority == self.past.historical_majority

    @property
    def standing_label(self) -> tuple[str | None, LabelSource]:
        """The label that counts unless the method replaces it (R15), as it never does a verified one."""
        prompt = self.prompt
        if prompt.is_verified:
            return prompt.true_answer, "verified"
        # What the file says, unless noise puts another label on the prompt at each visit.
        label = self.noisy_label if prompt.is_marked else prompt.given_label
        if label is None:
            return None, "none"
        if label == SENTINEL:
            return label, "sentinel"
        return label, "noisy" if prompt.is_marked else "given"

    def seen(self) -> Visit:
        """What a label rule sees: nothing that depends on the true answer."""
        vote, (label, source) = self.votes[0], self.standing_label
        return Visit(
            self.prompt.prompt_id,
            self.visit,
            vote.rollouts,
            vote.majority_answer,
            vote.majority_count,
            self.is_consistent,
            label,
            source,
            self.count(
                self.noisy_label if self.prompt.is_marked else self.prompt.given_label
            ),
            vote,
            self.past.slope_ratio,
        )

    def first_majorities(self) -> tuple[str | None, ...]:
        """The majority of each view; a tie goes to the answer that first had so many rollouts."""
        # As the rollouts were sampled: the order counts only here.
        keys = [
            first_majority(answers, vote, self.grading.keys)
            for answers, vote in zip(self.answers, self.votes, strict=True)
        ]
        return tuple(
            key and vote.spelling[key] for key, vote in zip(keys, self.votes, strict=True)
        )

    def record(self, label: Label, rewards: Sequence[Sequence[float]]) -> LabelRecord:
        """The row of the labels table, once the label and the rewards of each view are decided."""
        prompt, vote, past = self.prompt, self.votes[0], self.past
        right = self.right(prompt.true_answer)
        true, majority, (rise, run) = (
            prompt.true_answer,
            vote.majority_answer,
            past.slope_ratio,
        )
        return LabelRecord(
            prompt_id=prompt.prompt_id,
            visit=self.visit,
            step=self.step.number,
            noise_type=prompt.noise_type,
            true_answer=true,
            given_label=prompt.given_label,
            noisy_label=self.noisy_label,
            noisy_label_count=self.count(self.noisy_label),
            true_answer_count=None if true is None else self._count(right),
            given_label_count=self.count(prompt.given_label),
            majority_answer=majority,
            majority_count=vote.majority_count,
            rollouts=vote.rollouts,
            answered=vote.answered,
            pass_rate=vote.majority_count / vote.rollouts,
            slope=rise / run,
            historical_majority=_spelling(past.historical_majority, past, vote),
            is_consistent=self.is_consistent,
            is_selected=label.is_selected,
            effective_label=label.answers[0],
            label_source=label.source,
            majority_is_correct=None if true is None else majority in right,
            majority_is_noisy_label=majority in self.right(self.noisy_label)
            if prompt.is_marked
            else None,
            effective_label_is_correct=self._is_correct(label.answers[0], right),
            reward_mean=sum(map(sum, rewards)) / sum(map(len, rewards)),
            has_zero_variance=all(len(set(of_view)) == 1 for of_view in rewards),
            trains=True,
            in_percent=prompt.in_percent or None,
        )

    def _count(self, right: Collection[str | None]) -> int:
        return sum(map(right.__contains__, self.answers[0]))

    def _is_correct(self, label: str | None, right: Collection[str | None]) -> bool | None:
        """Whether a label is right, given the answers that match the truth; None where nobody can tell."""
        if label is None:
            return None
        if label == SENTINEL:
            return False  # wrong even where the true answer is unknown (R2)
        if self.prompt.true_answer is None:
            return None
        # A verified label is the true answer, also where no rollout spells it like that.
        return self.prompt.is_verified or label in right


def _spelling(historical: Key | None, past: Past, vote: Vote) -> str | None:
    """The historical majority (R13), shown as this visit spells it, else in its most frequent spelling."""
    if historical is None:
        return None
    if historical in vote.spelling:
        return vote.spelling[historical]
    spellings = past.majorities[historical]
    return min(spellings, key=lambda answer: (-spellings[answer], answer))
