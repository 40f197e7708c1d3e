"""Sweeps: several runs from one recipe, each with a name and a folder of its own."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from olr_cli.errors import UserError
from olr_cli.recipe.files import find_recipe, read_tree
from olr_cli.recipe.layers import overlay, override, put
from olr_cli.recipe.plain_yaml import shortened
from olr_cli.recipe.schema import Recipe, SweepSection
from olr_cli.recipe.validation import validate

_MOST_RUNS = 10_000
_LONGEST_PLACE = 200
"""Characters of a folder's name; file systems take 255 bytes, and a log's name is longer."""
_LOGS = "logs"
"""Where `olr train --sweep` puts what its runs say (`olr_cli.engines.sweep`)."""


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One run of a sweep: its arm (without the seed), its place below the sweep's folder, and its recipe."""

    arm: str
    place: str
    recipe: Recipe


def expand_sweep(path: str | Path, overrides: Iterable[str] = ()) -> list[SweepRun]:
    """Every run of a recipe's ``sweep``: arms times grid, in the file's order.

    Raises:
        UserError: the recipe has no sweep, or one of its runs is not valid.
    """
    overrides = list(overrides)
    tree = override(read_tree(find_recipe(path)), overrides)
    whole = validate(tree, str(path))
    if whole.sweep is None:
        raise UserError(f"{path} has no `sweep` section; train it without --sweep")
    alone = {key: value for key, value in tree.items() if key != "sweep"}
    _require_no_conflict(whole.sweep, overrides)
    _require_few(whole.sweep, str(path))
    runs = list(_sweep_runs(alone, whole.sweep, str(path)))
    _require_places(runs, str(path))
    return runs


def _require_few(sweep: SweepSection, source: str) -> None:
    count = max(1, len(sweep.arms)) * math.prod(map(len, sweep.grid.values()))
    if count > _MOST_RUNS:
        raise UserError(
            f"{source}: the sweep has {count:,} runs, and more than {_MOST_RUNS:,} can hardly be meant; shorten its"
            " grid"
        )


def _require_places(runs: Sequence[SweepRun], source: str) -> None:
    """Make sure that every run has a folder of its own, on file systems too that don't tell `a` from `A`."""
    places = Counter(run.place.casefold() for run in runs)
    for run in runs:
        if places[run.place.casefold()] > 1:
            raise UserError(
                f"{source}: {places[run.place.casefold()]} runs of the sweep would lie at {shortened(run.place)}; give"
                " arms names, and grid keys values, that differ in letters, digits, '.', '_', '+' or '-'"
            )
        if run.place.casefold() == _LOGS:
            raise UserError(f"{source}: the sweep's own logs lie at {_LOGS}; give that arm another name")
        if len(run.place) > _LONGEST_PLACE:
            raise UserError(
                f"{source}: a run of the sweep would lie at {shortened(run.place)}, a name of {len(run.place)}"
                f" characters; give arms names, and grid keys values, that make at most {_LONGEST_PLACE}"
            )


def _require_no_conflict(sweep: SweepSection, overrides: Iterable[str]) -> None:
    """Refuse an override of what arms or the grid set: some runs would follow it, under the names of arms, some not."""
    for key in (setting.partition("=")[0].strip() for setting in overrides):
        if key in sweep.grid:
            raise UserError(f"--set {key}: the sweep's grid sets that; use --set 'sweep.grid.{key}=[…]'")
        arms = [arm for arm, settings in sweep.arms.items() if key in settings]
        if arms:
            raise UserError(
                f"--set {key}: {len(arms)} of the sweep's arms set that ({arms[0]}, …); change it in a recipe of your"
                " own (`olr recipes cp`)"
            )


def _sweep_runs(tree: dict[str, Any], sweep: SweepSection, source: str) -> Iterator[SweepRun]:
    for arm, settings in (sweep.arms or {"": {}}).items():
        for values in itertools.product(*sweep.grid.values()):
            point = dict(zip(sweep.grid, values, strict=True))
            changes: dict[str, Any] = {}
            for key, value in settings.items():
                put(changes, key, value, f"{source}: sweep.arms.{shortened(arm)}, key '{shortened(key)}'")
            for key, value in point.items():
                put(
                    changes,
                    key,
                    value,
                    f"{source}: sweep.grid, key '{shortened(key)}' on arm '{shortened(arm)}'",
                )
            parts = {key: f"{key.rpartition('.')[2]}-{value}" for key, value in point.items()}
            names = [arm, *(part for key, part in parts.items() if key != "seed")]
            label = "_".join(name for name in names if name) or "run"
            place = _folder_name("_".join(name for name in [label, parts.get("seed", "")] if name))
            recipe = validate(overlay(tree, changes), f"{source} [{shortened(place)}]")
            if recipe.sweep is not None:
                raise UserError(
                    f"{source} [{shortened(place)}]: a sweep's run cannot be a sweep; remove that key"
                )
            yield SweepRun(label, place, recipe)


def _folder_name(text: str) -> str:
    """`text` as the name of one folder, which no arm or value can lead out of the sweep's."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).lstrip(".") or "run"
