"""Seconds and memory of reading a run, at four sizes up to 3.2 million rollouts.

    python benchmarks/analysis.py FOLDER                     # makes the runs that are not there: a quarter of an hour
    python benchmarks/analysis.py FOLDER --only dynamics     # some of the commands, by a part of their names

Every command runs in a process of its own, start and imports included. Seconds are medians over the repetitions, of the
wall clock and of all cores' time; memory is the highest resident size. Two fits say how the core time grows: its slope
against the number of rollouts, both as logarithms, and fixed seconds + seconds a million rollouts. The physical limit
is the time in which the same shards can be read from the disk, after the system was told to forget them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from histories import write_run

SIZES = ((500, 25), (1000, 50), (2000, 100), (4000, 100))
"""Prompts and visits; 8 rollouts a visit."""

ROLLOUTS = 8

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "analyze --figure dynamics": ("analyze", "RUN", "--figure", "dynamics", "--out", "OUT"),
    "analyze --figure all": ("analyze", "RUN", "--figure", "all", "--out", "OUT"),
    "analyze --table arms": ("analyze", "RUN", "--table", "arms"),
    "analyze --report": ("analyze", "RUN", "--report", "--out", "OUT"),
    "audit": ("audit", "RUN"),
    "replay": ("replay", "RUN", "--out", "OUT/labels.parquet"),
}
"""As a user types them, without ``olr``; figures and labels go to an empty folder each time."""


@dataclass(frozen=True)
class Cost:
    """Of one command on one run.

    Attributes:
        wall: seconds.
        core: seconds of all cores together.
        memory: highest resident size, in bytes.
    """

    wall: float
    core: float
    memory: int


def main() -> None:
    """Print a Markdown table of costs, one of how they grow, and the disk's limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the runs are, or are to be made")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--only", default="", help="commands whose names contain this")
    parser.add_argument(
        "--sizes", type=int, default=len(SIZES), help="only so many, the smallest first"
    )
    arguments = parser.parse_args()
    runs = [_made(arguments.folder, *size) for size in SIZES[: arguments.sizes]]
    rollouts = [prompts * visits * ROLLOUTS for prompts, visits in SIZES[: arguments.sizes]]
    print_reading(runs, rollouts)
    print(
        "\n| command | "
        + " | ".join(f"{n / 1e6:g} M" for n in rollouts)
        + " | slope | fixed + a million |"
    )
    print("|---|" + "---|" * (len(runs) + 2))
    for name, words in COMMANDS.items():
        if arguments.only in name:
            print_growth(name, words, runs, rollouts, arguments.repetitions)


def _made(folder: Path, prompts: int, visits: int) -> Path:
    run = folder / f"{prompts}x{visits}"
    return (
        run
        if run.exists()
        else write_run(run, prompts=prompts, visits=visits, rollouts=ROLLOUTS)
    )


def print_growth(
    name: str,
    words: Sequence[str],
    runs: Sequence[Path],
    rollouts: Sequence[int],
    repetitions: int,
) -> None:
    """A row: wall seconds, core seconds and memory at each size, and how the core seconds grow."""
    costs = []
    for run in runs:
        try:
            costs.append(measure(words, run, repetitions))
        except subprocess.CalledProcessError as error:
            print(
                f"| {name} | {run}: {error.stderr.strip().splitlines()[-1]} |", flush=True
            )
            return
    cells = [
        f"{cost.wall:.1f} s ({cost.core:.1f}), {cost.memory / 1e9:.2f} GB" for cost in costs
    ]
    core, size = np.array([cost.core for cost in costs]), np.array(rollouts)
    growth = ["", ""]
    if len(costs) > 1:
        slope = np.polyfit(np.log(size), np.log(core), 1)[0]
        rate, fixed = np.polyfit(size / 1e6, core, 1)
        growth = [f"{slope:.2f}", f"{fixed:.1f} + {rate:.2f} s"]
    print(f"| {name} | {' | '.join([*cells, *growth])} |", flush=True)


def measure(words: Sequence[str], run: Path, repetitions: int) -> Cost:
    """Medians of a command's cost; memory is the highest.

    Raises:
        CalledProcessError: it failed.
    """
    costs = [_once(words, run) for _ in range(repetitions)]
    return Cost(
        statistics.median(cost.wall for cost in costs),
        statistics.median(cost.core for cost in costs),
        max(cost.memory for cost in costs),
    )


def _once(words: Sequence[str], run: Path) -> Cost:
    with tempfile.TemporaryDirectory() as out:
        places = [word.replace("RUN", str(run)).replace("OUT", out) for word in words]
        return cost_of([sys.executable, "-m", "olr_cli", *places])


def cost_of(command: Sequence[str], output: int | IO[Any] = subprocess.DEVNULL) -> Cost:
    """Run a command, whose standard output goes to `output`, and return what it and its children cost.

    Raises:
        CalledProcessError: it failed.
    """
    with tempfile.TemporaryFile("w+") as errors:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=errors)
        # Popen.wait would not tell what this one child has used.
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            raise subprocess.CalledProcessError(
                process.returncode, command, stderr=errors.read() or "failed"
            )
        return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def print_reading(runs: Sequence[Path], rollouts: Sequence[int]) -> None:
    """The physical limit: how long the shards of each table take to read from the disk, and from memory."""
    print(
        "| rollouts | table | shards | size | from disk | from memory |\n|---|---|---|---|---|---|"
    )
    for run, made in zip(runs, rollouts, strict=True):
        for table in ("labels", "rollouts"):
            shards = sorted((run / table).glob("*.parquet"))
            size = sum(shard.stat().st_size for shard in shards)
            cold, warm = _read(shards, forget=True), _read(shards, forget=False)
            print(
                f"| {made / 1e6:g} M | {table} | {len(shards):,} | {size / 1e6:.1f} MB | {cold:.2f} s"
                f" ({size / 1e6 / cold:.0f} MB/s) | {warm:.2f} s |",
                flush=True,
            )


def _read(shards: Sequence[Path], *, forget: bool) -> float:
    if forget:
        for shard in shards:
            with shard.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    began = time.perf_counter()
    for shard in shards:
        shard.read_bytes()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
