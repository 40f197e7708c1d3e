r"""Other ways to write an answer, which a fair referee accepts for a gold, though they are another class (R7)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from string import ascii_letters

_BY = re.compile(r"(?<=\\text\{derivative)(\d \w+) by \w+")
_FUNCTION_OF_TIME = re.compile(r"(?<=[a-zA-Z}])\s*\(\s*[tx]\s*\)")
_DEGREES = re.compile(r"(\d+(?:\.\d+)?)\s*\^\s*(?:\\circ(?![a-zA-Z])|\{\s*\\circ\s*\})")
_POINT = re.compile(r"[A-Z]\s*(\(.*,.*\))")
_BASED = re.compile(r"([\dA-F]+)_.*")

_REALS = re.compile(
    r"(?:[a-z]\s*\\in\s*)?(?:\\text\{\s*)?(?:all )?(?:real(?: number)?s|\\mathbb\s*\{?\s*R)\s*\}?"
)
_BUILDER = re.compile(
    r"\\?\{\s*[a-zA-Z]\s*(?:\\in\s*\\mathbb\s*\{?R\}?\s*)?(?:\\mid(?![a-zA-Z])|[|:])(.*?)\\?\}"
)
_OR = re.compile(r"\\text\{\s*,?\s*or\s*\}|\bor\b|\\(?:lor|vee|cup)(?![a-zA-Z])")
_ORDER = re.compile(r"([<>]|\\(?:[lg][et]|ne)(?![a-zA-Z]))")
_VARIABLE = re.compile(r"[a-zA-Z]|\\(?!pi|infty)[a-z]+")

_LETTER = re.compile(r"\\text\{[^{}]*\}|\\[a-zA-Z]+|[a-zA-Z]")
_NAMES = frozenset(ascii_letters) - {"e", "i"}
_COUNTERS = frozenset("jklmn")
_CALL = re.compile(r"[a-zA-Z]\s*\(\s*([a-zA-Z])\s*\)\s*=.*")
_DECLARED = re.compile(
    r"([a-zA-Z])\s*\\in\s*\\mathbb|\b(?:some|any|all|every|arbitrary)\b[a-z ]*\}?\s*\$?([a-zA-Z])(?![a-zA-Z])"
    r"|([a-zA-Z])\$?\s*(?:\\text\{)?\s*is an[a-z ]* integer"
)
_VALUE = re.compile(r"^[^=]*=(?=[^=]*$)")
_DECLARATION = re.compile(r"\s*,?\s*[a-zA-Z]\s*\\in\s*\\mathbb.*")


def declared_letters(text: str) -> frozenset[str]:
    r"""Letters of which an answer says that they stand for any number of some kind: `k \in \mathbb{Z}`."""
    return frozenset("".join(groups) for groups in _DECLARED.findall(text))


def other_readings(gold: str, answer: str, declared: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Pairs of tidied texts; if those of a pair say the same, the answer is right.

    Args:
        gold: tidied.
        answer: tidied.
        declared: letters that stand for any number of some kind.
    """
    if "{derivative" in gold and "{derivative" in answer:  # x'(t) and \dot{x} are the same
        both = " by " in gold and " by " in answer
        texts = [text if both else _BY.sub(r"\1", text) for text in (gold, answer)]
        yield _FUNCTION_OF_TIME.sub("", texts[0]), _FUNCTION_OF_TIME.sub("", texts[1])
    if "\\circ" in gold + answer and "\\pi" in gold + answer:
        yield _DEGREES.sub(r"\\frac{\1\\pi}{180}", gold), _DEGREES.sub(r"\\frac{\1\\pi}{180}", answer)
    if point := _POINT.fullmatch(answer):
        yield gold, point[1]
    if (digits := _BASED.fullmatch(gold)) and "_" not in answer:
        yield digits[1], answer
    one, other = _as_intervals(gold), _as_intervals(answer)
    if (one, other) != (gold, answer):
        yield one, other
    yield from _renamed(gold, answer, declared)


def _as_intervals(text: str) -> str:
    r"""A set of real numbers as intervals, where inequalities, a builder or words tell it: `\{x \mid x > 1\}`."""
    if _REALS.fullmatch(text):
        return r"(-\infty,\infty)"
    builder = _BUILDER.fullmatch(text)
    condition = builder[1] if builder else text
    if not _ORDER.search(condition):
        return text
    pieces = [_as_interval(piece.strip()) for piece in _OR.split(condition)]
    return text if None in pieces else r" \cup ".join(map(str, pieces))


def _as_interval(text: str) -> str | None:
    """What a text says about one letter between at most two bounds; None if it says something else."""
    name, _, value = text.partition("=")
    if _VARIABLE.fullmatch(name.strip()):
        return rf"\{{{value}\}}"
    terms = [term.strip() for term in _ORDER.split(text)]
    bounds = {}
    for left, sign, right in zip(terms[:-2:2], terms[1::2], terms[2::2], strict=True):
        is_left = _VARIABLE.fullmatch(left) is not None
        bound, letter = (right, left) if is_left else (left, right)
        if not _VARIABLE.fullmatch(letter) or not bound:
            return None
        if sign == "\\ne":
            return rf"(-\infty,{bound}) \cup ({bound},\infty)"
        is_above = sign.startswith(("<", "\\l")) == is_left
        bounds[is_above] = bound, sign.endswith("e")
    if len(bounds) != len(terms) // 2:
        return text if len(terms) == 1 and text[:1] in ("(", "[") else None
    low, has_low = bounds.get(False, (r"-\infty", False))
    high, has_high = bounds.get(True, (r"\infty", False))
    return f"{'[' if has_low else '('}{low},{high}{']' if has_high else ')'}"


def _renamed(gold: str, answer: str, declared: frozenset[str]) -> Iterator[tuple[str, str]]:
    """The answer with the gold's name for an argument or a free integer, if that is all that differs."""
    calls = _CALL.fullmatch(gold), _CALL.fullmatch(answer)
    if calls[0] and calls[1]:
        ours, theirs = {calls[0][1]}, {calls[1][1]}
        may_differ = True
    else:
        gold, answer = (_DECLARATION.sub("", _VALUE.sub("", text)).strip() for text in (gold, answer))
        here, there = ({*_LETTER.findall(text)} & _NAMES for text in (gold, answer))
        ours, theirs = here - there, there - here
        is_period = "\\pi" in gold and "\\pi" in answer and ours | theirs <= _COUNTERS
        may_differ = is_period or not declared.isdisjoint(ours | theirs)
    if may_differ and len(ours) == len(theirs) == 1 and ours != theirs:
        (name,) = ours
        if name not in _LETTER.findall(answer):
            yield gold, _LETTER.sub(lambda letter: name if letter[0] in theirs else letter[0], answer)
