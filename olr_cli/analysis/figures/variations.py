"""Figures of what arms come to: all arms, and those that differ in one setting (sensitivity, noise ratio, ablation).

The score of these three is that at the end of training: where runs have benchmark scores, the mean over in-distribution
benchmarks and that over the others; else held-out accuracy.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, cycle
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from olr_cli.analysis.arms import (
    Arm,
    Run,
    Variation,
    grpo_beside,
    measured,
    spelt,
    tell_apart,
    telling_settings,
    vary,
)
from olr_cli.analysis.figures import style
from olr_cli.analysis.figures.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, Chart, Line
from olr_cli.analysis.frame import SPREAD, Key, Lack, spread, summarise
from olr_cli.analysis.outcomes import HELD_OUT, TITLES, Source, at_the_end, source_of
from olr_cli.recipe.schema import Criterion, OlrMethod
from olr_cli.tables import Cell


@dataclass(frozen=True)
class _Family:
    """Arms of OLR that differ in one setting, under one kind of noise.

    Attributes:
        name: kind and ratio of the noise, and the settings that tell it from other families of the same noise.
        members: value of the setting -> arm; None -> the arm of GRPO that differs in nothing else, where there is one.
    """

    name: str
    members: Mapping[Any, Arm]


def _families(
    arms: Sequence[Arm], setting: str, applies: Callable[[OlrMethod], bool] = lambda _: True
) -> list[_Family]:
    """The families that differ in a setting of OLR, among arms in which it decides something."""
    variations = vary((arm for arm in arms if arm.olr is not None and applies(arm.olr)), f"method.{setting}")
    names = tell_apart(
        [variation.first.runs[0].noise or "clean" for variation in variations],
        [variation.settings("noise.") for variation in variations],
    )
    families = []
    for variation, name in zip(variations, names, strict=True):
        grpo = grpo_beside(variation.first, arms)
        families.append(_Family(name, {**variation.arms, **({None: grpo} if grpo else {})}))
    return families


def _score_titles(source: Source) -> dict[str, str]:
    averages = {column.name: f"{column.title} score" for column in source.columns if column.is_average}
    return averages or {HELD_OUT.name: "Held-out accuracy"}


def _summaries(
    families: Sequence[_Family], values: Callable[[Run], Mapping[str, float | None]]
) -> Mapping[Key, Cell]:
    """The values of the families' runs."""
    arms = {arm.name: arm for family in families for arm in family.members.values()}
    return summarise(measured(arms.values(), values))


# Arms -------------------------------------------------------------------------------------------------------------


def arms_at_the_end(arms: Sequence[Arm]) -> list[Chart]:
    """Arms at the end of training, a dot a run: what the table of arms compares.

    A panel a metric of the table, a row an arm, and a line through the mean. The data have a row a run and metric.
    """
    if len(arms) < 2:
        raise Lack("several arms")
    values = measured(arms, at_the_end).drop("at")
    shown = [metric for metric in TITLES if metric in values["metric"]]
    columns = min(len(shown), 2)
    height = 0.5 + 0.15 * len(arms)
    sheet = style.Sheet(len(shown), columns, width=style.TEXT_WIDTH, panel_height=height)
    for number, (axes, metric) in enumerate(zip(sheet.panels, shown, strict=True)):
        title = TITLES[metric]
        axes.set_title(style.lettered(number, title[0].upper() + title[1:]), pad=5)
        of_metric = values.filter(metric=metric)
        for place, arm in enumerate(arms):
            dots = of_metric.filter(arm=arm.name)["value"].to_numpy()
            if not len(dots):  # of which a line would have no place
                continue
            look: dict[str, Any] = {"alpha": 0.6, "markeredgewidth": 0, "markersize": 3.5, "clip_on": False}
            axes.plot(dots, [place] * len(dots), "o", color=BLUE, **look)
            axes.plot([dots.mean()] * 2, [place - 0.35, place + 0.35], color=style.BLACK, clip_on=False)
            _write_mean(axes, place, dots.mean())
        _rows(axes, [arm.title for arm in arms], labelled=number % columns == 0)
        axes.set_xlim(style.percent_limits(of_metric.select(mean="value", sd=None)))
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    runs = values.group_by("arm").agg(pl.col("seed").n_unique())["seed"]
    most = " to ".join(map(str, dict.fromkeys((runs.min(), runs.max()))))
    caption = f"A dot a run, {most} an arm; lines and numbers: their means, in %."
    return [sheet.chart("arms", values, caption=caption)]


