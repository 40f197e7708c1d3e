"""Laws that hold for any text of a policy: of its extraction, its reading, its parsing and its classes.

Each law takes one text and fails by an exception. `fuzz_answers.py` looks for a text that breaks a law;
`test_answers.py` tries the texts of the corpus and random ones. Answers to compare are the lines of a text.
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

from olr_cli.answers import EXTRACTORS, Judge, algebra, extract, latex
from olr_cli.answers.classes import Form
from olr_cli.answers.matching import matches
from olr_cli.answers.notation import normal_text, tidy
from olr_cli.answers.numbers import exact_number
from olr_cli.answers.reading import NeedsAlgebra, read

CORPUS = Path(__file__).parents[1] / "fixtures" / "answers"


def corpus(name: str) -> list[str]:
    """Return the stored texts for the law `name`; when found, each was the first to reach some part of the code."""
    return [
        json.loads(line)
        for line in (CORPUS / f"{name}.jsonl").read_text("ascii").splitlines()
    ]


def extraction(text: str) -> None:
    r"""Check that each extractor returns None or a text without spaces at its ends.

    The default one must find the last ``\boxed{…}``, as rule R6 defines it.
    """
    for name in EXTRACTORS:
        answer = extract(text, name)
        assert answer is None or (answer and answer == answer.strip())
    assert extract(text) == _last_box(text)


def _last_box(text: str) -> str | None:
    r"""Return the content of the last ``\boxed{…}``, or None, by a slow reading of rule R6 to the letter."""
    for box in reversed(list(re.finditer(r"\\boxed\s*\{", text))):
        position, depth = box.end(), 1
        while position < len(text):
            if inner := re.compile(r"\\boxed\s*\{").match(text, position):
                depth, position = depth + 1, inner.end()
                continue
            pair = text[position : position + 2]
            if pair in (r"\{", r"\}") or (
                pair == r"\\" and not text.startswith("boxed", position + 2)
            ):
                position += 2
                continue
            depth += {"{": 1, "}": -1}.get(text[position], 0)
            if depth == 0:
                return text[box.end() : position].strip() or None
            position += 1
    return None


def notation(text: str) -> None:
    """Check how an answer is read without computer algebra.

    Spaces around it must not matter. The form, that is what was read, must come out again when its spelling is read. A
    plain number must have Python's value.
    """
    tidied = tidy(text)
    assert tidied == tidied.strip() and normal_text(tidied) == normal_text(
        tidy(f" {text}\u200b ")
    )
    form = _read_here(text)
    if re.fullmatch(r"[+-]?\d{1,99}(\.\d{1,99})?", tidied, re.ASCII):
        assert exact_number(tidied) == Fraction(tidied)
    if form is None:
        return
    assert form == _read_here(text) and form.key == _read_here(f" {text} ").key
    spelling = _spelling(form)
    if spelling is not None:
        assert _read_here(spelling) == form, spelling


def _read_here(text: str) -> Form | None:
    """Return what a text is read as without computer algebra; None if it is no answer or needs computer algebra."""
    try:
        return read(text)
    except NeedsAlgebra:
        return None


def _spelling(form: Form) -> str | None:
    """Return a text that should be read as this form; None if none is easily written.

    It is written for exact numbers and infinities, and for tuples, sets and intervals of these.
    """
    if form.kind == "number":
        return None if len(form.label) > 300 else form.label
    if form.kind == "value":
        return {"oo": r"\infty", "-oo": r"-\infty"}[form.label]
    parts = [_spelling(part) for part in form.parts]
    if None in parts or form.kind not in ("tuple", "set", "interval") or form.label == ":":
        return None
    opening, closing = {"tuple": "()", "set": (r"\{", r"\}")}.get(form.kind, form.label)
    if opening == "(" and len(parts) == 1:
        return None
    return f"{opening}{', '.join(map(str, parts))}{closing}"


def comparison(text: str) -> None:
    """Check exact numbers among the lines of a text: two share a class (have equal keys) if and only if they are equal.

    Lines of one class must also match each other as gold and answer. Percentages and forms with units are excepted from
    this.
    """
    lines = [line for line in text.split("\n")[:4] if _read_here(line) is not None]
    for a in lines:
        for b in lines:
            one, other = exact_number(tidy(a)), exact_number(tidy(b))
            is_same = read(a).key == read(b).key
            if one is not None and other is not None:
                assert is_same == (one == other)
            if (
                is_same
                and "percent" not in (read(a).kind, read(b).kind)
                and read(a).kind not in _WITH_UNITS
            ):
                assert matches(a, b) is True


_WITH_UNITS = (
    "quantity",
    "set",
    "tuple",
    "interval",
    "union",
    "assignment",
    "system",
    "choice",
)
"""Forms whose key leaves something out, or whose parts may: `5 apples` has the key of `5` but is not `5` dollars."""


class _TooLong(BaseException):
    """Raised when a text takes too long to parse, in place of killing the process as a judge would."""


def parsing(text: str) -> None:
    """Check that lines of a text give the same key when parsed twice, and that Python evaluates none of their words.

    The verdict on them must be True, False or None. A text that takes 2 seconds, or has long lines, passes.
    """
    answers = [(line, tidy(line)) for line in text.split("\n")[:2]]
    if not all(0 < len(tidied) <= 120 for _, tidied in answers):
        return

    def stop(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
    # Processor time, not the clock: a busy machine must not break a law.
    signal.setitimer(signal.ITIMER_VIRTUAL, 2.0)
    try:
        with evaluated_by_python() as sources:
            for answer, tidied in answers:
                _parsed_twice(answer, tidied)
            verdict = matches(answers[0][0], answers[-1][0], algebra.leaf, algebra.proof)
            assert verdict in (True, False, None) and (len(answers) > 1 or verdict)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _TooLong:
        clear_cache()  # sympy may have been interrupted while it wrote to the cache
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    # sympy compiles numbers, so only words of the text count as evaluated.
    words = set(re.findall(r"[^\W\d]\w{3,}", text)) - _SYMPY_NAMES
    assert not [source for source in sources if words & set(re.findall(r"\w+", source))]


def _parsed_twice(answer: str, tidied: str) -> None:
    """Check that an answer gets the same key when it is parsed again without the cache.

    `tidied` is the answer after `tidy`.
    """
    key = read(answer, algebra.leaf).key
    latex.parse.cache_clear()
    assert read(answer, algebra.leaf).key == key
    here = _read_here(answer)
    assert here is None or here.key == key


_SYMPY_NAMES = {"Integer", "Float", "Rational", "Symbol", "Function", "Expr"}
_sources: list[str] = []
_is_heard: list[bool] = []
_FORBIDDEN = re.compile(
    r"os\.(system|exec|fork|spawn|posix_spawn|remove|rename|kill)|subprocess|socket|ctypes|shutil"
)


@contextlib.contextmanager
def evaluated_by_python() -> Iterator[list[str]]:
    """Yield a list to which every source that Python compiles in the block is added, except for sympy's own.

    Raises:
        SystemError: the block starts a process, writes a file, or does something else that parsing must not do.
    """
    if not _is_heard:
        sys.addaudithook(_hear)  # an audit hook cannot be removed
    _is_heard[:] = [True]
    _sources.clear()
    try:
        yield _sources
    finally:
        _is_heard[:] = [False]


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    """Handle an audit event of Python: note the source that it compiles, or raise for a forbidden operation."""
    if not _is_heard[0]:
        return
    if event == "compile":
        source = (
            arguments[0].decode() if isinstance(arguments[0], bytes) else str(arguments[0])
        )
        if not source.startswith(("def ", "from sympy import", "lambda _cls")):
            _sources.append(source)
    elif _FORBIDDEN.match(event) or (
        event == "open" and set(str(arguments[1])) & set("wax+")
    ):
        raise SystemError(f"{event} {arguments}")


def classes(text: str) -> None:
    """Check a judge's keys and verdicts on the lines of a text.

    A key must depend only on its answer, and a verdict only on its pair, whatever is asked besides and in which order.
    Every answer matches itself. Exact numbers share a key only if they are equal.
    """
    answers = [line for line in text.split("\n") if len(line) <= 200][:6]
    # The same text gives the same draws, so a failure repeats.
    rng = random.Random(text.encode("utf-8", "surrogatepass"))
    # Invisible spaces do not change an answer.
    spaced = {f" {answer}\u200b": answer for answer in answers}
    judge = _the_judge()
    keys = judge.keys(answers)
    again = judge.keys([*rng.sample(answers, len(answers)), *spaced])
    assert all(again[answer] == keys[answer] for answer in answers)
    assert all(again[other] == keys[answer] for other, answer in spaced.items())
    pairs = [(a, b) for a in answers for b in answers]
    verdicts = dict(zip(pairs, judge.matches(pairs), strict=True))
    assert all(verdicts[answer, answer] for answer in answers)
    alone = rng.choice(pairs) if pairs else None
    assert alone is None or judge.matches([alone]) == [verdicts[alone]]
    numbers = {
        answer: number
        for answer in answers
        if (number := exact_number(tidy(answer))) is not None
    }
    for a, one in numbers.items():
        for b, other in numbers.items():
            assert (keys[a] == keys[b]) == (one == other), (
                "two exact numbers never share a class"
            )


_judges: list[Judge] = []


def _the_judge() -> Judge:
    """Return the judge that all laws share, made on first use."""
    if not _judges:
        _judges.append(Judge(workers=1))
    return _judges[0]


LAWS: dict[str, Callable[[str], None]] = {
    law.__name__: law for law in (extraction, notation, comparison, parsing, classes)
}
