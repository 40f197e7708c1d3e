"""Worker processes with a limit on every task (R8).

The work of a task is counted in calls of Python functions, which neither the machine nor other tasks change. Seconds of
processor time and a budget of lost time for the whole pool were tried: verdicts then depended on load and on what else
had been asked. A task that doesn't return is ended with its process, which needs no cooperation from it. Requests and
replies are lines in sockets, so that a pool works from any thread, in Ray actors and in daemonic processes.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from olr_cli.answers.worker import SPENT

_WINDOW = 16
"""Tasks a worker holds at a time, so that it never waits for the parent."""
_TASKS_A_WORKER = 32
"""Waiting tasks for each worker that is started."""
_CALLS_A_SECOND = 1_500_000
"""Calls of Python functions that count as one second of processor time."""
_SHARE = 16
"""Tasks that share a worker get 1/16 of the limit each; a slower one is run again in its own process, where its calls
are counted."""
_BACKSTOP = 5
"""Time limits, in processor time, after which a task of few long calls is ended: counting calls doesn't stop it."""
_ATTEMPTS = 2
"""A task whose process died before its time may have been an innocent bystander once."""
_MOST_FAILED_STARTS = 3
_START_SECONDS = 120.0

GAVE_UP: Final = object()
"""Stands for the result of a task that cost too much or ended its worker."""


