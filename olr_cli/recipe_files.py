"""Recipes on disk: YAML, overlays on a base, overrides from the command line, sweeps, and errors a user can act on."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from olr_cli import recipe as sections
from olr_cli.errors import UserError, did_you_mean
from olr_cli.recipe import Recipe
from olr_cli.recipe_methods import METHODS

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
    if path.is_file():
        return path
    folder = bundled_recipes()
    for candidate in (folder / path, folder / f"{path}.yaml"):
        if candidate.is_file():
            return candidate
    if path.is_dir():
        raise UserError(
            f"{path} is a folder, not a recipe; name a YAML file, `olr recipes ls` lists what comes with olr"
        )
    known = [str(p.relative_to(folder).with_suffix("")) for p in list_recipes()]
    wanted = str(path.with_suffix(""))
    raise UserError(
        f"no recipe at {path}{did_you_mean(wanted, known)}; `olr recipes ls` lists the recipes that come with olr"
    )


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
    """
    if file.resolve() in _seen:
        raise UserError(f"{file}: its `base` leads back to itself; remove one `base`")
    tree = _read_yaml(file)
    base = tree.pop("base", None)
    if base is None:
        return tree
    base_file = file.parent / str(base)
    if not base_file.is_file():
        base_file = bundled_recipes() / f"{str(base).removesuffix('.yaml')}.yaml"
    if not base_file.is_file():
        raise UserError(
            f"{file}: its base {base} is neither a file, relative to the recipe that names it, nor a recipe that comes"
            " with olr"
        )
    return overlay(read_tree(base_file, (*_seen, file.resolve())), tree)


def merged_text(file: Path) -> str:
    """A recipe's text, comments and all; if it builds on a base, the merged keys under its header instead."""
    text = file.read_text(encoding="utf-8")
    if "base" not in _read_yaml(file):
        return text
    header = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines(keepends=True))
    return "".join(header) + dump_yaml(read_tree(file))


def dump_yaml(tree: Mapping[str, Any]) -> str:
    """Plain values as YAML text, in their order."""
    from ruamel.yaml import YAML

    text = io.StringIO()
    YAML().dump(dict(tree), text)
    return text.getvalue()


def _read_yaml(file: Path) -> dict[str, Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        tree = YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8 text ({error.reason} at byte {error.start})") from None
    except YAMLError as error:
        raise UserError(f"{file} is not valid YAML: {' '.join(str(error).split())}") from None
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise UserError(
            f"{file} holds a {type(tree).__name__}, not the keys of a recipe (`olr recipes show laptop/quickstart`)"
        )
    return tree


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
            raise UserError(f"--set {setting}: expected key=value, as in --set train.epochs=5")
        _put(changes, key.strip(), _read_value(setting, text), f"--set {key.strip()}")
    return overlay(tree, changes)


def _read_value(setting: str, text: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError:
        raise UserError(f"--set {setting}: the value is not valid YAML; put quotes around text") from None


def _put(tree: dict[str, Any], dotted: str, value: Any, place: str) -> None:
    """Set a dotted key in `tree`; the keys of a section that is there already stay."""
    *sections_, last = dotted.split(".")
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
    runs = list(_sweep_runs(alone, whole.sweep, str(path)))
    places = [run.place for run in runs]
    for place in places:
        if places.count(place) > 1:
            raise UserError(
                f"{path}: {places.count(place)} runs of the sweep would lie at {place}; give arms names, and grid keys"
                " values, that differ in letters, digits, '.', '_', '+' or '-'"
            )
    return runs


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
                _put(changes, key, value, f"{source}: sweep.arms.{arm}, key '{key}'")
            for key, value in point.items():
                _put(changes, key, value, f"{source}: sweep.grid, key '{key}' on arm '{arm}'")
            parts = {key: f"{key.rpartition('.')[2]}-{value}" for key, value in point.items()}
            names = [arm, *(part for key, part in parts.items() if key != "seed")]
            label = "_".join(name for name in names if name) or "run"
            place = _folder_name("_".join(name for name in [label, parts.get("seed", "")] if name))
            yield SweepRun(label, place, validate(overlay(tree, changes), f"{source} [{place}]"))


def _folder_name(text: str) -> str:
    """`text` as the name of one folder, which no arm or value can lead out of the sweep's."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).lstrip(".") or "run"


def validate(tree: Mapping[str, Any], source: str) -> Recipe:
    """The recipe in `tree`.

    Raises:
        UserError: one sentence that names the source, the key, what is wrong and what would be right.
    """
    tree = dict(tree)
    for name, (tag, _) in _KINDS.items():
        section = tree.get(name)
        if isinstance(section, Mapping) and tag not in section:
            default = Recipe.model_fields[name].get_default()
            tree[name] = {tag: getattr(default, tag, "inactive"), **section}
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        problems = [_sentence(detail) for detail in error.errors()]
        more = f" (and {len(problems) - 1} more: {'; '.join(problems[1:])})" if len(problems) > 1 else ""
        raise UserError(f"{source}: {problems[0]}{more}") from None


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
        hint = did_you_mean(str(detail["ctx"]["tag"]), expected.replace("'", "").split(", "))
        return f"{place}.{tag} is '{detail['ctx']['tag']}'{hint}; known: {expected}"
    if detail["type"] == "value_error":
        message = str(detail["ctx"]["error"])
        return f"{place}: {message}" if place else message
    shown = repr(detail["input"])
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    if detail["type"] == "tuple_type":
        return f"{place} is {shown}: expected a list, as [{detail['input']}]"
    return f"{place} is {shown}: {detail['msg'][0].lower()}{detail['msg'][1:]}"


def _dotted(location: tuple[int | str, ...]) -> str:
    """A pydantic location as the key a user wrote: without the tags that tell a section's kind."""
    names = [str(part) for part in location]
    if len(names) > 1 and names[0] in _KINDS and names[1] in _KINDS[names[0]][1]:
        del names[1]
    return ".".join(names)


def _known_keys() -> list[str]:
    keys: list[str] = []
    for name, field in Recipe.model_fields.items():
        kinds: Iterable[Any] = _KINDS[name][1].values() if name in _KINDS else [field.annotation]
        keys.append(name)
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                keys += [f"{name}.{inner}" for inner in kind.model_fields]
    return keys
