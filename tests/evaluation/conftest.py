"""A benchmark of sums, and an evaluation of it, for tests that change what is stored."""

import pytest
from sums import Backend, run, sums


@pytest.fixture
def benchmark(tmp_path):
    """Write a benchmark of sums with the problems 0 + 7, 1 + 7, …, and return it."""
    return sums(tmp_path)


@pytest.fixture
def folder(tmp_path, benchmark):
    """Run an evaluation of `benchmark` to its end, and return its folder."""
    run(tmp_path / "evaluations" / "one", [benchmark], Backend())
    return tmp_path / "evaluations" / "one"
