"""Heat map of a grid of replays: a row of panels for each set of criteria, a panel for each share.

All panels of a share have one scale, which runs from light to dark, so that it can be read in grey.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Polygon, Rectangle
from matplotlib.ticker import PercentFormatter

from olr_cli.analysis.figures import style
from olr_cli.analysis.figures.style import BLACK, GREY, VERMILION, Chart
from olr_cli.analysis.replay.grid import TITLES, GridResult

_CELL_WIDTH, _CELL_HEIGHT = 0.24, 0.19
_COLOURS = ListedColormap(colormaps["Blues"](np.linspace(0.02, 0.8, 256)), "blues")
"""Without the darkest ones, on which marks would not be seen."""
_DELTA = "\N{GREEK SMALL LETTER DELTA}"


def chart(result: GridResult, name: str) -> Chart:
    """The heat map, and the numbers of every cell behind it."""
    with style.applied():
        return Chart(name, _draw(result), result.cells)


def _draw(result: GridResult) -> Figure:
    blocks = result.cells.partition_by("criteria", maintain_order=True)
    warmups = result.cells["warmup_epochs"].n_unique()
    rows = [len(cells) // warmups for cells in blocks]
    width = 0.75 + len(result.shares) * max(warmups * _CELL_WIDTH + 0.15, 1.5)
    height = 1.1 + sum(0.42 + count * _CELL_HEIGHT for count in rows)
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(
        len(rows), len(result.shares), squeeze=False, height_ratios=[count + 0.4 for count in rows]
    )
    for column, share in enumerate(result.shares):
        limits = _limits(result.cells[share])
        for row, cells in enumerate(blocks):
            axes: Axes = panels[row, column]
            image = _panel(axes, cells, share, limits)
            title, criteria = TITLES[share] if row == 0 else "", cells["criteria"][0]
            named = "every majority" if criteria == "none" else criteria.replace("+", " + ")
            axes.set_title(f"{title}\n{'' if column else named}", pad=3)
            if column:
                axes.tick_params(labelleft=False)
            elif "slope" in criteria:
                axes.set_ylabel(f"threshold {_DELTA}")
            if row == len(blocks) - 1:
                axes.set_xlabel("warm-up epochs T")
        bar = figure.colorbar(
            image, ax=list(panels[:, column]), location="bottom", aspect=18, pad=0.02, shrink=0.9
        )
        bar.ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        bar.ax.locator_params(nbins=4)
        bar.outline.set_linewidth(0.4)
    figure.supxlabel(_key(result), fontsize=style.FONT_SIZE, color=GREY)
    return figure


def _limits(shares: pl.Series) -> tuple[float, float]:
    """The scale of one share: wide enough for its values, at least ten points."""
    known = shares.drop_nulls().to_list() or [0.0]
    low, high = min(known), max(known)
    if high - low < 0.1:
        middle = min(max((low + high) / 2, 0.05), 0.95)
        low, high = middle - 0.05, middle + 0.05
    return low, high


def _panel(axes: Axes, cells: pl.DataFrame, share: str, limits: tuple[float, float]) -> AxesImage:
    """One heat map; a hatched cell has no value."""
    warmups = cells["warmup_epochs"].unique(maintain_order=True).to_list()
    thresholds = cells["slope_threshold"].unique(maintain_order=True).to_list()
    values = cells[share].cast(pl.Float64).fill_null(np.nan).to_numpy().reshape(-1, len(warmups))
    image = axes.imshow(values, cmap=_COLOURS, vmin=limits[0], vmax=limits[1], origin="lower", aspect="auto")
    axes.grid(visible=False)
    axes.set_xticks(range(len(warmups)), list(map(str, warmups)))
    axes.set_yticks(range(len(thresholds)), [f"any {_DELTA}" if x is None else x for x in thresholds])
    axes.tick_params(length=0)
    for place, cell in enumerate(cells.iter_rows(named=True)):
        y, x = divmod(place, len(warmups))
        _annotate(axes, x, y, cell[share], limits)
        _mark(axes, x, y, cell)
    return image


def _annotate(axes: Axes, x: int, y: int, value: float | None, limits: tuple[float, float]) -> None:
    if value is None:
        axes.add_patch(
            Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, hatch="////", edgecolor="#C0C0C0", linewidth=0)
        )
        return
    red, green, blue, _ = _COLOURS((value - limits[0]) / (limits[1] - limits[0]))
    is_dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.47
    # What is not 0 or 100 % does not read so.
    text = "<1" if 0 < value < 0.005 else ">99" if 0.995 <= value < 1 else f"{100 * value:.0f}"
    axes.text(x, y, text, ha="center", va="center_baseline", color="white" if is_dark else BLACK)


def _mark(axes: Axes, x: int, y: int, cell: Mapping[str, Any]) -> None:
    """A frame around the run's own setting, and a corner where a cell is on the Pareto front."""
    if cell["is_own"]:
        axes.add_patch(
            Rectangle(
                (x - 0.45, y - 0.45), 0.9, 0.9, fill=False, edgecolor=VERMILION, linewidth=1.4, zorder=4
            )
        )
    if cell["on_front"]:
        corner = [(x - 0.49, y + 0.48), (x - 0.21, y + 0.48), (x - 0.49, y + 0.13)]
        axes.add_patch(Polygon(corner, facecolor=BLACK, edgecolor="white", linewidth=0.4, zorder=3))


def _key(result: GridResult) -> str:
    parts = ["numbers are percentages"]
    if result.cells["is_own"].any():
        parts.append("frame: the run's own setting")
    if result.cells["on_front"].any():
        parts.append("black corner: on the Pareto front")
    if any(result.cells[share].has_nulls() for share in result.shares):
        parts.append("hatched: nothing selected")
    return "; ".join(parts)
