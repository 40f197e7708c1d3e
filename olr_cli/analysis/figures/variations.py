"""Figures of results: of all arms, and of arms that differ in one key of their recipe and in nothing else.

The score over a key is the score at the end of training. If runs have benchmark scores, it is the mean over
in-distribution benchmarks and that over the others; else it is held-out accuracy.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import product
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from olr_cli.analysis.arms import (
    Arm,
    Variation,
    grpo_beside,
    measured,
    merged,
    spelt,
    tell_apart,
    telling_settings,
    vary,
)
from olr_cli.analysis.figures import OFTEN, OVER, style
from olr_cli.analysis.figures.sheet import Chart, Sheet
from olr_cli.analysis.figures.style import BLUE, GREEN, GREY, ORANGE, SKY
from olr_cli.analysis.frame import SPREAD, Key, Lack, spread, summarise
from olr_cli.analysis.outcomes import HELD_OUT, TITLES, at_the_end, source_of
from olr_cli.errors import unknown
from olr_cli.recipe.methods import Criterion, OlrMethod
from olr_cli.runs.stored import Run
from olr_cli.supervision.metrics import LABEL_METRICS

# Arms -------------------------------------------------------------------------------------------------------------


def arms_at_the_end(arms: Sequence[Arm]) -> list[Chart]:
    """Arms at the end of training, one dot per run: what the table of arms compares.

    There is one panel per metric of the table. A panel has one row per arm, with a line at the mean of its runs. The
    data have one row per run and metric.
    """
    if len(arms) < 2:
        raise Lack("several arms")
    values = at_the_end(arms).drop("at")
    shown = [metric for metric in TITLES if metric in values["metric"]]
    columns = style.columns_of(len(shown), 2)
    height = 0.5 + 0.15 * len(arms)
    sheet = Sheet(len(shown), columns, width=style.TEXT_WIDTH, panel_height=height)
    for number, (axes, metric) in enumerate(zip(sheet.panels, shown, strict=True)):
        title = TITLES[metric]
        axes.set_title(style.lettered(number, title[0].upper() + title[1:]), pad=5)
        of_metric = values.filter(metric=metric)
        for position, arm in enumerate(arms):
            dots = of_metric.filter(arm=arm.name)["value"].to_numpy()
            if not len(dots):  # the mean of no runs has no position
                continue
            look: dict[str, Any] = {
                "alpha": 0.6,
                "markeredgewidth": 0,
                "markersize": 3.5,
                "clip_on": False,
            }
            axes.plot(dots, [position] * len(dots), "o", color=BLUE, **look)
            axes.plot(
                [dots.mean()] * 2,
                [position - 0.35, position + 0.35],
                color=style.BLACK,
                clip_on=False,
            )
            _write_mean(axes, position, dots.mean())
        _name_rows(axes, [arm.title for arm in arms], labelled=number % columns == 0)
        axes.set_xlim(style.percent_limits(of_metric.select(mean="value", sd=None)))
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    runs = values.group_by("arm").agg(pl.col("seed").n_unique())["seed"]
    most = " to ".join(map(str, dict.fromkeys((runs.min(), runs.max()))))
    caption = (
        f"Each dot is a run ({most} per arm); lines and numbers: the means of arms, in %."
    )
    return [sheet.chart("arms", values, caption=caption)]


def _name_rows(axes: Axes, names: Sequence[str], *, labelled: bool) -> None:
    axes.set_yticks(range(len(names)), names if labelled else [""] * len(names))
    # Upside down, so that the first name is at the top.
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")


def _write_mean(axes: Axes, place: int, mean: float) -> None:
    axes.text(
        1.05,
        place,
        f"{100 * mean:.1f}",
        transform=axes.get_yaxis_transform(),
        va="center_baseline",
    )


# Over one key -----------------------------------------------------------------------------------------------------

THRESHOLD, WARMUP, CRITERIA, RATIO = OFTEN

_KEY_TITLES = {
    THRESHOLD: "slope threshold \N{GREEK SMALL LETTER DELTA}",
    WARMUP: "warm-up epochs T",
    RATIO: "noise ratio",
}

_LONGEST_LINE = 18
"""Number of characters in a line of a label to the right of a panel."""


def series_over(arms: Sequence[Arm], key: str) -> list[Variation]:
    """Return the variations of a key of the recipe (arms that differ in this key alone), with names for a figure.

    The figure shows each variation as a line or as a row of bars. The list is empty if no arms differ in the key alone.

    If the key is a setting of a method, such as ``method.criteria``, a variation is named after its noise. If there is
    a GRPO arm that differs from the variation's arms only in the method, it is added to `Variation.arms` under the
    value None, because GRPO has no such setting.

    For any other key, a variation is named after its method. Variations that differ in further settings get different
    panels.
    """
    deciding = arms if key != THRESHOLD else list(filter(_uses_slope, arms))
    variations = vary(deciding, key)
    if key.startswith("method."):
        noises = [variation.first.runs[0].noise or "clean" for variation in variations]
        names = tell_apart(
            noises, [variation.settings("noise.") for variation in variations]
        )
        return [
            replace(variation, name=name, arms=_with_grpo(variation, arms))
            for variation, name in zip(variations, names, strict=True)
        ]
    # Panels with more verified labels come later, whatever the order of the runs.
    variations = sorted(variations, key=_verified)
    methods = [spelt(variation.first.method) for variation in variations]
    names = tell_apart(methods, [_of_method(variation) for variation in variations])
    panels = _panel_titles([variation.settings("method.") for variation in variations])
    return [
        replace(variation, name=name, panel=panel)
        for variation, name, panel in zip(variations, names, panels, strict=True)
    ]


def _uses_slope(arm: Arm) -> bool:
    """Return whether the arm's method is OLR with the slope criterion.

    For other arms the slope threshold has no effect.
    """
    return arm.olr is not None and "slope" in arm.olr.criteria


def _of_method(variation: Variation) -> dict[str, Any]:
    settings = variation.settings().items()
    return {key: value for key, value in settings if key.startswith("method.")}


def _with_grpo(variation: Variation, arms: Sequence[Arm]) -> dict[Any, Arm]:
    grpo = grpo_beside(variation.first, arms)
    members = {**variation.arms, **({} if grpo is None else {None: grpo})}
    if variation.key != CRITERIA:
        return members
    return {value: members[value] for value in _CRITERIA if value in members}


def _verified(variation: Variation) -> int:
    verified = variation.first.recipe.data.verified
    return verified if isinstance(verified, int) else 0


def _panel_titles(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a title for each panel, made of the settings in which the panels differ, such as ``100 verified labels``.

    If all panels have the same settings, each title is an empty text. `settings` maps, for each panel, a dotted recipe
    key to its value.
    """
    return [
        re.sub(
            r"verified=(\d+)",
            r"\1 verified labels",
            text.replace("verified=unset", "none verified"),
        )
        for text in telling_settings(settings)
    ]


