r"""How often the grader is right: golds against themselves and against answers made wrong on purpose.

Each test prints its counts; `kind 3/40` under "wrong" says that 3 of 40 wrong answers were taken for right.
"""

import re
import sys
from collections import Counter

import pytest
from perturbations import REPORTED, RIGHT, WRONG, perturbed
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


@pytest.fixture
def show(capsys):
    """Print something that shows though the test passes, also in a worker of xdist."""

    def show(text):
        with capsys.disabled():
            print(f"\n{text}", file=sys.stderr)

    return show


def boxed(answer):
    return f"Therefore the answer is \\boxed{{{answer}}}."


def math(judge, golds):
    """How many answers of each kind there are and were graded right, and the pairs that were graded amiss."""
    benchmark, cases = find_benchmark("math500"), list(perturbed(golds))
    samples = [
        sample(boxed(case.answer), golds[case.index], problem_id=str(i)) for i, case in enumerate(cases)
    ]
    graded = grade(benchmark, samples, judge)
    made = Counter(case.kind for case in cases)
    right = Counter(case.kind for case, grading in zip(cases, graded, strict=True) if grading.is_correct)
    amiss = {kind: set() for kind in ("itself", "restyled", "wrong")}
    for case, grading in zip(cases, graded, strict=True):
        if case.kind not in REPORTED and grading.is_correct != (case.kind in RIGHT):
            amiss[case.kind if case.kind in RIGHT else "wrong"].add((golds[case.index], case.answer))
    return made, right, amiss


def counts_table(rows):
    """Graded right / made, a line a kind and a column a benchmark."""
    lines = [f"{'graded right / made':22}" + "".join(f"{name:>12}" for name in rows)]
    for title, kinds in (("right", RIGHT), ("wrong", WRONG), ("neither", REPORTED)):
        for kind in kinds:
            cells = (f"{right[kind]}/{made[kind]}" if made[kind] else "" for made, right in rows.values())
            lines.append(f"{title:8}{kind:14}" + "".join(f"{cell:>12}" for cell in cells))
    return "\n".join(lines)


def test_golds_of_every_kind_are_right_and_changed_ones_wrong(judge, show):
    made, right, amiss = math(judge, GOLDS)
    show(counts_table({"made up": (made, right)}))
    assert amiss == {"itself": set(), "restyled": set(), "wrong": set()}
    assert all(made[kind] for kind in (*RIGHT, *WRONG, *REPORTED))


def test_training_golds_are_right_and_changed_ones_wrong(judge):
    golds = [prompt.gold for prompt in read_prompts(str(SAMPLE)).prompts]
    made, _, amiss = math(judge, golds)
    assert made["itself"] == 24
    assert amiss == {"itself": set(), "restyled": set(), "wrong": set()}


def test_wrong_answers_stay_wrong_in_each_others_company(judge):
    cases = list(perturbed(GOLDS))
    samples = [sample(boxed(case.answer), GOLDS[case.index], problem_id=str(case.index)) for case in cases]
    for case, grading in zip(cases, grade(find_benchmark("math500"), samples, judge), strict=True):
        assert case.kind in REPORTED or grading.is_correct == (case.kind in RIGHT), case


@needs_shared
@pytest.mark.slow
def test_every_gold_of_the_six_benchmarks_is_right_and_changed_ones_wrong(judge, show):
    rows = {}
    for name in PAPER[:6]:
        problems = load_problems(find_benchmark(name), data=SHARED / "math_benchmarks.parquet")
        made, right, amiss = math(judge, [problem.gold for problem in problems])
        rows[name] = made, right
        assert amiss == {"itself": set(), "restyled": set(), "wrong": set()}
    show(counts_table(rows))
    assert sum(made["itself"] for made, _ in rows.values()) == 1590


SPELLINGS = re.split(
    r"\s{3,}|\n",
    r"""{0}   ({0})   {0})   {0}.   [{0}]   ${0}$   **{0}**   \text{{{0}}}   \textbf{{({0})}}   \mathrm{{{0}}}
\boxed{{{0}}}   {0}) {1}   ({0}) {1}   {0}. {1}   {0}: {1}   \text{{{0}) {1}}}   \textbf{{({0}) }} \text{{{1}}}
Option {0}   Answer: ({0}) {1}""",
)
"""An option's label {0} and text {1}, as models box them."""


def labels_and_texts(problem):
    return re.findall(r"^([A-J]|\d+)\) (.*)$", problem.messages[-1].content, re.MULTILINE)[-problem.choices :]


def choice(problems):
    """How many spellings of each option were graded right, of those that name the gold and of the others."""
    benchmark = find_benchmark("arc_c")
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
    made, right = Counter(), Counter()
    for (problem, label, _), grading in zip(answers, grade(benchmark, samples, Judge()), strict=True):
        made[label == problem.gold] += 1
        right[label == problem.gold] += grading.is_correct
    return made, right


def choice_line(name, problems):
    made, right = choice(problems)
    return (
        f"{name:18}{len(problems):>10}{right[True]:>16,}/{made[True]:,}{right[False]:>16,}/{made[False]:,}",
        (right[True], right[False]) == (made[True], 0),
    )


@needs_shared
def test_every_spelling_of_a_letter_is_graded_as_that_letter_on_arc(show):
    problems = load_problems(find_benchmark("arc_c"), data=SHARED / "arc_c.parquet")
    kinds = {
        "ARC-c": problems,
        "gold is a number": [problem for problem in problems if problem.gold.isdecimal()],
        "3 options": [problem for problem in problems if problem.choices == 3],
        "5 options": [problem for problem in problems if problem.choices == 5],
    }
    lines = {name: choice_line(name, chosen) for name, chosen in kinds.items()}
    head = f"{'':18}{'problems':>10}{'right letter':>20}{'wrong letter':>20}"
    show("\n".join([head, *(line for line, _ in lines.values())]))
    assert [len(chosen) for chosen in kinds.values()] == [1172, 22, 4, 3]
    assert all(is_right for _, is_right in lines.values())
