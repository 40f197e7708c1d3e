"""How figures look: sizes, colours, axes and titles.

A figure is made at its printed size; no text there is smaller than 7 points. A width of 5.5 inches is the text width of
a one-column paper and fits into that of a two-column one.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from olr_cli.analysis.arms import Arm
from olr_cli.recipe.methods import OlrMethod

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

Values = NDArray[np.float64]

TEXT_WIDTH = 5.5
COLUMN_WIDTH = 3.25
FONT_SIZE = 7.0
TITLE_SIZE = 7.5
LINE_HEIGHT = 1.2 * FONT_SIZE
FEW = 4
"""Largest number of runs that are drawn one by one, since their sd is too uncertain."""

LABEL_GAP = 4.0
"""Gap between a panel and the names of its lines, in points."""

DASHES = (0, (3, 1.5))

BLACK, GREY = "#000000", "#6E6E6E"
ORANGE, SKY, GREEN = "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
"""The palette of Okabe and Ito, which is distinguishable under every common colour blindness."""

MARKERS = "os^DvPX"
"""Markers of the first, second, … line of a panel, so that lines also differ in print without colour."""

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
    # TrueType: some publishers refuse the Type 3 fonts that matplotlib embeds by default.
    "pdf.fonttype": 42,
}


@dataclass(frozen=True)
class Look:
    """How a line or an area is drawn (colour, marker, dashes, hatch), and its name in the figure."""

    label: str
    colour: str
    marker: str = "o"
    """Marker of a line; empty for none."""

    dashes: Any = "-"
    """Matplotlib's style of a line."""

    hatch: str = ""
    """Hatch of an area."""

    @property
    def plot(self) -> dict[str, Any]:
        """Keyword arguments with which `Axes.plot` draws a line in this look."""
        return {"color": self.colour, "linestyle": self.dashes, **mark(self.marker)}


def looks(labels: Sequence[str]) -> list[Look]:
    """Return a look (colour, marker and dashes) for each label, so that lines differ.

    The first seven looks differ in colour and marker; later looks differ from these in dashes. Looks repeat after 28
    labels.
    """
    styles = [
        (colour, marker, dashes)
        for dashes in ("-", "--", ":", "-.")
        for colour, marker in zip(_COLOURS, MARKERS, strict=True)
    ]
    return [
        Look(label, *style) for label, style in zip(labels, cycle(styles), strict=False)
    ]


captions_are_written = ContextVar("captions", default=True)


@contextmanager
def applied(*, captions: bool | None = None) -> Iterator[None]:
    """Use the project's style for everything drawn in the `with` block, regardless of the user's matplotlib settings.

    `captions` sets whether captions are written below figures; None keeps the setting of the surrounding context.
    """
    token = captions_are_written.set(
        captions_are_written.get() if captions is None else captions
    )
    try:
        with matplotlib.rc_context():
            # The user's matplotlibrc may set anything, such as a dark style.
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(_SETTINGS)
            yield
    finally:
        captions_are_written.reset(token)


