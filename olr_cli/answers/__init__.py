"""What responses claim: extraction (R6), equivalence classes (R7, R8), vote (R9).

    response ──extract──► answer ──tidy──► Form ──compare / math-verify──► AnswerClasses ──vote──► majority

Exact numbers and what is made of them never leave this process; everything else is read and verified by worker
processes that can be killed.
"""

from olr_cli.answers.extraction import EXTRACTORS, default_extractor, extract
from olr_cli.answers.judge import AnswerClasses, Judge, equivalent
from olr_cli.answers.votes import Vote, first_majority, vote

__all__ = [
    "EXTRACTORS",
    "AnswerClasses",
    "Judge",
    "Vote",
    "default_extractor",
    "equivalent",
    "extract",
    "first_majority",
    "vote",
]
