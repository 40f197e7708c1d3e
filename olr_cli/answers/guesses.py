"""What is guessed where an answer is read: the styles that are dropped, and how else its text may be meant (R7)."""

from __future__ import annotations

import re
from collections.abc import Callable

from olr_cli.answers.classes import Form
from olr_cli.answers.reading import Leaf, read_tidied

PLAIN_DECIMAL = re.compile(r"-?\d+(?:\.\d{1,12})?", re.ASCII)
"""A number that can be read in one way only: without commas, and with fewer decimals than programs write."""


def read_surely(answer: str, text: str, leaf: Leaf) -> Form:
    """Read an answer that is `text` once it is tidied; its form says what was guessed, and how else it can be read."""
    form = read_tidied(text, leaf)
    if PLAIN_DECIMAL.fullmatch(text) and "\\" not in answer:
        return form
    respelled = (pattern.sub(other, text) for pattern, other in _OTHERWISE.items())
    others = {with_points(text), *respelled} - {text}
    # `ACD` may be three options.
    if _OPTIONS.fullmatch(text):
        others.add(", ".join(text))
    unsure = _UNSURE.search(text)
    guesses = [unsure[0]] if unsure else []
    # A style is lost where algebra reads, and a letter of a script is another letter anywhere.
    if _is_computed(form) or _SCRIPT.search(answer):
        guesses += _STYLE.findall(answer)
    return form.guessed(guesses, (read_tidied(other, leaf) for other in others))


def _in_halves(clock: re.Match[str]) -> str:
    """A time of the 24-hour clock as one of the 12-hour clock."""
    hour = int(clock[1])
    return f"{hour % 12 or 12}:{clock[2]} {'PM' if hour > 11 else 'AM'}"


def with_points(text: str) -> str:
    """`text` with points for its decimal commas: 1234.5 for 1.234,5. Only semicolons keep those of a tuple apart."""
    if _LIST.search(text) and ";" not in text:
        return text
    return _DECIMAL_COMMA.sub(
        lambda number: number[0].translate(str.maketrans(",", ".", ". ")),
        _THOUSANDS.sub(lambda number: number[0].replace(".", ""), text),
    )


def _is_computed(form: Form) -> bool:
    """Whether computer algebra read some part of an answer."""
    return form.kind in ("value", "equation", "other", "text") or any(
        map(_is_computed, form.parts)
    )


_DECIMAL_COMMA = re.compile(  # and none of thousands, as in 1,234
    r"(?<![\d.,])(?![1-9]\d{0,2}(?:,\d{3})+(?![\d,]))(?:\d{1,3}(?:[. ]\d{3})+|\d+),\d+(?![\d.,])"
)
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:\.\d{3}){2,}(?![\d.,])")
"""12.345.678, in which no point can be decimal; in 1.234 it may be."""
_LIST = re.compile(r"[(\[]|\\\{")
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
_COUNTS = {
    **{ordinal: str(place) for place, ordinal in enumerate(_ORDINALS, 1)},
    **{
        "infinitely many": r"\infty",
        "diverges": r"\infty",
        "once": "1",
        "twice": "2",
        "dozen": "12",
        "a dozen": "12",
    },
}
_OTHERWISE: dict[re.Pattern[str], str | Callable[[re.Match[str]], str]] = {
    re.compile(r"\[([^\[\]]*,[^\[\]]*)\]"): r"\1",
    re.compile(r"^([01]?\d|2[0-3]):([0-5]\d)$", re.ASCII): _in_halves,
    re.compile(r"\\log(?![a-zA-Z]|\s*_)"): r"\\ln",
    re.compile(r"(?<![\w/])(\d+)/(\d+)(?=\s*[a-zA-Z(])"): r"\\frac{\1}{\2}",  # 1/2x
    re.compile(r"^(?:\\text\{\s*)?([a-z ]+)\s*\}?$"): lambda text: _COUNTS.get(
        text[1].strip(), text[0]
    ),
}
"""How else a text may be read: a list in brackets, a time of day, a logarithm, a product, words for numbers."""


_SEVERAL = "hours? hrs? h minutes? mins? seconds? secs? days? weeks? months? years? feet ft inch(?:es)? pounds? lbs?"
_MEASURE = rf"(?:\\text\{{\s*(?:{_SEVERAL.replace(' ', '|')})\s*\}}|(?:{_SEVERAL.replace(' ', '|')})\b|\^\s*\\circ)"
_UNSURE = re.compile(
    rf"\d\s*{_MEASURE}\s*,?\s*(?:\\text\{{\s*and\s*\}}|and\b)?\s*\d+(?:\.\d+)?\s*(?:{_MEASURE}|'|\^\{{?\\prime)"
    r"|[一二三四五六七八九十百千零两]"  # numerals that are words
    r"|(?:\\text\{[A-Za-z ]+\}|(?<![A-Za-z\\])[BNU])\s*\([^()]*,"  # a function, or a distribution, by its name
    r"|\d[spdf]\s*\^.*\d[spdf]\s*\^"  # electrons
    r"|^(?:\\text\{\s*)?[NS]\b.*\d.*[EW]"  # points of the compass
    r"|^[a-zA-Z]+(?: [a-zA-Z])+$"  # a word, or a product
    r"|\\(?:zeta|eta|beta|phi|sigma|tau|mu|lambda|psi|omega|pi|Omega|Lambda)\s*\(\s*\d+\s*\)"  # a function of integers
    r"|^[a-zA-Z]\([a-z]\) *=.*(?<![a-zA-Z\\])[abck](?![abd-wyz(])"  # a function with a free constant
)
"""Where the reader guesses what is meant, beside quantities of several units: `2 hours 30 minutes`."""


_OPTIONS = re.compile("[A-J]{2,6}")
