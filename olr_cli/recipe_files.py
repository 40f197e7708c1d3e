"""Recipes on disk: overlays on a base, overrides from the command line, sweeps, and errors a user can act on."""

from __future__ import annotations

import copy
import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from olr_cli import recipe as sections
from olr_cli.errors import UserError, did_you_mean
from olr_cli.recipe import Recipe
from olr_cli.recipe_methods import METHODS
from olr_cli.recipe_yaml import (
    NotPlain,
    dump_yaml,
    parse_yaml,
    read_text,
    read_yaml,
    require_plain,
    shortened,
    shown,
)

_KINDS: dict[str, tuple[str, dict[str, type[BaseModel]]]] = {
    "noise": (
        "type",
        {
            "inactive": sections.InactiveNoiseSection,
            "active": sections.ActiveNoiseSection,
            "mixed": sections.MixedNoiseSection,
        },
    ),
    "method": ("name", {kind.model_fields["name"].default: kind for kind in METHODS}),
    "engine": ("name", {"local": sections.LocalEngine, "openrlhf": sections.OpenRlhfEngine}),
}
"""Sections of several kinds: the key that tells the kind, and each kind's keys."""

_MOST_BASES = 20
_MOST_RUNS = 10_000
_LONGEST_PLACE = 200
"""Characters of a folder's name; file systems take 255 bytes, and a log's name is longer."""
_LOGS = "logs"
"""Where `olr train --sweep` puts what its runs say (`olr_cli.engines.sweep`)."""
_MOST_PROBLEMS = 6
"""Of a recipe with many mistakes, so many are told."""


def bundled_recipes() -> Path:
    """The folder of the recipes that come with the project, in a checkout as in an installed wheel."""
    package = Path(__file__).parent
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
    folder = bundled_recipes()
    known = [str(p.relative_to(folder).with_suffix("")) for p in list_recipes()]
    wanted = str(path.with_suffix(""))
    raise UserError(
        f"no recipe at {path}{did_you_mean(wanted, known)}; `olr recipes ls` lists the recipes that come with olr"
    )


def _bundled(name: Path) -> Path | None:
    """The recipe that comes with olr under that name; no name leads out of their folder."""
    if ".." in name.parts or name.is_absolute():
        return None
    folder = bundled_recipes()
    return next((file for file in (folder / name, folder / f"{name}.yaml") if os.path.isfile(file)), None)


def list_recipes() -> list[Path]:
    """Every bundled recipe file, sorted."""
    return sorted(bundled_recipes().rglob("*.yaml"))


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
    tag, kinds = _KINDS.get(name, ("", {}))
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
        _put(changes, key.strip(), _read_value(key.strip(), text), f"--set {shortened(key.strip())}")
    return overlay(tree, changes)


def _read_value(key: str, text: str) -> Any:
    try:
        return parse_yaml(text)
    except NotPlain as error:
        raise UserError(
            f"--set {shortened(key)}: the value {shortened(text)} {error}; put quotes around text"
        ) from None


def _put(tree: dict[str, Any], dotted: str, value: Any, place: str) -> None:
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


def _require_few(sweep: sections.SweepSection, source: str) -> None:
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


def _require_no_conflict(sweep: sections.SweepSection, overrides: Iterable[str]) -> None:
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


def _sweep_runs(tree: dict[str, Any], sweep: sections.SweepSection, source: str) -> Iterator[SweepRun]:
    for arm, settings in (sweep.arms or {"": {}}).items():
        for values in itertools.product(*sweep.grid.values()):
            point = dict(zip(sweep.grid, values, strict=True))
            changes: dict[str, Any] = {}
            for key, value in settings.items():
                _put(changes, key, value, f"{source}: sweep.arms.{shortened(arm)}, key '{shortened(key)}'")
            for key, value in point.items():
                _put(
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


def validate(tree: Mapping[str, Any], source: str) -> Recipe:
    """The recipe in `tree`.

    Raises:
        UserError: one sentence that names the source, the key, what is wrong and what would be right.
    """
    require_plain(tree, source)
    tree = dict(tree)
    for name, (tag, _) in _KINDS.items():
        section = tree.get(name)
        if isinstance(section, Mapping) and tag not in section:
            default = Recipe.model_fields[name].get_default()
            tree[name] = {tag: getattr(default, tag, "inactive"), **section}
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        details = error.errors()
        first, *others = [_sentence(detail) for detail in details[:_MOST_PROBLEMS]]
        if len(details) > _MOST_PROBLEMS:
            others.append("…")
        more = f" (and {len(details) - 1} more: {'; '.join(others)})" if others else ""
        raise UserError(f"{source}: {first}{more}") from None


def _sentence(detail: Any) -> str:
    place = _dotted(detail["loc"])
    if detail["type"] == "extra_forbidden":
        alike = [key for key in _known_keys() if key.count(".") == place.count(".")]
        deeper = [key for key in _known_keys() if key.endswith(f".{place}")]
        if place in alike:  # of another kind of the section
            section, _, key = place.partition(".")
            tag, kinds = _KINDS[section]
            owners = [kind for kind, model in kinds.items() if key in model.model_fields]
            return f"'{place}' is a key of {section}.{tag} {' and '.join(owners)} alone"
        hint = f" (did you mean '{deeper[0]}'?)" if deeper else did_you_mean(place, alike)
        return f"unknown key '{place}'{hint}"
    if detail["type"] == "union_tag_invalid":
        tag, expected = detail["ctx"]["discriminator"].strip("'"), detail["ctx"]["expected_tags"]
        named = detail["input"][tag]
        hint = did_you_mean(str(named), expected.replace("'", "").split(", "))
        return f"{place}.{tag} is {shown(named)}{hint}; known: {expected}"
    if detail["type"] == "value_error":
        message = str(detail["ctx"]["error"])
        return f"{place}: {message}" if place else message
    found = f"{place} is {shown(detail['input'])}"
    if detail["type"] in ("tuple_type", "list_type"):
        return f"{found}: expected a list, as [{shown(detail['input'])}]"
    if detail["type"] in ("model_type", "model_attributes_type", "dict_type"):
        return f"{found}: expected keys and their values, as {place}: {{key: value}}"
    return f"{found}: {detail['msg'][0].lower()}{detail['msg'][1:]}"


def _dotted(location: tuple[int | str, ...]) -> str:
    """A pydantic location as the key a user wrote: without the tags that tell a section's kind."""
    names = [str(part) for part in location]
    if len(names) > 1 and names[0] in _KINDS and names[1] in _KINDS[names[0]][1]:
        del names[1]
    return shortened(".".join(names))


def _known_keys() -> list[str]:
    keys: list[str] = []
    for name, field in Recipe.model_fields.items():
        kinds: Iterable[Any] = _KINDS[name][1].values() if name in _KINDS else [field.annotation]
        keys.append(name)
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                keys += [f"{name}.{inner}" for inner in kind.model_fields]
    return keys
