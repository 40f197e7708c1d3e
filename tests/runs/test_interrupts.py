"""What signals do while a run works, and which status they end it with."""

import os
import pty
import signal
import sys

import pytest
from cases import each

from olr_cli.runs.interrupts import (
    Interrupted,
    Stopped,
    exit_status,
    heed_signals,
    stop_requests,
)


@pytest.fixture
def handlers():
    """Puts the signals' handlers back. Under nohup the tests themselves ignore SIGHUP."""
    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_is_noted_and_told_and_the_second_ctrl_c_stops_at_once(
    number, handlers
):
    told = []
    with stop_requests(lambda: told.append("stopping")) as stop:
        signal.raise_signal(number)
        assert (stop.signal_number, told) == (number, ["stopping"])
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert (stop.signal_number, told) == (number, ["stopping"])


def test_a_signal_that_is_ignored_stays_ignored(handlers):
    """As Ctrl-C is in what a shell starts in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    heed_signals()
    with stop_requests() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.signal_number is None
        signal.raise_signal(signal.SIGTERM)
        assert stop.signal_number == signal.SIGTERM
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_sentence_that_cannot_be_printed_now_does_not_end_the_run(handlers):
    def in_the_middle_of_a_print():
        raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stdout>'>")

    with stop_requests(in_the_middle_of_a_print) as stop:
        signal.raise_signal(signal.SIGINT)
    assert stop.signal_number == signal.SIGINT


def test_outside_of_a_run_a_signal_stops_past_whatever_handles_errors(handlers):
    heed_signals()
    with pytest.raises(Stopped) as stop:
        try:
            signal.raise_signal(signal.SIGTERM)
        except Exception:
            raise AssertionError from None
    assert stop.value.exit_status == 143


def test_the_end_of_the_terminal_stops_a_run_which_can_still_save_what_it_has():
    program = """
import signal, sys, time
from olr_cli.runs.interrupts import stop_requests
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup, under which a test may run, has it ignored
with stop_requests() as stop:
    print("ready", flush=True)
    while stop.signal_number is None:
        time.sleep(0.01)
    print("saved", flush=True)
sys.exit(stop.interruption().exit_status)
"""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", program])
    assert os.read(terminal, 100).startswith(b"ready")
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 129


@each(
    "stop, status",
    (Interrupted(signal.SIGTERM), 143),
    (Stopped(signal.SIGTERM), 143),
    (Stopped(signal.SIGINT), 130),
    (KeyboardInterrupt(), 130),
    (BrokenPipeError(), 141),
)
def test_the_exit_status_tells_what_stopped_a_run(stop, status):
    assert exit_status(stop) == status
