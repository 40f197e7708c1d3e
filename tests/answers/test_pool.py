"""Worker processes: limits, deaths, replacement (R8)."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from forks import is_alive

import olr_cli
from olr_cli.answers import Judge, judge, pool
from olr_cli.answers.pool import GAVE_UP, WorkerPool

LIMIT = 2.0
SLOW = ("key", r"\sum_{k=1}^{5000} \frac{1}{k^2+1}")


@pytest.fixture(scope="module")
def shared():
    pool = WorkerPool(1, time_limit=LIMIT)
    yield pool
    pool.close()


@pytest.fixture
def workers(shared):
    """One worker, which may be running already."""
    shared.time_limit = LIMIT
    return shared


def wait_until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def test_workers_start_when_there_is_work_and_stay(workers):
    workers.close()
    assert workers.run([]) == [] and workers.process_ids == []
    workers.run([("key", "x")])
    (pid,) = workers.process_ids
    workers.run([("key", "y")] * 100)
    assert workers.process_ids == [pid]


def test_results_come_in_the_order_of_the_tasks():
    pool = WorkerPool(2, time_limit=30.0)
    results = pool.run([("key", f"{n}+1") for n in range(200)])
    assert results == [f"number {n + 1}" for n in range(200)]
    assert len(pool.process_ids) == 2
    pool.close()
    assert pool.process_ids == []


def test_a_slow_task_costs_its_own_limit_and_the_others_are_done(workers, monkeypatch):
    send = pool._Worker.send
    sent = []
    monkeypatch.setattr(
        pool._Worker,
        "send",
        lambda worker, limits, *task: (
            sent.append((task[1], limits[1])),
            send(worker, limits, *task),
        ),
    )
    results = workers.run([("key", "1+1"), SLOW, ("key", "2+1")])
    assert results == ["number 2", GAVE_UP, "number 3"]
    # Seconds would depend on the machine: what is counted are the calls that a task may make.
    assert (SLOW, round(pool._CALLS_A_SECOND * LIMIT)) in sent


def test_a_killed_worker_is_replaced(workers):
    workers.run([("key", "x")])
    (pid,) = workers.process_ids
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: not is_alive(pid))
    assert workers.run([("key", "1+1")])[0] == "number 2"
    assert pid not in workers.process_ids


def test_a_task_that_ends_its_worker_twice_is_given_up(workers):
    broken = ("key",)
    first, second = workers.run([broken, ("key", "1+1")])
    assert first is GAVE_UP and second == "number 2"


def test_a_worker_that_has_done_many_tasks_is_replaced(monkeypatch):
    growing = pool.Server.program.replace(
        "worker.main", "worker._MOST_TASKS = 1; worker.main"
    )
    monkeypatch.setattr(pool.Server, "program", growing)
    workers = WorkerPool(1, time_limit=30.0)
    assert workers.run([("key", "1+1"), ("key", "2+1")]) == ["number 2", "number 3"]
    assert workers.run([("key", "3+1")])[0] == "number 4"
    workers.close()


def test_no_task_is_lost_with_the_process_that_starts_workers(monkeypatch):
    workers, receive, was_killed = WorkerPool(2, time_limit=30.0), pool._Worker.receive, []

    def kill_then_receive(worker):
        if len(workers.process_ids) == 2 and not was_killed:
            workers._servers[0].process.kill()
            workers._servers[0].process.wait()
            os.kill(worker.process_id, signal.SIGKILL)
            was_killed.append(True)
        return receive(worker)

    monkeypatch.setattr(pool._Worker, "receive", kill_then_receive)
    results = workers.run([("key", f"{n}+1") for n in range(200)])
    workers.close()
    assert was_killed and results == [f"number {n + 1}" for n in range(200)]


def test_workers_that_cant_start_are_reported(workers, monkeypatch):
    workers.close()
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(RuntimeError, match="can't be started"):
        workers.run([("key", "x")])


def test_workers_are_of_the_same_olr_as_their_parent_where_another_is_installed(tmp_path):
    shutil.copytree(Path(olr_cli.__file__).parent, tmp_path / "olr_cli")
    with (tmp_path / "olr_cli" / "answers" / "reading.py").open("a") as module:
        module.write("\ndef read(answer, leaf):\n    return Form('word', 'another')\n")
    script = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from olr_cli.answers import pool
print(pool.WorkerPool(1, 60.0).run([("key", "x/2")]))
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "['word another']\n"


def test_an_interrupted_run_leaves_no_reply_behind(workers, monkeypatch):
    def interrupt(worker):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pool._Worker, "receive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            workers.run([("key", "1+1")])
    assert workers.process_ids == []
    assert workers.run([("key", "2+1")])[0] == "number 3"


def test_closing_ends_the_workers_and_a_judge_can_be_used_again():
    with Judge(time_limit=60.0, workers=1) as judge:
        judge.keys(["x+8191"])  # no other test of this process has asked for it
        (pid,) = judge._pool.process_ids
        judge.close()
        assert wait_until(lambda: not is_alive(pid))
        assert len(set(judge.keys(["x+2", "2+x"]).values())) == 1


@pytest.mark.parametrize(
    "answer", ["x+1", r"\sum_{k=1}^{5000} \frac{1}{k^2+1}"], ids=["idle", "busy"]
)
def test_workers_die_with_their_parent(answer):
    program = f"""
