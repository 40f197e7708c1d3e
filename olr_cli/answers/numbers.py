"""Exact numbers that a text spells, in microseconds and without heavy imports (R7)."""

from __future__ import annotations

import re
from fractions import Fraction

_DIGITS = r"(?:[1-9]\d{0,2}(?:[, ]\d{3})+(?!\d)|\d++)"
_EXPONENT = (
    r"(?:[eE][+-]?\d+|\s*\\(?:times|cdot)\s*10\s*\^\s*(?:\{\s*[+-]?\d+\s*\}|[+-]?\d+))"
)
_MAGNITUDE = rf"(?:{_DIGITS}(?:\.\d*)?|\.\d+){_EXPONENT}?"
_DECIMAL = rf"[+-]?\s*{_MAGNITUDE}"
_NUMBER = re.compile(
    r"([+-]?)\s*(?:(?P<whole>\d+)\s*(?=\\frac|(?<=\s)\d+/\d))?"
    rf"(?:\\frac\s*\{{\s*(?P<top>{_DECIMAL})\s*\}}\s*\{{\s*(?P<bottom>{_DECIMAL})\s*\}}"
    rf"|(?P<p>{_MAGNITUDE})(?:\s*/\s*(?P<q>{_DECIMAL}))?)",
    re.ASCII,
)
_REPEATING = re.compile(
    r"([+-]?)\s*(\d+)\.(\d*)\s*\\(?:overline|bar|dot)\s*(?:\{(\d+)\}|(\d))", re.ASCII
)
_LARGEST_EXPONENT = 4000
_SCALES = {
    "hundred": 2,
    "thousand": 3,
    "万": 4,
    "million": 6,
    "亿": 8,
    "billion": 9,
    "trillion": 12,
}
_SCALED = re.compile(rf"(.*[\d}}])\s*(?:\\text\{{\s*)?({'|'.join(_SCALES)})s?\s*\}}?")
_WRAPPED = re.compile(r"\{([^{}]*)\}")


def exact_number(text: str) -> Fraction | None:
    r"""Return the number that a tidied text spells; None if it doesn't spell one.

    Integers, thousands separators, decimals, repeating ones, powers of ten, ``a/b``, ``\frac{a}{b}``, mixed numbers,
    and a scale word behind one (`3 million`). No percent signs, no units.
    """
    if text.isascii() and text.isdigit():
        return Fraction(int(text))
    # `{12}`.
    wrapped = _WRAPPED.fullmatch(text)
    text = text if wrapped is None else wrapped[1].strip()
    # `3 million`.
    if scaled := _SCALED.fullmatch(text):
        value = exact_number(scaled[1])
        return None if value is None else value * 10 ** _SCALES[scaled[2]]
    # `0.\overline{3}`.
    if match := _REPEATING.fullmatch(text):
        value = _repeating(match)
    # `-1,234.5`, `3/4`, `1 \frac{1}{2}`, `6 \times 10^{23}`.
    elif match := _NUMBER.fullmatch(text):
        value = _quotient(match)
    if match is None or value is None:
        return None
    return -value if match[1] == "-" else value


def _repeating(match: re.Match[str]) -> Fraction:
    r"""Return the value of a `_REPEATING` without its sign: 12/99 for `0.\overline{12}`."""
    decimals, period = match[3], match[4] or match[5]
    before = match[2] + decimals
    nines = 10 ** len(period) - 1
    return Fraction(int(before + period) - int(before), 10 ** len(decimals) * nines)


def _quotient(match: re.Match[str]) -> Fraction | None:
    """Return the value of a `_NUMBER` without its sign, which may be a decimal, a quotient of two, or mixed."""
    # `\frac{p}{q}`, `p/q`, or p alone.
    p, q = match["top"] or match["p"], match["bottom"] or match["q"] or "1"
    top, bottom = _decimal(p), _decimal(q)
    if top is None or not bottom:
        return None
    if match["whole"] is None:
        return top / bottom
    is_proper = p.isdigit() and q.isdigit() and top < bottom
    # Beside anything but a proper fraction a whole number is a product or a slip.
    return int(match["whole"]) + top / bottom if is_proper else None


def _decimal(token: str) -> Fraction | None:
    """Value of a `_DECIMAL`; None where its exponent is out of bounds."""
    mantissa, *power = re.split(r"\\[a-z]+10\^|[eE]", re.sub(r"[,\s{}]", "", token))
    exponent = int(power[0]) if power else 0
    return None if abs(exponent) > _LARGEST_EXPONENT else Fraction(f"{mantissa}e{exponent}")
