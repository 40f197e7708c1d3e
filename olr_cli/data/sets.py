"""Read the data sets of a recipe: training prompts with noise and verified labels, and held-out prompts."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from olr_cli import seeding
from olr_cli.answers import is_placeholder
from olr_cli.data.noise import describe_counts, inject
from olr_cli.data.prompt_files import Reading, read_prompts
from olr_cli.data.prompts import NoiseType, PromptSet
from olr_cli.data.questions import normal_question, question_of
from olr_cli.data.verified import with_verified
from olr_cli.errors import UserError
from olr_cli.grouping import gathered
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.sections import ActiveNoiseSection, MixedNoiseSection, NoiseDraw


def recipe_reading(recipe: Recipe) -> Reading:
    """Return the settings for reading the recipe's files."""
    data = recipe.data
    return Reading(
        data.columns,
        system_prompt=data.system_prompt,
        decimal_comma=data.decimal_comma,
        encoding=data.encoding,
    )


def training_prompts(recipe: Recipe) -> PromptSet:
    """Return the prompts that the recipe trains on, with its noise and its verified labels (`training_data`)."""
    return training_data(recipe)[0]


def training_data(recipe: Recipe) -> tuple[PromptSet, PromptSet | None]:
    """Return the training prompts with the recipe's noise and verified labels, and the held-out prompts (R1).

    A verified label is a true answer that a person has checked. `data.verified` is a file of such labels, or a number
    of prompts to draw; the true answers of drawn prompts count as verified.

    If the recipe has noise without a ratio, no noise is added. The file must then already mark some labels as noise of
    the recipe's type.

    The held-out prompts are those of `data.train` that `data.held_out` keeps out of training. They are None if
    `data.held_out` is not set, or if `data.test` names other prompts.

    Raises:
        UserError: the data cannot be read, or do not fit the recipe's noise, verified labels or held-out share.
    """
    prompts, held_out = _split(recipe)
    prompts, verified = _with_noise(prompts, recipe), recipe.data.verified
    if verified is None:
        return prompts, held_out
    # Labels from a file also correct held-out prompts. A number of labels is drawn among the training prompts only.
    measured = [] if held_out is None or isinstance(verified, int) else held_out.prompts
    both = [*prompts.prompts, *measured]
    marked, notes = with_verified(
        both, verified, recipe.seed, prompts.source, recipe_reading(recipe)
    )
    facts = {"verified": str(verified)}
    if isinstance(verified, str):
        facts["verified.digest"] = hashlib.sha256(Path(verified).read_bytes()).hexdigest()
    if held_out is not None and measured:
        held_out = held_out.with_prompts(marked[len(prompts) :], {})
    return replace(
        prompts.with_prompts(marked[: len(prompts)], facts), notes=[*prompts.notes, *notes]
    ), held_out


def _split(recipe: Recipe) -> tuple[PromptSet, PromptSet | None]:
    """Split `data.train` into prompts that train and prompts that are held out, each in the file's order.

    If `data.held_out` is not set, or if `data.test` is set, all prompts train and the second result is None. All rows
    with the same question are on one side. A question without an answer to grade by is never held out.

    Raises:
        UserError: the data cannot be read, or no prompt is left for one of the two sides.
    """
    prompts = read_prompts(
        recipe.data.train,
        split="train",
        limit=recipe.data.limit,
        seed=recipe.seed,
        noise_type_of_sentinel=sentinel_type(recipe),
        reading=replace(recipe_reading(recipe), is_text_only=True),
    )
    share = recipe.data.held_out
    if share is None or recipe.data.test is not None:
        return prompts, None
    rows = gathered(
        (normal_question(prompt.messages), row)
        for row, prompt in enumerate(prompts.prompts)
    )
    measurable = [
        question_rows
        for question_rows in rows.values()
        if not any(is_placeholder(prompts.prompts[row].gold or "") for row in question_rows)
    ]

    def hash_of(question_rows: list[int]) -> int:
        """Return a hash of a question's text and the recipe's seed; the questions with the lowest hashes are held out.

        `question_rows` are the indices of the question's rows.
        """
        # Don't change this key: another one would draw other prompts, and runs that have begun could not resume.
        text = question_of(prompts.prompts[question_rows[0]].messages).casefold()
        return seeding.key("held out", recipe.seed, text)

    wanted, drawn = max(1, round(share * len(prompts))), set[int]()
    for question_rows in sorted(measurable, key=hash_of):
        # The last question may add more rows than are wanted, because all rows of a question stay together.
        if len(drawn) < wanted:
            drawn.update(question_rows)
    rest = [row for row in range(len(prompts)) if row not in drawn]
    if not drawn or not rest:
        raise UserError(
            f"data.held_out is {share:g}, and {prompts.source} has {len(measurable)} questions with an answer to"
            " measure by, which leaves none to hold out or none to train",
            "give more data, or set data.held_out=null",
        )
    held_out = replace(prompts.subset(sorted(drawn)), source=f"{prompts.source} (held out)")
    return prompts.subset(rest), held_out


