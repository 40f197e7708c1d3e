"""Which answers are one class, and which match a label (R7, R8).

Two relations, never mixed: *same* is a key of the text alone, *matches* a verdict about a pair. The first version had
one relation, whose connected components were the classes: a third answer could join two numbers into one class, and a
verdict depended on what other rollouts had said.
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
"""Keys and verdicts kept in memory, about 100 MB; clearing them costs time, never a decision."""

Pair: TypeAlias = tuple[Gold | str, str]
"""A gold, label or truth, and an answer. A plain text is a gold that no question asks for in percent."""

Task: TypeAlias = tuple[str, ...]
"""``("key", answer)``, ``("may match", gold, answer)``, ``("reason", gold, answer)`` or ``("matches", gold, answer)``,
which ends with the tolerance where there is one, or with the tolerance and "in percent" where the gold is."""


class Judge(AbstractContextManager["Judge"]):
    """Gives answers' classes and verdicts about pairs; owns worker processes, which start when first needed.

    Both depend on the texts alone, not on other answers or earlier calls. What takes too long is given up; with a
    `ledger` it stays given up when the run is resumed or replayed. Threads may share a judge.

    Args:
        time_limit: processor seconds, about, to read one answer or to verify one pair (`WorkerPool`).
        workers: most worker processes at a time; by default one per core, at most four.
        ledger: a file of what was given up, one line per task; made when there is something to write.
        keep: write what is given up into the ledger; otherwise it is only read.
        tolerance: of verdicts, where `matches` is given none.
        report: takes a sentence on how many answers that need a worker are done, now and then.
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
        """Answers and pairs given up so far, each counted once (metric `rollout/verification_timeouts`)."""
        self._pool = WorkerPool(workers, time_limit, report)
        self._memo: dict[Task, Any] = {}
        self._ledger = ledger if keep else None
        self._tolerance = tolerance
        self._given_up = _read_ledger(ledger)
        self._lock = threading.Lock()
        _judges.add(self)

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers. A judge that is used again starts new ones."""
        with self._lock:
            self._pool.close()

    def expect(self, answers: Iterable[str]) -> None:
        """Start the fork server in the background, if answers like these need workers."""
        try:
            for answer in answers:
                decide("key", answer)
        except NeedsAlgebra:
            with self._lock:
                self._pool.prepare()

    def keys(self, answers: Iterable[str]) -> dict[str, Key]:
        """The key of the class of each answer (R7, *same*)."""
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
        """Whether each answer is right, given the gold beside it (R7, *matches*), in the order of `pairs`.

        None for a pair of which neither that nor the opposite is proved: it is not right, but R3 does not call it
        wrong. The tolerance is relative, for numbers that are no integers; by default the judge's. Classes have none.
        """
        tolerance = self._tolerance if tolerance is None else tolerance
        return self._verdicts("matches", pairs, str(tolerance) if tolerance else "")

    def reason(self, pair: Pair) -> str:
        """Return why `matches` gives no verdict about a pair: the name of a `Verdict`."""
        verdict = _task("matches", *_spelled(pair))
        task: Task = ("reason", *verdict[1:3])
        if not self._given_up.isdisjoint([verdict, *_texts(task)]):
            return "TOO_MUCH_WORK"
        return self._decide([task])[task] or "TOO_MUCH_WORK"

    def may_match(self, pairs: Iterable[Pair]) -> list[bool]:
        """Whether some grader may call each answer right, given the gold beside it, or verification gave up on it.

        That is `matches` with a tolerance of 1 %, or math-verify by its own rules, either way round.
        """
        return [verdict is not False for verdict in self._verdicts("may match", pairs)]

    def _verdicts(
        self, kind: str, pairs: Iterable[Pair], tolerance: str = ""
    ) -> list[bool | None]:
        asked = [_spelled(pair) for pair in pairs]
        texts = {gold for gold, _, _ in asked} | {answer for _, _, answer in asked}
        # Plain integers are compared as text: most pairs need no more.
        plain = {text for text in texts if _PLAIN_NUMBER.fullmatch(text)}
        tasks = {
            pair: _task(kind, *pair, tolerance)
            for pair in asked
            if pair[0] not in plain or pair[2] not in plain
        }
        decided = self._decide(tasks.values())
        return [
            decided[tasks[pair]] if pair in tasks else pair[0] == pair[2] for pair in asked
        ]

    def _decide(self, tasks: Iterable[Task]) -> dict[Task, Any]:
        """The key or the verdict of every task: remembered, decided here, or by a worker."""
        with self._lock:
            if len(self._memo) > _MEMO:
                self._memo.clear()
            # Each task once, in order: workers start with what was asked first.
            tasks = dict.fromkeys(tasks)
            waiting = [task for task in tasks if not self._is_known(task)]
            # Texts first: one that can't be read within its limit leaves all its pairs undecided, in any order.
            texts = dict.fromkeys(text for task in waiting for text in _texts(task))
            # What the reading of a text decided is no task any more.
            for asked in (texts, waiting):
                self._ask([task for task in asked if not self._is_known(task)])
            return {task: self._memo[_memo_key(task)] for task in tasks}

    def _is_known(self, task: Task) -> bool:
        """Whether the result of a task is remembered, as it is from now on if it needs no worker."""
        memo = _memo_key(task)
        if memo not in self._memo:
            try:
                self._memo[memo] = decide(*task)
            except NeedsAlgebra:
                if self._given_up.isdisjoint([task, *_texts(task)]):
                    return False
                self._memo[memo] = _undecided(task)
        return True

    def _ask(self, tasks: list[Task]) -> None:
        """Have workers do tasks, and note what is given up."""
        replies = dict(zip(tasks, self._pool.run(tasks), strict=True))
        given_up = [task for task, reply in replies.items() if reply is GAVE_UP]
        self.timeouts += len(given_up)
        self._given_up.update(given_up)
        # Written before any label depends on it: a resume or a replay must give up the same tasks, on a faster
        # machine too, or a vote would come out differently and with it the history.
        if given_up and self._ledger is not None:
            with self._ledger.open("a", encoding="ascii") as file:
                file.write("".join(json.dumps(task) + "\n" for task in given_up))
        for task, reply in replies.items():
            self._memo[_memo_key(task)] = _undecided(task) if reply is GAVE_UP else reply


_judges: weakref.WeakSet[Judge] = weakref.WeakSet()


def _renew_locks() -> None:
    """Free the judges of a forked process: a thread that held one in the parent does not exist here."""
    for judge in _judges:
        judge._lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_locks)


def _read_ledger(file: Path | None) -> set[Task]:
    """The tasks that a ledger says were given up; a line that a kill cut off is skipped."""
    given_up: set[Task] = set()
    text = (
        regular(file).read_text(encoding="ascii", errors="replace")
        if file and file.exists()
        else ""
    )
    for line in text.splitlines():
        with suppress(ValueError, TypeError):
            given_up.add(tuple(json.loads(line)))
    return given_up


def _spelled(pair: Pair) -> tuple[str, bool, str]:
    """Return the text of a gold, whether it is in percent, and the answer, of a caller who may have numbers."""
    gold, answer = pair
    return (
        (*gold, str(answer)) if isinstance(gold, Gold) else (str(gold), False, str(answer))
    )


def _task(kind: str, gold: str, in_percent: bool, answer: str, tolerance: str = "") -> Task:
    """Return the task of a pair; only verdicts depend on a percentage that the question asks for."""
    if in_percent and kind == "matches":
        return kind, gold, answer, tolerance, "in percent"
    return (kind, gold, answer, tolerance) if tolerance else (kind, gold, answer)


def _texts(task: Task) -> list[Task]:
    """Return the tasks that read the texts of a task, each of which may cost too much alone."""
    return [("key", text) for text in task[1:3]]


def _undecided(task: Task) -> Key | None:
    """The result of a task that was given up: no verdict, and the class of all answers with the same text."""
    return unread(normal_text(tidy(task[1]))).key if task[0] == "key" else None


def _memo_key(task: Task) -> Task:
    """`task`, with digests of long texts, which take less memory."""
    return tuple(map(short, task))


@functools.cache
def shared_judge() -> Judge:
    """The judge of a process that needs no more than verdicts."""
    return Judge(workers=1)


def is_match(gold: str, answer: str) -> bool:
    """Whether an answer is right, given a gold; both as they stand in a box (R7)."""
    return shared_judge().matches([(gold, answer)]) == [True]
