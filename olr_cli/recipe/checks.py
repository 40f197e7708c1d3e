"""From keys to a recipe, or to an error in one sentence; and warnings of likely mistakes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from pydantic import ValidationError

from olr_cli.errors import UserError, did_you_mean, shortened, shown
from olr_cli.recipe.schema import KINDS, CoRewardMethod, OlrMethod, Recipe, SelfTrainingMethod, TtrlMethod

MOST_LEVELS = 32
"""Levels of nested lists and mappings."""
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


def validate(tree: Mapping[str, Any], source: str, called: Mapping[str, str] | None = None) -> Recipe:
    """The recipe in `tree`, nested keys from `source`; `called` maps dotted keys to other names for the user.

    Raises:
        UserError: one sentence that names the source, the key, what is wrong and what would be right.
    """
    require_plain(tree, source)
    tree = dict(tree)
    for name, (tag, _) in KINDS.items():
        section = tree.get(name)
        if isinstance(section, Mapping) and tag not in section:
            default = Recipe.model_fields[name].get_default()
            tree[name] = {tag: getattr(default, tag, "inactive"), **section}
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        details = error.errors()
        first, *others = [_sentence(detail, called or {}) for detail in details[:_MOST_PROBLEMS]]
        if len(details) > _MOST_PROBLEMS:
            others.append("…")
        more = f" (and {len(details) - 1} more: {'; '.join(others)})" if others else ""
        raise UserError(f"{source}: {first}{more}") from None


def _sentence(detail: Any, called: Mapping[str, str]) -> str:
    place = _dotted(detail["loc"])
    if detail["type"] == "extra_forbidden":
        return _unknown_key(place)
    if detail["type"] == "union_tag_invalid":
        tag, expected = detail["ctx"]["discriminator"].strip("'"), detail["ctx"]["expected_tags"]
        named = detail["input"][tag]
        hint = did_you_mean(str(named), expected.replace("'", "").split(", "))
        return f"{place}.{tag} is {shown(named)}{hint}; known: {expected}"
    if detail["type"] == "value_error":
        message = str(detail["ctx"]["error"])
        return f"{place}: {message}" if place else message
    value = f"{called.get(place, place)} is {shown(detail['input'])}"
    if detail["type"] in ("tuple_type", "list_type"):
        return f"{value}: expected a list, as [{shown(detail['input'])}]"
    if detail["type"] in ("model_type", "model_attributes_type", "dict_type"):
        return f"{value}: expected keys and their values, as {place}: {{key: value}}"
    return f"{value}: {detail['msg'][0].lower()}{detail['msg'][1:]}"


def _unknown_key(place: str) -> str:
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
    return f"unknown key '{place}'{hint}; `olr recipes keys` lists them all"


def _dotted(location: tuple[int | str, ...]) -> str:
    """A pydantic location as the key that a user wrote: without the tag that names a section's kind."""
    names = [str(part) for part in location]
    if len(names) > 1 and names[0] in KINDS and names[1] in KINDS[names[0]][1]:
        del names[1]
    return shortened(".".join(names))


def _known_keys() -> list[str]:
    keys: list[str] = []
    for name, field in Recipe.model_fields.items():
        kinds: Iterable[Any] = KINDS[name][1].values() if name in KINDS else [field.annotation]
        keys += [name, *(f"{name}.{key}" for kind in kinds for key in getattr(kind, "model_fields", ()))]
    return keys


def require_plain(value: Any, place: str, key: str = "") -> None:
    """Make sure that a tree can be written as YAML and read again; `key` is the dotted key of `value` in it.

    Raises:
        UserError: a number is not finite, a text has half a character or NUL, a key is no text, or it is too deep.
    """
    if key.count(".") >= MOST_LEVELS:
        raise UserError(f"{place}: {shortened(key)} is more than {MOST_LEVELS} levels deep; check its dots")
    if isinstance(value, Mapping):
        for name, inner in value.items():
            inner_key = f"{key}.{name}" if key else str(name)
            if not isinstance(name, str):
                raise UserError(
                    f"{place}: the key {shortened(inner_key)} is {shown(name)}, and keys are text; write it in quotes"
                )
            _require_characters(name, place, inner_key)
            require_plain(inner, place, inner_key)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            require_plain(item, place, f"{key}.{number}")
    elif isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{place}: {shortened(key)} is {value}, and numbers must be finite")
    elif isinstance(value, str):
        _require_characters(value, place, key)


def _require_characters(text: str, place: str, key: str) -> None:
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise UserError(
            f"{place}: {shortened(key)} has a character that no file can hold (NUL, or half of a surrogate pair);"
            " remove it"
        )


