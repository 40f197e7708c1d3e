"""Choose which of a step's prompts train."""

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
"""Ranks each prompt of a step: the lowest ranks train, infinite ones never do."""


def small_loss(decided: Decided) -> list[float]:
    """Return the loss of each prompt of a step, in nats, as its rank; the prompts with the smallest losses train.

    The loss is the absolute value of a mean over the tokens of all responses to the prompt. Each token contributes
    A_k log pi_old(token), where A_k is its rollout's advantage. If all rewards of a prompt are equal, its loss is 0.

    The small-loss criterion (Gui et al. 2021, arXiv:2106.09291) assumes that samples with a small loss have correct
    labels.
    """
    # The OLR paper does not say which loss of GRPO it takes, and the authors' code for it is commented out. GRPO's own
    # loss cannot rank prompts: before the update, it is minus the mean of A_k, which is about 0 for every prompt.
    step = decided.step
    losses = []
    for start, end in pairwise(step.starts):
        lengths, logprobs = (
            step.statistic(name, start, end) for name in ("tokens", "mean_logprob")
        )
        # Mean times length is the sum over tokens, so that each token of the group weighs the same.
        terms = zip(decided.advantages[start:end], logprobs, lengths, strict=True)
        losses.append(
            abs(
                fsum(advantage * logprob * tokens for advantage, logprob, tokens in terms)
                / sum(lengths)
            )
        )
    return losses


def any_prompt(decided: Decided) -> list[float]:
    """Give all prompts of a step the same rank. A random draw then chooses which of them train."""
    return [0.0] * len(decided.step.prompts)


def verified_only(decided: Decided) -> list[float]:
    """Return rank 0 for each prompt with a verified label, which a person has checked, else infinity.

    Only the prompts with a verified label then train.
    """
    return [0.0 if prompt.is_verified else inf for prompt in decided.step.prompts]


def prompts_that_train(
    decided: Decided, rank: RankRule, keep_fraction: Fraction, seed: int
) -> list[bool]:
    """Return for each prompt of a step, in order, whether it trains.

    The prompts with the lowest ranks train: round(keep_fraction x number of prompts in the step) of them, at least one.
    Prompts of infinite rank never train. Ties are broken by a random number that depends only on seed, prompt and visit
    (R18).

    Args:
        decided: the decisions about the step.
        rank: returns one rank per prompt.
        keep_fraction: share of the step's prompts that train, above 0 and at most 1.
        seed: the run's seed.
    """
    step = decided.step
    # Round halves up. Python's `round` goes to the even number: at 1/2 it keeps 2 of 5 prompts but 4 of 7.
    kept = max(1, int(keep_fraction * len(step.prompts) + Fraction(1, 2)))
    ranked = [
        (
            rank_value,
            seeding.uniform("training prompts", seed, prompt.prompt_id, visit),
            index,
        )
        for index, (rank_value, prompt, visit) in enumerate(
            zip(rank(decided), step.prompts, step.visits, strict=True)
        )
        if rank_value < inf
    ]
    chosen = {index for *_, index in sorted(ranked)[:kept]}
    return [index in chosen for index in range(len(step.prompts))]


def keep_fraction(method: MethodSection, prompts: Collection[Prompt]) -> Fraction:
    """Return the share of a step's prompts that may train.

    It is 1 if the method takes all prompts or all verified ones. Otherwise it is the recipe's `method.keep_fraction`
    or, by default, the share of `prompts` that are not marked as noise.

    Raises:
        UserError: the default is needed, but all prompts are marked as noise, or it is unknown whether some label is
            noise.
    """
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
    # Treat every marked label as wrong; nothing here compares it with the true answer.
    clean = sum(not prompt.is_marked for prompt in prompts)
    if clean == 0:
        raise UserError(
            f"{why} labels would train, which is none", "set method.keep_fraction"
        )
    return Fraction(clean, len(prompts))
