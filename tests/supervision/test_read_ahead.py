"""Verification that runs ahead, beside something else, changes no decision (R7, R8)."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from cases import each
from decisions import by_group
from hypothesis import given, settings, strategies as st

from olr_cli.answers import Judge
from olr_cli.answers.graded import SENTINEL
from olr_cli.answers.pool import WorkerPool
from olr_cli.data.prompts import Prompt
from olr_cli.recipe.methods import OlrMethod
from olr_cli.supervision import Rollout, RolloutGroup, Step, Supervisor, compose

LIMIT = 1.0
SLOW = r"\sum_{k=1}^{5000} \frac{1}{k^2+1}"
ANSWERS = [
    "1/2",
    "0.50",
    r"\sqrt{8}",
    r"2\sqrt{2}",
    "x+1",
    "1+x",
    r"\{1,2\}",
    "12",
    None,
    SENTINEL,
]
PROMPTS = [Prompt(f"p{n}", (), SENTINEL, "1/2", "active") for n in range(3)]


@pytest.fixture
def quick_start():
    """Workers are killed and counted here, so each judge has its own."""


@pytest.fixture(scope="module")
def pool():
    """Workers that all judges here share, since each takes most of a second to start."""
    pool = WorkerPool(1, LIMIT)
    yield pool
    pool.close()


def judge_that_has_seen_nothing(pool):
    judge = Judge()
    judge._pool = pool
    return judge


def groups(visit, answers_PG):
    return [
        RolloutGroup(
            prompt,
            visit,
            visit,
            tuple(Rollout("?" if a is None else f"\\boxed{{{a}}}") for a in answers),
        )
        for prompt, answers in zip(PROMPTS, answers_PG, strict=True)
    ]


def decided(pool, visits, ahead=lambda supervisor, groups: None):
    """Every decision and the number of timeouts; `ahead` comes before each step."""
    judge = judge_that_has_seen_nothing(pool)
    supervisor = Supervisor(
        compose(OlrMethod(warmup_epochs=1, slope_threshold="0")), judge, seed=5
    )
    found, timeouts = [], 0
    for visit, answers_PG in enumerate(visits, 1):
        step = groups(visit, answers_PG)
        ahead(supervisor, step)
        result = supervisor.supervise(Step.of(step))
        found.append(by_group(result))
        timeouts += result.timeouts
    # Each step has its own, those of the reading ahead included
    assert timeouts == judge.timeouts
    return found, timeouts


visits = st.lists(
    st.tuples(*[st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=4)] * len(PROMPTS)),
    min_size=1,
    max_size=3,
)


@settings(max_examples=30)
@given(visits=visits, random=st.randoms(use_true_random=False))
def test_decisions_are_the_same_whether_or_not_some_groups_were_read_ahead_in_any_order(
    pool, visits, random
):
    def arrive(supervisor, step):
        early = random.sample(step, random.randint(0, len(step)))
        with ThreadPoolExecutor(1) as beside:
            beside.submit(supervisor.read_ahead, Step.of(early)).result()

    assert decided(pool, visits, arrive) == decided(pool, visits)


def test_what_was_read_ahead_is_not_verified_again(pool, monkeypatch):
    asked = []
    run = WorkerPool.run
    monkeypatch.setattr(
        WorkerPool, "run", lambda self, tasks: asked.extend(tasks) or run(self, tasks)
    )
    decided(
        pool,
        [[[r"\sqrt{8}", "x+1"]] * 3],
        lambda supervisor, step: supervisor.read_ahead(Step.of(step)),
    )
    assert len(asked) == len(set(asked)) > 0


def test_answers_given_up_ahead_count_once(pool):
    answers = [[[SLOW, "12"], [SLOW, "x+1"], ["12"]]]
    plain, timeouts = decided(pool, answers)
    ahead = decided(
        pool, answers, lambda supervisor, step: supervisor.read_ahead(Step.of(step))
    )
    assert timeouts == 1 and ahead == (plain, 1)


def test_a_worker_that_dies_while_it_reads_ahead_changes_nothing(pool):
    pool.run([("key", "x+1")])
    answers = [[[r"\sqrt{8}", r"2\sqrt{2}"], ["x+1", "1+x"], ["1/2"]]]

    def dying(supervisor, step):
        os.kill(pool.process_ids[0], signal.SIGKILL)
        supervisor.read_ahead(Step.of(step))

    assert decided(pool, answers, dying) == decided(pool, answers)


def test_workers_that_cant_start_are_reported_to_who_waits_for_the_reading(
    pool, monkeypatch
):
    def broken(self, tasks):
        raise RuntimeError("no worker")

    monkeypatch.setattr(WorkerPool, "run", broken)
    supervisor = Supervisor(compose(OlrMethod()), judge_that_has_seen_nothing(pool), seed=0)
    threads = threading.active_count()
    with ThreadPoolExecutor(1) as beside:
        reading = beside.submit(supervisor.read_ahead, Step.of(groups(1, [["x+1"]] * 3)))
        with pytest.raises(RuntimeError, match="no worker"):
            reading.result()
    assert threading.active_count() == threads


@each(
    "label, is_needed",
    ("12", False),
    ("-3/4", False),
    ("1.5", False),
    (SENTINEL, False),
    ("x+1", True),
)
def test_the_verifier_starts_early_only_if_labels_need_it(label, is_needed, monkeypatch):
    started = []
    monkeypatch.setattr(WorkerPool, "prepare", lambda self: started.append(self))
    supervisor = Supervisor(compose(OlrMethod()), Judge(), seed=0)
    supervisor.expect(
        [Prompt("p", (), "7", "7", "clean"), Prompt("q", (), label, None, None)]
    )
    assert bool(started) == is_needed


def test_a_judge_that_expects_answers_starts_the_verifier_and_ends_it():
    with Judge(workers=1) as judge:
        judge.expect(["12", "x+1"])
        (server,) = judge._pool._servers
        judge.keys(["x+1", "1+x"])
        assert judge._pool._servers == [server]  # not a second one
    assert judge._pool._servers == []
    assert server.process.poll() is not None
