"""Where the time of a step goes, part by part, and how fast it was, as metrics.jsonl tells it.

Held-out evaluation and checkpoints are no parts of a step, and are left out. Single steps are slow for reasons of the
machine's, so everything here is a median with quartiles over the steps of all runs of an arm.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median, quantiles
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from olr_cli.analysis import style
from olr_cli.analysis.arms import Arm, Run
from olr_cli.analysis.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, Chart
from olr_cli.runs.directory import read_manifest
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.throughput import GENERATED, PEAK_MEMORY, QUANTITIES, UTILISATION

STEP = "step"
TOGETHER = "verification and labels"
"""What runs have that measured the two as one."""

_FACTS = ("engine", "device", "threads", "host")


@dataclass(frozen=True)
class Part:
    """How a part of a step is called and drawn."""

    label: str
    colour: str


PARTS: Mapping[str, Part] = {
    "rollouts": Part("rollouts", SKY),
    "verification": Part("verification", ORANGE),
    "labels": Part("label update", VERMILION),
    TOGETHER: Part("verification and label update", PURPLE),
    "update": Part("policy update", BLUE),
    "weights": Part("weights to vLLM", GREEN),
    "store": Part("storing", GREY),
    "other": Part("other", "#BDBDBD"),
}
"""Part of a step, as after ``time/`` -> how it is drawn; what is left of the step is `other`."""


@dataclass(frozen=True)
class Spread:
    """The median of some numbers, and the quartiles below and above it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """At least one value."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, middle, high = quantiles(values, n=4, method="inclusive")
        return cls(middle, low, high)


@dataclass(frozen=True)
class Cost:
    """The times of an arm's steps.

    Attributes:
        arm: the arm.
        steps: seed -> of each step the seconds of every part, and of the whole as `STEP`.
        throughput: metric of `QUANTITIES` -> its values in the steps of all runs, where they have it.
    """

    arm: Arm
    steps: Mapping[int, Sequence[Mapping[str, float]]]
    throughput: Mapping[str, Sequence[float]]

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The parts that any step has, in the order of `PARTS`."""
        found = {part for step in self.all_steps for part in step}
        return tuple(part for part in PARTS if part in found)

    @cached_property
    def all_steps(self) -> list[Mapping[str, float]]:
        """The steps of all runs."""
        return [step for own in self.steps.values() for step in own]

    def spread(self, *parts: str) -> Spread:
        """Of the seconds that these parts take together."""
        return Spread.of([_sum(step, parts) for step in self.all_steps])

    def share(self, part: str) -> float:
        """The median share of the step that a part takes."""
        return median(step.get(part, 0.0) / step[STEP] for step in self.all_steps)

    def by_seed(self, *parts: str) -> dict[int, float]:
        """Of each run the median of the seconds that these parts take together."""
        return {seed: median(_sum(step, parts) for step in own) for seed, own in self.steps.items()}

    @cached_property
    def machine(self) -> str:
        """Engine, device, threads and host of the runs; several where they differ."""
        return " / ".join(dict.fromkeys(machine for run in self.arm.runs for machine in _machines(run)))


def _sum(step: Mapping[str, float], parts: Iterable[str]) -> float:
    return sum(step.get(part, 0.0) for part in parts)


def costs(arms: Sequence[Arm]) -> list[Cost]:
    """The times of every arm that has some.

    Raises:
        UserError: a line of metrics.jsonl is damaged.
    """
    found = []
    for arm in arms:
        lines = {run.seed: own for run in arm.runs if (own := _timed(run))}
        if lines:
            apart = all("time/verification" in line for own in lines.values() for line in own)
            steps = {seed: [_parts(line, apart=apart) for line in own] for seed, own in lines.items()}
            found.append(Cost(arm, steps, _throughput([line for own in lines.values() for line in own])))
    return found


