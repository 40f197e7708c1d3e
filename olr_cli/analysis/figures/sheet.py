"""The sheet that panels are drawn on: lines named where they end instead of in a legend, spreads, captions, files."""

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
from olr_cli.files import write_text, write_whole, writing


@dataclass(frozen=True)
class Chart:
    """One drawn figure and the numbers behind it.

    Attributes:
        name: file name without ending.
        note: a sentence on what it does not show; empty if it shows all.
        caption: what is written below it: of how many runs its means are, and what bands and bars show.
    """

    name: str
    figure: Figure
    data: pl.DataFrame
    note: str = ""
    caption: str = ""


class Sheet:
    """A figure of so many panels, in rows of `columns`; `width` and `panel_height` are in inches."""

    def __init__(
        self, panels: int, columns: int, *, width: float, panel_height: float
    ) -> None:
        rows = -(-panels // columns)
        self.figure = Figure(figsize=(width, rows * panel_height), layout="constrained")
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
        """Name what ends at `y` at the right of the panel."""
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
        """Draw a line, named at its end; `look` as for `Axes.plot`."""
        axes.plot(x, y, color=colour, zorder=3, **look)
        self.label(axes, float(y[-1]), label, colour)

    def spread(
        self, axes: Axes, rows: pl.DataFrame, x: str, colour: str, *, joined: bool = True
    ) -> None:
        """Show the runs behind a line: each as a dot if they are few, else mean plus and minus one sd."""
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
        """Draw mean plus and minus one sd, nan where there is none; `chart` says if the panel's limits cut it.

        That is an area, or a whisker at each point where they are not `joined`.
        """
        # An area needs two neighbours, and a height.
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
        """Draw a horizontal bar and its runs as dots if they are few, else plus and minus one sd; `look`: of `barh`."""
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
        """Draw mean (line) and mean plus and minus one sd (band) of each line, named at its end; of few runs, dots.

        `rows` have the columns `of`, which tells lines apart, `x`, mean and sd, and `values` of the runs if dots are
        to be drawn. A line without rows is left out. Markers and whiskers stand alone if the points are not `joined`.
        """
        for line, look in looks.items():
            points = rows.filter(pl.col(of) == line)
            if points.is_empty():
                continue
            across, mean = points[x].to_numpy(), points["mean"].to_numpy()
            marker = (look.marker or "o" * (len(across) == 1)) if len(across) <= 25 else ""
            style = {
                "linestyle": look.dashes if joined else "",
                **mark(marker),
                "clip_on": False,
            }
            self.curve(axes, across, mean, look.label, look.colour, **style)
            self.spread(axes, points, x, look.colour, joined=joined)

    def legend(self, handles: Sequence[Artist]) -> None:
        """Name lines or areas above all panels, in as many columns as fit, in the order of `handles`."""
        # Matplotlib leaves out names that begin with an underscore.
        names = [re.sub("^_", " _", str(handle.get_label())) for handle in handles]
        columns = len(names)
        while columns > 1 and sum(
            max(map(len, names[column::columns])) + 7 for column in range(columns)
        ) > signs(self.figure.get_figwidth()):
            columns -= 1
        rows = -(-len(handles) // columns)
        # A legend is filled column by column; it is read row by row.
        by_column = [
            place
            for column in range(columns)
            for place in range(len(handles))[column::columns]
        ]
        self.figure.legend(
            [handles[place] for place in by_column],
            [names[place] for place in by_column],
            loc="outside upper left",
            ncols=columns,
            frameon=False,
            columnspacing=1.2,
        )
        self._grow(1.5 * rows - 1)

    def chart(
        self, name: str, data: pl.DataFrame, *, note: str = "", caption: str = ""
    ) -> Chart:
        """The finished figure with the numbers behind it; the panels' limits must be final.

        Below it stand `caption` and of how many runs the data's means are if they have the columns of `SPREAD`.
        """
        caption = " ".join(filter(None, (self._sentence(data), caption)))
        if caption and captions_are_written.get():
            text = textwrap.fill(caption, signs(self.figure.get_figwidth()))
            self.figure.supxlabel(text, x=0.01, ha="left", fontsize=FONT_SIZE, color=GREY)
            self._grow(1 + text.count("\n"))
        # Only a layout that is settled says where the data are on the page. To draw would settle it too, and draw.
        self.figure.get_layout_engine().execute(self.figure)  # type: ignore[union-attr]  # every sheet has one
        self.figure.set_layout_engine("none")
        for axes, labels in self._labels.items():
            _place(axes, labels, 72 / self.figure.dpi)
        return Chart(name, self.figure, data.drop("values", strict=False), note, caption)

    def _grow(self, lines: float) -> None:
        width, height = self.figure.get_size_inches()
        self.figure.set_size_inches(width, height + lines * LINE_HEIGHT / 72)

    def _sentence(self, data: pl.DataFrame) -> str:
        """A sentence on how many runs the means are of, and what bands or whiskers show; empty without means."""
        if not set(SPREAD) <= set(data.columns):
            return ""
        runs = data.filter(pl.col("mean").is_not_null())["runs"].unique().sort().to_list()
        if not runs or runs == [1]:
            is_alone = "arm" in data.columns and data["arm"].n_unique() == 1
            return ("One run." if is_alone else "One run each.") if runs else ""
        bands = "".join(
            f"; {kind}: \N{PLUS-MINUS SIGN}1 sd{self._cut(kind)}" for kind in self._bands
        )
        bands += "; dots: single runs" if self._dots else ""
        return f"Means of {' to '.join(map(str, dict.fromkeys((runs[0], runs[-1]))))} runs{bands}."

    def _cut(self, kind: str) -> str:
        """At which limits of their panels spreads end; only shares have limits that are narrower than these."""
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
    # Below a panel there is room for half a line of text; above it stands the title.
    placed = declutter(wanted, heights, low - LINE_HEIGHT / 2, high)
    for label, here, there in zip(labels, wanted, placed, strict=True):
        label.set_position((LABEL_GAP, there - here))


def declutter(
    wanted: Sequence[float], heights: Sequence[float], low: float, high: float
) -> list[float]:
    """Middles of labels, as near to the wanted ones as they can be without overlaps (least squares).

    Args:
        wanted: where each label's middle should be.
        heights: of the labels.
        low: where the lowest label may begin.
        high: where the highest label may end; a stack too tall for both ends is let out at the top.
    """
    if not wanted:
        return []
    from scipy.optimize import isotonic_regression  # half a second

    # Of several at one place the first is uppermost, as in a legend.
    order = np.lexsort((-np.arange(len(wanted)), np.array(wanted)))
    tall = np.array(heights)[order]
    # Less the room that the labels below need, "no overlap" says "ascending".
    room = np.append(0.0, np.cumsum((tall[1:] + tall[:-1]) / 2))
    levels = isotonic_regression(np.array(wanted)[order] - room).x
    first, last = low + tall[0] / 2, high - tall[-1] / 2 - room[-1]
    placed = np.empty(len(order))
    placed[order] = np.maximum(np.minimum(levels, last), first) + room
    return placed.tolist()


def save(chart: Chart, folder: Path, *, pdf: bool = False) -> list[Path]:
    """Write a chart as PNG (300 dpi), perhaps PDF, and CSV; the same rows give the same bytes."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
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
    # polars sums in parallel: without rounding, a mean that ends in a 5 at the seventh place is written either way.
    data = chart.data.with_columns(pl.selectors.float().round(12))
    write_text(files[-1], data.write_csv(float_precision=6))
    return files


def svg(chart: Chart) -> str:
    """A chart as SVG; text is drawn as paths, so no font is needed, and the same rows give the same text."""
    written = io.StringIO()
    with (
        applied(),
        matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "report"}),
    ):
        undated = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        chart.figure.savefig(written, format="svg", metadata=undated)
    return written.getvalue()