def _rows(axes: Axes, names: Sequence[str], *, labelled: bool) -> None:
    """Named rows from top to bottom, and shares across."""
    axes.set_yticks(range(len(names)), names if labelled else [""] * len(names))
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")


def _write_mean(axes: Axes, place: int, mean: float) -> None:
    """The mean as a number at the right of its row."""
    axes.text(1.05, place, f"{100 * mean:.1f}", transform=axes.get_yaxis_transform(), va="center_baseline")


# Sensitivity ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OlrSetting:
    """A setting of OLR that the score is drawn against; `applies`: whether it decides anything in a method."""

    label: str
    plural: str
    applies: Callable[[OlrMethod], bool] = lambda _: True


SETTINGS: Mapping[str, OlrSetting] = {
    "slope_threshold": OlrSetting(
        "slope threshold \N{GREEK SMALL LETTER DELTA}",
        "slope thresholds",
        applies=lambda method: "slope" in method.criteria,
    ),
    "warmup_epochs": OlrSetting("warm-up epochs T", "warm-up lengths"),
}

_COLOURS = {"active": VERMILION, "inactive": BLUE}
_MORE_COLOURS = (GREEN, ORANGE, PURPLE, SKY)

_LONGEST_LINE = 18
"""Signs in a line of a label at the right of a panel."""


def sensitivity(arms: Sequence[Arm]) -> list[Chart]:
    """Sensitivity to OLR's two settings: the score at the end of training against delta, and against T.

    A line a kind of noise, dashed: GRPO under that noise. The data have a row a setting, noise, value and metric;
    without a value GRPO's.
    """
    families = {name: _families(arms, name, setting.applies) for name, setting in SETTINGS.items()}
    if not any(families.values()):
        raise Lack(
            "runs of OLR that differ in method.slope_threshold, or in method.warmup_epochs, and in nothing else but the"
            " seed, as those of paper/slope-sensitivity and paper/warmup-sensitivity"
        )
    source = source_of(arms, ())
    titles = _score_titles(source)
    scores = _summaries([*chain(*families.values())], source.values)
    columns = {"setting": str, "noise": str, "method": str, "value": float, "metric": str, **SPREAD}
    rows = pl.DataFrame(
        [
            (setting, family.name, "grpo" if value is None else "olr", value, metric, *spread(score))
            for setting in SETTINGS
            for family in families[setting]
            for metric in titles
            for value, arm in family.members.items()
            if (score := scores.get(Key(metric, arm.name)))
        ],
        columns,
        orient="row",
    )
    sheet = style.Sheet(len(titles) * len(SETTINGS), len(SETTINGS), width=style.TEXT_WIDTH, panel_height=1.9)
    panels = [(metric, name) for metric in titles for name in SETTINGS]
    for number, (axes, (metric, name)) in enumerate(zip(sheet.panels, panels, strict=True)):
        axes.set_title(style.lettered(number, titles[metric]))
        of_panel = rows.filter(setting=name, metric=metric)
        if of_panel.is_empty():
            lack = "scores of these runs" if families[name] else f"runs with several\n{SETTINGS[name].plural}"
            style.remark(axes, f"needs {lack}")
            continue
        _lines_by_noise(sheet, axes, [family.name for family in families[name]], of_panel)
        axes.set_xlabel(SETTINGS[name].label)
        _tick_values(axes, of_panel["value"].drop_nulls().unique().sort().to_list())
        style.percent_axis(axes, style.percent_limits(rows.filter(metric=metric)))
    return [sheet.chart("sensitivity", rows)]


def _lines_by_noise(sheet: style.Sheet, axes: Axes, noises: Sequence[str], rows: pl.DataFrame) -> None:
    more = iter(_MORE_COLOURS * len(noises))
    taken: set[str] = set()
    for noise, marker in zip(noises, cycle(style.MARKERS), strict=False):
        preferred = _COLOURS.get(noise.partition(" ")[0])
        colour = preferred if preferred and preferred not in taken else next(more)
        taken.add(colour)
        of_noise, label = rows.filter(noise=noise), textwrap.fill(noise, _LONGEST_LINE)
        line = Line(rows["metric"][0], label, colour, marker)
        sheet.lines(axes, [line], of_noise.filter(method="olr"), x="value")
        for grpo in of_noise.filter(method="grpo")["mean"]:
            axes.axhline(grpo, color=colour, linestyle=style.DASHES, linewidth=0.8)
            sheet.label(axes, grpo, f"{label},\nwithout OLR", colour)


