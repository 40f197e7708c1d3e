"""The measures of docs/speed.md that need no GPU, one after the other on this machine, with what they were made on.

    python benchmarks/all.py                          # all that this environment can run: about an hour
    python benchmarks/all.py replay audit check       # some of them

A row has the processor time of the command and of the processes that it waited for, the time by the clock, the highest
resident size of any one process, and the load of the machine before and after. A command of olr runs `--repetitions`
times, and its row has the medians. A benchmark repeats its own measurements, and the JSON file has what it prints. The
runs and data that are read are made once, in `--folder`, and are not measured. A measure whose packages are missing is
left out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from analysis import cost_of
from histories import write_run

from olr_cli.runs.directory import now, versions

HERE = Path(__file__).parent
EVALUATION = ("builtin:addition-easier", "--scale", "4", "--rounds", "3")

MEASURES: Mapping[str, Sequence[str]] = {
    "label": ("label_update.py",),
    "read_ahead": ("read_ahead.py",),
    "engine": ("local_engine.py",),
    "step": ("local_step.py",),
    "dynamics": ("analysis.py", "FOLDER/sizes", "--only", "dynamics"),
    "audit": ("olr", "audit", "FOLDER/rollouts"),
    "replay": ("olr", "replay", "FOLDER/visits", "--out", "OUT/labels.parquet"),
    "report": ("olr", "analyze", "FOLDER/visits", "--report", "--out", "OUT"),
    "check": ("olr", "check", "FOLDER/data.jsonl"),
    "arms": ("olr", "analyze", "FOLDER/runs", "--table", "arms", "--out", "OUT"),
    "runs": ("olr", "runs", "FOLDER/runs"),
    "evaluation": ("evaluation.py", *EVALUATION),
    "trainers": ("trainer_overhead.py",),
    "startup": ("startup.py",),
}
"""Commands; FOLDER stands for the folder of runs and data, OUT for an empty one."""

ON_ALL_CORES = ("read_ahead", "dynamics")
"""Benchmarks that are not held to one core, as commands of olr are not either."""

NEEDS = {"engine": "trl", "trainers": "trl", "evaluation": "vllm"}


def prepare(folder: Path, place: str) -> None:
    """Make the runs or data that a measure reads, if they are not there."""
    target, made = folder / place, folder / f"part-{place}"
    if target.exists() or place == "sizes":  # which analysis.py makes
        return
    shutil.rmtree(made, ignore_errors=True)
    if place == "rollouts":
        write_run(made, prompts=100_000, visits=3, rollouts=8, prompts_per_step=1000)
    elif place == "visits":
        write_run(made, prompts=100_000, visits=3, rollouts=4, prompts_per_step=1000)
    elif place == "runs":
        small = {"prompts": 20, "visits": 3, "rollouts": 4, "prompts_per_step": 20}
        for number in range(2000):
            arm, seed = divmod(number, 5)
            noise = {"noise": {"type": "active", "ratio": "0.5", "seed": arm}}
            run = made / str(number)
            write_run(run, seed=seed, arm=f"arm {arm}", settings=noise, **small)
    else:
        words = [
            "--type",
            "active",
            "--ratio",
            "0",
            "--sample",
            "100000",
            "--out",
            str(made),
        ]
        command = [sys.executable, "-m", "olr_cli", "inject-noise", *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    made.rename(target)


def measure(name: str, folder: Path, repetitions: int) -> dict[str, Any]:
    """Return the row of a measure, with what a benchmark printed."""
    if find_spec(NEEDS.get(name, "olr_cli")) is None:
        return {"name": name, "left_out": f"needs {NEEDS[name]}"}
    program, *words = MEASURES[name]
    is_of_olr = program == "olr"
    for word in words:
        if word.startswith("FOLDER/"):
            prepare(folder, word.removeprefix("FOLDER/"))
    pinned = [] if is_of_olr or name in ON_ALL_CORES else ["taskset", "-c", "0"]
    begin = ["-m", "olr_cli"] if is_of_olr else [str(HERE / program)]
    costs, before = [], os.getloadavg()[0]
    for _ in range(repetitions if is_of_olr else 1):
        with tempfile.TemporaryDirectory() as out, tempfile.TemporaryFile("w+") as printed:
            places = [
                word.replace("FOLDER", str(folder)).replace("OUT", out) for word in words
            ]
            costs.append(cost_of([*pinned, sys.executable, *begin, *places], printed))
            printed.seek(0)
            text = printed.read()
    return {
        "name": name,
        "command": " ".join([*pinned, program, *words]),
        "cpu_s": round(statistics.median(cost.core for cost in costs), 2),
        "wall_s": round(statistics.median(cost.wall for cost in costs), 2),
        "memory_gb": round(max(cost.memory for cost in costs) / 1e9, 2),
        "load": [round(load, 2) for load in (before, os.getloadavg()[0])],
        "printed": None if is_of_olr else text,
    }


def machine() -> dict[str, Any]:
    """Return what the numbers were made on: commit, processor, cores, versions and the time."""
    git = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    cpu = next((line for line in lines if line.startswith("model name")), "")
    facts = {"commit": commit, "cpu": cpu.partition(": ")[2], "begun": now()}
    return {**facts, "cores": len(os.sched_getaffinity(0)), "versions": versions()}


def main() -> None:
    """Run the measures; print a row of a Markdown table after each, and write the JSON file anew."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MEASURES))
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("build/speed"))
    parser.add_argument("--out", type=Path, default=Path("build/speed.json"))
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(MEASURES):
        parser.error(f"no such measure: {', '.join(sorted(unknown))}")
    if arguments.repetitions < 1:
        parser.error("--repetitions: at least 1")
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    # Libraries of matrix products would start a thread a core, and wait for each other.
    os.environ["OMP_NUM_THREADS"] = "1"
    facts, rows = machine(), []
    print(f"{facts['commit']}, {facts['cpu']}, {facts['cores']} cores, {facts['begun']}\n")
    print("| measure | CPU s | s | GB | load before, after |\n|---|---|---|---|---|")
    for name in arguments.names or MEASURES:
        row = measure(name, folder, arguments.repetitions)
        rows.append(row)
        numbers = [
            row.get(column, "") for column in ("cpu_s", "wall_s", "memory_gb", "load")
        ]
        shown = [name, row.get("left_out") or numbers[0], *numbers[1:]]
        print("|", " | ".join(map(str, shown)), "|", flush=True)
        report = json.dumps({**facts, "measures": rows}, indent=2, ensure_ascii=False)
        arguments.out.write_text(report + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
