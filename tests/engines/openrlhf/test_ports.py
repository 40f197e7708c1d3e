"""Ports that no connection takes before somebody listens on them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from olr_cli.engines.openrlhf import ports
from olr_cli.engines.openrlhf.ports import free_port


@pytest.fixture
def kernels_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that stands for the kernel's range of ports for connections."""
    file = tmp_path / "range"
    monkeypatch.setattr(ports, "_KERNEL_RANGE", file)
    return file


def test_a_port_lies_below_those_of_connections_and_is_listened_on(kernels_range: Path):
    kernels_range.write_text("32768\t60999\n")
    drawn = {free_port() for _ in range(50)}
    assert all(20_000 <= port < 32_768 for port in drawn)
    assert len(drawn) > 40
    with socket.create_server(("", drawn.pop())):
        pass


def test_a_port_that_somebody_listens_on_is_not_drawn(kernels_range: Path):
    kernels_range.write_text("20002 60999\n")
    with socket.socket() as listening:
        listening.bind(("", 20_000))
        listening.listen()
        assert {free_port() for _ in range(20)} == {20_001}


@pytest.mark.parametrize("text", [None, "", "1024 65535\n"])
def test_without_room_below_the_kernel_says_which(kernels_range: Path, text: str | None):
    if text is not None:
        kernels_range.write_text(text)
    with socket.create_server(("", free_port())) as listening:
        assert 1024 <= listening.getsockname()[1] < 65_536
