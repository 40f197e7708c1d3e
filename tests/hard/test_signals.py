"""Ctrl-C, SIGTERM and a reader that goes away: a sentence, the right status, and a command that goes on as printed."""

import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from forks import ROOT
from outcomes import differences

from olr_cli.runs.checkpoints import checkpoint_steps
from olr_cli.runs.directory import read_manifest
from olr_cli.runs.shards import stored_steps

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}
OLR = [sys.executable, "-m", "olr_cli"]
SWEEP = "\nsweep: {arms: {first: {}, second: {seed: 5}}}\n"


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def shell(workshop, *words):
    """`olr` as a shell starts it."""
    command = [*OLR, *map(str, words)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=workshop.folder, env=ENVIRONMENT, stdout=pipe, stderr=pipe, text=True
    )


@pytest.mark.parametrize("command", ["train", "rollouts", "evaluate"])
def test_a_signal_at_any_moment_ends_with_a_sentence_and_goes_on_as_printed(
    command, workshop, is_long
):
    if command == "evaluate" and not is_long:
        pytest.skip("tests/cli/test_evaluate_command.py has the short version")
    whole, seconds = workshop.whole(command), workshop.seconds(command, is_long=is_long)
    draw, count, faults = random.Random(11), Counter(), []
    for turn in range(20 if is_long else 1):
        number = (signal.SIGTERM, signal.SIGINT)[(turn + (command == "rollouts")) % 2]
        out = workshop.place(f"{command} {turn}")  # with a space, as any folder may have
        started = workshop.start(command, out)
        share = draw.uniform(0.05, 1) if is_long else 0.7
        time.sleep(share * seconds)
        started.signal(number)
        status, told = started.wait(), started.err
        count[f"status {status}"] += 1
        found = [] if status in (0, STATUS[number]) else [f"status {status}: {told}"]
        if status:
            found += _faults_of_what_is_told(command, out, told)
            _, printed, words = told.partition("continue with olr ")
            count["a command was printed"] += bool(printed)
            again, ended = workshop.olr(
                *shlex.split(words) or workshop.words_to_go_on(command, out)
            )
            found += [ended.err] if again else []
        found += differences(command, out, whole)
        count["equal"] += not found
        faults += [f"{number.name} after {share:.1%}: {fault}" for fault in found]
    print(f"\n{command}: {dict(count)}")
    assert not faults, "\n".join(faults)


def _faults_of_what_is_told(command, out: Path, told) -> list[str]:
    last = told.splitlines()[-1]
    found = (
        []
        if last.startswith("Stopped.") and "Traceback" not in told
        else [f"it says {told}"]
    )
    if command == "evaluate" or not (out / "manifest.json").exists() or _is_finished(out):
        return found
    if "continue with" not in last:
        found.append(f"no command in '{last}'")
    if "last complete step" in last and command == "train":
        found += (
            [] if read_manifest(out)["status"] == "interrupted" else ["not interrupted"]
        )
        if checkpoint_steps(out)[-1:] != stored_steps(out)[-1:]:
            found.append(
                f"checkpoints {checkpoint_steps(out)} of steps {stored_steps(out)}"
            )
    return found


def _is_finished(run: Path) -> bool:
    return read_manifest(run)["status"] == "finished"


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("number", STATUS)
def test_a_signal_while_torch_is_imported_ends_at_once_with_a_sentence(
    number, workshop, is_long
):
    if number == signal.SIGINT and not is_long:
        pytest.skip("SIGTERM has the short version")
    for turn in range(10 if is_long else 1):
        started = shell(workshop, *workshop.words("train", workshop.place("none")))
        maps = Path(f"/proc/{started.pid}/maps")
        while "libtorch_cpu" not in maps.read_text():
            time.sleep(0.005)
        time.sleep(0.1 * turn)
        started.send_signal(number)
        told = started.communicate()[1]
        assert (started.returncode, told.startswith("Stopped.")) == (
            STATUS[number],
            True,
        ), told
        assert not (workshop.folder / "places" / "none").exists()


def test_a_sweep_stops_with_its_runs_and_the_same_command_goes_on(workshop, is_long):
    if not is_long:
        pytest.skip(
            "two trainings from the shell; tests/engines/test_sweep.py has the short version"
        )
    (workshop.folder / "sweep.yaml").write_text(
        (workshop.folder / "tiny.yaml").read_text() + SWEEP
    )
    for number, status in STATUS.items():
        out = workshop.place(f"sweep-{status}")
        words = ["train", "sweep.yaml", "--sweep", "--jobs", "2", "--run-dir", out]
        started = shell(workshop, *words)
        while len(list(out.glob("*/checkpoints/step-*"))) < 2:
            time.sleep(0.01)
        started.send_signal(number)
        told = started.communicate()[1]
        assert (started.returncode, "the same command continues" in told) == (
            status,
            True,
        ), told
        runs = sorted(manifest.parent for manifest in out.glob("*/manifest.json"))
        # After its last step, a run does not wait
        stopped = {read_manifest(run)["status"] for run in runs}
        assert stopped & {"interrupted", "running"}, stopped
        again = shell(workshop, *words)
        told = again.communicate()[1]
        assert again.returncode == 0, told
        # One may not have begun before
        runs = sorted(manifest.parent for manifest in out.glob("*/manifest.json"))
        assert {read_manifest(run)["status"] for run in runs} == {"finished"}
        first = next(run for run in runs if "first" in run.name)
        assert not differences("train", first, workshop.whole("train"))


def test_a_reader_that_goes_away_is_no_error_and_a_run_goes_on(workshop, is_long):
    """As of `olr … | head`: quiet, and with the status that the shell gives to what a closed pipe ends."""
    run = workshop.whole("train")
    commands = [["--help"], ["recipes", "ls"], ["replay", run, "--json"]]
    if is_long:
        commands += [
            ["analyze", run, "--table", "arms"],
            ["audit", run, "--json"],
            ["benchmarks"],
        ]
    for words in commands:
        status, ended = workshop.olr(*words, is_read=False)
        assert (status, ended.err) == (141, ""), words
    out = workshop.place("unread")
    status, ended = workshop.olr(*workshop.words("train", out), is_read=False)
    assert status == 141
    assert ended.err.startswith("Stopped. Everything up to the last checkpoint is in ")
    assert read_manifest(out)["status"] == "interrupted"
    workshop.finish("train", out)
    assert not differences("train", out, run)


def test_a_full_disk_behind_standard_output_is_a_sentence():
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with open("/dev/full", "w") as full:
        pipe = subprocess.PIPE
        ended = subprocess.run(
            [*OLR, "recipes", "ls"], stdout=full, stderr=pipe, text=True, env=ENVIRONMENT
        )
    assert ended.returncode == 2 and ended.stderr.count("\n") == 1
    assert ended.stderr.endswith("the disk is full; make room and try again\n")
