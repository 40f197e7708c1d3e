"""A process that reads and verifies answers, one line of JSON in, one out; started by `pool`, killed at will.

Requests: ``["read", answer]``, answered by a form or null, and ``["same", a, b]``, answered by true or false. The
first line out is ``"ready"``; the last may be ``"retired"``, from a process that has grown too large. The process
ends with its standard input, and even if whoever started it is gone and a request never returns, an alarm ends it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

_MEMORY = 2 << 30
_GROWTH_TO_RETIRE = 1 << 30
"""The parser's caches grow with the variety of what it has read; a fresh process takes half a second."""

RETIRED = "retired"

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
    """Answer requests, each of which should take at most `time_limit` seconds, until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):  # not every system can limit it
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    sys.set_int_max_str_digits(0)
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a library prints is no reply

    from olr_cli.answers import equivalence
    from olr_cli.answers.forms import to_json

    for answer in _WARM_UP:
        equivalence.read(answer)
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_A_COLLECTION)
    memory = _memory()

    def say(reply: Any) -> None:
        replies.write(json.dumps(reply).encode("ascii") + b"\n")

    say("ready")
    for line in sys.stdin.buffer:
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

    A peak starts at that of the process it was started from, so that only the growth of either means anything.
    """
    if _STATUS.exists():
        return int(_STATUS.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT
