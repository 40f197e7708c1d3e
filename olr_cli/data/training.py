"""The data sets of a run, as its recipe asks for them."""

from __future__ import annotations

from decimal import Decimal

from olr_cli.data.noise import NoiseKind, describe_counts, inject
from olr_cli.data.prompt_set import PromptSet
from olr_cli.data.prompts import SENTINEL, NoiseType
from olr_cli.data.readers import read_prompts
from olr_cli.errors import UserError
from olr_cli.recipe.schema import ActiveNoiseSection, MixedNoiseSection, NoiseDraw, Recipe


def training_prompts(recipe: Recipe) -> PromptSet:
    """The training prompts with the noise that the recipe asks for (R1).

    Without a ratio, the file's own marks are that noise, so they must be of the recipe's type.

    Raises:
        UserError: the data cannot be read, cannot be given this noise, or carry marks of another type.
    """
    noise = recipe.noise
    prompts = read_prompts(
        recipe.data.train,
        split="train",
        limit=recipe.data.limit,
        seed=recipe.seed,
        noise_type_of_sentinel=sentinel_type(recipe),
    )
    if noise is None:
        return prompts
    if noise.ratio is not None:
        share = noise.active_share if isinstance(noise, MixedNoiseSection) else Decimal(1)
        return inject(prompts, type=noise.type, ratio=noise.ratio, seed=recipe.noise_seed, active_share=share)
    if not prompts.is_marked:
        raise UserError(
            f"noise.type is {noise.type} but noise.ratio is not set, and {prompts.source} carries no marks;"
            " set noise.ratio or remove the noise section"
        )
    found = _type_of_marks(prompts)
    if found != noise.type:
        untyped = " (sentinels without a noise type count as inactive)" if noise.type == "mixed" else ""
        raise UserError(
            f"noise.type is {noise.type}, but the marks of {prompts.source} are {found}:"
            f" {describe_counts(prompts)}{untyped}; set noise.type to {found}, or noise to null"
        )
    return prompts


def sentinel_type(recipe: Recipe) -> NoiseType:
    """What a sentinel row that does not name its noise type is (R1): the recipe's type, inactive if it names none."""
    return "active" if recipe.noise is not None and recipe.noise.type == "active" else "inactive"


def _type_of_marks(prompts: PromptSet) -> NoiseKind:
    """The kind of noise that a file's marks are; frozen noise (R4) is active noise."""
    kinds = {prompt.noise_type == "inactive" for prompt in prompts.prompts if prompt.is_marked}
    if len(kinds) == 2:
        return "mixed"
    return "inactive" if kinds == {True} else "active"


def held_out_prompts(recipe: Recipe, source: str, split: str) -> PromptSet:
    """Prompts that are only measured; their gold is the true answer, or a label that is not known to be noise.

    Raises:
        UserError: the data cannot be read, or has prompts without such an answer.
    """
    prompts = read_prompts(source, split=split, seed=recipe.seed)
    without = [prompt.prompt_id for prompt in prompts.prompts if prompt.gold in (None, SENTINEL)]
    if without:
        raise UserError(
            f"{prompts.source}: {len(without)} held-out prompts have no true answer, and no label that is not noise"
            f" (the first: {without[0]}); remove them"
        )
    return prompts


def noise_draw(recipe: Recipe) -> NoiseDraw:
    """How an active noisy label is drawn from a visit's wrong answers (R3)."""
    noise = recipe.noise
    return noise.draw if isinstance(noise, ActiveNoiseSection | MixedNoiseSection) else "uniform"
