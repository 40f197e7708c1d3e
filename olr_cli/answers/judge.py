"""Which answers are one class, and which match a label (R7, R8)."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from olr_cli.answers.forms import Key, unread
from olr_cli.answers.matching import matches
from olr_cli.answers.notation import normal_text, tidy
from olr_cli.answers.pool import GAVE_UP, WorkerPool
from olr_cli.answers.reading import NeedsAlgebra, read

RULES = 2
"""Raised whenever the same answers may fall into other classes, or a pair get another verdict; in every manifest."""

_MEMO = 1 << 18
"""Keys and verdicts that are remembered: about 100 MB."""

Pair: TypeAlias = tuple[str, str]
"""A gold, label or truth, and an answer."""

MemoKey = TypeVar("MemoKey", bound=Hashable)
Value = TypeVar("Value")


class _Memo(Generic[MemoKey, Value]):
    """The most recently used `size` results."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: OrderedDict[MemoKey, Value] = OrderedDict()

    def __contains__(self, key: MemoKey) -> bool:
        return key in self._items

    def __getitem__(self, key: MemoKey) -> Value:
        self._items.move_to_end(key)
        return self._items[key]

    def __setitem__(self, key: MemoKey, value: Value) -> None:
        self._items[key] = value
        self._items.move_to_end(key)
        if len(self._items) > self._size:
            self._items.popitem(last=False)


class Judge:
    """Tells answers' classes and verdicts about pairs; owns worker processes, which start when first needed.

    Both are functions of the texts alone: not of what else was said, nor of what was asked before. What takes too long
    is given up, and with a `ledger` it stays so when the run is resumed or replayed. Safe to share between threads.

    Args:
        time_limit: processor seconds to read one answer or to verify one pair.
        workers: most worker processes at a time; by default one a core, at most four.
        ledger: a file of what was given up, a line each; made when there is something to write.
        keep: write what is given up into the ledger; otherwise it is only read.
    """

    def __init__(
        self,
        *,
        time_limit: float = 2.0,
        workers: int | None = None,
        ledger: Path | None = None,
        keep: bool = True,
    ) -> None:
        if workers is None:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
            workers = min(cores or 1, 4)
        self.timeouts = 0
        """Answers and pairs given up so far, each counted once (metric `rollout/verification_timeouts`)."""
        self._pool = WorkerPool(workers, time_limit)
        self._keys: _Memo[str | bytes, Key] = _Memo(_MEMO)
        self._verdicts: _Memo[tuple[str | bytes, str | bytes], bool | None] = _Memo(_MEMO)
        self._ledger = ledger
        self._keep = keep
        self._given_up = _read_ledger(ledger)
        self._lock = threading.Lock()

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers. A judge that is used again starts new ones."""
        with self._lock:
            self._pool.close()

    def expect(self, answers: Iterable[str]) -> None:
        """Get ready, beside whatever the caller does next, if answers like these take a worker."""
        if any(_key_here(answer) is None for answer in answers):
            with self._lock:
                self._pool.prepare()

    def keys(self, answers: Iterable[str]) -> dict[str, Key]:
        """The key of the class of each answer (R7, *same*)."""
        found: dict[str, Key] = {}
        asked: list[str] = []
        with self._lock:
            for answer in dict.fromkeys(answers):
                memo = _memo_key(answer)
                if memo in self._keys:
                    found[answer] = self._keys[memo]
                    continue
                key = _key_here(answer)
                if key is None and ("key", answer) not in self._given_up:
                    asked.append(answer)
                else:
                    found[answer] = self._keys[memo] = key or _key_of_text(answer)
            for answer, reply in zip(asked, self._ask([("key", answer) for answer in asked]), strict=True):
                found[answer] = self._keys[_memo_key(answer)] = Key(reply) if reply else _key_of_text(answer)
        return found

    def matches(self, pairs: Iterable[Pair]) -> dict[Pair, bool | None]:
        """Whether each answer is right, given the gold beside it (R7, *matches*).

        Returns:
            None for a pair of which neither that nor the opposite is proved: it is not right, but R3 does not call it
            wrong.
        """
        found: dict[Pair, bool | None] = {}
        asked: list[Pair] = []
        with self._lock:
            for pair in dict.fromkeys(pairs):
                memo = _memo_key(pair[0]), _memo_key(pair[1])
                if memo in self._verdicts:
                    found[pair] = self._verdicts[memo]
                    continue
                try:
                    found[pair] = self._verdicts[memo] = matches(*pair)
                except NeedsAlgebra:
                    if self._given_up.isdisjoint([("matches", *pair), *(("key", text) for text in pair)]):
                        asked.append(pair)
                    else:
                        found[pair] = None
            for pair, reply in zip(asked, self._ask([("matches", *pair) for pair in asked]), strict=True):
                found[pair] = self._verdicts[_memo_key(pair[0]), _memo_key(pair[1])] = reply
        return found

    def _ask(self, tasks: list[tuple[str, ...]]) -> list[Any]:
        """The workers' replies; None where there is none."""
        replies = self._pool.run(tasks)
        given_up = [task for task, reply in zip(tasks, replies, strict=True) if reply is GAVE_UP]
        if given_up:
            self.timeouts += len(given_up)
            self._given_up.update(given_up)
            if self._ledger is not None and self._keep:
                with self._ledger.open("a", encoding="ascii") as file:
                    file.write("".join(json.dumps(task) + "\n" for task in given_up))
        return [None if reply is GAVE_UP else reply for reply in replies]


def _read_ledger(file: Path | None) -> set[tuple[str, ...]]:
    """What a ledger says was given up; a line that a kill cut off says nothing."""
    given_up: set[tuple[str, ...]] = set()
    if file is None or not file.exists():
        return given_up
    for line in file.read_text(encoding="ascii", errors="replace").splitlines():
        try:
            given_up.add(tuple(json.loads(line)))
        except ValueError:
            continue
    return given_up


def _key_here(answer: str) -> Key | None:
    """The key of an answer that needs no worker."""
    try:
        return read(answer).key
    except NeedsAlgebra:
        return None


def _key_of_text(answer: str) -> Key:
    """The key of an answer that can't be read."""
    return unread(normal_text(tidy(answer))).key


def _memo_key(answer: str) -> str | bytes:
    """`answer` itself, or a digest that takes less memory."""
    if len(answer) <= 64:
        return answer
    return hashlib.blake2b(answer.encode("utf-8", "surrogatepass"), digest_size=20).digest()


_shared_lock = threading.Lock()
_shared: list[Judge] = []


def is_match(gold: str, answer: str) -> bool:
    """Whether an answer is right, given a gold; both as they stand in a box (R7)."""
    with _shared_lock:
        if not _shared:
            _shared.append(Judge(workers=1))
    return _shared[0].matches([(gold, answer)])[gold, answer] is True
