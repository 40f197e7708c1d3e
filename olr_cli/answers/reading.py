r"""Answers that need no computer algebra: exact numbers, and tuples, lists, sets and intervals of them (R7).

Everything here takes microseconds and imports nothing heavy; what it doesn't recognise is left to math-verify.
Where both read an answer they agree, but for spellings that math-verify misreads, such as ``1\,234``, ``1 1/2``,
``4.5e3``, ``12\frac12\%`` and ``5\text{ cm}, 6\text{ cm}``.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from olr_cli.answers.forms import Form, number, unordered

_LARGEST_EXPONENT = 4000

_S = r"(?:\s|\\[,;: ])*+"  # possessive: adjacent ones would backtrack in cubic time
_DIGITS = r"(?:[1-9]\d{0,2}(?:(?:,|\{,\}|\ |\\[,;: ])\d{3})+(?!\d)|\d+)"
_EXPONENT = rf"(?:[eE][+-]?\d+|{_S}\\(?:times|cdot){_S}10{_S}\^{_S}(?:\{{{_S}[+-]?\d+{_S}\}}|[+-]?\d+))"
_MAGNITUDE = rf"(?:{_DIGITS}(?:\.\d*)?|\.\d+){_EXPONENT}?"
_DECIMAL = rf"[+-]?{_S}{_MAGNITUDE}"
_STYLE = r"\\(?:text(?:rm|bf|it|normal)?|mbox|math(?:rm|bf|it))"
_TAIL = (  # percent sign, degrees, unit
    rf"{_S}(?P<percent>\\?%)?{_S}(?:\^{_S}(?:\\circ|\{{{_S}\\circ{_S}\}}))?"
    rf"{_S}(?:{_STYLE}\s*\{{[^{{}}]*\}}(?:\^\d)?)?"
)
_RATIO = re.compile(
    rf"(?P<sign>[+-]?){_S}(?:(?P<whole>\d+)\s+(?=\d+/\d))?(?P<p>{_MAGNITUDE})(?:{_S}/{_S}(?P<q>{_DECIMAL}))?{_TAIL}",
    re.ASCII,
)
_FRACTION = re.compile(
    rf"(?P<sign>[+-]?){_S}(?:(?P<whole>\d+){_S})?\\[dtc]?frac"
    rf"{_S}(?:(?P<p1>\d)|\{{{_S}(?P<p>{_DECIMAL}){_S}\}}){_S}(?:(?P<q1>\d)|\{{{_S}(?P<q>{_DECIMAL}){_S}\}}){_TAIL}",
    re.ASCII,
)
_PARTS = re.compile(rf"(-?)\+?{_S}(.*?)({_EXPONENT})?", re.ASCII)
_DECIMAL_COMMA = re.compile(r"-?0\d{0,2}(?:,\d{3})+(?:\.\d+)?", re.ASCII)  # as math-verify reads 0,125
_WRAPPED = re.compile(rf"(?:{_STYLE}\s*)?\{{([^{{}}]*)\}}")


def read(answer: str) -> Form | None:
    """The form of a tidied answer that is an exact number or made of them; None if it takes more to tell."""
    value = exact_number(answer)
    if value is not None:
        return number(value)
    if "," not in answer or _DECIMAL_COMMA.fullmatch(answer):
        return None
    return _composite(answer)


def exact_number(answer: str) -> Fraction | None:
    r"""The number that a tidied answer spells; None if it doesn't spell one.

    Integers, thousands separators, decimals, powers of ten, ``a/b``, ``\frac{a}{b}``, mixed numbers, percentages;
    units and degrees are dropped as math-verify does.
    """
    if answer.isascii() and answer.isdigit():
        return Fraction(int(answer))
    wrapped = _WRAPPED.fullmatch(answer)
    if wrapped is not None:
        answer = wrapped[1].strip()
    if "frac" in answer:
        match = _FRACTION.fullmatch(answer)
        if match is None:
            return None
        p, q = match["p1"] or match["p"], match["q1"] or match["q"]
    else:
        match = _RATIO.fullmatch(answer)
        if match is None:
            return None
        p, q = match["p"], match["q"]
    return _rational(match["sign"], match["whole"], p, q, is_percentage=match["percent"] is not None)


def _rational(sign: str, whole: str | None, p: str, q: str | None, *, is_percentage: bool) -> Fraction | None:
    top, bottom = _decimal(p), Fraction(1) if q is None else _decimal(q)
    if top is None or bottom is None or bottom == 0:
        return None
    value = top / bottom
    if whole is not None:
        # A whole number beside anything but a proper fraction is a product or a slip.
        if not (p.isdigit() and q is not None and q.isdigit() and value < 1):
            return None
        value += int(whole)
    if is_percentage:
        value /= 100
    return -value if sign == "-" else value


def _decimal(token: str) -> Fraction | None:
    """Value of a `_DECIMAL`; None where its exponent is out of bounds."""
    match = _PARTS.fullmatch(token)
    if match is None:
        return None
    minus, mantissa, power = match.groups()
    exponent = int(re.findall(r"[+-]?\d+", power)[-1]) if power else 0
    if abs(exponent) > _LARGEST_EXPONENT:
        return None
    whole, _, decimals = re.sub(r"[^\d.]", "", mantissa).partition(".")
    exponent -= len(decimals)
    value = int(minus + whole + decimals)
    return Fraction(value * 10**exponent) if exponent >= 0 else Fraction(value, 10**-exponent)


_BRACKET = re.compile(r"\\[{}]|[()\[\]{},]|\\.")
_GROUP = re.compile(r"(\(|\[|\\\{)(.*)(\)|\]|\\\})", re.DOTALL)
_INFINITY = re.compile(r"[+-]?\s*\\infty")
_OPENING = frozenset({"(", "[", "\\{", "{"})
_CLOSING = frozenset({")", "]", "\\}", "}"})


def _composite(answer: str) -> Form | None:
    """The form of a list, tuple, set or interval whose elements are exact numbers or such again."""
    items = _split(answer)
    if items is None:
        return None
    if len(items) == 1:
        return _group(answer)
    elements = [_element(item) for item in items]
    return None if None in elements else unordered([e for e in elements if e is not None])


def _split(text: str) -> list[str] | None:
    """`text` cut at the commas outside all brackets; None if brackets don't pair up."""
    depth, start, items = 0, 0, []
    for token in _BRACKET.finditer(text):
        sign = token[0]
        if sign in _OPENING:
            depth += 1
        elif sign in _CLOSING:
            depth -= 1
            if depth < 0:
                return None
        elif sign == "," and depth == 0:
            items.append(text[start : token.start()].strip())
            start = token.end()
    items.append(text[start:].strip())
    return items if depth == 0 else None


