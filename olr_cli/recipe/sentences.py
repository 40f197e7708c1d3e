"""Errors of pydantic about a recipe as sentences, with the key that the user probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from olr_cli.errors import did_you_mean, shortened, shown
from olr_cli.recipe.methods import OwnMethod
from olr_cli.recipe.schema import KINDS, Recipe

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
"""Key -> its names in TRL, OpenRLHF, verl and others, for suggestions."""


def sentence_of(detail: Any) -> str:
    """Return one of pydantic's errors about a recipe as a sentence: the dotted key, its value, and what is expected.

    `detail` is an item of ``ValidationError.errors()``.
    """
    place = dotted_key(detail["loc"])
    value = f"{place} is {shown(detail.get('input'))}"
    match detail["type"]:
        case "extra_forbidden":
            return _unknown_key(place)
        case "union_tag_invalid" | "unknown_method":
            return _unknown_kind(place, detail["input"], detail["ctx"])
        case "value_error":
            # This error is from a validator of ours and already a sentence.
            message = str(detail["ctx"]["error"])
            return f"{place}: {message}" if place else message
        case "literal_error":
            expected = detail["ctx"]["expected"]
            # pydantic lists the allowed values as text in quotes; read them back for the suggestion.
            hint = did_you_mean(str(detail["input"]), re.findall("'([^']*)'", expected))
            return f"{value}{hint}: expected {expected}"
        case "tuple_type" | "list_type":
            return f"{value}: expected a list, as [{shown(detail['input'])}]"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"{value}: expected keys and their values, as {place}: {{key: value}}"
    return f"{value}: {detail['msg'][0].lower()}{detail['msg'][1:]}"


def _unknown_kind(place: str, section: Any, context: Any) -> str:
    """Return the error sentence for a section whose kind is unknown, such as a method that does not exist.

    The sentence lists the known kinds, and suggests one with a similar name if there is one.

    Args:
        place: the section's name.
        section: the section's keys, as the user wrote them.
        context: the field ``ctx`` of pydantic's error, with the known kinds.
    """
    tag = context.get("discriminator", "name").strip("'")
    expected = context.get("expected_tags") or context["expected"]
    hint = did_you_mean(str(section.get(tag)), expected.replace("'", "").split(", "))
    return f"{place}.{tag} is {shown(section.get(tag))}{hint}; known: {expected}"


def _unknown_key(place: str) -> str:
    """Return the error sentence for an unknown dotted key, with the key that the user probably meant, if there is one.

    The suggested key has the same name in another section, or a similar name. For a setting of another trainer, such as
    ``num_generations``, it is our key with the same meaning. If the key exists, but only for other kinds of its section
    (such as another method), the sentence names these kinds instead.
    """
    if place.startswith("sweep."):
        example = f"sweep: {{grid: {{{place.removeprefix('sweep.')}: [1, 2]}}}}"
        return f"unknown key '{place}'; a sweep has a grid of keys and values, as {example}, or arms"
    keys = _known_keys()
    alike = [key for key in keys if key.count(".") == place.count(".")]
    # The key exists, but under another kind of the section.
    if place in alike:
        section, _, key = place.partition(".")
        tag, kinds = KINDS[section]
        owners = [kind for kind, model in kinds.items() if key in model.model_fields]
        return f"'{place}' is a key of {section}.{tag} {' and '.join(owners)} alone"
    named = place.rpartition(".")[2]
    # Suggest, in this order: the key inside its section, the key for another trainer's name, a key of this name
    # elsewhere.
    matches = [key for key in keys if key.endswith(f".{place}")]
    matches += [
        key for key, others in OTHER_NAMES.items() if named.lower() in others.split()
    ]
    matches += [key for key in keys if key.endswith(f".{named}")]
    hint = f" (did you mean '{matches[0]}'?)" if matches else did_you_mean(place, alike)
    return f"unknown key '{place}'{hint}"


_TYPE = re.compile(r"function-|constrained-|(?:int|str|float|bool)$")
"""Parts of pydantic's location that name a type, not a key."""

_TAGS = {
    section: {*kinds, *(kind.__name__ for kind in kinds.values()), OwnMethod.__name__}
    for section, (_, kinds) in KINDS.items()
}
"""Section -> the tags that pydantic puts into a location for the section's kind."""


def dotted_key(location: tuple[int | str, ...]) -> str:
    """Return the location in one of pydantic's errors as the dotted key that the user wrote.

    The location ``("method", "OlrMethod", "criteria")`` gives ``method.criteria``. Parts that pydantic inserts for the
    kind of a section, or for the type of a value, are left out.
    """
    names = [str(part) for part in location]
    names[2:] = [name for name in names[2:] if not _TYPE.match(name)]
    if len(names) > 1 and names[1] in _TAGS.get(names[0], ()):
        del names[1]
    return shortened(".".join(names))


def _known_keys() -> list[str]:
    """Return all dotted keys that a recipe can have, and the names of its sections.

    If a section has several kinds, the keys of every kind are in the list.
    """
    keys: list[str] = []
    for name, field in Recipe.model_fields.items():
        keys.append(name)
        kinds: Iterable[Any] = (
            KINDS[name][1].values() if name in KINDS else [field.annotation]
        )
        for kind in kinds:
            keys += [f"{name}.{key}" for key in getattr(kind, "model_fields", ())]
    return keys
