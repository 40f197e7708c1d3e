"""A dry run: what a run of a recipe would do, as far as this machine can tell.

The first command that somebody with a cluster types may come before data, packages and GPUs are there. What is missing
does not end a dry run: it is noted, stood in for, and listed at the end, and the exit status is 2 as for a run that
cannot start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from olr_cli.answers import default_extractor
from olr_cli.data.prompts import SYSTEM_PROMPT, Message, Prompt, PromptSet
from olr_cli.engines.launch import load_data, warnings
from olr_cli.engines.run import DataSets, Engine
from olr_cli.engines.steps import total_steps
from olr_cli.errors import NotHere, UserError
from olr_cli.recipe.checks import recipe_warnings
from olr_cli.recipe.schema import Recipe
from olr_cli.runs.directory import Kind, recipe_yaml
from olr_cli.supervision import compose

_EXAMPLE = Prompt(
    "example",
    (
        Message("system", SYSTEM_PROMPT),
        Message("user", "What is the sum of the first 100 positive integers?"),
    ),
    given_label="5050",
    true_answer="5050",
    noise_type="clean",
    rephrased=(Message("system", SYSTEM_PROMPT), Message("user", "Add up all integers from 1 to 100.")),
)


def rehearse(
    recipe: Recipe,
    make_engine: Callable[[Recipe, DataSets], Engine],
    *,
    kind: Kind = "training",
    lacking: list[str] | None = None,
) -> Iterator[str]:
    """What a run of this recipe would do, and one prompt exactly as the policy sees it; nothing is written.

    Args:
        recipe: what to do.
        make_engine: the engine's class.
        kind: `training`, or `rollouts` of an engine that only samples.
        lacking: what `make_engine` finds missing on this machine goes here; None: the engine raises it.

    Raises:
        UserError: the recipe cannot work anywhere, or, after the last line, it cannot run on this machine.
    """
    lacking = [] if lacking is None else lacking
    try:
        data, is_example = load_data(recipe, kind), False
    except NotHere as error:
        lacking.append(str(error))
        data, is_example = _example_data(recipe), True
    engine = make_engine(recipe, data)
    yield recipe_yaml(recipe)
    said = recipe_warnings(recipe) if is_example else warnings(recipe, data, kind)
    yield from (f"Warning: {warning}" for warning in [*said, *engine.warnings])
    yield from _amount(recipe, data.train, is_example=is_example)
    yield from engine.plan
    yield from _prompt(recipe, data.train.prompts[0], engine, is_example=is_example)
    if lacking:
        yield "missing here:"
        yield from (f"  - {sentence}" for sentence in lacking)
        raise UserError(f"this run cannot start here: {_things(len(lacking))} missing, listed above")


def _things(number: int) -> str:
    return "one thing is" if number == 1 else f"{number} things are"


def _example_data(recipe: Recipe) -> DataSets:
    """One prompt as many times as the recipe's `data.limit` says, or else as one step takes."""
    count = recipe.data.limit or recipe.train.prompts_per_step
    prompts = tuple(replace(_EXAMPLE, prompt_id=f"example {number}") for number in range(1, count + 1))
    train = PromptSet(prompts, pa.table({}), recipe.data.train)
    held_out = replace(train, prompts=prompts[:1])
    return DataSets(
        train,
        None if recipe.data.validation is None else held_out,
        None if recipe.data.test is None else held_out,
    )


def _amount(recipe: Recipe, train: PromptSet, *, is_example: bool) -> Iterator[str]:
    """How many prompts, steps and rollouts."""
    prompts = len(train.prompts)
    if is_example and recipe.data.limit is None:
        yield f"prompts, steps and rollouts: unknown without {recipe.data.train}"
        return
    views = len(compose(recipe.method).views)
    rollouts = prompts * recipe.train.epochs * recipe.train.rollouts_per_prompt * views
    if is_example:
        yield f"{prompts} prompts, if {recipe.data.train} holds as many as data.limit asks for"
    else:
        marked = sum(prompt.is_marked for prompt in train.prompts)
        yield f"{prompts} prompts from {train.source}, {marked} of them marked as noise"
    yield f"{total_steps(recipe, prompts)} steps, {rollouts:,} rollouts"


def _prompt(recipe: Recipe, prompt: Prompt, engine: Engine, *, is_example: bool) -> Iterator[str]:
    """A prompt in each of its views, its label, and how answers to it are read."""
    name = "an example prompt (the data is missing)" if is_example else f"prompt {prompt.prompt_id}"
    for view in compose(recipe.method).views:
        which = "" if view == "original" else f", {view},"
        yield f"{name}{which} as the policy sees it:"
        yield engine.render(prompt.turns(view))
    if is_example:
        return
    yield f"its label: {prompt.given_label}"
    yield f"answers are read by: {recipe.data.extractor or default_extractor(prompt.data_source)}"
