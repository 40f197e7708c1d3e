"""Modules are patched around their import, whenever that comes, and once; flash-attn may be missing."""

import importlib
import subprocess
import sys

import pytest

from olr_cli.engines.openrlhf import bridges
from olr_cli.engines.openrlhf.bridges import around_import

NAME = "a_module_of_this_test"


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    """A module that notes what it sees when it is run, and a submodule."""
    package = tmp_path / NAME
    package.mkdir()
    (package / "__init__.py").write_text("import sys\nseen = list(sys.notes)\nvalue = 1\n")
    (package / "part.py").write_text("value = 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "notes", [], raising=False)
    hooks = list(sys.meta_path)
    yield
    sys.meta_path[:] = hooks
    for name in (NAME, f"{NAME}.part"):
        sys.modules.pop(name, None)


def around(module):
    sys.notes.append("before")
    has_run = hasattr(module, "value")
    yield
    sys.notes.append("after")
    module.patched = (has_run, module.value)


@pytest.mark.parametrize("is_loaded", [False, True])
def test_both_parts_happen_at_the_import_or_at_once_where_the_module_is_loaded(is_loaded):
    if is_loaded:
        importlib.import_module(NAME)
    around_import(NAME, around)
    assert sys.notes == (["before", "after"] if is_loaded else [])
    module = importlib.import_module(NAME)
    assert module.seen == ([] if is_loaded else ["before"])
    assert sys.notes == ["before", "after"]
    assert module.patched == (is_loaded, 1)


def test_it_happens_once():
    hooks = list(sys.meta_path)
    around_import(NAME, around)
    importlib.import_module(NAME)
    assert sys.meta_path == hooks
    importlib.reload(sys.modules[NAME])
    importlib.import_module(NAME)
    assert sys.notes == ["before", "after"]


def test_a_module_that_is_absent_stays_absent():
    around_import("no_such_module_anywhere", around)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        importlib.import_module("no_such_module_anywhere")
    assert sys.notes == []


def test_a_failing_import_fails_as_ever_and_what_comes_after_is_undone(tmp_path):
    (tmp_path / NAME / "part.py").write_text("raise OSError('no')\n")

    def undone(_module):
        sys.notes.append("before")
        try:
            yield
        finally:
            sys.notes.append("undone")

    around_import(f"{NAME}.part", undone)
    with pytest.raises(OSError, match="no"):
        importlib.import_module(f"{NAME}.part")
    assert sys.notes == ["before", "undone"]
    assert f"{NAME}.part" not in sys.modules


@pytest.mark.slow
def test_a_process_is_bridged_without_importing_anything_and_torch_when_it_comes():
    code = """
import os, sys
from olr_cli.engines.openrlhf import bridges, flags
os.environ |= bridges.environment(trusts_code=False, device="cpu")
bridges.bridge_process()
heavy = [name for name in ("torch", "transformers", "ray", "vllm", "deepspeed") if name in sys.modules]
import torch
torch.cuda.set_device(3); torch.cuda.synchronize(); torch.cuda.empty_cache()
import torch._dynamo.trace_rules as compiler
compiler.get_torch_obj_rule_map()  # refuses a function that stands for two
print(heavy, torch.cuda.current_device(), os.environ["DS_ACCELERATOR"])
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout == "[] cpu cpu\n"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_nothing_is_reported_about_a_run_unless_the_user_says_so(device, monkeypatch):
    reports = {"RAY_USAGE_STATS_ENABLED": "0", "VLLM_NO_USAGE_STATS": "1"}
    for name in reports:
        monkeypatch.delenv(name, raising=False)
    assert bridges.environment(trusts_code=False, device=device).items() >= reports.items()
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    assert (
        bridges.environment(trusts_code=False, device=device)["RAY_USAGE_STATS_ENABLED"]
        == "1"
    )


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
    for name, value in bridges.environment(trusts_code=True, device="cuda").items():
        monkeypatch.setenv(name, value)
    put(tmp_path, USER, IMPORTS)
    for name in [
        name for name in sys.modules if name.partition(".")[0] in ("openrlhf", "flash_attn")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    hooks, modules = list(sys.meta_path), set(sys.modules)
    yield
    sys.meta_path[:] = hooks
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def stand_ins():
    return [name for name in sys.modules if name.partition(".")[0] == "flash_attn"]


def test_the_stand_in_is_there_during_that_import_only_and_cannot_be_called(openrlhf):
    bridges.bridge_process()
    assert stand_ins() == []
    assert not bridges.has_flash_attention()
    bridges.bridge_process()  # a second set-up in the same process changes nothing
    user = importlib.import_module(USER)
    bridges.bridge_process()
    assert importlib.import_module(USER) is user
    assert stand_ins() == []
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("flash_attn")
    for name in ("index_first_axis", "pad_input", "rearrange", "unpad_input", "all_gather"):
        with pytest.raises(RuntimeError, match="flash-attn is not installed"):
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
    assert bridges.has_flash_attention()
    bridges.bridge_process()
    assert sys.meta_path == hooks
    assert importlib.import_module(USER).pad_input == "real"
    assert "flash_attn.bert_padding" in stand_ins()
