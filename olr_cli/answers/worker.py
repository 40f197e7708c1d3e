"""Worker processes that read and verify answers (R8): started in milliseconds, ended at will.

A `Nursery` starts one process, which imports and warms up the parser once and then forks a worker whenever it is asked
to. Requests and replies are lines of JSON in pipes, so workers work from any thread, in Ray actors and in daemonic
processes. A request is ``[limit, *task]``, its reply what `matching.decide` says of the task. The last line out may be
``"retired"``, from a worker that has grown too large. A worker ends with its input.

`limit` is the processor time that a request may take, in seconds; then the system kills the worker. So a busy machine,
a slow disk or Ctrl-Z takes nothing from a request, and a worker whose parent is gone ends too.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections import deque
from pathlib import Path
from typing import Any

from olr_cli.answers.matching import decide
from olr_cli.answers.reading import read

RETIRED = "retired"
TIMED_OUT = signal.SIGPROF
"""The signal that ends a worker whose request has used up its time."""

_START = b"start"
"""Asks for a worker; the file descriptors of its input and output come along. Answered by its process id."""
_END = b"end "
"""Followed by the process id of a worker to be killed. Answered by the signal that ended it, when it is gone."""

_PROGRAM = """\
import sys
if {root!r} not in sys.path:
    sys.path.insert(0, {root!r})  # this olr, whichever is installed too
from olr_cli.answers import worker
worker.main()
"""
_START_LIMIT = 120.0

_MEMORY = 2 << 30
_GROWTH_TO_RETIRE = 256 << 20
"""The parser's caches grow with the variety of what it has read."""
_STATUS = Path("/proc/self/statm")
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
_ALLOCATIONS_A_COLLECTION = 50_000
"""The parser allocates so much that looking for cycles at the usual rate takes a tenth of its time."""

_WARM_UP = (  # what the parser learns from a few typical answers makes the next hundreds several times faster
    r"-\frac{2 \sqrt{3} + \pi x^{2}}{4 n}",
    r"2y = 3 x^2 - \frac{x}{2} + 1",
    r"2 < x \le 3",
    r"(x+1)(y-2)",
    r"(-\infty, -\sqrt{2}) \cup [0, \frac{\pi}{3}]",
    r"\left( 2 \sqrt{5}, \frac{a}{b} \right)",
    r"\{1 \pm \sqrt{5}, -2\}",
    r"\begin{pmatrix} -1 & 0 \\ 1/3 & x \end{pmatrix}",
    r"2^{n-1} + \binom{n}{2}",
)

# The parent's side


class Lost(Exception):
    """The process that starts the workers is gone or doesn't answer; what it wrote last."""


class Nursery:
    """The process that starts workers."""

    def __init__(self) -> None:
        program = _PROGRAM.format(root=str(Path(__file__).resolve().parents[2]))
        self._owner = os.getpid()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._socket, its_end = socket.socketpair()
        self._socket.settimeout(_START_LIMIT)
        with its_end:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", program],  # -P: nothing in the current folder is imported
                stdin=its_end.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                # A fixed hash seed: the order of sympy's sets must not make a run differ from its repetition.
                env={**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
            )

    def is_mine(self) -> bool:
        """Whether this process started it, and not one that it was forked from."""
        return self._owner == os.getpid()

    def start(self) -> Worker:
        """A new worker.

        Raises:
            Lost: there can't be one.
        """
        its_requests, requests = os.pipe()
        replies, its_replies = os.pipe()
        try:
            process_id = int(self._ask(_START, [its_requests, its_replies]))
        except BaseException:
            os.close(requests)
            os.close(replies)
            raise
        finally:
            os.close(its_requests)
            os.close(its_replies)
        return Worker(self, process_id, requests, replies)

    def end(self, process_id: int) -> int:
        """Kill a worker, whatever it does; another process's is left alone.

        Returns:
            The signal that ended it; 0 where that is not known.
        """
        if self.is_mine():
            with contextlib.suppress(Lost):  # then it ends with its input, or with its time
                return int(self._ask(_END + b"%d" % process_id))
        return 0

    def close(self) -> None:
        """End the process, once its workers are ended; of another process's, only what was inherited of it."""
        self._socket.close()
        if self.is_mine():
            self._process.kill()  # it may be starting yet; a worker it started meanwhile ends with its input
            self._process.wait()
        self._errors.close()

    def _ask(self, request: bytes, files: list[int] | None = None) -> bytes:
        try:
            socket.send_fds(self._socket, [request], files or [])
            reply = self._socket.recv(64)
        except OSError as error:
            raise Lost(self._last_words() or str(error)) from None
        if not reply:
            raise Lost(self._last_words() or "no reason given")
        return reply

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace").strip()[-2000:]


