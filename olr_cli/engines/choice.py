"""Which engine a recipe asks for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from olr_cli.engines.run import DataSets, Engine
from olr_cli.errors import Problems
from olr_cli.recipe.schema import OpenRlhfEngine, Recipe


def engine_of(recipe: Recipe) -> Callable[[Recipe, DataSets], Engine]:
    """The class of the recipe's engine; only its own packages are imported."""
    if isinstance(recipe.engine, OpenRlhfEngine):
        from olr_cli.engines.openrlhf.engine import OpenRlhfEngine as Chosen

        return Chosen
    from olr_cli.engines.local.loop import LocalEngine

    return LocalEngine


def sketch_of(recipe: Recipe, problems: Problems) -> Callable[[Recipe, DataSets], Engine] | None:
    """The engine of a dry run, which notes what is missing and shows the rest; None: this engine needs everything."""
    if not isinstance(recipe.engine, OpenRlhfEngine):
        return None
    from olr_cli.engines.openrlhf.engine import OpenRlhfEngine as Chosen

    return partial(Chosen, problems=problems)
