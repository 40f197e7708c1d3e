"""How figures look: sizes, colours, axes, lines named where they end, and how they are saved.

A figure is made at the size it is printed at; no text is smaller than 7 points there. 5.5 inches are the text width of
a one-column paper and fit into that of a two-column one.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import polars as pl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from olr_cli.analysis import labels
from olr_cli.analysis.arms import Arm
from olr_cli.files import write_text, write_whole, writing

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

TEXT_WIDTH = 5.5
COLUMN_WIDTH = 3.25
FONT_SIZE = 7.0
TITLE_SIZE = 7.5

BLACK, GREY = "#000000", "#6E6E6E"
ORANGE, SKY, GREEN = "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
"""The palette of Okabe and Ito, told apart under every common colour blindness; lines also differ by marker."""

NEEDS_TRUTH = "needs true answers"
NEEDS_MARKS = "needs to know which\nlabels are noise"

_SETTINGS: dict[RcKeyType, Any] = {
    "font.family": "DejaVu Sans",
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
        figure: the drawing.
        data: the rows it is drawn from.
    """

    name: str
    figure: Figure
    data: pl.DataFrame


@dataclass(frozen=True)
class Line:
    """How a metric is drawn, and what the line is called."""

    metric: str
    label: str
    colour: str
    marker: str = "o"
    is_dashed: bool = False


@contextmanager
def applied() -> Iterator[None]:
    """Draw in this style, whatever the user's matplotlib settings are."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield


class Sheet:
    """A figure of panels.

    Args:
        panels: how many.
        columns: in a row.
        width: of the figure, in inches.
        panel_height: of a row, in inches.
    """

    def __init__(self, panels: int, columns: int, *, width: float, panel_height: float) -> None:
        rows = -(-panels // columns)
        self.figure = Figure(figsize=(width, rows * panel_height), layout="constrained")
        FigureCanvasAgg(self.figure)
        grid = self.figure.subplots(rows, columns, squeeze=False)
        self.panels: list[Axes] = list(grid.flat)[:panels]
        for unused in list(grid.flat)[panels:]:
            unused.remove()
        self._labels: list[labels.EndLabel] = []

    def label(self, axes: Axes, y: float, text: str, colour: str) -> None:
        """Name what ends at `y` at the right of the panel."""
        self._labels.append(labels.EndLabel(axes, y, text, darker(colour)))

    def lines(self, axes: Axes, lines: Sequence[Line], rows: pl.DataFrame) -> None:
        """Draw mean (line) and mean plus and minus one sd (band) of each metric, named at its end.

        Args:
            axes: the panel.
            lines: which metrics, and how; one without rows is left out.
            rows: columns metric, epoch, mean, sd.
        """
        for line in lines:
            own = rows.filter(pl.col("metric") == line.metric)
            if own.is_empty():
                continue
            epochs, mean, sd = (own[name].to_numpy() for name in ("epoch", "mean", "sd"))
            dashes = (0, (3, 1.5)) if line.is_dashed else "-"
            marker = (line.marker or "o" * (len(epochs) == 1)) if len(epochs) <= 25 else ""
            axes.plot(
                epochs, mean, color=line.colour, linestyle=dashes, marker=marker, clip_on=False, zorder=3
            )
            if own["sd"].is_not_null().any():
                axes.fill_between(epochs, mean - sd, mean + sd, color=line.colour, alpha=0.2, linewidth=0)
            self.label(axes, float(mean[-1]), line.label, line.colour)

    def finish(self) -> Figure:
        """The figure with all labels in place; the panels' limits must be final."""
        labels.place(self.figure, self._labels, line_height=1.2 * FONT_SIZE)
        return self.figure


