"""Likely mistakes: settings that are allowed but hardly intended."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from olr_cli.recipe.methods import MethodSection, OlrMethod
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.sections import TrainSection


def recipe_warnings(recipe: Recipe) -> list[str]:
    """Return a warning (one sentence) for each setting of a recipe that is allowed but probably a mistake.

    Only the recipe is checked here, not its data.
    """
    return list(_warnings(recipe))


def code_notes(recipe: Recipe) -> list[str]:
    """Return a list with one note on the code from outside olr that a recipe runs; an empty list if it runs none.

    Such code is a function that the user has written, or code that comes with the model (`model.trust_remote_code`).
    The note names each function together with its key in the recipe.
    """
    named = [
        f"{', '.join(names)} ({key})" if names != ["true"] else key
        for key, names in recipe.code().items()
    ]
    return [f"Runs code that the recipe names: {', '.join(named)}."] if named else []


def _warnings(recipe: Recipe) -> Iterator[str]:
    """Yield a warning (one sentence) for each setting of a recipe that is allowed but probably a mistake."""
    yield from _refinement_warnings(recipe.method, recipe.train.epochs)
    yield from _label_warnings(recipe)
    yield from _update_warnings(recipe.train)


def _refinement_warnings(method: MethodSection, epochs: int) -> Iterator[str]:
    """Yield one warning if the method cannot replace any label within `epochs` epochs, else nothing.

    Two settings have this effect: a warm-up that lasts all epochs, and a slope threshold that no slope can exceed.
    """
    warmup = getattr(method, "warmup_epochs", 0)
    if warmup >= epochs:
        yield (
            f"method.warmup_epochs {warmup} leaves no epoch of {epochs} in which a label can be replaced; lower"
            " it or train longer"
        )
    elif isinstance(method, OlrMethod) and "slope" in method.criteria:
        # The first visit that may replace a label has the steepest possible slope; later visits are flatter.
        visit = min(max(2, warmup + 1), epochs)
        steepest = steepest_slope(visit)
        if Fraction(method.slope_threshold) >= steepest:
            remedy = f"try {0.2 / epochs:.3f}" if epochs > 1 else "train longer"
            yield (
                f"method.slope_threshold {method.slope_threshold} is out of reach: no slope exceeds"
                f" {float(steepest):.3f} at visit {visit}, and later ones are flatter; {remedy}"
            )


def _label_warnings(recipe: Recipe) -> Iterator[str]:
    """Yield a warning if fewer than 4 rollouts vote on a majority, and one if label noise cannot affect training.

    Noise cannot affect training if neither the rewards nor the choice of prompts depend on labels.
    """
    method, rollouts = recipe.method, recipe.train.rollouts_per_prompt
    if method.row.label in ("refined", "majority", "other_view", "own") and rollouts < 4:
        yield (
            f"train.rollouts_per_prompt {rollouts} makes a poor vote: a majority among fewer than 4"
            " rollouts is mostly chance"
        )
    has_noise = recipe.noise is not None and recipe.noise.ratio != 0
    chooses_by_labels = method.prompts != "all" and method.keep_fraction is None
    if has_noise and not method.row.uses_labels and not chooses_by_labels:
        yield (
            f"method {method.name} uses no labels: the noise changes the metrics of clean and noisy prompts, and"
            " nothing in training"
        )


def _update_warnings(train: TrainSection) -> Iterator[str]:
    """Yield a warning if the learning rate is low for LoRA, and one if mini-batches do not divide a step evenly.

    A mini-batch that is larger than a step also gives a warning.
    """
    prompts, mini = train.prompts_per_step, train.mini_batch_prompts
    if train.lora_rank is not None and train.learning_rate <= 2e-6:
        yield (
            f"train.learning_rate {train.learning_rate:g} hardly moves LoRA's adapters; they usually take ten times the"
            " learning rate of all weights"
        )
    # Null trains on the whole step at once, so nothing can fail to divide.
    if mini is None:
        return
    if mini > prompts:
        yield (
            f"train.mini_batch_prompts {mini} is more than train.prompts_per_step {prompts}: each step"
            " is one mini-batch"
        )
    elif prompts % mini:
        yield (
            f"train.mini_batch_prompts {mini} does not divide train.prompts_per_step {prompts}: the last"
            f" mini-batch of each step has {prompts % mini} prompts"
        )


def steepest_slope(visits: int) -> Fraction:
    """Return the largest slope that pass rates can have over this number of visits; 0 for fewer than two (R12).

    The slope is that of a least-squares line through the pass rates of a prompt, one per visit (epoch). It is largest
    if the first half of the rates is 0 and the second half is 1. With t visits, it is then 3t / (2 (t^2 - 1)) for even
    t, and 3 / (2t) for odd t.
    """
    if visits < 2:
        return Fraction(0)
    # Both formulas at once: the floor of t^2 / 4 is t^2 / 4 for even t and (t^2 - 1) / 4 for odd t.
    return Fraction(6 * (visits * visits // 4), visits * (visits * visits - 1))


def step_warnings(recipe: Recipe, prompts: int) -> list[str]:
    """Return a list with one warning if the last step of each epoch is not full; else an empty list.

    `prompts` is the number of training prompts. The last step is not full if this number is not a multiple of
    `train.prompts_per_step`.
    """
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
