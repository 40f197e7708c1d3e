"""Heat map of a grid of replays: a row of panels for each set of criteria, a panel for each quantity.

All panels of a quantity share one scale, which runs from light to dark, so that it can be read in grey.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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

from olr_cli.analysis import style
from olr_cli.analysis.replay.grid import Cell, GridResult, criteria_name
from olr_cli.analysis.style import BLACK, GREY, VERMILION, Chart
from olr_cli.recipe.schema import Criterion

_CELL_WIDTH, _CELL_HEIGHT = 0.24, 0.19
_COLOURS = ListedColormap(colormaps["Blues"](np.linspace(0.02, 0.8, 256)), "blues")
"""Without the darkest ones, on which marks would not be seen."""
_DELTA = "\N{GREEK SMALL LETTER DELTA}"


@dataclass(frozen=True)
class Quantity:
    """What a column of panels shows."""

    title: str
    value: Callable[[Cell], float | None]


def chart(result: GridResult, name: str) -> Chart:
    """The heat map, and the numbers of every cell behind it."""
    with style.applied():
        return Chart(name, _draw(result), table(result))


def table(result: GridResult) -> pl.DataFrame:
    """A row a cell: settings (thresholds as written), counts, shares; null where unknown."""
    rows = [cell.plain() for cell in result.cells]
    for row in rows:
        threshold = row["slope_threshold"]
        row["slope_threshold"] = None if threshold is None else f"{threshold:f}"
    shares = ("coverage", "accuracy", "agreement", "repair")
    return pl.DataFrame(
        rows, schema_overrides={"slope_threshold": pl.String, **dict.fromkeys(shares, pl.Float64)}
    )


def quantities(result: GridResult) -> list[Quantity]:
    """What is known of the cells."""
    shown = [Quantity("Share of visits selected", lambda cell: cell.coverage)]
    if result.knows_truth:
        shown.insert(0, Quantity("Accuracy of selected", lambda cell: cell.accuracy))
    elif result.knows_labels:
        shown.insert(0, Quantity("Agreement with the label", lambda cell: cell.agreement))
    if result.knows_marks:
        shown.append(Quantity("Wrong labels repaired", lambda cell: cell.repair))
    return shown


def _draw(result: GridResult) -> Figure:
    shown, criteria = quantities(result), result.criteria
    warmups = len({cell.warmup_epochs for cell in result.cells})
    rows = [len(result.of(one)) // warmups for one in criteria]
    width = 0.75 + len(shown) * max(warmups * _CELL_WIDTH + 0.15, 1.5)
    height = 1.1 + sum(0.42 + count * _CELL_HEIGHT for count in rows)
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(
        len(rows), len(shown), squeeze=False, height_ratios=[count + 0.4 for count in rows]
    )
    for column, quantity in enumerate(shown):
        limits = _limits([quantity.value(cell) for cell in result.cells])
        for row, one in enumerate(criteria):
            axes: Axes = panels[row, column]
            image = _panel(axes, result.of(one), warmups, quantity, limits)
            title = quantity.title if row == 0 else ""
            axes.set_title(f"{title}\n{_row_title(one)}" if column == 0 else f"{title}\n", pad=3)
            if column:
                axes.tick_params(labelleft=False)
            elif "slope" in one:
                axes.set_ylabel(f"threshold {_DELTA}")
            if row == len(criteria) - 1:
                axes.set_xlabel("warm-up epochs T")
        bar = figure.colorbar(
            image, ax=list(panels[:, column]), location="bottom", aspect=18, pad=0.02, shrink=0.9
        )
        bar.ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        bar.ax.locator_params(nbins=4)
        bar.outline.set_linewidth(0.4)
    figure.supxlabel(_key(result), fontsize=style.FONT_SIZE, color=GREY)
    return figure


def _row_title(criteria: Sequence[Criterion]) -> str:
    return criteria_name(criteria).replace("+", " + ") if criteria else "every majority"


def _limits(values: Sequence[float | None]) -> tuple[float, float]:
    """The scale of one quantity: wide enough for its values, at least ten points."""
    known = [value for value in values if value is not None] or [0.0]
    low, high = min(known), max(known)
    if high - low < 0.1:
        middle = min(max((low + high) / 2, 0.05), 0.95)
        low, high = middle - 0.05, middle + 0.05
    return low, high


def _panel(
    axes: Axes, cells: Sequence[Cell], warmups: int, quantity: Quantity, limits: tuple[float, float]
) -> AxesImage:
    """One heat map; a hatched cell has no value."""
    values = [quantity.value(cell) for cell in cells]
    shares = np.array([np.nan if value is None else value for value in values]).reshape(-1, warmups)
    image = axes.imshow(shares, cmap=_COLOURS, vmin=limits[0], vmax=limits[1], origin="lower", aspect="auto")
    axes.grid(visible=False)
    axes.set_xticks(range(warmups), [str(cell.warmup_epochs) for cell in cells[:warmups]])
    heads = [cell.slope_threshold for cell in cells[::warmups]]
    axes.set_yticks(range(len(heads)), [f"any {_DELTA}" if head is None else f"{head:f}" for head in heads])
    axes.tick_params(length=0)
    for place, (cell, value) in enumerate(zip(cells, values, strict=True)):
        y, x = divmod(place, warmups)
        _annotate(axes, x, y, value, limits)
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


def _mark(axes: Axes, x: int, y: int, cell: Cell) -> None:
    """A frame around the run's own setting, and a corner where a cell is on the Pareto front."""
    if cell.is_own:
        axes.add_patch(
            Rectangle(
                (x - 0.45, y - 0.45), 0.9, 0.9, fill=False, edgecolor=VERMILION, linewidth=1.4, zorder=4
            )
        )
    if cell.on_front:
        corner = [(x - 0.49, y + 0.48), (x - 0.21, y + 0.48), (x - 0.49, y + 0.13)]
        axes.add_patch(Polygon(corner, facecolor=BLACK, edgecolor="white", linewidth=0.4, zorder=3))


def _key(result: GridResult) -> str:
    parts = ["numbers are percentages"]
    if any(cell.is_own for cell in result.cells):
        parts.append("frame: the run's own setting")
    if any(cell.on_front for cell in result.cells):
        parts.append("black corner: on the Pareto front")
    if any(quantity.value(cell) is None for quantity in quantities(result) for cell in result.cells):
        parts.append("hatched: nothing selected")
    return "; ".join(parts)
