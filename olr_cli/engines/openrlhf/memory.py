"""Memory that a recipe takes on each GPU, in host memory and on disk: the formulas of recipes/paper/README.md.

Worked out from the model's configuration and the sources of OpenRLHF, DeepSpeed and vLLM; assumptions are constants
here. P is the number of parameters, n the GPUs of the policy, b `engine.micro_batch_samples`, T tokens of a sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from olr_cli.engines.run import engine_section
from olr_cli.recipe.schema import OpenRlhfEngine, Recipe, flatten
from olr_cli.runs.throughput import ModelShape

GB = 10**9

_WIDE = 4096  # 32 heads of 128

PAPERS_MODELS: Mapping[str, ModelShape] = {
    "Qwen/Qwen3-4B-Base": ModelShape(4_022_468_096, 36, _WIDE, 2560, 9728, 151_936, 147_456, 32_768),
    "Qwen/Qwen3-8B-Base": ModelShape(8_190_735_360, 36, _WIDE, 4096, 12_288, 151_936, 147_456, 32_768),
    "deepseek-ai/DeepSeek-R1-Distill-Llama-8B": ModelShape(
        8_030_261_248, 32, _WIDE, 4096, 14_336, 128_256, 131_072, 131_072
    ),
}
"""Shapes of the models that the paper trains, known before they are fetched."""

_UPDATE_CONTEXTS, _GENERATION_CONTEXTS, _VLLM_ACTIVATIONS = 4 * GB, 2 * GB, 3 * GB
"""Assumed: CUDA contexts and kernels while training, the same while vLLM works, and vLLM's activations and graphs."""

_BUCKET, _GATHERED = 1 * GB, 2 * GB
"""DeepSpeed's bucket of 5e8 gradients, and with ZeRO 3 up to 1e9 gathered weights, in bfloat16."""


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that a recipe needs.

    Attributes:
        update: on one of the policy's GPUs while it trains, by subject.
        generation: on a GPU with a vLLM engine while it samples, by subject; vLLM's share is one of them.
        cache: part of vLLM's share that is left for keys and values; negative where not even the weights fit.
        cache_tokens: tokens that fit there.
        host: memory of one node.
        disk: checkpoints, with the new one that is complete before an old one goes.
    """

    update: Mapping[str, float]
    generation: Mapping[str, float]
    cache: float
    cache_tokens: int
    host: float
    disk: float


def memory_need(recipe: Recipe, shape: ModelShape, *, card: float, flash_attention: bool) -> MemoryNeed:
    """The memory for a recipe on a model of this shape, on cards of so many bytes.

    With `flash_attention`, flash-attn's cross entropy takes the place of torch's.
    """
    engine = engine_section(recipe, OpenRlhfEngine)
    sleeps = engine.colocate and engine.sleep
    share = engine.vllm_memory * card
    weights = _weights(recipe, shape)
    states = _states(engine, shape)
    update = weights | states | _activations(recipe, shape, flash_attention=flash_attention)
    if engine.colocate and not sleeps:
        update |= {"vLLM's share": share}
    generation = {"vLLM's share": share}
    if engine.colocate:
        generation |= weights | {"CUDA contexts": _GENERATION_CONTEXTS}
        generation |= {} if sleeps else states
    cache = share - 2 * shape.parameters / engine.tensor_parallel - _VLLM_ACTIVATIONS
    kept = recipe.train.keep_checkpoints + 1 + (recipe.data.validation is not None)
    return MemoryNeed(
        update=update,
        generation=generation,
        cache=cache,
        cache_tokens=max(0, int(cache * engine.tensor_parallel / shape.cache)),
        host=_host(engine, shape),
        disk=(14 if engine.zero_stage == 3 else 16) * shape.parameters * kept,
    )


def _weights(recipe: Recipe, shape: ModelShape) -> dict[str, float]:
    """Bfloat16 weights of policy and reference on one of the policy's GPUs."""
    engine = engine_section(recipe, OpenRlhfEngine)
    weights = 2.0 * shape.parameters / (engine.policy_gpus if engine.zero_stage == 3 else 1)
    shares = engine.colocate or flatten(engine.flags).get("train.colocate_actor_ref", False)
    return {"policy": weights, "reference": weights if recipe.train.kl_weight > 0 and shares else 0.0}


def _states(engine: OpenRlhfEngine, shape: ModelShape) -> dict[str, float]:
    """Gradients and Adam's states on one of the policy's GPUs: 2P or 4P, and 12P, divided as the ZeRO stage says."""
    if _is_offloaded(engine):
        return {"gradients": 0.0, "optimiser": 0.0}
    ranks = engine.policy_gpus
    return {
        "gradients": _gradient_bytes(engine) * shape.parameters / (1 if engine.zero_stage == 1 else ranks),
        "optimiser": 12 * shape.parameters / ranks,
    }


def _activations(recipe: Recipe, shape: ModelShape, *, flash_attention: bool) -> dict[str, float]:
    """Memory of the forward and backward pass of one micro-batch."""
    engine = engine_section(recipe, OpenRlhfEngine)
    tokens = recipe.train.max_prompt_tokens + recipe.train.max_new_tokens
    tokens = engine.micro_batch_samples * min(tokens, shape.context or tokens)
    a_logit = (10 if flash_attention else 16) + (2 if recipe.method.smoothing > 0 else 0)
    one_layer = 2.0 * tokens * (10 * shape.hidden + 4 * shape.mlp)
    inputs = 2.0 * tokens * shape.hidden * shape.layers
    return {
        "buckets and CUDA contexts": _BUCKET
        + _UPDATE_CONTEXTS
        + (_GATHERED if engine.zero_stage == 3 else 0),
        "logits": float(a_logit * tokens * shape.vocabulary),
        "layers": inputs + one_layer if engine.gradient_checkpointing else one_layer * shape.layers,
    }


def _host(engine: OpenRlhfEngine, shape: ModelShape) -> float:
    """Host memory of a node: what sleeps there, and the processes that load models or hold Adam's states."""
    gpus = engine.gpus_per_node
    sleeping = 2.0 * shape.parameters * gpus if engine.colocate and engine.sleep else 0.0
    loading_models = 2 * gpus * 2.0 * shape.parameters
    asleep = 12 + _gradient_bytes(engine) if engine.sleep else 0
    states = (20 if _is_offloaded(engine) else asleep) * shape.parameters / engine.nodes
    return sleeping + max(loading_models, states)


def _gradient_bytes(engine: OpenRlhfEngine) -> int:
    """Bytes of a gradient; DeepSpeed adds them up in float32 with ZeRO 3 alone, whatever it is asked for."""
    in_float32 = flatten(engine.flags).get("ds.grad_accum_dtype") == "fp32"
    return 4 if in_float32 and engine.zero_stage == 3 else 2


def _is_offloaded(engine: OpenRlhfEngine) -> bool:
    return bool(flatten(engine.flags).get("ds.adam_offload", False))