def over(arms: Sequence[Arm], key: str) -> list[Chart]:
    """The score at the end of training over one key of the recipe, of arms that differ in nothing else.

    A key whose values are numbers gives lines, any other key gives bars. If the key is a setting of a method, there is
    a line (or row of bars) for each kind of noise, with GRPO under this noise beside it. For any other key, there is a
    line (or row of bars) for each method.

    If the key is ``method.criteria``, two metrics come before the scores. They are about visits after the warm-up at
    which the majority answer replaced the label: the share of these visits at which that answer is right, and the share
    of all visits that they make up (coverage).

    The chart's data have a row for each metric of each point or bar. The column ``value`` has the key's value; it is
    null for GRPO beside a line.

    Raises:
        Lack: no arms differ in this key alone.
        UserError: the recipes have no such key.
    """  # noqa: D401 - a caption
    keys = sorted({key for arm in arms for key in arm.settings()} | set(OFTEN))
    if key not in keys:
        raise unknown("over", key, keys)
    # Arms that differ in name only would be two points at one position.
    arms = merged(arms)
    series = series_over(arms, key)
    if not series:
        raise Lack(f"runs that differ in {key}, and in nothing else but the seed")
    source = source_of(arms, ())
    titles = {
        column.name: f"{column.title} score"
        for column in source.columns
        if column.is_average
    }
    titles = titles or {HELD_OUT.name: "Held-out accuracy"}
    values: Callable[[Run], Mapping[str, float | None]] = source.values
    if key == CRITERIA:
        titles = _SELECTED | titles
        values = lambda run: {**source.values(run), **_selected(run)}  # noqa: E731
    rows = _rows(series, values, titles)
    name = f"{OVER}{key}"
    if not rows["value"].dtype.is_numeric():
        titles = {
            metric: title for metric, title in titles.items() if metric in rows["metric"]
        }
        return [_bars(series, rows, titles).chart(name, rows)]
    apart = (
        ""
        if all(map(_is_paired, _by_line(rows)))
        else "Points of different seeds are not joined."
    )
    return [_lines(series, rows, titles).chart(name, rows, caption=apart)]


