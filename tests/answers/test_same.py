r"""Which answers are one class: a key of the text alone (R7, *same*)."""

import hashlib
import json
import threading
from pathlib import Path

import pytest

from olr_cli.answers import Judge, is_read
from olr_cli.answers.classes import short
from olr_cli.answers.notation import tidy

GRADING = Path(__file__).parents[1] / "fixtures" / "grading"
CLASSES = [
    json.loads(line) for line in (GRADING / "same.jsonl").read_text("utf-8").splitlines()
]
"""Answers as they occur in mathematics data sets and in what models write: a class a row."""


@pytest.mark.parametrize(
    "answers", [c for c in CLASSES if len(c) > 1], ids=lambda answers: answers[0]
)
def test_answers_that_mean_the_same_are_one_class(judge, answers):
    keys = judge.keys(answers)
    assert len(set(keys.values())) == 1, keys


def test_answers_that_mean_different_things_are_different_classes(judge):
    keys = judge.keys(answers[0] for answers in CLASSES)
    firsts = {}
    for answer, key in keys.items():
        assert key not in firsts, (answer, firsts[key])
        firsts[key] = answer


@pytest.mark.parametrize(
    "answer", ["x=x", "1=2", "1<2", r"2x \equiv 3 \pmod{7}", r"\foo{]}", "??", ""]
)
def test_what_says_nothing_or_cant_be_read_is_a_class_by_its_text(judge, same, answer):
    assert (
        same(answer, f"$ {answer}$")
        and not same(answer, "3")
        and not same(answer, answer + "!")
    )
    assert answer in ("x=x", "1=2") or not is_read(judge.keys([answer])[answer])


SPELLINGS = [answer for answers in CLASSES for answer in answers] + [
    "??",
    "",
    "5",
    "1/0",
    "a=1, b=2",
]


def test_keys_are_the_same_in_another_process_and_order(judge):
    with Judge(time_limit=30.0, workers=2) as fresh:
        assert fresh.keys(reversed(SPELLINGS[::3])) == judge.keys(SPELLINGS[::3])


def test_the_key_of_a_long_text_is_a_digest_that_stored_histories_may_hold():
    assert short("x" * 120) == "x" * 120
    assert short("x" * 121) == "#" + hashlib.blake2b(b"x" * 121, digest_size=20).hexdigest()
    assert len(short("x" * 121)) == 41


def test_threads_may_share_a_judge(judge):
    answers = SPELLINGS[::3]
    expected, results = judge.keys(answers), []
    with Judge(time_limit=30.0, workers=2) as shared:
        threads = [
            threading.Thread(target=lambda: results.append(shared.keys(answers)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [expected] * 4


def test_the_faster_parser_reads_as_math_verify_does():
    import sympy
    from latex2sympy2_extended import latex2sympy

    from olr_cli.answers import latex

    compared = 0
    for answer in map(tidy, SPELLINGS[::2]):
        normal = latex.normalize_latex(answer, latex._NORMALIZATION)
        try:
            slow = latex2sympy(normal, is_real=True, normalization_config=None)
            fast = latex.parse(answer)
        except Exception:
            continue
        letters = set(latex._LETTER.findall(answer))
        has_one_case = len({letter.lower() for letter in letters}) == len(letters)
        if has_one_case and "{" not in answer and "gamma" not in answer:
            assert sympy.srepr(fast) == sympy.srepr(slow), answer
            compared += 1
    assert compared > 50
