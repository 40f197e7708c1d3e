"""Texts that a stranger's program makes, computed in a fork of this process with limits on time and memory."""

from __future__ import annotations

import json
import os
import resource
import signal
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from olr_cli.errors import UserError


class LimitExceeded(Exception):
    """The limit that was exceeded, as a quantity with its unit."""


def limited(texts: Iterable[str], *, seconds: float, memory: int, most_bytes: int) -> Iterator[str]:
    """`texts`, made in a fork of this process.

    Only processor time counts, so Ctrl-Z and a busy machine take nothing from the limit. A fork has what `texts` needs
    already in memory; it must use neither torch nor other threads. Where the system has no memory for a fork, the texts
    are made in this process, without limits.

    Args:
        texts: is iterated over in the fork alone.
        seconds: of processor time for all texts.
        memory: bytes that may be allocated beyond what this process has.
        most_bytes: that all texts together may take, as JSON.

    Raises:
        LimitExceeded: the fork took more.
        UserError: iterating over the texts raised it.
    """
    replies, its_replies = os.pipe()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which the fork does not use
            process = os.fork()
    except OSError:
        os.close(replies)
        os.close(its_replies)
        try:
            yield from texts
        except MemoryError:
            raise LimitExceeded("the memory of this machine") from None
        return
    if process == 0:
        _reply(texts, its_replies, seconds, memory)  # does not return
    os.close(its_replies)
    is_complete, size = False, 0
    try:
        with os.fdopen(replies, "rb") as lines:
            for line in lines:
                kind, text = json.loads(line)
                if kind == "text":
                    size += len(line)
                    if size > most_bytes:
                        raise LimitExceeded(f"{most_bytes >> 20:,} MiB of text")
                    yield text
                elif kind == "refused":
                    raise UserError(text)
                elif kind == "memory":
                    raise LimitExceeded(f"{memory >> 30} GiB of memory")
                else:
                    is_complete = True
    finally:
        if not is_complete:
            os.kill(process, signal.SIGKILL)  # it may be ended already, and is not waited for yet
        _, status = os.waitpid(process, 0)
    if not is_complete:
        ended_by_time = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF
        raise LimitExceeded(
            f"{seconds:.3g} s of processor time" if ended_by_time else "the memory of this machine"
        )


def _reply(texts: Iterable[str], replies: int, seconds: float, memory: int) -> NoReturn:
    """In the fork: write the texts, a line of JSON each, and end the process."""
    try:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        with suppress(ValueError, OSError):  # not every system can limit it
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            most = pages * resource.getpagesize() + memory
            resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
        with os.fdopen(replies, "wb") as output:

            def write(kind: str, text: str) -> None:
                output.write(json.dumps([kind, text]).encode("ascii") + b"\n")

            try:
                for text in texts:
                    write("text", text)
                write("complete", "")
            except UserError as error:
                write("refused", str(error))
            except MemoryError:
                write("memory", "")
    finally:
        os._exit(0)  # nothing of this process is tidied up twice
