"""The job as its command sees it: it ends whole, however that comes, and its output is kept."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from multiprocessing import shared_memory
from pathlib import Path

import pytest
from forks import is_alive

from olr_cli.engines.openrlhf import process
from olr_cli.engines.openrlhf.process import started
from olr_cli.errors import UserError

CHILD = "import time; print('child', flush=True); time.sleep(60)"
WITH_CHILD = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}])
print("pids", child.pid, flush=True)
time.sleep(60)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
"""
SURVIVOR = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}])
print("pids", child.pid, flush=True)
"""
JOB = """
import sys, time
from olr_cli.engines.openrlhf import job
job.run = lambda *_: time.sleep(60)
print("pids", __import__("os").getpid(), flush=True)
job.main()
"""
COMMAND = f"""
import sys, time
from pathlib import Path
from olr_cli.engines.openrlhf.process import Job
Job([sys.executable, "-c", {JOB!r}, "run"], Path(sys.argv[1]))
time.sleep(60)
"""


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log.txt"


def python(code):
    return [sys.executable, "-c", code]


def wait_until(happened, seconds=120):
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait_for(word, log):
    wait_until(lambda: log.exists() and word in log.read_text())


def child_of(log):
    """The number of the process that a job has printed."""
    wait_until(
        lambda: (
            log.exists() and "pids" in log.read_text() and log.read_text().endswith("\n")
        )
    )
    line = next(line for line in log.read_text().splitlines() if line.startswith("pids"))
    return int(line.split()[1])


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_a_job_runs_writes_its_log_and_ends(log):
    log.write_text("an earlier attempt\n")
    with started(
        python("import sys; print('out'); print('err', file=sys.stderr); exit(3)"), log
    ) as job:
        wait_until(job.has_ended)
        assert job.how() == "exit status 3"
    assert sorted(log.read_text().splitlines()) == ["an earlier attempt", "err", "out"]


def test_a_job_finds_the_programs_of_its_environment_also_if_nobody_activated_it(
    log, tmp_path, monkeypatch
):
    program = tmp_path / "ninja-of-this-test"
    program.write_text("#!/bin/sh\necho compiling\n")
    program.chmod(0o755)
    monkeypatch.setattr(process.sys, "executable", str(tmp_path / "python"))
    with started(["sh", "-c", program.name], log) as job:
        wait_until(job.has_ended)
    assert log.read_text() == "compiling\n"


@pytest.mark.parametrize(
    "error", [None, KeyboardInterrupt("stopped"), UserError("stopped", "start again")]
)
def test_a_job_does_not_outlive_the_block_nor_does_a_process_it_started(error, log):
    def block():
        with started(python(WITH_CHILD), log) as job:
            pids.append(child_of(log))
            wait_for("child", log)
            jobs.append(job)
            if error is not None:
                raise error

    pids, jobs = [], []
    if error is None:
        block()
    else:
        with pytest.raises(type(error)):
            block()
    assert jobs[0].has_ended() and jobs[0].how() == "signal SIGTERM"
    wait_until(lambda: not is_alive(pids[0]))


def test_a_job_that_does_not_want_to_end_is_killed(log, monkeypatch):
    monkeypatch.setattr(process, "_PATIENCE_SECONDS", 0.2)
    with started(python(STUBBORN), log) as job:
        wait_for("ready", log)
    assert job.how() == "signal SIGKILL, often for want of memory"


def test_what_a_job_leaves_behind_ends_with_the_block(log, monkeypatch):
    monkeypatch.setattr(process, "_PATIENCE_SECONDS", 0.2)
    with started(python(SURVIVOR), log) as job:
        child = child_of(log)
        wait_for("ready", log)
        wait_until(job.has_ended)
    try:
        wait_until(lambda: not is_alive(child), seconds=3)
    finally:
        kill(child)


SHARES = """
import os, signal, time
from multiprocessing import resource_tracker, shared_memory
signal.signal(signal.SIGTERM, signal.SIG_IGN)
memory = shared_memory.SharedMemory(create=True, size=64)
resource_tracker.unregister(memory._name, "shared_memory")  # as if it were killed, too
os.makedirs(f"{os.environ['RAY_TMPDIR']}/ray/session_2026-11-28_{os.getppid()}/logs")
print("pids", os.getpid(), memory.name, flush=True)
time.sleep(60)
"""
"""A process of a job's Ray that shares memory."""

HAS_RAY = (
    f"import subprocess, sys, time; subprocess.call([sys.executable, '-c', {SHARES!r}])"
)


@pytest.fixture
def sessions(tmp_path, monkeypatch):
    """The folder of Ray's sessions, with one of another job."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "ray" / "session_2026-11-27_1").mkdir(parents=True)
    return tmp_path / "ray"


def shared(log):
    """The file of the memory whose name is in a log."""
    child_of(log)
    return Path("/dev/shm", log.read_text().split()[2])


def names(folder):
    return {entry.name for entry in folder.iterdir()}


def test_rays_folder_and_shared_memory_go_with_a_job(log, sessions, monkeypatch):
    monkeypatch.setattr(process, "_PATIENCE_SECONDS", 0.2)
    others = shared_memory.SharedMemory(create=True, size=64)
    try:
        with started(python(HAS_RAY), log):
            memory = shared(log)
            assert memory.exists() and len(names(sessions)) == 2
        assert not memory.exists()
        assert names(sessions) == {"session_2026-11-27_1"}
        assert Path("/dev/shm", others.name).exists()
    finally:
        others.close()
        others.unlink()


def test_they_go_too_where_the_command_is_killed(log, sessions):
    job = JOB.replace(
        "lambda *_: time.sleep(60)", f"lambda *_: exec({HAS_RAY + '; time.sleep(60)'!r})"
    )
    job = job.replace('print("pids", __import__("os").getpid(), flush=True)', "")
    command = COMMAND.replace(repr(JOB), repr(job))
    parent = subprocess.Popen([*python(command), str(log)])
    try:
        memory = shared(log)
        assert memory.exists() and len(names(sessions)) == 2
    finally:
        parent.kill()
        parent.wait()
    try:
        wait_until(lambda: not memory.exists())
        wait_until(lambda: names(sessions) == {"session_2026-11-27_1"})
    finally:
        kill(child_of(log))


def test_ctrl_c_in_the_terminal_does_not_reach_the_job(log):
    code = "import os; print('pids', os.getpid(), os.getpgid(0), os.getsid(0), flush=True)"
    with started(python(code), log) as job:
        wait_until(job.has_ended)
    _, pid, group, session = log.read_text().split()
    assert pid == group == session


def test_a_killed_command_takes_its_job_along(log):
    parent = subprocess.Popen([*python(COMMAND), str(log)])
    try:
        job = child_of(log)
        assert is_alive(job)
    finally:
        parent.kill()
        parent.wait()
    try:
        wait_until(lambda: not is_alive(job))
    finally:
        kill(job)


def test_a_job_without_a_command_beside_it_has_no_leash(log):
    """As where somebody runs the command line that a dry run prints."""
    code = JOB.replace(
        "time.sleep(60)", "time.sleep(2) or SimpleNamespace(kind='finished')"
    )
    code = f"import os; del os.environ['OLR_OPENRLHF_LEASH']\nfrom types import SimpleNamespace\n{code}"
    with started([*python(code), "run"], log) as job:
        wait_until(job.has_ended)
        assert job.how() == "exit status 0"
