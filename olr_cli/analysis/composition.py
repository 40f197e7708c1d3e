"""What majority answers are made of, by epoch: stacked shares on clean and on noisy prompts.

On clean prompts a majority is right or wrong; on noisy ones it is right, equal to the noisy label, or neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from olr_cli.analysis import style
from olr_cli.analysis.arms import Arm
from olr_cli.analysis.style import BLACK, GREEN, SKY, VERMILION, Chart
from olr_cli.supervision.metrics import COMPOSITION, LABEL_METRICS


@dataclass(frozen=True)
class Part:
    """One area of a stack."""

    metric: str
    label: str
    colour: str


STACKS = {
    "clean": (
        Part("composition/clean_right", "right", GREEN),
        Part("composition/clean_wrong", "wrong", SKY),
    ),
    "noisy": (
        Part("composition/noisy_right", "right", GREEN),
        Part("composition/noisy_equal", "the noisy\nlabel", VERMILION),
        Part("composition/noisy_neither", "neither", SKY),
    ),
}
"""Prompts -> the areas of their panel, from the bottom up."""

_LEGEND = {"right": GREEN, "the noisy label": VERMILION, "wrong (clean prompts), neither (noisy)": SKY}
"""The areas of all panels, for where there are too many of them to name each at its side."""


def charts(arms: Sequence[Arm]) -> list[Chart]:
    """One chart, two panels an arm; several runs of an arm are averaged."""
    rows = pl.concat([arm.by_epoch(COMPOSITION) for arm in arms])
    with style.applied():
        return [Chart("composition", _draw(arms, rows), rows)]


def _draw(arms: Sequence[Arm], rows: pl.DataFrame) -> Figure:
    alone, many = len(arms) == 1, len(arms) > 2
    columns = 2 if alone else 4
    width, height = (4.0, 2.1) if alone else (style.TEXT_WIDTH, 1.75)
    sheet = style.Sheet(2 * len(arms), columns, width=width, panel_height=height)
    named = next((2 * number for number, arm in enumerate(arms) if arm.olr is not None), None)
    for number, axes in enumerate(sheet.panels):
        arm, (prompts, parts) = arms[number // 2], list(STACKS.items())[number % 2]
        name = style.arm_title(number // 2, arms, 2 * width / columns) if number % 2 == 0 else ""
        axes.set_title(f"{name}\n{prompts} prompts", pad=12)
        own = rows.filter(pl.col("arm") == arm.name)
        remark = _remark(arm, prompts, own)
        if remark is not None:
            style.remark(axes, remark)
            continue
        _stack(sheet, axes, parts, own, named=not many)
        style.epoch_axis(axes, arm.epochs, most=4, margin=0)
        style.percent_axis(axes, (0.0, 1.0))
        if arm.olr is not None:
            style.mark_warmup(axes, arm.olr.warmup_epochs, arm.epochs, named=number == named, colour=BLACK)
        if number % columns == 0:
            axes.set_ylabel("share of prompts")
        else:
            axes.tick_params(labelleft=False)
    if many:
        handles = [Patch(color=colour, label=label) for label, colour in _LEGEND.items()]
        sheet.figure.legend(
            handles=handles, loc="outside upper left", ncols=3, frameon=False, handlelength=0.8
        )
    return sheet.finish()


def _remark(arm: Arm, prompts: str, rows: pl.DataFrame) -> str | None:
    """Why a panel has nothing to show."""
    if rows.is_empty():
        knows_truth = not arm.by_epoch({"": LABEL_METRICS["majority/accuracy"]}).is_empty()
        return style.NEEDS_MARKS if knows_truth else style.NEEDS_TRUTH
    if not rows["metric"].str.starts_with(f"composition/{prompts}").any():
        return f"no {prompts} prompts"
    return "needs a\nsecond epoch" if arm.epochs < 2 else None


def _stack(sheet: style.Sheet, axes: Axes, parts: Sequence[Part], rows: pl.DataFrame, *, named: bool) -> None:
    shares = [rows.filter(pl.col("metric") == part.metric) for part in parts]
    axes.stackplot(
        shares[0]["epoch"].to_numpy(),
        *(share["mean"].to_numpy() for share in shares),
        colors=[part.colour for part in parts],
        linewidth=0.4,
        edgecolor="white",
    )
    below = 0.0
    for part, share in zip(parts, shares, strict=True):
        last = float(share["mean"][-1])
        if named and share["mean"].max():
            sheet.label(axes, below + last / 2, part.label, part.colour)
        below += last
    axes.grid(visible=False)