class Worker:
    """A process and the tasks it holds.

    Attributes:
        tasks: unanswered, in order; it works on the first.
    """

    def __init__(self, nursery: Nursery, process_id: int, requests: int, replies: int) -> None:
        self.process_id = process_id
        self.input, self.output = requests, replies
        for file in (requests, replies):
            os.set_blocking(file, False)
        self.tasks: deque[int] = deque()
        self.outbox = bytearray()
        self.inbox = bytearray()
        self._nursery = nursery

    def end(self) -> int:
        """Kill the process, whatever it does, and free everything of it. Returns the signal that ended it, or 0."""
        ended_by = self._nursery.end(self.process_id)
        os.close(self.input)
        os.close(self.output)
        return ended_by


# The nursery's and the workers' side


def main() -> None:
    """Fork workers, as standard input asks, which is a socket; when it ends, so do the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):  # not every system can limit it
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    sys.set_int_max_str_digits(0)

    from olr_cli.answers.algebra import leaf

    for answer in _WARM_UP:
        read(answer, leaf)
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_A_COLLECTION)

    workers: set[int] = set()
    with socket.socket(fileno=os.dup(0)) as parent:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        while True:
            request, files, *_ = socket.recv_fds(parent, 64, 2)
            if not request:
                break
            if request == _START:
                worker = _fork(parent, files)
                workers.add(worker)
                parent.sendall(b"%d\n" % worker)
            else:
                parent.sendall(b"%d\n" % _kill(int(request.removeprefix(_END)), workers))
    for worker in list(workers):
        _kill(worker, workers)
    os._exit(0)  # there is nothing to tidy up, which would take longer than all of this


def _fork(parent: socket.socket, files: list[int]) -> int:
    """The process id of a new worker, which reads from the first of two files and writes to the second."""
    worker = os.fork()
    if worker:
        for file in files:
            os.close(file)
        return worker
    status = 1
    try:
        parent.close()
        requests, replies = files
        _serve(requests, replies)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _kill(worker: int, workers: set[int]) -> int:
    """End a worker, unless that is done: its number may be another process's by now. Returns the signal that did it."""
    if worker not in workers:
        return 0
    os.kill(worker, signal.SIGKILL)
    _, status = os.waitpid(worker, 0)
    workers.remove(worker)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def _serve(requests: int, replies: int) -> None:
    """Answer requests until there are no more."""
    from olr_cli.answers.algebra import leaf, proof

    memory, output = _memory(), os.fdopen(replies, "wb", buffering=0)

    def say(reply: Any) -> None:
        output.write(json.dumps(reply).encode("ascii") + b"\n")

    signal.signal(TIMED_OUT, signal.SIG_DFL)
    for line in os.fdopen(requests, "rb"):
        limit, *task = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, limit)
        reply = decide(*task, leaf=leaf, proof=proof)
        signal.setitimer(signal.ITIMER_PROF, 0)
        say(reply)
        if _memory() - memory > _GROWTH_TO_RETIRE:
            say(RETIRED)
            return


def _memory() -> int:
    """Bytes of memory this process occupies; where the system doesn't tell, the most that it ever did.

    A peak starts at that of the process it was forked from, so that only the growth of either means anything.
    """
    if _STATUS.exists():
        return int(_STATUS.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT
