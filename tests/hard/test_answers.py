r"""Answers as hostile as a policy may write them (R6 to R9), and as many as a day of training makes.

`make fuzz` looks for texts that break the laws tried here.
"""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import pytest
import sympy
from answer_laws import LAWS, _read_here, corpus, evaluated_by_python
from cases import tenth_or_whole
from fuzz_answers import TOKENS
from hypothesis import HealthCheck, given, settings, strategies as st
from sentences import cases

from olr_cli.answers import Judge, algebra, extract, is_read, vote
from olr_cli.answers.classes import number
from olr_cli.answers.extraction import option_letter
from olr_cli.answers.graded import SENTINEL
from olr_cli.answers.matching import decide, matches
from olr_cli.answers.notation import normal_text, tidy
from olr_cli.answers.reading import NeedsAlgebra, read
from olr_cli.data.prompts import Prompt
from olr_cli.recipe.methods import OlrMethod
from olr_cli.supervision import Rollout, RolloutGroup, Step, Supervisor, compose


@pytest.fixture
def quick_start():
    """Limits are met here, so workers warm up as a user's do."""


texts = st.lists(
    st.sampled_from(TOKENS) | st.integers(0, 999).map(str) | st.characters()
    | st.sampled_from("abcxyzMN+-*/^_=<>()[]{}|,;:.!'\\ \t\n\x00\ud800"),
    max_size=14,
).map("".join)  # fmt: skip


@tenth_or_whole
@pytest.mark.parametrize("law", LAWS)
def test_no_text_of_the_corpus_breaks_a_law(law, nth):
    for text in corpus(law)[::nth]:
        LAWS[law](text)


@pytest.mark.parametrize("law", LAWS)
def test_random_texts_break_no_law(law, is_long, sampled):
    examples = sampled({"parsing": 60, "classes": 40}.get(law, 200)) * (
        100 if is_long else 1
    )

    @settings(max_examples=examples, database=None, suppress_health_check=list(HealthCheck))
    @given(texts)
    def holds(text):
        LAWS[law](text)

    holds()


def composed(rng, depth):
    """A text that is made of texts: tuples, sets, fractions, repetitions."""
    if depth == 0:
        return rng.choice(
            [
                *TOKENS,
                r"\pm 1",
                r"\text{ or }",
                "x",
                ":",
                "<",
                r"\mid ",
                "million",
                "kg",
                "is",
                "²",
            ]
        )
    inner = [composed(rng, depth - 1) for _ in range(rng.randint(1, 5))]
    return rng.choice([
        f"({', '.join(inner)})", rf"\{{{', '.join(inner)}\}}", inner[0] * rng.choice([2, 5, 50]), "".join(inner),
        rf"\frac{{{inner[0]}}}{{{inner[-1]}}}", rf"\text{{{inner[0]}}}",
    ])  # fmt: skip


def test_no_composed_text_is_much_work_for_the_calling_process(is_long, sampled):
    rng, last = random.Random(0), "x"
    for _ in range(200_000 if is_long else sampled(300)):
        text = composed(rng, rng.randrange(6))[: rng.choice([300, 1000, 10_000])]
        for task in (("key", text), ("matches", last, text), ("matches", text, last)):
            began = time.process_time()
            with suppress(NeedsAlgebra):
                decide(*task)
            assert time.process_time() - began < 1, task
        last = text


