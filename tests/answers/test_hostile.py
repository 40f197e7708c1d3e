"""Verification never hangs, kills the run or raises (R8)."""

import os
import signal
import threading
import time

import pytest
from hostile import HOSTILE

from olr_cli.answers import Judge, extract, is_read, pool
from olr_cli.answers.algebra import leaf, math_verify_proof, proof
from olr_cli.answers.matching import decide
from olr_cli.answers.notation import normal_text, tidy
from olr_cli.answers.pool import GAVE_UP

LIMIT = 0.2
ENDLESS = r"\sum_{k=1}^{5000} \frac{1}{k^2+1}"


@pytest.fixture
def quick_start():
    """Limits are met here, so workers warm up as a user's do."""


def decide_all(answers):
    with Judge(time_limit=30.0, workers=1) as judge:
        judge.keys(["x+1"])
        judge._pool.time_limit = LIMIT
        for answer in answers:
            extract(f"so \\boxed{{{answer}}} {answer}")
            before = judge.timeouts
            keys = judge.keys([answer, "x+1", "1+x"])
            verdicts = judge.matches(
                [("x+1", answer), (answer, "5"), (answer, answer), ("1+x", "x+1")]
            )
            given_up = judge.timeouts - before
            assert given_up <= 3, answer[:50]  # read, and compared twice
            assert keys["x+1"] == keys["1+x"] and verdicts[3] and verdicts[2]
            judge.keys([answer])
            judge.matches([("x+1", answer), (answer, "5")])
            assert judge.timeouts == before + given_up, (
                "a hostile answer costs its limit once"
            )
        return judge.timeouts


def test_every_hostile_answer_is_decided_in_any_thread_and_the_judge_goes_on(
    monkeypatch, is_long
):
    if not is_long:  # calls that are few and long are ended sooner
        monkeypatch.setattr(pool, "_BACKSTOP", 1)
    results = []
    thread = threading.Thread(target=lambda: results.append(decide_all(HOSTILE)))
    thread.start()
    thread.join(timeout=600)
    assert results and results[0] >= 3


@pytest.mark.slow
def test_what_is_given_up_depends_on_no_other_pair(is_long):
    """Neither on those before it in a call, nor on what a judge has done, nor on the order."""
    hostile = [rf"\sum_{{k=1}}^{{5000}} \frac{{1}}{{k^2+{n}}}" for n in range(1, 3)]
    costly = (r"\sqrt 7", r"\int_0^{1} x^{x^x} \sin(x^x) dx")
    integrals = [rf"\int_0^{n} x^{n} e^{{x}} dx" for n in range(1, 4 if is_long else 2)]
    pairs = [*((r"\sqrt 7", answer) for answer in (*hostile, *integrals)), costly]
    expected = dict.fromkeys(pairs, False) | dict.fromkeys([*pairs[:2], costly])
    for asked, workers in ((pairs, 1), (pairs[::-1], 2)):
        with Judge(time_limit=2.0 if is_long else 0.5, workers=workers) as judge:
            verdicts = judge.matches(asked[:2]) + judge.matches(asked[2:])
            assert dict(zip(asked, verdicts, strict=True)) == expected
            assert judge.timeouts == 3
            assert judge.matches([(hostile[0], "y+1")]) == [None]
            assert judge.timeouts == 3, (
                "a text that can't be read decides about all of its pairs"
            )


def test_what_is_given_up_stays_so_in_a_run(monkeypatch, tmp_path):
    ledger, hostile, pair = tmp_path / "given_up.jsonl", ENDLESS, (r"\sqrt 7", "y+1")
    with Judge(time_limit=LIMIT, workers=1, ledger=ledger) as judge:
        run = judge._pool.run

        def giving_up(tasks):
            replies = zip(tasks, run(tasks), strict=True)
            return [
                GAVE_UP if task[-1] in ("x+1", "y+1") else reply for task, reply in replies
            ]

        monkeypatch.setattr(judge._pool, "run", giving_up)
        before = judge.keys([hostile, "x+1"])
        assert judge.matches([pair]) == [None]
        assert judge.timeouts == 3
    assert len(ledger.read_text().splitlines()) == 3
    with ledger.open("a") as file:
        file.write('["key", "1+')  # a line that a kill cut off
    with Judge(time_limit=30.0, workers=1, ledger=ledger, keep=False) as resumed:
        assert resumed.keys([hostile, "x+1"]) == before
        assert resumed.matches([pair]) == [None]
        assert resumed.timeouts == 0 and resumed._pool.process_ids == []


