"""Where the time of a step goes, part by part, and how fast it was, as metrics.jsonl tells it.

Held-out evaluation and checkpoints are no parts of a step, and are left out. Single steps may be slow because of other
work on the machine, so everything here is a median with quartiles over the steps of all runs of an arm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median, quantiles
from typing import Any

from olr_cli.analysis.arms import Arm, Run
from olr_cli.analysis.frame import Lack
from olr_cli.runs.directory import read_manifest
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.throughput import QUANTITIES
from olr_cli.tables.table import Cell, Kind

STEP = "step"

PARTS: Mapping[str, str] = {
    "rollouts": "rollouts",
    "verification": "verification",
    "labels": "label update",
    "update": "policy update",
    "weights": "weights to vLLM",
    "store": "storing",
    "other": "other",
}
"""Part of a step, as after ``time/`` -> what it is called; what is left of the step is `other`."""

SECONDS: Mapping[Kind, float] = {"ms": 0.001, "s": 1.0}
"""Units of a step's time."""


@dataclass(frozen=True)
class StepTimes:
    """The times of an arm's steps.

    Attributes:
        steps: seed -> of each step the seconds of every part, of the whole as `STEP`, and its metrics of `QUANTITIES`.
    """

    arm: Arm
    steps: Mapping[int, Sequence[Mapping[str, float]]]

    @cached_property
    def all_steps(self) -> list[Mapping[str, float]]:
        """The steps of all runs."""
        return [step for steps in self.steps.values() for step in steps]

    @property
    def parts(self) -> list[str]:
        """The parts of the steps, in the order of `PARTS`, and the whole."""
        known = {name for step in self.all_steps for name in step}
        return [part for part in (*PARTS, STEP) if part in known]

    def time(self, *parts: str, kind: Kind = "s") -> Cell:
        """The seconds that these parts take together, over the steps."""
        return median_cell([_sum(step, parts) for step in self.all_steps], kind)

    def quantity(self, name: str) -> Cell | None:
        """A metric of `QUANTITIES` over the steps that have it; None without any."""
        values = [step[name] for step in self.all_steps if name in step]
        return median_cell(values, "number") if values else None

    def share(self, part: str) -> float:
        """The median share of the step that a part takes."""
        return median(step.get(part, 0.0) / step[STEP] for step in self.all_steps)

    def medians(self, part: str) -> dict[int, float]:
        """Seed -> median seconds of a part."""
        return {seed: median(_sum(step, [part]) for step in steps) for seed, steps in self.steps.items()}

    @cached_property
    def finished(self) -> list[int]:
        """Seeds of the runs that are finished."""
        return [
            run.seed
            for run in self.arm.runs
            if run.path not in self.arm.unfinished and run.seed in self.steps
        ]

    def total(self, part: str) -> float | None:
        """Seconds of all steps of a run, the median over finished runs; None without any, or without the part."""
        if not self.finished or part not in self.parts:
            return None
        return median(sum(_sum(step, [part]) for step in self.steps[seed]) for seed in self.finished)

    @cached_property
    def machine(self) -> str:
        """Engine, device, threads and host of the runs; several where they differ."""
        return " / ".join(dict.fromkeys(machine for run in self.arm.runs for machine in _machines(run)))


def median_cell(values: Sequence[float], kind: Kind) -> Cell:
    """The median of at least one value, with the quartiles below and above it."""
    low, middle, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [*values] * 3
    return Cell(middle, kind, ends=(low, high), n=len(values))


def _sum(step: Mapping[str, float], parts: Iterable[str]) -> float:
    return sum(step.get(part, 0.0) for part in parts)


def step_times(arms: Sequence[Arm]) -> list[StepTimes]:
    """The times of every arm that has some.

    Raises:
        Lack: none has.
        UserError: a line of metrics.jsonl is damaged.
    """
    timed = [(arm, {run.seed: steps for run in arm.runs if (steps := _steps(run))}) for arm in arms]
    if not any(steps for _, steps in timed):
        raise Lack("runs whose metrics.jsonl has the time of a step (time/step)")
    return [StepTimes(arm, steps) for arm, steps in timed if steps]


def _steps(run: Run) -> list[dict[str, float]]:
    """The seconds of each step by part, held-out evaluation left out, and its quantities."""
    steps = []
    for line in read_metrics(run.path, "time/step"):
        if line["step"] > 0:
            whole = line["time/step"] - line.get("time/evaluation", 0.0)
            parts = {part: line[f"time/{part}"] for part in PARTS if f"time/{part}" in line}
            quantities = {name: line[name] for name in QUANTITIES if name in line}
            rest = max(whole - sum(parts.values()), 0.0)
            steps.append(parts | {"other": rest, STEP: whole} | quantities)
    return steps


def _machines(run: Run) -> Iterator[str]:
    for attempt in read_manifest(run.path)["attempts"]:
        facts = [attempt.get(name) for name in ("engine", "device")]
        threads, host = attempt.get("threads"), attempt.get("host")
        facts.append(None if threads is None else f"{threads} thread{'s' * (threads != 1)}")
        facts.append(None if host is None else f"host {host}")
        yield ", ".join(fact for fact in facts if fact is not None)


def flat(times: StepTimes) -> Iterator[dict[str, Any]]:
    """Flat values: a line a part and one for the step, in seconds, then one a quantity of throughput.

    The share is the median of the steps' shares.
    """
    cells = {part: times.time(part) for part in times.parts}
    cells |= {name: cell for name in QUANTITIES if (cell := times.quantity(name))}
    for name, cell in cells.items():
        is_part = name in times.parts
        unit, share = ("s", times.share(name)) if is_part else (QUANTITIES[name].unit, None)
        line = {"arm": times.arm.name, "part": name, "unit": unit, "steps": cell.n}
        yield line | cell.flat("median", "low", "high") | {"share": share}


def unit_of(arms: Iterable[StepTimes]) -> Kind:
    """Milliseconds if every arm's step is shorter than ten seconds, else seconds."""
    return "ms" if all(times.time(STEP).number < 10 for times in arms) else "s"
