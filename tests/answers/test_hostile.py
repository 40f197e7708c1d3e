"""Verification never hangs, kills the run or raises (R8)."""

import threading
import time

import pytest
from hostile import HOSTILE

from olr_cli.answers import Judge, extract, pool
from olr_cli.answers.notation import normal_text
from olr_cli.answers.pool import GAVE_UP, WorkerPool

LIMIT = 0.5


def decide(answers):
    with Judge(time_limit=30.0, workers=1) as judge:
        judge.classify([["x+1", "1+x"]])
        judge._pool.time_limit = LIMIT
        for answer in answers:
            extract(f"so \\boxed{{{answer}}} {answer}")
            before = judge.timeouts
            (classes,) = judge.classify([[answer, "5", "x+1", "1+x"]])
            given_up = judge.timeouts - before
            assert given_up <= 2, answer[:50]  # read, and compared with x + 1
            assert classes.same("x+1", "1+x") and not classes.same("5", "x+1")
            assert classes.same(answer, answer)

            judge.classify([[answer, "5", "x+1"]])
            assert judge.timeouts == before + given_up, "a hostile answer costs its limit once"
        return judge.timeouts


@pytest.mark.slow
@pytest.mark.usefixtures("quick_start")
def test_every_hostile_answer_is_decided_in_any_thread_and_the_judge_goes_on():
    results = []
    thread = threading.Thread(target=lambda: results.append(decide(HOSTILE)))
    thread.start()
    thread.join(timeout=600)
    assert results and results[0] >= 3


def test_a_hostile_answer_costs_its_neighbours_nothing():
    hostile = r"\binom{10^9}{5\cdot 10^8}"
    answers = [*(f"{n}+\\sqrt{{2}}" for n in range(20)), hostile, *(f"{n}\\pi" for n in range(2, 20))]
    with Judge(time_limit=2.0, workers=1) as judge:
        (classes,) = judge.classify([answers])
        assert judge.timeouts == 1
    assert [a for a in answers if not classes.is_parsed(a)] == [hostile]
    assert not classes.proved_different(hostile, r"2\pi")
    assert classes.proved_different(r"2\pi", r"3\pi")


def test_many_tasks_that_never_return_share_what_patience_there_is(monkeypatch):
    monkeypatch.setattr(pool, "_PATIENCE", 2)
    monkeypatch.setattr(pool, "_HASTE", 4)
    limits, bury = [], pool._Run._bury

    def record(run, worker, *, timed_out):
        limits.append(worker.limit / run.pool.time_limit)
        bury(run, worker, timed_out=timed_out)

    monkeypatch.setattr(pool._Run, "_bury", record)
    workers = WorkerPool(1, time_limit=1.2)
    slow = [("read", rf"\binom{{10^9+{n}}}{{5\cdot 10^8}}") for n in range(6)]
    quick = [("read", f"{n}+1") for n in range(6)]
    results = workers.run([task for pair in zip(slow, quick, strict=True) for task in pair])
    workers.close()
    assert [result[1] for result in results[1::2]] == [str(n + 1) for n in range(6)]
    assert results[::2] == [GAVE_UP] * 6
    assert limits[:6] == [1.0] * 2 + [0.25] * 4, "in haste once two limits were spent"
    assert 1 <= len(limits[6:]) <= 2 and set(limits[6:]) == {1.0}, "what remains is for those that were slow"


def test_a_pair_that_takes_too_long_is_two_classes_but_not_proved_different(monkeypatch):
    with Judge(workers=1) as judge:
        run = judge._pool.run

        def give_up(tasks):
            return [
                GAVE_UP if task[0] == "same" else reply for task, reply in zip(tasks, run(tasks), strict=True)
            ]

        monkeypatch.setattr(judge._pool, "run", give_up)
        for _ in range(2):
            (classes,) = judge.classify([["no", r"\text{no}", "3"]])
            assert judge.timeouts == 1
    assert classes.is_parsed("no") and classes.is_parsed(r"\text{no}")
    assert not classes.same("no", r"\text{no}") and not classes.proved_different(r"\text{no}", "no")
    assert classes.proved_different("no", "3")


def test_a_pile_of_combining_marks_takes_no_quadratic_time():
    started = time.process_time()
    assert normal_text("a" + "\u0301\u0316" * 60_000) != normal_text("a")
    assert time.process_time() - started < 5
    assert normal_text("e\u0301") == normal_text("\xe9")


@pytest.mark.parametrize("answer", ["x" * 1_000_000, "{" * 10_000 + "}" * 10_000])
def test_long_and_deep_answers_are_never_parsed(answer):
    with Judge() as judge:
        (classes,) = judge.classify([[answer, f"${answer}$", answer + "y"]])
        assert judge._pool.process_ids == [] and judge.timeouts == 0
    assert classes.same(answer, f"${answer}$") and not classes.same(answer, answer + "y")
    assert not classes.is_parsed(answer)
