"""Early Correctness Coherence (the paper's Fig. 2): right majority answers on clean and noisy prompts, by epoch.

One panel an arm. Clean and noisy prompts rise together at first; what happens then is the effect of the noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.figure import Figure

from olr_cli.analysis import style
from olr_cli.analysis.arms import Arm
from olr_cli.analysis.style import BLACK, BLUE, VERMILION, Chart, Line
from olr_cli.supervision.metrics import LABEL_METRICS

CLEAN = Line("majority/accuracy_clean", "clean", BLUE, "o")
NOISY = Line("majority/accuracy_noisy", "noisy", VERMILION, "s")
ALL_PROMPTS = Line("majority/accuracy", "all\nprompts", BLACK, "o")
"""In place of the others where nobody knows which labels are noise."""


def charts(arms: Sequence[Arm]) -> list[Chart]:
    """One chart with a panel an arm, up to four side by side."""
    rows = pl.concat([_accuracy(arm) for arm in arms])
    with style.applied():
        return [Chart("coherence", _draw(arms, rows), rows)]


def _accuracy(arm: Arm) -> pl.DataFrame:
    """Columns arm, metric, epoch, mean, sd, runs; no rows where true answers are unknown."""
    found = arm.by_epoch({line.metric: LABEL_METRICS[line.metric] for line in (CLEAN, NOISY, ALL_PROMPTS)})
    by_noise = found.filter(pl.col("metric") != ALL_PROMPTS.metric)
    return found if by_noise.is_empty() else by_noise


def _draw(arms: Sequence[Arm], rows: pl.DataFrame) -> Figure:
    columns = min(len(arms), 4)
    width = style.COLUMN_WIDTH if columns == 1 else style.TEXT_WIDTH
    sheet = style.Sheet(len(arms), columns, width=width, panel_height=2.1 if columns < 3 else 1.75)
    limits = style.percent_limits(rows)
    for number, (axes, arm) in enumerate(zip(sheet.panels, arms, strict=True)):
        axes.set_title(style.arm_title(number, arms, width / columns))
        own = rows.filter(pl.col("arm") == arm.name)
        if own.is_empty():
            style.remark(axes, style.NEEDS_TRUTH)
            continue
        style.epoch_axis(axes, arm.epochs)
        style.percent_axis(axes, limits)
        if arm.olr is not None:
            style.mark_warmup(axes, arm.olr.warmup_epochs, arm.epochs, named=True)
        sheet.lines(axes, (CLEAN, NOISY, ALL_PROMPTS), own)
        if number % columns == 0:
            axes.set_ylabel("majority accuracy")
        else:
            axes.tick_params(labelleft=False)
    return sheet.finish()
