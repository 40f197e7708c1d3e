"""Statistics of given responses under a policy: differentiable, in bounded memory, each shared beginning read once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import chain, pairwise

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from olr_cli.engines.local.loss import TokenStatistics
from olr_cli.engines.local.policy import Policy
from olr_cli.engines.local.prefix_tree import PrefixTree
from olr_cli.engines.local.responses import self_certainty_of

_FULL_TREE = 384
"""Number of nodes at which the next prompt starts another tree.

Attention computes all pairs of a tree's nodes, masked or not, so a large tree costs more than it saves.
"""

_MOST_NODES = 4096
"""Largest number of nodes in one tree."""

MOST_SCORES = 2**28
"""Largest number of logits in one forward and backward pass: 1 GiB in float32.

A pass keeps about four tensors of that size, or eight if it needs whole distributions.
"""


def response_statistics(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    tokens_PGT: Tensor,
    temperature: float,
    *,
    lengths_PG: Tensor | None = None,
    entropy: bool = False,
    self_certainty: bool = False,
) -> TokenStatistics:
    """Return statistics of the tokens of given responses.

    The statistics carry gradients, unless torch's gradients are off. Beginnings that several sequences share are
    computed only once where that saves time.

    Args:
        policy: the policy whose statistics are computed.
        prompts: token ids of P prompts.
        tokens_PGT: tokens of G responses to each prompt, with padding after the end. Statistics at padding are
            arbitrary.
        temperature: divides the logits.
        lengths_PG: number of tokens of each response; None if all have T.
        entropy: whether to compute the entropy of each token's distribution.
        self_certainty: whether to compute KL(uniform || pi) of each token's distribution pi.
    """

    def of(logits_NV: Tensor, row: Tensor, tokens: Tensor) -> TokenStatistics:
        """Return the statistics of tokens, each drawn from one of N rows of logits.

        `row` has, for each token, the index of its row in `logits_NV`. The statistics have the shape of `tokens` and
        `row`.
        """
        # In float32: the ratios of the update come from these numbers.
        logits_NV = logits_NV.float()
        if temperature != 1:
            logits_NV = logits_NV / temperature
        log_pi_NV = torch.log_softmax(logits_NV, dim=-1)
        return TokenStatistics(
            log_pi_NV[row, tokens],
            -(log_pi_NV.exp() * log_pi_NV).sum(-1)[row] if entropy else None,
            self_certainty_of(log_pi_NV)[row] if self_certainty else None,
        )

    head = policy.model.get_output_embeddings()
    V = head.weight.shape[0]
    # Only a plain head can be applied to some rows at a time.
    in_pieces = policy.has_plain_head and tokens_PGT.numel() * V > MOST_SCORES
    with policy.precision(), policy.without_head() if in_pieces else nullcontext():
        scores = (
            _scores_of_tree(policy, prompts, tokens_PGT, lengths_PG)
            if policy.reads_trees
            else None
        )
        states_ND, row_PGT = scores or _scores_of_rows(policy, prompts, tokens_PGT)
    if not in_pieces:
        return of(states_ND, row_PGT, tokens_PGT)

    def of_hidden(hidden_ND: Tensor, row_M: Tensor, tokens_M: Tensor) -> TokenStatistics:
        """Return the statistics of M tokens from N rows of hidden states; `row_M` has the index of each token's row."""
        with policy.precision():
            logits_NV = head(hidden_ND)
        return of(logits_NV, row_M, tokens_M)

    return _in_pieces(
        of_hidden, states_ND, row_PGT, tokens_PGT, max(1, MOST_SCORES // 4 // V)
    )


def _in_pieces(
    of: Callable[[Tensor, Tensor, Tensor], TokenStatistics],
    hidden_ND: Tensor,
    row_PGT: Tensor,
    tokens_PGT: Tensor,
    size: int,
) -> TokenStatistics:
    """Return the statistics of all tokens, computing the logits of only `size` rows of hidden states at a time.

    The backward pass computes the logits of each piece again, so only one piece's logits are ever in memory.

    Args:
        of: computes the statistics of the tokens of a piece. Its arguments are the piece's rows of hidden states, the
            index of each token's row, and the tokens.
        hidden_ND: all N rows of hidden states.
        row_PGT: for each token, the index of the row of `hidden_ND` from which it was drawn.
        tokens_PGT: the tokens.
        size: number of rows in a piece.
    """
    # Sort the tokens by row, so that the tokens of a piece are neighbours.
    row_M, order_M = row_PGT.flatten().sort(stable=True)
    tokens_M = tokens_PGT.flatten()[order_M]
    starts = torch.arange(0, len(hidden_ND) + size, size, device=row_M.device)
    bounds = torch.searchsorted(row_M, starts).tolist()
    pieces = [
        checkpoint(
            of,
            hidden_ND[number * size : (number + 1) * size],
            row_M[first:last] - number * size,
            tokens_M[first:last],
            use_reentrant=False,
            preserve_rng_state=False,
        )
        for number, (first, last) in enumerate(pairwise(bounds))
    ]
    back_M = order_M.argsort()
    columns = (
        None if parts[0] is None else torch.cat(parts)[back_M].view_as(tokens_PGT)
        for parts in zip(*pieces, strict=True)
    )
    return TokenStatistics(*columns)  # type: ignore[arg-type]


def _scores_of_rows(
    policy: Policy, prompts: Sequence[Sequence[int]], tokens_PGT: Tensor
) -> tuple[Tensor, Tensor]:
    """Return N rows of logits, (N, V), and for each response token the index of the row that scores it, (P, G, T).

    Responses to a prompt share rows only if all their tokens, padding included, are equal. `_scores_of_tree` also lets
    equal beginnings share rows. In a block of `Policy.without_head` the rows are hidden states instead of logits.
    """
    P, G, T = tokens_PGT.shape
    if policy.reads_whole(prompts, T):
        row_PGT = torch.arange(P * G * T, device=policy.device).view(P, G, T)
        with policy.recomputing():
            return policy.read_whole(prompts, tokens_PGT).flatten(0, 1), row_PGT
    prompt_B1 = torch.arange(P, device=policy.device).repeat_interleave(G)[:, None]
    distinct_UT, response_B = torch.unique(
        torch.cat([prompt_B1, tokens_PGT.flatten(0, 1)], dim=1), dim=0, return_inverse=True
    )
    context = policy.read(prompts)
    # Column 0 is the prompt, so this gives each distinct response a row that continues its prompt.
    context.select(distinct_UT[:, 0])
    logits_UTV = context.logits_BV[:, None]
    if T > 1:
        later_UTV = policy.extend(context, distinct_UT[:, 1:-1])
        logits_UTV = torch.cat([logits_UTV, later_UTV], dim=1)
    row_BT = response_B[:, None] * T + torch.arange(T, device=policy.device)
    return logits_UTV.flatten(0, 1), row_BT.view(P, G, T)


def _scores_of_tree(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    tokens_PGT: Tensor,
    lengths_PG: Tensor | None,
) -> tuple[Tensor, Tensor] | None:
    """Return N rows of logits, (N, V), and for each response token the index of the row that scores it, (P, G, T).

    Beginnings that sequences share are computed only once. Return None if a prompt and its responses make a tree of
    more than `_MOST_NODES` nodes. In a block of `Policy.without_head` the rows are hidden states instead of logits.

    A node of the tree is a token, and the logits at a node are those of the token after it. With prompt ab, the
    responses cd and ce need only the logits at b and at c, and those at c once for both:

        a ── b ── c           the node of each token:  [[b, c],
                                                        [b, c]]
    """
    P, G, T = tokens_PGT.shape
    lengths = [[T] * G] * P if lengths_PG is None else lengths_PG.tolist()
    trees: list[
        tuple[PrefixTree, list[int]]
    ] = []  # each with the nodes whose scores are needed
    row_PGT = torch.zeros(P, G, T, dtype=torch.long)
    rows_before = 0
    for p, group in enumerate(tokens_PGT.tolist()):
        if not trees or len(trees[-1][0]) >= _FULL_TREE:
            trees.append((PrefixTree(), []))
        tree, nodes = trees[-1]
        end = tree.add(prompts[p])[-1]
        paths = [
            [end, *tree.add(tokens[: length - 1], after=end)]
            for tokens, length in zip(group, lengths[p], strict=True)
        ]
        # A dict keeps the nodes in order: their scores come back in this order.
        prompt_nodes = dict.fromkeys(chain.from_iterable(paths))
        row_of = {node: row for row, node in enumerate(prompt_nodes, start=rows_before)}
        for g, path in enumerate(paths):
            row_PGT[p, g, : len(path)] = torch.tensor([row_of[node] for node in path])
        nodes += prompt_nodes
        rows_before += len(prompt_nodes)
        if len(tree) > _MOST_NODES:
            return None
    with policy.recomputing():
        logits = [policy.read_tree(tree, nodes) for tree, nodes in trees]
    return torch.cat(logits), row_PGT.to(policy.device)
