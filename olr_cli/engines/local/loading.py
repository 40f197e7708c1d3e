"""Loading a causal language model: what the policy requires of it, and what is repaired in its configuration."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.cache_utils import DynamicLayer

from olr_cli.engines import prompt_text
from olr_cli.engines.local.probe import OTHER_MODEL
from olr_cli.engines.models import loading, require_finite
from olr_cli.engines.weights import require_weights
from olr_cli.errors import UserError
from olr_cli.recipe.sections import Device


def load_model(path: str | Path, *, trust_remote_code: bool) -> tuple[Any, list[str]]:
    """Load the model of a folder or hub id in float32, and return it with notes.

    A note is a sentence about surplus weights, which the files hold but the model lacks.

    Raises:
        UserError: weights are missing or not finite, or the local engine cannot run a model of this architecture.
    """
    with loading(path):
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=trust_remote_code,
            # Don't raise for wrong shapes here: `require_weights` names the weight and both shapes in one sentence.
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    model, report = loaded
    notes = require_weights(path, model.config, report)
    _check_architecture(model, path)
    require_finite(path, model.named_parameters())
    _make_savable(model)
    _declare_untied_head(model)
    return model, notes


def end_ids(model: Any, tokenizer: Any) -> list[int]:
    """Return the ids of the tokens that end a response; raise UserError if there is none.

    These are the end tokens of the generation config, the tokenizer's end token, and the token with which the chat
    template closes an assistant's turn.
    """
    named = (
        model.generation_config.eos_token_id
        if model.generation_config is not None
        else None
    )
    listed = [named] if isinstance(named, int) else named or ()
    ids = {*listed, tokenizer.eos_token_id, prompt_text.turn_end(tokenizer)} - {None}
    if not ids:
        raise UserError(
            "neither the model's generation config nor its tokenizer names an end token",
            "set eos_token",
        )
    return sorted(ids)


def device_of(name: Device) -> torch.device:
    """Return the torch device that `engine.device` names; `auto` is the GPU if there is one.

    Raises:
        UserError: `name` is cuda, and there is no GPU.
    """
    has_gpu = torch.cuda.is_available()
    if name == "cuda" and not has_gpu:
        raise UserError(
            "engine.device is 'cuda' but torch sees no GPU here", "use 'cpu' or 'auto'"
        )
    return torch.device("cuda" if has_gpu and name != "cpu" else "cpu")


def _make_savable(model: Any) -> None:
    """Turn sampling on in a model's generation config if transformers would otherwise refuse to save the config.

    transformers refuses a config that has sampling values, such as a temperature, while sampling is off.
    """
    try:
        model.generation_config.validate(strict=True)
    except ValueError:
        model.generation_config.do_sample = True


def _declare_untied_head(model: Any) -> None:
    """Make a model's configuration say that output layer and embeddings are separate weights, if they are.

    Some configurations call the two tied although the files hold both. transformers then loads both, but other
    libraries, such as vLLM, would follow the configuration and load a different model from our checkpoints.
    """
    head, embeddings = model.get_output_embeddings(), model.get_input_embeddings()
    if head is not None and head.weight is not embeddings.weight:
        for config in (model.config, model.config.get_text_config()):
            config.tie_word_embeddings = False


def _check_architecture(model: Any, path: str | Path) -> None:
    """Raise UserError unless every layer keeps keys and values in a cache, and the model takes position ids.

    The cache and the position ids are needed to read a prompt once for all of its responses.
    """
    with loading(path):
        layers = DynamicCache(config=model.config).layers
    has_attention_only = all(isinstance(layer, DynamicLayer) for layer in layers)
    parameters = inspect.signature(model.forward).parameters.keys()
    has_cache = not parameters.isdisjoint({"past_key_values", "cache"})
    if not has_attention_only or not has_cache or "position_ids" not in parameters:
        raise UserError(
            f"the local engine cannot run '{path}' ({model.config.model_type}): it needs attention in every layer,"
            " whose keys and values it can keep, and positions that it can number",
            OTHER_MODEL,
        )
