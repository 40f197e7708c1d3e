"""Recipes on disk: those that come with olr, those that build on another, and the way to a checked one."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from olr_cli.errors import UserError, did_you_mean
from olr_cli.recipe.layers import overlay, override
from olr_cli.recipe.plain_yaml import dump_yaml, read_text, read_yaml, shown
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.validation import validate

_MOST_BASES = 20


def bundled_recipes() -> Path:
    """The folder of the recipes that come with the project, in a checkout as in an installed wheel."""
    package = Path(__file__).parents[1]
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parent / "recipes"


def find_recipe(name: str | Path) -> Path:
    """The file `name`, or the bundled recipe of that name (``laptop/quickstart``).

    Raises:
        UserError: no such file and no such bundled recipe.
    """
    path = Path(name)
    # os.path takes a name that is too long for one that does not exist; pathlib raises.
    if os.path.isfile(path):
        return path
    bundled = _bundled(path)
    if bundled is not None:
        return bundled
    if os.path.isdir(path):
        raise UserError(
            f"{path} is a folder, not a recipe; name a YAML file, `olr recipes ls` lists what comes with olr"
        )
    if os.path.exists(path):
        raise UserError(f"{path} is not a plain file; put the recipe into one")
    hint = did_you_mean(str(path.with_suffix("")), bundled_names())
    raise UserError(f"no recipe at {path}{hint}; `olr recipes ls` lists the recipes that come with olr")


def _bundled(name: Path) -> Path | None:
    """The recipe that comes with olr under that name; no name leads out of their folder."""
    if ".." in name.parts or name.is_absolute():
        return None
    folder = bundled_recipes()
    return next((file for file in (folder / name, folder / f"{name}.yaml") if os.path.isfile(file)), None)


def list_recipes() -> list[Path]:
    """Every bundled recipe file, sorted."""
    return sorted(bundled_recipes().rglob("*.yaml"))


def bundled_names() -> list[str]:
    """What the bundled recipes are found by, in the order of `list_recipes`."""
    folder = bundled_recipes()
    return [str(path.relative_to(folder).with_suffix("")) for path in list_recipes()]


def load_recipe(path: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """The resolved recipe: defaults, then the file's base, the file, and the overrides (``key=value``).

    Raises:
        UserError: the file is missing or not YAML, a key is unknown, a value is wrong.
    """
    file = find_recipe(path)
    return validate(override(read_tree(file), overrides), str(path))


def read_tree(file: Path, _seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A recipe file as nested dictionaries, laid over what its ``base`` key names.

    That is a file, relative to it, or a bundled recipe (``laptop/quickstart``).

    Raises:
        UserError: the file, or one that it builds on, is missing or no YAML of a recipe's keys.
    """
    if file.resolve() in _seen:
        raise UserError(f"{file}: its `base` leads back to itself; remove one `base`")
    tree = _read_keys(file)
    base = tree.pop("base", None)
    if base is None:
        return tree
    if len(_seen) == _MOST_BASES:
        raise UserError(f"{_seen[0]} builds on more than {_MOST_BASES} recipes, one on the other; merge some")
    return overlay(read_tree(_find_base(file, base), (*_seen, file.resolve())), tree)


def _find_base(file: Path, base: object) -> Path:
    if isinstance(base, str):
        beside = file.parent / base
        found = beside if os.path.isfile(beside) else _bundled(Path(base))
        if found is not None:
            return found
    raise UserError(
        f"{file}: its base {shown(base)} is neither a file, relative to the recipe that names it, nor a recipe that"
        " comes with olr"
    )


def merged_text(file: Path) -> str:
    """A recipe's text, comments and all; if it builds on a base, the merged keys under its header instead."""
    tree = _read_keys(file)
    text = read_text(file)
    if "base" not in tree:
        return text
    header = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines(keepends=True))
    return "".join(header) + dump_yaml(read_tree(file))


def _read_keys(file: Path) -> dict[str, Any]:
    tree = read_yaml(file)
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise UserError(
            f"{file} holds {_kind(tree)}, not the keys of a recipe (`olr recipes show laptop/quickstart`)"
        )
    return tree


def _kind(value: object) -> str:
    if isinstance(value, str):
        return "text"  # which may be anybody's: what is in it is not for an error message
    return "a list" if isinstance(value, list) else f"the value {shown(value)}"