def columns_of(panels: int, most: int) -> int:
    """Return how many columns a grid of `panels` panels gets, so that its rows have about the same length.

    The number is at most `most`. For example, five panels get 3 columns if `most` is 4.
    """
    # -(-a // b) rounds up.
    rows = -(-panels // most)
    return -(-panels // rows)


def lettered(number: int, title: str) -> str:
    """Return the title of a panel with its letter, such as ``(a) …`` for number 0 and ``(aa) …`` for number 26."""
    first, last = divmod(number, 26)
    letters = (chr(ord("a") + first - 1) if first else "") + chr(ord("a") + last)
    return f"({letters}) {title}"


def arm_title(number: int, arms: Sequence[Arm], width: float) -> str:
    """Return the title of the arm at index `number`, such as ``(a) OLR``, in lines that fit `width` inches.

    If there is only one arm, its title has no letter.
    """
    title = arms[number].title
    return fitted(lettered(number, title) if len(arms) > 1 else title, width, TITLE_SIZE)


def fitted(text: str, width: float, size: float = FONT_SIZE) -> str:
    """Break a text into lines that fit `width` inches at a font of `size` points.

    A word is split only if it is longer than a line.
    """
    return textwrap.fill(text, signs(width, size))


def signs(width: float, size: float = FONT_SIZE) -> int:
    """Return about how many characters fit into `width` inches at a font of `size` points."""
    # 0.56 em is a little more than the average width of a character in DejaVu Sans.
    return int(width * 72 / (0.56 * size))


def mark(marker: str) -> dict[str, Any]:
    """Return keyword arguments with which `Axes.plot` draws a marker.

    `marker` is a character of `MARKERS`, or empty for no marker. Some markers are filled, others hollow.
    """
    return {"marker": marker, **({"markerfacecolor": "white"} if marker in _HOLLOW else {})}


def epoch_axis(axes: Axes, epochs: int, *, most: int = 5, margin: float = 0.05) -> None:
    """Set up the horizontal axis for the epochs 1 to `epochs`, with about `most` whole epochs as ticks.

    `margin` is the room at both ends, as a share of the axis.
    """
    room = margin * (epochs - 1) if epochs > 1 else 0.5
    axes.set_xlim(1 - room, epochs + room)
    axes.xaxis.set_major_locator(
        MaxNLocator(most, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1)
    )
    axes.set_xlabel("epoch")


def percent_limits(rows: pl.DataFrame) -> tuple[float, float]:
    """Return the lower and upper limit of an axis for shares, at least 0.2 apart and within 0 and 1.

    The limits are wide enough for mean ± sd of all rows, or for the single runs' values if these are drawn as dots.
    `rows` has the columns mean and sd, and for dots also runs and values. Without rows the limits are 0 and 1.
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
    # A span of 20 points keeps a difference of one point from looking large.
    if high - low < 0.2:
        middle = min(max((low + high) / 2, 0.1), 0.9)
        low, high = middle - 0.1, middle + 0.1
    return low, high


def are_few(rows: pl.DataFrame) -> bool:
    """Return whether the runs behind `rows` are few enough to be drawn one by one, as dots.

    They are if the largest number in the column ``runs`` is from 2 to `FEW`. Dots need the column ``values``, a list of
    the single runs' values; without this column the result is False.
    """
    return "values" in rows.columns and 1 < int(rows["runs"].max() or 0) <= FEW  # type: ignore[arg-type]


def percent_axis(axes: Axes, limits: tuple[float, float]) -> None:
    """Set the limits of the vertical axis, which are shares from 0 to 1, and write its ticks as percentages."""
    axes.set_ylim(limits)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))


def mark_warmup(
    axes: Axes, method: OlrMethod | None, epochs: int, *, named: bool, colour: str = GREY
) -> None:
    """Draw a thin vertical line after the last epoch of OLR's warm-up, with the words "warm-up ends" if `named`.

    Nothing is drawn if `method` is None, which stands for methods other than OLR, or if the warm-up lasts for all of
    the `epochs` epochs.
    """
    if method is None or method.warmup_epochs >= epochs:
        return
    end = method.warmup_epochs + 0.5
    axes.axvline(end, color=colour, linewidth=0.6)
    if named:
        # Write the name to the side of the line with more room.
        side = "left" if 2 * end < epochs + 1 else "right"
        transform = axes.get_xaxis_transform()
        axes.text(
            end, 1.01, "warm-up ends", transform=transform, ha=side, va="bottom", color=GREY
        )


def label_first(axes: Axes, column: int, text: str) -> None:
    """Label the vertical axis of the first panel in a row, and remove the tick labels of the others.

    All panels in a row have the same scale. `column` is the panel's column, from 0; `text` is the axis label for
    column 0.
    """
    if column == 0:
        axes.set_ylabel(text)
    else:
        axes.tick_params(labelleft=False)


def remark(axes: Axes, text: str) -> None:
    """Write `text` into a panel without data, in short lines, and remove the panel's axes."""
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
    """Return a darker shade of a colour, as hexadecimal text, in which text can be read at 7 points."""
    red, green, blue = (0.7 * part for part in to_rgb(colour))
    return to_hex((red, green, blue))
