"""Which option of a multiple-choice question an answer names (R20)."""

from __future__ import annotations

import re
import unicodedata
from string import ascii_uppercase

_LONGEST_READ = 1000
_STYLED = re.compile(
    r"\\(?:text[a-z]*|math(?:rm|bf|it|sf|tt|normal)|[mhf]box|boxed|boldsymbol|bm|operatorname|underline|emph)"
    r"\s*\{([^{}]*)\}"
)
_NOTHING = re.compile(r"\$|\*\*|\\[()\[\]]|\\(?:left|right|bf|rm|it|displaystyle)(?![a-zA-Z])|\\(?=[{}%&#])")
_SPACE = re.compile(r"(?:\s|~|\\[,;:! ]|\\q?quad(?![a-zA-Z]))+")
_PREFIX = re.compile(
    r"(?:(?:(?:the|correct|right|best|final|answer|option|choice|letter|is)\b|[:=]) ?)*", re.IGNORECASE
)
# B, (B), B), B) text, B. text, B: text, B - text, B (text). A word right after the letter makes it text: `A planet`.
_CHOICE = re.compile(
    r"[(\[{]? ?(?P<label>[A-Za-z]|\d{1,2}) ?"
    r"(?:[)\]}] ?[.:]?|[.:](?= |$)|(?<= )[-\N{EN DASH}\N{EM DASH}](?= )|(?<= )(?=\()|$) ?(?P<text>.*)"
)
# Another option, as in `(A) and B`, `A) this, B) that`; but not the C of `A) carbon (C)` or the B of `A) B`.
_ANOTHER = re.compile(
    r"(?:^|[,;&/] ?|\b(?:and|or) )\(?([A-Z]|\d{1,2})\)|^(?:(?:and|or) |[,;&/] ?)([A-Z]|\d{1,2})\b"
)


def option_letter(answer: str, options: int, *, numbered: bool = False) -> str | None:
    r"""The letter of the one option that an answer names; None if it names none, or several (R20).

    ``B``, ``(b)``, ``\text{(B)}``, ``B) Planets``, ``B. Planets`` and ``Option B`` name the second. The text of an
    option alone names none; nor does a letter that a word follows: ``A planet``, ``B cells``.

    Args:
        answer: the content of a box.
        options: how many there are, at most 26.
        numbered: the options are numbered in print, so that ``2`` names the second as ``B`` does.
    """
    match = _CHOICE.fullmatch(_plain(answer))
    if match is None:
        return None
    letter = _letter(match["label"], options, numbered)
    others = {_letter(a or b, options, numbered) for a, b in _ANOTHER.findall(match["text"])}
    return letter if others <= {letter, None} else None


def _plain(answer: str) -> str:
    """What an answer says, without LaTeX's styles and spaces, its full stop, and words such as "Answer:"."""
    text, styles = unicodedata.normalize("NFKC", answer[:_LONGEST_READ]), 1
    while styles:
        text, styles = _STYLED.subn(r"\1", text)
    text = _SPACE.sub(" ", _NOTHING.sub("", text)).strip().removesuffix(".").rstrip()
    return text[_PREFIX.match(text).end() :]  # type: ignore[union-attr]  # it matches the empty string


def _letter(label: str, options: int, numbered: bool) -> str | None:
    """The letter of the option with a label, which is a letter itself or a number from 1."""
    letters = ascii_uppercase[:options]
    if label.isdecimal():
        return letters[int(label) - 1] if numbered and 1 <= int(label) <= options else None
    return label.upper() if label.upper() in letters else None
