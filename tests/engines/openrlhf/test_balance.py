"""A step is dealt out so that every rank has as much to compute, and every mini-batch its share of each length."""

import random
from itertools import chain

import pytest
from hypothesis import given, strategies as st

from olr_cli.engines.openrlhf.balance import deal

DRAW = ("mini-batches", 0, 1)


@st.composite
def steps(draw):
    """Lengths of a step's samples in any order, and sizes that divide."""
    ranks, micro, per_mini, minis = (draw(st.integers(1, most)) for most in (4, 3, 3, 4))
    mini = ranks * micro * per_mini
    lengths = draw(
        st.lists(st.integers(1, 4096), min_size=mini * minis, max_size=mini * minis)
    )
    return lengths, {"ranks": ranks, "mini_batch": mini, "micro_batch": micro}


def mini_batches(dealt, sizes):
    """The micro-batches by mini-batch, rank and place."""
    of_rank = len(dealt) // sizes["ranks"]
    side_by_side = sizes["mini_batch"] // (sizes["micro_batch"] * sizes["ranks"])
    return [
        [
            dealt[rank * of_rank + first : rank * of_rank + first + side_by_side]
            for rank in range(sizes["ranks"])
        ]
        for first in range(0, of_rank, side_by_side)
    ]


@given(steps())
def test_every_sample_is_computed_once_in_micro_batches_of_the_size_asked_for(step):
    lengths, sizes = step
    dealt = deal(lengths, **sizes, draw=DRAW)
    assert sorted(chain.from_iterable(dealt)) == list(range(len(lengths)))
    assert {len(batch) for batch in dealt} == {sizes["micro_batch"]}


@given(steps())
def test_mini_batches_have_one_sample_of_each_stratum_of_lengths(step):
    lengths, sizes = step
    minis = mini_batches(deal(lengths, **sizes, draw=DRAW), sizes)
    ordered, count = sorted(lengths), len(minis)
    for mini in minis:
        own = sorted(lengths[sample] for rank in mini for batch in rank for sample in batch)
        for number, length in enumerate(own):
            assert ordered[number * count] <= length <= ordered[(number + 1) * count - 1]


@given(steps())
def test_ranks_compute_samples_of_like_length_side_by_side(step):
    lengths, sizes = step
    for mini in mini_batches(deal(lengths, **sizes, draw=DRAW), sizes):
        own = sorted(
            (lengths[sample] for rank in mini for batch in rank for sample in batch),
            reverse=True,
        )
        width = sizes["ranks"] * sizes["micro_batch"]
        for number, side_by_side in enumerate(zip(*mini, strict=True)):
            together = sorted(
                (lengths[sample] for batch in side_by_side for sample in batch),
                reverse=True,
            )
            assert together == own[number * width : (number + 1) * width]


def test_the_mini_batches_are_drawn_anew_for_every_step_and_repeat_for_the_same_one():
    lengths = [random.Random(0).randrange(4096) for _ in range(64)]
    sizes = {"ranks": 2, "mini_batch": 16, "micro_batch": 2}

    def dealt(step):
        return deal(lengths, **sizes, draw=("mini-batches", 0, step))

    assert dealt(1) == dealt(1) != dealt(2)


@pytest.mark.parametrize("sizes", [(2, 8, 3), (3, 8, 2), (1, 7, 1)])
def test_sizes_that_do_not_divide_are_an_error(sizes):
    ranks, mini, micro = sizes
    with pytest.raises(ValueError, match="don't divide"):
        deal([1] * 24, ranks=ranks, mini_batch=mini, micro_batch=micro, draw=DRAW)
