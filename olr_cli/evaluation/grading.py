r"""Which responses are right: mathematics by value (R6 to R8), multiple choice by letter (R20)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import TYPE_CHECKING

from olr_cli.answers import Judge, Key, Pair, extract, vote
from olr_cli.errors import UserError

if TYPE_CHECKING:
    from olr_cli.evaluation.benchmark import Benchmark
    from olr_cli.evaluation.problems import Problem

_MOST_OPTIONS = 10
"""Of a problem that doesn't say how many options it has."""


VERIFICATION_SECONDS = 20.0
"""Of processor time, for an answer or a pair (training takes 2)."""


@dataclass(frozen=True, slots=True)
class Graded:
    """What one response came to.

    Attributes:
        answer: as extracted (R6); None if there is none.
        answer_class: what the answer says, the same for all responses to the problem that say it: the most frequent
            spelling among them (R7), or the option's letter. None without an answer, or where it names no option.
        is_correct: the answer matches the gold (R7); False without an answer.
    """

    answer: str | None
    answer_class: str | None
    is_correct: bool


def grade(
    benchmark: Benchmark, problems: Sequence[Problem], responses_PG: Sequence[Sequence[str]], judge: Judge
) -> list[list[Graded]]:
    """Grade the G responses to each of P problems.

    Args:
        benchmark: says how answers are extracted and compared.
        problems: the P problems.
        responses_PG: the responses to each; G may differ between problems.
        judge: compares mathematical answers; multiple choice doesn't need it.

    Returns:
        A list a problem, of a `Graded` a response.

    Raises:
        UserError: a gold names none of its problem's options, or there is no such extractor.
    """
    answers_PG = [[extract(response, benchmark.extractor) for response in group] for group in responses_PG]
    if benchmark.grader == "choice":
        pairs = zip(problems, answers_PG, strict=True)
        return [_by_letter(benchmark, problem, answers) for problem, answers in pairs]
    golds = [problem.gold for problem in problems]
    given_PG = [[answer for answer in answers if answer is not None] for answers in answers_PG]
    keys = judge.keys(answer for given in given_PG for answer in given)
    verdicts = judge.matches(
        (gold, answer) for gold, given in zip(golds, given_PG, strict=True) for answer in given
    )
    return [_by_value(gold, answers, keys, verdicts) for gold, answers in zip(golds, answers_PG, strict=True)]


def _by_value(
    gold: str,
    answers: Sequence[str | None],
    keys: Mapping[str, Key],
    verdicts: Mapping[Pair, bool | None],
) -> list[Graded]:
    """Grade the answers to one problem: each by itself, whatever the others are."""
    spelling = vote(answers, keys).spelling
    return [
        Graded(None, None, False)
        if answer is None
        else Graded(answer, spelling[keys[answer]], verdicts[gold, answer] is True)
        for answer in answers
    ]


def _by_letter(benchmark: Benchmark, problem: Problem, answers: Sequence[str | None]) -> list[Graded]:
    options = problem.choices or _MOST_OPTIONS
    numbered = problem.gold.strip().isdecimal()
    right = option_letter(problem.gold, options, numbered=numbered)
    if right is None:
        raise UserError(
            f"{benchmark.name}: the gold '{problem.gold}' of problem {problem.problem_id} names none of its {options}"
            " options; mend it in the data"
        )
    letters = [answer and option_letter(answer, options, numbered=numbered) for answer in answers]
    return [Graded(answer, letter, letter == right) for answer, letter in zip(answers, letters, strict=True)]


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
