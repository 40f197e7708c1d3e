"""A sweep: all runs that a recipe's arms and grid describe."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from olr_cli.errors import UserError, at, shortened
from olr_cli.recipe.layers import (
    Layer,
    folder_name,
    marked,
    merged_keys,
    overlay,
    put,
    validate,
    with_layers,
)
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.sections import SweepSection

_LOGS = "logs"
"""Folder for the output of the runs of `olr train --sweep` (`olr_cli.engines.sweep`)."""


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One run of a sweep, as `expand_sweep` makes it.

    It has the name of the run's settings (`arm`), the run's folder relative to the folder of the sweep (`place`), and
    the run's recipe. Runs that differ only in their seed have the same `arm`.
    """

    arm: str
    """Its arm and values of the grid, without the seed."""

    place: str
    """Its folder below the sweep's."""

    recipe: Recipe


def expand_sweep(path: str | Path, overrides: Iterable[str] = ()) -> list[SweepRun]:
    """Return the runs that a recipe's section ``sweep`` describes: one for every arm at every point of the grid.

    An arm is a named set of keys with other values than the recipe's. The grid lists values for some keys, and a point
    of the grid is one combination of these values. All runs of the first arm come first, then those of the next arm.

    Args:
        path: a recipe file, or the name of a recipe that comes with olr.
        overrides: settings as texts ``key=value`` for all runs. They cannot set a key that an arm or the grid sets.

    Raises:
        UserError: the recipe has no sweep, a setting or key is wrong, or two runs would have the same folder.
    """
    overrides = list(overrides)
    whole, layers = with_layers(path, overrides)
    if whole.sweep is None:
        raise UserError(
            f"{path} has no `sweep` section",
            "leave this out, or write one into the recipe, such as `sweep: {grid:"
            " {method.name: [grpo, olr], seed: [0, 1, 2]}}` for six runs",
            "sweep",
        )
    alone = {key: value for key, value in merged_keys(layers).items() if key != "sweep"}
    _require_no_conflict(whole.sweep, overrides)
    runs = list(_sweep_runs(alone, whole.sweep, str(path), layers))
    # Compare in lower case, because some file systems treat `a` and `A` as one name.
    places = Counter([_LOGS, *(run.place.casefold() for run in runs)])
    for run in runs:
        if places[run.place.casefold()] > 1:
            raise UserError(
                f"{path}: {shortened(run.place)} would be the folder of two runs of the sweep, or of one and the"
                " sweep's logs",
                "give arms names, and grid keys values, that differ in letters, digits, '.', '_', '+'"
                " or '-'",
            )
    return runs


def _require_no_conflict(sweep: SweepSection, overrides: Iterable[str]) -> None:
    """Raise UserError if a setting ``key=value`` in `overrides` sets a key that an arm or the grid of the sweep sets.

    Such a setting could not apply to all runs of the sweep.
    """
    for key in (setting.partition("=")[0].strip() for setting in overrides):
        if key in sweep.grid:
            raise UserError(
                "the sweep's grid sets that", f"set 'sweep.grid.{key}=[…]'", f"set {key}"
            )
        arms = [arm for arm, settings in sweep.arms.items() if key in settings]
        if arms:
            raise UserError(
                f"{len(arms)} of the sweep's arms set that ({arms[0]}, …)",
                "change it in a recipe of your own (`olr recipes cp`)",
                f"set {key}",
            )


def _sweep_runs(
    tree: dict[str, Any], sweep: SweepSection, source: str, layers: Sequence[Layer]
) -> Iterator[SweepRun]:
    """Yield a run for every arm at every point of the grid, one arm after the other.

    An arm is a named set of keys with other values than the recipe's. A point of the grid is one combination of the
    values that the grid lists.

    Args:
        tree: the recipe's merged keys, without ``sweep``.
        sweep: arms and grid.
        source: the recipe's name in errors.
        layers: the layers that the recipe was merged from. They show which code the user has named, and which code only
            a stored recipe names.
    """
    # A grid alone has one arm, without a name.
    for arm, settings in (sweep.arms or {"": {}}).items():
        for values in itertools.product(*sweep.grid.values()):
            point = dict(zip(sweep.grid, values, strict=True))
            changes: dict[str, Any] = {}
            for key, value in (*settings.items(), *point.items()):
                with at(f"{source}: the sweep's arm '{shortened(arm)}'"):
                    put(changes, key, value)
            # The last part of a key is enough for a name; `expand_sweep` refuses names that become equal.
            parts = {
                key: f"{key.rpartition('.')[2]}-{value}" for key, value in point.items()
            }
            # The seed is part of the folder's name but not of the arm's: runs that differ only in it are averaged.
            seed = parts.pop("seed", "")
            label = "_".join(filter(None, (arm, *parts.values()))) or "run"
            place = folder_name("_".join(filter(None, (label, seed))))
            recipe = validate(overlay(tree, changes), f"{source} [{shortened(place)}]")
            # Marked for each run, because an arm may name code that the recipe itself does not.
            recipe = marked(recipe, layers)
            if recipe.sweep is not None:
                raise UserError(
                    f"{source} [{place}]: a sweep's run cannot be a sweep",
                    "remove that key",
                )
            yield SweepRun(label, place, recipe)
