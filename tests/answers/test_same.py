r"""Which answers are one class: a key of the text alone (R7, *same*)."""

import random
import threading
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olr_cli.answers import Judge, is_read
from olr_cli.answers.notation import tidy
from olr_cli.answers.reading import exact_number

CLASSES = [  # as they occur in mathematics data sets and in what models write
    ["25\\%", "1/4", "0.25", "25 percent", r"25\text{ pct}"],
    [
        "25",
        "25.0",
        "x=25",
        "y=25",
        "f(3)=25",
        "$25$",
        r"25^\circ",
        r"\$25",
        r"25\text{ apples}",
        r"\{25\}",
        "5^2",
    ],
    [r"25\text{ cm}", "25 cm", r"25\,\mathrm{cm}", r"25\text{ centimeters}"],
    [r"25\text{ m}", r"25~\mathrm{m}"],
    ["25 km", r"25\text{ km}"],
    [r"25\text{ cents}", "25¢", "25 cents"],
    ["11 AM", r"11\text{ AM}", "11:00 a.m."],
    ["5:00 PM", r"5\text{ p.m.}", r"5{:}00\text{ PM}"],
    [r"5\text{ AM}"],
    ["(1,2)", r"\left(1, 2\right)", "(1.0, 2)", r"(\frac22, \sqrt4)", r"(x, y) = (1, 2)"],
    ["(2,1)", r"\left( 2,1 \right)"],
    ["1,2", "2,1", r"\{1,2\}", "1 and 2", r"1 \text{ or } 2", "x=1, x=2", r"x=1 \text{ or } x=2"],
    ["x=1, y=2", "y=2, x=1"],
    ["x=2, y=1"],
    ["[1,2]", r"\left[1,2\right]", r"x \in [1,2]"],
    ["[1,2)", r"\left[ 1, 2 \right)"],
    ["2", r"\sqrt{4}", r"\log_2 4", r"(1+\sqrt{3})(\sqrt{3}-1)", r"\sqrt{3+2\sqrt{2}} + 1 - \sqrt{2}"],
    [r"2\sqrt{2}", r"\sqrt{8}", r"\frac{4}{\sqrt{2}}", r"2^{3/2}", r"\sqrt2 \cdot 2", r"2√2"],
    [r"\frac{2\pi}{3}", r"\frac23\pi", r"\frac{4\pi}{6}", r"2\pi/3", "2π/3"],
    ["(x+1)^2", "x^2+2x+1", "1+2x+x^{2}", "x²+2x+1"],
    [r"\frac{n(n+1)}{2}", r"\frac{n^2+n}{2}", r"\frac12 n(n+1)", r"\sum_{k=1}^n k"],
    [
        r"1 \pm \sqrt{19}",
        r"1+\sqrt{19}, 1-\sqrt{19}",
        r"\{1-\sqrt{19}, 1+\sqrt{19}\}",
        r"x = 1 \pm \sqrt{19}",
    ],
    [r"(-\infty,2)\cup(3,\infty)", r"(3, \infty) \cup \left(-\infty, 2\right)"],
    [r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{bmatrix} 1 \\ 2.0 \end{bmatrix}"],
    ["2x-y+3=0", "y - 2x = 3", "4x + 6 = 2y"],
    ["y=2x+3", "2x+3", "f(x) = 3+2x"],
    ["y=3x+2"],
    ["x>3", "3<x", "2x > 6"],
    [r"x \ge 3", r"3 \le x", r"x \geqslant 3"],
    [r"\text{Evelyn}", "Evelyn", r"\textbf{evelyn}", r"\text{Evelyn.}"],
    ["C", r"\text{C}", r"\text{(C)}", "(C)", r"\text{(C) Plane}", "C. Plane"],
    ["D", r"\textbf{(D)}"],
    ["6-5i", "6 - 5 i", r"-5i+6", r"6-5\mathrm{i}"],
    ["2i", r"\sqrt{-4}", r"2\mathrm{i}"],
    [r"\cos 2x", r"2\cos^2 x - 1", r"1-2\sin^2 x"],
    [r"\frac{100!}{2^{50}}", r"100! \cdot 2^{-50}"],
    ["2^{1009}", r"2 \cdot 2^{1008}"],
    ["10^{100}", r"10^{50} \cdot 10^{50}"],
    [r"\emptyset", r"\varnothing", r"\{\}"],
    [r"\infty", r"+\infty"],
    [r"-\infty"],
    [r"10^{-30}\pi"],
    [r"2 \cdot 10^{-30}\pi"],
    ["0.333333", "0.3333330"],
    ["1/3", r"33\frac13\%", r"0.\overline{3}"],
    ["2.828427"],
    [r"-\sqrt[3]{2}", r"\sqrt[3]{-2}"],
    ["52_8", "52_{8}", "(52)_8", r"52_{\text{eight}}", r"52 \text{ (base 8)}", r"52\text{ base }8"],
    ["52_9"],
    ["52", "52_{10}"],
    ["3000000", r"3\text{ million}", "3 million"],
    ["e"],
    ["e+10^{-20}"],
    ["e^{-1000}"],
    ["e^{-1001}"],
    [r"\frac{dy}{dx}"],
    [r"\frac{dx}{dy}"],
    [r"\frac{dx}{dt}=kx-a", r"kx - a = \frac{dx}{dt}", r"\dot{x} = kx-a"],
    ["kx=a"],
    ["x'=kx"],
    ["x=kx"],
    [r"\angle ABC", r"\angle CBA"],
    [r"\angle BAC"],
    ["A^T"],
    ["A"],
    ["(3!)!", "720"],
    ["3!!"],
    ["2^3^2"],
    ["64"],
    ["ABCD", "abcd", "A B C D"],
    ["CABD"],
    ["no"],
    ["on"],
    ["MR=SRMC", "SRMC = MR", r"\text{MR}=\text{SRMC}"],
    ["SRMC"],
    ["6m", "6 m", r"6 \cdot m"],
    ["6"],
    [r"\lfloor n/2 \rfloor", r"\left\lfloor \frac{n}{2} \right\rfloor"],
    [r"\lfloor n/3 \rfloor"],
    ["|x-1|", "|1-x|"],
    ["x-1"],
    ["3ab", "3 a b", "b 3a"],
    [r"2\pi r h", r"2 h \pi r"],
    [r"2\pi r", r"r \cdot 2\pi"],
    [r"2\pi r\text{ cm}"],
    [r"\frac{1}{2} g t", r"gt/2"],
    [r"\frac{1}{2}", "0.5"],
    [r"\ln{2}/2", r"\frac{\ln 2}{2}", r"\ln(\sqrt{2})"],
    [r"\sin{\left(x\right)} / 5", r"\frac{1}{5}\sin{x}", r"\sin(x)/5"],
    [r"\cos{2x}\sin{\frac{x}{2}}", r"\sin(x/2) \cos(2x)"],
    [r"\frac{M}{m}", "M/m"],
    ["m^2", r"m \cdot m"],
    ["E_1", "E_{1}", r"\mathrm{E}_1"],
    [r"\frac{E_{0}^{2}}{2}", r"E_0^2/2"],
    [r"\sqrt{5}\text{ cm}, \sqrt{6}\text{ cm}", r"\sqrt{6}\text{ cm}, \sqrt{5} \text{ cm}"],
    [r"\sqrt{5}\text{ cm}"],
    [r"\sqrt{5}"],
    [r"3\text{ apples and }\sqrt{3}"],
    ["3"],
    [r"(\gamma^2-1)m_pc^2", r"m_p c^2 (\gamma^2 - 1)"],
]


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


@pytest.mark.parametrize(
    "spellings",
    [
        [r"x \equiv 3 \pmod{7}", r"x\equiv 3\pmod{7}"],
        [r"\odot_{1} (2)", r"\odot_1( 2 )"],
        [r"\dfrac{a}{\odot}", r"\frac{a}{ \odot}", r"$\tfrac{a}{\odot}$"],
    ],
)
def test_what_cant_be_read_may_be_spaced_and_braced_otherwise(judge, spellings):
    assert len(set(judge.keys(spellings).values())) == 1


SPELLINGS = [answer for answers in CLASSES for answer in answers] + ["??", "", "5", "1/0", "a=1, b=2"]
rationals = st.fractions(max_denominator=1000).map(
    lambda f: (
        f,
        random.Random(str(f)).choice([f"{f}", f"\\frac{{{f.numerator}}}{{{f.denominator}}}", f"x = {f}"]),
    )
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
        letters = {letter.lower() for letter in latex._LETTER.findall(answer)}
        if (
            len(letters) == len(set(latex._LETTER.findall(answer)))
            and "{" not in answer
            and "gamma" not in answer
        ):
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
    assert [
        gold for gold in golds if keys[gold] != keys[restyled[gold]] or not verdicts[gold, restyled[gold]]
    ] == []
    assert judge.timeouts == before
    unread = [gold for gold in golds if not is_read(keys[gold])]
    assert len(unread) < 0.01 * len(golds), unread
