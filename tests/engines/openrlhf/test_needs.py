"""What a dry run says of a machine on which a part of OpenRLHF's stack is missing, or another than the tested one."""

import socket
import sys

import pytest
import torch
from cases import each

from olr_cli.engines.openrlhf import WRITTEN_FOR, needs
from olr_cli.engines.openrlhf.needs import (
    driver_version,
    missing_here,
    require_short_folder,
    require_unlocked,
    require_usable_gpus,
    stale_locks,
    version_warnings,
)
from olr_cli.errors import NotHere
from olr_cli.recipe.layers import validate


class Node:
    """A node on which the whole stack is installed, until something is changed."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self.versions = {**WRITTEN_FOR, "torch": "2.13.0+cu130", "transformers": "5.15.1"}
        self.add("nvcc", "Cuda compilation tools, release 13.0, V13.0.88")
        self.add("c++")

    def add(self, name, answer=""):
        program = self.folder / name
        program.write_text(f"#!/bin/sh\necho '{answer}'\n")
        program.chmod(0o755)

    def remove(self, name):
        (self.folder / name).unlink()


@pytest.fixture
def node(tmp_path, monkeypatch):
    for name in ("RAY_ADDRESS", "DS_SKIP_CUDA_CHECK", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    pretended = Node(tmp_path / "bin")
    monkeypatch.setattr(
        needs, "installed_version", lambda package: pretended.versions.get(package)
    )
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    return pretended


def missing(**engine):
    return list(missing_here(validate({"engine": {"name": "openrlhf", **engine}}, "test")))


def test_a_node_with_everything_lacks_nothing(node):
    assert missing() == missing(device="cpu") == version_warnings() == []


@each(
    "change, sentence",
    (lambda node: node.versions.pop("ray"), "the package ray is not installed here"),
    (lambda node: node.versions.pop("vllm"), "the package vllm is not installed here"),
    (
        lambda node: node.remove("c++"),
        "there is no C++ compiler (c++), and DeepSpeed compiles its Adam",
    ),
    (lambda node: node.add("nvcc", "release 13.1, V13.1.8"), "the CUDA toolkit is 13.1 ("),
)
def test_what_is_missing_on_a_node_is_one_sentence(node, change, sentence):
    change(node)
    (found,) = missing()
    assert found.startswith(sentence)


def test_a_toolkit_that_is_not_there_is_named_with_its_place(node, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    (found,) = missing()
    assert found.startswith(
        "there is no CUDA toolkit (/nowhere/bin/nvcc), and DeepSpeed compiles its Adam with 13.0"
    )
    monkeypatch.setenv("DS_SKIP_CUDA_CHECK", "1")
    assert missing() == []


def test_any_cuda_12_goes_with_any_other(node, monkeypatch):
    node.add("nvcc", "release 12.4, V12.4.1")
    assert len(missing()) == 1
    monkeypatch.setattr(torch.version, "cuda", "12.9")
    assert missing() == []


def test_only_a_job_on_the_gpus_of_this_machine_needs_its_compilers(node):
    node.remove("c++")
    node.remove("nvcc")
    assert len(missing()) == 2
    assert missing(device="cpu") == missing(ray_address="auto") == []


def test_where_openrlhf_is_not_installed_its_stack_is_not_listed_too(node):
    node.versions = {}
    assert missing() == version_warnings() == []


def test_a_ray_that_does_not_answer_is_missing(node, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert missing(ray_address=address) == missing(ray_address=f"ray://{address}") == []
    assert missing(ray_address=address) == [
        f"no Ray answers at {address} (Connection refused); start it there (ray start --head), or correct"
        " engine.ray_address or the variable RAY_ADDRESS"
    ]
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert missing()[0].startswith(f"no Ray answers at {address}")
    assert missing(ray_address="127.0.0.1:many")[0].startswith(
        "no Ray answers at 127.0.0.1:many ("
    )


OLD_DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\nGCC version: …"
OPEN_DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (…)\nGCC version: 12"


@each(
    "text, version",
    (OLD_DRIVER, "535.129.03"),
    (OPEN_DRIVER, "580.159.04"),
    ("another text", None),
)
def test_a_drivers_version_is_read_from_the_kernel(text, version, tmp_path):
    (tmp_path / "version").write_text(text)
    assert driver_version(tmp_path / "version") == version
    assert driver_version(tmp_path / "nothing") is None


def test_gpus_that_torch_counts_and_cannot_use_are_named_with_both_versions(
    node, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    require_usable_gpus()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(needs, "driver_version", lambda: "535.129.03")
    with pytest.raises(
        NotHere, match=r"made for CUDA 13\.0, and the driver is 535\.129\.03;"
    ):
        require_usable_gpus()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)  # another sentence's
    require_usable_gpus()


def test_a_folder_that_is_too_long_for_rays_sockets_is_refused_before_ray_starts(
    monkeypatch,
):
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    longest = "/" + "a" * 38
    monkeypatch.setenv("TMPDIR", longest)
    require_short_folder()
    monkeypatch.setenv("TMPDIR", f"{longest[:-1]}ä")  # two bytes
    with pytest.raises(NotHere, match=r"\(TMPDIR\), whose name has more than the 39 bytes"):
        require_short_folder()
    monkeypatch.setenv("RAY_TMPDIR", "/tmp/me")  # which Ray asks first
    require_short_folder()


def test_other_versions_are_one_sentence(node):
    node.versions |= {"deepspeed": "0.19.7", "torch": "2.14.0"}
    assert version_warnings() == [
        "the engine openrlhf was tested with deepspeed 0.19.6, torch 2.13, not with deepspeed 0.19.7, torch 2.14.0;"
        " docs/openrlhf-install.md tells how to install it"
    ]


@pytest.mark.parametrize(
    "is_default", [True, False], ids=["the user's cache", "TORCH_EXTENSIONS_DIR"]
)
def test_the_lock_of_a_build_that_was_killed_is_named_before_a_run_hangs_on_it(
    is_default, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    folder = (
        tmp_path
        / "torch_extensions"
        / f"py{sys.version_info.major}{sys.version_info.minor}_cu130"
    )
    if not is_default:
        folder = tmp_path / "kept"
        monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(folder))
    require_unlocked()
    lock = folder / "fused_adam" / "lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w"):  # as long as somebody compiles, torch has it open
        assert stale_locks() == []
        require_unlocked()
    assert stale_locks() == stale_locks(folder) == [lock]
    with pytest.raises(
        NotHere, match=f"^{lock} is there and no process .* remove the file"
    ):
        require_unlocked()
