"""What is likely a mistake in a recipe, said before anything starts."""

from __future__ import annotations

from fractions import Fraction

from olr_cli.recipe.methods import CoRewardMethod, OlrMethod, TtrlMethod
from olr_cli.recipe.schema import Recipe


def recipe_warnings(recipe: Recipe) -> list[str]:
    """Sentences about settings that are allowed but can hardly be meant; those about data come later."""
    return [*_method_warnings(recipe), *_batch_warnings(recipe)]


def _method_warnings(recipe: Recipe) -> list[str]:
    warnings = _refinement_warnings(recipe)
    method, rollouts = recipe.method, recipe.train.rollouts_per_prompt
    if isinstance(method, OlrMethod | TtrlMethod | CoRewardMethod) and rollouts < 4:
        warnings.append(
            f"train.rollouts_per_prompt {rollouts} makes a poor vote: a majority among fewer than 4 rollouts is mostly"
            " chance"
        )
    has_noise = recipe.noise is not None and recipe.noise.ratio != 0
    if (
        not method.needs_labels
        and has_noise
        and (method.prompts == "all" or method.keep_fraction is not None)
    ):
        warnings.append(
            f"method {method.name} uses no labels: the noise changes the metrics of clean and noisy prompts, and"
            " nothing in training"
        )
    return warnings


def _refinement_warnings(recipe: Recipe) -> list[str]:
    method, train = recipe.method, recipe.train
    if not isinstance(method, OlrMethod):
        return []
    visit = min(max(2, method.warmup_epochs + 1), train.epochs)
    steepest = steepest_slope(visit)
    if method.warmup_epochs >= train.epochs:
        return [
            f"method.warmup_epochs {method.warmup_epochs} leaves no epoch of {train.epochs} in which a label can be"
            " refined; lower it or train longer"
        ]
    if "slope" in method.criteria and Fraction(method.slope_threshold) >= steepest:
        remedy = f"try {0.2 / train.epochs:.3f}" if train.epochs > 1 else "train longer"
        return [
            f"method.slope_threshold {method.slope_threshold} is out of reach: no slope exceeds {float(steepest):.3f}"
            f" at visit {visit}, and later ones are flatter; {remedy}"
        ]
    return []


def steepest_slope(visits: int) -> Fraction:
    """The largest slope (Eq. slope, R12) that so many pass rates can have; 0 for one.

    The slope is sum x(i) p(i) / sum x(i)^2 with centred x, so p is best 0 where x is negative and 1 where it is
    positive. That gives 3 t / (2 (t^2 - 1)) for an even number t of visits and 3 / (2 t) for an odd one.
    """
    if visits < 2:
        return Fraction(0)
    return Fraction(6 * (visits * visits // 4), visits * (visits * visits - 1))


def _batch_warnings(recipe: Recipe) -> list[str]:
    train = recipe.train
    mini = train.mini_batch_prompts
    if mini is None:
        return []
    if mini > train.prompts_per_step:
        return [
            f"train.mini_batch_prompts {mini} is more than train.prompts_per_step {train.prompts_per_step}: each step"
            " is one mini-batch"
        ]
    if train.prompts_per_step % mini:
        return [
            f"train.mini_batch_prompts {mini} does not divide train.prompts_per_step {train.prompts_per_step}: the last"
            f" mini-batch of each step has {train.prompts_per_step % mini} prompts"
        ]
    return []


def step_warnings(recipe: Recipe, prompts: int) -> list[str]:
    """Sentences about how the prompts divide into steps."""
    size = recipe.train.prompts_per_step
    if size > prompts:
        return [
            f"train.prompts_per_step {size} is more than the {prompts} training prompts: one step an epoch"
        ]
    if prompts % size:
        return [
            f"{prompts} prompts do not divide into steps of {size}: the last of each epoch has {prompts % size}"
        ]
    return []
