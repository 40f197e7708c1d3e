"""Drawing tokens and storing responses, shared by both ways to compute a token (sampler.py, captured.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from olr_cli.engines.local.policy import Policy
from olr_cli.recipe.sampling import Sampling


class Responses(NamedTuple):
    """B sampled responses of up to T tokens, with statistics of the distributions that the tokens were drawn from.

    The samplers in sampler.py and captured.py make it. After the end of a response, its tokens are padding and its
    statistics are 0.
    """

    tokens_BT: Tensor
    logprobs_BT: Tensor
    lengths_B: Tensor
    truncated_B: Tensor
    entropy_B: Tensor
    """Sum of the entropy over response tokens, in nats."""

    self_certainty_BT: Tensor

    @classmethod
    def none(cls, rollouts: int, limit: int, policy: Policy) -> Responses:
        """Return `rollouts` empty responses, each with room for `limit` tokens, on the device of `policy`."""
        B, device = rollouts, policy.device
        return cls(
            tokens_BT=torch.full((B, limit), policy.pad_id, device=device),
            logprobs_BT=torch.zeros(B, limit, device=device),
            lengths_B=torch.zeros(B, dtype=torch.long, device=device),
            truncated_B=torch.zeros(B, dtype=torch.bool, device=device),
            entropy_B=torch.zeros(B, device=device),
            self_certainty_BT=torch.zeros(B, limit, device=device),
        )


def self_certainty_of(log_pi_V: Tensor) -> Tensor:
    """Compute the self-certainty KL(uniform || pi) = -log V - mean_v log pi(v), in nats.

    The last dimension of `log_pi_V` holds the log-probabilities of the V tokens of a distribution.
    """
    return -math.log(log_pi_V.shape[-1]) - log_pi_V.mean(-1)


def truncated(pi_BV: Tensor, sampling: Sampling) -> Tensor:
    """Return the probabilities, with 0 for every token that min_p, top_k or top_p excludes.

    The results of a row may add up to less than 1. The limits apply in the order min_p, top_k, top_p, as in vLLM, and
    each sees only the tokens that the limits before it have kept. The most likely token always stays. If several tokens
    are as likely as the k-th most likely one, `top_k` keeps all of them. `top_p` is nucleus sampling (Holtzman et al.
    2020, arXiv:1904.09751); for `min_p` see Nguyen et al. 2024, arXiv:2407.01082.
    """
    top_p, top_k = sampling.top_p, sampling.top_k
    if sampling.min_p > 0:
        least_B1 = sampling.min_p * pi_BV.amax(-1, keepdim=True)
        pi_BV = pi_BV.where(pi_BV >= least_B1, 0)
    if top_k is not None and top_k < pi_BV.shape[-1]:
        pi_BV = pi_BV.where(pi_BV >= pi_BV.topk(top_k).values[:, -1:], 0)
    if top_p < 1:
        sorted_BV, tokens_BV = pi_BV.sort(descending=True, stable=True)
        cumulative_BV = sorted_BV.double().cumsum(-1)
        # Keep a token if those before it have less than top_p, so that the token that crosses top_p stays.
        more_likely_BV = cumulative_BV - sorted_BV
        sorted_BV = sorted_BV.where(more_likely_BV < top_p * cumulative_BV[:, -1:], 0)
        pi_BV = torch.zeros_like(pi_BV).scatter(-1, tokens_BV, sorted_BV)
    return pi_BV


_BLOCK = 256
"""Number of words in a block of `drawn`."""

_BELOW_1 = 1 - 2**-53
"""The largest number that `uniform_streams` returns."""


def drawn(pi_DV: Tensor, rows_B: Tensor, uniform_B: Tensor) -> Tensor:
    """Draw a token for each of B rollouts, from the rollout's row of probabilities.

    The token is the first at which the cumulative probability, divided by the sum of the row, exceeds the rollout's
    random number. In a row of NaN, it is the last token.

    Args:
        pi_DV: D rows of probabilities of V tokens. A row need not add up to 1.
        rows_B: for each rollout, the index of the row of `pi_DV` from which its token is drawn.
        uniform_B: for each rollout, a random number in [0, 1), float64.

    Returns:
        The ids of the tokens, (B,).
    """
    V = pi_DV.shape[-1]
    # Sums are in float64, because rare tokens would get lost in float32.
    if V <= _BLOCK:
        cumulative_BV = pi_DV.double().cumsum(-1)[rows_B]
        # The product stays below the total even after rounding, so some word or block exceeds it.
        threshold_B1 = uniform_B[:, None] * cumulative_BV[:, -1:]
        return _first_above(cumulative_BV, threshold_B1)[:, 0]
    # Find a block of tokens first, and then a token in the block: cumulative sums over all tokens would take several
    # times the memory of the probabilities.
    cumulative_BK = _block_sums(pi_DV).cumsum(-1)[rows_B]
    threshold_B1 = uniform_B[:, None] * cumulative_BK[:, -1:]
    block_B1 = _first_above(cumulative_BK, threshold_B1)
    before_B1 = pad(cumulative_BK, (1, 0)).gather(-1, block_B1)
    words_BW = block_B1 * _BLOCK + torch.arange(_BLOCK, device=pi_DV.device)
    pi_BW = pi_DV[rows_B[:, None], words_BW.clamp(max=V - 1)].where(words_BW < V, 0)
    cumulative_BW = pi_BW.double().cumsum(-1)
    # The sum of a block was added up in another order, and rounding may make it larger than its words' total.
    most_B1 = cumulative_BW[:, -1:] * _BELOW_1
    threshold_B1 = torch.minimum(threshold_B1 - before_B1, most_B1)
    words_B1 = block_B1 * _BLOCK + _first_above(cumulative_BW, threshold_B1)
    return words_B1.clamp(max=V - 1)[:, 0]


def _block_sums(pi_DV: Tensor) -> Tensor:
    """Return the sum of the probabilities in each block of `_BLOCK` tokens, (D, blocks + 1) float64.

    The last column is the sum over the tokens after the last full block; it is 0 if there are none.
    """
    whole = pi_DV.shape[-1] // _BLOCK * _BLOCK
    blocks_DKW = pi_DV[:, :whole].view(len(pi_DV), -1, _BLOCK)
    sums_DK = blocks_DKW.sum(-1, dtype=torch.float64)
    left_D1 = pi_DV[:, whole:].sum(-1, keepdim=True, dtype=torch.float64)
    return torch.cat([sums_DK, left_D1], dim=-1)


def _first_above(cumulative_BN: Tensor, threshold_B1: Tensor) -> Tensor:
    """Return the first index in each row at which the cumulative sum exceeds the row's threshold, (B, 1).

    If no sum exceeds the threshold, or the threshold is NaN, return the last index.
    """
    place_B1 = torch.searchsorted(cumulative_BN, threshold_B1, right=True)
    return place_B1.clamp(max=cumulative_BN.shape[-1] - 1)


def ends_with_stop_text(policy: Policy, stop: Sequence[str], tokens_BT: Tensor) -> Tensor:
    """Return whether the last token of each response completes a stop text, (B,).

    The tokens before the last one must not contain a stop text. To save time, only the end of a response is decoded, as
    many tokens as the longest stop text can have.
    """
    # Decode only the tail. A token is at least one byte of text, except special tokens, for which a few more are read.
    tail = max(len(text.encode()) for text in stop) + 4
    ends = policy.decode(tokens_BT[:, -tail:].tolist())
    return torch.tensor(
        [any(text in end for text in stop) for end in ends], device=tokens_BT.device
    )
