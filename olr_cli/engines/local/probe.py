"""A few short passes at loading show whether a model's scores are what sampling and the update assume.

An unfit model gives scores without an error. An encoder reads the tokens that it is to predict. A model that counts
positions where it should count tokens scores a prompt beside a longer one differently than alone.
"""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from olr_cli.errors import UserError, first_line
from olr_cli.files import is_out_of_memory

if TYPE_CHECKING:
    from olr_cli.engines.local.policy import Policy

OTHER_MODEL = "take a model of another architecture (those of Llama, Qwen, Gemma, Mistral and most others work)"
_SHARED, _LONGER, _RESPONSE = 8, 5, 3
"""Numbers of tokens: shared by both prompts of the probe, added in the longer one, and in a response."""
_EMPTY = 2048
"""Empty positions between two tokens.

They exceed any local window that a configuration does not name, such as the 256 of GPT-Neo.
"""


def counts_tokens(policy: Policy) -> bool:
    """Whether the model counts only tokens: unused positions inside a prompt do not change its logits.

    A beginning that several prompts share then needs to be read only once. A few passes test it. A model with a sliding
    window counts unused positions too, so the result is False.

    The result is True if logits are NaN or infinite, because sampling will then raise the error.

    Raises:
        UserError: the logits depend on later tokens, or on padding before a prompt, or a pass fails.
    """
    kind = f"{policy.name} ({policy.model.config.model_type})"
    try:
        return _counts_tokens(policy, kind)
    # Models with code of their own fail in many ways, and all of these mean that they cannot be used.
    except (
        AttributeError,
        IndexError,
        KeyError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        if is_out_of_memory(error):
            raise
        raise UserError(
            f"the local engine cannot run {kind}: it cannot continue prompts as sampling does"
            f" ({type(error).__name__}: {first_line(error)})",
            OTHER_MODEL,
        ) from error


@torch.no_grad()
def _counts_tokens(policy: Policy, kind: str) -> bool:
    """Do the test of `counts_tokens`, but let the exceptions of a failed pass through.

    `kind` is the model's name and type of architecture, for errors.

    Raises:
        UserError: the logits depend on later tokens, or on padding before a prompt.
    """
    model = policy.model
    tokens = ordinary_tokens(policy)

    def scores(sequences: list[list[int]]) -> Tensor:
        """Return the logits after each token of equally long sequences, (B, T, V), from one pass without a cache."""
        logits_BTV: Tensor = model(
            input_ids=torch.tensor(sequences, device=policy.device), use_cache=False
        ).logits
        return logits_BTV

    first, *middle, last, replacement = tokens[:5]
    plain, changed_last, changed_first = scores(
        [
            [first, *middle, last],
            [first, *middle, replacement],
            [replacement, *middle, last],
        ]
    )
    if plain.isnan().any() or (plain == torch.inf).any():
        # The weights are broken, not the form of the model; sampling will say so.
        return True
    # Changing the first token changes the scores after the last one; rounding is far below a hundredth of that change.
    # Words that can never follow may have infinite scores, so take the median.
    tolerance = 0.01 * _distance(plain[-1], changed_first[-1]) + 1e-5 * plain.abs().median()
    if _distance(plain[:-1], changed_last[:-1]) > tolerance:
        raise UserError(
            f"{kind} scores a token by those after it too, as an encoder does, so no response can be sampled from it",
            "take a causal language model",
        )

    prompts = [tokens[: _SHARED + _LONGER], [*tokens[:_SHARED], tokens[_SHARED + 1]]]
    responses = [tokens[-_RESPONSE:], tokens[-2 * _RESPONSE : -_RESPONSE]]
    responses_BT = torch.tensor(responses, device=policy.device)
    alone_BTV = torch.cat(
        [
            scores([[*p, *r]])[:, -1 - _RESPONSE :]
            for p, r in zip(prompts, responses, strict=True)
        ]
    )

    def are_as_alone(shared: int, empty: int = 0) -> bool:
        """Read and continue two prompts together, and return whether their logits are the same as when each is alone.

        The prompts have unequal lengths. Their first `shared` tokens are read once for both, and are followed by
        `empty` unused positions.
        """
        context = policy.read_together(prompts, shared, empty)
        logits = [context.logits_BV[:, None]]
        # Do what sampling does: continue each prompt in two rows, then drop one. Empty positions fill memory, so with
        # them there is one row.
        rows = 1 if empty else 2
        context.repeat(rows, room=_RESPONSE)
        logits.append(
            policy.extend(context, responses_BT[:, :1].repeat_interleave(rows, dim=0))[
                ::rows
            ]
        )
        context.select(torch.arange(0, 2 * rows, rows, device=policy.device))
        logits.append(policy.extend(context, responses_BT[:, 1:]))
        return bool(_distance(torch.cat(logits, 1), alone_BTV) <= tolerance)

    if not are_as_alone(shared=0):
        raise UserError(
            f"the local engine cannot run {kind}: beside a longer prompt it scores a prompt differently than alone",
            f"{OTHER_MODEL}",
        )
    if any(
        type(layer) is not DynamicLayer
        for layer in DynamicCache(config=model.config).layers
    ):
        # A sliding window counts positions, so padding would use up a part of it.
        return False
    # A model may have no positions beyond its context length.
    room = (policy.context_length or _EMPTY) - len(prompts[0]) - _RESPONSE
    return are_as_alone(_SHARED, max(0, min(room, _EMPTY)))


@torch.no_grad()
def has_plain_head(policy: Policy) -> bool:
    """Return whether logits are a linear layer of the hidden states, without a cap or a scale after it."""
    head = policy.model.get_output_embeddings()
    if type(head) is not torch.nn.Linear:
        return False
    tokens_1T = torch.tensor([ordinary_tokens(policy)], device=policy.device)
    logits_1TV = policy.model(input_ids=tokens_1T, use_cache=False).logits
    with policy.without_head():
        hidden_1TD = policy.model(input_ids=tokens_1T, use_cache=False).logits
    return hidden_1TD.shape[-1] == head.in_features and torch.allclose(
        head(hidden_1TD), logits_1TV, atol=1e-5
    )


@torch.no_grad()
def gives_scores_of(policy: Policy, other: Policy) -> bool:
    """Return whether `policy` and `other` give exactly the same logits for a short text.

    Return False if `policy` raises a RuntimeError, except for lack of memory, which is raised to the caller.
    """
    tokens_1T = torch.tensor([ordinary_tokens(policy)], device=policy.device)
    with policy.precision():
        expected = other.model(input_ids=tokens_1T, use_cache=False).logits
        try:
            scores = policy.model(input_ids=tokens_1T, use_cache=False).logits
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            return False
    return torch.equal(scores, expected)


def _distance(scores: Tensor, others: Tensor) -> Tensor:
    """Return the largest absolute difference between two tensors; NaN, as between equal infinities, counts as 0."""
    return (scores - others).abs().nan_to_num(0).max()


def ordinary_tokens(policy: Policy) -> list[int]:
    """Return the token ids of a short text for probes, the same in every call for a policy.

    They are spread over the vocabulary, and none is special unless all are.
    """
    size = min(len(policy.tokenizer), policy.model.get_input_embeddings().weight.shape[0])
    special = {
        *policy.tokenizer.all_special_ids,
        *policy.tokenizer.get_added_vocab().values(),
    }
    spread = [token for token in range(0, size, max(1, size // 64)) if token not in special]
    return list(islice(cycle(spread or range(size)), _SHARED + _LONGER + 2 * _RESPONSE))