def _by_line(rows: pl.DataFrame) -> list[pl.DataFrame]:
    points = rows.filter(pl.col("value").is_not_null())
    return points.partition_by("panel", "series", "metric", maintain_order=True)


def _is_paired(points: pl.DataFrame) -> bool:
    """Return whether all points of a line are means over the same seeds.

    Otherwise a line through the points would also show differences between seeds.
    """
    return points["seeds"].n_unique() == 1


def _rows(
    series: Sequence[Variation],
    values: Callable[[Run], Mapping[str, float | None]],
    metrics: Collection[str],
) -> pl.DataFrame:
    """Return a frame with the mean and sd over an arm's runs: a row for each arm of the variations and each metric.

    The columns are key, panel, series (the variation's name), value, metric, mean, sd, runs (their number), seeds (as
    one text), and values (a list of the single runs' values). An arm without a metric has no row for it.

    If all values of the key are numbers, the column ``value`` has these numbers, and null for GRPO, which has no such
    setting. Otherwise the column has the name of the arm's bar.

    Args:
        series: the variations.
        values: returns a run's metrics, as a mapping of name -> value.
        metrics: names of the metrics to keep.
    """
    arms = {arm.name: arm for variation in series for arm in variation.arms.values()}
    by_run = measured(arms.values(), values)
    cells = summarise(by_run)
    by_arm = by_run.group_by("metric", "arm").agg(pl.col("seed").sort(), "value")
    runs = {Key(metric, arm): of_runs for metric, arm, *of_runs in by_arm.iter_rows()}
    values_of_key = [
        value for variation in series for value in variation.arms if value is not None
    ]
    # None is GRPO, which is a level beside the line and no point on it; it was left out above.
    is_number = all(isinstance(value, int | float | Decimal) for value in values_of_key)
    rows: list[Sequence[Any]] = []
    for variation, metric in product(series, metrics):
        for value, arm in variation.arms.items():
            key = Key(metric, arm.name)
            if key in cells:
                shown = value if is_number else _category(value)[0]
                seeds, numbers = runs[key]
                summary = (*spread(cells[key]), " ".join(map(str, seeds)), numbers)
                rows.append(
                    (
                        variation.key,
                        variation.panel,
                        variation.name,
                        shown,
                        metric,
                        *summary,
                    )
                )
    columns = {
        "key": str,
        "panel": str,
        "series": str,
        "value": float if is_number else str,
        "metric": str,
    }
    return pl.DataFrame(
        rows, {**columns, **SPREAD, "seeds": str, "values": pl.List(float)}, orient="row"
    )


def _lines(
    series: Sequence[Variation], rows: pl.DataFrame, titles: Mapping[str, str]
) -> Sheet:
    names = list(dict.fromkeys(variation.name for variation in series))
    labels = [textwrap.fill(name.replace("_", " "), _LONGEST_LINE) for name in names]
    looks = dict(zip(names, style.looks(labels), strict=True))
    panels = list(product(titles, dict.fromkeys(variation.panel for variation in series)))
    is_counted = rows.filter(pl.col("value").is_not_null())["runs"].n_unique() > 1
    columns = style.columns_of(len(panels), 2)
    sheet = Sheet(len(panels), columns, width=style.TEXT_WIDTH, panel_height=2.0)
    for number, (axes, (metric, panel)) in enumerate(
        zip(sheet.panels, panels, strict=True)
    ):
        axes.set_title(style.lettered(number, panel or titles[metric]))
        style.label_first(axes, number % columns, titles[metric] if panel else "")
        of_panel = rows.filter(panel=panel, metric=metric)
        if of_panel.is_empty():
            style.remark(axes, "needs scores of these runs")
            continue
        for points in _by_line(of_panel):
            look = looks[points["series"][0]]
            sheet.lines(
                axes,
                {points["series"][0]: look},
                points,
                of="series",
                x="value",
                joined=_is_paired(points),
            )
            if is_counted:
                _write_runs(axes, points, style.darker(look.colour))
        without_olr = of_panel.filter(pl.col("value").is_null()).select("series", "mean")
        for name, level in without_olr.iter_rows():
            axes.axhline(
                level, color=looks[name].colour, linestyle=style.DASHES, linewidth=0.8
            )
            sheet.label(
                axes, level, f"{looks[name].label},\nwithout OLR", looks[name].colour
            )
        axes.set_xlabel(_KEY_TITLES.get(series[0].key, series[0].key))
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        style.percent_axis(axes, style.percent_limits(rows.filter(metric=metric)))
    return sheet