# Likely mistakes --------------------------------------------------------------------------------------------------


def recipe_warnings(recipe: Recipe) -> list[str]:
    """Sentences about settings that are allowed but can hardly be meant; those about data come later."""
    return list(_warnings(recipe))


def _warnings(recipe: Recipe) -> Iterator[str]:
    method, train, mini = recipe.method, recipe.train, recipe.train.mini_batch_prompts
    if isinstance(method, OlrMethod) and method.warmup_epochs >= train.epochs:
        yield (
            f"method.warmup_epochs {method.warmup_epochs} leaves no epoch of {train.epochs} in which a label can be"
            " refined; lower it or train longer"
        )
    elif isinstance(method, OlrMethod) and "slope" in method.criteria:
        visit = min(max(2, method.warmup_epochs + 1), train.epochs)
        steepest = steepest_slope(visit)
        if Fraction(method.slope_threshold) >= steepest:
            remedy = f"try {0.2 / train.epochs:.3f}" if train.epochs > 1 else "train longer"
            yield (
                f"method.slope_threshold {method.slope_threshold} is out of reach: no slope exceeds"
                f" {float(steepest):.3f} at visit {visit}, and later ones are flatter; {remedy}"
            )
    if isinstance(method, SelfTrainingMethod):
        has_verified = recipe.data.trusted is not None
        warmup = method.warmup(is_verified=has_verified)
        if warmup >= train.epochs:
            default = (
                ""
                if has_verified or method.warmup_epochs is not None
                else ", its default without data.trusted,"
            )
            remedy = "" if has_verified else ", or name verified labels in data.trusted"
            yield (
                f"method.warmup_epochs {warmup}{default} leaves no epoch of {train.epochs} with a pseudo-label; lower"
                f" it, train longer{remedy}"
            )
    if (
        isinstance(method, OlrMethod | SelfTrainingMethod | TtrlMethod | CoRewardMethod)
        and train.rollouts_per_prompt < 4
    ):
        yield (
            f"train.rollouts_per_prompt {train.rollouts_per_prompt} makes a poor vote: a majority among fewer than 4"
            " rollouts is mostly chance"
        )
    has_noise = recipe.noise is not None and recipe.noise.ratio != 0
    trains_by_labels = method.needs_labels or (method.prompts != "all" and method.keep_fraction is None)
    if has_noise and not trains_by_labels:
        yield (
            f"method {method.name} uses no labels: the noise changes the metrics of clean and noisy prompts, and"
            " nothing in training"
        )
    for key in ("train.lora_alpha", "train.lora_layers"):
        if train.lora_rank is None and not recipe.is_default(key):
            yield f"{key} is set, but train.lora_rank is not, so there are no adapters and all weights train"
    if train.clip_high is not None and train.clip_high < train.clip:
        yield (
            f"train.clip_high {train.clip_high:g} is below train.clip {train.clip:g}: unlikely tokens gain less than"
            " they lose; clip-higher takes a larger one, as 0.2 and 0.28"
        )
    if train.lora_rank is not None and train.learning_rate <= 2e-6:
        yield (
            f"train.learning_rate {train.learning_rate:g} hardly moves LoRA's adapters; they usually take ten times the"
            " learning rate of all weights"
        )
    if mini is not None and mini > train.prompts_per_step:
        yield (
            f"train.mini_batch_prompts {mini} is more than train.prompts_per_step {train.prompts_per_step}: each step"
            " is one mini-batch"
        )
    elif mini is not None and train.prompts_per_step % mini:
        yield (
            f"train.mini_batch_prompts {mini} does not divide train.prompts_per_step {train.prompts_per_step}: the last"
            f" mini-batch of each step has {train.prompts_per_step % mini} prompts"
        )


def steepest_slope(visits: int) -> Fraction:
    """The largest slope (Eq. slope, R12) that so many pass rates can have; 0 for one.

    The slope is sum x(i) p(i) / sum x(i)^2 with centred x, so p is best 0 where x is negative and 1 where it is
    positive. That gives 3 t / (2 (t^2 - 1)) for an even number t of visits and 3 / (2 t) for an odd one.
    """
    if visits < 2:
        return Fraction(0)
    return Fraction(6 * (visits * visits // 4), visits * (visits * visits - 1))


def step_warnings(recipe: Recipe, prompts: int) -> list[str]:
    """Sentences about how the prompts divide into steps."""
    size = recipe.train.prompts_per_step
    if size > prompts:
        return [
            f"train.prompts_per_step {size} is more than the {prompts} training prompts: one step an epoch"
        ]
    if prompts % size:
        return [
            f"{prompts} prompts do not divide into steps of {size}: the last of each epoch has {prompts % size}"
        ]
    return []