def _element(text: str) -> Form | None:
    value = exact_number(text)
    if value is not None:
        return number(value)
    if _INFINITY.fullmatch(text):
        return Form("scalar", "-oo" if text.startswith("-") else "oo")
    return _group(text)


def _group(text: str) -> Form | None:
    """The form of what stands in one pair of brackets."""
    match = _GROUP.fullmatch(text)
    items = None if match is None else _split(match[2].strip())
    if match is None or items is None:
        return None
    elements = [form for form in map(_element, items) if form is not None]
    if len(elements) < len(items):
        return None
    brackets = match[1][-1] + match[3][-1]
    if brackets == "{}":
        return unordered(elements)
    if brackets == "()" and len(elements) > 1:
        return Form("tuple", parts=tuple(elements))
    if brackets in ("[]", "[)", "(]") and len(elements) == 2 and _is_interval(brackets, *items):
        return Form("interval", brackets, tuple(elements))
    return None


def _is_interval(brackets: str, low: str, high: str) -> bool:
    """Whether two ends make an interval that is neither empty nor a point, and open where it is infinite."""
    a, b = (exact_number(end) for end in (low, high))
    left = a if a is not None else -math.inf if low.startswith("-") and brackets[0] == "(" else math.nan
    right = b if b is not None else math.inf if not high.startswith("-") and brackets[1] == ")" else math.nan
    return left < right
