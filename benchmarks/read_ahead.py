"""What verification beside something else saves: the first step of a run, 160 prompts x 8 responses, mixed forms.

A step is: forward passes in other processes, then labels and rewards. Answers are verified either when the forward
passes are done, or beside them (`Supervisor.read_ahead`, as with OpenRLHF). Forward passes are on another device (this
machine waits) or on its cores (another process computes). The verifier starts in the step (`Supervisor.expect` is not
called), or has been started already.

    python benchmarks/read_ahead.py                # all cores; one core: taskset -c 0 python benchmarks/read_ahead.py
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from label_update import groups, mixed

from olr_cli.answers import Judge
from olr_cli.recipe.methods import OlrMethod
from olr_cli.supervision import RolloutGroup, Step, Supervisor, compose

COMPUTE = "import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: pass"


def waiting(seconds: float) -> None:
    """Forward passes on another device."""
    time.sleep(seconds)


def computing(seconds: float) -> None:
    """Forward passes on this machine's cores."""
    subprocess.run([sys.executable, "-c", COMPUTE.format(seconds=seconds)], check=True)


def step(
    supervisor: Supervisor,
    visit: list[RolloutGroup],
    forward: Callable[[float], None],
    seconds: float,
    *,
    ahead: bool,
) -> float:
    """Seconds of one step whose forward passes take so many."""
    began = time.perf_counter()
    if ahead:
        with ThreadPoolExecutor(max_workers=1) as beside:
            reading = beside.submit(supervisor.read_ahead, Step.of(visit))
            forward(seconds)
            reading.result()
    else:
        forward(seconds)
    supervisor.supervise(Step.of(visit))
    return time.perf_counter() - began


def main() -> None:
    """Print medians and the median of paired differences."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument(
        "--forward", type=float, default=1.5, help="seconds of the forward passes"
    )
    arguments = parser.parse_args()
    print(
        f"{len(os.sched_getaffinity(0))} cores, forward passes of {arguments.forward:g} s; seconds of a step"
    )
    for is_running, forward in itertools.product((False, True), (waiting, computing)):
        seconds: dict[bool, list[float]] = {False: [], True: []}
        for repetition, ahead in itertools.product(
            range(arguments.repetitions), (False, True)
        ):
            visit = groups(mixed, random.Random(repetition))[0]
            with Judge() as judge:
                if is_running:
                    judge.keys(f"x+{n}" for n in range(200))
                supervisor = Supervisor(compose(OlrMethod()), judge, seed=0)
                seconds[ahead].append(
                    step(supervisor, visit, forward, arguments.forward, ahead=ahead)
                )
        saved = statistics.median(
            a - b for a, b in zip(seconds[False], seconds[True], strict=True)
        )
        after, beside = (statistics.median(seconds[ahead]) for ahead in (False, True))
        print(
            f"  {forward.__name__}, verifier {'running' if is_running else 'starting'}:"
            f" after {after:.2f}, beside {beside:.2f}, saved {saved:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
