import pytest

from olr_cli.answers import Judge, pool


@pytest.fixture
def quick_start(monkeypatch):
    """Here every pool has a process of its own that forks its workers, which need no warm-up."""
    monkeypatch.setattr(
        pool.Server, "program", pool.Server.program.replace("main()", "main(warm_up=())")
    )


@pytest.fixture(scope="session")
def judge():
    with Judge(time_limit=30.0, workers=1) as judge:
        judge.keys(["x+1"])  # before `quick_start`: this one reads thousands
        yield judge


@pytest.fixture(scope="session")
def same(judge):
    def same(a, b):
        keys = judge.keys([a, b])
        return keys[a] == keys[b]

    return same


@pytest.fixture(scope="session")
def match(judge):
    return lambda gold, answer: judge.matches([(gold, answer)])[0]
