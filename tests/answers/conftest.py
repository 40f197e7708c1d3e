import pytest

from olr_cli.answers import Judge, pool


@pytest.fixture
def quick_start(monkeypatch):
    """Give every pool of judges' workers its own process to fork them, without a warm-up.

    This overrides the fixture for all tests, where they share one.
    """
    monkeypatch.setattr(
        pool.Server, "program", pool.Server.program.replace("main()", "main(warm_up=())")
    )


@pytest.fixture(scope="session")
def judge():
    """Return a judge with a long time limit that all tests of the session share."""
    with Judge(time_limit=30.0, workers=1) as judge:
        # Start its workers now, before `quick_start` drops the warm-up: this judge reads thousands of answers.
        judge.keys(["x+1"])
        yield judge


@pytest.fixture(scope="session")
def same(judge):
    """Return a function that tells whether two answers have equal keys, that is whether they share a class."""

    def same(a, b):
        keys = judge.keys([a, b])
        return keys[a] == keys[b]

    return same


@pytest.fixture(scope="session")
def match(judge):
    """Return a function of a gold and an answer that gives the verdict: True, False, or None if it is undecided."""
    return lambda gold, answer: judge.matches([(gold, answer)])[0]
