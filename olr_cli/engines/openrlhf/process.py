"""A job as a process of this machine. Its command ends it, and it ends with its command."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from olr_cli.files import writing

LEASH = "OLR_OPENRLHF_LEASH"
"""The variable with the process id of the command that started the job."""

_SHARED = re.compile(r"(/dev/shm/(?:psm_|sem\.mp-)\w+)$", re.MULTILINE)
"""Shared memory in a process's maps. A deleted file has another word after its name and does not match."""

_PATIENCE_SECONDS = 20
"""Seconds for a job to end after it was asked to; then it is killed."""


def command(run: Path, flags: Sequence[str], python: str = sys.executable) -> list[str]:
    """Return the command line that runs the job of a run directory with OpenRLHF's `flags`.

    `python` is the path of the interpreter.
    """
    return [python, "-m", "olr_cli.engines.openrlhf.job", str(run), *flags]


def path_with_own_programs() -> str:
    """Return PATH with this Python's folder of programs in front, so that torch finds the ninja installed there."""
    return os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    )


@contextmanager
def started(words: Sequence[str], log: Path) -> Iterator[Job]:
    """Start a job with the command line `words`, and yield it. When the block ends, end the job.

    The job's output is appended to `log`. At the end, Ray's session folder and shared memory are removed too.
    """
    job = Job(words, log)
    try:
        yield job
    finally:
        job.end()


class Job:
    """A job as a process of this machine, in a session of its own so that Ctrl-C does not reach it.

    The job starts when the object is made. `words` is its command line, and its output is appended to `log`.
    """

    def __init__(self, words: Sequence[str], log: Path) -> None:
        self._memory: set[Path] = set()
        environment = os.environ | {
            LEASH: str(os.getpid()),
            # The log must show a line when it is printed, or a job that works would seem to hang.
            "PYTHONUNBUFFERED": "1",
            "PATH": path_with_own_programs(),
        }
        with writing(log), log.open("ab") as output:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
            )

    def has_ended(self) -> bool:
        """Return whether the job has ended, for any reason."""
        return self._process.poll() is not None

    def note_memory(self) -> None:
        """Remember which shared memory the job's processes have now, so that `end` can remove it after a kill."""
        self._memory |= shared_memory(
            [*leashed(os.getpid()), *descendants(self._process.pid)]
        )

    def end(self) -> None:
        """End the job and all its processes, and remove Ray's session folder and shared memory.

        The job first gets SIGTERM. If it still runs after 20 seconds, it gets SIGKILL. If the job has ended already,
        only what it has left behind is removed.
        """
        self.note_memory()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.has_ended():
                break
            with suppress(ProcessLookupError):
                # SIGTERM lets Ray end its workers; SIGKILL follows if it does not.
                os.killpg(self._process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE_SECONDS)
        # Ray's workers and their memory outlive the job by some seconds. A resume at once would lack that memory.
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (left := leashed(os.getpid())) and time.monotonic() < deadline:
            time.sleep(0.2)
        _send(signal.SIGKILL, left)
        remove_traces(self._process.pid, self._memory)

    def how(self) -> str:
        """Return how the process ended, in words: its exit status, or the name of the signal that ended it.

        This is for a job that has not recorded its end.
        """
        status = self._process.poll()
        if status is not None and status < 0:
            cause = ", often for want of memory" if -status == signal.SIGKILL else ""
            return f"signal {signal.Signals(-status).name}{cause}"
        return f"exit status {status}"


def descendants(process: int) -> list[int]:
    """Return the ids of a process's living children, of their children, and so on."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone meanwhile
            # The process's name, in parentheses, may contain spaces and parentheses, so split after the last one.
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(entry.name))
    below = children.get(process, [])
    for child in below:  # the loop extends the list that it walks
        below.extend(children.get(child, []))
    return below


def leashed(parent: int) -> list[int]:
    """Return the ids of all living processes of jobs that process `parent` has started on this machine.

    The processes are found by an environment variable that holds the parent's id (`LEASH`). A process that has
    overwritten its environment, to give itself a title, is missed.
    """
    mark, processes = f"{LEASH}={parent}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # ended meanwhile, or another user's
            if (entry / "cmdline").read_bytes() and mark in (
                entry / "environ"
            ).read_bytes().split(b"\0"):
                processes.append(int(entry.name))
    return processes


def shared_memory(processes: Iterable[int]) -> set[Path]:
    """Return the files in /dev/shm that `processes` have mapped: shared memory and semaphores made by Python.

    If a process is killed, Python does not remove its files. The largest, vLLM's queue to its workers, takes 160 MiB.
    """
    files: set[Path] = set()
    for process in processes:
        with suppress(OSError):  # gone meanwhile
            maps = Path(f"/proc/{process}/maps").read_text(errors="replace")
            files.update(map(Path, _SHARED.findall(maps)))
    return files


def temporary_folder() -> Path:
    """Return the folder in which Ray makes its folder ``ray``.

    It is the value of RAY_TMPDIR, or else of TMPDIR, or else /tmp.
    """
    return Path(os.environ.get("RAY_TMPDIR", os.environ.get("TMPDIR", "/tmp")))


def remove_traces(job: int, memory: Iterable[Path]) -> None:
    """Remove what a job has left on this machine: the session folder of its Ray, and files of shared memory.

    `job` is the id of the process that started Ray. `memory` has the files, as `shared_memory` returns them.
    """
    for session in (temporary_folder() / "ray").glob(f"session_*_{job}"):
        shutil.rmtree(session, ignore_errors=True)
    for file in memory:
        with suppress(OSError):
            file.unlink()


def _send(number: signal.Signals, processes: Iterable[int]) -> None:
    """Send the signal `number` to processes by id, and skip those that are gone."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def end_with(parent: int) -> None:
    """Start a thread that ends this process and its Ray once the process `parent`, which started this one, is gone."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        # Some of Ray's processes do not notice that their driver is gone, so kill them one by one. Stop them first: no
        # step may go on while their memory is looked up.
        processes = descendants(os.getpid())
        _send(signal.SIGSTOP, processes)
        memory = shared_memory(processes)
        _send(signal.SIGKILL, processes)
        remove_traces(os.getpid(), memory)
        # sys.exit would end only this thread.
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