@pytest.mark.parametrize("before", ["", "\\boxed{", "\\boxed{5}"])
@pytest.mark.parametrize("after", ["", "}", "x"])
def test_text_takes_time_in_proportion_to_its_length(before, after, is_long, sampled):
    length = 1_000_000 if is_long else 10_000
    units = cases("repeated")
    for unit in random.Random(before + after).sample(units, sampled(len(units))):
        text = before + unit * (length // len(unit)) + after
        began = time.process_time()
        answer = extract(text) or text
        normal_text(tidy(answer)), _read_here(answer), option_letter(answer, 5)
        assert time.process_time() - began < 1 + 5 * length / 1_000_000, unit


def test_no_part_of_an_answer_is_ever_evaluated_by_python(here, is_long):
    names, payloads = 0, cases("payloads")
    with evaluated_by_python() as sources:
        for number, template in enumerate(cases("names")):
            for payload in payloads if is_long else payloads[number % len(payloads) :][:1]:
                answer = template.format(payload)
                names += is_read(read(answer, algebra.leaf).key)
                matches("x^5+x+1=2", answer, algebra.leaf, algebra.proof)
                matches(answer, "x", algebra.leaf, algebra.proof)
    assert names > (30 if is_long else 6), "some are names to the parser"
    assert not [source for source in sources if "pwned" in source]
    assert list(here.iterdir()) == []


@st.composite
def spelled_numbers(draw):
    """A rational, and two of its spellings."""
    p, q = (
        draw(st.integers(-(10**6), 10**6)),
        draw(st.sampled_from([1, 2, 4, 5, 8, 10, 100, 3, 7, 12])),
    )
    value, sign = Fraction(p, q), "-" if p < 0 else ""
    fraction = f"{sign}\\frac{{{abs(p)}}}{{{q}}}"
    spellings = [
        f"{p}/{q}",
        fraction,
        f"\\dfrac{{{p}}}{{{q}}}",
        f"{sign} {abs(p)}/{q}",
        f"${p}/{q}$",
    ]
    if 10**6 % value.denominator == 0:
        decimal = f"{abs(p) * 10**6 // q}".rjust(7, "0")
        spellings += [
            f"{sign}{decimal[:-6]}.{decimal[-6:]}",
            f"{sign}{decimal[:-4]}.{decimal[-4:]}\\%",
        ]
        spellings += [f"{sign}{decimal}e-6", rf"{sign}{decimal} \times 10^{{-6}}"]
    if value.denominator == 1:
        whole = int(value)
        spellings += [
            f"{whole:,}",
            f"{whole:,}".replace(",", "{,}"),
            f"{whole}.",
            f"\\text{{{whole}}}",
        ]
    elif abs(value) > 1:
        whole, rest = divmod(abs(value), 1)
        spellings.append(f"{sign}{whole}\\frac{{{rest.numerator}}}{{{rest.denominator}}}")
    return value, draw(st.sampled_from(spellings)), draw(st.sampled_from(spellings))


@settings(max_examples=500)
@given(spelled_numbers())
def test_spellings_of_a_number_agree_with_exact_arithmetic(case):
    value, one, other = case
    assert read(one).key == read(other).key == number(value).key


def spellings_of(kind, a, b, rng):
    """Ways to write the answer of a kind that two numbers make; no two answers of all these mean the same."""
    c, d = rng.sample(range(2, 9), 2)
    return {
        "integer": [f"{a}", f"{a}.0", f"{a * c}/{c}", f"{a}\\text{{ ways}}", f"${a}$", f"x={a}", f"+{a}"],
        "fraction": [f"\\frac{{{a}}}{{997}}", f"{a}/997", f"\\dfrac{{{a * c}}}{{{997 * c}}}", f"{d * a}/{d * 997}"],
        "root": [f"{a}\\sqrt5", f"\\sqrt5\\cdot {a}", f"\\sqrt{{{5 * a * a}}}", f"\\frac{{{5 * a}}}{{\\sqrt{{5}}}}"],
        "pair": [f"({a},{b})", f"\\left( {a}, {b} \\right)", f"({a}.0, {b * c}/{c})", f"\\langle {a},{b}\\rangle"],
        "list": [f"{a}, -{b}", f"-{b}, {a}", f"\\{{{a}, -{b}\\}}", f"{a} \\text{{ and }} -{b}", f"x={a}, x=-{b}"],
        "polynomial": [f"x^2+{a}x+{b}", f"{b}+x({a}+x)", f"x^{{2}} + {a} x + {b}", f"{b} + {a} \\cdot x + x^2"],
        "interval": [f"[-{a},{b}]", f"\\left[-{a}, {b}\\right]", f"x \\in [-{a}, {b}.0]", f"[ -{a} , {b * d}/{d} ]"],
        "line": [f"-y={-a}x-{b}", f"{a}x-y+{b}=0", f"y - {a}x = {b}", f"{c * a}x + {c * b} = {c}y"],
    }[kind]  # fmt: skip


KINDS = ("integer", "fraction", "root", "pair", "list", "polynomial", "interval", "line")


@pytest.fixture(scope="module")
def judge():
    with Judge(time_limit=30.0, workers=1) as judge:
        yield judge


def test_respelling_and_shuffling_change_no_vote(judge, is_long, sampled):
    rng = random.Random(0)
    for _ in range(2000 if is_long else sampled(12)):
        values = [
            (rng.choice(KINDS), a, rng.randrange(2, 900))
            for a in rng.sample(range(2, 900), 3)
        ]
        said = rng.choices(values, k=8)
        groups = [
            [rng.choice(spellings_of(*value, rng)) for value in said] for _ in range(3)
        ]
        groups.append(rng.sample(groups[0], 8))
        tallies = [vote(group, judge.keys(group)) for group in groups]
        expected = sorted(Counter(said).values())
        for group, tally in zip(groups, tallies, strict=True):
            assert sorted(tally.counts.values()) == expected, group
        assert (
            len(
                {
                    (tally.majority_count, tally.answered, tally.rollouts)
                    for tally in tallies
                }
            )
            == 1
        )
        assert tallies[0] == tallies[3]


def _random_expression(rng, depth):
    x, y, n = sympy.symbols("x y n")
    if depth == 0:
        number = sympy.Rational(rng.randint(1, 12), rng.choice([1, 1, 2, 3, 7]))
        root = sympy.sqrt(rng.randint(2, 7))
        functions = [sympy.sin(x), sympy.cos(x), sympy.log(x), sympy.exp(x)]
        return rng.choice([number, x, y, n, root, sympy.pi, *functions])
    a, b = _random_expression(rng, depth - 1), _random_expression(rng, rng.randrange(depth))
    ways = [a + b, a - b, a * b, a**2, sympy.sqrt(a), 1 / a if a else b, a / b if b else a]
    return rng.choices(ways, weights=[4, 2, 4, 1, 1, 1, 1])[0]


def test_an_expression_is_what_algebra_makes_of_it_and_not_its_neighbour(
    judge, is_long, sampled
):
    rng = random.Random(3)
    groups = []
    while len(groups) < (3000 if is_long else sampled(16)):
        expression = _random_expression(rng, 2)
        made = rng.choice([sympy.expand, sympy.together, sympy.factor, sympy.cancel])(
            expression
        )
        neighbour = rng.choice(
            [expression + 1, expression * 2, -expression, expression + sympy.Rational(1, 7)]
        )
        style = rng.choice([{}, {"fold_short_frac": True}, {"mul_symbol": "dot"}])
        spellings = [
            sympy.latex(each, ln_notation=True, **style)
            for each in (expression, made, neighbour)
        ]
        if neighbour != expression and max(map(len, spellings)) < 200:
            groups.append(spellings)
    for spellings in groups:
        keys = judge.keys(spellings)
        expression, made, neighbour = (keys[spelling] for spelling in spellings)
        assert expression == made != neighbour, spellings


def test_workers_killed_at_any_moment_change_no_class(judge, is_long):
    rng = random.Random(1)
    groups = [
        [rng.choice(spellings_of(kind, *rng.choices(range(2, 30), k=2), rng)) for kind in rng.choices(KINDS, k=8)]
        for _ in range(3000 if is_long else 12)
    ]  # fmt: skip
    answers = sorted({answer for group in groups for answer in group})
    expected = judge.keys(answers)
    kills = 0
    with Judge(time_limit=30.0, workers=2) as harried:

        def kill(_):
            """Kill a worker: as soon as the first has replied, however quick it was, and now and then after that."""
            nonlocal kills
            if kills == 0 or rng.random() < 0.1:
                kills += 1
                with suppress(ProcessLookupError):  # the killed one may not be missed yet
                    os.kill(rng.choice(harried._pool.process_ids), signal.SIGKILL)

        harried._pool.report = kill
        found = harried.keys(answers)
        given_up = harried.timeouts
    print(json.dumps({"kills": kills, "given_up": given_up}), file=sys.stderr)
    assert kills
    different = [answer for answer in answers if found[answer] != expected[answer]]
    assert len(different) <= given_up, (
        "only an answer whose worker was killed twice may be told from its like"
    )


def test_a_day_of_verifications_takes_bounded_memory(is_long):
    """Prompts that are visited again and again, and get the answers they got before, and now and then another."""
    prompts, visits, a_step = (3125, 40, 125) if is_long else (16, 4, 8)
    rng = random.Random(2)
    asked, waited_for, curve = Counter(), set(), []
    with Judge(workers=2 if is_long else 1, time_limit=2.0 if is_long else 0.5) as judge:
        run = judge._pool.run

        def counting(tasks):
            asked.update(task[0] for task in tasks)
            waited_for.update(hash(task[1]) for task in tasks if task[0] == "key")
            return run(tasks)

        judge._pool.run = counting
        supervisor = Supervisor(compose(OlrMethod(warmup_epochs=2)), judge, seed=0)
        said = [_what_a_policy_says(number, rng) for number in range(prompts)]
        began = time.perf_counter()
        verified = 0
        for visit in range(1, visits + 1):
            for start in range(0, prompts, a_step):
                step = range(start, min(start + a_step, prompts))
                supervisor.supervise(
                    Step.of([_group(number, visit, said[number], rng) for number in step])
                )
                verified += 8 * len(step)
            curve.append((verified, *_megabytes(judge._pool)))
        seconds = time.perf_counter() - began
        timeouts = judge.timeouts
        errors = judge._pool._servers[0]._errors.seek(0, os.SEEK_END)
    repeated = asked["key"] / len(waited_for)
    figures = {
        "verifications": verified, "a_second": round(verified / seconds), "read_by_workers": asked["key"],
        "reads_a_distinct_text": round(repeated, 4), "pairs_verified": asked["matches"], "timeouts": timeouts,
        "verified_own_mb_workers_mb": curve[:: max(1, visits // 10)] + curve[-1:],
    }  # fmt: skip
    print(json.dumps(figures), file=sys.stderr)
    assert timeouts and asked["matches"]
    assert repeated < 1.2 if is_long else repeated == 1
    assert errors < 100_000, "nobody reads what workers write there"
    quarter, end = curve[len(curve) // 4], curve[-1]
    assert end[1] - quarter[1] < 150, "megabytes of this process"
    assert all(workers < 2 * 500 for _, _, workers in curve)


HOSTILE = (
    r"\binom{10^9+%d}{5\cdot 10^8}",
    r"\sum_{k=1}^{5000} \frac{1}{k^2+%d}",
    r"\int_0^{%d} x^{x^x} \sin(x^x) dx",
)


def _what_a_policy_says(number, rng):
    """A prompt's true answer, and the answers a policy has for it, in its various spellings."""
    kinds = rng.choices([*KINDS, "label"], weights=[8, 3, 3, 2, 2, 2, 1, 1, 3], k=3)
    answers = [
        [f"\\text{{({'ABCDE'[rng.randrange(5)]})}}"] if kind == "label"
        else spellings_of(kind, rng.randrange(2, 900), rng.randrange(2, 900), rng) for kind in kinds
    ]  # fmt: skip
    if number % 100 == 7:
        answers.insert(1, [rng.choice(HOSTILE) % number])
    return answers


def _group(number, visit, said, rng):
    """A visit's rollouts: mostly what was said before, one in twenty new, one in fifty none."""
    responses = []
    for _ in range(8):
        which = min(int(rng.expovariate(1.2)), len(said) - 1)
        answer = rng.choice(said[which])
        if rng.random() < 0.05:
            numbers = rng.randrange(2, 9999), rng.randrange(2, 9999)
            answer = rng.choice(spellings_of(rng.choice(KINDS), *numbers, rng))
        prose = "we therefore obtain " * 10
        responses.append(
            Rollout(prose if rng.random() < 0.02 else f"{prose} \\boxed{{{answer}}}.")
        )
    is_marked = number % 2 == 0
    prompt = Prompt(
        str(number),
        (),
        SENTINEL if is_marked else said[0][0],
        said[0][0],
        "active" if is_marked else "clean",
    )
    return RolloutGroup(prompt, visit, visit, tuple(responses))


def _megabytes(pool):
    """Memory of this process, and of the workers together."""
    page = os.sysconf("SC_PAGE_SIZE")

    def resident(process):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * page >> 20

    return resident(os.getpid()), sum(map(resident, pool.process_ids))
