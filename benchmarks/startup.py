"""Seconds until a command that needs no model has answered: median and slowest of some runs, wall clock and CPU.

taskset -c 0 python benchmarks/startup.py
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "python -c 'import typer'": ["-c", "import typer"],
    "olr --help": ["-m", "olr_cli", "--help"],
    "olr train --help": ["-m", "olr_cli", "train", "--help"],
    "olr recipes ls": ["-m", "olr_cli", "recipes", "ls"],
}
"""The first two are what no Python program, and none with typer, can do without."""


def main() -> None:
    """Print a line a command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    for name, words in COMMANDS.items():
        wall, cpu = [], []
        for _ in range(runs):
            began, before = time.perf_counter(), os.times()
            subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
            after = os.times()
            wall.append(time.perf_counter() - began)
            cpu.append(
                after.children_user
                + after.children_system
                - before.children_user
                - before.children_system
            )
        print(
            f"{name:<28}{statistics.median(wall):.2f} s (slowest {max(wall):.2f}), CPU {statistics.median(cpu):.2f} s"
        )


if __name__ == "__main__":
    main()
