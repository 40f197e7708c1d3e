"""How a job ended: turn its error, its dead processes and its log into a sentence for the user, or a bug."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from olr_cli.engines.openrlhf.job_files import JobEnd, JobStopped
from olr_cli.engines.run import Diverged
from olr_cli.errors import UserError, first_line
from olr_cli.files import disk_problem

_DEATHS = {"RayActorError", "WorkerCrashedError", "EngineDeadError"}
"""Exceptions of Ray and vLLM after the death of a process."""

_LOST_RANK = ("Connection closed by peer", "Connection reset by peer", "ncclRemoteError")
"""Messages of Gloo and NCCL in the other ranks after the death of one; they may precede Ray's message."""

_VLLM_START = "Engine core initialization failed"
"""vLLM's message if the process that holds the model did not start."""

_LINES_OF_AN_END = 300
"""Lines of a process in which to look for its end: vLLM passes an exception on three times, each with a traceback."""

_LOST_RAY = (
    "Raylet is terminated. Termination is unexpected",
    "has been marked dead because the detector",
)
"""Ray's messages about a node on which Ray no longer runs. The second comes 10 seconds after the processes end."""

_MESSENGERS = ("raised in creation task", "EngineDeadError", "RuntimeError: cancelled")
"""Parts of exceptions of Ray and vLLM that only report the failure of something else."""

_KILLED_PROCESS = re.compile(
    r"(?P<name>\S+) died unexpectedly \(exit code: (?P<code>-\d+|None)\)"
)
"""vLLM's message about one of its processes that a signal has ended; None: the process has only just ended."""

_LINE_OF_PROCESS = re.compile(r"\(\w+ pid=(?P<process>\d+)[^)]*\) (?P<said>\S.*)")
"""A line of Ray's log: `(PolicyActor pid=4242) words of the process`."""

_EXCEPTION = re.compile(
    r"(?:\(\w+ pid=\d+\) )?(?:ERROR [^]]+\] )?(?P<said>[\w.]*(?:Error|Exception)\b.*)"
)
"""The line of an exception: `(EngineCore pid=4242) ERROR 11-28 12:00:00 [core.py:1] ValueError: too long`."""

_COLOUR = re.compile(r"\x1b\[[\d;]*m")


class Process(NamedTuple):
    """A process of the job: the name of its Ray actor class or task, and its process id on its node."""

    name: str
    number: int


def end_of(error: BaseException, dead: Sequence[Process] = (), log: str = "") -> JobEnd:
    """Classify the error that ended a job, and explain it in a sentence for the user.

    Args:
        error: the exception that ended the job; Ray may have wrapped it.
        dead: Ray actors of the job that have died, the first death first.
        log: what the job has printed. It is searched for the last lines of a dead process.
    """
    cause = cause_of(error)
    match cause:
        case JobStopped():
            return JobEnd("stopped")
        case Diverged():
            return JobEnd("diverged", str(cause))
        case UserError():
            return JobEnd("user", str(cause))
    # Look for a death first: the errors of all other processes, about a connection or a file, follow from it.
    if death := _death(cause, error, dead, log):
        return JobEnd("worker", death)
    if lack := _lack(cause, error):
        return JobEnd("user", lack)
    return JobEnd("bug", f"{type(cause).__name__}: {first_line(cause)}")


def _death(
    cause: BaseException, error: BaseException, dead: Sequence[Process], log: str
) -> str | None:
    """Return a sentence about the process whose death ended the job, or None if no process died.

    `error` is the exception that ended the job, and `cause` is the original exception that Ray may have wrapped in it.
    `dead` are the job's Ray actors that have died, the first death first. `log` is the job's output.
    """
    from ray.exceptions import OutOfMemoryError

    if isinstance(cause, OutOfMemoryError):
        return (
            f"a node's own memory, not a GPU's, was nearly full, and Ray ended a process ({first_line(cause)}); end"
            " what else runs there, or give the job a node with more memory"
        )
    is_death = _DEATHS & {kind.__name__ for kind in type(cause).__mro__}
    signs = (*_LOST_RANK, _VLLM_START)
    if not (dead or is_death or any(words in str(cause) for words in signs)):
        return None
    # Read only the end of the log: over days, a cluster may have lost nodes that were not the job's.
    if any(words in log[-200_000:] for words in _LOST_RAY):
        return "Ray's own process on a node (raylet) died, often for want of memory, and the job's processes there too"
    process = dead[0] if dead else _process_in(str(error))
    if process is None:
        return f"a process of the job died, often for want of memory: {first_line(cause)}"
    return _last_words(process, str(error), log)


