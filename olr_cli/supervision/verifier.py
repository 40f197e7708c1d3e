"""A verifier that errs (R25): errors on verdicts, after the reward of a rollout is decided.

Votes, history and labels see nothing of it, since they read answers. A majority label rewards its class and asks no
verifier, unless `method.majority_graded_by` says so. Every draw has a key of its own (R18), so that resume and replay
repeat it; the rates are those of Cai et al. 2025 (arXiv:2510.00915).
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
    """A rollout as its verifier grades it: its number within the visit, its answer with its class, and the label."""

    prompt: Prompt
    visit: int
    sample: int
    response: str
    answer: str
    key: Key
    label: str | None


class Verifier:
    """The verifier of a recipe; it errs as the recipe's section says."""

    def __init__(self, recipe: Recipe) -> None:
        assert recipe.verifier is not None
        self._section, self._seed = recipe.verifier, recipe.seed
        self._grades_majorities = recipe.method.majority_graded_by == "verifier"
        self._rules = [(rule, _condition(rule)) for rule in recipe.verifier.where]

    def require_numbers(self, prompts: Sequence[Prompt]) -> None:
        """Refuse rules about distances where no label is a number."""
        # Rules about texts work on any label.
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
        """Whether it is asked about a label of this source."""
        return source != "majority" or self._grades_majorities

    def rewards(
        self, group: Group, view: int, label: Label, due: Sequence[float]
    ) -> list[float]:
        """Return the rewards of one view in place of those that are due; a missing answer is never accepted."""
        rewards, first = list(due), group.parts[0][0]
        places = range(*group.parts[view])
        for number, (place, answer) in enumerate(
            zip(places, group.answers[view], strict=True)
        ):
            if answer is None:
                continue
            graded = Graded(
                prompt=group.prompt,
                visit=group.visit,
                sample=place - first,
                response=group.step.responses[place],
                answer=answer,
                key=group.grading.keys[answer],
                label=label.answers[view],
            )
            rewards[number] = self._reward(graded, due[number])
        return rewards

    def _reward(self, one: Graded, right: float) -> float:
        # Keyed by its class, an answer is misjudged at every visit, or at none.
        drawn = (one.visit, one.sample) if self._section.draw == "rollout" else (one.key,)
        number = seeding.uniform("verifier", self._seed, one.prompt.prompt_id, *drawn)
        return 1 - right if number < self._rate(one, bool(right)) else right

    def _rate(self, one: Graded, matches: bool) -> Decimal:
        """The chance of an error: of the first rule that holds and names one, else the section's."""
        for rule, holds in self._rules:
            # A rule may name one of the two errors alone.
            rate = rule.false_negative_rate if matches else rule.false_positive_rate
            if rate is not None and holds(one):
                return rate
        return (
            self._section.false_negative_rate
            if matches
            else self._section.false_positive_rate
        )


_Condition = Callable[[Graded], bool]


def _condition(rule: VerifierRule) -> _Condition:
    """Where a rule holds."""
    with at("verifier.where"):
        if rule.answer is not None:
            in_answer = found_by(rule.answer)
            return lambda one: in_answer(one.answer)
        if rule.response is not None:
            in_response = found_by(rule.response)
            return lambda one: in_response(one.response)
        if rule.function is not None:
            return _own_condition(rule.function)
    # The rest are rules about numbers: how far an answer is from its label.
    distances = None if rule.error is None else {*map(Fraction, rule.error)}
    part = Fraction(rule.relative_error or 0)

    def is_near(one: Graded) -> bool:
        # What is no number is at no distance from anything.
        claimed, due = exact_number(one.answer), exact_number(one.label or "")
        if claimed is None or due is None:
            return False
        distance = abs(claimed - due)
        return distance < part * abs(due) if distances is None else distance in distances

    return is_near


def _own_condition(name: str) -> _Condition:
    function = load_function(name)

    def holds(one: Graded) -> bool:
        with running(
            f"{name}, prompt {one.prompt.prompt_id}: the function", "verifier.where"
        ):
            return bool(function(one.prompt, one.response, one.answer, one.label))

    return holds
