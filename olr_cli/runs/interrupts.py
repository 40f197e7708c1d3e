"""Stopping on request: after Ctrl-C, SIGTERM or a closed terminal, the current step is finished and saved.

While a command starts or ends there is no step to finish; a signal then stops it at once, by an exception.
"""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from traceback import walk_stack
from types import FrameType
from typing import NoReturn


class _StoppedBySignal(BaseException):
    """Base of the exceptions that a signal causes. `exit_status` is 128 + the signal's number, as shells expect it."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signal_number).name}")
        self.exit_status = 128 + signal_number


class Interrupted(_StoppedBySignal, Exception):
    """Raised when a run stops on request, with everything up to the last complete step saved."""


class Stopped(_StoppedBySignal, KeyboardInterrupt):
    """Raised when a signal stops the program at once. `except Exception` does not catch it."""


def exit_status(stop: Interrupted | KeyboardInterrupt | BrokenPipeError) -> int:
    """Return the status with which the program exits after a stop.

    It is 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP, and 141 if nobody reads the output any more.
    """
    if isinstance(stop, _StoppedBySignal):
        return stop.exit_status
    return 128 + (signal.SIGPIPE if isinstance(stop, BrokenPipeError) else signal.SIGINT)


def heed_signals() -> None:
    """From now on, let Ctrl-C, SIGTERM and SIGHUP stop the program at once by raising `Stopped`.

    Signals that the process ignores now stay ignored.
    """
    for number in _heeded():
        signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal: raise `Stopped` or, during an import, exit the process at once."""
    _leave_closed_terminal()
    if any(
        it.f_code.co_filename == "<frozen importlib._bootstrap>"
        for it, _ in walk_stack(frame)
    ):
        # An exception during the import of torch's libraries would abort the process.
        os.write(2, b"Stopped.\n")
        os._exit(128 + number)
    raise Stopped(number)


def _heeded() -> list[signal.Signals]:
    """Return which of Ctrl-C, SIGTERM and SIGHUP this process does not ignore.

    A shell makes its background processes ignore Ctrl-C, and nohup makes a command ignore SIGHUP.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def _leave_closed_terminal() -> None:
    """Drop all further output to standard output and standard error if their terminal is gone.

    Otherwise the next write would end the run with an error.
    """
    for stream in (1, 2):
        # `fstat` fails if the stream itself is closed.
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(stream).st_mode) and not os.isatty(stream):
                drop_output(stream)


def drop_output(*streams: int) -> None:
    """Send all further output of these file descriptors to nowhere.

    Call it when nobody reads the output any more. Otherwise Python complains when it flushes the output at exit.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream)


class StopRequest:
    """Remembers the first Ctrl-C, SIGTERM or SIGHUP, so that the run can stop after the current step.

    A later Ctrl-C raises `Stopped` at once. `stop_requests` makes this object and installs its signal handler.
    """

    def __init__(self, tell: Callable[[], None] | None = None) -> None:
        self.signal_number: int | None = None
        self._tell = tell

    def interruption(self) -> Interrupted | None:
        """Return the exception to raise after the current step, or None if no signal has come."""
        number = self.signal_number
        return None if number is None else Interrupted(number)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal: remember the first one and tell the user; raise `Stopped` if Ctrl-C comes after it.

        Any other later signal has no effect.
        """
        if self.signal_number is not None and number == signal.SIGINT:
            raise Stopped(number)
        if self.signal_number is not None:
            return
        self.signal_number = number
        _leave_closed_terminal()
        if self._tell is not None:
            # If the signal came during a print, Python refuses a second one. No sentence is better than no checkpoint.
            with suppress(RuntimeError):
                self._tell()


@contextmanager
def stop_requests(tell: Callable[[], None] | None = None) -> Iterator[StopRequest]:
    """Within the block, let Ctrl-C, SIGTERM and SIGHUP ask for a stop instead of ending the process.

    The block gets a `StopRequest`. After each step, the block must call `interruption` and raise the exception, if any.
    Signals that the process ignores stay ignored.

    Args:
        tell: function that tells the user, on the first signal, that the work continues until the end of the step. None
            for no message.
    """
    request = StopRequest(tell)
    before = {number: signal.signal(number, request._note) for number in _heeded()}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
