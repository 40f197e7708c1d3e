"""Which engine a recipe asks for."""

from __future__ import annotations

from collections.abc import Callable

from olr_cli.engines.run import DataSets, Engine
from olr_cli.recipe.schema import OpenRlhfEngine, Recipe


def engine_of(recipe: Recipe) -> Callable[[Recipe, DataSets], Engine]:
    """The class of the recipe's engine; only its own packages are imported."""
    if isinstance(recipe.engine, OpenRlhfEngine):
        from olr_cli.engines.openrlhf.engine import OpenRlhfEngine as Chosen

        return Chosen
    from olr_cli.engines.local.loop import LocalEngine

    return LocalEngine
