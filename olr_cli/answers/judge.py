"""Which of several answers mean the same (R7, R8)."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, product
from typing import Generic, TypeVar

from olr_cli.answers import reading
from olr_cli.answers.forms import Form, compare, from_json, short
from olr_cli.answers.notation import normal_text, tidy
from olr_cli.answers.pool import GAVE_UP, WorkerPool

_LONGEST_PARSED = 1000
_DEEPEST_PARSED = 40
_MEMO = 1 << 17
"""Forms, those within forms counted, and verdicts: about 100 MB."""


class AnswerClasses:
    """The classes of equivalent answers among the strings of one collection; immutable.

    Classes are numbered from 0 in the order of their lexicographically first members.
    """

    __slots__ = ("_classes", "_parsed", "_undecided")

    def __init__(
        self, classes: Mapping[str, int], parsed: frozenset[str], undecided: frozenset[tuple[int, int]]
    ) -> None:
        self._classes = classes
        self._parsed = parsed
        self._undecided = undecided

    def class_of(self, answer: str) -> int:
        """The class of an answer.

        Raises:
            KeyError: the answer isn't in the collection.
        """
        return self._classes[answer]

    def same(self, a: str, b: str) -> bool:
        """Whether two answers of the collection mean the same."""
        return self._classes[a] == self._classes[b]

    def is_parsed(self, answer: str) -> bool:
        """Whether the answer could be read within its limits; otherwise it is a class by its text alone (R8)."""
        return answer in self._parsed

    def proved_different(self, a: str, b: str) -> bool:
        """Whether both could be read, and verification of their classes answered no, not just nothing (R3)."""
        first, second = sorted((self._classes[a], self._classes[b]))
        return first != second and {a, b} <= self._parsed and (first, second) not in self._undecided


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class _Memo(Generic[Key, Value]):
    """The most recently used results, as many as weigh `size` together."""

    def __init__(self, size: int, weigh: Callable[[Value], int] = lambda value: 1) -> None:
        self._room = size
        self._weigh = weigh
        self._items: OrderedDict[Key, Value] = OrderedDict()

    def __contains__(self, key: Key) -> bool:
        return key in self._items

    def __getitem__(self, key: Key) -> Value:
        self._items.move_to_end(key)
        return self._items[key]

    def __setitem__(self, key: Key, value: Value) -> None:
        if key in self._items:
            self._room += self._weigh(self._items.pop(key))
        self._items[key] = value
        self._room -= self._weigh(value)
        while self._room < 0:
            self._room += self._weigh(self._items.popitem(last=False)[1])


class Judge:
    """Tells which answers mean the same; owns worker processes, which start when first needed.

    What it says about a collection depends on the collection alone: not on the order of its strings, nor on what
    was classified before. Safe to share between threads.

    Args:
        time_limit: seconds to read one answer or to verify one pair; what takes longer is given up.
        workers: most worker processes at a time; by default one a core, at most four.
    """

    def __init__(self, *, time_limit: float = 2.0, workers: int | None = None) -> None:
        if workers is None:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
            workers = min(cores or 1, 4)
        self.timeouts = 0
        """Answers and pairs given up so far, each counted once (metric `rollout/verification_timeouts`)."""
        self._pool = WorkerPool(workers, time_limit)
        self._forms: _Memo[str | bytes, Form] = _Memo(_MEMO, Form.size)
        self._verdicts: _Memo[tuple[str | bytes, str | bytes], bool | None] = _Memo(_MEMO)
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
        if any(_read_here(answer)[0] is None for answer in answers):
            with self._lock:
                self._pool.prepare()

    def classify(self, batches: Sequence[Collection[str]]) -> list[AnswerClasses]:
        """The classes of each collection of answers (R7), in the order of `batches`; duplicates are fine."""
        collections = [sorted(set(batch)) for batch in batches]
        with self._lock:
            forms = self._read(sorted(set().union(*collections)))
            spellings = [_spellings(collection, forms) for collection in collections]
            verdicts = self._verify(pair for each in spellings for pair in _open_questions(each))
        return [
            _partition(collection, forms, each, verdicts)
            for collection, each in zip(collections, spellings, strict=True)
        ]

    def _read(self, answers: Sequence[str]) -> dict[str, Form]:
        """The form of each answer."""
        forms: dict[str, Form] = {}
        unread: list[tuple[str, str]] = []  # the answer, and what of it is parsed
        for answer in answers:
            form, tidied = _read_here(answer)
            if form is None and _key(answer) in self._forms:
                form = self._forms[_key(answer)]
            if form is None:
                unread.append((answer, tidied))
            else:
                forms[answer] = form
        replies = self._pool.run([("read", tidied) for _, tidied in unread])
        for (answer, _), reply in zip(unread, replies, strict=True):
            self.timeouts += reply is GAVE_UP
            form = _text(answer) if reply is None or reply is GAVE_UP else from_json(reply)
            forms[answer] = self._forms[_key(answer)] = form
        return forms

    def _verify(self, pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], bool | None]:
        """Whether the two answers of each pair are the same by `verify` both ways; None where it can't tell."""
        verdicts: dict[tuple[str, str], bool | None] = {}
        asked: list[tuple[str, str]] = []
        for pair in dict.fromkeys(pairs):
            key = (_key(pair[0]), _key(pair[1]))
            if key in self._verdicts:
                verdicts[pair] = self._verdicts[key]
            else:
                asked.append(pair)
        replies = self._pool.run([("same", tidy(a), tidy(b)) for a, b in asked])
        for (a, b), reply in zip(asked, replies, strict=True):
            self.timeouts += reply is GAVE_UP
            verdict: bool | None = None if reply is GAVE_UP else reply
            verdicts[a, b] = self._verdicts[_key(a), _key(b)] = verdict
        return verdicts


