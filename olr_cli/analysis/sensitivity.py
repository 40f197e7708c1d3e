"""Sensitivity to OLR's two settings: the score at the end of training against delta, and against T.

A line a kind of noise; dashed: GRPO without OLR under that noise. Where runs have benchmark scores, a row of panels the
mean over in-distribution benchmarks and one the mean over the others; else held-out accuracy.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from olr_cli.analysis import style
from olr_cli.analysis.arms import Arm
from olr_cli.analysis.style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, Chart, Line
from olr_cli.analysis.tables.sources import Source, source_of
from olr_cli.analysis.varied import Lot, lots, score_titles, scores, spread
from olr_cli.recipe.schema import OlrMethod

_SCHEMA = {
    "setting": str,
    "noise": str,
    "method": str,
    "value": float,
    "metric": str,
    "mean": float,
    "sd": float,
    "runs": int,
}


@dataclass(frozen=True)
class Setting:
    """A setting of OLR that the score is drawn against.

    Attributes:
        label: of the axis.
        several: what runs must have several of.
        is_whole: values are whole numbers.
        applies: whether it decides anything in a method.
    """

    label: str
    several: str
    is_whole: bool
    applies: Callable[[OlrMethod], bool]


SETTINGS: Mapping[str, Setting] = {
    "slope_threshold": Setting(
        "slope threshold \N{GREEK SMALL LETTER DELTA}",
        "slope thresholds",
        False,
        lambda method: "slope" in method.criteria,
    ),
    "warmup_epochs": Setting("warm-up epochs T", "warm-up lengths", True, lambda _: True),
}

_COLOURS = {"active": VERMILION, "inactive": BLUE}
_MORE_COLOURS = (GREEN, ORANGE, PURPLE, SKY)
_MARKERS = "osD^v"

_LONGEST_LINE = 18
"""Signs in a line of a label at the right of a panel."""


def lacking(arms: Sequence[Arm]) -> str | None:
    """What the figure needs that these arms are not; None if it can be drawn."""
    if any(_lots(arms).values()):
        return None
    return (
        "runs of OLR that differ in method.slope_threshold, or in method.warmup_epochs, and in nothing else but the"
        " seed, as those of paper/slope-sensitivity and paper/warmup-sensitivity"
    )


def charts(arms: Sequence[Arm]) -> list[Chart]:
    """One chart, its data a row a setting, noise, value and metric; without a value GRPO's; see `lacking`.

    Raises:
        UserError: a file of a run is damaged.
    """
    found, source = _lots(arms), source_of(arms, ())
    lines = [row for setting, its in found.items() for lot in its for row in _rows(setting, lot, source)]
    rows = pl.DataFrame(lines, schema=_SCHEMA, orient="row")
    with style.applied():
        return [Chart("sensitivity", _draw(found, score_titles(source), rows), rows)]


def _lots(arms: Sequence[Arm]) -> dict[str, list[Lot]]:
    return {name: lots(arms, name, setting.applies) for name, setting in SETTINGS.items()}


def _rows(setting: str, lot: Lot, source: Source) -> Iterator[tuple[Any, ...]]:
    arms = [(value, arm, "olr") for value, arm in lot.arms.items()]
    shown = [*arms, *([(None, lot.grpo, "grpo")] if lot.grpo else [])]
    for metric in score_titles(source):
        for value, arm, method in shown:
            measured = scores(arm, source, metric)
            if measured:
                yield setting, lot.name, method, value, metric, *spread(measured)


def _draw(found: Mapping[str, list[Lot]], titles: Mapping[str, str], rows: pl.DataFrame) -> Figure:
    sheet = style.Sheet(len(titles) * len(SETTINGS), len(SETTINGS), width=style.TEXT_WIDTH, panel_height=1.9)
    panels = [(metric, name) for metric in titles for name in SETTINGS]
    for number, (axes, (metric, name)) in enumerate(zip(sheet.panels, panels, strict=True)):
        axes.set_title(f"({chr(ord('a') + number)}) {titles[metric]}")
        own = rows.filter(setting=name, metric=metric)
        if own.is_empty():
            what = "scores of these runs" if found[name] else f"runs with several\n{SETTINGS[name].several}"
            style.remark(axes, f"needs {what}")
            continue
        _panel(sheet, axes, found[name], own)
        axes.set_xlabel(SETTINGS[name].label)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=SETTINGS[name].is_whole))
        style.percent_axis(axes, style.percent_limits(rows.filter(metric=metric)))
    return sheet.finish()


def _panel(sheet: style.Sheet, axes: Axes, found: Sequence[Lot], rows: pl.DataFrame) -> None:
    more = iter(_MORE_COLOURS * len(found))
    taken: set[str] = set()
    for number, lot in enumerate(found):
        preferred = _COLOURS.get(lot.noise_type)
        colour = preferred if preferred and preferred not in taken else next(more)
        taken.add(colour)
        own, shown = rows.filter(noise=lot.name), textwrap.fill(lot.name, _LONGEST_LINE)
        line = Line(lot.name, shown, colour, _MARKERS[number % len(_MARKERS)])
        of_olr = own.filter(method="olr").rename({"value": "epoch"})
        sheet.lines(axes, [line], of_olr.with_columns(metric=pl.lit(lot.name)))
        for grpo in own.filter(method="grpo")["mean"]:
            axes.axhline(grpo, color=colour, linestyle=(0, (3, 1.5)), linewidth=0.8)
            sheet.label(axes, grpo, f"{shown},\nwithout OLR", colour)