def _throughput(lines: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    values = {name: [line[name] for line in lines if name in line] for name in QUANTITIES}
    return {name: measured for name, measured in values.items() if measured}


def _timed(run: Run) -> list[Mapping[str, float]]:
    return [line for line in read_metrics(run.path) if line["step"] > 0 and "time/step" in line]


def _parts(line: Mapping[str, float], *, apart: bool) -> dict[str, float]:
    """One step's seconds by part, verification and label update apart or together."""
    times = {name.removeprefix("time/"): value for name, value in line.items() if name.startswith("time/")}
    whole = times[STEP] - times.get("evaluation", 0.0)
    if not apart:
        times[TOGETHER] = times.pop("verification", 0.0) + times.pop("labels", 0.0)
    known = {part: times[part] for part in PARTS if part in times}
    return known | {"other": max(whole - sum(known.values()), 0.0), STEP: whole}


def _machines(run: Run) -> Iterator[str]:
    """What each attempt of a run worked with."""
    for attempt in read_manifest(run.path)["attempts"]:
        facts = {name: attempt[name] for name in _FACTS if attempt.get(name) is not None}
        if "threads" in facts:
            facts["threads"] = f"{facts['threads']} thread{'s' * (facts['threads'] != 1)}"
        if "host" in facts:
            facts["host"] = f"host {facts['host']}"
        yield ", ".join(facts.values())


def lacking(arms: Sequence[Arm]) -> str | None:
    """What the figure needs that these arms are not; None if it can be drawn."""
    known = any(_timed(run) for arm in arms for run in arm.runs)
    return None if known else "runs whose metrics.jsonl has the time of a step (time/step)"


def charts(arms: Sequence[Arm]) -> list[Chart]:
    """One chart, a bar an arm; see `lacking`."""
    found = costs(arms)
    rows = pl.DataFrame([row for cost in found for row in spreads(cost)])
    with style.applied():
        return [Chart("cost", _draw(found), rows)]


def spreads(cost: Cost) -> Iterator[dict[str, Any]]:
    """Flat values: a line a part and one for the step, in seconds, then one a quantity of throughput.

    The share is the median of the steps' shares.
    """
    for part in (*cost.parts, STEP):
        spread = cost.spread(part)
        yield {
            "arm": cost.arm.name,
            "part": part,
            "unit": "s",
            "steps": len(cost.all_steps),
            "median": spread.median,
            "low": spread.low,
            "high": spread.high,
            "share": cost.share(part),
        }
    for name, values in cost.throughput.items():
        spread = Spread.of(values)
        yield {
            "arm": cost.arm.name,
            "part": name,
            "unit": QUANTITIES[name].unit,
            "steps": len(values),
            "median": spread.median,
            "low": spread.low,
            "high": spread.high,
            "share": None,
        }


@dataclass(frozen=True)
class Unit:
    """What times of steps are shown in.

    Attributes:
        name: as it is written.
        seconds: how long one is.
        digits: of differences, after the point.
    """

    name: str
    seconds: float
    digits: int = 0

    def text(self, seconds: float) -> str:
        """Three digits."""
        value = seconds / self.seconds
        return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


def unit_of(costs: Iterable[Cost]) -> Unit:
    """Milliseconds if every arm's step is shorter than ten seconds, else seconds."""
    longest = max(cost.spread(STEP).median for cost in costs)
    return Unit("ms", 0.001, 1) if longest < 10 else Unit("s", 1.0, 2)


def percent(share: float) -> str:
    """One digit after the point; what is not nothing does not look like it."""
    return f"{100 * share:.1f}" if share >= 0.0005 or share == 0 else "<0.1"


def _draw(found: Sequence[Cost]) -> Figure:
    names = [_name(cost, several=len({each.machine for each in found}) > 1) for cost in found]
    lines = [
        1 + max(name.count("\n"), _speed(cost).count("\n")) for name, cost in zip(names, found, strict=True)
    ]
    height = 1.0 + 0.14 * sum(max(count, 2) for count in lines)
    sheet = style.Sheet(1, 1, width=style.TEXT_WIDTH, panel_height=height)
    (axes,) = sheet.panels
    _bars(axes, found, unit_of(found))
    axes.set_yticks(range(len(found)), names)
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    handles, parts = axes.get_legend_handles_labels()
    sheet.figure.legend(
        handles,
        parts,
        loc="outside upper left",
        ncols=len(parts) if sum(map(len, parts)) < 75 else -(-len(parts) // 2),
        frameon=False,
        handlelength=0.8,
        handletextpad=0.4,
        columnspacing=1.0,
    )
    return sheet.finish()


def _name(cost: Cost, *, several: bool) -> str:
    """The arm, and on which machine, where it is not the same for all."""
    words = [cost.arm.name.replace("_", " "), *([cost.machine] if several else [])]
    return "\n".join(textwrap.fill(each, 30) for each in words)


def _speed(cost: Cost) -> str:
    """Generation, utilisation and memory, in lines below the step's time, as far as they are known."""
    lines = (((GENERATED, "{} tokens/s"),), ((UTILISATION, "MFU {}"), (PEAK_MEMORY, "{} GB")))
    words = [
        ", ".join(
            text.format(QUANTITIES[name].text(median(cost.throughput[name])))
            for name, text in line
            if name in cost.throughput
        )
        for line in lines
    ]
    return "".join(f"\n{line}" for line in words if line)


def _bars(axes: Axes, found: Sequence[Cost], unit: Unit) -> None:
    """The medians of the parts on end; quartiles of the whole step as a whisker, its median as a number."""
    left = [0.0] * len(found)
    for name, part in PARTS.items():
        if not any(name in cost.parts for cost in found):
            continue
        widths = [cost.spread(name).median / unit.seconds for cost in found]
        axes.barh(range(len(found)), widths, left=left, height=0.65, color=part.colour, label=part.label)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for place, cost in enumerate(found):
        step = cost.spread(STEP)
        reach = [[(step.median - step.low) / unit.seconds], [(step.high - step.median) / unit.seconds]]
        axes.errorbar(
            step.median / unit.seconds, place, xerr=reach, color=style.BLACK, linewidth=0.8, capsize=1.5
        )
        share = f", label update {percent(cost.share('labels'))} %" if "labels" in cost.parts else ""
        axes.text(
            1.02,
            place,
            f"{unit.text(step.median)} {unit.name}{share}{_speed(cost)}",
            transform=axes.get_yaxis_transform(),
            va="center_baseline",
        )
    axes.set_xlim(left=0)
    axes.set_xlabel(f"time of a step, {unit.name} (medians; whiskers: quartiles of the whole step)")
