"""Worker processes with a wall-clock limit on every task (R8).

A task that doesn't return is ended by killing its process, which needs no cooperation from it.
"""

from __future__ import annotations

import json
import os
import selectors
import time
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from olr_cli.answers.nursery import Lost, Nursery, Worker
from olr_cli.answers.worker import RETIRED

_WINDOW = 16
"""Tasks a worker holds at a time, so that it never waits for the parent."""
_TASKS_A_WORKER = 32
"""Tasks that are worth starting one more worker."""
_ATTEMPTS = 2
"""A task whose worker died may have been an innocent bystander once."""
_MOST_FAILED_STARTS = 3
_PATIENCE = 16
"""Time limits that may be spent in vain before a run makes haste."""
_HASTE = 32
"""What part of the limit a task has then at first, and what part of the tasks may take it all in the end."""


class GaveUp:
    """Stands for the result of a task that ran out of time or ended its worker."""


GAVE_UP: Final = GaveUp()


class WorkerPool:
    """Up to `size` workers, started when there is work. One thread at a time may use it.

    Args:
        size: most workers at a time.
        time_limit: seconds a task may take.
    """

    def __init__(self, size: int, time_limit: float) -> None:
        self.size = size
        self.time_limit = time_limit
        self._workers: list[Worker] = []
        self._nurseries: list[Nursery] = []  # one at most
        weakref.finalize(self, _end_all, self._workers, self._nurseries)

    def run(self, tasks: Sequence[Sequence[str]]) -> list[Any]:
        """The results of `tasks` (requests as in `worker`), in order; `GAVE_UP` where there is none.

        However many tasks never return, a run is over: once `_PATIENCE` time limits have been spent in vain, every
        task has a small part of the limit first, and those that need more share what `_HASTE` leaves them.

        Raises:
            RuntimeError: workers can't be started.
        """
        if not tasks:
            return []
        if not all(nursery.is_mine() for nursery in self._nurseries):
            self.close()  # what belongs to the process that this one was forked from
        run = _Run(self, tasks)
        try:
            return run.finish()
        except BaseException:
            self.close()  # they hold tasks that nobody waits for
            raise

    def close(self) -> None:
        """End all workers; the next `run` starts new ones."""
        _end_all(self._workers, self._nurseries)

    def prepare(self) -> None:
        """Start what starts workers, without waiting for it: it takes the most of a second."""
        if not self._nurseries:
            self._nurseries.append(Nursery(self.time_limit))

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
        self.spent = 0.0  # time limits that came to nothing

    def finish(self) -> list[Any]:
        self._work()
        self.pending.extend(self.postponed)
        self.is_last_round = True
        self._work()
        return self.results

    def _work(self) -> None:
        most = max(2 * _PATIENCE, len(self.tasks) / _HASTE)
        while self.pending or any(worker.tasks for worker in self.workers):
            self._staff()
            for worker in self.workers:
                self._feed(worker)
            self._exchange()
            for worker in [w for w in self.workers if w.tasks and time.monotonic() > w.deadline]:
                if not worker.has_output():
                    self._bury(worker, timed_out=True)
            if self.is_last_round and self.spent > most:
                self.pending.clear()

    def _limit(self) -> float:
        """Seconds that the next task may take."""
        if self.is_last_round or self.spent < _PATIENCE:
            return self.pool.time_limit
        return self.pool.time_limit / _HASTE

    def _staff(self) -> None:
        """Start as many workers as the work left is worth."""
        wanted = min(self.pool.size, -(-len(self.pending) // _TASKS_A_WORKER))
        while len(self.workers) < wanted:
            try:
                self.pool.start_worker()
            except Lost as words:
                self.failed_starts += 1
                if self.failed_starts >= _MOST_FAILED_STARTS:
                    raise RuntimeError(f"workers for math-verify can't be started: {words}") from None
                for worker in self.workers:
                    self.pending.extendleft(reversed(worker.tasks))
                self.pool.close()

    def _feed(self, worker: Worker) -> None:
        while self.pending and len(worker.tasks) < _WINDOW:
            if not worker.tasks:
                worker.begin(self._limit())
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
            else:
                self._hear(worker)

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
            self.results[worker.tasks.popleft()] = reply
            worker.begin(self._limit())
        if not data:
            self._bury(worker, timed_out=False)

    def _bury(self, worker: Worker, *, timed_out: bool) -> None:
        """End a worker, or see that it has ended, and give up the task that did it, unless that may yet be done."""
        if worker.tasks:
            self.spent += worker.seconds() / self.pool.time_limit
            culprit = worker.tasks.popleft()
            self.attempts[culprit] += not timed_out
            if timed_out and worker.limit < self.pool.time_limit:
                self.postponed.append(culprit)
            elif not timed_out and self.attempts[culprit] < _ATTEMPTS:
                worker.tasks.appendleft(culprit)
        self._dismiss(worker)

    def _dismiss(self, worker: Worker) -> None:
        """End a worker and put its tasks back."""
        self.workers.remove(worker)
        worker.end()
        self.pending.extendleft(reversed(worker.tasks))
