"""OpenRLHF without flash-attn: a stand-in during one import, never beside a real one."""

import importlib
import sys

import pytest

from olr_cli.engines.openrlhf import flash_attention

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


def test_nothing_of_it_can_be_called(openrlhf):
    flash_attention.stand_in_if_absent()
    user = importlib.import_module(USER)
    for name in ("index_first_axis", "pad_input", "rearrange", "unpad_input", "all_gather"):
        with pytest.raises(RuntimeError, match="packed samples need flash-attn, which is not installed"):
            getattr(user, name)(1, key=2)


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
