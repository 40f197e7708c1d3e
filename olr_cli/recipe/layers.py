"""From files, settings and sweeps to a recipe, or to an error in one sentence.

A recipe is made of layers: the file's bases, the file, and a command's settings. Each layer overrides the one below it,
and an error names the layer that set the wrong value.
"""

from __future__ import annotations

import copy
import functools
import itertools
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from olr_cli.errors import UserError, at, no_path, shortened, shown
from olr_cli.files import read_text
from olr_cli.recipe.plain import (
    MOST_BYTES,
    NotPlain,
    dump_yaml,
    parse_yaml,
    read_yaml,
    require_plain,
)
from olr_cli.recipe.schema import KINDS, Recipe
from olr_cli.recipe.section import flatten
from olr_cli.recipe.sentences import dotted_key, sentence_of

_MOST_PROBLEMS = 6
"""Most mistakes of one recipe that a message lists."""


# A recipe by its name ---------------------------------------------------------------------------------------------


def bundled_recipes() -> Path:
    """Return the folder of the recipes that come with olr, in a clone or in an installed wheel."""
    package = Path(__file__).parents[1]
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parent / "recipes"


def find_recipe(name: str | Path) -> Path:
    """Return the path of a recipe file, given its path or the name of a recipe that comes with olr.

    If `name` fits both, the file with this path is returned. Raise UserError if it fits neither. Also raise it if the
    file's ending (.csv, .tsv, .jsonl, .parquet) shows that it is a data set.
    """
    path = Path(name)
    # os.path returns False for a name that is too long; pathlib raises.
    if os.path.isfile(path):
        # A likely first try is `olr train mine.csv`; tell the user the command that does it.
        if path.suffix in (".csv", ".tsv", ".jsonl", ".parquet"):
            raise UserError(
                f"{path} is a data set and no recipe",
                "to train on it: olr train own-data --set"
                f" data.train={shlex.quote(str(path))} --set model.path=MODEL",
            )
        return path
    if bundled := _bundled(path):
        return bundled
    raise no_path(
        path,
        "`olr recipes ls` lists the recipes that come with olr",
        list(recipes_by_name()),
    )


def _bundled(name: Path) -> Path | None:
    """Return the file of the bundled recipe with this name (``laptop/quickstart``), or None if there is none.

    Bundled recipes come with olr. The name may end in ``.yaml``. An absolute path, or one with ``..``, is never found.
    """
    # No name may lead out of the folder of recipes.
    if ".." in name.parts or name.is_absolute():
        return None
    folder = bundled_recipes()
    return next(
        (file for file in (folder / name, folder / f"{name}.yaml") if os.path.isfile(file)),
        None,
    )


def recipes_by_name() -> dict[str, Path]:
    """Return a dictionary of the recipes that come with olr: name -> file, sorted by file.

    A name is the file's path in the folder of recipes without its ending, such as ``laptop/quickstart``.
    """
    folder = bundled_recipes()
    files = sorted(folder.rglob("*.yaml"))
    return {str(file.relative_to(folder).with_suffix("")): file for file in files}


