r"""The grader on golds themselves, and on answers made wrong on purpose."""

import re
from collections import Counter

import pytest
from perturbations import RIGHT, WRONG, perturbed
from samples import SAMPLE, SHARED, needs_shared
from sums import sample

from olr_cli.answers import Judge
from olr_cli.data.prompt_files import read_prompts
from olr_cli.evaluation.benchmark import PAPER, find_benchmark
from olr_cli.evaluation.grading import grade
from olr_cli.evaluation.problems import load_problems

GOLDS = re.split(
    r"\s{3,}|\n",
    r"""7   -3   025   0   +2   1,024   13,\!500   142.0   0.15   .0052   3.2e5   4e-3   2.50   \frac{3}{4}
-\frac{7}{12}   \frac23   2\frac{1}{3}   $1/3$   62.5%   $8 \%$   45^\circ   12\mbox{ cm}^2   \$4.75
9.5 \text{ cents}   31_5   2\sqrt{5}   $\sqrt[3]{7}$   3+2i   6\pi   x^2-3x+1   $\frac{n(n+1)}{2}$
e^{-t/2}\sin(3t)   x=5   y = 2x + 3   $f(x)=1-x$   k \geqslant 2   (3,-2)   \left(1,\frac{\pi}{2}\right)
(2,5,1)   (2,\infty)   [0,4)   (-\infty,0]\cup(3,5)   1,-2   $2,3,5$   $-1$,$4$   (1,2),(3,4)   1 \pm \sqrt{3}
\{0,\pm 2\}   \text{(C)}   \text{even}   $K=k$   G\frac{Mm}{r^{2}}   E_{0}-\dfrac{E_{1}}{2}
\hbar \omega(v+1 / 2)   np.arccos(3/5)   \begin{pmatrix} 1 \\ -2 \end{pmatrix}   $2^{50}$   $\binom{9}{4}$
$10!$   \ln 2+1""",
)
"""Golds of every kind that the six benchmarks have, made up."""


@pytest.fixture(scope="module")
def judge():
    with Judge(time_limit=60) as judge:  # accuracy, not speed, also on a busy machine
        yield judge


def boxed(answer):
    return f"Therefore the answer is \\boxed{{{answer}}}."


def math(judge, golds):
    """How many answers of each kind there are, and the golds and answers that were graded amiss."""
    benchmark, cases = find_benchmark("math500"), list(perturbed(golds))
    samples = [
        sample(boxed(case.answer), golds[case.index], problem_id=str(i))
        for i, case in enumerate(cases)
    ]
    graded = zip(cases, grade(benchmark, samples, judge), strict=True)
    amiss = {
        (case.kind, golds[case.index], case.answer)
        for case, grading in graded
        if grading.is_correct != (case.kind in RIGHT)
    }
    return Counter(case.kind for case in cases), amiss


def test_golds_of_every_kind_are_right_and_changed_ones_wrong(judge):
    made, amiss = math(judge, GOLDS)
    assert not amiss
    assert all(made[kind] for kind in (*RIGHT, *WRONG))


def test_training_golds_are_right_and_changed_ones_wrong(judge):
    golds = [prompt.gold for prompt in read_prompts(str(SAMPLE)).prompts]
    made, amiss = math(judge, golds)
    assert made["itself"] == 24 and not amiss


@needs_shared
@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER[:6])
def test_every_gold_of_the_six_benchmarks_is_right_and_changed_ones_wrong(judge, name):
    problems = load_problems(find_benchmark(name), data=SHARED / "math_benchmarks.parquet")
    made, amiss = math(judge, [problem.gold for problem in problems])
    assert made["itself"] == find_benchmark(name).problems and not amiss


SPELLINGS = re.split(
    r"\s{3,}|\n",
    r"""{0}   ({0})   {0})   {0}.   [{0}]   ${0}$   **{0}**   \text{{{0}}}   \textbf{{({0})}}   \mathrm{{{0}}}
\boxed{{{0}}}   {0}) {1}   ({0}) {1}   {0}. {1}   {0}: {1}   \text{{{0}) {1}}}   \textbf{{({0}) }} \text{{{1}}}
Option {0}   Answer: ({0}) {1}""",
)
"""An option's label {0} and text {1}, as models box them."""


def labels_and_texts(problem):
    return re.findall(r"^([A-J]|\d+)\) (.*)$", problem.messages[-1].content, re.MULTILINE)[
        -problem.choices :
    ]


@needs_shared
def test_every_spelling_of_a_letter_is_graded_as_that_letter_on_arc():
    """Also where golds are numbers, and where there are three or five options."""
    problems = load_problems(find_benchmark("arc_c"), data=SHARED / "arc_c.parquet")
    answers = [
        (problem, label, spelling.format(label, text.replace("{", "").replace("}", "")))
        for problem in problems
        for label, text in labels_and_texts(problem)
        for spelling in SPELLINGS
    ]
    samples = [
        sample(boxed(answer), problem.gold, problem.choices, problem.prompt_id)
        for problem, _, answer in answers
    ]
    graded = grade(find_benchmark("arc_c"), samples, Judge())
    for (problem, label, answer), grading in zip(answers, graded, strict=True):
        assert grading.is_correct == (label == problem.gold), answer


def test_wrong_answers_stay_wrong_in_each_others_company(judge):
    cases = list(perturbed(GOLDS))
    samples = [
        sample(boxed(case.answer), GOLDS[case.index], problem_id=str(case.index))
        for case in cases
    ]
    for case, grading in zip(
        cases, grade(find_benchmark("math500"), samples, judge), strict=True
    ):
        assert grading.is_correct == (case.kind in RIGHT), case