def test_a_worker_that_is_stopped_for_a_while_gives_nothing_up():
    with Judge(
        time_limit=8.0, workers=1
    ) as judge:  # half a second a task among others, of processor time
        judge.keys(["x+1"])
        (pid,) = judge._pool.process_ids
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(1.0, lambda: os.kill(pid, signal.SIGCONT)).start()
        keys = judge.keys(["2+x", "x+2"])
        assert (
            keys["2+x"] == keys["x+2"]
            and judge.timeouts == 0
            and judge._pool.process_ids == [pid]
        )


def test_a_pile_of_combining_marks_takes_no_quadratic_time():
    started = time.process_time()
    assert normal_text("a" + "\u0301\u0316" * 60_000) != normal_text("a")
    assert time.process_time() - started < 5
    assert (
        tidy("e\u0301") == tidy("\xe9")
        and len(tidy("e" + "\u0301\u0316" * 60_000)) > 100_000
    )


@pytest.mark.parametrize("answer", ["x" * 1_000_000, "{" * 10_000 + "}" * 10_000])
def test_long_and_deep_answers_are_never_parsed(answer):
    with Judge() as judge:
        keys = judge.keys([answer, f"${answer}$", answer + "y"])
        assert judge._pool.process_ids == [] and judge.timeouts == 0
    assert keys[answer] == keys[f"${answer}$"] != keys[answer + "y"]
    assert not is_read(keys[answer])


TOO_LARGE = ["9^{9^{9^9}}", "8**8**8**8", r"5^{10^3 \cdot 10^4}", r"\left(\frac{2}{3}\right)^{-10^6}",
             r"\frac{1}{1+\frac{1}{10^{10^6}}}", "1.00001^{10^5}", "(10^6)!", "((10!)!)!", r"\Gamma(10^8)",
             r"\binom{10^9}{10^8}", r"\binom{10^7}{\pi}", r"\sum_{k=1}^{10^9} \frac{1}{k^2+1}", "(x+1)^{10^6}",
             r"\sum_{k=1}^{20} 3^{2^k}", r"\prod_{k=2}^{10^7} k", "e^{e^{e^{100}}}", r"\sqrt{10^{9000}+1}",
             r"\begin{pmatrix}1&1\\1&1\end{pmatrix}^{10^7}", "(2, 9^{9^{9^9}})",
             "[7^{7^{7^7}}, 9^{9^{9^9}}]"]  # fmt: skip
"""Of more than 100,000 digits, or of more than sympy can take a root or a product of."""


@pytest.mark.parametrize("answer", TOO_LARGE)
def test_the_size_of_a_number_is_known_before_it_is_computed(answer):
    asked, started = [(answer, "x+1"), ("2", answer)], time.process_time()
    for gold, said in asked:
        assert decide("matches", gold, said, leaf=leaf, proof=proof) is None
        decide(
            "may match",
            gold,
            said,
            leaf=leaf,
            proof=proof,
            math_verify_proof=math_verify_proof,
        )
    assert not is_read(decide("key", answer, leaf=leaf))
    assert time.process_time() - started < 5


LARGE = ["10^{20000}", "2^{300000}", "9999!", r"\binom{2024}{1012}", r"\binom{2024}{k}", "10^{123.456}",
         "1.05^{360}", "e^{-t/10^{6}}", r"e^{2\ln 1000}", "x^{y^{z^w}}", "2^{2^{2^n}}",
         r"\sum_{k=1}^{99} \frac1k", r"\sum_{k=1}^{\infty} 2^{-k}"]  # fmt: skip


@pytest.mark.parametrize("answer", LARGE)
def test_large_numbers_are_read(answer):
    assert is_read(decide("key", answer, leaf=leaf))
