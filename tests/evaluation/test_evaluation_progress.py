"""What an evaluation says while it works."""

import io
import re
import sys

import pytest
from rich.console import Console

from olr_cli.evaluation.evaluate import Progress


@pytest.fixture
def clock():
    """A clock that is set by hand."""
    return [0.0]


def shown_on(clock, **options):
    return Console(file=io.StringIO(), width=80, get_time=lambda: clock[0], **options)


def test_lines_say_what_is_there_and_now_and_then_how_far_it_is(clock):
    console = shown_on(clock)
    progress = Progress(console)
    progress.start("some model", 1000, 500)
    progress.generating(["[b]AIME24"])
    # The first 100 seconds may be the start of an engine
    for clock[0] in (
        100,
        110,
        120,
        150,
    ):
        progress.advance(125)
    assert console.file.getvalue().splitlines() == [
        "some model: 1,000 samples, 500 of them there already; loading the model …",
        "[b]AIME24 …",
        "[b]AIME24: 625 of 1,000 samples in all, – left",
        "[b]AIME24: 1,000 of 1,000 samples in all, 0:00 left",
    ]


def test_the_time_left_is_at_the_pace_since_the_first_samples_and_every_model_has_its_own(
    clock,
):
    console = shown_on(clock)
    progress = Progress(console)
    for begins in (0, 1000):
        progress.start("some model", 500, 0)
        progress.generating(["AIME24"])
        for seconds in (100, 110, 140):
            clock[0] = begins + seconds
            progress.advance(100)
        progress.stop()
    assert console.file.getvalue().count("300 of 500 samples in all, 0:40 left") == 2


def test_what_is_printed_appears_above_the_bar(clock):
    console = shown_on(clock, force_terminal=True, force_interactive=True)
    bar = Progress(console)
    bar.start("some model", 100, 20)
    assert "\x1b" not in console.file.getvalue(), "the bar waits until the model is loaded"
    bar.generating(["[b]AIME24"])
    bar.advance(30)
    print("a warning", file=sys.stderr)
    bar.say("Stopping")
    bar.stop()
    shown = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())
    assert "[b]AIME24" in shown
    assert " 50/100 samples, left" in shown
    for sentence in ("a warning\n", "Stopping\n"):
        before, _, _ = shown.partition(sentence)
        assert before.endswith(("\r\x1b[2K", "\n")), "the bar's line is cleared first"
    console.file.seek(0)
    console.file.truncate()
    bar.start("another", 10, 0)
    bar.generating(["AMC", "MATH"])
    bar.advance(10)
    bar.stop()
    assert "2 benchmarks" in console.file.getvalue()
    assert "AIME24" not in console.file.getvalue(), "every model has a bar of its own"
