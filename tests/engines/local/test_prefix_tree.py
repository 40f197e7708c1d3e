"""A tree says of each sequence what it would say alone, and holds what sequences share once."""

import torch
from hypothesis import given, strategies as st
from tiny import keys, tiny_policy

from olr_cli.engines.local.prefix_tree import PrefixTree
from olr_cli.engines.local.sampler import sample
from olr_cli.engines.local.token_statistics import response_statistics
from olr_cli.recipe.sampling import Sampling

WORDS = st.integers(3, 5)
"""So few that responses, and their beginnings, are often equal."""

POLICY = tiny_policy()

SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), max_size=8)


@given(SEQUENCES)
def test_a_node_is_a_beginning_and_sees_itself_and_its_ancestors(sequences):
    tree = PrefixTree()
    paths = [
        tree.add(sequence[1:], after=tree.add(sequence[:1])[-1]) for sequence in sequences
    ]
    assert len(tree) == len(
        {tuple(s[:end]) for s in sequences for end in range(1, len(s) + 1)}
    )
    visible = tree.is_visible_NN()
    for sequence, path in zip(sequences, paths, strict=True):
        if path:
            seen = visible[path[-1]].nonzero()[0]
            assert [tree.tokens[node] for node in seen] == sequence
            assert [tree.depths[node] for node in seen] == list(range(len(sequence)))


def test_statistics_are_the_same_by_trees_and_by_rows():
    policy = tiny_policy()
    # More than one tree takes
    prompts = [[1 + (7 * p + place) % 50 for place in range(9)] for p in range(60)]
    rollouts = sample(policy, prompts, keys(60, 4), Sampling(1.0, 6))
    lengths_PG = rollouts.lengths_PG
    is_response = torch.arange(rollouts.tokens_PGT.shape[2]) < lengths_PG[..., None]
    results = []
    for policy.reads_trees in (False, True):
        statistics = response_statistics(
            policy, prompts, rollouts.tokens_PGT, 0.7, lengths_PG=lengths_PG, entropy=True, self_certainty=True,
        )  # fmt: skip
        results.append([values[is_response] for values in statistics])
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-5)


@given(
    st.lists(st.lists(WORDS, min_size=1, max_size=4), min_size=1, max_size=4),
    st.integers(1, 6),
    st.integers(1, 4),
    st.data(),
)
def test_equal_responses_computed_once_have_the_statistics_and_gradient_of_each_alone(
    prompts, rollouts, limit, data
):
    tokens = st.lists(WORDS, min_size=limit, max_size=limit)
    group = st.lists(tokens, min_size=rollouts, max_size=rollouts)
    tokens_PGT = torch.tensor([data.draw(group) for _ in prompts])
    results = []
    policy = POLICY
    for policy.reads_trees, policy.recomputes in (
        (False, False),
        (True, False),
        (False, True),
    ):
        statistics = response_statistics(
            policy, prompts, tokens_PGT, 0.7, entropy=True, self_certainty=True
        )
        policy.model.zero_grad()
        # Not all alike, or the gradients of equal responses could be mixed up
        weights_PGT = torch.arange(tokens_PGT.numel()).view_as(tokens_PGT) / 10
        sum((values * weights_PGT).sum() for values in statistics).backward()
        gradients = [weight.grad.clone() for weight in policy.model.parameters()]
        results.append([*statistics, *gradients])
    # Summed in another order: where large terms cancel, rounding is a share of these, not of their sum.
    largest = max(float(one.detach().abs().max()) for one in results[0])
    for others in results[1:]:
        torch.testing.assert_close(others, results[0], atol=1e-5 * largest, rtol=1e-4)
