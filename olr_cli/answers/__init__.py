"""Answers of responses: extraction (R6), the class of an answer, the verdict about a pair (R7, R8), vote (R9).

    response ──extract──► answer ──read──► Form ──► key: its class ──vote──► majority
                                                └─► matches(gold, answer): right or wrong

Start with `graded.py`, which leads responses through all of these steps.

Exact numbers, words, and lists of them are read in this process. Everything else goes to worker processes, which can be
killed.
"""

from olr_cli.answers.classes import (
    Key as Key,
    Vote as Vote,
    first_majority as first_majority,
    is_read as is_read,
    vote as vote,
)
from olr_cli.answers.extraction import (
    ARITHMETIC_SOURCES as ARITHMETIC_SOURCES,
    EXTRACTORS as EXTRACTORS,
    after_hashes as after_hashes,
    boxed as boxed,
    default_extractor as default_extractor,
    extract as extract,
    find_extractor as find_extractor,
    option_letter as option_letter,
    reading_more as reading_more,
    tagged as tagged,
)
from olr_cli.answers.golds import Gold as Gold, is_placeholder as is_placeholder
from olr_cli.answers.graded import (
    SENTINEL as SENTINEL,
    Grading as Grading,
    any_of as any_of,
    parse as parse,
    read_answer as read_answer,
    right_answers as right_answers,
    verdicts as verdicts,
    verify as verify,
)
from olr_cli.answers.judge import (
    Judge as Judge,
    Pair as Pair,
    is_match as is_match,
    shared_judge as shared_judge,
)
from olr_cli.answers.numbers import exact_number as exact_number
from olr_cli.answers.own_extractors import found_by as found_by
from olr_cli.answers.thinking import (
    ResponseTexts as ResponseTexts,
    is_thinking as is_thinking,
    opened_by as opened_by,
    with_opened as with_opened,
)
from olr_cli.answers.verdict import Verdict as Verdict, unscorable as unscorable
