"""Decide which answers belong to one class, and which match a label (R7, R8).

Two relations are kept apart. *Same* compares keys, which depend on one text alone; *matches* is a verdict about a pair.
The first version had one relation, whose connected components were the classes. A third answer could then join two
numbers into one class, and a verdict depended on the answers of other rollouts.
"""

from __future__ import annotations

import functools
import json
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from olr_cli.answers.classes import Key, short, unread
from olr_cli.answers.golds import Gold
from olr_cli.answers.matching import PLAIN_NUMBER, decide
from olr_cli.answers.notation import normal_text, tidy
from olr_cli.answers.pool import GAVE_UP, WorkerPool
from olr_cli.answers.reading import NeedsAlgebra
from olr_cli.files import regular

_PLAIN_NUMBER = re.compile(PLAIN_NUMBER)
_MEMO = 1 << 19
"""Largest number of keys and verdicts kept in memory, about 100 MB. Clearing them costs time and changes no
decision."""

Pair: TypeAlias = tuple[Gold | str, str]
"""A gold (label or true answer) and an answer. A gold given as text is one whose question asks for no percentage."""

Task: TypeAlias = tuple[str, ...]
"""``("key", answer)``, ``("may match", gold, answer)``, ``("reason", gold, answer)`` or ``("matches", gold, answer)``.
The last is followed by the tolerance if there is one, or by the tolerance and "in percent" if the gold is in
percent."""