def _tick_values(axes: Axes, values: Sequence[float]) -> None:
    """A tick at each value that was tested; numbers where there is room for them, at both ends in any case."""
    room = 0.16 * (values[-1] - values[0])
    named = [values[0]]
    for value in values[1:-1]:
        if value - named[-1] >= room and values[-1] - value >= room:
            named.append(value)
    axes.set_xticks([*named, *values[-1:]], [f"{value:g}" for value in (*named, *values[-1:])])
    axes.set_xticks(values, minor=True)
    axes.tick_params(which="minor", length=2.0, width=0.6)


# Noise ratio ------------------------------------------------------------------------------------------------------

_LINE_COLOURS = (GREY, BLUE, SKY, VERMILION, GREEN, ORANGE, PURPLE)


def noise(arms: Sequence[Arm]) -> list[Chart]:
    """Methods over the noise ratio: the score at the end of training, a line a method.

    A panel all runs that have the rest of their settings in common, such as the number of verified labels. The data
    have a row a panel, metric, method and ratio.
    """
    variations = sorted(vary(arms, "noise.ratio"), key=_verified)
    if not variations:
        raise Lack(
            "runs that differ in noise.ratio and in nothing else but the seed, as those of laptop/trusted"
        )
    source = source_of(arms, ())
    titles = _score_titles(source)
    settings = [variation.settings("method.") for variation in variations]
    panels = dict(zip(map(repr, settings), _panel_titles(settings), strict=True))
    members = {arm.name: arm for variation in variations for arm in variation.arms.values()}
    scores = summarise(measured(members.values(), source.values))
    rows = pl.DataFrame(
        [
            (panels[repr(rest)], metric, spelt(arm.method), ratio, *spread(score))
            for variation, rest in zip(variations, settings, strict=True)
            for metric in titles
            for ratio, arm in variation.arms.items()
            if (score := scores.get(Key(metric, arm.name)))
        ],
        {"panel": str, "metric": str, "method": str, "ratio": float, **SPREAD},
        orient="row",
    ).sort("ratio", maintain_order=True)
    methods = list(dict.fromkeys(spelt(variation.first.method) for variation in variations))
    shown = [(metric, panel) for metric in titles for panel in dict.fromkeys(panels.values())]
    columns = min(len(shown), 2)
    sheet = style.Sheet(len(shown), columns, width=style.TEXT_WIDTH, panel_height=2.0)
    for number, (axes, (metric, panel)) in enumerate(zip(sheet.panels, shown, strict=True)):
        of_panel = rows.filter(metric=metric, panel=panel)
        axes.set_title(style.lettered(number, panel or titles[metric]))
        style.label_first(axes, number % columns, titles[metric] if panel else "")
        for method, colour, marker in zip(methods, cycle(_LINE_COLOURS), cycle(style.MARKERS), strict=False):
            label = textwrap.fill(method, _LONGEST_LINE)
            line = Line(metric, label, colour, marker)
            sheet.lines(axes, [line], of_panel.filter(method=method), x="ratio")
        axes.set_xlabel("noise ratio")
        _tick_values(axes, of_panel["ratio"].unique().sort().to_list())
        style.percent_axis(axes, style.percent_limits(rows.filter(metric=metric)))
    return [sheet.chart("noise", rows)]


def _verified(variation: Variation) -> int:
    """How many labels are verified, where that is a number."""
    trusted = variation.first.recipe.data.trusted
    return trusted if isinstance(trusted, int) else 0


