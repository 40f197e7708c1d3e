"""How many tokens a GPU's memory has room for, in sampling and in the update; measured, not guessed from names."""

from __future__ import annotations

import torch

from olr_cli.engines.local.policy import Policy

ON_A_CPU = 65_536
"""Tokens at a time where memory is a CPU's."""

_PROBES = 256, 512
"""Tokens of two passes: what the second keeps beyond the first is due to its tokens."""

_BYTES_TO_TRAIN = 14
"""Of a weight, besides the weight: its gradient, AdamW's two moments, and the weight in bfloat16."""

_HEAD = 2**32
"""Bytes of the logits of one piece, with their gradient and what log_softmax keeps."""


def tokens_to_sample(policy: Policy) -> int:
    """Prompt and response tokens whose keys and values half of the free memory holds."""
    if policy.device.type != "cuda":
        return ON_A_CPU
    with torch.inference_mode(), policy.precision():
        layers = policy.read([[policy.pad_id]]).cache.layers
    of_a_token: int = (
        sum(layer.keys.numel() + layer.values.numel() for layer in layers) * policy.dtype.itemsize
    )
    return max(1, _free(policy) // 2 // of_a_token)


def tokens_to_train(policy: Policy) -> int:
    """Prompt and response tokens whose activations half of the memory holds that the optimiser leaves free."""
    if policy.device.type != "cuda":
        return ON_A_CPU
    few, many = (_kept_bytes(policy, tokens) for tokens in _PROBES)
    of_a_token = max(1, (many - few) // (_PROBES[1] - _PROBES[0]))
    weights: int = sum(weight.numel() for weight in policy.model.parameters() if weight.requires_grad)
    return max(1, (_free(policy) - _BYTES_TO_TRAIN * weights - _HEAD) // 2 // of_a_token)


def _free(policy: Policy) -> int:
    """Bytes that nothing uses, those included that torch keeps for later."""
    free: int = torch.cuda.mem_get_info(policy.device)[0]
    return free + torch.cuda.memory_reserved(policy.device) - torch.cuda.memory_allocated(policy.device)


def _kept_bytes(policy: Policy, tokens: int) -> int:
    """What one pass over so many tokens keeps for its backward pass, up to the head."""
    tokens_PGT = torch.full((1, 1, tokens), policy.pad_id, device=policy.device)
    before = torch.cuda.memory_allocated(policy.device)
    with policy.precision(), policy.recomputing(), policy.without_head():
        hidden = policy.read_whole([[policy.pad_id]], tokens_PGT)
        kept: int = torch.cuda.memory_allocated(policy.device) - before - hidden.nbytes
    return kept
