"""A few short passes at loading show whether a model's scores are those that sampling and the update take them for.

An unfit model answers all the same: an encoder reads the tokens that it is to predict, and a model that counts places
where it should count tokens scores a prompt beside a longer one differently than alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from olr_cli.engines.local.prefix_tree import PrefixTree
from olr_cli.errors import UserError

if TYPE_CHECKING:
    from olr_cli.engines.local.policy import Policy

SHARED, _RESPONSE = 8, 3
"""Tokens that the prompts of the probe begin with, and of a response."""
_PROMPT_TOKENS = SHARED + 5
_MOST_EMPTY = 2048
"""More than any local window that a model's configuration does not call one, such as the 256 places of GPT-Neo."""


class Probe:
    """Two prompts of unequal length that begin alike, with responses, and the scores of each when it is read alone."""

    def __init__(self, policy: Policy) -> None:
        """Read them alone, and refuse a model that sees later tokens."""
        self._policy = policy
        tokens = _ordinary_tokens(policy)
        prompts = tokens[:_PROMPT_TOKENS], [*tokens[:SHARED], tokens[SHARED + 5]]
        self._prompts = [list(prompt) for prompt in prompts]
        self._responses = [tokens[-_RESPONSE:], tokens[-2 * _RESPONSE : -_RESPONSE]]
        self._sequences = [[*p, *r] for p, r in zip(self._prompts, self._responses, strict=True)]
        self._require_causal(tokens)
        self._alone = torch.cat(
            [self._plain([sequence])[:, -1 - _RESPONSE :] for sequence in self._sequences]
        )

    def _require_causal(self, tokens: Sequence[int]) -> None:
        first, *middle, last, other = tokens[:5]
        scores, other_last, other_first = self._plain(
            [[first, *middle, last], [first, *middle, other], [other, *middle, last]]
        )
        # Rounding is far less than a hundredth of what the first token does to the scores after the last one.
        effect = (scores - other_first)[-1].abs().nan_to_num(0).max()
        self._tolerance = 0.01 * effect + 1e-5 * scores.abs().median()  # some words may have no finite score
        if not self._are_equal(scores[:-1], other_last[:-1]):
            raise UserError(
                f"{self._policy.name} ({self._policy.model.config.model_type}) scores a token by those after it too, as"
                " an encoder does, so no response can be sampled from it; take a causal language model"
            )

    def is_padded_right(self, *, shared: int = 0, empty: int = 0) -> bool:
        """Whether the responses get the same scores with the prompts read together, padded after `shared` tokens."""
        context = self._policy.read_together(self._prompts, shared, empty)
        responses_BT = torch.tensor(self._responses, device=self._policy.device)
        scores = [context.logits_BV[:, None]]
        scores += [self._policy.extend(context, part) for part in (responses_BT[:, :1], responses_BT[:, 1:])]
        return self._are_equal(torch.cat(scores, 1), self._alone)

    def is_read_right_as_tree(self) -> bool:
        """Whether the responses get the same scores by `Policy.read_tree`."""
        tree = PrefixTree()
        paths = [tree.add(sequence)[-1 - _RESPONSE :] for sequence in self._sequences]
        return self._are_equal(
            self._policy.read_tree(tree, [*paths[0], *paths[1]]), self._alone.flatten(0, 1)
        )

    def _plain(self, sequences: Sequence[Sequence[int]]) -> Tensor:
        """Scores after each token of sequences of equal length, as the model gives them without our help."""
        tokens_BT = torch.tensor(sequences, device=self._policy.device)
        logits_BTV: Tensor = self._policy.model(input_ids=tokens_BT, use_cache=False).logits
        return logits_BTV

    def _are_equal(self, scores: Tensor, others: Tensor) -> bool:
        return bool((scores - others).abs().nan_to_num(0).max() <= self._tolerance)


def empty_places(policy: Policy) -> int:
    """How many places between two tokens can be tried: a model may have none beyond its context."""
    room = (policy.context_length or _MOST_EMPTY) - _PROMPT_TOKENS - _RESPONSE
    return max(0, min(room, _MOST_EMPTY))


def _ordinary_tokens(policy: Policy) -> list[int]:
    """Token ids from all over the vocabulary, none of them special."""
    size = min(len(policy.tokenizer), policy.model.get_input_embeddings().weight.shape[0])
    special = {*policy.tokenizer.all_special_ids, *policy.tokenizer.get_added_vocab().values()}
    spread = [token for token in range(0, size, max(1, size // 64)) if token not in special]
    return list(islice(cycle(spread or range(size)), _PROMPT_TOKENS + 2 * _RESPONSE))
