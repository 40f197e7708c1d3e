r"""What must hold of any text a policy writes: of its extraction, its reading, its parsing, of classes and votes.

Each law takes one text and fails by an exception. `fuzz_answers.py` looks for a text that breaks one; `test_answers.py`
tries those of the corpus and random ones. Answers to be compared are the lines of the text.
"""

import contextlib
import json
import random
import re
import signal
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

from sympy.core.cache import clear_cache

from olr_cli.answers import EXTRACTORS, Judge, equivalence, extract, reading, vote
from olr_cli.answers.forms import Form, compare, from_json, to_json
from olr_cli.answers.judge import _read_here
from olr_cli.answers.notation import normal_text, tidy

CORPUS = Path(__file__).parents[1] / "fixtures" / "answers"


def corpus(name: str) -> list[str]:
    """The texts kept for a law: those that reached code which no other reached."""
    return [json.loads(line) for line in (CORPUS / f"{name}.jsonl").read_text("ascii").splitlines()]


def extraction(text: str) -> None:
    """Every extractor says something of its own text or nothing; boxes are found as R6 defines them."""
    for name in EXTRACTORS:
        answer = extract(text, name)
        assert answer is None or (answer and answer == answer.strip())
    assert extract(text) == _last_box(text)


def _last_box(text: str) -> str | None:
    """R6 to the letter, in quadratic time."""
    for box in reversed(list(re.finditer(r"\\boxed\s*\{", text))):
        place, depth = box.end(), 1
        while place < len(text):
            if inner := re.compile(r"\\boxed\s*\{").match(text, place):
                depth, place = depth + 1, inner.end()
                continue
            pair = text[place : place + 2]
            if pair in (r"\{", r"\}") or (pair == r"\\" and not text.startswith("boxed", place + 2)):
                place += 2
                continue
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            if depth == 0:
                return text[box.end() : place].strip() or None
            place += 1
    return None


def notation(text: str) -> None:
    """What is read without computer algebra is read again from its own spelling; numbers are what Python reads."""
    tidied = tidy(text)
    assert tidied == tidied.strip() and normal_text(text) == normal_text(f" {text}\u200b ")
    form, _ = _read_here(text)
    if re.fullmatch(r"[+-]?\d{1,99}(\.\d{1,99})?", tidied, re.ASCII):
        assert reading.exact_number(tidied) == Fraction(tidied)
    if form is None:
        return
    assert from_json(json.loads(json.dumps(to_json(form)))) == form
    assert compare(form, form) is True and hash(form) == hash(from_json(to_json(form)))
    spelling = _spelling(form)
    if spelling is not None:
        assert reading.read(tidy(spelling)) == form, spelling


def _spelling(form: Form) -> str | None:
    """How a form of exact numbers is written; None for a text, or a number that is known by its digest only."""
    if form.kind == "number":
        return None if "#" in form.label else form.label
    if form.kind == "scalar":
        return {"oo": r"\infty", "-oo": r"-\infty"}[form.label]
    if form.kind == "text":
        return None
    parts = [_spelling(part) for part in form.parts]
    if None in parts:
        return None
    opening, closing = {"tuple": "()", "set": (r"\{", r"\}")}.get(form.kind, form.label)
    return f"{opening}{', '.join(map(str, parts))}{closing}"


def comparison(text: str) -> None:
    """Of forms that need no computer algebra, no two different ones are ever the same; in either order."""
    forms = [form for form, _ in map(_read_here, text.split("\n")[:4]) if form is not None]
    for a in forms:
        for b in forms:
            assert compare(a, b) is compare(b, a)
            assert (compare(a, b) is True) == (a == b)


class _TooLong(BaseException):
    """The time limit, where there is no process to kill."""


def parsing(text: str) -> None:
    """The parser and the algebra read a text twice alike and evaluate none of it; what fails is no answer."""
    answers = [(line, tidy(line)) for line in text.split("\n")[:2]]
    if not all(0 < len(tidied) <= 120 for _, tidied in answers):
        return

    def stop(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, 2.0)
    try:
        with evaluated_by_python() as sources:
            forms = [_parsed_twice(*answer) for answer in answers]
            if None not in forms and compare(forms[0], forms[-1]) is None:
                assert equivalence.same(*sorted((answers[0][1], answers[1][1]))) in (True, False, None)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _TooLong:
        clear_cache()  # it was interrupted anywhere
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    words = (
        set(re.findall(r"[^\W\d]\w{3,}", text)) - _OF_SYMPY
    )  # numbers pass through Python's own reading of them
    assert not [source for source in sources if words & set(re.findall(r"\w+", source))]