def arm_title(number: int, arms: Sequence[Arm], width: float) -> str:
    """``(a) name`` of one of several arms, in lines that fit `width` inches; of a single arm, the name."""
    name = arms[number].name.replace("_", " ")
    letter = f"({chr(ord('a') + number)}) " if len(arms) > 1 else ""
    # A line may also end after a plus sign.
    lines = textwrap.fill(letter + name.replace("+", "+ "), int(width * 72 / (0.56 * TITLE_SIZE)))
    return lines.replace("+ ", "+")


def epoch_axis(axes: Axes, epochs: int, *, most: int = 5, margin: float = 0.05) -> None:
    """Whole epochs as ticks, `most` of them; `margin` is a share of the axis."""
    room = margin * max(epochs - 1, 1)
    axes.set_xlim(1 - room, epochs + room)
    axes.set_xticks(epoch_ticks(epochs, most))
    axes.set_xlabel("epoch")


def epoch_ticks(epochs: int, most: int) -> list[int]:
    """At most `most` round epochs; the first is one of them where it does not crowd the next."""
    for step in (1, 2, 5, 10, 20, 25, 50, *range(100, epochs + 100, 100)):
        ticks = list(range(step, epochs + 1, step))
        if step >= 5:
            ticks.insert(0, 1)
        if len(ticks) <= most:
            return ticks
    raise AssertionError("unreachable: the largest step leaves two ticks")


def percent_limits(rows: pl.DataFrame) -> tuple[float, float]:
    """Limits for shares, wide enough for all bands and at least 20 points, never beyond 0 to 100 %.

    Args:
        rows: columns mean and sd; none at all gives 0 to 100 %.
    """
    if rows.is_empty():
        return 0.0, 1.0
    spread = pl.col("sd").fill_null(0.0)
    low, high = rows.select((pl.col("mean") - spread).min(), high=(pl.col("mean") + spread).max()).row(0)
    margin = 0.05 * max(high - low, 0.2)
    low, high = max(low - margin, 0.0), min(high + margin, 1.0)
    if high - low < 0.2:
        middle = min(max((low + high) / 2, 0.1), 0.9)
        low, high = middle - 0.1, middle + 0.1
    return low, high


def percent_axis(axes: Axes, limits: tuple[float, float]) -> None:
    """Shares as percentages."""
    axes.set_ylim(limits)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))


def mark_warmup(axes: Axes, warmup_epochs: int, epochs: int, *, named: bool, colour: str = GREY) -> None:
    """A thin vertical line behind the last epoch of warm-up; nothing if warm-up has not ended."""
    if warmup_epochs >= epochs:
        return
    end = warmup_epochs + 0.5
    axes.axvline(end, color=colour, linewidth=0.6)
    if named:
        axes.text(
            end,
            1.01,
            "warm-up ends",
            transform=axes.get_xaxis_transform(),
            ha="left" if 2 * end < epochs + 1 else "right",
            va="bottom",
            color=GREY,
        )


def remark(axes: Axes, text: str) -> None:
    """What a panel has to say where it has nothing to draw."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=GREY, linespacing=1.4)


def darker(colour: str) -> str:
    """The colour as text: dark enough to be read at 7 points."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part * 0.7):02x}" for part in parts)


def save(chart: Chart, folder: Path) -> list[Path]:
    """Write a chart as PNG (300 dpi), PDF and CSV; the same rows give the same bytes.

    Returns:
        The files.

    Raises:
        UserError: the folder can't be written; each file is then whole, as it was or as it should be.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    png, pdf, csv = (folder / f"{chart.name}.{ending}" for ending in ("png", "pdf", "csv"))
    with applied():
        write_whole(png, lambda path: _render(chart.figure, path, "png", {"Software": None}))
        write_whole(pdf, lambda path: _render(chart.figure, path, "pdf", {"CreationDate": None}))
    write_text(csv, chart.data.write_csv(float_precision=6))
    return [png, pdf, csv]


def _render(figure: Figure, path: Path, kind: str, metadata: dict[str, Any]) -> None:
    figure.savefig(path, format=kind, dpi=300, metadata=metadata)
