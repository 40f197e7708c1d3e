"""Packing a batch into one row, and back, against loops over its places."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from olr_cli.engines.openrlhf.flash_attention import index_first_axis, pad_input, rearrange, unpad_input

LENGTHS = st.lists(st.integers(1, 5), min_size=1, max_size=4)


def batch(lengths, from_left):
    """Values from 1 on, and the mask of a batch that is padded on one side."""
    T = max(lengths)
    hidden_BTX = torch.arange(1.0, 1 + len(lengths) * T * 2).reshape(len(lengths), T, 2)
    at = torch.arange(T)
    rows = [at >= T - length if from_left else at < length for length in lengths]
    return hidden_BTX, torch.stack(rows).long()


@given(LENGTHS, st.booleans())
def test_a_packed_batch_is_its_sequences_one_after_the_other(lengths, from_left):
    hidden_BTX, mask_BT = batch(lengths, from_left)
    packed, indices, bounds, longest, found = unpad_input(hidden_BTX, mask_BT)
    places = [(b, t) for b in range(len(lengths)) for t in range(max(lengths)) if mask_BT[b, t]]
    assert packed.tolist() == [hidden_BTX[place].tolist() for place in places]
    assert indices.tolist() == [b * max(lengths) + t for b, t in places]
    assert bounds.tolist() == [sum(lengths[:b]) for b in range(len(lengths) + 1)]
    assert (longest, found.tolist()) == (max(lengths), lengths)
    assert bounds.dtype == found.dtype == torch.int32  # as flash attention's kernels want them
    assert torch.equal(index_first_axis(rearrange(hidden_BTX, "b s ... -> (b s) ..."), indices), packed)


@given(LENGTHS, st.booleans())
def test_padded_again_every_value_and_every_gradient_is_back_in_its_place(lengths, from_left):
    hidden_BTX, mask_BT = batch(lengths, from_left)
    hidden_BTX.requires_grad_()
    packed, indices, *_ = unpad_input(hidden_BTX, mask_BT)
    padded = pad_input(packed, indices, *mask_BT.shape)
    assert torch.equal(padded, hidden_BTX * mask_BT[..., None])
    (padded**2).sum().backward()
    assert torch.equal(hidden_BTX.grad, 2 * hidden_BTX * mask_BT[..., None])


def test_another_pattern_of_einops_is_not_taken_for_this_one():
    with pytest.raises(ValueError, match=r"alone, not 'b s -> s b'"):
        rearrange(torch.zeros(2, 3), "b s -> s b")
