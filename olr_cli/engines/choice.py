"""Which engine a recipe asks for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from olr_cli.engines.run import DataSets, Engine
from olr_cli.recipe.schema import OpenRlhfEngine, Recipe


def engine_of(recipe: Recipe, lacking: list[str] | None = None) -> Callable[[Recipe, DataSets], Engine]:
    """The class of the recipe's engine; only its own packages are imported.

    Args:
        recipe: names the engine.
        lacking: of a dry run: takes a sentence for everything that this machine lacks, and the engine goes on.
    """
    if isinstance(recipe.engine, OpenRlhfEngine):
        from olr_cli.engines.openrlhf.engine import OpenRlhfEngine as Chosen

        return partial(Chosen, lacking=lacking)
    from olr_cli.engines.local.loop import LocalEngine

    return LocalEngine
