"""Shared by all tests: one thread, no network, no deadlines that a busy machine would miss, and a working Ctrl-C."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("NO_COLOR", "1")

# A shell starts its background jobs with Ctrl-C ignored, and the tests of interruptions would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A full collection walks all objects of torch and transformers, so collect less often.
gc.set_threshold(100_000, 50, 100)
os.fsync = lambda descriptor: None  # saves 5 ms a call; no test cuts the power

settings.register_profile("olr", deadline=None)
# hypothesis begins with small examples, which pass filters most often. Among few examples too few pass for its
# health check.
few = {"max_examples": 25, "suppress_health_check": [HealthCheck.filter_too_much]}
settings.register_profile("brief", settings.get_profile("olr"), **few)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options ``--long`` and ``--rewrite`` to pytest."""
    parser.addoption(
        "--long", action="store_true", help="the long version of the tests that have one"
    )
    parser.addoption(
        "--rewrite", action="store_true", help="write the texts that outputs must equal"
    )


@pytest.fixture(scope="session")
def is_long(request: pytest.FixtureRequest) -> bool:
    """Return whether tests run at length (`make hard`) or briefly, as in every test run."""
    return bool(request.config.getoption("--long"))


def pytest_configure(config: pytest.Config) -> None:
    """Choose hypothesis's profile: `brief`, with 25 examples, in `make test`, and `olr` otherwise."""
    settings.load_profile("brief" if config.option.markexpr == "not slow" else "olr")


@pytest.fixture(scope="session")
def sampled(request: pytest.FixtureRequest) -> Callable[[int], int]:
    """Return a function that tells how many of a number of random cases to try.

    That is a quarter of them in `make test`, and all in other runs.
    """
    return lambda number: (
        number // 4 if request.config.option.markexpr == "not slow" else number
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In `make test-slow`, also run the tests of which `make test` tries only some cases, by marking them as slow.

    These are tests of hypothesis, and those that use `sampled`.
    """
    for item in items if config.option.markexpr == "slow" else []:
        # hypothesis marks its tests with this attribute.
        is_law = getattr(getattr(item, "function", None), "is_hypothesis_test", False)
        if is_law or "sampled" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def is_as_stored(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Return a function that asserts that a text equals the stored file of this name below tests/fixtures.

    With pytest's option ``--rewrite`` it first writes the text to the file. Otherwise a failure shows all lines that
    differ, and the command that writes the file.
    """

    def compare(name: str, text: str) -> None:
        file = Path(__file__).parent / "fixtures" / name
        if request.config.getoption("--rewrite"):
            file.write_text(text, encoding="utf-8")
        stored = file.read_text(encoding="utf-8")
        if text != stored:
            pairs = stored.split("\n"), text.split("\n")
            lines = unified_diff(*pairs, "stored (-)", "now (+)", n=0, lineterm="")
            tests = request.node.nodeid.partition("::")[0]
            remedy = f"If the change is meant: pytest {tests} --rewrite"
            pytest.fail("\n".join([f"{file} differs:", *lines, remedy]), pytrace=False)

    return compare


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder for the test, and return it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Start an OpenAI-compatible server for the test, and make olr's client retry without long pauses.

    Yield the `served.Server`.
    """
    from served import Server

    from olr_cli.engines.backends import openai_backend

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(openai_backend, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(openai_backend, "LONGEST_PAUSE", 0.02)
    running = Server()
    yield running
    running.close()


@pytest.fixture(scope="session")
def judge() -> Iterator[object]:
    """Return a judge of answers that all tests of a session share; it may know verdicts from earlier tests."""
    from olr_cli.answers import Judge

    with Judge(workers=1) as judge:
        yield judge


_SERVERS: list[Any] = []
"""The process that all judges share, once it has started."""


@pytest.fixture(autouse=True)
def quick_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all judges share one process that forks their workers, without a warm-up; this saves 1.5 s a judge."""
    from olr_cli.answers import pool

    class Kept(pool.Server):
        program = pool.Server.program.replace("main()", "main(warm_up=())")

        # The process serves later judges too.
        def close(self, *, is_mine: bool) -> None:
            pass

    def kept() -> Kept:
        if not _SERVERS or _SERVERS[0].process.poll() is not None:
            _SERVERS[:] = [Kept()]
        return _SERVERS[0]

    monkeypatch.setattr(pool, "Server", kept)


@pytest.fixture(autouse=True)
def quick_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make tests draw figures with 72 dpi, and write only the first line of a PDF.

    Tests with the marker `real_figures` draw them as users get them.
    """
    # A test without figures should not wait for the import of matplotlib.
    if "matplotlib.figure" not in sys.modules or request.node.get_closest_marker(
        "real_figures"
    ):
        return
    from matplotlib.figure import Figure

    draw = Figure.savefig

    def quick(figure: Figure, file: Path, *, format: str, **settings: object) -> None:
        if format == "pdf":
            file.write_bytes(b"%PDF-1.4\n")
        else:
            draw(figure, file, format=format, **settings | {"dpi": 72})

    monkeypatch.setattr(Figure, "savefig", quick)
