"""The rollouts of one prompt at one visit, with everything that is known before the label is decided."""

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
    """The rollouts of one prompt at one visit, with their answers, votes and verdicts, and the prompt's past.

    `Supervisor` makes one per prompt of a step, and decides the label from these facts. `record` then returns the row
    of the labels table.
    """

    step: Step
    prompt: Prompt
    visit: int
    parts: Sequence[tuple[int, int]]
    """For each view, the half-open range of its rollouts in the step."""

    answers: Sequence[Sequence[str | None]]
    """For each view, one answer per rollout; None where a response has none."""

    votes: Sequence[Vote]
    """One vote per view. The first is the original view's, from which the label is decided."""

    grading: Grading
    past: Past
    """The prompt's visits up to and including this one (R11)."""

    noisy_label: str | None = None
    """The wrong label of this visit; None if noise leaves the prompt alone."""

    def right(self, label: str | None) -> Collection[str | None]:
        """Return the answers that match a label; empty if the label is None.

        The result may include answers to other prompts of the step that have the same label.
        """
        return () if label is None else self.grading.right(self.prompt.asked(label))

    def wrong(self, label: str) -> Collection[str | None]:
        """Return the answers that are proved not to match a label; undecided answers are left out.

        The result may include answers to other prompts of the step that have the same label.
        """
        return self.grading.wrong(self.prompt.asked(label))

    def undecided(self, label: str, view: int) -> int:
        """Count the rollouts of one view whose answer is proved neither right nor wrong under a label.

        `view` is the index of a wording of the prompt, 0 for the original one. Rollouts without an answer are left out.
        """
        right, wrong = self.right(label), self.wrong(label)
        answered = (answer for answer in self.answers[view] if answer is not None)
        return sum(answer not in right and answer not in wrong for answer in answered)

    def count(self, label: str | None) -> int | None:
        """Count the rollouts of the prompt's original wording that match a label; None if the label is None.

        The count is 0 for the sentinel, a label that no answer matches.
        """
        return None if label is None else self._count(self.right(label))

    @property
    def is_consistent(self) -> bool:
        """Whether the visit's majority is the prompt's historical majority (C_t, Eq. hist_consistency).

        The historical majority is the class of answers that was the majority most often. The value is False if the
        visit has no majority, or if several classes were the majority equally often.
        """
        majority = self.votes[0].majority
        return majority is not None and majority == self.past.historical_majority

    @property
    def standing_label(self) -> tuple[str | None, LabelSource]:
        """The visit's label before the method may replace it, and the source of this label (R15).

        If the prompt is marked as noise, these are the visit's noisy label and ``noisy``, else the file's label and
        ``given``. Two labels have a source of their own: ``none`` for None, and ``sentinel`` for the sentinel, a text
        that no answer matches.

        Do not use it for a prompt with a verified true answer.
        """
        prompt = self.prompt
        # Active noise may change the label at every visit; otherwise it is the file's.
        label = self.noisy_label if prompt.is_marked else prompt.given_label
        if label is None:
            return None, "none"
        if label == SENTINEL:
            return label, "sentinel"
        return label, "noisy" if prompt.is_marked else "given"

    def seen(self) -> Visit:
        """Return the facts about the visit that a label rule may see, without the true answer."""
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
        """Return the majority answer of each view (wording of the prompt), in the order of the views.

        In a tie, the answer that reached the highest count first is the majority. If no rollout of a view has an
        answer, the view gets None.
        """
        # Only here does the order of the rollouts count: everywhere else a shuffled group gives the same label.
        keys = [
            first_majority(answers, vote, self.grading.keys)
            for answers, vote in zip(self.answers, self.votes, strict=True)
        ]
        return tuple(
            key and vote.spelling[key] for key, vote in zip(keys, self.votes, strict=True)
        )

    def record(self, label: Label, rewards: Sequence[Sequence[float]]) -> LabelRecord:
        """Build the group's row of the labels table, now that its label has been decided.

        `rewards` has, for each view (wording of the prompt), one reward per rollout.
        """
        prompt, vote, past = self.prompt, self.votes[0], self.past
        right_answers = self.right(prompt.true_answer)
        # One division of two integers: the stored slope is the double closest to the exact one. So is the threshold
        # that `metrics.selected_under` compares it with (R12).
        true_answer, majority, (slope_numerator, slope_denominator) = (
            prompt.true_answer,
            vote.majority_answer,
            past.slope_ratio,
        )
        return LabelRecord(
            prompt_id=prompt.prompt_id,
            visit=self.visit,
            step=self.step.number,
            noise_type=prompt.noise_type,
            true_answer=true_answer,
            given_label=prompt.given_label,
            noisy_label=self.noisy_label,
            noisy_label_count=self.count(self.noisy_label),
            true_answer_count=None if true_answer is None else self._count(right_answers),
            given_label_count=self.count(prompt.given_label),
            majority_answer=majority,
            majority_count=vote.majority_count,
            rollouts=vote.rollouts,
            answered=vote.answered,
            pass_rate=vote.majority_count / vote.rollouts,
            slope=slope_numerator / slope_denominator,
            historical_majority=_spelling(past.historical_majority, past, vote),
            is_consistent=self.is_consistent,
            is_selected=label.is_selected,
            effective_label=label.answers[0],
            label_source=label.source,
            # Without a majority, `None in ...` is False: the visit counts as wrong.
            majority_is_correct=None if true_answer is None else majority in right_answers,
            majority_is_noisy_label=majority in self.right(self.noisy_label)
            if prompt.is_marked
            else None,
            effective_label_is_correct=self._is_correct(label.answers[0], right_answers),
            reward_mean=sum(map(sum, rewards)) / sum(map(len, rewards)),
            has_zero_variance=all(len(set(view_rewards)) == 1 for view_rewards in rewards),
            trains=True,  # `Supervisor.supervise` changes it if the method chooses prompts
            in_percent=prompt.in_percent or None,
        )

    def _count(self, right_answers: Collection[str | None]) -> int:
        """Count the rollouts of the prompt's original wording whose answer is in `right_answers`.

        Rollouts without an answer do not count.
        """
        return sum(map(right_answers.__contains__, self.answers[0]))

    def _is_correct(
        self, label: str | None, right_answers: Collection[str | None]
    ) -> bool | None:
        """Return whether a label is right, or None if that is unknown or there is no label.

        The sentinel, a label that no answer matches, is always wrong. For any other label, the result is None if the
        true answer is unknown. `right_answers` are the answers that match the true answer.
        """
        if label is None:
            return None
        if label == SENTINEL:
            return False  # R2: no answer matches the sentinel, so it is wrong even if the true answer is unknown
        if self.prompt.true_answer is None:
            return None
        # A verified label is the true answer, even if no rollout has its spelling.
        return self.prompt.is_verified or label in right_answers


def _spelling(key: Key | None, past: Past, vote: Vote) -> str | None:
    """Return a spelling of a prompt's historical majority, or None if there is none (R13).

    The result is the most frequent spelling at this visit. If no rollout of the visit is in the class, the result is
    the spelling that was most often the majority answer of an earlier visit.

    Args:
        key: key of the historical majority, the class of answers that was the majority most often; None for no class.
        past: the prompt's visits up to this one.
        vote: the vote of this visit.
    """
    if key is None:
        return None
    if key in vote.spelling:
        return vote.spelling[key]
    spellings = past.majorities[key]
    return min(spellings, key=lambda answer: (-spellings[answer], answer))
