"""The sheet that panels are drawn on: lines named at their ends instead of in a legend, spreads, captions, files."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from numpy.typing import ArrayLike

from olr_cli.analysis.figures.style import (
    BLACK,
    FEW,
    FONT_SIZE,
    GREY,
    LABEL_GAP,
    LINE_HEIGHT,
    Look,
    Values,
    applied,
    are_few,
    captions_are_written,
    darker,
    mark,
    signs,
)
from olr_cli.analysis.frame import SPREAD
from olr_cli.files import make_folder, write_text, write_whole


@dataclass(frozen=True)
class Chart:
    """A drawn figure with its name, caption and note, and a frame of the numbers that it shows.

    `Sheet.chart` makes it.
    """

    name: str
    """File name without ending."""

    figure: Figure
    data: pl.DataFrame
    note: str = ""
    """A sentence on what the figure leaves out; empty if it shows everything."""

    caption: str = ""
    """Text below the figure: the number of runs behind its means, and the meaning of bands and bars."""


class Sheet:
    """A figure with a grid of panels.

    Draw into the panels, then call `chart`, which finishes the figure.

    Args:
        panels: number of panels. The attribute with this name holds their axes.
        columns: number of panels in a row of the grid.
        width: width of the whole figure in inches.
        panel_height: height of a panel in inches.
    """

    def __init__(
        self, panels: int, columns: int, *, width: float, panel_height: float
    ) -> None:
        rows = -(-panels // columns)
        self.figure = Figure(figsize=(width, rows * panel_height), layout="constrained")
        # No pyplot: it would keep every figure in memory, and may open a window.
        FigureCanvasAgg(self.figure)
        grid = self.figure.subplots(rows, columns, squeeze=False)
        self.panels: list[Axes] = list(grid.flat)[:panels]
        for unused in list(grid.flat)[panels:]:
            unused.remove()
        self._labels: dict[Axes, list[Annotation]] = {}
        self._bands: dict[
            str, list[tuple[Callable[[], tuple[float, float]], float, float]]
        ] = {}
        self._dots = False

    def label(self, axes: Axes, y: float, text: str, colour: str) -> None:
        """Write `text`, the name of a line, to the right of the panel.

        `y` is the line's last value, in the units of the vertical axis. If names would overlap, `chart` moves them
        apart later.
        """
        label = axes.annotate(
            text,
            (1, y),
            xycoords=("axes fraction", "data"),
            xytext=(LABEL_GAP, 0),
            textcoords="offset points",
            va="center",
            color=darker(colour),
            linespacing=1.0,
        )
        self._labels.setdefault(axes, []).append(label)

    def curve(
        self, axes: Axes, x: ArrayLike, y: Values, label: str, colour: str, **look: Any
    ) -> None:
        """Draw a line and write its name, `label`, at its right end.

        `look` holds further keyword arguments for `Axes.plot`.
        """
        axes.plot(x, y, color=colour, zorder=3, **look)
        self.label(axes, float(y[-1]), label, colour)

    def spread(
        self, axes: Axes, rows: pl.DataFrame, x: str, colour: str, *, joined: bool = True
    ) -> None:
        """Show how the runs behind a line spread, as dots or as mean ± one sd.

        The largest number of runs behind a point decides. If it is 1, nothing is drawn. If it is 2 to 4 (`FEW`), every
        run's value is drawn as a dot. If it is larger, mean ± one sd is drawn: as an area if `joined`, otherwise as a
        whisker at each point.

        Args:
            axes: the panel.
            rows: one row per point, with the columns `x`, mean, sd and runs. Dots also need the column ``values``, a
                list of the single runs' values; without this column mean ± one sd is drawn.
            x: name of the column of the horizontal axis.
            colour: colour of the line.
            joined: whether the points of the line are joined.
        """
        if are_few(rows):
            dots = rows.select(x, "values").explode("values")
            look: dict[str, Any] = {"color": colour, "alpha": 0.6, "ms": 2.5, "mew": 0}
            axes.plot(dots[x].to_numpy(), dots["values"].to_numpy(), ".", **look)
            self._dots = True
        else:
            across, mean, sd = (rows[name].to_numpy() for name in (x, "mean", "sd"))
            self.band(axes, across, mean, sd, colour, joined=joined)

    def band(
        self,
        axes: Axes,
        x: ArrayLike,
        mean: Values,
        sd: Values,
        colour: str,
        *,
        joined: bool = True,
    ) -> None:
        """Draw mean ± one sd, as an area if `joined`, otherwise as a whisker at each point.

        Nothing is drawn where sd is nan. If the panel's final limits cut off an area or whisker, the figure's caption
        says so.
        """
        # An area needs two neighbouring points with a height; without any, the caption must not mention bands.
        if not ((sd[1:] + sd[:-1] if joined else sd) > 0).any():
            return
        if joined:
            axes.fill_between(x, mean - sd, mean + sd, color=colour, alpha=0.2, linewidth=0)
        else:
            axes.errorbar(
                x, mean, yerr=sd, fmt="none", color=colour, linewidth=0.8, capsize=1.5
            )
        ends = float(np.nanmin(mean - sd)), float(np.nanmax(mean + sd))
        self._bands.setdefault("bands" if joined else "whiskers", []).append(
            # The method, not its value: the limits are final only when `chart` is called.
            (axes.get_ylim, *ends)
        )

    def bar(
        self,
        axes: Axes,
        place: float,
        mean: float,
        sd: float | None,
        values: Sequence[float],
        **look: Any,
    ) -> None:
        """Draw a horizontal bar for a mean, and show how its runs spread.

        Args:
            axes: the panel.
            place: position of the bar's middle on the vertical axis.
            mean: length of the bar.
            sd: a whisker reaches from `mean` - `sd` to `mean` + `sd`; None: there is no whisker.
            values: the runs' values. Two to four (`FEW`) are drawn as dots, and then there is no whisker.
            look: further keyword arguments for `Axes.barh`.
        """
        axes.barh(place, mean, height=0.7, **look)
        if 1 < len(values) <= FEW:
            axes.plot(values, [place] * len(values), ".", color=BLACK, ms=3, mew=0)
            self._dots = True
        elif sd is not None:
            axes.errorbar(mean, place, xerr=sd, color=BLACK, linewidth=0.8, capsize=1.5)
            self._bands.setdefault("whiskers", []).append(
                (axes.get_xlim, mean - sd, mean + sd)
            )

    def lines(
        self,
        axes: Axes,
        looks: Mapping[str, Look],
        rows: pl.DataFrame,
        *,
        of: str = "metric",
        x: str = "epoch",
        joined: bool = True,
    ) -> None:
        """Draw lines through means, write each line's name at its end, and show how its runs spread (`spread`).

        Args:
            axes: the panel.
            looks: how each line is drawn. A key is the line's value in the column `of`. A line without rows is left
                out.
            rows: one row per point, with the columns `of`, `x`, mean, sd and runs. Dots also need the column
                ``values``, a list of the single runs' values.
            of: name of the column that says to which line a row belongs.
            x: name of the column of the horizontal axis.
            joined: whether points are joined; otherwise there are only markers, and dots or whiskers.
        """
        for line, look in looks.items():
            points = rows.filter(pl.col(of) == line)
            if points.is_empty():
                continue
            across, mean = points[x].to_numpy(), points["mean"].to_numpy()
            # A single point has no line, so it needs a marker; on more than 25 points markers would hide the line.
            marker = (look.marker or "o" * (len(across) == 1)) if len(across) <= 25 else ""
            style = {
                "linestyle": look.dashes if joined else "",
                **mark(marker),
                "clip_on": False,
            }
            self.curve(axes, across, mean, look.label, look.colour, **style)
            self.spread(axes, points, x, look.colour, joined=joined)

    def legend(self, handles: Sequence[Artist]) -> None:
        """Write the names of `handles`, which are lines or areas, above all panels.

        There are as many columns of names as fit. Read row by row, the names have the given order.
        """
        # Matplotlib leaves out names that begin with an underscore, and an arm may be called anything.
        names = [re.sub("^_", " _", str(handle.get_label())) for handle in handles]
        columns = len(names)
        # Each entry needs about seven characters more than its name, for its line and the gaps.
        while columns > 1 and sum(
            max(map(len, names[column::columns])) + 7 for column in range(columns)
        ) > signs(self.figure.get_figwidth()):
            columns -= 1
        rows = -(-len(handles) // columns)
        # Matplotlib fills a legend column by column, but people read it row by row, so put the names in that order.
        by_column = [
            index
            for column in range(columns)
            for index in range(len(handles))[column::columns]
        ]
        self.figure.legend(
            [handles[index] for index in by_column],
            [names[index] for index in by_column],
            loc="outside upper left",
            ncols=columns,
            frameon=False,
            columnspacing=1.2,
        )
        self._grow(1.5 * rows - 1)

    def chart(
        self, name: str, data: pl.DataFrame, *, note: str = "", caption: str = ""
    ) -> Chart:
        """Finish the figure, and return it together with the numbers that it shows.

        Call this last, because the limits of all panels must be final.

        Args:
            name: name of the chart, and of its files without ending.
            data: the numbers. If there are columns mean, sd and runs, the caption begins with a sentence on the runs.
            note: what the figure leaves out; empty if nothing.
            caption: text below the figure.
        """
        caption = " ".join(filter(None, (self._sentence(data), caption)))
        if caption and captions_are_written.get():
            text = textwrap.fill(caption, signs(self.figure.get_figwidth()))
            self.figure.supxlabel(text, x=0.01, ha="left", fontsize=FONT_SIZE, color=GREY)
            self._grow(1 + text.count("\n"))
        # Labels need the position of the data on the page, which is known only after layout. Drawing would do the
        # layout too, but takes longer.
        self.figure.get_layout_engine().execute(self.figure)  # type: ignore[union-attr]  # every sheet has one
        self.figure.set_layout_engine("none")
        for axes, labels in self._labels.items():
            _place(axes, labels, 72 / self.figure.dpi)
        # CSV has no lists, and the single runs' values are in the figure only to draw dots.
        return Chart(name, self.figure, data.drop("values", strict=False), note, caption)

    def _grow(self, lines: float) -> None:
        width, height = self.figure.get_size_inches()
        self.figure.set_size_inches(width, height + lines * LINE_HEIGHT / 72)

    def _sentence(self, data: pl.DataFrame) -> str:
        """Return a sentence for the caption: how many runs each mean is of, and what bands, whiskers and dots show.

        The text is empty if `data` has no means.
        """
        if not set(SPREAD) <= set(data.columns):
            return ""
        runs = data.filter(pl.col("mean").is_not_null())["runs"].unique().sort().to_list()
        # Means of one run have no spread to explain.
        if not runs or runs == [1]:
            is_alone = "arm" in data.columns and data["arm"].n_unique() == 1
            return ("One run." if is_alone else "One run each.") if runs else ""
        bands = "".join(
            f"; {kind}: \N{PLUS-MINUS SIGN}1 sd{self._cut(kind)}" for kind in self._bands
        )
        bands += "; dots: single runs" if self._dots else ""
        return f"Means of {' to '.join(map(str, dict.fromkeys((runs[0], runs[-1]))))} runs{bands}."

    def _cut(self, kind: str) -> str:
        """Return a phrase for the caption if a panel's limits cut off bands or whiskers, otherwise an empty text.

        `kind` is ``bands`` or ``whiskers``. The phrase names the limits, as in ``, cut at 0% and 100%``.
        """
        ends = [(limits(), low, high) for limits, low, high in self._bands[kind]]
        cuts = {bottom for (bottom, _), low, _ in ends if low < bottom - 1e-9}
        cuts |= {top for (_, top), _, high in ends if high > top + 1e-9}
        return (
            f", cut at {' and '.join(f'{100 * cut:g}%' for cut in sorted(cuts))}"
            if cuts
            else ""
        )


def _place(axes: Axes, labels: Sequence[Annotation], points: float) -> None:
    low, high = (axes.transAxes.transform((0, edge))[1] * points for edge in (0, 1))
    wanted = [axes.transData.transform((0, label.xy[1]))[1] * points for label in labels]
    heights = [(1 + label.get_text().count("\n")) * LINE_HEIGHT for label in labels]
    # A label may extend half a line below the panel, where there is room, but not above it into the title.
    placed = declutter(wanted, heights, low - LINE_HEIGHT / 2, high)
    for label, here, there in zip(labels, wanted, placed, strict=True):
        label.set_position((LABEL_GAP, there - here))


def declutter(
    wanted: Sequence[float], heights: Sequence[float], low: float, high: float
) -> list[float]:
    """Return positions at which labels do not overlap, as near to the wanted ones as possible (least squares).

    A position is the vertical middle of a label. All lengths are in one unit, such as points, and count upwards. The
    result has the order of `wanted`.

    Args:
        wanted: wanted position of each label.
        heights: height of each label.
        low: limit below which no label may reach.
        high: limit above which no label should reach; labels that are too tall together exceed it.
    """
    if not wanted:
        return []
    from scipy.optimize import isotonic_regression  # imported late: it takes half a second

    # Among labels at the same position the first comes uppermost, as in a legend.
    order = np.lexsort((-np.arange(len(wanted)), np.array(wanted)))
    tall = np.array(heights)[order]
    # Subtract from each position the room that the labels below it need. Then "no overlap" means "ascending", and the
    # nearest ascending sequence is an isotonic regression.
    room = np.append(0.0, np.cumsum((tall[1:] + tall[:-1]) / 2))
    levels = isotonic_regression(np.array(wanted)[order] - room).x
    first, last = low + tall[0] / 2, high - tall[-1] / 2 - room[-1]
    placed = np.empty(len(order))
    placed[order] = np.maximum(np.minimum(levels, last), first) + room
    return placed.tolist()


def save(chart: Chart, folder: Path, *, pdf: bool = False) -> list[Path]:
    """Write a chart and its data into `folder`, and return the paths of the files.

    The chart becomes a PNG file (300 dpi) and, with `pdf`, a PDF file. The data become a CSV file. The same rows always
    give the same bytes.
    """
    make_folder(folder)
    # Without dates and versions, so that equal charts are equal files.
    undated = {
        "png": {"Software": None},
        **({"pdf": {"CreationDate": None}} if pdf else {}),
    }
    files = [folder / f"{chart.name}.{ending}" for ending in (*undated, "csv")]
    with applied():
        for file, (ending, metadata) in zip(files, undated.items(), strict=False):
            write_whole(
                file,
                partial(chart.figure.savefig, format=ending, dpi=300, metadata=metadata),
            )
    # polars sums in parallel, so the last digits vary. Without rounding here, a mean whose seventh decimal is a 5 could
    # be written with six decimals in two ways, and the files would differ.
    data = chart.data.with_columns(pl.selectors.float().round(12))
    write_text(files[-1], data.write_csv(float_precision=6))
    return files


def svg(chart: Chart) -> str:
    """Return a chart as the text of an SVG file.

    Letters are drawn as outlines, so no font is needed to show them. The same rows always give the same SVG.
    """
    written = io.StringIO()
    with (
        applied(),
        # Without a fixed salt the ids in the file would differ from call to call.
        matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "report"}),
    ):
        undated = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        chart.figure.savefig(written, format="svg", metadata=undated)
    return written.getvalue()
