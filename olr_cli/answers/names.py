"""Which letters of an answer are names: of the value that it gives, or of what it asks for (R7)."""

from __future__ import annotations

import re
from collections.abc import Set
from string import ascii_lowercase

from olr_cli.answers.classes import Form
from olr_cli.answers.units import word

CONSTANTS = ("e", "i")
_SYMBOL = (
    r"(?:\\(?:vec|hat|bar|tilde|overline|overrightarrow)\s*\{?\s*[a-zA-Z]+\s*\}?|\\(?!text|frac|sqrt)[a-zA-Z]+"
    r"|[a-zA-Z])(?:\s*_\s*(?:\w|\{(?:[^{}]|\{[^{}]*\})*\}))?(?:\s*\^\s*\*)?"
)
_ANY_SYMBOL = re.compile(rf"\\text\{{[^{{}}]*\}}|\\(?:frac|sqrt)|{_SYMBOL}")
_CALLED = rf"{_SYMBOL}(?:\s*\([^()]*\))?"
_NAME = re.compile(
    rf"(?P<symbol>{_SYMBOL})|(?P<call>{_SYMBOL}(?:\s*\^\s*\{{\s*-1\s*\}})?\s*\([^()]*\))|\(\s*{_CALLED}(?:\s*,\s*{_CALLED})*\s*\)"
    r"|\\text\{(?!derivative)[^{}]*\}(?:\s*\([^()]*\))?|[A-Z]{2,4}|\|\s*[A-Z]{1,3}\s*\||\[\s*[A-Z]{3,}\s*\]|\\triangle\s*[A-Z]{3}"
)
_NO_NAMES = frozenset({"\\pi", "\\infty", *CONSTANTS})
FUNCTION = re.compile(
    r"\\(?:a|arc)?(?:sin|cos|tan|cot|sec|csc|log|ln|lg|exp|det|max|min|gcd|lcm|lim|sum|prod|int|binom)"
)
_COMMAND = re.compile(rf"\\(?:frac|sqrt|cdot|times|text|circ)|{FUNCTION.pattern}")
_INDEX = r"(?:\s*_\s*(?:\w|\{[^{}]*\}))?"
_VALUES = re.compile(  # limits, sums and integrals, |z|, f(2), f'(2), f(x)_{max}
    r"\\(?:lim|sum|prod|int)(?![a-zA-Z]).*|\|\s*[a-wz]\s*\|"
    rf"|(?:\\text\{{[^{{}}]*\}}|(?<![a-zA-Z\\])[a-wzA-Z]){_INDEX}\s*\((?:[^()]|\([^()]*\))*\){_INDEX}"
)


def is_name(head: str, value: str) -> bool:
    """Whether `head = value` only names a value: `head` is the name of a quantity that `value` does not contain."""
    match = _NAME.fullmatch(head)
    # `\mathrm{ln}(x)` is no name of a value.
    function = head.replace("\\text{", "\\") if "(" in head else head
    if match is None or head in _NO_NAMES or FUNCTION.match(function):
        return False
    name = head.replace(" ", "")
    if match["symbol"]:
        # `x = 2x - 3` is to be solved.
        others = {symbol.replace(" ", "") for symbol in _ANY_SYMBOL.findall(value)}
        return name not in others
    # `Alice = Bob` names none of the two.
    are_words = len(word(head) or "") > 1 and len(word(value) or "") > 1
    return not are_words and name not in value.replace(" ", "")


def symbols(text: str) -> list[str]:
    """The letters of an expression, with their indices, without constants and commands."""
    return [
        name
        for name in _ANY_SYMBOL.findall(text)
        if name not in _NO_NAMES and not _COMMAND.match(name)
    ]


def names_value(form: Form, *, is_gold: bool) -> bool:
    r"""Whether an equation is an elaborate way to say its last side, as `m+n = 25` is (R7, *matches*).

    Its letters tell; those with an index or an argument, or alone between bars, name values: `x_1+x_2`, `f(1)`, `|z|`.
    """
    if form.kind != "equation" or not form.parts:
        return False
    left, _, value = form.parts[1].label.rpartition("=")
    # What names a value is no unknown: `f(1)`, `|z|`.
    head = _VALUES.sub("", left)
    letters, has_function = {*symbols(head)}, FUNCTION.search(head) is not None
    # Greek and capital letters stand for given quantities more often.
    has_unknown = not letters.isdisjoint(ascii_lowercase)
    if len(letters) == 1 and (has_unknown or not (has_function or "|" in head)):
        return False  # `\log_2 x = 3` says what x is, while `\sin\alpha = \frac12` is what was asked
    if is_gold:
        return not _is_curve_or_law(left, value, letters)
    # `\tan\theta = 5` may be solved for the angle, so that it is not 5.
    return not (has_function and (has_unknown or "\\theta" in letters))


def _is_curve_or_law(left: str, value: str, letters: Set[str]) -> bool:
    """Whether an equation asks for more than its last side: `x^2 + y^2 = 1`, `F - ma = 0`, `m+n = 2k`.

    Its `letters` are those of its `left` side that name no values.
    """
    if not letters.isdisjoint({"x", "y", "\\rho"}) or {"r", "\\theta"} <= letters:
        return True
    head = _VALUES.sub("", left)
    if "{derivative" in head or (letters and value == "0"):
        return True
    others = {*symbols(value)}
    # A sum, an integral, f'(x): its value may have letters, but not the f
    if not head.strip():
        others.intersection_update(re.findall(r"derivative\d (\w+)", left))
    return bool(others)
