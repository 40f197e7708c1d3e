r"""Which responses are right: mathematics by value (R6 to R8), multiple choice by letter (R20)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from string import ascii_uppercase
from typing import TYPE_CHECKING

from olr_cli.answers import Judge, extract, vote
from olr_cli.errors import UserError

if TYPE_CHECKING:
    from olr_cli.evaluation.benchmark import Benchmark
    from olr_cli.evaluation.generations import Generation

_MOST_OPTIONS = 10
"""Of a problem that doesn't say how many options it has."""


VERIFICATION_SECONDS = 20.0
"""Of processor time, for an answer or a pair (training takes 2)."""


def grade(benchmark: Benchmark, samples: Sequence[Generation], judge: Judge) -> list[Generation]:
    """The same samples, which are all of some problems, with their answers and grades.

    Raises:
        UserError: a gold names none of its problem's options, or there is no such extractor.
    """
    answers = [extract(sample.response, benchmark.extractor) for sample in samples]
    pairs = list(zip(samples, answers, strict=True))
    if benchmark.grader == "choice":
        return [_by_letter(sample, answer) for sample, answer in pairs]
    keys = judge.keys(answer for answer in answers if answer is not None)
    verdicts = judge.matches((sample.gold, answer) for sample, answer in pairs if answer is not None)
    answers_of: dict[str, list[str | None]] = {}
    for sample, answer in pairs:
        answers_of.setdefault(sample.problem_id, []).append(answer)
    spellings = {problem_id: vote(answers, keys).spelling for problem_id, answers in answers_of.items()}
    return [
        _graded(sample, None, None, False)
        if answer is None
        else _graded(
            sample, answer, spellings[sample.problem_id][keys[answer]], verdicts[sample.gold, answer] is True
        )
        for sample, answer in pairs
    ]


def _by_letter(sample: Generation, answer: str | None) -> Generation:
    options = sample.choices or _MOST_OPTIONS
    numbered = sample.gold.strip().isdecimal()
    right = option_letter(sample.gold, options, numbered=numbered)
    if right is None:
        raise UserError(
            f"{sample.benchmark}: the gold '{sample.gold}' of problem {sample.problem_id} names none of its {options}"
            " options; mend it in the data"
        )
    letter = answer and option_letter(answer, options, numbered=numbered)
    return _graded(sample, answer, letter, letter == right)


def _graded(sample: Generation, answer: str | None, answer_class: str | None, is_correct: bool) -> Generation:
    return replace(sample, answer=answer, answer_class=answer_class, is_correct=is_correct)


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
