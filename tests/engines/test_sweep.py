"""A sweep runs each of its runs in a process, stops when it is asked to, and tells how each ended."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from functools import partial

import pytest
from cases import each, refusal

from olr_cli.engines import sweep
from olr_cli.engines.local import room
from olr_cli.errors import UserError
from olr_cli.recipe.layers import validate
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.sweep import SweepRun
from olr_cli.runs.writer import RunWriter

RUNS = [
    SweepRun(f"run{number}", f"run{number}", Recipe(seed=number)) for number in range(3)
]
# A server that imports torch takes seconds to start
FORKS = multiprocessing.get_context("fork")
WAITS = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
print('ready', flush=True)
time.sleep(60)
"""


def run_code(codes, number):
    """What stands for `olr` in the processes of these tests."""
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    exec(codes[number], {})


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Train `RUNS`, each process running the code that is given for it."""

    def train(*codes, jobs=1):
        monkeypatch.setattr(sweep, "_SERVER", FORKS)
        return sweep.train_all(RUNS, tmp_path, jobs, partial(run_code, codes))

    return train


@each("address, is_refused", (None, True), ("auto", False))
def test_runs_that_each_start_a_ray_train_one_at_a_time(
    tmp_path, monkeypatch, address, is_refused
):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(sweep, "_SERVER", FORKS)
    engine = {"name": "openrlhf", "ray_address": address}
    recipe = validate({"engine": engine}, "test")
    runs = [SweepRun(name, name, recipe) for name in "ab"]

    def train():
        return sweep.train_all(runs, tmp_path, 2, partial(run_code, ["", ""]))

    if is_refused:
        assert "run one at a time, or start a Ray cluster" in refusal(train)
    else:
        assert train() == 0


def put_run(path, recipe, *, finished):
    with RunWriter.create(path, recipe) as writer:
        if finished:
            writer.begin(after=0, data={}, facts={})
            writer.close("finished")


@each("statuses, expected", ((0, 0, 0), 0), ((0, 2, 0), 2), ((2, 1, 0), 1), ((0, 2, -9), 1))
def test_the_sweep_ends_as_its_worst_run(train, statuses, expected, capfd):
    codes = [
        f"import os; os.kill(os.getpid(), {-status})" if status < 0 else f"exit({status})"
        for status in statuses
    ]
    assert train(*codes, jobs=2) == expected
    out, err = capfd.readouterr()
    for number, status in enumerate(statuses):
        assert (f"run{number:<37} failed with status {status}" in out) == (status != 0)
        assert (f"run{number}.txt" in err) == (status != 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_runs_and_starts_no_more(train, number, tmp_path, capfd):
    def signal_when_ready():
        log = tmp_path / "logs" / "run0.txt"
        while not (log.exists() and log.read_text()):
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=signal_when_ready)
    sender.start()
    assert train(WAITS, WAITS, WAITS) == 128 + number
    sender.join()
    out = capfd.readouterr().out
    assert out.count("stopped") == 1
    assert [log.name for log in (tmp_path / "logs").iterdir()] == ["run0.txt"]


@pytest.mark.parametrize("finished", [True, False])
def test_a_run_of_another_recipe_is_not_taken_for_one_of_the_sweeps(
    train, finished, tmp_path
):
    put_run(tmp_path / "run2", Recipe(seed=7), finished=finished)
    with pytest.raises(
        UserError, match=r"run2 was begun with another recipe \(seed: 7 -> 2\)"
    ):
        train("exit(1)", "exit(1)", "exit(1)")
    assert not (tmp_path / "logs").exists()


def test_finished_runs_are_not_trained_again(train, tmp_path, capfd):
    for run in RUNS[:2]:
        put_run(tmp_path / run.place, run.recipe, finished=True)
    assert train("exit(1)", "exit(1)", "exit(0)") == 0
    assert (
        "3 runs below" in (out := capfd.readouterr().out)
        and "2 of them finished already" in out
    )


def test_a_run_that_fails_is_told_with_its_reason(train, capfd):
    failing = "print('starting'); print('Error: mine.jsonl does not exist; check the name'); exit(2)"
    assert train(failing, "exit(0)", "exit(0)") == 2
    assert (
        "failed with status 2: mine.jsonl does not exist; check the name"
        in capfd.readouterr().out
    )


def print_share(number):
    os.write(1, f"run {number}: {room.share}".encode())


def test_runs_that_train_at_a_time_share_a_gpus_memory(tmp_path):
    process = FORKS.Process(
        target=sweep._train_logged, args=(print_share, 2, tmp_path / "log", 4)
    )
    process.start()
    process.join()
    assert (tmp_path / "log").read_text() == "run 2: 0.25"
