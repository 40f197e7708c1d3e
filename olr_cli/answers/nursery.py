"""Worker processes as their parent sees them: started in milliseconds, ended at will.

One process imports and warms up the parser and forks the workers (`worker.main`). Requests and replies are lines in
pipes: workers work from any thread, in Ray actors and in daemonic processes.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path

from olr_cli.answers.worker import END, START

_PROGRAM = """\
import sys
if {root!r} not in sys.path:
    sys.path.insert(0, {root!r})  # this olr, whichever is installed too
from olr_cli.answers import worker
worker.main()
"""
_START_LIMIT = 120.0


class Lost(Exception):
    """The process that starts the workers is gone or doesn't answer; what it wrote last."""


class Nursery:
    """The process that starts workers."""

    def __init__(self) -> None:
        program = _PROGRAM.format(root=str(Path(__file__).resolve().parents[2]))
        self._owner = os.getpid()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._socket, its_end = socket.socketpair()
        self._socket.settimeout(_START_LIMIT)
        with its_end:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", program],  # -P: nothing in the current folder is imported
                stdin=its_end.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                # A fixed hash seed: the order of sympy's sets must not make a run differ from its repetition.
                env={**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
            )

    def is_mine(self) -> bool:
        """Whether this process started it, and not one that it was forked from."""
        return self._owner == os.getpid()

    def start(self) -> Worker:
        """A new worker.

        Raises:
            Lost: there can't be one.
        """
        requests, its_requests = os.pipe()[::-1]
        replies, its_replies = os.pipe()
        try:
            worker = int(self._ask(START, [its_requests, its_replies]))
        except BaseException:
            os.close(requests)
            os.close(replies)
            raise
        finally:
            os.close(its_requests)
            os.close(its_replies)
        return Worker(self, worker, requests, replies)

    def end(self, worker: int) -> int:
        """Kill a worker, whatever it does; another process's is left alone.

        Returns:
            The signal that ended it; 0 where that is not known.
        """
        if self.is_mine():
            with contextlib.suppress(Lost):  # then it ends with its input, or with its time
                return int(self._ask(END + b"%d" % worker))
        return 0

    def close(self) -> None:
        """End the process, once its workers are ended; of another process's, only what was inherited of it."""
        self._socket.close()
        if self.is_mine():
            self._process.kill()  # it may be starting yet; a worker it started meanwhile ends with its input
            self._process.wait()
        self._errors.close()

    def _ask(self, request: bytes, files: list[int] | None = None) -> bytes:
        try:
            socket.send_fds(self._socket, [request], files or [])
            reply = self._socket.recv(64)
        except OSError as error:
            raise Lost(self._last_words() or str(error)) from None
        if not reply:
            raise Lost(self._last_words() or "no reason given")
        return reply

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace").strip()[-2000:]


class Worker:
    """A process and the tasks it holds, the first of which it is working on.

    Attributes:
        process_id: its number.
        tasks: what it was given and hasn't answered, in order, each with the part of the time limit that it may take.
    """

    def __init__(self, nursery: Nursery, process_id: int, requests: int, replies: int) -> None:
        self.process_id = process_id
        self.input, self.output = requests, replies
        for file in (requests, replies):
            os.set_blocking(file, False)
        self.tasks: deque[tuple[int, float]] = deque()
        self.outbox = bytearray()
        self.inbox = bytearray()
        self._nursery = nursery

    def end(self) -> int:
        """Kill the process, whatever it does, and free everything of it. Returns the signal that ended it, or 0."""
        ended_by = self._nursery.end(self.process_id)
        os.close(self.input)
        os.close(self.output)
        return ended_by
