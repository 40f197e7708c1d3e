"""The data sets of a run, as its recipe asks for them."""

from __future__ import annotations

from decimal import Decimal

from olr_cli.data.noise import inject
from olr_cli.data.prompt_set import PromptSet
from olr_cli.data.prompts import NoiseType
from olr_cli.data.readers import read_prompts
from olr_cli.errors import UserError
from olr_cli.recipe import ActiveNoiseSection, MixedNoiseSection, NoiseDraw, Recipe


def training_prompts(recipe: Recipe) -> PromptSet:
    """The training prompts with the noise that the recipe asks for (R1).

    Raises:
        UserError: the data cannot be read, or cannot be given this noise.
    """
    noise = recipe.noise
    sentinel_type: NoiseType | None = None
    if noise is not None and noise.type != "mixed":
        sentinel_type = noise.type
    prompts = read_prompts(
        recipe.data.train,
        split="train",
        limit=recipe.data.limit,
        seed=recipe.seed,
        noise_type_of_sentinel=sentinel_type,
    )
    if noise is None:
        return prompts
    if noise.ratio is not None:
        share = noise.active_share if isinstance(noise, MixedNoiseSection) else Decimal(1)
        return inject(
            prompts, type=noise.type, ratio=noise.ratio, seed=recipe.noise_seed, active_share=share
        )
    if not any(prompt.is_marked for prompt in prompts.prompts):
        raise UserError(
            f"noise.type is {noise.type} but noise.ratio is not set, and {prompts.source} carries no marks;"
            " set noise.ratio or remove the noise section"
        )
    return prompts


def held_out_prompts(recipe: Recipe, source: str, split: str) -> PromptSet:
    """Prompts that are only measured; their gold is the true answer, or what the file says.

    Raises:
        UserError: the data cannot be read, or has prompts without any answer.
    """
    prompts = read_prompts(source, split=split, seed=recipe.seed)
    without = [
        prompt.prompt_id
        for prompt in prompts.prompts
        if prompt.true_answer is None and prompt.given_label is None
    ]
    if without:
        raise UserError(
            f"{prompts.source}: {len(without)} held-out prompts have no answer (the first: {without[0]}); remove them"
        )
    return prompts


def noise_draw(recipe: Recipe) -> NoiseDraw:
    """How an active noisy label is drawn from a visit's wrong answers (R3)."""
    noise = recipe.noise
    return noise.draw if isinstance(noise, ActiveNoiseSection | MixedNoiseSection) else "uniform"