def _parsed_twice(answer: str, tidied: str) -> Form | None:
    form = equivalence.read(tidied)
    equivalence._parsed.cache_clear()
    assert equivalence.read(tidied) == form
    if form is not None:
        assert from_json(json.loads(json.dumps(to_json(form), allow_nan=False))) == form
        assert compare(form, form) is True
        here, _ = _read_here(answer)
        if here is not None and form.kind == "number" and not re.search(r"[\s\\eE%]", tidied):
            assert here == form  # what else is misread by math-verify, `reading` tells
    return form


_OF_SYMPY = {"Integer", "Float", "Rational", "Symbol", "Function", "Expr"}
_sources: list[str] = []
_is_heard: list[bool] = []
_FORBIDDEN = re.compile(
    r"os\.(system|exec|fork|spawn|posix_spawn|remove|rename|kill)|subprocess|socket|ctypes|shutil"
)


@contextlib.contextmanager
def evaluated_by_python() -> Iterator[list[str]]:
    """What Python compiles meanwhile, but for sympy's own definitions; an error if it starts a process or writes."""
    if not _is_heard:
        sys.addaudithook(_hear)  # which stays for good
    _is_heard[:] = [True]
    _sources.clear()
    try:
        yield _sources
    finally:
        _is_heard[:] = [False]


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if not _is_heard[0]:
        return
    if event == "compile":
        source = arguments[0].decode() if isinstance(arguments[0], bytes) else str(arguments[0])
        if not source.startswith(("def ", "from sympy import", "lambda _cls")):
            _sources.append(source)
    elif _FORBIDDEN.match(event) or (event == "open" and set(str(arguments[1])) & set("wax+")):
        raise SystemError(f"{event} {arguments}")


def classes(text: str) -> None:
    """Classes are a partition that depends on the set of answers alone; another answer only joins classes."""
    answers = [line for line in text.split("\n") if len(line) <= 200][:6]
    rng = random.Random(text.encode("utf-8", "surrogatepass"))
    shuffled = rng.sample(answers, len(answers)) + answers[:2]
    spaced = [f" {answer}\u200b" for answer in answers]
    judge = _the_judge()
    one, again, more, fewer = judge.classify([answers, shuffled, [*answers, *spaced], answers[1:]])
    for a in answers:
        assert one.same(a, a) and one.class_of(a) == again.class_of(a)
        assert more.same(a, f" {a}\u200b")
        assert one.is_parsed(a) == again.is_parsed(a)
        for b in answers:
            assert one.same(a, b) is one.same(b, a) is again.same(a, b)
            assert one.proved_different(a, b) is one.proved_different(b, a)
            assert not (one.same(a, b) and one.proved_different(a, b))
            assert more.same(a, b) == one.same(a, b), "a spelling of the same text joins nothing"
    for a in answers[1:]:
        for b in answers[1:]:
            assert one.same(a, b) or not fewer.same(a, b)


def votes(text: str) -> None:
    """A vote depends on how many rollouts say what, not on their order or spelling."""
    lines = [line if line and _read_here(line)[0] is not None else None for line in text.split("\n")[:12]]
    rng = random.Random(text.encode("utf-8", "surrogatepass"))
    respelled = [line and rng.choice([line, f" {line}", f"{line}\u200b"]) for line in lines]
    groups = [lines, rng.sample(lines, len(lines)), respelled]
    counted = []
    for group, own in zip(groups, _the_judge().classify([[a for a in g if a] for g in groups]), strict=True):
        tally = vote(group, own)
        assert sum(tally.counts.values()) == tally.answered <= tally.rollouts == len(lines)
        most = max(tally.counts.values(), default=0)
        has_majority = list(tally.counts.values()).count(most) == 1
        assert (tally.majority is not None) == has_majority
        assert tally.majority_count == (most if has_majority else 0)
        counted.append(tally)
    assert counted[0] == counted[1]
    assert sorted(counted[0].counts.values()) == sorted(counted[2].counts.values())
    assert counted[0].majority_count == counted[2].majority_count


_judges: list[Judge] = []


def _the_judge() -> Judge:
    if not _judges:
        _judges.append(Judge(workers=1))
    return _judges[0]


LAWS: dict[str, Callable[[str], None]] = {
    law.__name__: law for law in (extraction, notation, comparison, parsing, classes, votes)
}
