"""Read exact numbers in microseconds and without heavy imports (R7)."""

from __future__ import annotations

import re
from fractions import Fraction

_DIGITS = r"(?:[1-9]\d{0,2}(?:[, ]\d{3})+(?!\d)|\d++)"
_EXPONENT = (
    r"(?:[eE][+-]?\d+|\s*\\(?:times|cdot)\s*10\s*\^\s*(?:\{\s*[+-]?\d+\s*\}|[+-]?\d+))"
)
_MAGNITUDE = rf"(?:{_DIGITS}(?:\.\d*)?|\.\d+){_EXPONENT}?"
_DECIMAL = rf"[+-]?\s*{_MAGNITUDE}"
# `-1,234.5`, `3/4`, `-2\frac{1}{2}`, `2 1/2`, `1e5` and `3 \times 10^5`
_NUMBER = re.compile(
    r"([+-]?)\s*(?:(?P<whole>\d+)\s*(?=\\frac|(?<=\s)\d+/\d))?"
    rf"(?:\\frac\s*\{{\s*(?P<top>{_DECIMAL})\s*\}}\s*\{{\s*(?P<bottom>{_DECIMAL})\s*\}}"
    rf"|(?P<p>{_MAGNITUDE})(?:\s*/\s*(?P<q>{_DECIMAL}))?)",
    re.ASCII,
)
# `0.1\overline{6}`
_REPEATING = re.compile(
    r"([+-]?)\s*(\d+)\.(\d*)\s*\\(?:overline|bar|dot)\s*(?:\{(\d+)\}|(\d))", re.ASCII
)
_LARGEST_EXPONENT = 4000
"""Largest power of ten that is computed: `1e999999999` would fill the memory."""
_SCALE_WORDS = {
    "hundred": 2,
    "thousand": 3,
    "万": 4,
    "million": 6,
    "亿": 8,
    "billion": 9,
    "trillion": 12,
}
# `3 million`
_WITH_SCALE_WORD = re.compile(
    rf"(.*[\d}}])\s*(?:\\text\{{\s*)?({'|'.join(_SCALE_WORDS)})s?\s*\}}?"
)
# `{12}`
_IN_BRACES = re.compile(r"\{([^{}]*)\}")


def exact_number(text: str) -> Fraction | None:
    r"""Return the number that a text spells, or None if it spells none.

    Accepts integers, thousands separators, decimals, repeating decimals, powers of ten, ``a/b``, ``\frac{a}{b}``, mixed
    numbers, and a number with a scale word (`3 million`). Percent signs and units are not accepted.

    Args:
        text: an answer, or a part of one, as `tidy` rewrites it.
    """
    # Nearly all answers of some data sets are plain integers.
    if text.isascii() and text.isdigit():
        return Fraction(int(text))
    in_braces = _IN_BRACES.fullmatch(text)
    text = text if in_braces is None else in_braces[1].strip()
    if scaled := _WITH_SCALE_WORD.fullmatch(text):
        value = exact_number(scaled[1])
        return None if value is None else value * 10 ** _SCALE_WORDS[scaled[2]]
    if match := _REPEATING.fullmatch(text):
        value = _repeating(match)
    elif match := _NUMBER.fullmatch(text):
        value = _quotient(match)
    if match is None or value is None:
        return None
    return -value if match[1] == "-" else value


def _repeating(match: re.Match[str]) -> Fraction:
    r"""Return the value of a repeating decimal, without its sign: 12/99 for `0.\overline{12}`."""
    decimals, repeating_digits = match[3], match[4] or match[5]
    leading_digits = match[2] + decimals
    nines = 10 ** len(repeating_digits) - 1
    # (10^n - 1) times the number has no repeating part: 99 * 0.1212... = 12.
    return Fraction(
        int(leading_digits + repeating_digits) - int(leading_digits),
        10 ** len(decimals) * nines,
    )


def _quotient(match: re.Match[str]) -> Fraction | None:
    """Return the value of a decimal, a quotient of decimals or a mixed number, without its sign.

    Return None if a denominator is 0, an exponent is above 4,000 or below -4,000, or the fraction of a mixed number is
    not below 1.

    Args:
        match: a match of `_NUMBER`.
    """
    # `\frac{p}{q}`, `p/q`, or p alone
    p, q = match["top"] or match["p"], match["bottom"] or match["q"] or "1"
    numerator, denominator = _decimal(p), _decimal(q)
    if numerator is None or not denominator:
        return None
    if match["whole"] is None:
        return numerator / denominator
    # Only a proper fraction makes a mixed number: `2 5/3` is a product or a slip.
    is_proper = p.isdigit() and q.isdigit() and numerator < denominator
    return int(match["whole"]) + numerator / denominator if is_proper else None


def _decimal(token: str) -> Fraction | None:
    """Return the value of a decimal such as `1.5e3`, or None if its exponent is above 4,000 or below -4,000."""
    mantissa, *power = re.split(r"\\[a-z]+10\^|[eE]", re.sub(r"[,\s{}]", "", token))
    exponent = int(power[0]) if power else 0
    return None if abs(exponent) > _LARGEST_EXPONENT else Fraction(f"{mantissa}e{exponent}")
