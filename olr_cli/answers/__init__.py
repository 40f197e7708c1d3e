"""Answers of responses: extraction (R6), the class of an answer, the verdict about a pair (R7, R8), vote (R9).

    response ──extract──► answer ──read──► Form ──► key: its class ──vote──► majority
                                                └─► matches(gold, answer): right or wrong

`graded.py` is the way through for whoever has responses.

Exact numbers, words, and what is made of them never leave this process; everything else is read and verified by worker
processes that can be killed.
"""

from olr_cli.answers.classes import Key as Key
from olr_cli.answers.classes import Vote as Vote
from olr_cli.answers.classes import first_majority as first_majority
from olr_cli.answers.classes import is_read as is_read
from olr_cli.answers.classes import vote as vote
from olr_cli.answers.extraction import ARITHMETIC_SOURCES as ARITHMETIC_SOURCES
from olr_cli.answers.extraction import EXTRACTORS as EXTRACTORS
from olr_cli.answers.extraction import default_extractor as default_extractor
from olr_cli.answers.extraction import extract as extract
from olr_cli.answers.extraction import find_extractor as find_extractor
from olr_cli.answers.extraction import found_by as found_by
from olr_cli.answers.extraction import reading_more as reading_more
from olr_cli.answers.graded import SENTINEL as SENTINEL
from olr_cli.answers.graded import Grading as Grading
from olr_cli.answers.graded import any_of as any_of
from olr_cli.answers.graded import parse as parse
from olr_cli.answers.graded import read_answer as read_answer
from olr_cli.answers.graded import right_answers as right_answers
from olr_cli.answers.graded import verdicts as verdicts
from olr_cli.answers.graded import verify as verify
from olr_cli.answers.judge import RULES as RULES
from olr_cli.answers.judge import Judge as Judge
from olr_cli.answers.judge import Pair as Pair
from olr_cli.answers.judge import is_match as is_match
from olr_cli.answers.judge import shared_judge as shared_judge
from olr_cli.answers.matching import as_asked as as_asked
from olr_cli.answers.placeholders import is_placeholder as is_placeholder
from olr_cli.answers.reading import exact_number as exact_number
from olr_cli.answers.thinking import ResponseTexts as ResponseTexts
from olr_cli.answers.thinking import is_thinking as is_thinking
from olr_cli.answers.thinking import opened_by as opened_by
from olr_cli.answers.thinking import with_opened as with_opened
from olr_cli.answers.verdict import Verdict as Verdict
from olr_cli.answers.verdict import unscorable as unscorable
