r"""Spellings brought to one notation before anything is parsed: plain and Unicode signs, wrappers, percent words."""

from __future__ import annotations

import re
import unicodedata

from olr_cli.answers.extraction import boxed

_SIGNS = {
    "−": "-",
    "×": r"\times ",
    "·": r"\cdot ",
    "÷": r"\div ",
    "≤": r"\le ",
    "≥": r"\ge ",
    "≠": r"\ne ",
    "∞": r"\infty ",
    "∈": r"\in ",
    "∪": r"\cup ",
    "∩": r"\cap ",
    "∅": r"\emptyset ",
    "√": r"\sqrt ",
    "π": r"\pi ",
    "°": r"^\circ ",
    "²": "^2",
    "³": "^3",
    "~": " ",
    "$": None,
}
# Control characters and invisible marks carry no meaning; those that are white space stay.
_INVISIBLE = [chr(c) for c in (*range(32), *range(127, 160), 0x200B, 0x2060, 0xFEFF) if not chr(c).isspace()]
_TRANSLATION = str.maketrans({**_SIGNS, **dict.fromkeys(_INVISIBLE)})

_STYLE = r"text(?:rm|bf|it|normal)?|mbox|math(?:rm|bf|it)"
_REWRITES = [
    (re.compile(r"^\*\*(.*)\*\*$"), r"\1"),
    (re.compile(r"\\(?:left|right|[bB]igg?[lrm]?)(?![a-zA-Z])|\\!|\\displaystyle(?![a-zA-Z])"), ""),
    (re.compile(r"\\langle(?![a-zA-Z])"), "("),
    (re.compile(r"\\rangle(?![a-zA-Z])"), ")"),
    (re.compile(r"\\varnothing(?![a-zA-Z])"), r"\\emptyset "),
    # math-verify strips the unit of `25\text{ percent}`, but 25 % is 1/4 (R7).
    (re.compile(rf"\\(?:{_STYLE})\s*\{{\s*(?:percent(?:age)?|pct|\\?%)\s*\}}"), r"\\%"),
    (re.compile(r"(?<=[\d}\s])(?:percent(?:age)?|pct)\s*$"), r"\\%"),
    (re.compile(rf"(\\(?:{_STYLE})\s*\{{[^{{}}]*\}})\s*\^\s*\{{\s*(\d)\s*\}}\s*$"), r"\1^\2"),
    (re.compile(r"\*\*"), "^"),
]
_STYLED = re.compile(rf"\\(?:{_STYLE}|operatorname)\s*\{{([^{{}}]*)\}}")
_SPACING = re.compile(r"\\[,;:! ]|\\q?quad(?![a-zA-Z])")
_FRACTION = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
_BRACED = re.compile(r"(?<=[_^])\{ ?(\w) ?\}")
_GAP = re.compile(r"(?<!\w) | (?!\w)")
_LONGEST_NORMALIZED = 2000
"""Putting a run of combining marks into Unicode's order takes quadratic time."""


def tidy(answer: str) -> str:
    r"""`answer` in plain LaTeX without the wrappers that carry no meaning.

    Drops ``$``, ``\(...\)``, ``\left``, control characters and the full stop at the end; spells Unicode signs,
    ``percent`` and ``**`` as LaTeX does; takes the content of a box.
    """
    if "\\boxed" in answer:
        answer = boxed(answer) or answer
    text = " ".join(answer.replace("\\$", "").translate(_TRANSLATION).split())
    if "\\" in text or "*" in text or "p" in text:
        for pattern, replacement in _REWRITES:
            text = pattern.sub(replacement, text)
    for opening, closing in (("\\(", "\\)"), ("\\[", "\\]")):
        if text.startswith(opening) and text.endswith(closing):
            text = text[2:-2]
    text = text.strip()
    if text.endswith(".") and not text.endswith(".."):
        text = text[:-1].rstrip()
    return text


def normal_text(answer: str) -> str:
    r"""What two answers that can't be parsed must share to be the same (R8).

    The tidied answer without ``\text{}`` and its kin, the braces of ``x_{1}`` and white space but a single space
    between words; in Unicode NFC unless it is very long. Case stays.
    """
    text = _FRACTION.sub(r"\\frac", _SPACING.sub(" ", _STYLED.sub(r"\1", tidy(answer))))
    text = _GAP.sub("", _BRACED.sub(r"\1", " ".join(text.split())))
    return text if len(text) > _LONGEST_NORMALIZED else unicodedata.normalize("NFC", text)
