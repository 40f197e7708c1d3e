"""Record what the reader guesses: styles that it drops, and other meanings that a text may have (R7)."""

from __future__ import annotations

import re
from collections.abc import Callable

from olr_cli.answers.classes import COUNTED, Form
from olr_cli.answers.reading import Leaf, read_tidied
from olr_cli.answers.units import split_unit

PLAIN_DECIMAL = re.compile(r"-?\d+(?:\.\d{1,12})?", re.ASCII)
"""Number with one possible reading: it has no commas, and fewer decimals than programs print."""


def read_surely(answer: str, text: str, leaf: Leaf) -> Form:
    """Read an answer as a `Form`, which holds its meaning, and record in the form what is uncertain about it.

    `Form.guesses` gets what was guessed while reading. `Form.others` gets other meanings that the text may have. An
    answer is proved wrong only if no guess and no other meaning could make it right.

    Args:
        answer: the answer as it was given.
        text: the answer in plain LaTeX, as `tidy` rewrites it.
        leaf: function that reads the mathematical expressions in the answer.
    """
    form = read_tidied(text, leaf)
    if PLAIN_DECIMAL.fullmatch(text) and "\\" not in answer:
        return form
    respelled = (
        pattern.sub(spelling, text) for pattern, spelling in _OTHER_SPELLINGS.items()
    )
    other_texts = {with_points(text), *respelled} - {text}
    # `ACD` may be a word or three options.
    if _OPTIONS.fullmatch(text):
        other_texts.add(", ".join(text))
    match = _AMBIGUOUS.search(text)
    guesses = [match[0]] if match else []
    # Algebra drops styles: it reads `2\mathbf{v}` as 2v. A script letter is another letter wherever it is.
    if _used_algebra(form) or _SCRIPT.search(answer):
        guesses += _STYLE.findall(answer)
    return form.guessed(guesses, (read_tidied(spelling, leaf) for spelling in other_texts))


def _on_12_hour_clock(clock: re.Match[str]) -> str:
    """Rewrite a time of the 24-hour clock for the 12-hour clock: `5:30 PM` for `17:30`."""
    hour = int(clock[1])
    return f"{hour % 12 or 12}:{clock[2]} {'PM' if hour > 11 else 'AM'}"


def _with_styled_unit(quantity: re.Match[str]) -> str:
    r"""Put the units after a number into a text style: `5\text{ m/s}` for `5 m/s`.

    Without the style, the units would be read as variables. If the letters are no units, return the text unchanged.
    """
    styled = f"{quantity[1]}\\text{{ {quantity[2]}}}"
    unit = split_unit(styled)[1]
    return styled if unit and COUNTED not in unit else quantity[0]


def with_points(text: str) -> str:
    """Replace decimal commas by points, and drop the separators of thousands beside them: 1.234,5 becomes 1234.5.

    Numbers such as 1,234 stay as they are. A text with brackets but no semicolons is returned unchanged, because its
    commas may separate entries.
    """
    # In a tuple, a comma separates entries unless semicolons do.
    if _OPENING_BRACKET.search(text) and ";" not in text:
        return text
    return _DECIMAL_COMMA.sub(
        lambda number: number[0].translate(str.maketrans(",", ".", ". ")),
        _THOUSANDS.sub(lambda number: number[0].replace(".", ""), text),
    )


def _used_algebra(form: Form) -> bool:
    """Return whether a parsed answer, or a part of it, was read by computer algebra or could not be read at all."""
    return form.kind in ("value", "equation", "other", "text") or any(
        map(_used_algebra, form.parts)
    )


