"""Processes that read and verify answers, one line of JSON in, one out; killed at will.

`pool` starts one process with this program. It imports and warms up the parser once, and then forks a worker whenever
it is asked to, which takes milliseconds. Requests to a worker: ``[limit, "key", answer]``, answered by the key of its
class, and ``[limit, "matches", gold, answer]``, answered by true, false or null. The last line out may be
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
"""Followed by the process id of a worker to be killed. Answered by the signal that ended it, when it is gone."""
TIMED_OUT = signal.SIGPROF
"""The signal that ends a worker whose request has used up its time."""

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


def main() -> None:
    """Fork workers, as standard input asks, which is a socket; when it ends, so do the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):  # not every system can limit it
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    sys.set_int_max_str_digits(0)

    from olr_cli.answers.algebra import leaf
    from olr_cli.answers.reading import read

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
            if request == START:
                worker = _fork(parent, files)
                workers.add(worker)
                parent.sendall(b"%d\n" % worker)
            else:
                parent.sendall(b"%d\n" % _kill(int(request.removeprefix(END)), workers))
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
    from olr_cli.answers.matching import matches
    from olr_cli.answers.reading import read

    memory, output = _memory(), os.fdopen(replies, "wb", buffering=0)

    def say(reply: Any) -> None:
        output.write(json.dumps(reply).encode("ascii") + b"\n")

    signal.signal(TIMED_OUT, signal.SIG_DFL)
    for line in os.fdopen(requests, "rb"):
        limit, kind, *texts = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, limit)
        reply: Any = read(texts[0], leaf).key if kind == "key" else matches(texts[0], texts[1], leaf, proof)
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
