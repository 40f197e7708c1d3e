"""The processes that read and verify what needs computer algebra (R8); `pool` talks to them.

A server imports and warms up the parser once, and then forks a worker for every socket that it is sent. A worker gets
lines of JSON, ``[seconds, calls, *task]``, and answers each with the result of `matching.decide`. After so many
seconds of processor time the system kills the worker: a busy machine, a slow disk or Ctrl-Z takes nothing from a task,
and a worker whose parent is gone ends too. After so many calls of Python functions, unless it is 0, it gives up.
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
from collections.abc import Callable, Iterable
from itertools import islice

from olr_cli.answers.matching import decide
from olr_cli.answers.reading import read

SPENT = "spent"
"""The reply of a worker that gives up, and ends."""

_MEMORY = 2 << 30
_MOST_TASKS = 5000
"""Tasks after which a worker is replaced: the parser's cache grows with every new form."""
_ALLOCATIONS_A_COLLECTION = 50_000
"""The parser allocates so much that looking for cycles at the usual rate takes a tenth of its time."""

WARM_UP = (  # what the parser learns from a few typical answers makes the next hundreds several times faster
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


def main(warm_up: Iterable[str] = WARM_UP) -> None:
    """Read the answers `warm_up`; then fork a worker for every socket that comes through standard input, a socket too.

    It ends with its standard input.
    """
    # The terminal sends the first two to all, and they are the parent's business; nobody waits for a worker.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):  # not every system can limit it
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    sys.set_int_max_str_digits(0)

    from olr_cli.answers.algebra import leaf

    for answer in warm_up:
        read(answer, leaf)
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_A_COLLECTION)

    with socket.socket(fileno=os.dup(0)) as parent:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        while True:
            _, files, *_ = socket.recv_fds(parent, 1, 1)
            if not files:
                break
            if os.fork() == 0:
                parent.close()
                _work(files[0])
            os.close(files[0])
    os._exit(0)  # there is nothing to tidy up, which would take longer than all of this


def _work(file: int) -> None:
    """Answer requests until there are no more; end the process."""
    from olr_cli.answers.algebra import clear_caches, leaf, math_verify_proof, proof

    try:
        with socket.socket(fileno=file) as parent:
            parent.sendall(b"%d\n" % os.getpid())  # it is ready
            for line in islice(parent.makefile("rb"), _MOST_TASKS):
                seconds, calls, *task = json.loads(line)
                clear_caches()  # or the calls of a task would depend on the tasks before it
                signal.setitimer(signal.ITIMER_PROF, seconds)
                sys.settrace(_counter(calls, parent) if calls else None)
                reply = decide(
                    *task, leaf=leaf, proof=proof, math_verify_proof=math_verify_proof
                )
                sys.settrace(None)
                signal.setitimer(signal.ITIMER_PROF, 0)
                parent.sendall(json.dumps(reply).encode("ascii") + b"\n")
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _counter(calls: int, parent: socket.socket) -> Callable[..., None]:
    """A trace function that ends the worker after this many calls of Python functions."""
    left = iter(range(calls))

    def count(*_: object) -> None:
        if next(left, None) is None:  # not an exception, which `algebra` would catch
            parent.sendall(json.dumps(SPENT).encode("ascii") + b"\n")
            os._exit(0)

    return count
