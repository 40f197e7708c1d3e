"""Which of a step's prompts train."""

from __future__ import annotations

from collections.abc import Callable, Collection
from fractions import Fraction
from itertools import pairwise
from math import fsum, inf

from olr_cli import seeding
from olr_cli.data.prompts import Prompt
from olr_cli.errors import UserError
from olr_cli.recipe.methods import MethodSection
from olr_cli.supervision.types import Decided

RankRule = Callable[[Decided], list[float]]
"""Rank of each prompt of a step; the smallest train, infinite ones never."""


def small_loss(decided: Decided) -> list[float]:
    """loss(x) = abs(mean over the group's response tokens of A_k log pi_old(token)), in nats.

    The small-loss criterion (Gui et al. 2021, arXiv:2106.09291) takes samples with a small loss for cleanly labelled
    ones; the paper doesn't say which loss of GRPO that is, and the authors' code for it is commented
    out. The plain surrogate, the mean of A_k times a ratio of 1, is about 0 for every group, so it can't rank them.
    Groups of equal rewards have loss 0 and come first.
    """
    step = decided.step
    losses = []
    for start, end in pairwise(step.starts):
        lengths, means = (
            step.statistic(name, start, end) for name in ("tokens", "mean_logprob")
        )
        # Token by token: a response counts as often as it has tokens.
        rows = zip(decided.advantages[start:end], means, lengths, strict=True)
        losses.append(
            abs(
                fsum(advantage * mean * tokens for advantage, mean, tokens in rows)
                / sum(lengths)
            )
        )
    return losses


def any_prompt(decided: Decided) -> list[float]:
    """Rank all prompts alike, so that the draw that breaks ties chooses."""
    return [0.0] * len(decided.step.prompts)


def verified_only(decided: Decided) -> list[float]:
    """Train only prompts with a verified label: shows what those labels are worth alone."""
    return [0.0 if prompt.is_verified else inf for prompt in decided.step.prompts]


def prompts_that_train(
    decided: Decided, rank: RankRule, keep_fraction: Fraction, seed: int
) -> list[bool]:
    """Whether each prompt of a step trains: round(keep_fraction x prompts) of the smallest rank, at least one of those
    whose rank is finite; `keep_fraction` is in (0, 1].

    Ties are decided by a draw keyed by seed, prompt and visit (R18), so a random choice is another one in each epoch.
    """
    step = decided.step
    # Halves up: `round` would take them to the even number, 2 of 5 prompts at 1/2 but 4 of 7.
    kept = max(1, int(keep_fraction * len(step.prompts) + Fraction(1, 2)))
    ranked = [
        (value, seeding.uniform("training prompts", seed, prompt.prompt_id, visit), place)
        for place, (value, prompt, visit) in enumerate(
            zip(rank(decided), step.prompts, step.visits, strict=True)
        )
        if value < inf
    ]
    chosen = {place for *_, place in sorted(ranked)[:kept]}
    return [place in chosen for place in range(len(step.prompts))]


def keep_fraction(method: MethodSection, prompts: Collection[Prompt]) -> Fraction:
    """The share of a step's prompts that train: the recipe's, else 1 - the share of marked prompts among all."""
    if method.prompts in ("all", "verified"):
        return Fraction(1)
    if method.keep_fraction is not None:
        return Fraction(method.keep_fraction)
    why = f"method.prompts is {method.prompts} and method.keep_fraction is not set, so that 1 - the share of wrong"
    if any(prompt.noise_type is None for prompt in prompts):
        raise UserError(
            f"{why} labels would train, which is not known of these data",
            "set method.keep_fraction",
        )
    # The share of clean labels, as if each marked one were wrong.
    clean = sum(not prompt.is_marked for prompt in prompts)
    if clean == 0:
        raise UserError(
            f"{why} labels would train, which is none", "set method.keep_fraction"
        )
    return Fraction(clean, len(prompts))
