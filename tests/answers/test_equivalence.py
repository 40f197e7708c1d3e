r"""Which answers mean the same (R7)."""

import itertools
import random
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olr_cli.answers import Judge, equivalent
from olr_cli.answers.forms import from_json
from olr_cli.answers.notation import tidy
from olr_cli.answers.reading import read

CLASSES = [  # of equivalent answers, as they occur in mathematics data sets and in what models write
    ["25\\%", "1/4", "0.25", "25 percent"],
    ["25", "25.0", "x=25", "$25$", r"25\text{ cm}", r"25^\circ", r"\{25\}", "5^2"],
    ["(1,2)", r"\left(1, 2\right)", "(1.0, 2)", r"(\frac22, \sqrt4)"],
    ["(2,1)", r"\left( 2,1 \right)"],
    ["1,2", "2,1", r"\{1,2\}", "1 and 2", r"1 \text{ or } 2", "x=1, x=2"],
    ["[1,2]", r"\left[1,2\right]", r"x \in [1,2]"],
    ["[1,2)", r"\left[ 1, 2 \right)"],
    ["2", r"\sqrt{4}", r"\log_2 4", r"(1+\sqrt{3})(\sqrt{3}-1)", r"\sqrt{3+2\sqrt{2}} + 1 - \sqrt{2}"],
    [r"2\sqrt{2}", r"\sqrt{8}", r"\frac{4}{\sqrt{2}}", r"2^{3/2}", r"\sqrt2 \cdot 2", r"2√2"],
    [r"\frac{2\pi}{3}", r"\frac23\pi", r"\frac{4\pi}{6}", r"2\pi/3", "2π/3"],
    ["(x+1)^2", "x^2+2x+1", "1+2x+x^{2}", "x²+2x+1"],
    [r"\frac{n(n+1)}{2}", r"\frac{n^2+n}{2}", r"\frac12 n(n+1)"],
    [r"1 \pm \sqrt{19}", r"1+\sqrt{19}, 1-\sqrt{19}", r"\{1-\sqrt{19}, 1+\sqrt{19}\}"],
    [r"(-\infty,2)\cup(3,\infty)", r"(3, \infty) \cup \left(-\infty, 2\right)"],
    [r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{bmatrix} 1 \\ 2.0 \end{bmatrix}"],
    ["y=2x+3", "2x-y+3=0", "y - 2x = 3", "4x + 6 = 2y"],
    ["y=3x+2"],
    ["x>3", "3<x", "2x > 6"],
    [r"x \ge 3", r"3 \le x"],
    [r"\text{Evelyn}", "Evelyn", r"\textbf{evelyn}"],
    ["C", r"\text{C}", r"\text{(C)}", "(C)"],
    ["D", r"\textbf{(D)}"],
    ["6-5i", "6 - 5 i", r"-5i+6"],
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
    ["1/3", r"33\frac13\%"],
    ["2.828427"],
]

MISREAD = [  # by math-verify, which knows no case and no index of E, and sees units and arguments where there are none
    ["3ab", "3 a b", "b 3a"],
    [r"2\pi r h", r"2 h \pi r"],
    [r"2\pi r", r"2\pi r\text{ cm}"],
    [r"\frac{1}{2} g t", r"gt/2"],
    [r"\frac{1}{2}", r"\frac{1}{2} g", "0.5 kg", r"\frac12 square units"],
    [r"\ln{2}/2", r"\frac{\ln 2}{2}", r"\ln(\sqrt{2})"],
    [r"\sin{\left(x\right)} / 5", r"\frac{1}{5}\sin{x}", r"\sin(x)/5"],
    [r"\cos{2x}\sin{\frac{x}{2}}", r"\sin(x/2) \cos(2x)"],
    [r"\sin^{2}{x} / 2", r"\frac{\sin^2(x)}{2}"],
    [r"\frac{M}{m}", "M/m"],
    ["m^2", "mm", "MM"],
    ["Mm", "mM"],
    ["N=n", "N = n"],
    ["N=n+1", "N=1+n"],
    ["Anna", "anna", r"\text{Anna}"],
    ["Test", "test"],
    ["E_1", "E_{1}", r"\mathrm{E}_1"],
    [r"\frac{E_{0}^{2}}{2}", r"E_0^2/2"],
    [r"\sqrt{5}\text{ cm}, \sqrt{6}\text{ cm}", r"\sqrt{5}, \sqrt{6}"],
    [r"\sqrt{5}\text{ cm}", r"\sqrt{5}"],
    [r"\sqrt{5}\text{ cm} + \frac{1}{2}"],
    [r"3\text{ apples and }\sqrt{3}"],
    ["3"],
]
CLASSES += MISREAD


@pytest.mark.parametrize("answers", [c for c in CLASSES if len(c) > 1], ids=lambda answers: answers[0])
def test_answers_that_mean_the_same_are_one_class(judge, answers):
    (classes,) = judge.classify([answers])
    assert {classes.class_of(answer) for answer in answers} == {0}
    assert all(classes.is_parsed(answer) for answer in answers)


def test_answers_that_mean_different_things_are_different_classes(judge):
    pairs = list(itertools.combinations(CLASSES, 2))
    for (first, second), classes in zip(pairs, judge.classify([[a[0], b[0]] for a, b in pairs]), strict=True):
        assert not classes.same(first[0], second[0]), (first[0], second[0])
        assert classes.proved_different(first[0], second[0]), (first[0], second[0])


def test_a_percentage_is_never_its_numerator_whatever_else_is_there(judge):
    (classes,) = judge.classify([["25\\%", "25", "1/4", "0.25", "25%"]])
    assert not classes.same("25\\%", "25")
    assert classes.same("25\\%", "1/4") and classes.same("25%", "0.25")


def test_a_tuple_is_not_a_list_whatever_else_is_there(judge):
    (classes,) = judge.classify([["(1,2)", "1,2", "2,1", "(2,1)", r"\{1,2\}"]])
    assert classes.same("1,2", "2,1")
    assert len({classes.class_of(a) for a in ("(1,2)", "1,2", "(2,1)")}) == 3


def test_a_rounded_number_is_not_what_it_rounds(same):
    assert not same("0.333333", "1/3")
    assert not same("1.41421356", r"\sqrt{2}")
    assert not same("(0.333333, x)", r"(\frac13, x)")


def test_whatever_is_parsed_is_compared_both_ways(same):
    # verify(gold="x<3", "(-\infty,3)") holds, the other way round it doesn't.
    assert not same("x<3", r"(-\infty,3)")


def test_classes_are_joined_through_a_third_answer(judge):
    assert not judge.classify([["x=5", "y=5"]])[0].same("x=5", "y=5")
    assert judge.classify([["x=5", "y=5", "5"]])[0].same("x=5", "y=5")


@pytest.mark.parametrize("answers", [["x=x", "y=y"], ["1=2", "2=1", "x=x+1"], ["1<2", "x<x+1"]])
def test_relations_that_hold_always_or_never_say_nothing_but_their_text(judge, answers):
    (classes,) = judge.classify([answers])
    assert {classes.class_of(answer) for answer in answers} == set(range(len(answers)))
    assert not any(classes.is_parsed(answer) for answer in answers)


@pytest.mark.parametrize(
    "spellings",
    [
        [r"x \equiv 3 \pmod{7}", r"x\equiv 3\pmod{7}"],
        [r"\odot_{1} (2)", r"\odot_1( 2 )"],
        [r"\dfrac{a}{\odot}", r"\frac{a}{ \odot}", r"$\tfrac{a}{\odot}$"],
    ],
)
def test_what_cant_be_parsed_may_be_spaced_and_braced_otherwise(judge, spellings):
    (classes,) = judge.classify([spellings])
    assert {classes.class_of(spelling) for spelling in spellings} == {0}
    assert not classes.is_parsed(spellings[0])
    assert not judge.classify([[r"\max n\odot", r"\maxn\odot"]])[0].same(r"\max n\odot", r"\maxn\odot")


def test_a_verification_that_fails_proves_nothing(judge, monkeypatch):
    equivalence = pytest.importorskip("olr_cli.answers.equivalence")

    def fail(*_, raise_on_error=False, **__):
        if raise_on_error:
            raise TypeError
        return False

    x, y = "no", r"\text{no}"
    assert equivalence.same(x, y) is True
    monkeypatch.setattr(equivalence, "verify", fail)
    assert equivalence.same(x, y) is None
    monkeypatch.setattr(equivalence, "verify", lambda a, b, **_: a == b)
    assert equivalence.same(x, y) is False


@pytest.mark.parametrize(
    "answer", [r"\frac{1}{0}", r"\foo{]}", "??", r"m_{\max }=n^{2}-n-1", "", r"x \equiv 3 \pmod{7}"]
)
def test_what_cant_be_parsed_is_a_class_by_its_text(judge, answer):
    (classes,) = judge.classify([[answer, f"$ {answer}$", "3", answer + "!"]])
    assert classes.same(answer, f"$ {answer}$")
    assert not classes.same(answer, "3") and not classes.same(answer, answer + "!")
    assert not classes.is_parsed(answer) and classes.is_parsed("3")
    assert not classes.proved_different(answer, "3")


def test_unparseable_answers_are_told_apart_by_case(judge):
    (classes,) = judge.classify([["?a", "?A", r"?\text{A}"]])
    assert not classes.same("?a", "?A") and classes.same("?A", r"?\text{A}")


def test_classes_are_numbered_by_their_first_member(judge):
    (classes,) = judge.classify([["3", "1", "2", "1.0"]])
    assert [classes.class_of(a) for a in ("1", "1.0", "2", "3")] == [0, 0, 1, 2]
    with pytest.raises(KeyError):
        classes.class_of("4")


def test_collections_are_classified_apart(judge):
    first, second = judge.classify([["x=5", "5"], ["x=5", "y=5"]])
    assert first.same("x=5", "5") and not second.same("x=5", "y=5")
    assert judge.classify([]) == [] and judge.classify([[]])[0].is_parsed("5") is False


def test_equivalent_is_for_two_answers():
    assert equivalent(r"\frac{1}{2}", "0.5")
    assert equivalent(r"\sqrt{8}", r"2\sqrt{2}")
    assert not equivalent("25\\%", "25")


SPELLINGS = [answer for answers in CLASSES for answer in answers] + [
    "??",
    "",
    "y=5",
    "5",
    "1/0",
    "no",
    "on",
    "a=1, b=2",
]
collections = st.lists(st.sampled_from(SPELLINGS), min_size=1, max_size=8)


def partition(classes, answers):
    return {frozenset(b for b in answers if classes.same(a, b)) for a in answers}


@settings(max_examples=60)
@given(collections, st.randoms(use_true_random=False))
def test_classes_partition_and_order_never_matters(judge, answers, rng):
    shuffled = rng.sample(answers, len(answers)) + answers[:2]
    (classes,), (again,) = judge.classify([answers]), judge.classify([shuffled])
    assert sum(len(c) for c in partition(classes, set(answers))) == len(set(answers))
    assert partition(classes, set(answers)) == partition(again, set(answers))
    assert [classes.class_of(a) for a in answers] == [again.class_of(a) for a in answers]


@settings(max_examples=30)
@given(collections, st.sampled_from(SPELLINGS))
def test_another_answer_only_joins_classes(judge, answers, more):
    (classes,), (larger,) = judge.classify([answers]), judge.classify([[*answers, more]])
    for a, b in itertools.combinations(answers, 2):
        assert larger.same(a, b) or not classes.same(a, b)


@pytest.mark.usefixtures("quick_start")
def test_what_was_classified_before_never_matters(judge):
    rng = random.Random(0)
    batches = [rng.sample(SPELLINGS, 6) for _ in range(12)]
    expected = [partition(c, b) for c, b in zip(judge.classify(batches), batches, strict=True)]
    with Judge(workers=2) as fresh:
        for batch, classes in reversed(list(zip(batches, expected, strict=True))):
            assert partition(fresh.classify([batch])[0], batch) == classes


@pytest.mark.usefixtures("quick_start")
def test_threads_may_share_a_judge(judge):
    answers = SPELLINGS[::3]
    expected = partition(judge.classify([answers])[0], answers)
    results = []
    with Judge(workers=2) as shared:
        threads = [
            threading.Thread(target=lambda: results.append(partition(shared.classify([answers])[0], answers)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [expected] * 4


@pytest.mark.parametrize("answers", CLASSES, ids=lambda answers: answers[0])
def test_math_verify_reads_what_is_read_without_it_alike(answers):
    pytest.importorskip("math_verify")
    from olr_cli.answers import equivalence
    from olr_cli.answers.forms import to_json

    misread = {r"33\frac13\%"}
    for answer in map(tidy, answers):
        form, theirs = read(answer), equivalence.read(answer)
        if form is not None and answer not in misread:
            assert theirs == form
        assert theirs is None or from_json(to_json(theirs)) == theirs


def test_the_faster_parser_reads_as_math_verify_does():
    import sympy
    from latex2sympy2_extended import latex2sympy
    from latex2sympy2_extended.math_normalization import normalize_latex
    from math_verify import LatexExtractionConfig
    from math_verify.grader import should_treat_as_complex

    from olr_cli.answers import latex

    for answer in map(tidy, set(SPELLINGS) - {answer for answers in MISREAD for answer in answers}):
        normal = normalize_latex(answer, LatexExtractionConfig().normalization_config)
        try:
            slow = latex2sympy(normal, is_real=not should_treat_as_complex(normal), normalization_config=None)
        except Exception:
            continue
        assert sympy.srepr(latex.parse(answer)) == sympy.srepr(slow), answer


BENCHMARKS = Path(__file__).parents[2].parent / "shared" / "data" / "math_benchmarks.parquet"


@pytest.mark.slow
@pytest.mark.skipif(not BENCHMARKS.exists(), reason="the benchmarks are not here")
def test_every_benchmark_answer_is_itself(judge):
    import polars as pl

    rows = pl.read_parquet(BENCHMARKS)["reward_model"].struct.field("ground_truth")
    golds = rows.unique(maintain_order=True).to_list()
    before = judge.timeouts
    for gold, classes in zip(golds, judge.classify([[g, f" ${g.strip('$')}$ "] for g in golds]), strict=True):
        assert classes.same(gold, f" ${gold.strip('$')}$ "), gold
    assert judge.timeouts == before
    unread = [
        g for g, c in zip(golds, judge.classify([[g] for g in golds]), strict=True) if not c.is_parsed(g)
    ]
    assert len(unread) < 0.02 * len(golds), unread
