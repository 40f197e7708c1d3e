"""Recipes on disk: YAML as plain values, a recipe laid over its base, settings laid over a recipe, and sweeps."""

from __future__ import annotations

import copy
import io
import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from olr_cli.errors import UserError, no_path, shortened, shown
from olr_cli.files import read_text
from olr_cli.recipe.checks import MOST_LEVELS, validate
from olr_cli.recipe.schema import KINDS, Recipe, SweepSection

if TYPE_CHECKING:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

MOST_BYTES = 256 * 1024
MOST_VALUES = 20_000
"""Scalars, lists and mappings of a file."""
_MOST_BASES = 20
_MOST_RUNS = 10_000
_LONGEST_PLACE = 200
"""Characters of a folder's name; file systems take 255 bytes, and a log's name is longer."""
_LOGS = "logs"
"""Where `olr train --sweep` puts what its runs print (`olr_cli.engines.sweep`)."""


# A recipe by its name ---------------------------------------------------------------------------------------------


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
    remedy = "`olr recipes ls` lists the recipes that come with olr"
    if path.suffix == ".yaml":
        remedy += f", and `olr recipes cp laptop/quickstart {shortened(str(path))}` makes one of your own"
    raise no_path(path, remedy, bundled_names())


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
    """The names of the bundled recipes, in the order of `list_recipes`."""
    folder = bundled_recipes()
    return [str(path.relative_to(folder).with_suffix("")) for path in list_recipes()]


