"""Seconds of one label update: 160 prompts x 8 responses of 2,000 characters, on one core.

Everything between the rollouts and the rewards is timed: extraction, classes, verdicts, vote, history, criteria,
effective label, records. The visit is the sixth, so histories have five entries. Every repetition has fresh answers:
a memo filled by the one before does not help it. Starting the worker processes (once a run) is timed apart. Beside the
seconds of the clock stand those of processors, of this process and its workers, which other programs disturb less.

The limit is one parse of every distinct string that a parser is needed for. So of all visits are counted: those
strings, how often the parser was asked to read one, and how often the one that it read most. `first_visit_workers_s` is
what the first visit waits for workers.

    taskset -c 0 python benchmarks/label_update.py            # a JSON line a kind of answers
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from olr_cli.answers import Judge
from olr_cli.answers.graded import SENTINEL
from olr_cli.answers.pool import WorkerPool
from olr_cli.data.prompts import Prompt
from olr_cli.recipe.methods import OlrMethod
from olr_cli.supervision import Rollout, RolloutGroup, Step, Supervisor, compose

PROMPTS, ROLLOUTS, CHARACTERS, VISITS = 160, 8, 2000, 6

Answers = Callable[[random.Random], list[str]]


def integers(rng: random.Random) -> list[str]:
    """The true answer and three wrong ones, plain integers."""
    return [str(rng.randrange(-10_000, 100_000)) for _ in range(4)]


def mixed(rng: random.Random) -> list[str]:
    """Forms as in MATH and DAPO answers: two spellings of the true answer, and two wrong answers."""
    a, b, c = rng.randrange(2, 900), rng.randrange(2, 900), rng.randrange(2, 60)
    d = rng.randrange(2, 60)
    forms = [
        [f"\\frac{{{a}}}{{{b}}}", f"{a}/{b}", f"\\frac{{{b}}}{{{a}}}", f"{a / b:.3f}"],
        [f"{a}\\sqrt{{{c}}}", f"\\sqrt{{{c}}} \\cdot {a}", f"{a}\\sqrt{{{c + 1}}}", f"{b}"],
        [f"({a}, {b})", f"\\left({a},{b}\\right)", f"({b}, {a})", f"({a}, {c})"],
        [f"{a}\\text{{ cm}}", f"{a}", f"{b}\\text{{ cm}}", f"{c}"],
        [f"x^2+{a}x+{b}", f"x^{{2}}+{a}x+{b}", f"x^2-{a}x+{b}", f"x^2+{b}x+{a}"],
        [f"[{c}, {c + d}]", f"[{c},{c + d}]", f"({c}, {c + d})", f"[{c}, {c + d + 1}]"],
        [
            f"\\frac{{{a}\\pi}}{{{c}}}",
            f"\\frac{{{a}}}{{{c}}}\\pi",
            f"\\frac{{{b}\\pi}}{{{c}}}",
            f"{a}\\pi",
        ],
        [f"{a}^\\circ", f"{a}", f"{b}^\\circ", f"{c}^\\circ"],
        [f"{c}\\%", f"{c}%", f"{d}\\%", f"{a}"],
        [f"{a},{b:03d}", f"{a}{{,}}{b:03d}", f"{b}{a:03d}", f"{a}"],
        [
            f"\\{{{c}, {c + d}\\}}",
            f"\\{{{c + d}, {c}\\}}",
            f"\\{{{c}\\}}",
            f"\\{{{d}, {c + d}\\}}",
        ],
        [f"x = {a}", f"{a}", f"x = {b}", f"{b}"],
    ]
    return rng.choice(forms)


def groups(answers: Answers, rng: random.Random) -> list[list[RolloutGroup]]:
    """Rollout groups of all visits; each prompt's rollouts favour its first two spellings."""
    words = [
        "we",
        "therefore",
        "consider",
        "both",
        "sides",
        "of",
        "the",
        "equation",
        "and",
        "obtain",
    ]
    prompts, choices = [], []
    for number in range(PROMPTS):
        forms = answers(rng)
        noise_type = rng.choice(["clean", "active"])
        given = forms[0] if noise_type == "clean" else SENTINEL
        prompts.append(Prompt(str(number), (), given, forms[0], noise_type))
        choices.append([forms[0]] * 3 + [forms[1]] * 2 + forms[2:])

    def response(answer: str) -> str:
        text = " ".join(rng.choice(words) for _ in range(CHARACTERS // 6))
        return f"{text[: CHARACTERS - len(answer) - 8]}\\boxed{{{answer}}}"

    return [
        [
            RolloutGroup(
                prompt,
                visit,
                visit,
                tuple(Rollout(response(rng.choice(own))) for _ in range(ROLLOUTS)),
            )
            for prompt, own in zip(prompts, choices, strict=True)
        ]
        for visit in range(1, VISITS + 1)
    ]


@dataclass
class Asked:
    """What worker processes were asked for: texts to read and how often each, pairs to compare, and the seconds."""

    reads: Counter[str] = field(default_factory=Counter)
    pairs: int = 0
    seconds: float = 0.0


@contextmanager
def watched() -> Iterator[Asked]:
    """Counts what workers are asked for within the block."""
    asked, run = Asked(), WorkerPool.run

    def counted(pool: WorkerPool, tasks: Sequence[Sequence[str]]) -> list[Any]:
        asked.reads.update(task[1] for task in tasks if task[0] == "key")
        asked.pairs += sum(task[0] == "matches" for task in tasks)
        began = time.perf_counter()
        results = run(pool, tasks)
        asked.seconds += time.perf_counter() - began
        return results

    WorkerPool.run = counted  # type: ignore[method-assign]
    try:
        yield asked
    finally:
        WorkerPool.run = run  # type: ignore[method-assign]


def processor_seconds() -> float:
    """Return the processor time of this process and of those that live below it, whose time counts in hundredths."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # a process that has ended meanwhile
            # The name in brackets, which may hold anything, stands before the numbers.
            numbers = file.read_text().rpartition(")")[2].split()
            process = int(file.parent.name)
            parents[process] = int(numbers[1])
            ticks[process] = sum(map(int, numbers[11:15]))
    below = {os.getpid()}
    # A child may have a smaller number than its parent, so one pass over them may not find all.
    while more := {it for it, parent in parents.items() if parent in below} - below:
        below |= more
    of_workers = sum(ticks[process] for process in below - {os.getpid()})
    return time.process_time() + of_workers / os.sysconf("SC_CLK_TCK")


def measure(answers: Answers, repetitions: int) -> dict[str, float]:
    """Median and spread of the sixth visit's time, and of the first, whose answers nobody has seen before."""
    first, last, waited, reads, pairs = [], [], [], [], []
    first_cpu, last_cpu = [], []
    with Judge(workers=1) as judge:
        began = time.perf_counter()
        judge.keys(["\\sqrt{2}+x", "x+2"])
        start = time.perf_counter() - began
        for repetition in range(repetitions):
            visits = groups(answers, random.Random(repetition))
            supervisor = Supervisor(
                compose(OlrMethod(warmup_epochs=5)), judge, seed=repetition
            )
            seconds, cpu = [], []
            with watched() as asked:
                for visit in visits:
                    before, began = processor_seconds(), time.perf_counter()
                    supervisor.supervise(Step.of(visit))
                    seconds.append(time.perf_counter() - began)
                    cpu.append(processor_seconds() - before)
                    if len(seconds) == 1:
                        waited.append(asked.seconds)
            first.append(seconds[0])
            last.append(seconds[-1])
            first_cpu.append(cpu[0])
            last_cpu.append(cpu[-1])
            reads.append(asked.reads)
            pairs.append(asked.pairs)
    return {
        "first_visit_median_s": round(statistics.median(first), 3),
        "first_visit_max_s": round(max(first), 3),
        "sixth_visit_median_s": round(statistics.median(last), 3),
        "first_visit_cpu_s": round(statistics.median(first_cpu), 3),
        "sixth_visit_cpu_s": round(statistics.median(last_cpu), 3),
        "worker_start_s": round(start, 2),
        "first_visit_workers_s": round(statistics.median(waited), 3),
        "strings_for_a_parser": statistics.mean(map(len, reads)),
        "parses": statistics.mean(sum(asked.values()) for asked in reads),
        "most_parses_of_one": max(max(asked.values(), default=0) for asked in reads),
        "pairs_compared_by_workers": statistics.mean(pairs),
    }


def main() -> None:
    """Print one JSON line for integers and one for mixed forms."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=7)
    repetitions = parser.parse_args().repetitions
    for answers in (integers, mixed):
        print(
            json.dumps({"answers": answers.__name__, **measure(answers, repetitions)}),
            flush=True,
        )


if __name__ == "__main__":
    main()
