"""Which of a step's prompts train."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import fsum, inf

from olr_cli import seeding
from olr_cli.data.prompts import Prompt
from olr_cli.errors import UserError
from olr_cli.recipe.schema import MethodSection
from olr_cli.supervision.types import RolloutGroup, statistics


@dataclass(frozen=True, slots=True)
class Candidate:
    """A prompt of a step that may train: its rollouts and their advantages, in one order."""

    group: RolloutGroup
    advantages: tuple[float, ...]


RankRule = Callable[[Candidate], float]
"""Rank of a prompt; the smallest train, infinite ones never."""


def small_loss(candidate: Candidate) -> float:
    """loss(x) = abs(mean over the group's response tokens of A_k log pi_old(token)), in nats.

    The small-loss criterion (Gui et al. 2021, arXiv:2106.09291) takes samples with a small loss for cleanly labelled
    ones; the paper doesn't say which loss of GRPO that is, and the authors' code for it is commented
    out. The plain surrogate, the mean of A_k times a ratio of 1, is about 0 for every group, so it can't rank them.
    Groups of equal rewards have loss 0 and come first.
    """
    rollouts = candidate.group.rollouts
    lengths = statistics(rollouts, "tokens")
    sums = (
        advantage * mean * tokens
        for advantage, mean, tokens in zip(
            candidate.advantages, statistics(rollouts, "mean_logprob"), lengths, strict=True
        )
    )
    return abs(fsum(sums) / sum(lengths))


def any_prompt(candidate: Candidate) -> float:
    """The same rank for everybody: the draw that decides ties decides."""
    return 0.0


def trusted_only(candidate: Candidate) -> float:
    """Only prompts whose label somebody has verified train: what those labels are worth alone."""
    return 0.0 if candidate.group.prompt.is_trusted else inf


def prompts_that_train(
    step: Sequence[Candidate], rank: RankRule, keep_fraction: Fraction, seed: int
) -> list[bool]:
    """Whether each prompt of a step trains: round(keep_fraction x prompts) of the smallest rank, at least one of those
    whose rank is finite.

    Ties are decided by a draw keyed by seed, prompt and visit (R18), so a random choice is another one in each epoch.

    `keep_fraction` is in (0, 1].
    """
    kept = max(1, int(keep_fraction * len(step) + Fraction(1, 2)))

    def order(place: int) -> tuple[float, float]:
        group = step[place].group
        draw = seeding.uniform("training prompts", seed, group.prompt.prompt_id, group.visit)
        return rank(step[place]), draw

    ranked = [place for place in range(len(step)) if rank(step[place]) < inf]
    chosen = set(sorted(ranked, key=order)[:kept])
    return [place in chosen for place in range(len(step))]


def keep_fraction(method: MethodSection, prompts: Collection[Prompt]) -> Fraction:
    """The share of a step's prompts that train: the recipe's, else 1 - the share of marked prompts among all.

    Raises:
        UserError: the recipe names none and it isn't known which labels are noise, or all are.
    """
    if method.prompts in ("all", "trusted"):
        return Fraction(1)
    if method.keep_fraction is not None:
        return Fraction(method.keep_fraction)
    why = f"method.prompts is {method.prompts} and method.keep_fraction is not set, so that 1 - the share of wrong"
    if any(prompt.noise_type is None for prompt in prompts):
        raise UserError(
            f"{why} labels would train, which is not known of these data; set method.keep_fraction"
        )
    clean = sum(not prompt.is_marked for prompt in prompts)
    if clean == 0:
        raise UserError(f"{why} labels would train, which is none; set method.keep_fraction")
    return Fraction(clean, len(prompts))
