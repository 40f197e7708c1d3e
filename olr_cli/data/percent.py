"""Recognise questions that ask for a percentage: their right answers match with and without a percent sign (R7)."""

from __future__ import annotations

import functools
import re

_SIGN = r"(?:per ?cent(?:age)?s?\b|prozent|pourcentage|porcenta(?:je|gem)|\\?%)"
_SIGNS = ("%", "percent", "per cent", "prozent", "pourcentage", "porcenta", "百分")
_NUMERAL = r"(?:one|two|three|five|ten|half|hundred|(?:twen|thir|for|fif|six|seven|eigh|nine)t(?:y|een))\b"
_ASKED = re.compile(
    r"\b(?:what|which|how (?:many|much)|find|determine|calculate|compute|estimate|wie ?viele?|quel|qué|cuál)\b"
    rf"(?:[\s,$('’]+(?!{_NUMERAL})[^\W\d]+){{0,5}}?[\s,$(]+{_SIGN}",
    re.IGNORECASE,
)
_FORMAT = re.compile(
    rf"\b(?:as|in|en) (?:an? )?(?:whole |integer )?[$(]?{_SIGN}|\bnearest(?: [\w.]+)?(?: of an?)?[ $]+{_SIGN}"
    rf"|{_SIGN} (?:sign|symbol)|(?:__|\\_|\?|\( *\)|\\square|\\underline\{{[^{{}}]*\}})[ $]*\\?%"
    r"|百分之[几多]|百分[比率]|(?:多少|几) ?\\?%",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.?!]\s|[。？]")


@functools.lru_cache(maxsize=1 << 12)
def asks_for_percent(question: str) -> bool:
    """Return whether the last request of a question is for a percentage."""
    lower = question.lower()
    # Most questions have none of these words, and this search takes a hundredth of the time of the patterns.
    if not any(sign in lower for sign in _SIGNS):
        return False
    if _FORMAT.search(question):
        return True
    # Only the last match can be the last request, and no other question may follow its sentence.
    ends = [match.end() for match in _ASKED.finditer(question)]
    return bool(ends) and "?" not in "".join(
        _SENTENCE_END.split(question[ends[-1] :], maxsplit=1)[1:]
    )
