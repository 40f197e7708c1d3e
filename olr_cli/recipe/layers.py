"""From files, settings and sweeps to a recipe, or to an error in one sentence.

A recipe is made of layers: the file's bases, the file, and a command's settings. Each is laid over the one before,
and an error names the layer that set the wrong value.
"""

from __future__ import annotations

import copy
import functools
import itertools
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from olr_cli.errors import UserError, at, did_you_mean, no_path, shortened, shown
from olr_cli.files import read_text
from olr_cli.recipe.methods import OwnMethod
from olr_cli.recipe.plain import (
    MOST_BYTES,
    NotPlain,
    dump_yaml,
    parse_yaml,
    read_yaml,
    require_plain,
)
from olr_cli.recipe.schema import KINDS, Recipe, SweepSection, flatten

_LOGS = "logs"
"""Where `olr train --sweep` puts what its runs print (`olr_cli.engines.sweep`)."""
_MOST_PROBLEMS = 6
"""Mistakes of one recipe that a message lists."""

OTHER_NAMES: Mapping[str, str] = {
    "train.epochs": "num_train_epochs num_epochs num_episodes max_epochs total_epochs",
    "train.prompts_per_step": "rollout_batch_size batch_size per_device_train_batch_size generation_batch_size"
    " gen_batch_size train_batch_size prompts_per_batch",
    "train.mini_batch_prompts": "ppo_mini_batch_size mini_batch_size minibatch_size gradient_accumulation_steps",
    "train.rollouts_per_prompt": "num_generations n_samples_per_prompt rollout_n n group_size num_rollouts"
    " rollouts_per_example num_samples samples_per_prompt k",
    "train.learning_rate": "lr actor_learning_rate actor_lr",
    "train.kl_weight": "beta init_kl_coef kl_coef kl_loss_coef kl_beta kl",
    "train.clip": "epsilon eps_clip clip_ratio clip_eps cliprange clip_range",
    "train.loss_average": "loss_type loss_agg_mode",
    "train.max_new_tokens": "max_completion_length max_response_length response_length generate_max_len max_tokens"
    " max_length",
    "train.max_prompt_tokens": "max_prompt_length prompt_max_len max_prompt_len",
    "train.temperature": "temp sampling_temperature",
    "train.stop": "stop_strings stop_sequences",
    "train.checkpoint_every": "save_steps save_freq save_interval",
    "train.keep_checkpoints": "save_total_limit max_ckpt_num max_ckpt_to_keep",
    "train.evaluate_every": "eval_steps test_freq eval_interval eval_every",
    "method.penalty_weight": "entropy_coef entropy_coeff entropy_bonus",
    "model.path": "model_name_or_path model_name pretrain pretrained base_model",
    "data.train": "train_files train_file prompt_data dataset dataset_name train_dataset",
    "data.test": "val_files val_file eval_dataset test_files eval_data",
    "data.limit": "max_samples max_train_samples train_max_samples",
    "data.columns": "input_key label_key prompt_key question_key answer_key column_mapping",
    "data.extractor": "answer_extractor reward_fn reward_funcs reward_function",
    "data.system_prompt": "system system_message",
    "engine.vllm_memory": "gpu_memory_utilization vllm_gpu_memory_utilization",
    "engine.tensor_parallel": "tensor_parallel_size vllm_tensor_parallel_size tensor_model_parallel_size",
    "engine.zero_stage": "zero_stage deepspeed_stage",
    "engine.micro_batch_samples": "micro_train_batch_size ppo_micro_batch_size_per_gpu micro_batch_size",
    "engine.name": "use_vllm backend trainer framework",
    "logging.wandb": "report_to use_wandb wandb_project project_name",
}
"""What TRL, OpenRLHF, verl and others call the keys, for suggestions."""


# A recipe by its name ---------------------------------------------------------------------------------------------


def bundled_recipes() -> Path:
    """The folder of the recipes that come with the project, in a checkout as in an installed wheel."""
    package = Path(__file__).parents[1]
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parent / "recipes"


def find_recipe(name: str | Path) -> Path:
    """The file `name`, or the bundled recipe of that name (``laptop/quickstart``)."""
    path = Path(name)
    # os.path takes a name that is too long for one that does not exist; pathlib raises.
    if os.path.isfile(path):
        if path.suffix in (".csv", ".tsv", ".jsonl", ".parquet"):
            raise UserError(
                f"{path} is a data set and no recipe; to train on it: olr train own-data --set"
                f" data.train={shlex.quote(str(path))} --set model.path=MODEL"
            )
        return path
    if bundled := _bundled(path):
        return bundled
    raise no_path(
        path, "`olr recipes ls` lists the recipes that come with olr", list(recipes_by_name())
    )