import threading, time
from olr_cli.answers import Judge, pool
judge = Judge(time_limit=2.0, workers=1)
judge.keys(["x"])
print(judge._pool.process_ids[0], judge._pool._servers[0].process.pid, flush=True)
judge.keys([{answer!r}])
time.sleep(60)
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    )
    processes = [int(pid) for pid in parent.stdout.readline().split()]
    time.sleep(0.2)
    parent.kill()
    parent.communicate()
    assert wait_until(lambda: not any(map(is_alive, processes)))


def test_a_forked_process_starts_workers_of_its_own():
    with Judge(
        time_limit=60.0, workers=1
    ) as judge:  # a sixteenth of it ends a worker on a slow machine too
        judge.keys(["x+1"])
        (pid,) = judge._pool.process_ids
        child = os.fork()
        if child == 0:
            status = 1
            try:
                same = len(set(judge.keys(["x+2", "2+x"]).values())) == 1
                status = 0 if same and pid not in judge._pool.process_ids else 1
                judge.close()
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert len(set(judge.keys(["x+3", "3+x"]).values())) == 1
        assert judge._pool.process_ids == [pid]


def test_a_process_that_is_forked_while_another_thread_grades_can_grade():
    with Judge(workers=1) as judge:
        with judge._lock:  # as while a thread waits for a worker
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    signal.alarm(60)
                    status = 0 if judge.keys(["007"]) == {"007": "number 7"} else 1
                finally:
                    os._exit(status)
        assert os.waitpid(child, 0)[1] == 0


def test_a_task_that_eats_memory_is_stopped(monkeypatch):
    eater = "from olr_cli.answers import algebra; algebra._form = lambda parsed: bytearray(3 << 30); worker.main"
    monkeypatch.setattr(
        pool.Server, "program", pool.Server.program.replace("worker.main", eater)
    )
    workers = WorkerPool(1, time_limit=60.0)
    first, second = workers.run([("key", "1+1"), ("key", "12")])
    assert first is GAVE_UP and second == "number 12"
    workers.close()


def test_results_are_forgotten_and_found_again(monkeypatch):
    monkeypatch.setattr(judge, "_MEMO", 3)
    with Judge(workers=1) as forgetful:
        assert [forgetful.keys([str(n)])[str(n)] for n in [*range(9), *range(9)]] == 2 * [
            f"number {n}" for n in range(9)
        ]
        assert len(forgetful._memo) <= 4