def _with_noise(prompts: PromptSet, recipe: Recipe) -> PromptSet:
    """Return the prompts with the recipe's noise.

    If `noise.ratio` is set, noise is injected. If not, the prompts are returned unchanged. A noise section without a
    ratio needs prompts that are already marked with its type.

    Raises:
        UserError: noise cannot be injected or, without a ratio, such marks are missing or of another type.
    """
    noise = recipe.noise
    if noise is None:
        return prompts
    if noise.ratio is not None:
        share = noise.active_share if isinstance(noise, MixedNoiseSection) else Decimal(1)
        seed = recipe.seed if noise.seed is None else noise.seed
        return inject(
            prompts, type=noise.type, ratio=noise.ratio, seed=seed, active_share=share
        )
    if not prompts.is_marked:
        raise UserError(
            f"noise.type is {noise.type} but noise.ratio is not set, and {prompts.source} carries no marks",
            "set noise.ratio or remove the noise section",
        )
    # Only inactive noise differs here: frozen noise (R4) counts as active.
    kinds = {
        prompt.noise_type == "inactive" for prompt in prompts.prompts if prompt.is_marked
    }
    marks = "mixed" if len(kinds) == 2 else "inactive" if True in kinds else "active"
    if marks != noise.type:
        untyped = (
            " (sentinels without a noise type count as inactive)"
            if noise.type == "mixed"
            else ""
        )
        raise UserError(
            f"noise.type is {noise.type}, but the marks of {prompts.source} are {marks}:"
            f" {describe_counts(prompts)}{untyped}",
            f"set noise.type to {marks}, or noise to null",
        )
    return prompts


def sentinel_type(recipe: Recipe) -> NoiseType:
    """Return the noise type of rows that have the sentinel as their label and name no type (R1).

    The sentinel is the text by which noise replaces a label. The type is ``active`` if the recipe's noise is active,
    else ``inactive``.
    """
    return (
        "active"
        if recipe.noise is not None and recipe.noise.type == "active"
        else "inactive"
    )


def held_out_prompts(recipe: Recipe, source: str, split: str) -> PromptSet:
    """Read prompts that are only evaluated.

    Each prompt needs a right answer: a true answer, or a label that is not known to be noise. `source` is a file, a
    built-in set or a hub id, as for `read_prompts`. `split` is ``validation`` or ``test``.

    Raises:
        UserError: the prompts cannot be read, or one has neither a true answer nor a clean label.
    """
    # Files of held-out prompts may have columns of standard names, other than those that `data.columns` names.
    reading = replace(recipe_reading(recipe), are_optional=True, is_text_only=True)
    prompts = read_prompts(source, split=split, seed=recipe.seed, reading=reading)
    without = [
        row
        for row, prompt in enumerate(prompts.prompts)
        if is_placeholder(prompt.gold or "")
    ]
    if without:
        raise UserError(
            f"{prompts.source}: {len(without)} held-out prompts have neither a true answer nor a clean label (first:"
            f" {prompts.name(without[0])})",
            "remove them",
        )
    return prompts


def noise_draw(recipe: Recipe) -> NoiseDraw:
    """Return the rule by which an active noisy label is drawn from the wrong answers of a visit (R3).

    A visit is the group of rollouts of one prompt at one step. The rule is ``uniform`` if the recipe has no active
    noise.
    """
    noise = recipe.noise
    return (
        noise.draw
        if isinstance(noise, ActiveNoiseSection | MixedNoiseSection)
        else "uniform"
    )
