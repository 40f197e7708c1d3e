"""The figure of a step's time: a bar an arm, of the medians of its parts."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from matplotlib.axes import Axes

from olr_cli.analysis.arms import Arm
from olr_cli.analysis.figures import style
from olr_cli.analysis.figures.style import BLUE, GREEN, GREY, ORANGE, SKY, VERMILION, Chart
from olr_cli.analysis.step_times import PARTS, SECONDS, STEP, StepTimes, flat, step_times, unit_of
from olr_cli.runs.throughput import GENERATED, PEAK_MEMORY
from olr_cli.tables import percent
from olr_cli.tables.table import Kind

_LOOKS: Mapping[str, tuple[str, str]] = {
    "rollouts": (SKY, ""),
    "verification": (ORANGE, "////"),
    "labels": (VERMILION, "xxxx"),
    "update": (BLUE, ""),
    "weights": (GREEN, "...."),
    "store": (GREY, "||||"),
    "other": ("#E0E0E0", ""),
}
"""Part of a step -> colour, and the hatch that tells it without colour."""

_CAPTION = (
    "Medians over the steps; dot and whisker: median and quartiles of the whole step, to which medians of parts need"
    " not add up."
)


def charts(arms: Sequence[Arm]) -> list[Chart]:
    """Where the time of a step goes, part by part, and how fast it was, as metrics.jsonl tells it."""
    timed = step_times(arms)
    rows = pl.DataFrame([row for times in timed for row in flat(times)])
    return [_draw(timed).chart("cost", rows, caption=_CAPTION)]


def _draw(costs: Sequence[StepTimes]) -> style.Sheet:
    has_machines = len({cost.machine for cost in costs}) > 1
    names = [_name(cost, cost.machine if has_machines else "") for cost in costs]
    lines = [
        1 + max(name.count("\n"), _speed(cost).count("\n")) for name, cost in zip(names, costs, strict=True)
    ]
    height = 1.0 + 0.14 * sum(max(count, 2) for count in lines)
    sheet = style.Sheet(1, 1, width=style.TEXT_WIDTH, panel_height=height)
    (axes,) = sheet.panels
    _bars(axes, costs, unit_of(costs))
    axes.set_yticks(range(len(costs)), names)
    axes.set_ylim(len(costs) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    sheet.legend(axes.get_legend_handles_labels()[0])
    return sheet


def _name(cost: StepTimes, *details: str) -> str:
    return "\n".join(textwrap.fill(word, 30) for word in (cost.arm.title, *details) if word)


def _speed(cost: StepTimes) -> str:
    """Generation and memory, in lines below the step's time, as far as they are known."""
    known = ((cost.quantity(name), unit) for name, unit in ((GENERATED, "tokens/s"), (PEAK_MEMORY, "GB")))
    return "".join(f"\n{cell.brief} {unit}" for cell, unit in known if cell)


def _bars(axes: Axes, costs: Sequence[StepTimes], unit: Kind) -> None:
    """The medians of the parts on end; quartiles of the whole step as a whisker, its median as a number."""
    left = [0.0] * len(costs)
    for name, title in PARTS.items():
        if not any(name in cost.parts for cost in costs):
            continue
        widths = [cost.time(name).number / SECONDS[unit] for cost in costs]
        colour, hatch = _LOOKS[name]
        look: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}
        axes.barh(range(len(costs)), widths, left=left, height=0.65, label=title, **look)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for place, cost in enumerate(costs):
        step = cost.time(STEP, kind=unit)
        middle, low, high = (value / SECONDS[unit] for value in step.flat("median", "low", "high").values())
        reach = [[middle - low], [high - middle]]
        axes.errorbar(middle, place, xerr=reach, fmt="o", color=style.BLACK, linewidth=0.8, capsize=1.5)
        share = f", label update {percent(cost.share('labels'))}%" if "labels" in cost.parts else ""
        axes.text(
            1.02,
            place,
            f"{step.brief} {unit}{share}{_speed(cost)}",
            transform=axes.get_yaxis_transform(),
            va="center_baseline",
        )
    axes.set_xlim(left=0)
    axes.set_xlabel(f"time of a step, {unit}")
