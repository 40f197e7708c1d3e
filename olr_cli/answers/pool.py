"""Worker processes with a limit on every task (R8).

The work of a task is counted in calls of Python functions, whose number depends neither on the machine nor on other
tasks. Two other limits were tried: seconds of processor time, and a budget of lost time for the whole pool. With both,
verdicts depended on the load and on the other tasks. A task that doesn't return is ended by killing its process, which
needs no cooperation from the task. Requests and replies are lines in sockets, so that a pool works from any thread, in
Ray actors and in daemonic processes.
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
"""Number of tasks that a worker holds at a time, so that it never waits for the parent."""
_TASKS_A_WORKER = 32
"""Number of waiting tasks for which one more worker is started."""
_CALLS_A_SECOND = 1_500_000
"""Calls of Python functions that count as one second of processor time."""
_SHARE = 16
"""Each task that shares a worker gets 1/16 of the time limit. A slower task is run again in its own process, where its
calls are counted."""
_BACKSTOP = 5
"""Number of time limits, in processor time, after which a task is killed although it made few calls.

A single long call, such as the power of a huge integer, is not stopped by counting calls.
"""
_ATTEMPTS = 2
"""Most attempts at a task whose process dies early: something else may have killed the first one."""
_MOST_FAILED_STARTS = 3
"""Number of failed starts of a worker after which the pool gives up."""
_START_SECONDS = 120.0
"""Longest wait for a new worker. The first one also waits for the imports and the warm-up of the server."""

GAVE_UP: Final = object()
"""Result of a task that took too much work or ended its worker."""


class Server:
    """Handle of a server process, which warms up the parser once, and then forks a worker process for each request."""

    program = """\
import sys
if {root!r} not in sys.path:
    sys.path.insert(0, {root!r})  # this olr, whichever is installed too
