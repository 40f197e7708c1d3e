"""Worker processes with a wall-clock limit on every task (R8).

Plain subprocesses with JSON lines over pipes: they work from any thread, in Ray actors and in daemonic processes,
and a task that doesn't return is ended by killing its process, which needs no cooperation from it.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
import weakref
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from olr_cli.answers.worker import RETIRED

_WINDOW = 16
"""Tasks a worker holds at a time, so that it never waits for the parent."""
_TASKS_A_WORKER = 32
"""Tasks that are worth starting one more worker."""
_ATTEMPTS = 2
"""A task whose worker died may have been an innocent bystander once."""
_PROGRAM = (
    "import sys; sys.path.append({root!r}); from olr_cli.answers import worker; worker.main({time_limit!r})"
)
_START_LIMIT = 120.0
_MOST_FAILED_STARTS = 3


class GaveUp:
    """Stands for the result of a task that ran out of time or ended its worker."""


GAVE_UP: Final = GaveUp()


class _Worker:
    """One process and the tasks it holds, the first of which it is working on."""

    def __init__(self, time_limit: float) -> None:
        program = _PROGRAM.format(root=str(Path(__file__).resolve().parents[2]), time_limit=time_limit)
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", program],  # -P: nothing in the current folder is imported
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            # A fixed hash seed: the order of sympy's sets must not make a run differ from its repetition.
            env={**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.input = self.process.stdin.fileno()
        self.output = self.process.stdout.fileno()
        os.set_blocking(self.input, False)
        os.set_blocking(self.output, False)
        self.owner = os.getpid()
        self.tasks: deque[int] = deque()
        self.outbox = bytearray()
        self.inbox = bytearray()
        self.is_ready = False
        self.has_retired = False
        self.deadline = time.monotonic() + _START_LIMIT

    def end(self) -> None:
        """Kill the process, whatever it does, and free everything of it."""
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.wait()
        self.errors.close()

    def is_mine(self) -> bool:
        """Whether this process started it, and not one that it was forked from."""
        return self.owner == os.getpid()

    def has_output(self) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(self.output, selectors.EVENT_READ)
            return bool(selector.select(0))

    def last_words(self) -> str:
        """What it wrote to standard error."""
        self.errors.seek(0)
        return self.errors.read().decode("utf-8", "replace").strip()[-2000:]


class WorkerPool:
    """Up to `size` workers, started when there is work. One thread at a time may use it.

    Args:
        size: most workers at a time.
        time_limit: seconds a task may take.
    """

    def __init__(self, size: int, time_limit: float) -> None:
        self.size = size
        self.time_limit = time_limit
        self._workers: list[_Worker] = []
        weakref.finalize(self, _end_all, self._workers)

    def run(self, tasks: Sequence[Sequence[str]]) -> list[Any]:
        """The results of `tasks` (requests as in `worker`), in order; `GAVE_UP` where there is none.

        Raises:
            RuntimeError: workers can't be started.
        """
        if not tasks:
            return []
        self._workers[:] = [worker for worker in self._workers if worker.is_mine()]
        run = _Run(self, tasks)
        try:
            return run.finish()
        except BaseException:
            self.close()  # they hold tasks that nobody waits for
            raise

    def close(self) -> None:
        """End all workers; the next `run` starts new ones."""
        _end_all(self._workers)

    @property
    def process_ids(self) -> list[int]:
        """Of the workers alive."""
        return [worker.process.pid for worker in self._workers]


def _end_all(workers: list[_Worker]) -> None:
    while workers:
        worker = workers.pop()
        if worker.is_mine():
            worker.end()


class _Run:
    """One call of `WorkerPool.run`."""

    def __init__(self, pool: WorkerPool, tasks: Sequence[Sequence[str]]) -> None:
        self.pool = pool
        self.workers = pool._workers
        self.tasks = tasks
        self.results: list[Any] = [GAVE_UP] * len(tasks)
        self.attempts = [0] * len(tasks)
        self.pending = deque(range(len(tasks)))
        self.failed_starts = 0

    def finish(self) -> list[Any]:
        while self.pending or any(worker.tasks for worker in self.workers):
            self._staff()
            for worker in self.workers:
                self._feed(worker)
            self._exchange()
            for worker in [w for w in self.workers if w.tasks and time.monotonic() > w.deadline]:
                if not worker.has_output():
                    self._bury(worker, timed_out=True)
        return self.results

    def _staff(self) -> None:
        """Start as many workers as the work left is worth."""
        wanted = min(self.pool.size, -(-len(self.pending) // _TASKS_A_WORKER))
        while len(self.workers) < wanted:
            self.workers.append(_Worker(self.pool.time_limit))

    def _feed(self, worker: _Worker) -> None:
        while self.pending and len(worker.tasks) < _WINDOW:
            if not worker.tasks and worker.is_ready:
                worker.deadline = time.monotonic() + self.pool.time_limit
            task = self.pending.popleft()
            worker.tasks.append(task)
            worker.outbox += json.dumps(self.tasks[task]).encode("ascii") + b"\n"

    def _exchange(self) -> None:
        """Wait until a worker has something to say or runs out of time; then talk to all that are ready."""
        with selectors.DefaultSelector() as selector:
            for worker in self.workers:
                if worker.tasks:
                    selector.register(worker.output, selectors.EVENT_READ, worker)
                if worker.outbox:
                    selector.register(worker.input, selectors.EVENT_WRITE, worker)
            patience = min(w.deadline for w in self.workers if w.tasks) - time.monotonic()
            events = selector.select(max(0.0, patience))
        for key, event in events:
            worker = key.data
            if worker not in self.workers:
                continue  # buried a moment ago
            if not event & selectors.EVENT_READ:
                self._tell(worker)
            elif not self._hear(worker):
                self._bury(worker, timed_out=False)

    def _tell(self, worker: _Worker) -> None:
        try:
            sent = os.write(worker.input, worker.outbox)
        except BlockingIOError:
            return
        except BrokenPipeError:
            sent = len(worker.outbox)  # its last replies are still to be heard
        del worker.outbox[:sent]

    def _hear(self, worker: _Worker) -> bool:
        """Take what a worker says; whether it goes on."""
        data = os.read(worker.output, 1 << 16)
        worker.inbox += data
        *lines, rest = bytes(worker.inbox).split(b"\n")
        worker.inbox[:] = rest
        for reply in map(json.loads, lines):
            if reply == RETIRED:
                worker.has_retired = True
                return False
            if worker.is_ready:
                self.results[worker.tasks.popleft()] = reply
            worker.is_ready = True
            worker.deadline = time.monotonic() + self.pool.time_limit
        return bool(data)

    def _bury(self, worker: _Worker, *, timed_out: bool) -> None:
        """End a worker and put its tasks back, but for the one that ended it."""
        self.workers.remove(worker)
        words = "" if worker.is_ready else worker.last_words()
        worker.end()
        if not worker.is_ready:
            self.failed_starts += 1
            if self.failed_starts >= _MOST_FAILED_STARTS:
                raise RuntimeError(f"workers for math-verify can't be started: {words or 'no reason given'}")
        elif worker.tasks and not worker.has_retired:
            culprit = worker.tasks[0]
            self.attempts[culprit] += 1
            if timed_out or self.attempts[culprit] >= _ATTEMPTS:
                worker.tasks.popleft()
        self.pending.extendleft(reversed(worker.tasks))
