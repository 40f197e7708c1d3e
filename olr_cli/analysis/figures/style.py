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
    """How a line or an area is drawn, and its name in the figure."""

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
        """Keywords for `Axes.plot`."""
        return {"color": self.colour, "linestyle": self.dashes, **mark(self.marker)}


def looks(labels: Sequence[str]) -> list[Look]:
    """Return a look (colour, marker and dashes) for each label, so that lines differ.

    The first seven looks differ in colour and marker; later looks differ from these in dashes.
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
    """Return how many columns to lay panels out in, at most `most`, so that all rows are about equally long.

    With `most` 4, five panels get 3 columns.
    """
    # -(-a // b) rounds up.
    rows = -(-panels // most)
    return -(-panels // rows)


def lettered(number: int, title: str) -> str:
    """Return the title of a panel, ``(a) …`` for number 0, ``(aa) …`` for number 26."""
    first, last = divmod(number, 26)
    letters = (chr(ord("a") + first - 1) if first else "") + chr(ord("a") + last)
    return f"({letters}) {title}"


def arm_title(number: int, arms: Sequence[Arm], width: float) -> str:
    """Return the title of arm number `number`, such as ``(a) OLR``, in lines that fit `width` inches.

    If it is the only arm, the title has no letter.
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
    """Return the keywords of `Axes.plot` for a marker of `MARKERS`; some are filled, others hollow."""
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
    """Return the limits of an axis for shares, wide enough for all spreads and at least 0.2 apart, within 0 and 1.

    `rows` have the columns mean and sd, or for few runs their `values`. Without rows the limits are 0 and 1.
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
    """Return whether single runs are drawn as dots, since rows are means of only two to `FEW` runs.

    The dots need the column ``values``; without it the result is False.
    """
    return "values" in rows.columns and 1 < int(rows["runs"].max() or 0) <= FEW  # type: ignore[arg-type]


def percent_axis(axes: Axes, limits: tuple[float, float]) -> None:
    """Set up the vertical axis for shares between two limits from 0 to 1, and write its ticks as percentages."""
    axes.set_ylim(limits)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))


def mark_warmup(
    axes: Axes, method: OlrMethod | None, epochs: int, *, named: bool, colour: str = GREY
) -> None:
    """Draw a thin vertical line after the last epoch of OLR's warm-up, with the words "warm-up ends" if `named`.

    Nothing is drawn for another method (None), or if none of the `epochs` follows the warm-up.
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
    """Label the vertical axis of a panel in column 0; in other columns, remove the tick labels.

    The panels of a row share the axis.
    """
    if column == 0:
        axes.set_ylabel(text)
    else:
        axes.tick_params(labelleft=False)


def remark(axes: Axes, text: str) -> None:
    """Write into a panel, in short lines, why it is empty."""
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
    """Return a colour as hexadecimal text, darkened so that text in this colour can be read at 7 points."""
    red, green, blue = (0.7 * part for part in to_rgb(colour))
    return to_hex((red, green, blue))