# But not the thousands separator of 1,234
_DECIMAL_COMMA = re.compile(
    r"(?<![\d.,])(?![1-9]\d{0,2}(?:,\d{3})+(?![\d,]))(?:\d{1,3}(?:[. ]\d{3})+|\d+),\d+(?![\d.,])"
)
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:\.\d{3}){2,}(?![\d.,])")
"""Number such as 12.345.678, in which no point can be decimal. The point of 1.234 may be decimal."""
_OPENING_BRACKET = re.compile(r"[(\[]|\\\{")
# Styles, and indices without a sign, such as the 1 of `x1`
_STYLE = re.compile(
    r"\\(?:bm|boldsymbol|math(?:bf|cal|scr|frak)|hat|vec|bar|tilde)(?![a-zA-Z])|(?<![\dA-Z\\])(?<![a-z])[a-zA-Z]\d"
)
_SCRIPT = re.compile(r"\\math(?:cal|scr|frak)(?![a-z])")
_ORDINALS = (
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
)
_NUMBER_PHRASES = {
    **{ordinal: str(rank) for rank, ordinal in enumerate(_ORDINALS, 1)},
    **{
        "infinitely many": r"\infty",
        "diverges": r"\infty",
        "once": "1",
        "twice": "2",
        "dozen": "12",
        "a dozen": "12",
    },
}
_OTHER_SPELLINGS: dict[re.Pattern[str], str | Callable[[re.Match[str]], str]] = {
    re.compile(r"\[([^\[\]]*,[^\[\]]*)\]"): r"\1",
    re.compile(r"^([01]?\d|2[0-3]):([0-5]\d)$", re.ASCII): _on_12_hour_clock,
    re.compile(r"\\log(?![a-zA-Z]|\s*_)"): r"\\ln",
    re.compile(r"^(-?\d[\d.,]*)\s+([a-zA-Z][\w/^{} -]*)$", re.ASCII): _with_styled_unit,
    # `1/2x` is read as 1/(2x) and may be x/2.
    re.compile(r"(?<![\w/])(\d+)/(\d+)(?=\s*[a-zA-Z(])"): r"\\frac{\1}{\2}",
    re.compile(r"^(?:\\text\{\s*)?([a-z ]+)\s*\}?$"): lambda match: _NUMBER_PHRASES.get(
        match[1].strip(), match[0]
    ),
}
"""Pattern -> another spelling: a list in brackets, a time of day, a logarithm, units, a product, words for numbers."""


_UNIT_NAMES = "hours? hrs? h minutes? mins? seconds? secs? days? weeks? months? years? feet ft inch(?:es)? pounds? lbs?"
_UNIT = rf"(?:\\text\{{\s*(?:{_UNIT_NAMES.replace(' ', '|')})\s*\}}|(?:{_UNIT_NAMES.replace(' ', '|')})\b|\^\s*\\circ)"
_AMBIGUOUS = re.compile(
    rf"\d\s*{_UNIT}\s*,?\s*(?:\\text\{{\s*and\s*\}}|and\b)?\s*\d+(?:\.\d+)?\s*(?:{_UNIT}|'|\^\{{?\\prime)"
    r"|[一二三四五六七八九十百千零两]"  # numerals, which are read as words
    r"|(?:\\text\{[A-Za-z ]+\}|(?<![A-Za-z\\])[BNU])\s*\([^()]*,"  # a named function or distribution: `N(0, 1)`
    r"|\d[spdf]\s*\^.*\d[spdf]\s*\^"  # a configuration of electrons: `1s^2 2s^2`
    r"|^(?:\\text\{\s*)?[NS]\b.*\d.*[EW]"  # a bearing: `N 30^\circ E`
    r"|^[a-zA-Z]+(?: [a-zA-Z])+$"  # a word or a product: `A B`
    r"|\\(?:zeta|eta|beta|phi|sigma|tau|mu|lambda|psi|omega|pi|Omega|Lambda)\s*\(\s*\d+\s*\)"  # `\zeta(2)`
    r"|^[a-zA-Z]\([a-z]\) *=.*(?<![a-zA-Z\\])[abck](?![abd-wyz(])"  # a free constant: `f(x) = ax`
)
"""Text whose meaning the reader guesses. The first alternative is a quantity in several units: `2 hours 30 minutes`."""


_OPTIONS = re.compile("[A-J]{2,6}")