class Server:
    """The process that forks workers; it runs `program`."""

    program = """\
import sys
if {root!r} not in sys.path:
    sys.path.insert(0, {root!r})  # this olr, whichever is installed too
from olr_cli.answers import worker
worker.main()
"""

    def __init__(self) -> None:
        program = self.program.format(root=str(Path(__file__).resolve().parents[2]))
        # In memory where there are such files: nothing may be written to the temporary folder of some machines.
        in_memory = hasattr(os, "memfd_create")
        if in_memory:
            self._errors = os.fdopen(os.memfd_create("olr"), "w+b")
        else:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._socket, child_socket = socket.socketpair()
        with child_socket:
            self.process = subprocess.Popen(
                # -P: nothing in the current folder is imported
                [
                    sys.executable,
                    "-P",
                    "-c",
                    program,
                ],
                stdin=child_socket.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                # A fixed hash seed: the order of sympy's sets must not make a run differ from its repetition.
                env={**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
            )

    def start_worker(self) -> _Worker:
        """Start a worker; raises OSError with the server's last words if it has ended or doesn't answer."""
        ours, child_socket = socket.socketpair()
        try:
            with child_socket:
                socket.send_fds(self._socket, [b"1"], [child_socket.fileno()])
            ours.settimeout(_START_SECONDS)
            process_id = ours.recv(64)  # a worker sends it first
            if not process_id:
                raise OSError("no reason given")
            ours.settimeout(None)
        except OSError as error:
            ours.close()
            self._errors.seek(0)
            words = self._errors.read().decode("utf-8", "replace").strip()[-2000:]
            raise OSError(words or str(error)) from None
        return _Worker(ours, int(process_id))

    def close(self, *, is_mine: bool) -> None:
        """End the process; of another process's, only what was inherited of it."""
        self._socket.close()
        if is_mine:
            self.process.kill()  # it may be starting yet
            self.process.wait()
        self._errors.close()


class _Worker:
    """A process and the tasks it holds, in order; it works on the first. It ends with its socket or a task's time."""

    def __init__(self, connection: socket.socket, process_id: int) -> None:
        self.connection = connection
        self.process_id = process_id
        self.tasks: deque[int] = deque()
        self.began = 0.0  # when it was last idle
        self._inbox = b""

    def send(self, limits: tuple[float, int], number: int, task: Sequence[str]) -> None:
        """Send a task. Blocks while the socket is full; a worker reads on after its task, or ends."""
        if not self.tasks:
            self.began = time.monotonic()
        self.tasks.append(number)
        with suppress(OSError):  # the worker has ended, which `receive` will report
            self.connection.sendall(json.dumps([*limits, *task]).encode("ascii") + b"\n")

    def fill(
        self,
        window: int,
        pending: deque[int],
        tasks: Sequence[Sequence[str]],
        limits: tuple[float, int],
    ) -> None:
        """Send pending tasks, by their numbers, until the worker holds a window of them."""
        while pending and len(self.tasks) < window:
            number = pending.popleft()
            self.send(limits, number, tasks[number])

    def receive(self) -> tuple[list[tuple[int, Any]], bool]:
        """Return the tasks that the worker has done, with their results, and whether it has exited."""
        try:
            data = self.connection.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        *lines, self._inbox = (self._inbox + data).split(b"\n")
        replies = [(self.tasks.popleft(), json.loads(line)) for line in lines]
        results = [(task, GAVE_UP if reply == SPENT else reply) for task, reply in replies]
        return results, not data


class WorkerPool:
    """Up to `size` workers, started when there is work. One thread at a time may use it.

    Args:
        size: most workers that work at a time.
        time_limit: seconds of processor time that a task may take, about, for they are counted in calls.
        report: takes a sentence on how many tasks of a run are done, now and then.
    """

    def __init__(
        self, size: int, time_limit: float, report: Callable[[str], None] | None = None
    ) -> None:
        self.size = size
        self.time_limit = time_limit
        self.report = report
        self._owner = os.getpid()
        self._workers: list[_Worker] = []
        self._servers: list[Server] = []  # one at most
        weakref.finalize(self, _end_all, self._owner, self._workers, self._servers)

    def run(self, tasks: Sequence[Sequence[str]]) -> list[Any]:
        """The results of `tasks` (as `matching.decide` takes them), in order; `GAVE_UP` where there is none.

        What is given up depends on the task alone: one that is not done in a sixteenth of its time is run again in its
        own process, which has seen no other task, and where its calls are counted.

        Raises:
            RuntimeError: workers can't be started.
        """
        if not tasks:
            return []
        if self._owner != os.getpid():  # forked: these workers belong to another process
            self.close()
            self._owner = os.getpid()
        results: dict[int, Any] = dict.fromkeys(range(len(tasks)), GAVE_UP)
        try:
            slow = self._round(tasks, range(len(tasks)), results, is_alone=False)
            self._round(tasks, slow, results, is_alone=True)
        except BaseException:
            self.close()  # they hold tasks that nobody waits for
            raise
        return [*results.values()]

    def close(self) -> None:
        """End all workers; the next `run` starts new ones."""
        _end_all(self._owner, self._workers, self._servers)

    def prepare(self) -> None:
        """Start the fork server in the background; it takes about a second."""
        if not self._servers:
            self._servers.append(Server())

    @property
    def process_ids(self) -> list[int]:
        """Process ids of the live workers."""
        return [worker.process_id for worker in self._workers]

    def _round(
        self,
        tasks: Sequence[Sequence[str]],
        numbers: Iterable[int],
        results: dict[int, Any],
        *,
        is_alone: bool,
    ) -> list[int]:
        """Do the numbered tasks, each in its own process or in workers that stay; return those not done."""
        pending, failed, attempts = deque(numbers), list[int](), Counter[int]()
        if is_alone:
            workers, window, seconds = list[_Worker](), 1, _BACKSTOP * self.time_limit
            calls = round(_CALLS_A_SECOND * self.time_limit)
        else:
            workers, window, seconds = self._workers, _WINDOW, self.time_limit / _SHARE
            calls = 0
        while pending or any(worker.tasks for worker in workers):
            self._start_workers(workers, len(pending), is_alone=is_alone)
            for worker in workers:
                worker.fill(window, pending, tasks, (seconds, calls))
            for worker in _ready(workers):
                done, has_exited = worker.receive()
                results.update(done)
                if not has_exited and not (is_alone and done):
                    continue
                workers.remove(worker)
                worker.connection.close()
                if worker.tasks:
                    culprit = worker.tasks.popleft()  # it was at work on the first
                    attempts[culprit] += 1
                    is_early = time.monotonic() - worker.began < seconds
                    is_tried_again = is_alone and is_early and attempts[culprit] < _ATTEMPTS
                    (pending if is_tried_again else failed).append(culprit)
                    pending.extendleft(reversed(worker.tasks))
            self._report(len(tasks), len(pending) + len(failed), workers)
        return failed

    def _start_workers(
        self, workers: list[_Worker], waiting: int, *, is_alone: bool
    ) -> None:
        """Start a worker for each waiting task, or for many of them where workers stay."""
        wanted = len(workers) + waiting if is_alone else -(-waiting // _TASKS_A_WORKER)
        while len(workers) < min(self.size, wanted):
            workers.append(self._start_worker())

    def _report(self, tasks: int, waiting: int, workers: Sequence[_Worker]) -> None:
        if self.report is not None:
            done = tasks - waiting - sum(len(worker.tasks) for worker in workers)
            self.report(
                f"Verified {done:,} of {tasks:,} answers that need computer algebra"
            )

    def _start_worker(self) -> _Worker:
        """Start a worker; raises RuntimeError if that fails several times."""
        for _ in range(_MOST_FAILED_STARTS):
            self.prepare()
            try:
                return self._servers[0].start_worker()
            except OSError as error:
                words = error
                self._servers.pop().close(is_mine=True)
        raise RuntimeError(f"workers for math-verify can't be started: {words}")


def _ready(workers: Sequence[_Worker]) -> list[_Worker]:
    """Wait for workers that have replied or exited, and return them."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            if worker.tasks:
                selector.register(worker.connection, selectors.EVENT_READ, worker)
        return [key.data for key, _ in selector.select()]


def _end_all(owner: int, workers: list[_Worker], servers: list[Server]) -> None:
    while workers:
        workers.pop().connection.close()
    while servers:
        servers.pop().close(is_mine=owner == os.getpid())
