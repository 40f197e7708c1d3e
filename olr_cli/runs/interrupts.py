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
    """A stop by a signal, with the exit status that a shell expects: 128 + the signal's number."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signal_number).name}")
        self.exit_status = 128 + signal_number


class Interrupted(_StoppedBySignal, Exception):
    """The run stopped on request, with everything up to the last complete step saved."""


class Stopped(_StoppedBySignal, KeyboardInterrupt):
    """A signal stopped the program at once; like Ctrl-C, it passes handlers of ordinary errors."""


def exit_status(stop: Interrupted | KeyboardInterrupt | BrokenPipeError) -> int:
    """Return 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP, 141 if nobody reads the output any more."""
    if isinstance(stop, _StoppedBySignal):
        return stop.exit_status
    return 128 + (signal.SIGPIPE if isinstance(stop, BrokenPipeError) else signal.SIGINT)


def heed_signals() -> None:
    """Let Ctrl-C, SIGTERM and SIGHUP stop the program from now on, with a sentence and their exit status."""
    for number in _heeded():
        signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """Raise `Stopped`; during an import, exit at once."""
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
    """Return the signals that ask for a stop, without those that are ignored.

    A shell makes its background processes ignore Ctrl-C, and nohup makes a command ignore SIGHUP.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def _leave_closed_terminal() -> None:
    """Drop all further output if the terminal is gone; otherwise the first write would end the run with an error."""
    for stream in (1, 2):
        # `fstat` fails if the stream itself is closed.
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(stream).st_mode) and not os.isatty(stream):
                drop_output(stream)


def drop_output(*streams: int) -> None:
    """Drop output that these streams can no longer take, now and at the program's end, where Python would complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream)


class StopRequest:
    """The first signal, remembered and reported; a second Ctrl-C stops the program at once."""

    def __init__(self, tell: Callable[[], None] | None = None) -> None:
        self.signal_number: int | None = None
        self._tell = tell

    def interruption(self) -> Interrupted | None:
        """Return the exception that ends the run after its current step, or None if no signal came."""
        number = self.signal_number
        return None if number is None else Interrupted(number)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal."""
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
    """Within the block, let Ctrl-C, SIGTERM and SIGHUP set a flag instead of ending the process, unless they are
    ignored.

    `tell` is called on the first signal, because the work then continues for a while.
    """
    request = StopRequest(tell)
    before = {number: signal.signal(number, request._note) for number in _heeded()}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
