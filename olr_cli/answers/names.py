"""Decide which letters of an answer are names, and whether an equation only names its value (R7)."""

from __future__ import annotations

import re
from collections.abc import Set
from string import ascii_lowercase

from olr_cli.answers.classes import Form
from olr_cli.answers.units import word

CONSTANTS = ("e", "i")
# `x`, `a_{12}`, `\vec{v}`, `\alpha`
_SYMBOL = (
    r"(?:\\(?:vec|hat|bar|tilde|overline|overrightarrow)\s*\{?\s*[a-zA-Z]+\s*\}?|\\(?!text|frac|sqrt)[a-zA-Z]+"
    r"|[a-zA-Z])(?:\s*_\s*(?:\w|\{(?:[^{}]|\{[^{}]*\})*\}))?(?:\s*\^\s*\*)?"
)
_ANY_SYMBOL = re.compile(rf"\\text\{{[^{{}}]*\}}|\\(?:frac|sqrt)|{_SYMBOL}")
_SYMBOL_OR_CALL = rf"{_SYMBOL}(?:\s*\([^()]*\))?"
# Also `f(x)`, `f^{-1}(x)`, `(x, y)`, `\text{area}`, `AB`, `|AB|`, `[ABC]`, `\triangle ABC`
_NAME = re.compile(
    rf"(?P<symbol>{_SYMBOL})|(?P<call>{_SYMBOL}(?:\s*\^\s*\{{\s*-1\s*\}})?\s*\([^()]*\))|\(\s*{_SYMBOL_OR_CALL}(?:\s*,\s*{_SYMBOL_OR_CALL})*\s*\)"
    r"|\\text\{(?!derivative)[^{}]*\}(?:\s*\([^()]*\))?|[A-Z]{2,4}|\|\s*[A-Z]{1,3}\s*\||\[\s*[A-Z]{3,}\s*\]|\\triangle\s*[A-Z]{3}"
)
_RESERVED = frozenset({"\\pi", "\\infty", *CONSTANTS})
FUNCTION = re.compile(
    r"\\(?:a|arc)?(?:sin|cos|tan|cot|sec|csc|log|ln|lg|exp|det|max|min|gcd|lcm|lim|sum|prod|int|binom)"
)
_COMMAND = re.compile(rf"\\(?:frac|sqrt|cdot|times|text|circ)|{FUNCTION.pattern}")
_INDEX = r"(?:\s*_\s*(?:\w|\{[^{}]*\}))?"
# Limits, sums and integrals, `|z|`, `f(2)`, `f'(2)`, `f(x)_{max}`
_NAMED_VALUES = re.compile(
    r"\\(?:lim|sum|prod|int)(?![a-zA-Z]).*|\|\s*[a-wz]\s*\|"
    rf"|(?:\\text\{{[^{{}}]*\}}|(?<![a-zA-Z\\])[a-wzA-Z]){_INDEX}\s*\((?:[^()]|\([^()]*\))*\){_INDEX}"
)


def is_name(head: str, value: str) -> bool:
    """Return whether `head = value` only gives the value a name, as `x = 5` does.

    It does if `head` is a name that does not occur in `value`, and if the two are not both words.
    """
    match = _NAME.fullmatch(head)
    # `\text{ln}(x)` is a function in another style and names nothing.
    function = head.replace("\\text{", "\\") if "(" in head else head
    if match is None or head in _RESERVED or FUNCTION.match(function):
        return False
    name = head.replace(" ", "")
    if match["symbol"]:
        # `x = 2x - 3` is an equation to be solved.
        value_symbols = {symbol.replace(" ", "") for symbol in _ANY_SYMBOL.findall(value)}
        return name not in value_symbols
    # In `\text{Alice} = \text{Bob}` neither side is the name of the other.
    are_words = len(word(head) or "") > 1 and len(word(value) or "") > 1
    return not are_words and name not in value.replace(" ", "")


def symbols(text: str) -> list[str]:
    r"""Return the symbols of an expression, such as `x`, `a_{1}` and `\alpha`, without constants and functions."""
    return [
        name
        for name in _ANY_SYMBOL.findall(text)
        if name not in _RESERVED and not _COMMAND.match(name)
    ]


def names_value(form: Form, *, is_gold: bool) -> bool:
    r"""Return whether an equation counts as a value, namely its last side: `m+n = 25` counts as 25 (R7).

    The result is False for three kinds of equations:

    1. An equation in one unknown, such as `\log_2 x = 3`, which still has to be solved.
    2. A gold that is a curve or a law, such as `x^2 + y^2 = 1`.
    3. An answer such as `\tan\theta = 5`, which may still have to be solved: its left side has a function, and also
       `\theta` or a lowercase Latin letter.

    Args:
        form: any parsed answer. If it is no equation, or its `Form` has no parts, the result is False.
        is_gold: whether the equation is the gold, not the answer.
    """
    if form.kind != "equation" or not form.parts:
        return False
    left, _, value = form.parts[1].label.rpartition("=")
    # A part that names a value, such as `f(1)` or `|z|`, has no unknown.
    head = _NAMED_VALUES.sub("", left)
    letters, has_function = {*symbols(head)}, FUNCTION.search(head) is not None
    # Only small Latin letters count as unknowns: Greek and capital letters usually stand for given quantities.
    has_unknown = not letters.isdisjoint(ascii_lowercase)
    # `\log_2 x = 3` defines x, and its value is not 3. But `\sin\alpha = \frac12` states the value that was asked for.
    if len(letters) == 1 and (has_unknown or not (has_function or "|" in head)):
        return False
    if is_gold:
        return not _is_curve_or_law(left, value, letters)
    # An answer such as `\tan\theta = 5` may have to be solved for the angle, so it does not answer 5.
    return not (has_function and (has_unknown or "\\theta" in letters))


def _is_curve_or_law(left: str, value: str, letters: Set[str]) -> bool:
    """Return whether an equation states more than its last side, as `x^2 + y^2 = 1`, `F - ma = 0` and `m+n = 2k` do.

    Args:
        left: text before the last equals sign.
        value: text after the last equals sign.
        letters: letters of the left side. Those inside `f(x)`, `|z|` and the like are left out.
    """
    if not letters.isdisjoint({"x", "y", "\\rho"}) or {"r", "\\theta"} <= letters:
        return True
    head = _NAMED_VALUES.sub("", left)
    if "{derivative" in head or (letters and value == "0"):
        return True
    value_letters = {*symbols(value)}
    # The value of a sum, an integral or f'(x) may have letters, but not the f itself: then it is a law.
    if not head.strip():
        value_letters.intersection_update(re.findall(r"derivative\d (\w+)", left))
    return bool(value_letters)
