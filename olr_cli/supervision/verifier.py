"""A verifier that errs (R25): it flips verdicts after the rewards of the rollouts are decided.

Votes, history and labels are not affected, because they depend on answers. A majority label rewards its own class
without a verifier, unless `method.majority_graded_by` says otherwise. Every draw has its own key (R18), so a resumed
run and a replay repeat it. The error rates are those of Cai et al. 2025 (arXiv:2510.00915).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from olr_cli import seeding
from olr_cli.answers import Key, exact_number, found_by
from olr_cli.data.prompts import Prompt
from olr_cli.errors import UserError, at
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.verifier import VerifierRule
from olr_cli.supervision.group import Group
from olr_cli.supervision.types import LabelSource
from olr_cli.supervision.visit import Label
from olr_cli.user_code import load_function, running


class Graded(NamedTuple):
    """A rollout with an answer, and all facts that may decide whether the verifier errs about it."""

    prompt: Prompt
    visit: int
    sample: int
    """Number within the visit, from 0."""

    response: str
    answer: str
    key: Key
    """The answer's class."""

    label: str | None


class Verifier:
    """A verifier that errs: it flips rewards at the rates that a recipe's `verifier` section sets."""

    def __init__(self, recipe: Recipe) -> None:
        assert recipe.verifier is not None
        self._section, self._seed = recipe.verifier, recipe.seed
        self._grades_majorities = recipe.method.majority_graded_by == "verifier"
        self._rules = [(rule, _condition(rule)) for rule in recipe.verifier.where]

    def require_numbers(self, prompts: Sequence[Prompt]) -> None:
        """Raise UserError if the recipe's rules need numbers as labels, but no label of the prompts is a number.

        A rule of the `verifier` section needs numbers if it measures how far an answer is from its label (``error`` or
        ``relative_error``). Given labels and true answers both count as labels.
        """
        # Rules about texts work on any label, so only distances need numbers.
        if not any(rule.error or rule.relative_error for rule, _ in self._rules):
            return
        labels = (
            text
            for prompt in prompts
            for text in (prompt.given_label, prompt.true_answer)
            if text
        )
        if all(exact_number(text) is None for text in labels):
            raise UserError(
                "error and relative_error compare numbers, and no label here is one",
                "take answer, response or function",
                "verifier.where",
            )

    def grades(self, source: LabelSource) -> bool:
        """Return whether the verifier grades rollouts under a label of this source; its errors apply only then.

        It grades under a majority label only if the recipe sets `method.majority_graded_by: verifier`.
        """
        return source != "majority" or self._grades_majorities

    def rewards(
        self, group: Group, view: int, label: Label, oracle_rewards: Sequence[float]
    ) -> list[float]:
        """Return the rewards of one view (wording of the prompt) after the verifier's errors.

        A rollout without an answer keeps its reward.

        Args:
            group: the rollouts of a prompt's visit.
            view: index of the view.
            label: the label that the rewards were computed with.
            oracle_rewards: the rewards without errors, one per rollout of the view.
        """
        rewards, first = list(oracle_rewards), group.parts[0][0]
        indices = range(*group.parts[view])
        for position, (index, answer) in enumerate(
            zip(indices, group.answers[view], strict=True)
        ):
            if answer is None:
                continue
            graded = Graded(
                prompt=group.prompt,
                visit=group.visit,
                sample=index - first,
                response=group.step.responses[index],
                answer=answer,
                key=group.grading.keys[answer],
                label=label.answers[view],
            )
            rewards[position] = self._reward(graded, oracle_rewards[position])
        return rewards

    def _reward(self, rollout: Graded, reward: float) -> float:
        """Return a rollout's reward (0 or 1), or 1 - reward if the verifier errs.

        The verifier errs with the probability that `_rate` returns. The random draw is repeatable.
        """
        # Per rollout, every error is independent. Per answer, the verifier misjudges a class at every visit or at none.
        draw_key = (
            (rollout.visit, rollout.sample)
            if self._section.draw == "rollout"
            else (rollout.key,)
        )
        u = seeding.uniform("verifier", self._seed, rollout.prompt.prompt_id, *draw_key)
        return 1 - reward if u < self._rate(rollout, bool(reward)) else reward

    def _rate(self, rollout: Graded, matches: bool) -> Decimal:
        """Return the probability that the verifier errs about a rollout.

        If the answer matches its label (`matches`), this is the false negative rate, else the false positive rate. The
        first rule that applies to the rollout and sets this rate decides. Without such a rule, the rate is that of the
        `verifier` section itself.
        """
        for rule, applies in self._rules:
            # A rule may set only one of the two rates; later rules and the section then decide about the other.
            rate = rule.false_negative_rate if matches else rule.false_positive_rate
            if rate is not None and applies(rollout):
                return rate
        return (
            self._section.false_negative_rate
            if matches
            else self._section.false_positive_rate
        )


_Condition = Callable[[Graded], bool]
"""Tests whether a rule applies to a rollout."""


def _condition(rule: VerifierRule) -> _Condition:
    """Return a function that tests whether a rule of the `verifier` section applies to a rollout."""
    with at("verifier.where"):
        if rule.answer is not None:
            in_answer = found_by(rule.answer)
            return lambda rollout: in_answer(rollout.answer)
        if rule.response is not None:
            in_response = found_by(rule.response)
            return lambda rollout: in_response(rollout.response)
        if rule.function is not None:
            return _user_condition(rule.function)
    # The other rules measure the distance between answer and label. Exactly: as floats, 0.3 - 0.2 is not 0.1.
    distances = None if rule.error is None else {*map(Fraction, rule.error)}
    share = Fraction(rule.relative_error or 0)

    def is_near(rollout: Graded) -> bool:
        # A text that is not a number has no distance, so the rule does not apply.
        claimed, target = exact_number(rollout.answer), exact_number(rollout.label or "")
        if claimed is None or target is None:
            return False
        distance = abs(claimed - target)
        return (
            distance < share * abs(target) if distances is None else distance in distances
        )

    return is_near


def _user_condition(name: str) -> _Condition:
    """Return a test of a rollout that calls a user's function.

    `name` is the function as the recipe names it, such as ``rules.py:my_rule``. If the function raises, the test raises
    a UserError that names the prompt.
    """
    function = load_function(name)

    def applies(rollout: Graded) -> bool:
        with running(
            f"{name}, prompt {rollout.prompt.prompt_id}: the function", "verifier.where"
        ):
            return bool(
                function(rollout.prompt, rollout.response, rollout.answer, rollout.label)
            )

    return applies