def load_recipe(path: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """Return a recipe with a value for every key.

    The value comes from `overrides`, else from the file, else from the recipe that the file names as its ``base``. A
    key that none of these sets has its default. Raise UserError if there is no such recipe, or a key is wrong.

    Args:
        path: a recipe file, or the name of a recipe that comes with olr.
        overrides: settings as texts ``key=value``, with dotted keys such as ``train.epochs``.
    """
    return with_layers(path, overrides)[0]


@dataclass(frozen=True, slots=True)
class Layer:
    """The keys that one source of a recipe sets, as nested dictionaries.

    A source is a recipe file, the base that a recipe file builds on, or the settings of a command. A recipe is merged
    from several layers. Later ones override earlier ones.
    """

    source: str
    """A file's name, or ``set`` for the settings of a command."""

    keys: Mapping[str, Any]
    is_stored: bool = False
    """Whether the keys come from a file that a run has stored, or from the base of such a file.

    They may then be a stranger's.
    """


def with_layers(path: str | Path, overrides: Iterable[str]) -> tuple[Recipe, list[Layer]]:
    """Return a recipe with a value for every key, and the layers that it was merged from.

    A layer holds the keys that one source sets. First come the bases that the file builds on, then the file, and last
    the settings in `overrides`, if there are any. Later layers override earlier ones. Raise UserError if there is no
    such recipe, or a key is wrong.

    Args:
        path: a recipe file, or the name of a recipe that comes with olr. The file's layer has this as its `source`.
        overrides: settings as texts ``key=value``, with dotted keys such as ``train.epochs``.
    """
    *bases, mine = _layers_of(find_recipe(path))
    with at("set"):
        settings = override({}, overrides)
    of_command = [Layer("set", settings)] if settings else []
    layers = [*bases, replace(mine, source=str(path)), *of_command]
    return marked(_resolved(layers), layers), layers


def marked(recipe: Recipe, layers: Sequence[Layer]) -> Recipe:
    """Return a copy of the recipe in which keys that name code are marked if only a stored recipe sets them.

    Code is a function from outside olr, or comes with the model. A stored recipe lies in the folder of a run, so a
    stranger may have written it. `Recipe.require_named` therefore refuses to run the code of marked keys. If the user's
    own file or settings name the same code, the key gets no mark.

    `layers` are the layers that the recipe was merged from. Each says whether its keys come from a stored recipe.
    """
    of_user: list[tuple[str, str]] = []
    for layer in layers:
        if not layer.is_stored:
            for key, value in flatten(dict(layer.keys)).items():
                of_user += [(key, name) for name in _leaves(value)]

    def is_users(place: str, name: str) -> bool:
        # Compare values too: the user's choice of one function must not grant another one that a stored layer sets. A
        # sweep of the user's names code as well, hence `in`: its key is `sweep.grid.method.name`.
        return any(place in key and name == value for key, value in of_user)

    return recipe.of_strangers(
        place
        for place, names in recipe.code().items()
        if not all(is_users(place, name) for name in names)
    )


def _leaves(value: Any) -> Iterator[str]:
    """Yield as text every value inside nested lists and dictionaries, or `value` itself if it is neither.

    True becomes ``true``, as YAML writes it.
    """
    if isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    else:
        yield "true" if value is True else str(value)


def merged_keys(layers: Iterable[Layer]) -> dict[str, Any]:
    """Return the keys of all layers as one nested dictionary; later layers override earlier ones (`overlay`)."""
    return functools.reduce(overlay, (layer.keys for layer in layers), {})


def read_tree(file: Path) -> dict[str, Any]:
    """Return the keys of a recipe file and of its base, merged into nested dictionaries.

    The base is the recipe that the key ``base`` names. The file's own keys override those of the base.
    """
    return merged_keys(_layers_of(file))


def _layers_of(file: Path) -> list[Layer]:
    """Return the layers of a recipe file: first those of the recipes that it builds on, and last its own.

    A layer holds the keys that one file sets. The key ``base`` of a file names the recipe that it builds on, which may
    have a base too. Raise UserError if a base does not exist, or if a file would build on itself.
    """
    layers: list[Layer] = []
    seen: set[Path] = set()
    is_stored = False
    while True:
        if file.resolve() in seen:
            raise UserError(f"{file}: its `base` leads back to itself", "remove one `base`")
        seen.add(file.resolve())
        keys = _read_keys(file)
        base = keys.pop("base", None)
        # The base of a stored recipe is as foreign as the recipe itself.
        is_stored = is_stored or file.with_name("manifest.json").exists()
        layers.insert(0, Layer(str(file), keys, is_stored))
        if base is None:
            return layers
        file = _find_base(file, base)


def _find_base(file: Path, base: object) -> Path:
    """Return the file of the base that a recipe builds on; raise UserError if there is none.

    `base` is the value of the key ``base`` in the recipe `file`: a path relative to `file`, or the name of a recipe
    that comes with olr.
    """
    if isinstance(base, str):
        beside = file.parent / base
        if base_file := beside if os.path.isfile(beside) else _bundled(Path(base)):
            return base_file
    raise UserError(
        f"{file}: its base {shown(base)} is neither a file, relative to the recipe that names it, nor a recipe that"
        " comes with olr",
        "correct it",
    )


def merged_text(file: Path) -> str:
    """Return a recipe as text that needs no other file, because the keys of its base are merged into it.

    If the file has no key ``base``, this is the file's own text. Otherwise it is the comments at the top of the file,
    followed by the merged keys of the file and its bases as YAML.
    """
    tree = _read_keys(file)
    text = read_text(file, at_most=MOST_BYTES)
    if "base" not in tree:
        return text
    header = itertools.takewhile(
        lambda line: line.startswith("#"), text.splitlines(keepends=True)
    )
    return "".join(header) + dump_yaml(read_tree(file))


def _read_keys(file: Path) -> dict[str, Any]:
    """Return the keys that one recipe file sets, among them ``base`` if it has that key.

    The keys of the base itself are not read. An empty file gives an empty dictionary. Raise UserError if the file holds
    anything but a mapping.
    """
    tree = read_yaml(file)
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        # Do not quote a text: the file may be a secret and no recipe at all.
        kind = "a list" if isinstance(tree, list) else f"the value {shown(tree)}"
        kind = "text" if isinstance(tree, str) else kind
        raise UserError(
            f"{file} holds {kind}, not the keys of a recipe",
            "write it like `olr recipes show laptop/quickstart`",
        )
    return tree


# Keys over keys ---------------------------------------------------------------------------------------------------


def overlay(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of `base` overridden by those of `top`, merged section by section.

    Some sections have several kinds, which one key selects (`noise.type`, `engine.name`). If `top` selects another
    kind, keys of `base` that the new kind lacks are dropped. If `top` selects another method (`method.name`), all keys
    of the section `method` in `base` are dropped, because each method has its own defaults.

    A mapping under the key ``extractor`` is not merged but replaced as a whole.
    """
    merged = dict(base)
    for name, value in top.items():
        below = merged.get(name)
        if (
            isinstance(value, Mapping)
            and isinstance(below, Mapping)
            and name != "extractor"
        ):
            merged[name] = overlay(_keys_of_kind(name, below, value), value)
        else:
            merged[name] = value
    return merged


def _keys_of_kind(
    name: str, below: Mapping[str, Any], above: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return those keys of a section that stay when the keys `above` are laid over them.

    All keys stay if `above` does not change the section's kind (such as `noise.type`), or if it names an unknown kind.
    If it selects another method, all keys are dropped. If it selects another kind of another section, the keys that
    this kind lacks are dropped.

    Args:
        name: the section's name, such as ``noise``.
        below: the section's keys so far.
        above: the section's keys that are laid over them.
    """
    tag, kinds = KINDS.get(name, ("", {}))
    new = above.get(tag)
    if not isinstance(new, str) or new == below.get(tag):
        return below
    # Keys of the same name may have other defaults there: warmup_epochs is 5 for OLR and 0 for a rule of your own.
    if name == "method":
        return {}
    # Leave it to the validation to name an unknown kind.
    if new not in kinds:
        return below
    return {key: kept for key, kept in below.items() if key in kinds[new].model_fields}


def override(tree: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Return the nested keys `tree` with settings ``dotted.key=value`` laid over them; values are read as YAML.

    If a setting changes the kind of a section, such as ``noise.type``, keys of `tree` that the new kind lacks are
    dropped. Keys that other settings set are kept, whatever the order of the settings.

    Raises:
        UserError: a setting is not ``key=value``, or its value is not plain YAML.
    """
    changes: dict[str, Any] = {}
    for setting in overrides:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise UserError(f"{shortened(setting)} is no setting", "write it as key=value")
        try:
            put(changes, key.strip(), parse_yaml(text))
        except NotPlain as error:
            raise UserError(
                f"{shortened(key.strip())}: the value {shortened(text)} {error}",
                "put quotes around text",
            ) from None
    return overlay(tree, changes)


def read_pairs(words: Iterable[str]) -> dict[str, Any]:
    """Return settings ``key=value`` for another program, such as vLLM, as a dictionary.

    Values are read as YAML. A dotted key becomes nested dictionaries. Every ``-`` in an outermost key becomes ``_``.
    Raise UserError if a word is not ``key=value``.
    """
    return {key.replace("-", "_"): value for key, value in override({}, words).items()}


def put(tree: dict[str, Any], dotted: str, value: Any) -> None:
    """Set a dotted key, such as ``train.epochs``, in the nested dictionary `tree`, in place.

    A value that is a dictionary is merged into an existing section of that name. Raise UserError if a name would be
    both a value and a section.
    """
    names = dotted.split(".")
    # A later key may be put into this value, and only for this run of a sweep.
    value = copy.deepcopy(value)
    for depth, name in enumerate(names, start=1):
        is_section = depth < len(names) or isinstance(value, dict)
        # Otherwise the second setting would silently replace the first one.
        if name in tree and isinstance(tree[name], dict) != is_section:
            raise UserError(
                f"{shortened(dotted)}: '{name}' is set to a value and to a section at once",
                "leave one of them out",
            )
        if depth < len(names):
            tree = tree.setdefault(name, {})
    tree[names[-1]] = tree.get(names[-1], {}) | value if isinstance(value, dict) else value


# From keys to a recipe --------------------------------------------------------------------------------------------


def validate(tree: Mapping[str, Any], source: str) -> Recipe:
    """Return the recipe that the nested keys in `tree` describe.

    Raise UserError if a key or value is wrong. The error names `source`, the file or argument that the keys come from.
    """
    return _resolved([Layer(source, tree)])


def _resolved(layers: Sequence[Layer]) -> Recipe:
    """Return the recipe that layers describe when they are merged; later layers override earlier ones.

    A layer holds the keys that one source sets, such as a file. Raise UserError if a key is wrong. The error names the
    source of the last layer that sets the key, or of the first layer if none sets it.
    """
    for layer in layers:
        # pydantic accepts text with a NUL, say, which no file can hold: the run could not store its recipe.
        require_plain(layer.keys, layer.source)
    tree = merged_keys(layers)
    for name, (tag, _) in KINDS.items():
        section = tree.get(name)
        if isinstance(section, Mapping):
            # A section that does not name its kind keeps the default kind; noise has no default and becomes inactive.
            default = Recipe.model_fields[name].get_default()
            tree[name] = {tag: getattr(default, tag, "inactive"), **section}
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        raise _refusal(error.errors(), layers) from None


def _refusal(errors: Iterable[Any], layers: Sequence[Layer]) -> UserError:
    """Turn pydantic's errors about a recipe into one UserError, which lists up to `_MOST_PROBLEMS` of them.

    The UserError names the source, such as a file, of the last layer that sets the first wrong key.

    Args:
        errors: the items of ``ValidationError.errors()``.
        layers: the layers that the recipe was merged from; later ones override earlier ones.
    """
    # A key that takes a number or a text has one error for each type; only the first counts.
    by_place: dict[str, Any] = {}
    for detail in errors:
        by_place.setdefault(dotted_key(detail["loc"]), detail)
    details = list(by_place.values())
    first, *others = [sentence_of(detail) for detail in details[:_MOST_PROBLEMS]]
    more = f" (and {len(details) - 1} more: {'; '.join(others)})" if others else ""
    is_unknown = any(detail["type"] == "extra_forbidden" for detail in details)
    known = "; `olr recipes keys` lists all keys" if is_unknown else ""
    return UserError.of(
        f"{first}{more}{known}",
        remedy="correct it (`olr recipes keys` lists all keys)",
        place=_source_of_error(details[0], first, layers),
    )


def _source_of_error(detail: Any, sentence: str, layers: Sequence[Layer]) -> str:
    """Return the source, such as a file, of the layer that an error about a recipe comes from.

    This is the last layer that sets a key which the error is about, or the first layer if none sets such a key.

    Args:
        detail: the error, an item of ``ValidationError.errors()``.
        sentence: the error in words, which may name further keys.
        layers: the layers that the recipe was merged from; later ones override earlier ones.
    """
    place = dotted_key(detail["loc"])
    # Uppermost first: a value there overrides those below, so the error is about that value.
    for layer in reversed(layers):
        if any(_is_about(key, place, sentence) for key in flatten(dict(layer.keys))):
            return layer.source
    return layers[0].source


def _is_about(key: str, place: str, sentence: str) -> bool:
    """Return whether an error about a recipe concerns the dotted key `key`.

    `place` is the dotted key where the error occurred, and `sentence` is the error in words. The error concerns
    `key` if `place` is the same key or one of the two contains the other. It also concerns each key that `sentence`
    names.
    """
    if place == key or place.startswith(f"{key}.") or key.startswith(f"{place}."):
        return True
    return re.search(rf"(?<![\w.]){re.escape(key)}(?![\w.])", sentence) is not None


def folder_name(text: str) -> str:
    """Return text as a name for a single folder: only letters, digits and ``._+-``, and no leading dot.

    Other characters become ``-``; if nothing is left, the name is ``run``.
    """
    # A leading dot would hide the folder, and `..` would lead out of the sweep's.
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).lstrip(".") or "run"