def _bundled(name: Path) -> Path | None:
    """The recipe that comes with olr under that name; no name leads out of their folder."""
    if ".." in name.parts or name.is_absolute():
        return None
    folder = bundled_recipes()
    return next(
        (file for file in (folder / name, folder / f"{name}.yaml") if os.path.isfile(file)),
        None,
    )


def recipes_by_name() -> dict[str, Path]:
    """The bundled recipes: name (``laptop/quickstart``) -> file, sorted."""
    folder = bundled_recipes()
    files = sorted(folder.rglob("*.yaml"))
    return {str(file.relative_to(folder).with_suffix("")): file for file in files}


def load_recipe(path: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """The resolved recipe: defaults, then the file's base, the file, and the overrides (``key=value``)."""
    return _with_layers(path, overrides)[0]


@dataclass(frozen=True, slots=True)
class Layer:
    """Nested keys, and where they are from.

    Attributes:
        source: the name of a file, or ``set``: the settings of a command.
        is_stored: they are from a file that a run has stored, or from a base that such a file names, and so may be a
            stranger's.
    """

    source: str
    keys: Mapping[str, Any]
    is_stored: bool = False


def _with_layers(path: str | Path, overrides: Iterable[str]) -> tuple[Recipe, list[Layer]]:
    """A resolved recipe and its layers, lowest first; its file has the name by which the user calls it."""
    *bases, mine = _files(find_recipe(path))
    with at("set"):
        settings = override({}, overrides)
    of_command = [Layer("set", settings)] if settings else []
    layers = [*bases, replace(mine, source=str(path)), *of_command]
    return _marked(_resolved(layers), layers), layers


def _marked(recipe: Recipe, layers: Sequence[Layer]) -> Recipe:
    """A recipe that knows which code only stored layers name; a sweep of the user's names code too."""
    keys = [
        pair
        for layer in layers
        if not layer.is_stored
        for pair in flatten(dict(layer.keys)).items()
    ]
    named = [(key, name) for key, value in keys for name in _leaves(value)]
    return recipe.of_strangers(
        place
        for place, names in recipe.code().items()
        # By value: a key that the user sets to one function grants no other, which an arm may get from below.
        if not all(
            any(place in key and name == set_to for key, set_to in named) for name in names
        )
    )


def _leaves(value: Any) -> Iterator[str]:
    """Every value within lists and dictionaries, as `Recipe.code` names it."""
    if isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    else:
        yield "true" if value is True else str(value)


def _merged(layers: Iterable[Layer]) -> dict[str, Any]:
    return functools.reduce(overlay, (layer.keys for layer in layers), {})


def read_tree(file: Path) -> dict[str, Any]:
    """A recipe file as nested dictionaries, laid over its ``base``."""
    return _merged(_files(file))


def _files(file: Path) -> list[Layer]:
    """A file and its bases, lowest first; a base is a path relative to the file, or the name of a bundled recipe."""
    layers: list[Layer] = []
    seen: set[Path] = set()
    is_stored = False
    while True:
        if file.resolve() in seen:
            raise UserError(f"{file}: its `base` leads back to itself; remove one `base`")
        seen.add(file.resolve())
        keys = _read_keys(file)
        base = keys.pop("base", None)
        is_stored = is_stored or file.with_name("manifest.json").exists()
        layers.insert(0, Layer(str(file), keys, is_stored))
        if base is None:
            return layers
        file = _find_base(file, base)


def _find_base(file: Path, base: object) -> Path:
    if isinstance(base, str):
        beside = file.parent / base
        if base_file := beside if os.path.isfile(beside) else _bundled(Path(base)):
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
    header = itertools.takewhile(
        lambda line: line.startswith("#"), text.splitlines(keepends=True)
    )
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


def _keys_of_kind(
    name: str, below: Mapping[str, Any], value: Mapping[str, Any]
) -> Mapping[str, Any]:
    tag, kinds = KINDS.get(name, ("", {}))
    new = value.get(tag)
    if not isinstance(new, str) or new == below.get(tag):
        return below
    if name == "method":
        return {}
    if new not in kinds:
        return below
    return {key: kept for key, kept in below.items() if key in kinds[new].model_fields}


def override(tree: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """`tree` with ``key=value`` settings laid over it; values are read as YAML, kinds of sections come first."""
    changes: dict[str, Any] = {}
    for setting in overrides:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise UserError(f"expected key=value, not {shortened(setting)}")
        try:
            put(changes, key.strip(), parse_yaml(text))
        except NotPlain as error:
            raise UserError(
                f"{shortened(key.strip())}: the value {shortened(text)} {error}; put quotes around text"
            ) from None
    return overlay(tree, changes)


def read_pairs(words: Iterable[str]) -> dict[str, Any]:
    """The ``key=value`` settings of another program, as `override` reads them; ``-`` in a key is ``_``."""
    return {key.replace("-", "_"): value for key, value in override({}, words).items()}


def put(tree: dict[str, Any], dotted: str, value: Any) -> None:
    """Set a dotted key in `tree`; the keys of a section that is there already stay."""
    names = dotted.split(".")
    value = copy.deepcopy(
        value
    )  # a later key may be put into it, for this run of a sweep alone
    for depth, name in enumerate(names, start=1):
        is_section = depth < len(names) or isinstance(value, dict)
        if name in tree and isinstance(tree[name], dict) != is_section:
            raise UserError(
                f"{shortened(dotted)}: '{name}' is set to a value and to a section at once; leave one of them out"
            )
        if depth < len(names):
            tree = tree.setdefault(name, {})
    tree[names[-1]] = tree.get(names[-1], {}) | value if isinstance(value, dict) else value


# From keys to a recipe --------------------------------------------------------------------------------------------


def validate(tree: Mapping[str, Any], source: str) -> Recipe:
    """The recipe in `tree`, nested keys; errors name `source`."""
    return _resolved([Layer(source, tree)])


def _resolved(layers: Sequence[Layer]) -> Recipe:
    """The recipe of these layers, lowest first; an error names the layer that it is in, else the lowest."""
    for layer in layers:
        require_plain(layer.keys, layer.source)
    tree = _merged(layers)
    for name, (tag, _) in KINDS.items():
        section = tree.get(name)
        if isinstance(section, Mapping) and tag not in section:
            default = Recipe.model_fields[name].get_default()
            tree[name] = {tag: getattr(default, tag, "inactive"), **section}
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        # Of a key that takes a number or a text, the first kind's error.
        places: dict[str, Any] = {}
        for detail in error.errors():
            places.setdefault(_dotted(detail["loc"]), detail)
        details = list(places.values())
        first, *others = [sentence_of(detail) for detail in details[:_MOST_PROBLEMS]]
        more = f" (and {len(details) - 1} more: {'; '.join(others)})" if others else ""
        is_unknown = any(detail["type"] == "extra_forbidden" for detail in details)
        remedy = "; `olr recipes keys` lists all keys" if is_unknown else ""
        raise UserError(f"{first}{more}{remedy}", _source(details[0], first, layers)) from None


def _source(detail: Any, sentence: str, layers: Sequence[Layer]) -> str:
    """The uppermost layer with the key that an error is at, or that its sentence names; else the lowest."""
    place = _dotted(detail["loc"])
    for layer in reversed(layers):
        for key in flatten(dict(layer.keys)):
            is_there = (
                place == key or place.startswith(f"{key}.") or key.startswith(f"{place}.")
            )
            if is_there or re.search(rf"(?<![\w.]){re.escape(key)}(?![\w.])", sentence):
                return layer.source
    return layers[0].source


def sentence_of(detail: Any) -> str:
    """One of pydantic's errors as a sentence that names the key."""
    place = _dotted(detail["loc"])
    if detail["type"] == "extra_forbidden":
        return _unknown_key(place)
    if detail["type"] in ("union_tag_invalid", "unknown_method"):
        context = detail["ctx"]
        tag = context.get("discriminator", "name").strip("'")
        expected, named = (
            context.get("expected_tags") or context["expected"],
            detail["input"].get(tag),
        )
        hint = did_you_mean(str(named), expected.replace("'", "").split(", "))
        return f"{place}.{tag} is {shown(named)}{hint}; known: {expected}"
    if detail["type"] == "value_error":
        message = str(detail["ctx"]["error"])
        return f"{place}: {message}" if place else message
    value = f"{place} is {shown(detail['input'])}"
    if detail["type"] == "literal_error":
        expected = detail["ctx"]["expected"]
        hint = did_you_mean(str(detail["input"]), re.findall("'([^']*)'", expected))
        return f"{value}{hint}: expected {expected}"
    if detail["type"] in ("tuple_type", "list_type"):
        return f"{value}: expected a list, as [{shown(detail['input'])}]"
    if detail["type"] in ("model_type", "model_attributes_type", "dict_type"):
        return f"{value}: expected keys and their values, as {place}: {{key: value}}"
    return f"{value}: {detail['msg'][0].lower()}{detail['msg'][1:]}"


def _unknown_key(place: str) -> str:
    if place.startswith("sweep."):
        example = f"sweep: {{grid: {{{place.removeprefix('sweep.')}: [1, 2]}}}}"
        return f"unknown key '{place}'; a sweep has a grid of keys and values, as {example}, or arms"
    known = _known_keys()
    alike = [key for key in known if key.count(".") == place.count(".")]
    if place in alike:  # a key of another kind of the section
        section, _, key = place.partition(".")
        tag, kinds = KINDS[section]
        owners = [kind for kind, model in kinds.items() if key in model.model_fields]
        return f"'{place}' is a key of {section}.{tag} {' and '.join(owners)} alone"
    named = place.rpartition(".")[2]
    deeper = [key for key in known if key.endswith(f".{place}")]
    deeper += [key for key, others in OTHER_NAMES.items() if named.lower() in others.split()]
    deeper += [key for key in known if key.endswith(f".{named}")]
    hint = f" (did you mean '{deeper[0]}'?)" if deeper else did_you_mean(place, alike)
    return f"unknown key '{place}'{hint}"


_TYPE = re.compile(r"function-|constrained-|(?:int|str|float|bool)$")


def _dotted(location: tuple[int | str, ...]) -> str:
    """A pydantic location as the key that a user wrote: without the tag of a section's kind, or the name of a type."""
    names = [str(part) for part in location]
    names[2:] = [name for name in names[2:] if not _TYPE.match(name)]
    if len(names) > 1 and names[0] in KINDS:
        kinds = KINDS[names[0]][1]
        if names[1] in {
            *kinds,
            *(kind.__name__ for kind in kinds.values()),
            OwnMethod.__name__,
        }:
            del names[1]
    return shortened(".".join(names))


def _known_keys() -> list[str]:
    keys: list[str] = []
    for name, field in Recipe.model_fields.items():
        kinds: Iterable[Any] = KINDS[name][1].values() if name in KINDS else [field.annotation]
        keys += [
            name,
            *(f"{name}.{key}" for kind in kinds for key in getattr(kind, "model_fields", ())),
        ]
    return keys


# Sweeps -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One run of a sweep: its arm (without the seed), its place below the sweep's folder, and its recipe."""

    arm: str
    place: str
    recipe: Recipe


def expand_sweep(path: str | Path, overrides: Iterable[str] = ()) -> list[SweepRun]:
    """Every run of a recipe's ``sweep``: arms times grid, in the file's order."""
    overrides = list(overrides)
    whole, layers = _with_layers(path, overrides)
    if whole.sweep is None:
        raise UserError(
            f"{path} has no `sweep` section; leave this out, or write one into the recipe, such as `sweep: {{grid:"
            " {method.name: [grpo, olr], seed: [0, 1, 2]}}` for six runs",
            "sweep",
        )
    alone = {key: value for key, value in _merged(layers).items() if key != "sweep"}
    _require_no_conflict(whole.sweep, overrides)
    runs = list(_sweep_runs(alone, whole.sweep, str(path), layers))
    # Some file systems treat `a` and `A` as one.
    places = Counter([_LOGS, *(run.place.casefold() for run in runs)])
    for run in runs:
        if places[run.place.casefold()] > 1:
            raise UserError(
                f"{path}: {shortened(run.place)} would be the folder of two runs of the sweep, or of one and the"
                " sweep's logs; give arms names, and grid keys values, that differ in letters, digits, '.', '_', '+'"
                " or '-'"
            )
    return runs


def _require_no_conflict(sweep: SweepSection, overrides: Iterable[str]) -> None:
    """Refuse to override a key that arms or the grid set: it would apply to some runs and not to others."""
    for key in (setting.partition("=")[0].strip() for setting in overrides):
        if key in sweep.grid:
            raise UserError(
                f"the sweep's grid sets that; set 'sweep.grid.{key}=[…]'", f"set {key}"
            )
        arms = [arm for arm, settings in sweep.arms.items() if key in settings]
        if arms:
            raise UserError(
                f"{len(arms)} of the sweep's arms set that ({arms[0]}, …); change it in a recipe of your own"
                " (`olr recipes cp`)",
                f"set {key}",
            )


def _sweep_runs(
    tree: dict[str, Any], sweep: SweepSection, source: str, layers: Sequence[Layer]
) -> Iterator[SweepRun]:
    for arm, settings in (sweep.arms or {"": {}}).items():
        for values in itertools.product(*sweep.grid.values()):
            point = dict(zip(sweep.grid, values, strict=True))
            changes: dict[str, Any] = {}
            for key, value in (*settings.items(), *point.items()):
                with at(f"{source}: the sweep's arm '{shortened(arm)}'"):
                    put(changes, key, value)
            parts = {key: f"{key.rpartition('.')[2]}-{value}" for key, value in point.items()}
            names = [arm, *(part for key, part in parts.items() if key != "seed")]
            label = "_".join(name for name in names if name) or "run"
            place = folder_name(
                "_".join(name for name in [label, parts.get("seed", "")] if name)
            )
            recipe = validate(overlay(tree, changes), f"{source} [{shortened(place)}]")
            recipe = _marked(recipe, layers)
            if recipe.sweep is not None:
                raise UserError(
                    f"{source} [{place}]: a sweep's run cannot be a sweep; remove that key"
                )
            yield SweepRun(label, place, recipe)


def folder_name(text: str) -> str:
    """Text as the name of one folder, which leads nowhere else."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).lstrip(".") or "run"
