r"""Whether an answer is right, given a gold: a verdict about the pair alone (R7, *matches*)."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olr_cli.answers import extract, is_match

RIGHT = {
    "the gold's unit or none": [
        ("24.4", r"24.4\text{ cm}"),
        ("24.4", r"24.4\,\text{s}^{-1}"),
        ("24.4", r"24.4\text{ cm}^{-1}"),
        ("24.4", r"24.4 \mathrm{~kJ} / \mathrm{mol}"),
        ("4.5e33", r"4.5\times 10^{33}\ \mathrm{erg\,s^{-1}}"),
        (r"864 \mbox{ inches}^2", "864"),
        (r"864 \mbox{ inches}^2", r"864\text{ square inches}"),
        (r"864 \mbox{ inches}^2", r"864\text{ in}^2"),
        (r"5.4 \text{ cents}", "5.4 cents"),
        (r"60\text{ mph}", r"60\text{ miles per hour}"),
        (r"\$32,\!348", r"32348\text{ dollars}"),
        (r"90^\circ", r"90\text{ degrees}"),
        ("12", r"12\text{ ways}"),
        (r"\sqrt{5}\text{ m}", r"\sqrt5"),
        (r"5\text{ cm}, 6\text{ cm}", "5, 6"),
    ],
    "percent signs": [
        ("10", r"10\%"),
        ("12.5", r"12.5\%"),
        (r"17.5\%", "17.5"),
        (r"17.5\%", "0.175"),
        (r"$8 \%$", "8"),
        ("1/4", r"25\%"),
        ("0.25", "25 percent"),
        ("1" + "0" * 700, "1" + "0" * 700 + r"\%"),
    ],
    "bases": [("52_8", "52_{8}"), ("52_8", "52"), ("25", "25_{10}")],
    "letters with their text": [
        (r"\text{(C)}", r"\text{(C) Plane}"),
        (r"\text{(C)}", "C. Plane"),
        ("C", "(C)"),
        ("142.0", r"\text{(D) }142"),
        ("142", r"\textbf{(D)}\ 142"),
    ],
    "elaborate ways to say a number": [
        ("7", "5+2=7"),
        ("7", "f(4)=7"),
        ("7", "f'(4)=7"),
        ("7", r"\binom71=7"),
        ("25", "m+n=25"),
        ("3", "=3"),
        ("3.14", r"\approx 3.14"),
        (r"\frac{22}{7}", r"\frac{22}{7} \approx 3.14"),
        ("7", r"\bf 7"),
        ("3", r"\bm{3}"),
        ("3", r"\color{red}{3}"),
        ("3", "3\\ "),
        ("-4", r"\text{-}4"),
        ("-125", r"\text{The constant term is } -125"),
        ("11111111100", r"11,\! 111,\! 111,\! 100"),
        ("3000000", r"3\text{ million}"),
        ("5:30 PM", r"5{:}30\text{ p.m.}"),
    ],
    "statements": [
        (r"[2,\infty)", r"k\ge 2"),
        ("(3,4]", r"3 < x \leq 4"),
        ("y = 2x + 3", "2x - y + 3 = 0"),
        ("x=8", r"\frac{x}{2}=4"),
        ("MR=SRMC", r"\text{MR}=\text{SRMC}"),
        ("MR=SRMC", r"\text{SRMC = MR}"),
        (r"\frac{d x}{d t}=k x-a", "x' = kx - a"),
        (r"\frac{d x}{d t}=k x-a", r"\dot{x}(t) = kx(t) - a"),
        (r"m \frac{d v}{d t}+b v=f", r"\frac{dv}{dt} = \frac{f - bv}{m}"),
        ("1,2", "x=1, y=2"),
        ("(1,2)", "x=1, y=2"),
        (r"f(x)=2x", r"f(x) = 2x \text{ for all } x > 0"),
        (r"x=\frac{\pi}{6}+\pi k", r"\frac{\pi}{6}+k\pi, k \in \mathbb{Z}"),
        (r"\text{ellipse}", r"\text{an ellipse}"),
        ("mg", r"m \cdot g"),
    ],
    "what math-verify or its parser misses": [
        ("np.arcsin(10/13)", r"\arcsin\left(\frac{10}{13}\right)"),
        ("2*np.sqrt(3)/5", r"\frac{2\sqrt3}{5}"),
        ("1/3", r"0.\overline{3}"),
        (r"-\sqrt[3]{2}", r"\sqrt[3]{-2}"),
        ("2i", r"\sqrt{-4}"),
        (r"\frac{e^{2 i t}}{2+2i}", r"\frac{(1-i)e^{2it}}{4}"),
        (r"\binom{2n}{n}", r"\frac{(2n)!}{n!n!}"),
        (r"\sqrt{4 \pi G r^2}", r"2r\sqrt{\pi G}"),
        (r"\left(\frac{M}{m}\right)^2", r"M^2/m^2"),
    ],
}
WRONG = {
    "units": [
        (r"5\text{ m}", r"5\text{ cm}"),
        ("5 km", "5 m"),
        (r"\$5", "5 cents"),
        ("6m", "6"),
        ("6", "6m"),
        ("2h", "2"),
        ("3t", "3"),
        ("15000", "15000x"),
        ("7.6 Z", "7.6"),
        ("5", r"5\text{ million}"),
        ("3", r"3\text{ or 4}"),
        ("3", r"3\mathrm{i}"),
        ("5", r"2+3\mathrm{i}"),
        ("2", r"2\mathrm{e}^3"),
        ("5", "5 AM"),
        ("5 AM", "5 PM"),
    ],
    "percent signs": [
        ("10", r"1000\%"),
        (r"\frac{17}{145}", r"\frac{17}{145}\%"),
        (r"5.4 \text{ cents}", r"5.4\%"),
        (r"90^\circ", r"90\%"),
        ("25", r"25.5\%"),
        ("1", "1" + "0" * 702 + r"\%"),
    ],
    "bases": [("52_8", "52_9"), ("52_8", "42"), ("52_8", "52_{10}"), ("40_9", "40_8"), ("25", "25_6")],
    "words": [("CABD", "ABCD"), ("CABD", "DCBA"), ("no", "on"), (r"\text{east}", "seat"), ("Evelyn", "Eve")],
    "equations": [
        ("4", r"\frac{x}{2}=4"),
        ("8", r"\frac{x}{2}=4"),
        ("5", "2x=5"),
        ("MR=SRMC", "MR"),
        ("MR=SRMC", r"MR \neq SRMC"),
        (r"\frac{dx}{dt}=kx-a", "kx=a"),
        (r"\frac{dM}{dt}=0.5M", "M=0"),
        ("x'=kx", "x=kx"),
        (r"\frac{dy}{dx}", r"\frac{dx}{dy}"),
        ("y=2x+3", "x=2y+3"),
        ("x=1, y=2", "x=2, y=1"),
        ("k \\ge 2", "k > 2"),
    ],
    "numbers that are near": [
        ("1/3", "0.333333"),
        (r"\sqrt{2}", "1.41421356"),
        (r"(\frac13, x)", "(0.333333, x)"),
        ("e^{-1000}", "e^{-1001}"),
        ("e", "e+10^{-20}"),
    ],
    "forms": [
        (r"\angle ABC", r"\angle BAC"),
        ("58,500", "(58,500)"),
        ("(1,2)", "1,2"),
        ("(1,2)", "(2,1)"),
        ("(3,4]", "[3,4)"),
        ("1,2", "1"),
        (r"|x-1|", "x-1"),
        (r"\lfloor n/2 \rfloor", r"\lfloor n/3 \rfloor"),
        (r"1 \pm \sqrt{19}", r"1+\sqrt{19}, 1+\sqrt{19}"),
    ],
}
UNPROVED = [("A", "A^T"), ("(3!)!", "3!!"), ("64", "2^3^2"), ("3", r"x \equiv 3 \pmod 7"), ("3", "x" * 2000)]


def pairs(table):
    return [pytest.param(*pair, id=f"{kind}: {pair}") for kind, each in table.items() for pair in each]


@pytest.mark.parametrize(("gold", "answer"), pairs(RIGHT))
def test_what_a_fair_grader_accepts_is_right(match, gold, answer):
    assert match(gold, answer) is True


@pytest.mark.parametrize(("gold", "answer"), pairs(WRONG))
def test_what_a_fair_grader_rejects_is_proved_wrong(match, gold, answer):
    assert match(gold, answer) is False


@pytest.mark.parametrize(("gold", "answer"), UNPROVED)
def test_what_cant_be_read_is_not_right_and_not_proved_wrong(match, gold, answer):
    assert match(gold, answer) is None


ALL = [pair for table in (RIGHT, WRONG) for each in table.values() for pair in each] + UNPROVED


@settings(max_examples=40)
@given(st.lists(st.sampled_from(ALL), min_size=1, max_size=8), st.randoms())
def test_a_verdict_depends_on_its_pair_alone(judge, asked, rng):
    alone = {pair: judge.matches([pair])[pair] for pair in asked}
    company = [(rng.choice(ALL)[0], rng.choice(ALL)[1]) for _ in range(4)]
    assert {pair: judge.matches([*company, *asked])[pair] for pair in asked} == alone


def test_every_answer_is_right_where_it_is_the_gold(judge):
    texts = {text for pair in ALL for text in pair}
    assert set(judge.matches((text, text) for text in texts).values()) == {True}


def test_is_match_is_for_one_pair():
    assert (
        is_match(r"\frac{1}{2}", "0.5") and is_match(r"\sqrt{8}", r"2\sqrt{2}") and not is_match("25", "25.5")
    )


JUDGED = [
    Path(__file__).parents[1] / "fixtures" / "judged_answers.jsonl",
    Path(__file__).parents[2].parent / "shared" / "grading" / "cases.jsonl",
]


@pytest.mark.slow
@pytest.mark.parametrize("file", JUDGED, ids=["own", "shared"])
def test_verdicts_agree_with_a_mathematicians(judge, file):
    if not file.exists():
        pytest.skip(f"no {file}")
    rows = [row for row in map(json.loads, file.read_text().splitlines()) if row["right"] is not None]
    answers = [row.get("answer") or extract(row["response"]) for row in rows]
    judged = [
        (row["gold"], answer, row["right"]) for row, answer in zip(rows, answers, strict=True) if answer
    ]
    random.Random(0).shuffle(judged)
    verdicts = judge.matches((gold, answer) for gold, answer, _ in judged)
    made = Counter(right for *_, right in judged)
    amiss = [case for case in judged if (verdicts[case[:2]] is True) != case[2]]
    missed, accepted = ([case for case in amiss if case[2] is right] for right in (True, False))
    assert len(missed) <= 0.04 * made[True] and len(accepted) <= 0.005 * made[False], amiss
