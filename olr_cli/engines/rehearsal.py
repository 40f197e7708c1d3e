"""A dry run: what a run of a recipe would do, and one prompt exactly as the policy sees it; nothing is written."""

from __future__ import annotations

from collections.abc import Callable

from olr_cli.answers import default_extractor
from olr_cli.data.prompt_set import PromptSet
from olr_cli.data.prompts import SYSTEM_PROMPT, Message, Prompt
from olr_cli.engines.launch import load_data, warnings
from olr_cli.engines.run import DataSets, Engine
from olr_cli.engines.steps import total_steps
from olr_cli.errors import Problems, UserError
from olr_cli.recipe.schema import Recipe
from olr_cli.runs.directory import Kind, recipe_yaml
from olr_cli.supervision import compose

_QUESTION = "What is the sum of all positive divisors of 28?"
_REPHRASED = "Add up every positive integer that divides 28. What do you get?"


def rehearse(
    recipe: Recipe,
    make_engine: Callable[[Recipe, DataSets], Engine],
    *,
    kind: Kind = "training",
    problems: Problems | None = None,
) -> list[str]:
    """What a run would do, a line or paragraph each.

    Args:
        recipe: what to do.
        make_engine: the engine's class; with `problems`, one that goes on after what it notes there.
        kind: of the run.
        problems: takes what is missing here, and the rest is shown as far as it can be.

    Raises:
        UserError: without `problems`: the run would be refused.
    """
    try:
        data, is_example = load_data(recipe, kind), False
    except UserError as error:
        if problems is None:
            raise
        problems.note(error)
        data, is_example = example_data(recipe), True
    engine = make_engine(recipe, data)
    prompts = data.train.prompts
    steps = total_steps(recipe, len(prompts))
    views = compose(recipe.method).views
    rollouts = len(prompts) * recipe.train.epochs * recipe.train.rollouts_per_prompt * len(views)
    first, shown = prompts[0], []
    for view in views:
        which = "" if view == "original" else f", {view},"
        title = f"prompt {first.prompt_id}{which}" if not is_example else f"an example of a prompt{which}"
        shown += [f"{title} as the policy sees it:", engine.render(first.turns(view))]
    warned = [*([] if is_example else warnings(recipe, data, kind)), *engine.warnings]
    return [
        recipe_yaml(recipe),
        *(f"Warning: {warning}" for warning in warned),
        f"{len(prompts)} prompts from {data.train.source}"
        + ("" if is_example else f", {sum(p.is_marked for p in prompts)} of them marked as noise"),
        f"{steps} steps, {rollouts:,} rollouts",
        *engine.plan,
        *shown,
        *([] if is_example else [f"its label: {first.given_label}"]),
        f"answers are read by: {recipe.data.extractor or default_extractor(first.data_source)}",
    ]


def example_data(recipe: Recipe) -> DataSets:
    """As many copies of an example as the recipe would train on, in place of data that are not here."""
    import pyarrow as pa

    count = recipe.data.limit or recipe.train.prompts_per_step
    asked, rephrased = (
        (Message("system", SYSTEM_PROMPT), Message("user", question)) for question in (_QUESTION, _REPHRASED)
    )
    prompts = tuple(
        Prompt(str(number), asked, given_label="56", true_answer="56", noise_type=None, rephrased=rephrased)
        for number in range(count)
    )
    source = f"{recipe.data.train}, which could not be read here"
    return DataSets(PromptSet(prompts, pa.table({}), source), None, None)