from olr_cli.answers import worker
worker.main()
"""
    """Source code that the process runs."""

    def __init__(self) -> None:
        program = self.program.format(root=str(Path(__file__).resolve().parents[2]))
        # Collect errors in memory if the system can: on some machines the temporary folder is not writable.
        in_memory = hasattr(os, "memfd_create")
        if in_memory:
            self._errors = os.fdopen(os.memfd_create("olr"), "w+b")
        else:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._socket, child_socket = socket.socketpair()
        with child_socket:
            self.process = subprocess.Popen(
                # -P: a file `json.py` in the current folder must not replace a module.
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
        """Fork a worker and wait until it is ready.

        Raises:
            OSError: the server has ended or doesn't answer. The message is the end of the server's error output.
        """
        parent_socket, child_socket = socket.socketpair()
        try:
            with child_socket:
                socket.send_fds(self._socket, [b"1"], [child_socket.fileno()])
            parent_socket.settimeout(_START_SECONDS)
            # The first message of a worker is its process id; an empty one means that its end is closed.
            process_id = parent_socket.recv(64)
            if not process_id:
                raise OSError("no reason given")
            parent_socket.settimeout(None)
        except OSError as error:
            parent_socket.close()
            self._errors.seek(0)
            error_output = self._errors.read().decode("utf-8", "replace").strip()[-2000:]
            raise OSError(error_output or str(error)) from None
        return _Worker(parent_socket, int(process_id))

    def close(self, *, is_mine: bool) -> None:
        """Close the connection to the server, and end the server if this process started it.

        Args:
            is_mine: whether this process started the server. After a fork, the server belongs to the parent.
        """
        self._socket.close()
        if is_mine:
            # While the server still imports, it doesn't notice a closed socket, so kill it.
            self.process.kill()
            self.process.wait()
        self._errors.close()


class _Worker:
    """A worker process, and the indices of the tasks that it was sent and has not done.

    The process works on the first of these tasks. It ends when its socket is closed or when a task exceeds its limit.
    """

    def __init__(self, connection: socket.socket, process_id: int) -> None:
        self.connection = connection
        self.process_id = process_id
        self.tasks: deque[int] = deque()
        self.began = 0.0
        """Time at which the worker last got a task while it was idle."""

        self._inbox = b""

    def send(self, limits: tuple[float, int], number: int, task: Sequence[str]) -> None:
        """Send a task to the worker.

        If the socket is full, the call blocks until the worker has read from it or has ended. If the worker has ended,
        nothing is raised; `receive` reports it.

        Args:
            limits: processor seconds, and calls of Python functions (0 for no limit), that the task may take.
            number: index of the task among all tasks of the pool's run.
            task: arguments of `matching.decide`.
        """
        if not self.tasks:
            self.began = time.monotonic()
        self.tasks.append(number)
        # If the worker has ended, `receive` reports it.
        with suppress(OSError):
            self.connection.sendall(json.dumps([*limits, *task]).encode("ascii") + b"\n")

    def fill(
        self,
        window: int,
        pending: deque[int],
        tasks: Sequence[Sequence[str]],
        limits: tuple[float, int],
    ) -> None:
        """Send tasks until the worker holds `window` of them, or until no tasks are pending.

        Args:
            window: most tasks that the worker holds.
            pending: indices of the tasks that no worker has. The tasks sent are removed from the front.
            tasks: all tasks of the run.
            limits: processor seconds, and calls of Python functions (0 for no limit), that each task may take.
        """
        while pending and len(self.tasks) < window:
            number = pending.popleft()
            self.send(limits, number, tasks[number])

    def receive(self) -> tuple[list[tuple[int, Any]], bool]:
        """Return (index, result) of each task done since the last call, and whether the worker has exited.

        The call blocks until the worker sends something or exits. If a task made too many calls of Python functions,
        its result is `GAVE_UP`.
        """
        try:
            data = self.connection.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        # The last line may be incomplete: it waits in the inbox for the rest.
        *lines, self._inbox = (self._inbox + data).split(b"\n")
        replies = [(self.tasks.popleft(), json.loads(line)) for line in lines]
        results = [(task, GAVE_UP if reply == SPENT else reply) for task, reply in replies]
        return results, not data


class WorkerPool:
    """Up to `size` worker processes, which start when there is work. Only one thread at a time may use a pool.

    Args:
        size: largest number of workers at a time.
        time_limit: processor seconds that a task may take. They are counted as calls of Python functions, 1,500,000 a
            second, because such a count is the same on every machine.
        report: function that gets a sentence such as "Verified 5 of 9 answers …", now and then while tasks run.
    """

    def __init__(
        self, size: int, time_limit: float, report: Callable[[str], None] | None = None
    ) -> None:
        self.size = size
        self.time_limit = time_limit
        self.report = report
        self._owner = os.getpid()
        # Lists that are changed in place, so that the finalizer, which must not hold the pool itself, sees the workers
        # and the server (at most one) of that moment.
        self._workers: list[_Worker] = []
        self._servers: list[Server] = []
        weakref.finalize(self, _end_all, self._owner, self._workers, self._servers)

    def run(self, tasks: Sequence[Sequence[str]]) -> list[Any]:
        """Return the result of each task, in order. It is `GAVE_UP` if a task took too much work or ended its worker.

        A task first runs in a worker that also runs other tasks. If it takes more than a sixteenth of the time limit
        there, it runs again in a process of its own, where its calls of Python functions are counted. If they exceed
        the limit, the task is given up. Whether this happens depends on the task alone.

        Args:
            tasks: arguments of `matching.decide` for each task.

        Raises:
            RuntimeError: workers can't be started.
        """
        if not tasks:
            return []
        # After a fork, these workers belong to the parent, which may be talking to them.
        if self._owner != os.getpid():
            self.close()
            self._owner = os.getpid()
        results: dict[int, Any] = dict.fromkeys(range(len(tasks)), GAVE_UP)
        try:
            slow = self._run_tasks(tasks, range(len(tasks)), results, is_alone=False)
            self._run_tasks(tasks, slow, results, is_alone=True)
        except BaseException:
            # The workers still hold tasks, and the next run would take their replies for its own.
            self.close()
            raise
        return [*results.values()]

    def close(self) -> None:
        """End all workers; the next `run` starts new ones."""
        _end_all(self._owner, self._workers, self._servers)

    def prepare(self) -> None:
        """Start the server that forks workers, unless it runs already.

        The server gets ready in the background, in about a second.
        """
        if not self._servers:
            self._servers.append(Server())

    @property
    def process_ids(self) -> list[int]:
        """Process ids of the live workers."""
        return [worker.process_id for worker in self._workers]

    def _run_tasks(
        self,
        tasks: Sequence[Sequence[str]],
        numbers: Iterable[int],
        results: dict[int, Any],
        *,
        is_alone: bool,
    ) -> list[int]:
        """Run some of the tasks, and return the indices of those that exceeded a limit or ended their worker.

        Args:
            tasks: all tasks.
            numbers: indices of the tasks to run.
            results: index of a task -> its result. The results of the tasks that are done are added here.
            is_alone: whether each task gets a process of its own. Otherwise the tasks share the pool's workers.
        """
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
                    # A worker handles its tasks in order, so the first one ended it. The others are sent again.
                    culprit = worker.tasks.popleft()
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
        """Append new workers to `workers`, up to the size of the pool.

        Args:
            workers: the workers that run.
            waiting: number of tasks that no worker has.
            is_alone: whether to add one worker per waiting task. Otherwise workers are added until there is one per 32
                waiting tasks.
        """
        wanted = len(workers) + waiting if is_alone else -(-waiting // _TASKS_A_WORKER)
        while len(workers) < min(self.size, wanted):
            workers.append(self._start_worker())

    def _report(self, tasks: int, waiting: int, workers: Sequence[_Worker]) -> None:
        """Report how many tasks are done, if the pool has a `report`.

        Args:
            tasks: number of all tasks.
            waiting: number of tasks that are neither done nor held by a worker.
            workers: all workers.
        """
        if self.report is not None:
            done = tasks - waiting - sum(len(worker.tasks) for worker in workers)
            self.report(
                f"Verified {done:,} of {tasks:,} answers that need computer algebra"
            )

    def _start_worker(self) -> _Worker:
        """Start a worker, and the server first if there is none.

        Raises:
            RuntimeError: three attempts failed.
        """
        for _ in range(_MOST_FAILED_STARTS):
            self.prepare()
            try:
                return self._servers[0].start_worker()
            except OSError as error:
                reason = error
                self._servers.pop().close(is_mine=True)
        raise RuntimeError(f"workers for math-verify can't be started: {reason}")


def _ready(workers: Sequence[_Worker]) -> list[_Worker]:
    """Wait until some of the workers that hold tasks have replied or exited, and return these workers."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            if worker.tasks:
                selector.register(worker.connection, selectors.EVENT_READ, worker)
        return [key.data for key, _ in selector.select()]


def _end_all(owner: int, workers: list[_Worker], servers: list[Server]) -> None:
    """End all workers and servers, and empty both lists.

    Args:
        owner: id of the process that started them. Any other process only closes its copies of the sockets.
        workers: the workers of a pool.
        servers: the servers of a pool.
    """
    while workers:
        workers.pop().connection.close()
    while servers:
        servers.pop().close(is_mine=owner == os.getpid())