def load_recipe(path: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """The resolved recipe: defaults, then the file's base, the file, and the overrides (``key=value``).

    Raises:
        UserError: the file is missing or not YAML, a key is unknown, a value is wrong.
    """
    return _resolve(read_tree(find_recipe(path)), list(overrides), str(path))


def _resolve(tree: Mapping[str, Any], overrides: Sequence[str], source: str) -> Recipe:
    """The recipe of a file's keys and the settings laid over them; an error names the one that is wrong."""
    if overrides:
        with suppress(UserError):
            validate(tree, source)
            source = "--set"
    return validate(override(tree, overrides), source)


def read_tree(file: Path, _seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A recipe file as nested dictionaries, laid over its ``base``.

    The base is a path relative to the file, or the name of a bundled recipe (``laptop/quickstart``).

    Raises:
        UserError: the file or a base is missing, or does not hold the keys of a recipe.
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
        base_file = beside if os.path.isfile(beside) else _bundled(Path(base))
        if base_file is not None:
            return base_file
    raise UserError(
        f"{file}: its base {shown(base)} is neither a file, relative to the recipe that names it, nor a recipe that"
        " comes with olr"
    )


def merged_text(file: Path) -> str:
    """A recipe's text, comments and all; if it builds on a base, the merged keys under its header instead."""
    tree = _read_keys(file)
    text = read_text(file, at_most=MOST_BYTES)
    if "base" not in tree:
        return text
    header = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines(keepends=True))
    return "".join(header) + dump_yaml(read_tree(file))


def _read_keys(file: Path) -> dict[str, Any]:
    tree = read_yaml(file)
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        # A text is not quoted: the file may be a secret that is no recipe.
        kind = "a list" if isinstance(tree, list) else f"the value {shown(tree)}"
        kind = "text" if isinstance(tree, str) else kind
        raise UserError(
            f"{file} holds {kind}, not the keys of a recipe (`olr recipes show laptop/quickstart`)"
        )
    return tree


# YAML as plain values ---------------------------------------------------------------------------------------------


class NotPlain(ValueError):
    """Text that is not YAML of plain values; the message continues a sentence that names the place."""


def read_yaml(file: Path) -> Any:
    """The value in a YAML file.

    Raises:
        UserError: the file cannot be read, is not UTF-8 text, or is not YAML of plain values.
    """
    try:
        return parse_yaml(read_text(file, at_most=MOST_BYTES))
    except NotPlain as error:
        raise UserError(f"{file} {error}") from None


def read_pairs(option: str, words: Iterable[str], meaning: str) -> dict[str, Any]:
    """The values that a repeated option sets.

    Args:
        option: as it is typed, for errors.
        words: ``key=value`` each; a value is YAML (``0.5``, ``true``, ``{a: 1}``), and ``-`` in a key is ``_``.
        meaning: what a key is, with its article.

    Raises:
        UserError: a word is no ``key=value``, a key is named twice, or a value is not plain YAML.
    """
    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        key = name.strip().replace("-", "_")
        if not equals or not key.isidentifier():
            raise UserError(f"{option} is {shown(word)}; give {meaning} as key=value")
        if key in values:
            raise UserError(f"{option} names {key} twice; name it once")
        try:
            values[key] = parse_yaml(text)
        except NotPlain as error:
            raise UserError(f"{option} {key}: the value {error}") from None
    return values


def parse_yaml(text: str) -> Any:
    """The value of YAML 1.2 text; a date stays text.

    Raises:
        NotPlain: it is not YAML, too large, too deep, or has anchors, aliases or types; the message says where.
    """
    from ruamel.yaml.error import YAMLError

    try:
        _require_plain_events(text)
        return _reader().load(text)
    except NotPlain:
        raise
    except YAMLError as error:
        raise NotPlain(f"is not valid YAML: {_reason(error)}") from None
    except ValueError as error:
        raise NotPlain(f"has a number that cannot be read ({error})") from None


def _require_plain_events(text: str) -> None:
    """Refuse text whose values could fill the memory or choose their own type, before any value is made."""
    from ruamel.yaml import events

    values = levels = 0
    for event in _reader().parse(text):
        if isinstance(event, events.CollectionEndEvent):
            levels -= 1
        elif isinstance(event, events.NodeEvent):
            place = f"line {event.start_mark.line + 1}"
            if event.anchor is not None:
                name = "alias *" if isinstance(event, events.AliasEvent) else "anchor &"
                raise NotPlain(
                    f"has the {name}{shortened(event.anchor)} ({place}), and neither anchors nor aliases are"
                    " supported; write the value out"
                )
            tag = getattr(event, "tag", None)
            if tag not in (None, "!"):
                name = shortened(str(tag).replace("tag:yaml.org,2002:", "!!"))
                raise NotPlain(f"names a type of its own, {name} ({place}); remove it")
            values += 1
            if values > MOST_VALUES:
                raise NotPlain(f"has more than {MOST_VALUES:,} values ({place}); check what it is")
            if levels >= MOST_LEVELS:
                raise NotPlain(f"is nested more than {MOST_LEVELS} levels deep ({place}); check what it is")
            levels += isinstance(event, events.CollectionStartEvent)


def _reader() -> YAML:
    from ruamel.yaml import YAML
    from ruamel.yaml.constructor import SafeConstructor

    class Constructor(SafeConstructor):
        """YAML 1.2's plain values; a date stays the text that it is."""

    Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = Constructor
    return yaml


def _reason(error: YAMLError) -> str:
    """The parser's problem and its place, on one line."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None)
    if problem is None or mark is None:
        return shortened(" ".join(str(error).split()))
    return f"{' '.join(problem.split())[:160]} (line {mark.line + 1}, column {mark.column + 1})"


def dump_yaml(tree: Mapping[str, Any]) -> str:
    """Plain values as YAML text, in their order."""
    from ruamel.yaml import YAML

    text = io.StringIO()
    YAML().dump(dict(tree), text)
    return text.getvalue()


# Keys over keys ---------------------------------------------------------------------------------------------------


def overlay(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """`top` laid over `base`, section by section.

    If `top` changes the kind of a section (another noise, another engine), the base's keys that the new kind does not
    have are dropped. Another method drops all of them: it starts from its own defaults. An extractor is one kind
    and its text, so another one replaces it.
    """
    merged = dict(base)
    for name, value in top.items():
        below = merged.get(name)
        if isinstance(value, Mapping) and isinstance(below, Mapping) and name != "extractor":
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


def override(
    tree: Mapping[str, Any], overrides: Iterable[str], *, example: str = "train.epochs=5"
) -> dict[str, Any]:
    """`tree` with ``key=value`` settings laid over it; values are read as YAML, kinds of sections come first.

    `example` is what an error shows as a setting.
    """
    changes: dict[str, Any] = {}
    for setting in overrides:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise UserError(f"--set {shortened(setting)}: expected key=value, as in --set {example}")
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
    names = dotted.split(".")
    value = copy.deepcopy(value)  # a later key may be put into it, for this run of a sweep alone
    for depth, name in enumerate(names, start=1):
        is_section = depth < len(names) or isinstance(value, dict)
        if name in tree and isinstance(tree[name], dict) != is_section:
            raise UserError(
                f"{place}: '{name}' is set to a value and to a section at once; leave one of them out"
            )
        if depth < len(names):
            tree = tree.setdefault(name, {})
    tree[names[-1]] = tree.get(names[-1], {}) | value if isinstance(value, dict) else value


# Sweeps -----------------------------------------------------------------------------------------------------------


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
    below = read_tree(find_recipe(path))
    whole = _resolve(below, overrides, str(path))
    if whole.sweep is None:
        raise UserError(f"{path} has no `sweep` section; train it without --sweep")
    alone = {key: value for key, value in override(below, overrides).items() if key != "sweep"}
    _require_no_conflict(whole.sweep, overrides)
    count = max(1, len(whole.sweep.arms)) * math.prod(map(len, whole.sweep.grid.values()))
    if count > _MOST_RUNS:
        raise UserError(
            f"{path}: the sweep has {count:,} runs, and more than {_MOST_RUNS:,} can hardly be meant; shorten its grid"
        )
    runs = list(_sweep_runs(alone, whole.sweep, str(path)))
    _require_places(runs, str(path))
    return runs


def _require_places(runs: Sequence[SweepRun], source: str) -> None:
    """Require that every run has its own folder, also on file systems that treat `a` and `A` as one."""
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
    """Refuse to override a key that arms or the grid set: it would apply to some runs and not to others."""
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
                place = f"{source}: sweep.grid, key '{shortened(key)}' on arm '{shortened(arm)}'"
                put(changes, key, value, place)
            parts = {key: f"{key.rpartition('.')[2]}-{value}" for key, value in point.items()}
            names = [arm, *(part for key, part in parts.items() if key != "seed")]
            label = "_".join(name for name in names if name) or "run"
            place = folder_name("_".join(name for name in [label, parts.get("seed", "")] if name))
            recipe = validate(overlay(tree, changes), f"{source} [{shortened(place)}]")
            if recipe.sweep is not None:
                raise UserError(
                    f"{source} [{shortened(place)}]: a sweep's run cannot be a sweep; remove that key"
                )
            yield SweepRun(label, place, recipe)


def folder_name(text: str) -> str:
    """Text as the name of one folder, which leads nowhere else."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).lstrip(".") or "run"