def _write_runs(axes: Axes, points: pl.DataFrame, colour: str) -> None:
    """Write above each point the number of runs behind its mean, such as ``n=3``.

    `points` has the columns value, mean and runs.
    """
    offset: dict[str, Any] = {
        "xytext": (0, 4),
        "textcoords": "offset points",
        "ha": "center",
    }
    for x, y, runs in points.select("value", "mean", "runs").iter_rows():
        axes.annotate(f"n={runs}", (x, y), color=colour, **offset)


# Bars -------------------------------------------------------------------------------------------------------------

_SELECTED = {"selection_accuracy": "Right if selected", "coverage": "Coverage"}
"""Metric that is counted from the labels -> the title of its panels."""

_CRITERIA: dict[tuple[Criterion, ...] | None, tuple[str, str]] = {
    ("slope", "consistency"): ("both", BLUE),
    ("consistency",): ("consistency alone", SKY),
    ("slope",): ("slope alone", ORANGE),
    (): ("every majority", GREEN),
    None: ("without OLR", GREY),
}
"""Criteria (None: GRPO, which selects nothing) -> name and colour of the bar, from top to bottom."""


def _category(value: Any) -> tuple[str, str]:
    return _CRITERIA.get(value, (str(value), BLUE))


def _selected(run: Run) -> dict[str, float | None]:
    """Return two metrics of how a run of OLR replaced labels by majority answers; an empty dict for other methods.

    Only visits after the warm-up count. A share without a value is None.

    Returns:
        ``selection_accuracy``, the share of right answers among the majority answers that replaced a label, and
        ``coverage``, the share of visits at which the label is replaced. Visits with a verified label do not count.
    """
    method = run.recipe.method
    if not isinstance(method, OlrMethod):
        return {}
    shares = run.labels.filter(pl.col("visit") > method.warmup_epochs).select(
        selection_accuracy=LABEL_METRICS["label/selected_accuracy"],
        coverage=LABEL_METRICS["label/selection_ratio"],
    )
    return shares.collect().row(0, named=True)


def _bars(
    series: Sequence[Variation], rows: pl.DataFrame, titles: Mapping[str, str]
) -> Sheet:
    """Draw a row of panels for each variation, a panel for each metric, and in each panel a bar per value of the key.

    Each bar shows the spread of its runs, and its mean as a number at the right. `rows` has the columns panel, series,
    value, metric, mean, sd and values. `titles` maps a metric to the title of its panels.
    """
    values = dict.fromkeys(value for variation in series for value in variation.arms)
    bars = dict(
        map(_category, sorted(values, key=lambda value: (*_CRITERIA, value).index(value)))
    )
    height = 0.45 + 0.15 * len(bars)
    sheet = Sheet(
        len(series) * len(titles), len(titles), width=style.TEXT_WIDTH, panel_height=height
    )
    for number, axes in enumerate(sheet.panels):
        series_index, column = divmod(number, len(titles))
        variation, metric = series[series_index], list(titles)[column]
        of_panel = rows.filter(panel=variation.panel, series=variation.name, metric=metric)
        for row in of_panel.iter_rows(named=True):
            bar = list(bars).index(row["value"])
            sheet.bar(
                axes, bar, row["mean"], row["sd"], row["values"], color=bars[row["value"]]
            )
            _write_mean(axes, bar, row["mean"])
        _name_rows(axes, list(bars), labelled=column == 0)
        axes.set_xlim(0, 1)
        axes.set_xticks([0, 0.5, 1])
        # The empty last line of each title keeps room for the series' name, which may be wider than one panel.
        axes.set_title(
            f"{style.lettered(column, titles[metric])}\n" if series_index == 0 else " ",
            pad=4,
        )
        if series_index < len(series) - 1:
            axes.tick_params(labelbottom=False)
        if column == 0:
            name = ", ".join(filter(None, (variation.panel, variation.name)))
            series_name = axes.annotate(
                name, (0, 1), (0, 3), "axes fraction", "offset points", color=GREY
            )
            # Otherwise the layout would shrink the first panel until the name fits beside it.
            series_name.set_in_layout(False)
    return sheet
