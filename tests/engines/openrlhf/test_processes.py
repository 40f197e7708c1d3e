"""The job as its command sees it: it ends whole, however that comes, and its output is kept."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from olr_cli.engines.openrlhf import processes
from olr_cli.engines.openrlhf.files import JobFiles
from olr_cli.engines.openrlhf.processes import LocalJob, SubmittedJob, command, started
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
from olr_cli.engines.openrlhf.processes import LocalJob
LocalJob([sys.executable, "-c", {JOB!r}, "run"], Path(sys.argv[1]))
time.sleep(60)
"""


@pytest.fixture
def files(tmp_path):
    files = JobFiles(tmp_path / "run")
    files.folder.mkdir(parents=True)
    return files


@pytest.fixture
def log(files):
    return files.log


def python(code):
    return [sys.executable, "-c", code]


def wait_until(happened, seconds=30):
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait_for(word, log):
    wait_until(lambda: log.exists() and word in log.read_text())


def child_of(log):
    """The number of the process that a job has printed."""
    wait_until(lambda: log.exists() and "pids" in log.read_text() and log.read_text().endswith("\n"))
    line = next(line for line in log.read_text().splitlines() if line.startswith("pids"))
    return int(line.split()[1])


def is_alive(pid):
    """Whether a process is there and no zombie."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def kill(pid):
    if is_alive(pid):
        os.kill(pid, signal.SIGKILL)


def test_a_job_runs_writes_its_log_and_ends(log, files):
    log.write_text("an earlier attempt\n")
    with started(
        python("import sys; print('out'); print('err', file=sys.stderr); exit(3)"), files, None
    ) as job:
        wait_until(job.has_ended)
        assert job.how() == "exit status 3"
    assert sorted(log.read_text().splitlines()) == ["an earlier attempt", "err", "out"]


def test_a_job_that_a_signal_ended_says_which(files):
    with started(python("import os; os.kill(os.getpid(), 9)"), files, None) as job:
        wait_until(job.has_ended)
        assert job.how() == "signal SIGKILL"


def test_output_is_in_the_log_at_once(log, files):
    with started(python("import time; print('half'); time.sleep(60)"), files, None) as job:
        wait_for("half", log)
        assert not job.has_ended()


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, UserError])
def test_a_job_does_not_outlive_the_block_nor_does_a_process_it_started(error, log, files):
    def block():
        with started(python(WITH_CHILD), files, None) as job:
            pids.append(child_of(log))
            wait_for("child", log)
            jobs.append(job)
            if error is not None:
                raise error("stopped")

    pids, jobs = [], []
    if error is None:
        block()
    else:
        with pytest.raises(error):
            block()
    assert jobs[0].has_ended() and jobs[0].how() == "signal SIGTERM"
    wait_until(lambda: not is_alive(pids[0]))


def test_a_job_that_does_not_want_to_end_is_killed(log, monkeypatch, files):
    monkeypatch.setattr(processes, "_PATIENCE_SECONDS", 0.2)
    with started(python(STUBBORN), files, None) as job:
        wait_for("ready", log)
    assert job.how() == "signal SIGKILL"


def test_what_a_job_leaves_behind_ends_with_the_block(log, monkeypatch, files):
    monkeypatch.setattr(processes, "_PATIENCE_SECONDS", 0.2)
    with started(python(SURVIVOR), files, None) as job:
        child = child_of(log)
        wait_for("ready", log)
        wait_until(job.has_ended)
    try:
        wait_until(lambda: not is_alive(child), seconds=3)
    finally:
        kill(child)


def test_ending_a_job_twice_is_no_mistake(log):
    job = LocalJob(python("pass"), log)
    for _ in range(2):
        job.end()
    assert job.has_ended()


def test_ctrl_c_in_the_terminal_does_not_reach_the_job(log, files):
    code = "import os; print('pids', os.getpid(), os.getpgid(0), os.getsid(0), flush=True)"
    with started(python(code), files, None) as job:
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


def test_a_job_without_a_command_beside_it_has_no_leash(files):
    """As on a cluster, where the command is on another machine."""
    code = JOB.replace("time.sleep(60)", "time.sleep(2) or SimpleNamespace(kind='finished')")
    code = f"import os; del os.environ['OLR_OPENRLHF_LEASH']\nfrom types import SimpleNamespace\n{code}"
    with started([*python(code), "run"], files, None) as job:
        wait_until(job.has_ended)
        assert job.how() == "exit status 0"


def test_a_log_that_cannot_be_written_is_told(files):
    files.log.mkdir()
    with (
        pytest.raises(UserError, match=r"log\.txt could not be written"),
        started(python("pass"), files, None),
    ):
        pass


def test_the_jobs_command_line():
    assert command(Path("runs/a"), ["--x", "1"], python="python") == [
        *("python", "-m", "olr_cli.engines.openrlhf.job", "runs/a", "--x", "1")
    ]


class Server:
    """A cluster's job server: a job that prints a line whenever it is asked after, and ends when it is told to."""

    def __init__(self, lines=3):
        self.entrypoint, self.log, self.lines, self.stopped = None, "", lines, False

    def submit_job(self, *, entrypoint):
        self.entrypoint = entrypoint
        return "job_1"

    def get_job_logs(self, job):
        self.lines -= 1
        self.log += f"line Ü {self.lines}\n"
        return self.log

    def get_job_status(self, job):
        return SimpleNamespace(is_terminal=lambda: self.stopped or self.lines <= 0)

    def stop_job(self, job):
        self.stopped = True

    def get_job_info(self, job):
        return SimpleNamespace(message="OutOfMemory")


