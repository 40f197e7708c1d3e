"""How training went, step by step, for runs and other trainers' logs; no true answers or labels are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator

from olr_cli.analysis.arms import Arm
from olr_cli.analysis.figures import style
from olr_cli.analysis.figures.sheet import Chart, Sheet
from olr_cli.analysis.figures.style import BLUE, Look
from olr_cli.analysis.frame import Lack, frame, spreads
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.stored import Run
from olr_cli.runs.throughput import GENERATED

_WINDOWS = 15
"""Number of averaging windows in a run: enough to show the course, few enough to show a collapse."""

_MARKERS = 5
"""Number of markers along a line of many steps."""

TITLES: Mapping[str, str] = {
    "rollout/reward": "Reward",
    "eval/avg": "Held-out accuracy",
    "policy/entropy": "Entropy, nats",
    "rollout/length": "Response length, tokens",
    "rollout/characters": "Response length, characters",
    "rollout/truncated": "Truncated responses",
    "policy/kl": "KL to the reference, nats",
    "rollout/zero_variance_groups": "Groups of equal rewards",
    GENERATED: "Generated tokens per s",
}
"""Metrics of metrics.jsonl (for a log, those that its rollouts show) -> the title of their panel, with the unit."""

_WITHOUT_TRUTH: Mapping[str, str] = {
    "majority/differs_from_label": "Majority is not the label",
    "label/selection_ratio": "Labels replaced",
}
"""Additional panels if true answers are unknown: the metrics of labels that can be counted anyway."""

_ALL_TITLES = {**TITLES, **_WITHOUT_TRUTH}
_TRUTH = "majority/accuracy"
"""A metric that only runs with true answers have."""

_SHARES = {"eval/avg", "rollout/truncated", "rollout/zero_variance_groups", *_WITHOUT_TRUTH}
_SPARSE = "eval/avg"
"""Metric that is measured in few steps; these are marked, and not averaged."""

_LEAST_SPANS = {"rollout/reward": 0.1, "policy/entropy": 0.1, "policy/kl": 0.01}
"""Smallest span of an axis, so that noise does not look like a trend; for other metrics a tenth of the largest
value.
"""


def learning(arms: Sequence[Arm]) -> list[Chart]:
    """How training went, by step: reward, held-out accuracy, entropy, length, KL and more; no truth is needed.

    There is one chart, with a panel per metric and a line per arm. A line is the mean over the arm's seeds, and their
    spread is drawn around it. Values are averaged over windows of a fifteenth of the steps, except held-out accuracy.
    If there is only one run, its values at single steps are drawn pale behind the line. Metrics without values get no
    panel.

    Raises:
        Lack: the runs have none of the metrics.
    """
    values = _with_or_without_truth(pl.concat([_measured(arm) for arm in arms]))
    if values.is_empty():
        raise Lack(
            "metrics by step, and metrics.jsonl of these runs has none of "
            + ", ".join(TITLES)
        )
    last = int(values["at"].max() or 1)  # type: ignore[arg-type]  # of whole numbers
    # `| 1` makes the window odd, so that it is centred on its step.
    window = max(1, last // _WINDOWS) | 1
    rows = spreads(_smoothed(values, window), "step")
    # A metric that is 0 in every step tells nothing and would take a panel.
    moving = set(rows.filter(pl.col("mean") != 0)["metric"])
    shown = [metric for metric in _ALL_TITLES if metric in moving] or [rows["metric"][0]]
    columns = style.columns_of(len(shown), 3)
    sheet = Sheet(len(shown), columns, width=style.TEXT_WIDTH, panel_height=1.4)
    looks = style.looks([arm.title for arm in arms])
    is_single = len(arms) == len(arms[0].runs) == 1
    breaks = False
    for number, (axes, metric) in enumerate(zip(sheet.panels, shown, strict=True)):
        drawn, raw = rows.filter(metric=metric), values.filter(metric=metric)
        axes.set_title(_ALL_TITLES[metric], pad=5)
        for index, (arm, look) in enumerate(zip(arms, looks, strict=True)):
            breaks |= _draw(
                sheet, axes, look, drawn.filter(arm=arm.name), index / len(arms)
            )
        if is_single:
            # The limits must hold the single steps too, which reach further than their averages.
            drawn = raw.select(mean="value", sd=None)
            _draw_steps(axes, metric, raw)
        _finish(axes, metric, drawn, last)
        if number >= len(shown) - columns:
            axes.set_xlabel("step")
    if len(arms) > 1:
        sheet.legend([Line2D([], [], label=look.label, **look.plot) for look in looks])
    caption = _caption(window, is_single=is_single, breaks=breaks)
    return [sheet.chart("learning", rows, caption=caption)]


def _caption(window: int, *, is_single: bool, breaks: bool) -> str:
    pale = ", which are shown pale" if is_single else ""
    averaged = f"Averaged over {window} steps{pale}. " if window > 1 else ""
    return (averaged + "Lines break where runs end." * breaks).rstrip()


def _draw_steps(axes: Axes, metric: str, raw: pl.DataFrame) -> None:
    """Draw the values of one run at single steps, as a pale line behind their average.

    Nothing is drawn for held-out accuracy, because it is not averaged.

    Args:
        axes: the panel.
        metric: name of the metric.
        raw: one row per step, with the columns ``at`` (number of the step) and ``value``.
    """
    if metric != _SPARSE:
        steps, values = raw["at"].to_numpy(), raw["value"].to_numpy()
        axes.plot(steps, values, color=BLUE, alpha=0.25, linewidth=0.6)


def _measured(arm: Arm) -> pl.DataFrame:
    return frame(
        (arm.name, run.seed, metric, int(line["step"]), line[metric])
        for run in arm.runs
        for line in _lines(run)
        for metric in (*_ALL_TITLES, _TRUTH)
        if line.get(metric) is not None
    )


def _with_or_without_truth(values: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of `values` whose metric the figure shows.

    These are the metrics in `TITLES`, such as reward and length. If no run knows true answers, the figure also shows
    how often the majority answer differs from the label, and how often it replaces the label; each of these only if it
    is above 0 at some step.
    """
    names = set(values.filter(pl.col("value") > 0)["metric"])
    extra = set[str]() if _TRUTH in set(values["metric"]) else names & _WITHOUT_TRUTH.keys()
    return values.filter(pl.col("metric").is_in([*TITLES, *extra]))


