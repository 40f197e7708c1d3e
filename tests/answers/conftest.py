import pytest

from olr_cli.answers import Judge, nursery


@pytest.fixture(scope="session")
def judge():
    with Judge(workers=1) as judge:
        yield judge


@pytest.fixture(scope="session")
def same(judge):
    return lambda a, b: judge.classify([[a, b]])[0].same(a, b)


@pytest.fixture
def quick_start(monkeypatch):
    """Workers that start without warming up, where many have to."""
    program = nursery._PROGRAM.replace("worker.main", "worker._WARM_UP = (); worker.main")
    monkeypatch.setattr(nursery, "_PROGRAM", program)
