"""Neighbouring ranks share a node."""

from hypothesis import given
from hypothesis import strategies as st

from olr_cli.engines.openrlhf.job import node_of_each_rank


@given(
    st.dictionaries(st.text("abcdef", min_size=1), st.integers(0, 9), max_size=5),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_every_group_of_ranks_is_on_one_node_that_has_its_gpus_free(free, nodes, gpus):
    order = node_of_each_rank(free, nodes, gpus)
    if order is None:
        assert sum(count // gpus for count in free.values()) < nodes
        return
    assert len(order) == nodes * gpus
    assert all(len(set(order[first : first + gpus])) == 1 for first in range(0, len(order), gpus))
    assert all(order.count(node) <= free[node] for node in set(order))


def test_as_few_nodes_as_possible_are_taken():
    assert node_of_each_rank({"a": 4, "b": 8, "c": 2}, 2, 4) == ["b"] * 8
    assert node_of_each_rank({"a": 7.9, "b": 8}, 2, 8) is None
