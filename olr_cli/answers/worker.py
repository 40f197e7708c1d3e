"""Processes that read and verify answers, one line of JSON in, one out; killed at will.

`pool` starts one process with this program. It imports and warms up the parser once, and then forks a worker whenever
it is asked to, which takes milliseconds. Requests to a worker: ``["read", answer]``, answered by a form or null, and
``["same", a, b]``, answered by true, false or null. The last line out may be ``"retired"``, from a worker that has
grown too large. A worker ends with its input, and even if whoever started it is gone and a request never returns, an
alarm ends it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

_MEMORY = 2 << 30
_GROWTH_TO_RETIRE = 256 << 20
"""The parser's caches grow with the variety of what it has read."""

RETIRED = "retired"
START = b"start"
"""Asks for a worker; the file descriptors of its input and output come along. Answered by its process id."""
END = b"end "
"""Followed by the process id of a worker to be killed. Answered when it is gone."""

_STATUS = Path("/proc/self/statm")
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
_ALLOCATIONS_A_COLLECTION = 50_000
"""The parser allocates so much that looking for cycles at the usual rate takes a tenth of its time."""

_WARM_UP = (  # what the parser learns from a few typical answers makes the next hundreds several times faster
    r"-\frac{2 \sqrt{3} + \pi x^{2}}{4 n}",
    r"y = 3 x^2 - \frac{x}{2} + 1",
    r"(x+1)(y-2)",
    r"(-\infty, -\sqrt{2}) \cup [0, \frac{\pi}{3}]",
    r"\left( 2 \sqrt{5}, \frac{a}{b} \right)",
    r"\{1 \pm \sqrt{5}, -2\}",
    r"\begin{pmatrix} -1 & 0 \\ 1/3 & x \end{pmatrix}",
    r"2^{n-1} + \binom{n}{2}",
)


def main(time_limit: float) -> None:
    """Fork workers, each request to which should take at most `time_limit` seconds, as standard input asks.

    Standard input is a socket; when it ends, so do the workers.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):  # not every system can limit it
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    sys.set_int_max_str_digits(0)

    from olr_cli.answers import equivalence

    for answer in _WARM_UP:
        equivalence.read(answer)
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_A_COLLECTION)

    workers: set[int] = set()
    with socket.socket(fileno=os.dup(0)) as parent:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        while True:
            request, files, *_ = socket.recv_fds(parent, 64, 2)
            if not request:
                break
            if request == START:
                worker = _fork(parent, files, time_limit)
                workers.add(worker)
                parent.sendall(b"%d\n" % worker)
            else:
                _kill(int(request.removeprefix(END)), workers)
                parent.sendall(b"\n")
    for worker in list(workers):
        _kill(worker, workers)
    os._exit(0)  # there is nothing to tidy up, which would take longer than all of this


def _fork(parent: socket.socket, files: list[int], time_limit: float) -> int:
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
        _serve(requests, replies, time_limit)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _kill(worker: int, workers: set[int]) -> None:
    """End a worker, unless that is done: its number may be another process's by now."""
    if worker in workers:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)
        workers.remove(worker)


def _serve(requests: int, replies: int, time_limit: float) -> None:
    """Answer requests until there are no more."""
    from olr_cli.answers import equivalence
    from olr_cli.answers.forms import to_json

    memory, output = _memory(), os.fdopen(replies, "wb", buffering=0)

    def say(reply: Any) -> None:
        output.write(json.dumps(reply).encode("ascii") + b"\n")

    for line in os.fdopen(requests, "rb"):
        signal.setitimer(signal.ITIMER_REAL, 2 * time_limit + 1)  # left at its default, the signal kills
        request = json.loads(line)
        reply: Any
        if request[0] == "read":
            form = equivalence.read(request[1])
            reply = None if form is None else to_json(form)
        else:
            reply = equivalence.same(request[1], request[2])
        signal.setitimer(signal.ITIMER_REAL, 0)
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
