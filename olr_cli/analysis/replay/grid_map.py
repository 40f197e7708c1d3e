"""Heat map of a grid of replays: a row of panels for each set of criteria, a panel for each share.

All panels of a share have one scale, which runs from light to dark, so that it can be read in grey.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from olr_cli.analysis.figures import style
from olr_cli.analysis.figures.style import BLACK, GREY, VERMILION, Chart
from olr_cli.analysis.replay.grid import FEW, SHARES, blocks_of, shown_shares

_CELL_WIDTH, _CELL_HEIGHT = 0.24, 0.19
_COLOURS = ListedColormap(colormaps["Blues"](np.linspace(0.02, 0.8, 256)), "blues")
"""Without the darkest ones, on which marks would not be seen."""
_DELTA = "\N{GREEK SMALL LETTER DELTA}"


def chart(cells: pl.DataFrame, name: str) -> Chart:
    """The heat map, and the numbers of every cell behind it (`grid.count`)."""
    with style.applied():
        return Chart(name, _draw(cells), cells)


def _draw(cells: pl.DataFrame) -> Figure:
    blocks, shares = blocks_of(cells), shown_shares(cells)
    warmups = cells["warmup_epochs"].n_unique()
    rows = [len(block) // warmups for block in blocks.values()]
    width = 0.75 + len(shares) * max(warmups * _CELL_WIDTH + 0.15, 1.5)
    height = 0.7 + sum(0.42 + count * _CELL_HEIGHT for count in rows)
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(
        len(rows), len(shares), squeeze=False, height_ratios=[count + 0.4 for count in rows]
    )
    for column, share in enumerate(shares):
        limits = _limits(cells.filter(~_is_few(share))[share].drop_nulls())
        for row, (criteria, block) in enumerate(blocks.items()):
            axes: Axes = panels[row, column]
            _panel(axes, block, share, limits)
            title = SHARES[share][-1] if row == 0 else ""
            axes.set_title(f"{title}\n{'' if column else criteria.replace('+', ' + ')}", pad=3)
            if column:
                axes.tick_params(labelleft=False)
            elif "slope" in criteria:
                axes.set_ylabel(f"threshold {_DELTA}")
            if row == len(blocks) - 1:
                axes.set_xlabel("warm-up epochs T")
    key = ["numbers are percentages"]
    if cells["is_own"].any():
        key.append("frame: the run's own setting")
    if any(cells[share].has_nulls() for share in shares):
        key.append("hatched: nothing selected")
    if any(cells.filter(pl.col(share).is_not_null() & _is_few(share)).height for share in shares):
        key.append(f"no colour: of fewer than {FEW} visits")
    figure.supxlabel(style.fitted("; ".join(key), width), fontsize=style.FONT_SIZE, color=GREY)
    return figure


def _is_few(share: str) -> pl.Expr:
    return pl.col(SHARES[share][1]) < FEW


def _limits(shares: pl.Series) -> tuple[float, float]:
    """The scale of one share: as wide as its values, and at least ten points."""
    if shares.is_empty():
        return 0.0, 1.0
    low, high = float(shares.to_numpy().min()), float(shares.to_numpy().max())
    missing = max(0.1 - (high - low), 0.0)
    return low - missing / 2, high + missing / 2


def _panel(axes: Axes, cells: pl.DataFrame, share: str, limits: tuple[float, float]) -> None:
    """One heat map; a hatched cell has no value, a white one's is of few visits."""
    warmups = cells["warmup_epochs"].unique(maintain_order=True).to_list()
    thresholds = cells["slope_threshold"].unique(maintain_order=True).to_list()
    cells = cells.with_columns(pl.when(~_is_few(share)).then(share).alias("coloured"))
    values = cells["coloured"].cast(pl.Float64).fill_null(np.nan).to_numpy().reshape(-1, len(warmups))
    axes.imshow(values, cmap=_COLOURS, vmin=limits[0], vmax=limits[1], origin="lower", aspect="auto")
    axes.grid(visible=False)
    axes.set_xticks(range(len(warmups)), list(map(str, warmups)))
    axes.set_yticks(range(len(thresholds)), [f"any {_DELTA}" if x is None else x for x in thresholds])
    axes.tick_params(length=0)
    for place, cell in enumerate(cells.iter_rows(named=True)):
        y, x = divmod(place, len(warmups))
        is_dark = (cell["coloured"] or 0) > limits[0] + 0.7 * (limits[1] - limits[0])
        _annotate(axes, x, y, cell[share], "white" if is_dark else BLACK)
        if cell["is_own"]:
            frame = Rectangle((x - 0.45, y - 0.45), 0.9, 0.9, fill=False, edgecolor=VERMILION, linewidth=1.4)
            axes.add_patch(frame)


def _annotate(axes: Axes, x: int, y: int, value: float | None, colour: str) -> None:
    if value is None:
        frame = Rectangle(
            (x - 0.5, y - 0.5), 1, 1, fill=False, hatch="////", edgecolor="#C0C0C0", linewidth=0
        )
        axes.add_patch(frame)
        return
    # What is not 0 or 100 % does not read so.
    text = "<1" if 0 < value < 0.005 else ">99" if 0.995 <= value < 1 else f"{100 * value:.0f}"
    axes.text(x, y, text, ha="center", va="center_baseline", color=colour)