class Judge(AbstractContextManager["Judge"]):
    """A judge that returns the classes of answers, and verdicts about pairs of a gold and an answer.

    Classes and verdicts depend on the texts alone, not on other answers or earlier calls. An answer or pair that takes
    too much work is given up, counts as undecided, and is written to the `ledger`. A later judge with the same ledger,
    in a resumed run or a replay, gives up the same answers and pairs. Worker processes start when they are first
    needed. Threads may share a judge.

    Args:
        time_limit: approximate processor seconds for reading one answer or verifying one pair (see `WorkerPool`).
        workers: largest number of worker processes at a time; by default one per core, at most four.
        ledger: file that lists the answers and pairs given up, one per line; created with the first of them. Without a
            ledger, they are kept in memory only.
        keep: whether to add answers and pairs to the ledger; if False, the ledger is only read.
        tolerance: relative tolerance for numbers if `matches` is called without one.
        report: function that gets a sentence about the progress of the workers, now and then while they work.
    """

    def __init__(
        self,
        *,
        time_limit: float = 2.0,
        workers: int | None = None,
        ledger: Path | None = None,
        keep: bool = True,
        tolerance: float = 0,
        report: Callable[[str], None] | None = None,
    ) -> None:
        if workers is None:
            cores = (
                len(os.sched_getaffinity(0))
                if hasattr(os, "sched_getaffinity")
                else os.cpu_count()
            )
            workers = min(cores or 1, 4)
        self.timeouts = 0
        """Number of answers and pairs given up so far, each counted once (metric `rollout/verification_timeouts`)."""

        self._pool = WorkerPool(workers, time_limit, report)
        self._memo: dict[Task, Any] = {}
        self._ledger = ledger if keep else None
        self._tolerance = tolerance
        self._given_up = _read_ledger(ledger)
        self._lock = threading.Lock()
        _all_judges.add(self)

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers. If the judge is used again, it starts new ones."""
        with self._lock:
            self._pool.close()

    def expect(self, answers: Iterable[str]) -> None:
        """Start the process that forks workers, if reading any of these answers needs computer algebra.

        The process starts in the background, and this call does not wait for it. The first call that needs a worker
        then waits less.
        """
        # Training passes the labels before its first step, so that the server starts while the model generates.
        try:
            for answer in answers:
                decide("key", answer)
        except NeedsAlgebra:
            with self._lock:
                self._pool.prepare()

    def keys(self, answers: Iterable[str]) -> dict[str, Key]:
        """Return a mapping from each answer to the key of its class (R7).

        Answers with equal keys count as the same answer.
        """
        answers = [*answers]
        keys = {
            answer: Key(f"number {answer}")
            for answer in answers
            if _PLAIN_NUMBER.fullmatch(answer)
        }
        decided = self._decide(("key", answer) for answer in answers if answer not in keys)
        return keys | {answer: key for (_, answer), key in decided.items()}

    def matches(
        self, pairs: Iterable[Pair], tolerance: float | None = None
    ) -> list[bool | None]:
        """Return whether each answer is right, given the gold of its pair, in the order of `pairs` (R3, R7).

        True and False are proved. None says that neither could be proved: such an answer does not count as right, and
        noise does not use it as a wrong label.

        `tolerance` is relative, and counts for numbers unless both are integers. By default, it is the judge's.
        """
        tolerance = self._tolerance if tolerance is None else tolerance
        return self._verdicts("matches", pairs, str(tolerance) if tolerance else "")

    def reason(self, pair: Pair) -> str:
        """Return why `matches` cannot decide a pair: the name of a `Verdict`, such as TWO_READINGS or TOO_MUCH_WORK.

        Call it only for a pair for which `matches` returned None.
        """
        matching_task = _task("matches", *_spelled(pair))
        task: Task = ("reason", *matching_task[1:3])
        if not self._given_up.isdisjoint([matching_task, *_reading_tasks(task)]):
            return "TOO_MUCH_WORK"
        return self._decide([task])[task] or "TOO_MUCH_WORK"

    def may_match(self, pairs: Iterable[Pair]) -> list[bool]:
        """Return whether some grader may call each answer right, given the gold of its pair, in the order of `pairs`.

        A grader may do so if the texts match with a tolerance of 1 %, or if math-verify alone finds them equal. Each
        test is also made with gold and answer swapped. If the judge gives up on a pair, the result is True as well.
        """
        return [verdict is not False for verdict in self._verdicts("may match", pairs)]

    def _verdicts(
        self, kind: str, pairs: Iterable[Pair], tolerance: str = ""
    ) -> list[bool | None]:
        """Return whether each answer matches its gold, in the order of `pairs`; None if neither is proved.

        Args:
            kind: "matches" for the verdicts of `matches`, or "may match" for those of `may_match`.
            pairs: pairs of a gold and an answer. Two plain integers are compared as texts, whatever the kind.
            tolerance: relative tolerance for numbers, such as "0.01"; empty for none.
        """
        triples = [_spelled(pair) for pair in pairs]
        texts = {gold for gold, _, _ in triples} | {answer for _, _, answer in triples}
        # Plain integers are compared as text, which is enough for most pairs and spares them the tasks.
        plain_numbers = {text for text in texts if _PLAIN_NUMBER.fullmatch(text)}
        tasks = {
            triple: _task(kind, *triple, tolerance)
            for triple in triples
            if triple[0] not in plain_numbers or triple[2] not in plain_numbers
        }
        decided = self._decide(tasks.values())
        return [
            decided[tasks[triple]] if triple in tasks else triple[0] == triple[2]
            for triple in triples
        ]

    def _decide(self, tasks: Iterable[Task]) -> dict[Task, Any]:
        """Return the result of each task: from memory, computed in this process, or computed by a worker.

        A `Task` is a tuple of a kind, such as "matches", and the texts to decide on.
        """
        with self._lock:
            if len(self._memo) > _MEMO:
                self._memo.clear()
            # A dict, not a set: it drops repeated tasks but keeps their order, so every run sends them in the same one.
            tasks = dict.fromkeys(tasks)
            waiting = [task for task in tasks if not self._decide_here(task)]
            # Read every text alone first. A text over its limit then leaves all its pairs undecided; otherwise the
            # order of the pairs would decide which of them are given up.
            texts = dict.fromkeys(text for task in waiting for text in _reading_tasks(task))
            for batch in (texts, waiting):
                self._run_in_workers(
                    [task for task in batch if not self._decide_here(task)]
                )
            return {task: self._memo[_memo_key(task)] for task in tasks}

    def _decide_here(self, task: Task) -> bool:
        """Try to decide a task without a worker, and return whether its result is now in memory.

        A task is a tuple of a kind, such as "matches", and the texts to decide on. If a worker gave up the task or one
        of its texts before, the task counts as undecided. This is a result too, so True is returned. False means that a
        worker must decide the task.
        """
        memo = _memo_key(task)
        if memo not in self._memo:
            try:
                self._memo[memo] = decide(*task)
            except NeedsAlgebra:
                if self._given_up.isdisjoint([task, *_reading_tasks(task)]):
                    return False
                self._memo[memo] = _undecided(task)
        return True

    def _run_in_workers(self, tasks: list[Task]) -> None:
        """Run tasks in workers and store their results.

        Tasks that take too much work are given up: they are counted and added to the ledger, the file that lists them.
        """
        replies = dict(zip(tasks, self._pool.run(tasks), strict=True))
        given_up = [task for task, reply in replies.items() if reply is GAVE_UP]
        self.timeouts += len(given_up)
        self._given_up.update(given_up)
        # Write the ledger before any label depends on it. A resume or a replay must give up the same tasks, even on a
        # faster machine: otherwise a vote changes, and with it the whole history.
        if given_up and self._ledger is not None:
            with self._ledger.open("a", encoding="ascii") as file:
                file.write("".join(json.dumps(task) + "\n" for task in given_up))
        for task, reply in replies.items():
            self._memo[_memo_key(task)] = _undecided(task) if reply is GAVE_UP else reply


_all_judges: weakref.WeakSet[Judge] = weakref.WeakSet()


def _renew_locks() -> None:
    """Give all judges new locks after a fork.

    If a thread of the parent held a lock during the fork, the lock would never be released in this process.
    """
    for judge in _all_judges:
        judge._lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_locks)


def _read_ledger(file: Path | None) -> set[Task]:
    """Return the tasks that a ledger lists as given up. Without a file, the set is empty.

    A task is a tuple of a kind, such as "matches", and the texts to decide on.
    """
    given_up: set[Task] = set()
    text = (
        regular(file).read_text(encoding="ascii", errors="replace")
        if file and file.exists()
        else ""
    )
    for line in text.splitlines():
        # A kill may have cut off the last line; that task is then run again.
        with suppress(ValueError, TypeError):
            given_up.add(tuple(json.loads(line)))
    return given_up


def _spelled(pair: Pair) -> tuple[str, bool, str]:
    """Return a pair's gold as text, whether the gold's question asks for a percentage, and the answer as text."""
    # Callers outside this package may pass numbers, although the types allow only text.
    gold, answer = pair
    return (
        (*gold, str(answer)) if isinstance(gold, Gold) else (str(gold), False, str(answer))
    )


def _task(kind: str, gold: str, in_percent: bool, answer: str, tolerance: str = "") -> Task:
    """Build the task of comparing a gold and an answer.

    Arguments that cannot change the result are left out, so that equal tasks are recognised.

    Args:
        kind: "matches" or "may match".
        gold: a label or true answer.
        in_percent: whether the question asks for a percentage. It matters for "matches" only.
        answer: the answer to compare with the gold.
        tolerance: relative tolerance for numbers, such as "0.01"; empty for none.
    """
    if in_percent and kind == "matches":
        return kind, gold, answer, tolerance, "in percent"
    return (kind, gold, answer, tolerance) if tolerance else (kind, gold, answer)


def _reading_tasks(task: Task) -> list[Task]:
    """Return the tasks that read the texts of a task: two for a gold and an answer, one for an answer.

    These are run before the task itself, because a single text may already take too much work.
    """
    return [("key", text) for text in task[1:3]]


def _undecided(task: Task) -> Key | None:
    """Return the result of a task that was given up.

    For a pair, the result is None. For an answer, it is the key that the answer would get if it could not be read.
    """
    return unread(normal_text(tidy(task[1]))).key if task[0] == "key" else None


def _memo_key(task: Task) -> Task:
    """Return a task with digests in place of long texts, to save memory."""
    return tuple(map(short, task))


@functools.cache
def shared_judge() -> Judge:
    """Return the judge that all callers in this process share. The first call creates it.

    It has one worker, no ledger, and no tolerance for numbers.
    """
    return Judge(workers=1)


def is_match(gold: str, answer: str) -> bool:
    r"""Return whether an answer is proved right, given a gold. Write both like the content of ``\boxed{}`` (R7)."""
    return shared_judge().matches([(gold, answer)]) == [True]
