"""A benchmark of sums, and an evaluation of it, for tests that change what is stored."""

import pytest
from sums import Backend, run, sums


@pytest.fixture
def benchmark(tmp_path):
    """Return the problems 0 + 7, 1 + 7, …"""
    return sums(tmp_path)


@pytest.fixture
def folder(tmp_path, benchmark):
    """Return the folder of an evaluation of `benchmark`."""
    run(tmp_path / "evaluations" / "one", [benchmark], Backend())
    return tmp_path / "evaluations" / "one"