def _panel_titles(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """What tells the settings of panels apart, the number of verified labels in words."""
    return [
        re.sub(r"trusted=(\d+)", r"\1 verified labels", text.replace("trusted=unset", "none verified"))
        for text in telling_settings(settings)
    ]


# Ablation ---------------------------------------------------------------------------------------------------------

_SELECTED = {"selection_accuracy": "Right if selected", "coverage": "Coverage"}
"""What is counted from the labels -> the title of its panels."""

NO_VALUE = {
    "selection_accuracy": "nothing\nselected, or\ntruth unknown",
    "coverage": "no epoch\nafter warm-up",
}
"""Remarks of empty panels; by default that the runs have no scores."""

_BARS: dict[tuple[Criterion, ...] | None, tuple[str, str]] = {
    ("slope", "consistency"): ("both", BLUE),
    ("consistency",): ("consistency alone", SKY),
    ("slope",): ("slope alone", ORANGE),
    (): ("every majority", GREEN),
    None: ("without OLR", GREY),
}
"""Criteria (None: GRPO, which selects nothing) -> name and colour of the bar, from top to bottom."""


def ablation(arms: Sequence[Arm]) -> list[Chart]:
    """The ablation of OLR's criteria as bars (the paper's Table ablation, and its Fig. 3e as a whole).

    A row of panels a kind of noise, a bar a choice of criteria. Accuracy of the selected labels and coverage are over
    all visits after warm-up, counted from each run's selection during its training. The data have a row a noise, choice
    of criteria and metric.
    """
    families = _families(arms, "criteria")
    if not families:
        raise Lack(
            "runs of OLR that differ in method.criteria and in nothing else but the seed, as those of paper/ablation;"
            " what other criteria would have selected needs no other runs: --figure dynamics, or olr replay"
        )
    source = source_of(arms, ())
    titles = _SELECTED | _score_titles(source)
    values = _summaries(families, lambda run: {**source.values(run), **_selected(run)})
    rows = pl.DataFrame(
        [
            (family.name, label, metric, *spread(one))
            for family in families
            for criteria, (label, _) in _BARS.items()
            if criteria in family.members
            for metric in (*_score_titles(source), *_SELECTED)
            if (one := values.get(Key(metric, family.members[criteria].name)))
        ],
        {"noise": str, "criteria": str, "metric": str, **SPREAD},
        orient="row",
    )
    bars = {label: colour for label, colour in _BARS.values() if label in rows["criteria"]}
    height = 0.45 + 0.15 * len(bars)
    sheet = style.Sheet(len(families) * len(titles), len(titles), width=style.TEXT_WIDTH, panel_height=height)
    for number, axes in enumerate(sheet.panels):
        place, column = divmod(number, len(titles))
        metric, noise = list(titles)[column], families[place].name
        of_panel = rows.filter(noise=noise, metric=metric)
        _draw_bars(sheet, axes, bars, of_panel, labelled=column == 0)
        if of_panel.is_empty():
            style.remark(axes, NO_VALUE.get(metric, "no scores"), keeps_axes=True)
        # The last line of a title is room for the noise, which may be wider than the panel.
        axes.set_title(f"{style.lettered(column, titles[metric])}\n" if place == 0 else " ", pad=4)
        if place < len(families) - 1:
            axes.tick_params(labelbottom=False)
        if column == 0:
            named = axes.annotate(noise, (0, 1), (0, 3), "axes fraction", "offset points", color=GREY)
            named.set_in_layout(False)
    return [sheet.chart("ablation", rows)]


def _selected(run: Run) -> dict[str, float | None]:
    """Over the visits after warm-up: the share of right labels among the selected, and of selected among all."""
    method = run.recipe.method
    if not isinstance(method, OlrMethod):
        return {}
    right = pl.col("effective_label_is_correct").cast(pl.Boolean).filter("is_selected").mean()
    shares = run.labels.filter(pl.col("visit") > method.warmup_epochs).select(
        selection_accuracy=right, coverage=pl.col("is_selected").mean()
    )
    return shares.collect().row(0, named=True)


def _draw_bars(
    sheet: style.Sheet, axes: Axes, bars: Mapping[str, str], rows: pl.DataFrame, *, labelled: bool
) -> None:
    """One panel: a bar a choice with its sd, and the mean as a number at the right."""
    by_choice = {row["criteria"]: row for row in rows.iter_rows(named=True)}
    for place, (label, colour) in enumerate(bars.items()):
        if (row := by_choice.get(label)) is None:
            continue
        sheet.bar(axes, place, row["mean"], row["sd"], color=colour)
        _write_mean(axes, place, row["mean"])
    _rows(axes, list(bars), labelled=labelled)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1])
