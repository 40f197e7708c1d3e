"""A job as its command sees it: a process on this machine, or a job of a Ray cluster."""

from __future__ import annotations

import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from olr_cli.engines.openrlhf.files import JobFiles
from olr_cli.engines.openrlhf.flags import submits
from olr_cli.engines.openrlhf.job import LEASH, leashed
from olr_cli.errors import UserError, first_line
from olr_cli.files import write_text, writing

_LOOK_SECONDS, _COPY_SECONDS = 1, 10
"""Between two looks at a submitted job, and between two copies of its log, which comes whole each time."""

_SILENCE_SECONDS = 600
"""Of a job server, before it is given up."""

_PATIENCE_SECONDS = 20
"""For a job to end after it was asked to; then it is killed."""


def command(run: Path, flags: Sequence[str], python: str = sys.executable) -> list[str]:
    """The command line of the job."""
    return [python, "-m", "olr_cli.engines.openrlhf.job", str(run), *flags]


@contextmanager
def started(
    words: Sequence[str], files: JobFiles, ray_address: str | None
) -> Iterator[LocalJob | SubmittedJob]:
    """The job of this command line, whose output is appended to the run's log; it does not outlive the block.

    It is a process here, or, where the address is that of a cluster's job server, submitted to that.

    Raises:
        UserError: the cluster cannot be reached.
    """
    is_submitted = ray_address is not None and submits(ray_address)
    job = SubmittedJob(str(ray_address), words, files) if is_submitted else LocalJob(words, files.log)
    try:
        yield job
    finally:
        job.end()


class LocalJob:
    """A process of this machine, with a session of its own: Ctrl-C does not reach it.

    `has_ended` says whether it has, however; `end` ends it now; `how` says how it ended, if it left no outcome.
    """

    def __init__(self, words: Sequence[str], log: Path) -> None:
        environment = os.environ | {LEASH: str(os.getpid()), "PYTHONUNBUFFERED": "1"}
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
        return self._process.poll() is not None

    def end(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.has_ended():
                break
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE_SECONDS)
        # Ray's workers outlive the job by some seconds, with their memory; whoever resumes at once would miss it.
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (left := leashed(os.getpid())) and time.monotonic() < deadline:
            time.sleep(0.2)
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def how(self) -> str:
        status = self._process.poll()
        if status is not None and status < 0:
            return f"signal {signal.Signals(-status).name}"
        return f"exit status {status}"


class SubmittedJob:
    """A job that a cluster's job server runs; the run directory must be on a file system that both share."""

    def __init__(self, address: str, words: Sequence[str], files: JobFiles) -> None:
        from ray.job_submission import JobSubmissionClient

        self._log, self._written, self._last_heard = files.log, 0, time.monotonic()
        self._looked = self._copied = -math.inf
        try:
            self._client = JobSubmissionClient(address)
            self._end_predecessor(files.submission)
            self._id = self._submitted(shlex.join(["python", *words[1:]]))
        except Exception as error:
            raise UserError(
                f"engine.ray_address {address} has no Ray job server that answers ({first_line(error)}); it is the"
                " dashboard's address, by default http://HEAD:8265"
            ) from None

        write_text(files.submission, self._id)

    def _submitted(self, entrypoint: str) -> str:
        """The job's id; a cluster that has just been started takes no jobs for a while."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return str(self._client.submit_job(entrypoint=entrypoint))
            except RuntimeError as error:
                if "No available agent" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(1)

    def _end_predecessor(self, submission: Path) -> None:
        """Stop the job of an earlier command that died without doing so."""
        if submission.exists():
            self._id = submission.read_text(encoding="utf-8")
            self._stop()

    def _stop(self) -> None:
        with suppress(Exception):  # of a server that does not know the job, or is gone
            if self._client.get_job_status(self._id).is_terminal():
                return
            self._client.stop_job(self._id)
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while not self._client.get_job_status(self._id).is_terminal() and time.monotonic() < deadline:
                time.sleep(0.5)

    def has_ended(self) -> bool:
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return False
        self._looked = now
        try:
            ended = self._client.get_job_status(self._id).is_terminal()
            if not ended and now - self._copied < _COPY_SECONDS:
                self._last_heard = now
                return False
            text = self._client.get_job_logs(self._id)  # after the status: nothing is printed after the end
        except Exception as error:  # the head node may be busy, or gone for a moment
            if time.monotonic() - self._last_heard > _SILENCE_SECONDS:
                raise UserError(
                    f"Ray's job server has not answered for {_SILENCE_SECONDS // 60} minutes ({first_line(error)}); job"
                    f" {self._id} may still run: look with `ray job status`, and go on with --resume when it has ended"
                ) from None
            return False
        self._last_heard = self._copied = time.monotonic()
        with writing(self._log), self._log.open("a", encoding="utf-8") as output:
            output.write(text[self._written :])
        self._written = len(text)
        return bool(ended)

    def end(self) -> None:
        self._stop()

    def how(self) -> str:
        return f"job {self._id}: {self._client.get_job_info(self._id).message or 'no message'}"
