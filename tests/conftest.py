"""Shared by all tests: one thread, no network, no deadlines that a busy machine would miss, and Ctrl-C is heeded."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("NO_COLOR", "1")

# A shell has it ignored by what it starts in the background.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("olr", deadline=None)
settings.load_profile("olr")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="the long version of the tests that have one")


_TAKE_LONG = ("tests/hard/", "tests/answers/", "tests/engines/", "tests/cli/")
"""Files that begin first, so that no process is left alone with one of them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files that take long first; within a folder and a file the order stays."""
    items.sort(key=lambda item: not item.nodeid.startswith(_TAKE_LONG))


@pytest.fixture(scope="session")
def is_long(request: pytest.FixtureRequest) -> bool:
    """Whether tests run at length (`make hard`) or briefly, as in every test run."""
    return bool(request.config.getoption("--long"))


@pytest.fixture(scope="session")
def judge() -> Iterator[object]:
    """A judge of answers, for tests to which it does not matter what it has verified before."""
    from olr_cli.answers import Judge

    with Judge(workers=1) as judge:
        yield judge
