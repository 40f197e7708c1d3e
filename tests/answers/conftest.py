import pytest

from olr_cli.answers import Judge, pool


@pytest.fixture
def quick_start(monkeypatch):
    """Give every pool its own process for forking workers, without a warm-up, in place of the shared one."""
    monkeypatch.setattr(
        pool.Server, "program", pool.Server.program.replace("main()", "main(warm_up=())")
    )


@pytest.fixture(scope="session")
def judge():
    with Judge(time_limit=30.0, workers=1) as judge:
        # Start its workers now, before `quick_start` drops the warm-up: this judge reads thousands of answers.
        judge.keys(["x+1"])
        yield judge


@pytest.fixture(scope="session")
def same(judge):
    """Return whether two answers share a class, as a function."""

    def same(a, b):
        keys = judge.keys([a, b])
        return keys[a] == keys[b]

    return same


@pytest.fixture(scope="session")
def match(judge):
    """Return the verdict on a gold and an answer, as a function."""
    return lambda gold, answer: judge.matches([(gold, answer)])[0]