def _lack(cause: BaseException, error: BaseException) -> str | None:
    """Return a sentence if the job ran out of GPU memory or could not write to a disk; None for other causes.

    `error` is the exception that ended the job, and `cause` is the original exception that Ray may have wrapped in it.
    """
    if "OutOfMemoryError" in type(cause).__name__ or "out of memory" in str(cause):
        return (
            f"a GPU ran out of memory ({first_line(cause)}); lower engine.micro_batch_samples if it was the update, and"
            " engine.vllm_memory if it was vLLM"
        )
    # The outer error holds the text of the exceptions before it.
    if problem := disk_problem(cause) or disk_problem(error):
        return f"something could not be written ({first_line(cause)}): {problem}"
    return None


def cause_of(error: BaseException) -> BaseException:
    """Return the exception inside Ray's wrappers, which may be nested, or `error` itself if it is not wrapped."""
    from ray.exceptions import RayTaskError

    while isinstance(error, RayTaskError) and isinstance(error.cause, BaseException):
        error = error.cause
    return error


def _process_in(text: str) -> Process | None:
    """Return the process in which a Ray error arose, read from the error's text; None if the text names no process.

    If other processes passed the error on, the text names them first, so the last process in the text is returned.
    """
    matches = re.findall(
        r"class_name: (\w+).*?pid: (\d+)|ray::(\w+)\S* \(pid=(\d+)", text, re.DOTALL
    )
    if not matches:
        return None
    actor, actor_number, task, task_number = matches[-1]
    return Process(actor or task, int(actor_number or task_number))


def _last_words(died: Process, text: str, log: str) -> str:
    """Return a sentence that explains why a process died, from the last 300 lines that it printed.

    The first of these that is found decides:

    1. A message that one of vLLM's processes was killed. The sentence says so.
    2. An exception that does not merely report another failure, as some of Ray and vLLM do. The sentence quotes the
       first such exception. For a `UserError`, the sentence is the exception's message alone.
    3. Any line that is not a warning. The sentence says that the process was killed, and quotes the last such line.

    If nothing was printed, the sentence only says that the process was killed.

    Args:
        died: the process that died.
        text: the text of the error that ended the job. It is only searched for a message that vLLM did not start.
        log: the job's output.
    """
    printed = _printed_by(died, log)[-_LINES_OF_AN_END:]
    exceptions = [raised["said"] for raised in map(_EXCEPTION.match, printed) if raised]
    causes = [
        said for said in exceptions if not any(words in said for words in _MESSENGERS)
    ]
    who = f"{died.name} (process {died.number})"
    if any(_VLLM_START in sentence for sentence in (text, *exceptions)):
        who = f"vLLM did not start, often for too high or low an engine.vllm_memory: {who}"
    if killed := _killed_in_vllm(printed, has_cause=bool(causes)):
        return f"vLLM's process {killed} was killed, often for want of memory"
    if causes:
        _, is_users, sentence = causes[0].partition("UserError: ")
        if is_users:  # raised while an actor was made: Ray has kept only its text
            return sentence
        return f"{who} died of {causes[0][:300].rstrip('.')}"
    words = [line for line in printed if "warning" not in line.lower()]
    last = f"; its last line: {words[-1][:300]}" if words else ""
    return f"{who} was killed, often for want of memory{last}"


def _killed_in_vllm(printed: Sequence[str], *, has_cause: bool) -> str | None:
    """Return the name of the vLLM process that was killed, or None if vLLM reports no such process.

    A report that gives the process's exit code always counts. Other reports of a death count only if `has_cause` is
    False.

    Args:
        printed: lines that the parent of vLLM's processes printed.
        has_cause: whether an exception among the lines may explain the death.
    """
    for killed in filter(None, map(_KILLED_PROCESS.search, printed)):
        if killed["code"] != "None" or not has_cause:
            return killed["name"]
    return (
        "EngineCore"
        if not has_cause and any("EngineDeadError" in line for line in printed)
        else None
    )


def _printed_by(process: Process, log: str) -> list[str]:
    """Return the lines that one process of the job printed to Ray's log, without colours and without Ray's prefix."""
    lines = map(_LINE_OF_PROCESS.match, _COLOUR.sub("", log).splitlines())
    return [
        line["said"] for line in lines if line and int(line["process"]) == process.number
    ]
