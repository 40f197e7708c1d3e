"""What is likely a mistake in a recipe, said before anything starts."""

from __future__ import annotations

from olr_cli.recipe import OlrMethod, Recipe


def recipe_warnings(recipe: Recipe) -> list[str]:
    """Sentences about settings that are allowed but can hardly be meant; those about data come later."""
    return [*_method_warnings(recipe), *_batch_warnings(recipe)]


def _method_warnings(recipe: Recipe) -> list[str]:
    method, train = recipe.method, recipe.train
    if not isinstance(method, OlrMethod):
        return []
    warnings = []
    steepest = 1.5 / train.epochs
    if "slope" in method.criteria and float(method.slope_threshold) >= steepest:
        warnings.append(
            f"method.slope_threshold {method.slope_threshold} is out of reach: over {train.epochs} epochs the steepest"
            f" slope is about {steepest:.3f}; try {0.2 / train.epochs:.3f} or more epochs"
        )
    if method.warmup_epochs >= train.epochs:
        warnings.append(
            f"method.warmup_epochs {method.warmup_epochs} leaves no epoch of {train.epochs} in which a label can be"
            " refined; lower it or train longer"
        )
    if train.rollouts_per_prompt < 4:
        warnings.append(
            f"train.rollouts_per_prompt {train.rollouts_per_prompt} makes a poor vote: a majority among fewer than 4"
            " rollouts is mostly chance"
        )
    return warnings


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
