"""How figures look: sizes, colours, axes, lines named where they end instead of in a legend, and how they are saved.

A figure is made at the size it is printed at; no text is smaller than 7 points there. 5.5 inches are the text width of
a one-column paper and fit into that of a two-column one.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import ArrayLike, NDArray

from olr_cli.analysis.arms import Arm
from olr_cli.analysis.frame import SPREAD
from olr_cli.files import write_text, write_whole, writing
from olr_cli.recipe.methods import OlrMethod

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

Values = NDArray[np.float64]

TEXT_WIDTH = 5.5
COLUMN_WIDTH = 3.25
FONT_SIZE = 7.0
TITLE_SIZE = 7.5
LINE_HEIGHT = 1.2 * FONT_SIZE
_FEW = 4
"""Runs of which each is drawn, since their sd is hardly known."""
LABEL_GAP = 4.0
"""Between a panel and the names of its lines, in points."""
DASHES = (0, (3, 1.5))

BLACK, GREY = "#000000", "#6E6E6E"
ORANGE, SKY, GREEN = "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
"""The palette of Okabe and Ito, told apart under every common colour blindness."""

MARKERS = "os^DvPX"
"""Markers of the first, second, … line of a panel: lines differ in print without colour too."""

_COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK)
_HOLLOW = frozenset("sDP")

_SETTINGS: dict[RcKeyType, Any] = {
    "font.family": "DejaVu Sans",
    "text.parse_math": False,  # an arm may be called anything
    "font.size": FONT_SIZE,
    "axes.titlesize": TITLE_SIZE,
    "axes.titlelocation": "left",
    "axes.titlepad": 10.0,
    "axes.labelsize": FONT_SIZE,
    "axes.labelpad": 2.0,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "hatch.linewidth": 0.4,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 2.8,
    "xtick.labelsize": FONT_SIZE,
    "ytick.labelsize": FONT_SIZE,
    "xtick.major.size": 2.0,
    "ytick.major.size": 0.0,
    "xtick.major.width": 0.6,
    "xtick.major.pad": 2.0,
    "ytick.major.pad": 2.0,
    "pdf.fonttype": 42,
}


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


@dataclass(frozen=True)
class Look:
    """How a line or an area is drawn, and its name in the figure.

    Attributes:
        marker: of a line; empty for none.
        dashes: matplotlib's style of a line.
        hatch: of an area.
    """

    label: str
    colour: str
    marker: str = "o"
    dashes: Any = "-"
    hatch: str = ""

    @property
    def plot(self) -> dict[str, Any]:
        """Keywords of `Axes.plot`."""
        return {"color": self.colour, "linestyle": self.dashes, **mark(self.marker)}


def looks(labels: Sequence[str]) -> list[Look]:
    """Lines that differ in colour and marker; dashes come when these are used up."""
    styles = [
        (colour, marker, dashes)
        for dashes in ("-", "--", ":", "-.")
        for colour, marker in zip(_COLOURS, MARKERS, strict=True)
    ]
    return [Look(label, *style) for label, style in zip(labels, cycle(styles), strict=False)]


_captions = ContextVar("captions", default=True)


@contextmanager
def applied(*, captions: bool | None = None) -> Iterator[None]:
    """Draw in this style, whatever the user's matplotlib settings are; `captions` below figures, or as around it."""
    token = _captions.set(_captions.get() if captions is None else captions)
    try:
        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(_SETTINGS)
            yield
    finally:
        _captions.reset(token)


