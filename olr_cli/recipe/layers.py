"""Keys laid over keys: a recipe over its base, settings of the command line and of a sweep over a recipe."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from olr_cli.errors import UserError
from olr_cli.recipe.plain_yaml import NotPlain, parse_yaml, shortened
from olr_cli.recipe.schema import KINDS


def overlay(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """`top` laid over `base`, section by section.

    Where `top` changes the kind of a section (another kind of noise, another engine), the base's keys that the new
    kind does not have are dropped; another method drops them all, or its defaults would not be what makes it.
    """
    merged = dict(base)
    for name, value in top.items():
        below = merged.get(name)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            merged[name] = overlay(_keys_of_kind(name, below, value), value)
        else:
            merged[name] = value
    return merged


def _keys_of_kind(name: str, below: Mapping[str, Any], value: Mapping[str, Any]) -> Mapping[str, Any]:
    tag, kinds = KINDS.get(name, ("", {}))
    new = value.get(tag)
    if not isinstance(new, str) or new == below.get(tag) or new not in kinds:
        return below
    if name == "method":
        return {}
    return {key: kept for key, kept in below.items() if key in kinds[new].model_fields}


def override(tree: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """`tree` with ``key=value`` settings laid over it; values are read as YAML, kinds of sections come first."""
    changes: dict[str, Any] = {}
    for setting in overrides:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise UserError(f"--set {shortened(setting)}: expected key=value, as in --set train.epochs=5")
        put(changes, key.strip(), _read_value(key.strip(), text), f"--set {shortened(key.strip())}")
    return overlay(tree, changes)


def _read_value(key: str, text: str) -> Any:
    try:
        return parse_yaml(text)
    except NotPlain as error:
        raise UserError(
            f"--set {shortened(key)}: the value {shortened(text)} {error}; put quotes around text"
        ) from None


def put(tree: dict[str, Any], dotted: str, value: Any, place: str) -> None:
    """Set a dotted key in `tree`; the keys of a section that is there already stay."""
    *sections_, last = dotted.split(".")
    value = copy.deepcopy(value)  # which an alias may have put elsewhere too
    for name in sections_:
        inner = tree.setdefault(name, {})
        if not isinstance(inner, dict):
            raise UserError(
                f"{place}: '{name}' is set to a value and to a section at once; leave one of them out"
            )
        tree = inner
    if isinstance(tree.get(last), dict) != isinstance(value, dict) and last in tree:
        raise UserError(
            f"{place}: '{last}' is set to a value and to a section at once; leave one of them out"
        )
    tree[last] = tree.get(last, {}) | value if isinstance(value, dict) else value
