r"""Which responses are right: mathematics by value (R6 to R8), multiple choice by letter (R20)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from olr_cli.answers import THINK, THINK_END, Judge, extract, is_thinking, vote
from olr_cli.answers.extraction import option_letter
from olr_cli.errors import UserError

if TYPE_CHECKING:
    from olr_cli.evaluation.benchmark import Benchmark
    from olr_cli.evaluation.store import Generation

_MOST_OPTIONS = 10
"""Of a problem that doesn't say how many options it has."""


def grade(benchmark: Benchmark, samples: Sequence[Generation], judge: Judge) -> list[Generation]:
    """The same samples, which are all of some problems, with their answers and grades.

    Raises:
        UserError: a gold names none of its problem's options, or there is no such extractor.
    """
    samples = [replace(sample, unfinished_thought=_unfinished_thought(sample)) for sample in samples]
    answers = [
        None if sample.unfinished_thought else extract(sample.response, benchmark.extractor)
        for sample in samples
    ]
    pairs = list(zip(samples, answers, strict=True))
    if benchmark.grader == "choice":
        return [_by_letter(sample, answer) for sample, answer in pairs]
    keys = judge.keys(answer for answer in answers if answer is not None)
    judged = ((sample.gold, answer) for sample, answer in pairs if answer is not None)
    verdicts = judge.matches(judged, benchmark.tolerance)
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


def _unfinished_thought(sample: Generation) -> bool | None:
    """Whether a response ends inside its thinking, which its prompt may have opened; None if it has none."""
    opened = THINK if sample.prompt.rstrip().endswith(THINK) else ""
    text = opened + sample.response
    return is_thinking(text) if THINK in text or THINK_END in text else None


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
