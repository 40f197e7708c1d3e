"""A model with finite weights that trains for some steps until its logits overflow."""

from pathlib import Path

import torch
from transformers import AutoTokenizer, GraniteConfig, GraniteForCausalLM

from olr_cli.engines.models import policy_path

SETTINGS = {
    "data.limit": "40", "method.name": "ttrl", "noise": "null", "train.epochs": "3", "train.prompts_per_step": "8",
    "train.mini_batch_prompts": "8", "train.max_new_tokens": "1", "train.learning_rate": "1",
    "train.checkpoint_every": "1", "train.keep_checkpoints": "100", "train.evaluate_every": "100",
}  # fmt: skip
"""Changes to `laptop/quickstart` with which the model diverges after some steps."""


def save_diverging_model(folder: Path, scaling: float = 3e-37, *, heads: int = 4) -> Path:
    """Write a Granite model whose logits overflow after some steps of training with `SETTINGS`; return the folder.

    Granite divides logits by `scaling`. The weights before that are as small as its root, so the logits are ordinary at
    first. Once Adam has moved these weights to about 1, the logits are 1 / scaling. A few steps later they exceed
    float32 and bfloat16.

    Args:
        folder: the new folder.
        scaling: a smaller value makes it diverge earlier.
        heads: number of attention heads, which share 32 dimensions; vLLM on a CPU takes heads of 32 or more.
    """
    tokenizer = AutoTokenizer.from_pretrained(policy_path("addition-easier"))
    config = GraniteConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 2), max_position_embeddings=64, logits_scaling=scaling,
        tie_word_embeddings=False, bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    # Keep the generator's state: a test that saves this model must not change the draws of another.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = GraniteForCausalLM(config)
    with torch.no_grad():
        model.model.norm.weight *= scaling**0.5
        model.lm_head.weight *= scaling**0.5 / config.initializer_range / 4
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
