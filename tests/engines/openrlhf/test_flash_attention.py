"""OpenRLHF without flash-attn: a stand-in during one import, never beside a real one, that packs batches as it does."""

import importlib
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from olr_cli.engines.openrlhf import flash_attention
from olr_cli.engines.openrlhf.flash_attention import index_first_axis, pad_input, rearrange, unpad_input

USER = "openrlhf.models.ring_attn_utils"
IMPORTS = """
from flash_attn.bert_padding import index_first_axis, pad_input, rearrange, unpad_input
from flash_attn.utils.distributed import all_gather
"""


def put(folder, name, text=""):
    """A module, and the packages around it."""
    *packages, last = name.split(".")
    for package in packages:
        folder = folder / package
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").touch()
    (folder / f"{last}.py").write_text(text)


@pytest.fixture
def openrlhf(tmp_path, monkeypatch):
    """A package that imports flash-attn where OpenRLHF does."""
    put(tmp_path, USER, IMPORTS)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("openrlhf", "flash_attn")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    hooks, modules = list(sys.meta_path), set(sys.modules)
    yield
    sys.meta_path[:] = hooks
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def stand_ins():
    return [name for name in sys.modules if name.partition(".")[0] == "flash_attn"]


def test_without_the_stand_in_the_import_fails(openrlhf):
    with pytest.raises(ModuleNotFoundError, match="flash_attn"):
        importlib.import_module(USER)


def test_the_stand_in_is_there_during_that_import_only(openrlhf):
    flash_attention.stand_in_if_absent()
    assert stand_ins() == []
    assert not flash_attention.is_installed()
    flash_attention.stand_in_if_absent()  # a second set-up in the same process changes nothing
    user = importlib.import_module(USER)
    flash_attention.stand_in_if_absent()
    assert importlib.import_module(USER) is user
    assert stand_ins() == []
    assert not flash_attention.is_installed()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("flash_attn")


def test_it_packs_samples_but_gathers_no_ring(openrlhf):
    flash_attention.stand_in_if_absent()
    user = importlib.import_module(USER)
    for name in ("index_first_axis", "pad_input", "rearrange", "unpad_input"):
        assert getattr(user, name) is getattr(flash_attention, name)
    with pytest.raises(RuntimeError, match="ring attention needs flash-attn, which is not installed"):
        user.all_gather(1, key=2)


def test_a_real_package_is_left_alone(openrlhf, tmp_path):
    put(
        tmp_path,
        "flash_attn.bert_padding",
        "index_first_axis = pad_input = rearrange = unpad_input = 'real'\n",
    )
    put(tmp_path, "flash_attn.utils.distributed", "all_gather = 'real'\n")
    importlib.invalidate_caches()
    hooks = list(sys.meta_path)
    assert flash_attention.is_installed()
    flash_attention.stand_in_if_absent()
    assert sys.meta_path == hooks
    assert importlib.import_module(USER).pad_input == "real"
    assert "flash_attn.bert_padding" in stand_ins()


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
