"""A policy small enough for every test, with random weights, and keys to sample with."""

import numpy as np
import torch
from make_toys import build_tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM

from olr_cli import seeding
from olr_cli.engines.local.policy import Policy

# Unequal lengths: left padding matters
PROMPTS = [
    [14, 15, 16, 17],
    [5, 6],
    [20],
    [7, 8, 9, 10, 11, 12, 13],
]


def tiny_policy(seed=0, dtype=torch.float32):
    """Return a Qwen3 policy with random weights that are far from a uniform distribution; `seed` decides them."""
    tokenizer = build_tokenizer(64)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        initializer_range=0.3,  # far from uniform, so that a wrong mask or position shows
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    return Policy(model, tokenizer, torch.device("cpu"), dtype)


def keys(prompts, rollouts, purpose="test"):
    """Return an array (prompts, rollouts) of keys for random draws, all different; `purpose` is a part of each."""
    return np.array(
        [[seeding.key(purpose, p, g) for g in range(rollouts)] for p in range(prompts)],
        dtype=np.uint64,
    )


def plain_logprobs(policy, prompt, response, temperature=1.0):
    """Compute log-probabilities of a response by one forward pass over the whole sequence, without cache or padding.

    Return log pi of each response token (T,), and log pi of every token of the vocabulary at these positions (T, V).
    """
    ids = torch.tensor([[*prompt, *response]])
    logits_TV = (
        policy.model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
    )
    log_pi_TV = torch.log_softmax(logits_TV / temperature, dim=-1)
    return log_pi_TV.gather(1, torch.tensor(response)[:, None])[:, 0], log_pi_TV