@pytest.fixture
def server(monkeypatch):
    """Ray's client, which reaches `server.server` or nobody, and is asked without a pause."""
    monkeypatch.setattr(processes, "_LOOK_SECONDS", 0)
    monkeypatch.setattr(processes, "_COPY_SECONDS", 0)

    def client(address):
        if found.server is None:
            raise ConnectionError(f"Failed to connect to Ray at address: {address}.\nmore")
        return found.server

    found = SimpleNamespace(server=Server())
    module = ModuleType("ray.job_submission")
    module.JobSubmissionClient = client
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    monkeypatch.setitem(sys.modules, "ray.job_submission", module)
    return found


def test_a_submitted_jobs_output_is_written_as_it_comes(server, log, files):
    words = command(Path("runs/a b"), ["--x", "1 2"])
    with started(words, files, "http://head:8265") as job:
        assert shlex.split(server.server.entrypoint) == ["python", *words[1:]]
        assert not job.has_ended()
        assert log.read_text(encoding="utf-8") == "line Ü 2\n"
        assert not job.has_ended()
        assert not job.has_ended()  # asked before the last output came
        assert log.read_text(encoding="utf-8") == "line Ü 2\nline Ü 1\nline Ü 0\n"
        assert job.has_ended()
        assert job.how() == "job job_1: OutOfMemory"
    assert not server.server.stopped


def test_a_submitted_job_is_stopped_when_nobody_follows_it_any_more(server, files):
    server.server.lines = 10**6
    with pytest.raises(KeyboardInterrupt), started(["python"], files, "http://head:8265"):
        raise KeyboardInterrupt
    assert server.server.stopped


def test_a_cluster_that_cannot_be_reached_is_told(server, files):
    server.server = None
    with pytest.raises(UserError) as refused:
        SubmittedJob("http://head:8265", ["python"], files)
    assert str(refused.value) == (
        "engine.ray_address http://head:8265 has no Ray job server that answers (Failed to connect to Ray at address:"
        " http://head:8265); it is the dashboard's address, by default http://HEAD:8265"
    )


@pytest.mark.parametrize("address", ["auto", "10.0.0.1:6379", None])
def test_without_a_job_server_the_job_is_a_process_here(server, address, log, files):
    with started(python("print('here')"), files, address) as job:
        wait_until(job.has_ended)
    assert server.server.entrypoint is None
    assert log.read_text() == "here\n"


def test_a_silent_job_server_is_borne_with_for_a_while(server, files, monkeypatch):
    with started(["python"], files, "http://head:8265") as job:
        monkeypatch.setattr(job, "_client", SilentClient())
        assert not job.has_ended()
        job._last_heard -= 599
        assert not job.has_ended()
        job._last_heard -= 2
        with pytest.raises(UserError, match=r"has not answered for 10 minutes \(connection refused\)"):
            job.has_ended()


class SilentClient:
    def __getattr__(self, _name):
        return _no_answer


def _no_answer(*_):
    raise ConnectionError("connection refused")


def test_the_job_of_a_command_that_died_is_stopped_before_another_one_starts(server, files):
    files.submission.write_text("job_0")
    stopped = []
    server.server.stop_job = lambda job: (stopped.append(job), setattr(server.server, "stopped", True))
    with started(["python"], files, "http://head:8265"):
        assert stopped == ["job_0"]
        assert files.submission.read_text() == "job_1"
