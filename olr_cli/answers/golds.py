r"""Golds, and what stands in place of one where there is none: one table for files and rewards (R16).

Only what a program, a spreadsheet or an annotator writes for a missing answer is in it. Words that are answers too are
not: `none`, `unknown`, `undefined`, `DNE`, `no solution`, `\infty`, and `Na`, which is sodium.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Gold(NamedTuple):
    """A label or a truth as its question asks for it: all that a verdict sees of the question (R7)."""

    text: str
    in_percent: bool = False
    """The question asks for a percentage, so the gold accepts a percent sign that it lacks."""


_LONGEST = 60
_PLACEHOLDER = re.compile(
    r"(?:|NA|NaT|<NA>|<null>|__NoCorrectAnswer__|Err:\d{3}"
    r"|\#+|\#N/?A|\#(?:REF|NAME|VALUE|NULL|NUM)|\#[A-ZÀ-Ý0/]+[!?]"  # of spreadsheets: `#REF!`, `#DIV/0!`, `#WERT!`
    r"|[\s$({\[]*(?:\\text\w*\{)?(?:None|(?i:n/a|n\.a\.?|nan|null|tbd|todo|proof"
    r"|(?:answer )?not[ _-]?found|not (?:available|applicable)"
    r"|no (?:final )?answer(?: (?:found|given|provided|available))?"
    r"|see (?:the )?(?:solution|above|below|text|figure)"
    r"|\?+|-+|\.{2,}|…|[–—]+))[\s.:$)}\]]*)"
)


def is_placeholder(label: str) -> bool:
    """Whether a label says that there is no answer, ``N/A``, ``notfound`` or ``#REF!``: no response matches it."""
    label = label.strip()
    return len(label) <= _LONGEST and _PLACEHOLDER.fullmatch(label) is not None