def _read_here(answer: str) -> tuple[Form | None, str]:
    """The form of an answer that needs no worker, and the tidied answer."""
    tidied = tidy(answer)
    if len(tidied) > _LONGEST_PARSED or _depth(tidied) > _DEEPEST_PARSED:
        return _text(answer), ""
    return reading.read(tidied), tidied


def _depth(text: str) -> int:
    """How deep brackets nest, whether or not they pair up."""
    if sum(map(text.count, "([{")) <= _DEEPEST_PARSED:
        return 0
    depth = deepest = 0
    for sign in text:
        depth += (sign in "([{") - (sign in ")]}")
        deepest = max(deepest, depth)
    return deepest


def _text(answer: str) -> Form:
    return Form("text", short(normal_text(answer)))


def _key(answer: str) -> str | bytes:
    """`answer` itself, or a digest that takes less memory."""
    if len(answer) <= 64:
        return answer
    return hashlib.blake2b(answer.encode("utf-8", "surrogatepass"), digest_size=20).digest()


def _spellings(collection: Sequence[str], forms: Mapping[str, Form]) -> dict[Form, str]:
    """The distinct forms of a sorted collection, each with its lexicographically first spelling."""
    return {forms[answer]: answer for answer in reversed(collection)}


def _pairs(spellings: Mapping[Form, str]) -> Iterator[tuple[Form, Form, tuple[str, str]]]:
    """Pairs of forms that may mean the same, and of their spellings in order: two numbers or texts never do."""
    alone = [form for form in spellings if form.kind in ("number", "text")]
    others = [form for form in spellings if form.kind not in ("number", "text")]
    for a, b in chain(combinations(others, 2), product(others, alone)):
        first, second = spellings[a], spellings[b]
        yield a, b, (first, second) if first < second else (second, first)


def _open_questions(spellings: Mapping[Form, str]) -> Iterator[tuple[str, str]]:
    """Pairs of spellings that only math-verify can compare."""
    return (pair for a, b, pair in _pairs(spellings) if compare(a, b) is None)


def _partition(
    collection: Sequence[str],
    forms: Mapping[str, Form],
    spellings: Mapping[Form, str],
    verdicts: Mapping[tuple[str, str], bool | None],
) -> AnswerClasses:
    """The connected components of sameness."""
    parent = {form: form for form in spellings}

    def root(form: Form) -> Form:
        while parent[form] != form:
            form = parent[form]
        return form

    undecided = []
    for a, b, pair in _pairs(spellings):
        verdict = compare(a, b)
        if verdict is None:
            verdict = verdicts[pair]
            if verdict is None:
                undecided.append((a, b))
        if verdict:
            parent[root(a)] = root(b)
    numbers: dict[Form, int] = {}
    classes = {answer: numbers.setdefault(root(forms[answer]), len(numbers)) for answer in collection}
    pairs = (sorted((numbers[root(a)], numbers[root(b)])) for a, b in undecided)
    return AnswerClasses(
        classes,
        parsed=frozenset(answer for answer in collection if forms[answer].is_parsed),
        undecided=frozenset((low, high) for low, high in pairs),
    )


_shared_lock = threading.Lock()
_shared: list[Judge] = []


def equivalent(a: str, b: str) -> bool:
    """Whether two answers, as they stand in a box, mean the same (R7)."""
    with _shared_lock:
        if not _shared:
            _shared.append(Judge(workers=1))
    return _shared[0].classify([(a, b)])[0].same(a, b)
