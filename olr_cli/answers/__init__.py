"""Answers of responses: extraction (R6), the class of an answer, the verdict about a pair (R7, R8), vote (R9).

    response ──extract──► answer ──read──► Form ──► key: its class ──vote──► majority
                                                └─► matches(gold, answer): right or wrong

Exact numbers, words, and what is made of them never leave this process; everything else is read and verified by worker
processes that can be killed.
"""

from olr_cli.answers.classes import Key, Vote, first_majority, is_read, vote
from olr_cli.answers.extraction import (
    ARITHMETIC_SOURCES,
    EXTRACTORS,
    THINK,
    THINK_END,
    default_extractor,
    extract,
    find_extractor,
    found_by,
    is_thinking,
    reading_more,
)
from olr_cli.answers.judge import RULES, Judge, Pair, is_match, shared_judge
from olr_cli.answers.matching import as_asked
from olr_cli.answers.reading import exact_number
from olr_cli.answers.verdict import Verdict, parse, unscorable, verdicts, verify

__all__ = [
    "ARITHMETIC_SOURCES",
    "EXTRACTORS",
    "RULES",
    "THINK",
    "THINK_END",
    "Judge",
    "Key",
    "Pair",
    "Verdict",
    "Vote",
    "as_asked",
    "default_extractor",
    "exact_number",
    "extract",
    "find_extractor",
    "first_majority",
    "found_by",
    "is_match",
    "is_read",
    "is_thinking",
    "parse",
    "reading_more",
    "shared_judge",
    "unscorable",
    "verdicts",
    "verify",
    "vote",
]