class Sheet:
    """A figure of so many panels, in rows of `columns`; `width` and `panel_height` are in inches."""

    def __init__(self, panels: int, columns: int, *, width: float, panel_height: float) -> None:
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
        if 1 < len(values) <= _FEW:
            axes.plot(values, [place] * len(values), ".", color=BLACK, ms=3, mew=0)
            self._dots = True
        elif sd is not None:
            axes.errorbar(mean, place, xerr=sd, color=BLACK, linewidth=0.8, capsize=1.5)
            self._bands.setdefault("whiskers", []).append((axes.get_xlim, mean - sd, mean + sd))

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
        ) > _signs(self.figure.get_figwidth()):
            columns -= 1
        rows = -(-len(handles) // columns)
        # A legend is filled column by column; it is read row by row.
        by_column = [
            place for column in range(columns) for place in range(len(handles))[column::columns]
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
        if caption and _captions.get():
            text = textwrap.fill(caption, _signs(self.figure.get_figwidth()))
            self.figure.supxlabel(text, x=0.01, ha="left", fontsize=FONT_SIZE, color=GREY)
            self._grow(1 + text.count("\n"))
        # Only a layout that is settled says where the data are on the page.
        self.figure.draw_without_rendering()
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
        return (
            f"Means of {' to '.join(map(str, dict.fromkeys((runs[0], runs[-1]))))} runs{bands}."
        )

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


def columns_of(panels: int, most: int) -> int:
    """How many columns, at most `most`, make the rows of panels about equally long: 3 for five panels, not 4."""
    rows = -(-panels // most)
    return -(-panels // rows)


def lettered(number: int, title: str) -> str:
    """The title of a panel, ``(a) …`` for number 0, ``(aa) …`` for number 26."""
    first, last = divmod(number, 26)
    letters = (chr(ord("a") + first - 1) if first else "") + chr(ord("a") + last)
    return f"({letters}) {title}"


def arm_title(number: int, arms: Sequence[Arm], width: float) -> str:
    """``(a) title`` of one of several arms, in lines that fit `width` inches; of a single arm, the title."""
    title = arms[number].title
    return fitted(lettered(number, title) if len(arms) > 1 else title, width, TITLE_SIZE)


def fitted(text: str, width: float, size: float = FONT_SIZE) -> str:
    """The text in lines that fit `width` inches; words are broken only where they are longer."""
    return textwrap.fill(text, _signs(width, size))


def _signs(width: float, size: float = FONT_SIZE) -> int:
    """How many signs of a text fit into `width` inches."""
    return int(width * 72 / (0.56 * size))


def mark(marker: str) -> dict[str, Any]:
    """How a line is marked, as `Axes.plot` takes it: every second one of `MARKERS` is hollow."""
    return {"marker": marker, **({"markerfacecolor": "white"} if marker in _HOLLOW else {})}


def epoch_axis(axes: Axes, epochs: int, *, most: int = 5, margin: float = 0.05) -> None:
    """Whole epochs as ticks, about `most` of them; `margin` is a share of the axis."""
    room = margin * (epochs - 1) if epochs > 1 else 0.5
    axes.set_xlim(1 - room, epochs + room)
    axes.xaxis.set_major_locator(
        MaxNLocator(most, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1)
    )
    axes.set_xlabel("epoch")


def percent_limits(rows: pl.DataFrame) -> tuple[float, float]:
    """Limits for shares, wide enough for all bands and at least 20 points, never beyond 0 to 100 %.

    `rows` have columns mean and sd; none at all gives 0 to 100 %.
    """
    if rows.is_empty():
        return 0.0, 1.0
    sd = pl.col("sd").fill_null(0.0)
    ends = (pl.col("mean") - sd).min(), (pl.col("mean") + sd).max()
    if are_few(rows):
        ends = pl.col("values").list.min().min(), pl.col("values").list.max().max()
    low, high = rows.select(ends[0], high=ends[1]).row(0)
    margin = 0.05 * max(high - low, 0.2)
    low, high = max(low - margin, 0.0), min(high + margin, 1.0)
    if high - low < 0.2:
        middle = min(max((low + high) / 2, 0.1), 0.9)
        low, high = middle - 0.1, middle + 0.1
    return low, high


def are_few(rows: pl.DataFrame) -> bool:
    """Whether rows are means of several runs, but of too few for an sd to say much; their `values` are drawn then."""
    return "values" in rows.columns and 1 < int(rows["runs"].max() or 0) <= _FEW  # type: ignore[arg-type]


def percent_axis(axes: Axes, limits: tuple[float, float]) -> None:
    """Shares as percentages."""
    axes.set_ylim(limits)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))


def mark_warmup(
    axes: Axes, method: OlrMethod | None, epochs: int, *, named: bool, colour: str = GREY
) -> None:
    """A thin vertical line behind the last epoch of warm-up; nothing if there is none or it has not ended."""
    if method is None or method.warmup_epochs >= epochs:
        return
    end = method.warmup_epochs + 0.5
    axes.axvline(end, color=colour, linewidth=0.6)
    if named:
        side = "left" if 2 * end < epochs + 1 else "right"
        place = axes.get_xaxis_transform()
        axes.text(end, 1.01, "warm-up ends", transform=place, ha=side, va="bottom", color=GREY)


def label_first(axes: Axes, column: int, text: str) -> None:
    """Label the y axis of the first panel of a row, which the others share."""
    if column == 0:
        axes.set_ylabel(text)
    else:
        axes.tick_params(labelleft=False)


def remark(axes: Axes, text: str) -> None:
    """Say in a panel why it has nothing to draw, in short lines."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
    text = textwrap.fill(text, 16)
    axes.text(
        0.5,
        0.5,
        text,
        transform=axes.transAxes,
        ha="center",
        va="center",
        color=GREY,
        linespacing=1.4,
    )


def darker(colour: str) -> str:
    """The colour as text: dark enough to be read at 7 points."""
    red, green, blue = (0.7 * part for part in to_rgb(colour))
    return to_hex((red, green, blue))


def save(chart: Chart, folder: Path, *, pdf: bool = False) -> list[Path]:
    """Write a chart as PNG (300 dpi), perhaps PDF, and CSV; the same rows give the same bytes."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    undated = {"png": {"Software": None}, **({"pdf": {"CreationDate": None}} if pdf else {})}
    files = [folder / f"{chart.name}.{ending}" for ending in (*undated, "csv")]
    with applied():
        for file, (ending, metadata) in zip(files, undated.items(), strict=False):
            write_whole(
                file, partial(chart.figure.savefig, format=ending, dpi=300, metadata=metadata)
            )
    # polars sums in parallel: without rounding, a mean that ends in a 5 at the seventh place is written either way.
    data = chart.data.with_columns(pl.selectors.float().round(12))
    write_text(files[-1], data.write_csv(float_precision=6))
    return files


def svg(chart: Chart) -> str:
    """A chart as SVG; text is drawn as paths, so no font is needed, and the same rows give the same text."""
    written = io.StringIO()
    with applied(), matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "report"}):
        undated = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        chart.figure.savefig(written, format="svg", metadata=undated)
    return written.getvalue()
