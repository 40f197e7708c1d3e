"""Worker processes with a limit of processor time on every task (R8).

A task that doesn't return is ended with its process, which needs no cooperation from it.
"""

from __future__ import annotations

import json
import os
import selectors
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from olr_cli.answers.worker import RETIRED, TIMED_OUT, Lost, Nursery, Worker

_WINDOW = 16
"""Tasks a worker holds at a time, so that it never waits for the parent."""
_TASKS_A_WORKER = 32
"""Tasks that are worth starting one more worker."""
_ATTEMPTS = 2
"""A task whose worker died may have been an innocent bystander once."""
_MOST_FAILED_STARTS = 3
_PATIENCE = 16
"""Time limits that may be wasted before a run makes haste."""
_HASTE = 32
"""In haste, a task first gets 1/32 of the limit, and at most 1/32 of the tasks get all of it."""


Report: TypeAlias = Callable[[int, int], None]


class GaveUp:
    """Stands for the result of a task that ran out of time or ended its worker."""


GAVE_UP: Final = GaveUp()


class WorkerPool:
    """Up to `size` workers, started when there is work. One thread at a time may use it.

    Args:
        size: most workers at a time.
        time_limit: seconds of processor time a task may take.
        report: takes how many tasks of a run are done, and how many there are, again and again.
    """

    def __init__(self, size: int, time_limit: float, report: Report | None = None) -> None:
        self.size = size
        self.time_limit = time_limit
        self.report = report
        self._workers: list[Worker] = []
        self._nurseries: list[Nursery] = []  # one at most
        weakref.finalize(self, _end_all, self._workers, self._nurseries)

    def run(self, tasks: Sequence[Sequence[str]]) -> list[Any]:
        """The results of `tasks` (as `matching.decide` takes them), in order; `GAVE_UP` where there is none.

        A run ends however many tasks never return: once `_PATIENCE` time limits are wasted, every task first gets a
        small part of the limit, and those that need more share what `_HASTE` leaves them.

        Raises:
            RuntimeError: workers can't be started.
        """
        if not tasks:
            return []
        if not all(nursery.is_mine() for nursery in self._nurseries):
            self.close()  # what belongs to the process that this one was forked from
        try:
            return _Run(self, tasks).finish()
        except BaseException:
            self.close()  # they hold tasks that nobody waits for
            raise

    def close(self) -> None:
        """End all workers; the next `run` starts new ones."""
        _end_all(self._workers, self._nurseries)

    def prepare(self) -> None:
        """Start what starts workers, without waiting for it: it takes the most of a second."""
        if not self._nurseries:
            self._nurseries.append(Nursery())

    def start_worker(self) -> None:
        """Have one worker more.

        Raises:
            Lost: it can't be started.
        """
        self.prepare()
        self._workers.append(self._nurseries[0].start())

    @property
    def process_ids(self) -> list[int]:
        """Of the workers alive."""
        return [worker.process_id for worker in self._workers]


def _end_all(workers: list[Worker], nurseries: list[Nursery]) -> None:
    while workers:
        workers.pop().end()
    while nurseries:
        nurseries.pop().close()


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
        self.postponed: list[int] = []
        self.is_last_round = False
        self.wasted = 0.0  # time limits of tasks that did not return

    def finish(self) -> list[Any]:
        self._work()
        self.pending.extend(self.postponed)
        self.is_last_round = True
        self._work()
        return self.results

    def _work(self) -> None:
        most = max(2 * _PATIENCE, len(self.tasks) / _HASTE)
        while self.pending or any(worker.tasks for worker in self.workers):
            self._start_workers()
            for worker in self.workers:
                self._feed(worker)
            self._exchange()
            if self.pool.report is not None:
                waiting = len(self.pending) + sum(len(worker.tasks) for worker in self.workers)
                postponed = 0 if self.is_last_round else len(self.postponed)
                self.pool.report(len(self.tasks) - waiting - postponed, len(self.tasks))
            if self.is_last_round and self.wasted > most:
                self.pending.clear()

    def _start_workers(self) -> None:
        """As many as the work left is worth."""
        wanted = min(self.pool.size, -(-len(self.pending) // _TASKS_A_WORKER))
        while len(self.workers) < wanted:
            try:
                self.pool.start_worker()
            except Lost as words:
                self.failed_starts += 1
                if self.failed_starts >= _MOST_FAILED_STARTS:
                    raise RuntimeError(f"workers for math-verify can't be started: {words}") from None
                for worker in self.workers:
                    self._put_back(worker)
                self.pool.close()

    def _feed(self, worker: Worker) -> None:
        while self.pending and len(worker.tasks) < _WINDOW:
            task = self.pending.popleft()
            share = 1.0 if self.is_last_round or self.wasted < _PATIENCE else 1 / _HASTE
            worker.tasks.append((task, share))
            request = [share * self.pool.time_limit, *self.tasks[task]]
            worker.outbox += json.dumps(request).encode("ascii") + b"\n"

    def _exchange(self) -> None:
        """Wait until a worker has something to say or has ended; then talk to all that are ready."""
        with selectors.DefaultSelector() as selector:
            for worker in self.workers:
                if worker.tasks:
                    selector.register(worker.output, selectors.EVENT_READ, worker)
                if worker.outbox:
                    selector.register(worker.input, selectors.EVENT_WRITE, worker)
            events = selector.select()
        for key, event in events:
            if key.data in self.workers:  # and not buried a moment ago
                (self._hear if event & selectors.EVENT_READ else self._tell)(key.data)

    def _tell(self, worker: Worker) -> None:
        try:
            sent = os.write(worker.input, worker.outbox)
        except BlockingIOError:
            return
        except BrokenPipeError:
            sent = len(worker.outbox)  # its last replies are still to be heard
        del worker.outbox[:sent]

    def _hear(self, worker: Worker) -> None:
        data = os.read(worker.output, 1 << 16)
        worker.inbox += data
        *lines, rest = bytes(worker.inbox).split(b"\n")
        worker.inbox[:] = rest
        for reply in map(json.loads, lines):
            if reply == RETIRED:
                self._dismiss(worker)
                return
            task, _ = worker.tasks.popleft()
            self.results[task] = reply
        if not data:
            self._bury(worker)

    def _bury(self, worker: Worker) -> None:
        """Dismiss a worker that has ended, and give up the task that ended it, unless that may yet be done."""
        culprit, share = worker.tasks.popleft() if worker.tasks else (None, 0.0)
        timed_out = self._dismiss(worker) == TIMED_OUT
        if culprit is None:
            return
        if timed_out:
            self.wasted += share
            if share < 1:
                self.postponed.append(culprit)
            return
        self.attempts[culprit] += 1
        if self.attempts[culprit] < _ATTEMPTS:
            self.pending.appendleft(culprit)

    def _dismiss(self, worker: Worker) -> int:
        """End a worker and put its tasks back. Returns the signal that ended it, or 0."""
        self.workers.remove(worker)
        self._put_back(worker)
        return worker.end()

    def _put_back(self, worker: Worker) -> None:
        self.pending.extendleft(task for task, _ in reversed(worker.tasks))
