"""What a run on OpenRLHF computes on, for the throughput of its steps."""

from __future__ import annotations

from transformers import AutoConfig

from olr_cli.engines.model_files import without_weights
from olr_cli.engines.openrlhf.checks import gpus_needed
from olr_cli.engines.openrlhf.flags import section
from olr_cli.recipe.schema import Recipe
from olr_cli.runs.throughput import Machine, ModelSize


def model_size(path: str, *, trust_remote_code: bool) -> ModelSize | None:
    """The size of a model from its configuration alone, whatever DeepSpeed does to its weights.

    None for a model that is more than a causal language model, and for one whose configuration does not tell.
    """
    config = AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code)
    try:
        return ModelSize.of(without_weights(config, trust_remote_code=trust_remote_code))
    except ValueError:  # transformers knows no causal language model of this configuration
        return None


def machine(recipe: Recipe, model_path: str, card: str | None) -> Machine:
    """All GPUs of the run, those of vLLM and the reference too.

    Args:
        recipe: says how many.
        model_path: folder or hub id of the starting policy.
        card: the name of the policy's GPUs; None on a CPU.
    """
    engine = section(recipe)
    return Machine(
        gpus=gpus_needed(engine, recipe.train.kl_weight) if engine.device == "cuda" else 0,
        card=card,
        size=model_size(model_path, trust_remote_code=recipe.model.trust_remote_code),
        passes_before=1 + int(recipe.train.kl_weight > 0),
    )
