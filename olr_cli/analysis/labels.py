"""Names at the ends of lines instead of a legend, none over another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation

GAP = 4.0
"""Between a panel and its labels, in points."""


@dataclass(frozen=True)
class EndLabel:
    """A label at the right of a panel.

    Attributes:
        axes: the panel.
        y: where it should be, in the panel's data.
        text: one or several lines.
        colour: of the text.
    """

    axes: Axes
    y: float
    text: str
    colour: str


def place(figure: Figure, labels: Sequence[EndLabel], line_height: float) -> None:
    """Write labels next to where their lines end, moved up or down where they would overlap.

    The limits of all panels must be final; the layout makes room for the labels.

    Args:
        figure: the panels' figure.
        labels: of all panels.
        line_height: of a line of text, in points.
    """
    written = [
        label.axes.annotate(
            label.text,
            (1, label.y),
            xycoords=("axes fraction", "data"),
            xytext=(GAP, 0),
            textcoords="offset points",
            va="center",
            color=label.colour,
            linespacing=1.0,
        )
        for label in labels
    ]
    # Only a layout that is settled says where the data are on the page.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in dict.fromkeys(label.axes for label in labels):
        own = [pair for pair in zip(labels, written, strict=True) if pair[0].axes is axes]
        _spread(axes, own, line_height, 72 / figure.dpi)


def _spread(
    axes: Axes, labels: Sequence[tuple[EndLabel, Annotation]], line_height: float, points: float
) -> None:
    low, high = (axes.transAxes.transform((0, edge))[1] * points for edge in (0, 1))
    wanted = [axes.transData.transform((0, label.y))[1] * points for label, _ in labels]
    heights = [(1 + label.text.count("\n")) * line_height for label, _ in labels]
    # Below a panel there is room for half a line of text; above it stands the title.
    placed = declutter(wanted, heights, low - line_height / 2, high)
    for (_, annotation), here, there in zip(labels, wanted, placed, strict=True):
        annotation.set_position((GAP, there - here))


def declutter(wanted: Sequence[float], heights: Sequence[float], low: float, high: float) -> list[float]:
    """Middles of labels, as near to the wanted ones as they can be without overlaps (least squares).

    Args:
        wanted: where each label's middle should be.
        heights: of the labels.
        low: where the lowest label may begin.
        high: where the highest label may end; a stack too tall for both ends is let out at the top.
    """
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    # Less the room that the labels below need, "no overlap" says "ascending", and the nearest ascending numbers are
    # found by pooling neighbours that are in the wrong order (isotonic regression).
    room = [0.0]
    for lower, upper in pairwise(order):
        room.append(room[-1] + (heights[lower] + heights[upper]) / 2)
    pools: list[tuple[float, int]] = []
    for index, below in zip(order, room, strict=False):
        mean, size = wanted[index] - below, 1
        while pools and pools[-1][0] > mean:
            other, count = pools.pop()
            mean, size = (mean * size + other * count) / (size + count), size + count
        pools.append((mean, size))
    levels = [mean for mean, size in pools for _ in range(size)]
    placed = [0.0] * len(wanted)
    for index, level, below in zip(order, levels, room, strict=False):
        first = low + heights[order[0]] / 2
        last = high - heights[order[-1]] / 2 - room[len(order) - 1]
        placed[index] = max(min(level, last), first) + below
    return placed
