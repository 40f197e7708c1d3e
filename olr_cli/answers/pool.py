"""Worker processes with a limit of processor time on every task (R8).

A task that doesn't return is ended with its process, which needs no cooperation from it.
"""

from __future__ import annotations

import json
import os
import selectors
import weakref
from collections import Counter, deque
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
_ROUNDS = (0.125, 1.0)
"""Seconds of processor time that every task gets, then those that need more; the last round has the time limit."""
_TRIES = 4
"""Tasks with one answer that may run out of the first round's time; the others with it wait for the next round."""
_PATIENCE = 4
"""Time limits that a pool may waste after the first round on tasks that do not return."""
_SECONDS_AN_ANSWER = 1 / 16
"""By which every answered task raises that."""


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

    Attributes:
        wasted: seconds of processor time, after the first round, on tasks that did not return.
    """

    def __init__(self, size: int, time_limit: float, report: Report | None = None) -> None:
        self.size = size
        self.time_limit = time_limit
        self.report = report
        self.wasted = 0.0
        self.answered = 0
        self._workers: list[Worker] = []
        self._nurseries: list[Nursery] = []  # one at most
        weakref.finalize(self, _end_all, self._workers, self._nurseries)

    def run(self, tasks: Sequence[Sequence[str]]) -> list[Any]:
        """The results of `tasks` (as `matching.decide` takes them), in order; `GAVE_UP` where there is none.

        A run ends however many tasks never return: each gets an eighth of a second, but for those with an answer that
        is slow beside other golds; and those that need more share a budget (`is_patient`), the quicker ones first.

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

    @property
    def is_patient(self) -> bool:
        """Whether the pool may waste more: in its life a few time limits, and some time for every answered task."""
        return self.wasted < _PATIENCE * self.time_limit + _SECONDS_AN_ANSWER * self.answered

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
        self.slow = Counter[str]()  # answers, with the tasks that ran out of time
        self.limits = [limit for limit in _ROUNDS if limit < pool.time_limit] + [pool.time_limit]
        self.limit = self.limits[0]

    def finish(self) -> list[Any]:
        for limit in self.limits:
            self.limit = limit
            self.pending.extend(self.postponed)
            self.postponed.clear()
            self._work()
        return self.results

    @property
    def _is_first_round(self) -> bool:
        return self.limit == self.limits[0]

    def _work(self) -> None:
        """Do the pending tasks, and postpone those that need more than the limit."""
        while self._has_work():
            self._start_workers()
            for worker in self.workers:
                self._feed(worker)
            self._exchange()
            if self.pool.report is not None:
                waiting = len(self.pending) + sum(len(worker.tasks) for worker in self.workers)
                self.pool.report(len(self.tasks) - waiting - len(self.postponed), len(self.tasks))

    def _has_work(self) -> bool:
        if not self._is_first_round and not self.pool.is_patient:
            self.pending.clear()
        return bool(self.pending) or any(worker.tasks for worker in self.workers)

    def _start_workers(self) -> None:
        """As many as the work left is worth; a task that needs long is worth one."""
        tasks = _TASKS_A_WORKER if self._is_first_round else 1
        wanted = min(self.pool.size, -(-len(self.pending) // tasks))
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
        most = _WINDOW if self._is_first_round else 1
        while self.pending and len(worker.tasks) < most:
            task = self.pending.popleft()
            if self._is_first_round and self.slow[self.tasks[task][-1]] >= _TRIES:
                self.postponed.append(task)
                continue
            worker.tasks.append(task)
            worker.outbox += json.dumps([self.limit, *self.tasks[task]]).encode("ascii") + b"\n"

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
            self.results[worker.tasks.popleft()] = reply
            self.pool.answered += 1
        if not data:
            self._bury(worker)

    def _bury(self, worker: Worker) -> None:
        """Dismiss a worker that has ended, and give up the task that ended it, unless that may yet be done."""
        culprit = worker.tasks.popleft() if worker.tasks else None
        timed_out = self._dismiss(worker) == TIMED_OUT
        if culprit is None:
            return
        if timed_out:
            self.slow[self.tasks[culprit][-1]] += 1
            self.pool.wasted += 0.0 if self._is_first_round else self.limit
            if self.limit != self.limits[-1]:
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
        self.pending.extendleft(reversed(worker.tasks))
