"""The ablation of OLR's criteria as bars (the paper's Table `ablation`, and its Fig. 3e as a whole).

A row of panels a kind of noise, a bar a choice of ``method.criteria``. Accuracy of the selected labels and coverage are
over all visits after warm-up, counted from what each run selected during its own training; the score is that of the end
of training.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from olr_cli.analysis import style
from olr_cli.analysis.arms import Arm, Run
from olr_cli.analysis.style import BLUE, GREEN, GREY, ORANGE, SKY, Chart
from olr_cli.analysis.tables.sources import Source, source_of
from olr_cli.analysis.varied import Lot, lots, score_titles, scores, spread
from olr_cli.recipe.schema import Criterion, OlrMethod

_SELECTED = {"selection_accuracy": "Right if selected", "coverage": "Coverage"}
"""What is counted from the labels -> the title of its panels."""

NO_VALUE = {
    "selection_accuracy": "nothing selected,\nor truth unknown",
    "coverage": "no epoch\nafter warm-up",
}
"""What stands in an empty panel; by default that the runs have no scores."""

_SCHEMA = {"noise": str, "criteria": str, "metric": str, "mean": float, "sd": float, "runs": int}


@dataclass(frozen=True)
class Bar:
    """How a choice of criteria is called and drawn."""

    label: str
    colour: str


_BARS: dict[tuple[Criterion, ...] | None, Bar] = {
    ("slope", "consistency"): Bar("both", BLUE),
    ("consistency",): Bar("consistency alone", SKY),
    ("slope",): Bar("slope alone", ORANGE),
    (): Bar("every majority", GREEN),
    None: Bar("without OLR", GREY),
}
"""Criteria (None: GRPO, which selects nothing) -> its bar, from top to bottom."""


def lacking(arms: Sequence[Arm]) -> str | None:
    """What the figure needs that these arms are not; None if it can be drawn."""
    if lots(arms, "criteria"):
        return None
    return (
        "runs of OLR that differ in method.criteria and in nothing else but the seed, as those of paper/ablation;"
        " what other criteria would have selected needs no other runs: --figure dynamics, or olr replay"
    )


def charts(arms: Sequence[Arm]) -> list[Chart]:
    """One chart, its data a row a noise, choice of criteria and metric; see `lacking`.

    Raises:
        UserError: a run has no labels, or a file is damaged.
    """
    found, source = lots(arms, "criteria"), source_of(arms, ())
    titles = _SELECTED | score_titles(source)
    rows = pl.DataFrame([row for lot in found for row in _rows(lot, source)], schema=_SCHEMA, orient="row")
    with style.applied():
        return [Chart("ablation", _draw(found, titles, rows), rows)]


def _rows(lot: Lot, source: Source) -> Iterator[tuple[Any, ...]]:
    for criteria, bar in _BARS.items():
        arm = lot.grpo if criteria is None else lot.arms.get(criteria)
        if arm is None:
            continue
        measured = {name: scores(arm, source, name) for name in score_titles(source)}
        if arm.olr is not None:
            counted = [_selected(run, arm.olr) for run in arm.runs]
            measured |= {
                name: [each[name] for each in counted if each[name] is not None] for name in _SELECTED
            }
        for metric, values in measured.items():
            if values:
                yield lot.name, bar.label, metric, *spread(values)


def _selected(run: Run, method: OlrMethod) -> dict[str, Any]:
    """Over the visits after warm-up: the share of right labels among the selected, and of selected among all."""
    after = run.labels.filter(pl.col("visit") > method.warmup_epochs)
    right = pl.col("effective_label_is_correct").cast(pl.Boolean).filter("is_selected").mean()
    return (
        after.select(selection_accuracy=right, coverage=pl.col("is_selected").mean())
        .collect()
        .row(0, named=True)
    )


def _draw(found: Sequence[Lot], titles: dict[str, str], rows: pl.DataFrame) -> Figure:
    bars = [bar for bar in _BARS.values() if bar.label in rows["criteria"]]
    height = 0.45 + 0.15 * len(bars)
    sheet = style.Sheet(len(found) * len(titles), len(titles), width=style.TEXT_WIDTH, panel_height=height)
    for number, axes in enumerate(sheet.panels):
        line, column = divmod(number, len(titles))
        metric = list(titles)[column]
        own = rows.filter(noise=found[line].name, metric=metric)
        _bars(axes, bars, own)
        if own.is_empty():
            _remark(axes, NO_VALUE.get(metric, "no scores"))
        # The last line of a title is room for the noise, which may be wider than the panel.
        axes.set_title(f"({chr(ord('a') + column)}) {titles[metric]}\n" if line == 0 else " ", pad=4)
        if line < len(found) - 1:
            axes.tick_params(labelbottom=False)
        if column == 0:
            named = axes.annotate(
                found[line].name, (0, 1), (0, 3), "axes fraction", "offset points", color=GREY
            )
            named.set_in_layout(False)
        else:
            axes.tick_params(labelleft=False)
    return sheet.finish()


def _bars(axes: Axes, bars: Sequence[Bar], rows: pl.DataFrame) -> None:
    """One panel: a bar a choice with its sd, and the mean as a number at the right."""
    values = {row["criteria"]: row for row in rows.iter_rows(named=True)}
    for place, bar in enumerate(bars):
        row = values.get(bar.label)
        if row is None:
            continue
        axes.barh(place, row["mean"], height=0.7, color=bar.colour)
        if row["sd"] is not None:
            axes.errorbar(row["mean"], place, xerr=row["sd"], color=style.BLACK, linewidth=0.8, capsize=1.5)
        number = f"{100 * row['mean']:.1f}"
        axes.text(1.05, place, number, transform=axes.get_yaxis_transform(), va="center_baseline")
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1])
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")


def _remark(axes: Axes, text: str) -> None:
    """What an empty panel says; unlike `style.remark` it leaves the names of the bars."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=GREY)