def _lines(run: Run) -> list[dict[str, float]]:
    return read_metrics(run.path) if run.log is None else by_step(run.log.rows).to_dicts()


def by_step(rollouts: pl.DataFrame) -> pl.DataFrame:
    """Compute the metrics of each step from the rollouts in another trainer's log.

    The result has one row per step, in ascending order, with the column step and a column per metric, such as
    ``rollout/reward``. A metric is left out if the log lacks the columns for it. A metric without a value at a step is
    null there.
    """
    names = set(rollouts.columns)
    group = ["prompt_id", "visit", "step"]
    means = {
        "rollout/reward": "reward",
        "rollout/length": "tokens",
        "rollout/characters": "characters",
        "rollout/truncated": "truncated",
    }
    if "tokens" in names and rollouts["tokens"].null_count() < len(rollouts):
        # Tokens are the better measure of length; show characters only without them.
        del means["rollout/characters"]
    available = [
        pl.col(column).mean().alias(metric)
        for metric, column in means.items()
        if column in names
    ]
    steps = rollouts.group_by("step").agg(*available).sort("step")
    if "reward" not in names:
        return steps
    groups = rollouts.group_by(group).agg(
        equal=pl.col("reward").n_unique() == 1, size=pl.len()
    )
    # The rewards of a group of one are always equal, which says nothing about training.
    equal = groups.filter(pl.col("size") > 1).group_by("step").agg(pl.col("equal").mean())
    return steps.join(
        equal.rename({"equal": "rollout/zero_variance_groups"}), on="step", how="left"
    )


def _smoothed(values: pl.DataFrame, window: int) -> pl.DataFrame:
    """Return `values` with each value replaced by a centred moving average over `window` steps of its run.

    Values of held-out accuracy are not averaged, because they are measured only every few steps.
    """
    mean = (
        pl.col("value")
        .rolling_mean(window, min_samples=1, center=True)
        .over("arm", "seed", "metric")
    )
    return values.with_columns(pl.when(metric=_SPARSE).then("value").otherwise(mean))


def _draw(sheet: Sheet, axes: Axes, look: Look, rows: pl.DataFrame, shift: float) -> bool:
    """Draw the line of an arm and the spread of its runs, and return whether the line has a gap.

    The line has a gap where a run ends, because the mean over the remaining runs may be at another height.

    Args:
        sheet: the figure.
        axes: the panel.
        look: colour, marker and name of the line.
        rows: one row per step, with the columns step, mean, sd, runs and values.
        shift: a share, from 0 to 1, of the distance between two markers. A long line's markers are moved by it, so that
            they do not cover those of other arms, which have another shift.
    """
    every = 1 if len(rows) <= 25 else len(rows) // _MARKERS
    marks: dict[str, Any] = {"markevery": (int(shift * every), every)}
    # Runs that have ended do not come back, so the smallest number so far is the number of runs still going on.
    lines = rows.with_columns(going_on=pl.col("runs").cum_min()).partition_by(
        "going_on", maintain_order=True
    )
    for line in lines:
        axes.plot(
            line["step"].to_numpy(), line["mean"].to_numpy(), zorder=3, **look.plot, **marks
        )
    sheet.spread(axes, rows, "step", look.colour)
    return len(lines) > 1


def _finish(axes: Axes, metric: str, rows: pl.DataFrame, last: int) -> None:
    """Set the limits and ticks of a panel.

    `rows` has the values that the panel shows, in the columns mean and sd. `last` is the last step in any panel.
    """
    axes.set_xlim(-0.03 * last, 1.03 * last)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=[1, 2, 5, 10]))
    # Thousands are written as 1k, which leaves more room for the panels.
    is_large = float(rows["mean"].max() or 0) >= 1000  # type: ignore[arg-type]  # of numbers
    if metric in _SHARES:
        style.percent_axis(axes, style.percent_limits(rows))
    else:
        low, high = axes.get_ylim()
        span = _LEAST_SPANS.get(metric, 0.1 * max(abs(low), abs(high)))
        if high - low < span:
            axes.set_ylim((low + high - span) / 2, (low + high + span) / 2)
        axes.yaxis.set_major_formatter(
            EngFormatter(sep="") if is_large else FuncFormatter(lambda y, _: f"{y:g}")
        )
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
