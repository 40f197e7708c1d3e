"""How many tokens fit into a GPU's memory, in sampling and in the update; measured, not guessed from names."""

from __future__ import annotations

import torch

from olr_cli.engines.local.policy import Policy

ON_A_CPU = 65_536
"""Number of tokens at a time on a CPU."""

share = 1.0
"""This run's share of the GPU's memory.

Runs that each took what is free at their start would leave nothing to the next one.
"""

_PROBES = 256, 512
"""Numbers of tokens in two passes; the second pass keeps more bytes than the first, because of its tokens alone."""

_BYTES_TO_TRAIN = 14
"""Bytes per weight, besides the weight: its gradient, AdamW's two moments, and the weight in bfloat16."""

_BYTES_PER_WORD = 40
"""Bytes of the sampler's float32 and float64 tensors, per row and word of the vocabulary."""

_HEAD = 2**32
"""Bytes of the logits of one piece, with their gradient and what log_softmax keeps."""


def rows_to_sample(policy: Policy, longest: int) -> int:
    """Return how many responses to sample at once; at least one.

    A response with its prompt may have up to `longest` tokens. On a GPU the responses together fill half of the free
    memory. On a CPU they have at most `ON_A_CPU` tokens in all.
    """
    if policy.device.type != "cuda":
        return max(1, ON_A_CPU // longest)
    # Sampling keeps the weights as its products round them.
    rounded = 0 if policy.dtype == torch.float32 else policy.dtype.itemsize
    weights: int = sum(map(torch.Tensor.numel, policy.model.parameters()))
    return rows_in((free_memory(policy) - rounded * weights) // 2, policy, longest)


def rows_in(memory: int, policy: Policy, longest: int) -> int:
    """Return how many responses of up to `longest` tokens, prompt included, fit into `memory` bytes; at least one."""
    words: int = policy.model.config.get_text_config().vocab_size
    return max(1, memory // (longest * policy.bytes_per_token + words * _BYTES_PER_WORD))


def tokens_to_train(policy: Policy) -> int:
    """Return the most tokens, prompts and responses together, for one forward and backward pass.

    On a GPU the activations of these tokens fill half of the memory that the optimiser leaves free. On a CPU the number
    is `ON_A_CPU`.
    """
    if policy.device.type != "cuda":
        return ON_A_CPU
    few, many = (_kept_bytes(policy, tokens) for tokens in _PROBES)
    bytes_per_token = max(1, (many - few) // (_PROBES[1] - _PROBES[0]))
    weights: int = sum(
        weight.numel() for weight in policy.model.parameters() if weight.requires_grad
    )
    # At least as many as in the second probe, which fitted: with less, each rollout would need a pass of its own.
    return max(
        _PROBES[1],
        (free_memory(policy) - _BYTES_TO_TRAIN * weights - _HEAD) // 2 // bytes_per_token,
    )


def free_memory(policy: Policy) -> int:
    """Return how many more bytes of the GPU's memory this run may use, at least 0.

    The run may use the fraction `share` (room.py) of the whole memory, but only what is free. Memory that torch keeps
    in its cache counts as free.
    """
    free, total = torch.cuda.mem_get_info(policy.device)
    used = torch.cuda.memory_allocated(policy.device)
    return max(
        0,
        min(
            free + torch.cuda.memory_reserved(policy.device) - used,
            int(total * share) - used,
        ),
    )


def _kept_bytes(policy: Policy, tokens: int) -> int:
    """Measure the bytes that a pass over `tokens` tokens keeps for its backward pass, the output layer excluded."""
    tokens_PGT = torch.full((1, 1, tokens), policy.pad_id, device=policy.device)
    before = torch.cuda.memory_allocated(policy.device)
    with policy.precision(), policy.recomputing(), policy.without_head():
        hidden = policy.read_whole([[policy.pad_id]], tokens_PGT)
        kept: int = torch.cuda.memory_allocated(policy.device) - before - hidden.nbytes
    return kept
