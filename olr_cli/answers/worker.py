"""Worker processes for answers that need computer algebra (R8); `pool` talks to them.

A server imports and warms up the parser once, and then forks a worker for every socket that it is sent. A worker reads
lines of JSON, ``[seconds, calls, *task]``, and answers each with the result of `matching.decide`.

Two limits apply to a task. After `seconds` of processor time the system kills the worker, even if its parent is gone.
It is processor time, so that a busy machine, a slow disk or Ctrl-Z does not shorten a task. After `calls` calls of
Python functions, unless that is 0, the worker replies that it gives up, and exits.
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
"""Reply of a worker whose calls are used up; it exits after sending it."""

_MEMORY = 2 << 30
"""Most memory of a worker, in bytes."""
_MOST_TASKS = 5000
"""Number of tasks after which a worker is replaced: the parser's cache grows with every new form."""
_ALLOCATIONS_A_COLLECTION = 50_000
"""Number of allocations between two garbage collections: at Python's default, they take a tenth of the parser's
time."""

# ANTLR caches its predictions. After these typical answers, the server's workers parse the next hundreds several times
# faster.
WARM_UP = (
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
    """Run the server of the workers.

    Warm up the parser, then fork a worker for every socket received through standard input. Standard input is a socket,
    too. The server ends when that socket is closed.

    Args:
        warm_up: answers that are read before the first fork.
    """
    # The terminal sends SIGINT and SIGHUP to all processes, but the parent decides when a worker ends. Ignoring SIGCHLD
    # lets the system remove finished workers, for which nobody waits.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Not every system can limit the address space.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    sys.set_int_max_str_digits(0)

    from olr_cli.answers.algebra import leaf

    for answer in warm_up:
        read(answer, leaf)
    # Without this, the first collection in each worker would copy the parser's memory pages.
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
    # Skip Python's cleanup of the modules: it takes longer than everything else and has nothing to save.
    os._exit(0)


def _work(file: int) -> None:
    """Answer the requests that come through a socket until the parent closes it, then end the process.

    The process also ends after 5,000 tasks, or after an error.

    Args:
        file: descriptor of the socket.
    """
    from olr_cli.answers.algebra import clear_caches, leaf, math_verify_proof, proof

    try:
        with socket.socket(fileno=file) as parent:
            # This tells the parent that the worker is ready.
            parent.sendall(b"%d\n" % os.getpid())
            for line in islice(parent.makefile("rb"), _MOST_TASKS):
                seconds, calls, *task = json.loads(line)
                # Otherwise the number of calls of a task would depend on the tasks before it.
                clear_caches()
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
    """Return a function for `sys.settrace` that ends the worker after `calls` calls of Python functions.

    Before the worker ends, it sends the reply `SPENT` to its parent.
    """
    calls_left = iter(range(calls))

    def count(*_: object) -> None:
        if next(calls_left, None) is None:
            # Exit at once instead of raising: `algebra` would catch an exception and take it for a failed parse.
            parent.sendall(json.dumps(SPENT).encode("ascii") + b"\n")
            os._exit(0)

    return count
