r"""Which answers are one class: a key of the text alone (R7, *same*)."""

import json
import threading
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olr_cli.answers import Judge, is_read
from olr_cli.answers.notation import tidy
from olr_cli.answers.reading import exact_number

GRADING = Path(__file__).parents[1] / "fixtures" / "grading"
CLASSES = [json.loads(line) for line in (GRADING / "same.jsonl").read_text("utf-8").splitlines()]
"""Answers as they occur in mathematics data sets and in what models write: a class a row."""


@pytest.mark.parametrize("answers", [c for c in CLASSES if len(c) > 1], ids=lambda answers: answers[0])
def test_answers_that_mean_the_same_are_one_class(judge, answers):
    keys = judge.keys(answers)
    assert len(set(keys.values())) == 1, keys


def test_answers_that_mean_different_things_are_different_classes(judge):
    keys = judge.keys(answers[0] for answers in CLASSES)
    firsts = {}
    for answer, key in keys.items():
        assert key not in firsts, (answer, firsts[key])
        firsts[key] = answer


@pytest.mark.parametrize("answer", ["x=x", "1=2", "1<2", r"x \equiv 3 \pmod{7}", r"\foo{]}", "??", ""])
def test_what_says_nothing_or_cant_be_read_is_a_class_by_its_text(judge, same, answer):
    assert same(answer, f"$ {answer}$") and not same(answer, "3") and not same(answer, answer + "!")
    assert answer in ("x=x", "1=2") or not is_read(judge.keys([answer])[answer])


SPELLINGS = [answer for answers in CLASSES for answer in answers] + ["??", "", "5", "1/0", "a=1, b=2"]
NOTATIONS = (str, lambda f: f"\\frac{{{f.numerator}}}{{{f.denominator}}}", lambda f: f"x = {f}")
rationals = st.tuples(st.fractions(max_denominator=1000), st.sampled_from(NOTATIONS)).map(
    lambda c: (c[0], c[1](c[0]))
)


@settings(max_examples=80)
@given(
    st.lists(rationals, min_size=2, max_size=6),
    st.lists(st.sampled_from(SPELLINGS), max_size=6),
    st.randoms(),
)
def test_two_exact_numbers_never_share_a_class_whatever_else_is_said(judge, numbers, others, rng):
    collection = [text for _, text in numbers] + others
    rng.shuffle(collection)
    keys = judge.keys(collection)
    for value, text in numbers:
        for other, spelling in numbers:
            assert (keys[text] == keys[spelling]) == (value == other)
    for text in others:
        number = exact_number(tidy(text))
        for value, spelling in numbers:
            assert number is None or (keys[text] == keys[spelling]) == (number == value)


@settings(max_examples=60)
@given(st.lists(st.sampled_from(SPELLINGS), min_size=1, max_size=8), st.randoms())
def test_a_key_depends_on_its_text_alone(judge, answers, rng):
    alone = {answer: judge.keys([answer])[answer] for answer in answers}
    shuffled = rng.sample(answers, len(answers)) + rng.sample(SPELLINGS, 3)
    keys = judge.keys(shuffled)
    assert {answer: keys[answer] for answer in answers} == alone


@pytest.mark.usefixtures("quick_start")
def test_keys_are_the_same_in_another_process_and_order(judge):
    with Judge(time_limit=30.0, workers=2) as fresh:
        assert fresh.keys(reversed(SPELLINGS)) == judge.keys(SPELLINGS)


@pytest.mark.usefixtures("quick_start")
def test_threads_may_share_a_judge(judge):
    answers = SPELLINGS[::3]
    expected, results = judge.keys(answers), []
    with Judge(time_limit=30.0, workers=2) as shared:
        threads = [threading.Thread(target=lambda: results.append(shared.keys(answers))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [expected] * 4


@given(st.fractions(max_denominator=10**6), st.sampled_from([1, 10, 100]))
def test_numbers_are_compared_exactly(judge, value, digits):
    near = value + Fraction(1, 10**digits)
    keys = judge.keys([str(value), str(near)])
    assert keys[str(value)] != keys[str(near)]


def test_the_faster_parser_reads_as_math_verify_does():
    import sympy
    from latex2sympy2_extended import latex2sympy

    from olr_cli.answers import latex

    compared = 0
    for answer in map(tidy, SPELLINGS):
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


BENCHMARKS = Path(__file__).parents[2].parent / "shared" / "data" / "math_benchmarks.parquet"


@pytest.mark.slow
@pytest.mark.skipif(not BENCHMARKS.exists(), reason="the benchmarks are not here")
def test_every_gold_of_the_benchmarks_can_be_read_and_is_itself(judge):
    import polars as pl

    rows = pl.read_parquet(BENCHMARKS)["reward_model"].struct.field("ground_truth")
    golds = rows.unique(maintain_order=True).to_list()
    before = judge.timeouts
    restyled = {gold: f" ${gold.strip('$')}$ " for gold in golds}
    keys = judge.keys([*golds, *restyled.values()])
    verdicts = judge.matches(restyled.items())
    assert [g for g in golds if keys[g] != keys[restyled[g]] or not verdicts[g, restyled[g]]] == []
    assert judge.timeouts == before
    unread = [gold for gold in golds if not is_read(keys[gold])]
    assert len(unread) < 0.01 * len(golds), unread
