"""Figures by epoch, from labels tables: early coherence, what majorities are made of, and the training dynamics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from olr_cli.analysis.arms import Arm
from olr_cli.analysis.figures import style
from olr_cli.analysis.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    Chart,
    Line,
)
from olr_cli.analysis.frame import Lack, spreads
from olr_cli.recipe.schema import Criterion, OlrMethod
from olr_cli.supervision.metrics import COMPOSITION, LABEL_METRICS, accuracy_among, selected_under

# Coherence --------------------------------------------------------------------------------------------------------


def coherence(arms: Sequence[Arm]) -> list[Chart]:
    """Early Correctness Coherence (the paper's Fig. 2): right majority answers on clean and noisy prompts, by epoch.

    One chart with a panel an arm, up to four side by side: panel (a) of the dynamics. Clean and noisy prompts rise
    together at first; what happens then is the effect of the noise.
    """
    histories = [_History(arm, [PANELS["a"]]) for arm in arms]
    if all(history.remark(PANELS["a"]) is not None for history in histories):
        raise Lack("true answers")
    rows = pl.concat([history.rows(PANELS["a"]) for history in histories])
    columns = min(len(arms), 4)
    width = style.COLUMN_WIDTH if columns == 1 else style.TEXT_WIDTH
    sheet = style.Sheet(len(arms), columns, width=width, panel_height=2.1 if columns < 3 else 1.75)
    for number, (axes, history) in enumerate(zip(sheet.panels, histories, strict=True)):
        axes.set_title(style.arm_title(number, arms, width / columns))
        remark = history.remark(PANELS["a"])
        if remark is not None:
            style.remark(axes, remark)
            continue
        style.epoch_axis(axes, history.arm.epochs)
        style.percent_axis(axes, style.percent_limits(rows))
        style.mark_warmup(axes, history.arm.olr, history.arm.epochs, named=True)
        sheet.lines(axes, history.lines(PANELS["a"]), rows.filter(arm=history.arm.name))
        style.label_first(axes, number % columns, "majority accuracy")
    return [sheet.chart("coherence", rows)]


# Composition ------------------------------------------------------------------------------------------------------

STACKS = {
    "clean": (
        Line("composition/clean_right", "right", GREEN),
        Line("composition/clean_wrong", "wrong", SKY),
    ),
    "noisy": (
        Line("composition/noisy_right", "right", GREEN),
        Line("composition/noisy_equal", "the noisy\nlabel", VERMILION, hatch="////"),
        Line("composition/noisy_neither", "neither", SKY),
    ),
}
"""Prompts -> the areas of their panel, from the bottom up."""

_LEGEND = ("right", "the noisy label", "wrong (clean prompts), neither (noisy)")
"""The areas on noisy prompts, where there are too many panels to name the areas of each."""


def composition(arms: Sequence[Arm]) -> list[Chart]:
    """What majority answers are made of, by epoch: stacked shares on clean and on noisy prompts.

    On clean prompts a majority is right or wrong; on noisy ones it is right, equal to the noisy label, or neither.
    """
    rows = pl.concat([spreads(arm.frame(COMPOSITION)) for arm in arms])
    if rows.is_empty():
        raise Lack("true answers, and to know which labels are noise")
    is_alone, are_many = len(arms) == 1, len(arms) > 2
    columns = 2 if is_alone else 4
    width, height = (4.0, 2.1) if is_alone else (style.TEXT_WIDTH, 1.75)
    sheet = style.Sheet(2 * len(arms), columns, width=width, panel_height=height)
    first_of_olr = next((2 * number for number, arm in enumerate(arms) if arm.olr is not None), None)
    for number, axes in enumerate(sheet.panels):
        arm, (prompts, areas) = arms[number // 2], list(STACKS.items())[number % 2]
        name = style.arm_title(number // 2, arms, 2 * width / columns) if number % 2 == 0 else ""
        axes.set_title(f"{name}\n{prompts} prompts", pad=12)
        of_arm = rows.filter(arm=arm.name)
        remark = _composition_remark(arm, prompts, of_arm)
        if remark is not None:
            style.remark(axes, remark)
            continue
        _stack(sheet, axes, areas, of_arm, named=not are_many)
        style.epoch_axis(axes, arm.epochs, most=4, margin=0)
        style.percent_axis(axes, (0.0, 1.0))
        style.mark_warmup(axes, arm.olr, arm.epochs, named=number == first_of_olr, colour=BLACK)
        style.label_first(axes, number % columns, "share of prompts")
    if are_many:
        named = zip(STACKS["noisy"], _LEGEND, strict=True)
        sheet.legend(
            [Patch(fc=area.colour, hatch=area.hatch, ec="white", label=label) for area, label in named]
        )
    return [sheet.chart("composition", rows)]


def _composition_remark(arm: Arm, prompts: str, rows: pl.DataFrame) -> str | None:
    """Why a panel has nothing to show."""
    if rows.is_empty():
        knows_truth = not arm.frame({"": LABEL_METRICS["majority/accuracy"]}).is_empty()
        return style.NEEDS_MARKS if knows_truth else style.NEEDS_TRUTH
    if not rows["metric"].str.starts_with(f"composition/{prompts}").any():
        return f"no {prompts} prompts"
    return "needs a\nsecond epoch" if arm.epochs < 2 else None


def _stack(sheet: style.Sheet, axes: Axes, areas: Sequence[Line], rows: pl.DataFrame, *, named: bool) -> None:
    shares = [rows.filter(metric=area.metric) for area in areas]
    axes.stackplot(
        shares[0]["epoch"].to_numpy(),
        *(share["mean"].to_numpy() for share in shares),
        colors=[area.colour for area in areas],
        hatch=[area.hatch for area in areas],
        linewidth=0.4,
        edgecolor="white",
    )
    below = 0.0
    for area, share in zip(areas, shares, strict=True):
        last = float(share["mean"][-1])
        if named and share["mean"].max():
            sheet.label(axes, below + last / 2, area.label, area.colour)
        below += last
    axes.grid(visible=False)


# Dynamics ---------------------------------------------------------------------------------------------------------

_ABLATION: Mapping[str, tuple[Criterion, ...]] = {
    "ablation/both": ("slope", "consistency"),
    "ablation/slope": ("slope",),
    "ablation/consistency": ("consistency",),
}


@dataclass(frozen=True)
class Panel:
    """One panel of the dynamics.

    Attributes:
        otherwise: the lines where nobody knows which labels are noise.
        is_selection: it is about what the method selected, so it begins after warm-up.
        is_ablation: it is about what each criterion would have selected.
        first_epoch: earlier values are no measurement (a slope needs two visits).
        is_share: percentages; otherwise plain numbers.
        from_zero: the axis begins at 0.
    """

    title: str
    lines: tuple[Line, ...]
    otherwise: tuple[Line, ...] = ()
    needs_truth: bool = True
    is_selection: bool = False
    is_ablation: bool = False
    first_epoch: int = 1
    is_share: bool = True
    from_zero: bool = False


def _by_noise(metric: str) -> tuple[Line, ...]:
    return Line(f"{metric}clean", "clean", BLUE, "o"), Line(f"{metric}noisy", "noisy", VERMILION, "s")


def _by_selection(metric: str) -> tuple[Line, ...]:
    selected = Line(f"{metric}selected", "selected", GREEN, "o")
    return selected, Line(f"{metric}unselected", "unselected", PURPLE, "s")


def _of_all(metric: str) -> tuple[Line, ...]:
    return (Line(metric, "all prompts", BLACK, "o"),)


PANELS: Mapping[str, Panel] = {
    "a": Panel("Training accuracy", _by_noise("majority/accuracy_"), _of_all("majority/accuracy")),
    "b": Panel("Accuracy by selection", _by_selection("majority/accuracy_"), is_selection=True),
    "c": Panel(
        "Slope of the pass rate",
        _by_noise("slope/"),
        _by_selection("slope/"),
        needs_truth=False,
        first_epoch=2,
        is_share=False,
    ),
    "d": Panel(
        "Selection ratio",
        _by_noise("label/selection_ratio_"),
        _of_all("label/selection_ratio"),
        needs_truth=False,
        is_selection=True,
        from_zero=True,
    ),
    "e": Panel(
        "Ablation accuracy",
        (
            Line("ablation/both", "both", BLACK, "o"),
            Line("ablation/slope", "slope\nalone", ORANGE, "s"),
            Line("ablation/consistency", "consistency\nalone", SKY, "^"),
        ),
        is_ablation=True,
    ),
    "f": Panel(
        "Effective noise",
        (
            Line("label/effective_noise", "effective", VERMILION, "s"),
            Line("label/initial_noise", "initial", GREY, "", is_dashed=True),
        ),
        from_zero=True,
    ),
}


def dynamics(arms: Sequence[Arm]) -> list[Chart]:
    """Training dynamics (the paper's Fig. 3, and its twin under inactive noise): up to six panels, by epoch.

    One chart an arm; panels that it has nothing for are left out, and its note says why. The data have a row a panel,
    metric and epoch. A method's selection is shown as it was stored; methods that always or never select have nothing
    to show there. Panel (e) counts what each criterion *would* have selected from the same history; a run whose method
    has no criteria is counted at the default settings of OLR, and the panel says so.
    """
    charts = []
    for arm in arms:
        suffix = "" if len(arms) == 1 else "_" + re.sub("[^A-Za-z0-9.+-]+", "-", arm.name)
        history, data = _History(arm, PANELS.values()), []
        panels = {letter: panel for letter, panel in PANELS.items() if history.remark(panel) is None}
        if not panels:
            continue
        width = style.TEXT_WIDTH if len(panels) > 1 else style.COLUMN_WIDTH
        columns = min(len(panels), 3) if len(panels) != 4 else 2
        sheet = style.Sheet(len(panels), columns, width=width, panel_height=1.6)
        for axes, (letter, panel) in zip(sheet.panels, panels.items(), strict=True):
            axes.set_title(f"({letter}) {panel.title}")
            rows = history.rows(panel)
            data.append(rows.select(pl.lit(letter).alias("panel"), pl.all()))
            style.epoch_axis(axes, arm.epochs)
            sheet.lines(axes, history.lines(panel), rows)
            _finish_axes(axes, history, panel, rows, is_first=axes is sheet.panels[0])
        name, caption = f"dynamics{suffix}", f"Arm: {arm.title}." if len(arms) > 1 else ""
        charts.append(sheet.chart(name, pl.concat(data), note=_left_out(name, history), caption=caption))
    if not charts:
        raise Lack("true answers, or two epochs")
    return charts


def _left_out(name: str, history: _History) -> str:
    """A sentence on the panels that have nothing to show, and why."""
    reasons: dict[str, list[str]] = {}
    for letter, panel in PANELS.items():
        if (remark := history.remark(panel)) is not None:
            reasons.setdefault(remark, []).append(f"({letter}) {panel.title}")
    if not reasons:
        return ""
    shown = "; ".join(f"{', '.join(panels)}: {reason}" for reason, panels in reasons.items())
    return f"{name} leaves out {shown}."


def _finish_axes(axes: Axes, history: _History, panel: Panel, rows: pl.DataFrame, *, is_first: bool) -> None:
    arm, settings = history.arm, history.settings
    if panel.is_share:
        low, high = style.percent_limits(rows)
        style.percent_axis(axes, (0.0 if panel.from_zero else low, high))
    else:
        axes.axhline(0, color=GREY, linewidth=0.6, zorder=1)
        axes.locator_params(axis="y", nbins=4)
    style.mark_warmup(axes, settings if panel.is_ablation else arm.olr, arm.epochs, named=is_first)
    if panel.is_ablation:
        threshold = f"\N{GREEK SMALL LETTER DELTA} = {settings.slope_threshold}"
        defaults = f"\nOLR's defaults: {threshold}, T = {settings.warmup_epochs}"
        axes.set_xlabel(f"epoch ({threshold})" if arm.olr is not None else f"epoch{defaults}")


class _History:
    """The metrics of an arm's epochs that some panels need, and what each panel shows of them."""

    def __init__(self, arm: Arm, panels: Iterable[Panel]) -> None:
        self.arm = arm
        self.settings = arm.olr or OlrMethod()
        threshold, warmup = self.settings.slope_threshold, self.settings.warmup_epochs
        ablation = {
            name: accuracy_among(selected_under(criteria, threshold, warmup))
            for name, criteria in _ABLATION.items()
        }
        needed = {line.metric for panel in panels for line in (*panel.lines, *panel.otherwise)}
        metrics = {**LABEL_METRICS, **ablation}
        self.metrics = spreads(arm.frame({name: metrics[name] for name in metrics if name in needed}))
        self._known = set(self.metrics["metric"])

    def lines(self, panel: Panel) -> tuple[Line, ...]:
        """The lines of a panel; some may have no rows."""
        if not panel.otherwise or any(line.metric in self._known for line in panel.lines):
            return panel.lines
        known = [line for line in panel.otherwise if line.metric in self._known]
        # Where nothing was ever selected, the unselected prompts are all prompts.
        return _of_all(known[0].metric) if len(known) == 1 else panel.otherwise

    def rows(self, panel: Panel) -> pl.DataFrame:
        """The metrics that a panel shows; none where it has a remark instead."""
        if self.remark(panel) is not None:
            return self.metrics.clear()
        first = max(panel.first_epoch, self.settings.warmup_epochs + 1 if panel.is_selection else 1)
        of_panel = pl.col("metric").is_in([line.metric for line in self.lines(panel)])
        return self.metrics.filter(of_panel, pl.col("epoch") >= first)

    def remark(self, panel: Panel) -> str | None:
        """Why a panel has nothing to show."""
        warmup = self.settings.warmup_epochs
        if panel.needs_truth and "majority/accuracy" not in self._known:
            return style.NEEDS_TRUTH
        method = f"(method {self.arm.method})"
        if panel.is_selection and self.arm.olr is None:
            selects = self.metrics.filter(pl.col("mean") > 0, metric="label/selection_ratio")
            remark = "nothing was selected" if selects.is_empty() else "every majority is the label"
            return f"{remark} {method}"
        if panel is PANELS["f"] and "label/effective_noise" not in self._known:
            return f"no label is used {method}"
        if (panel.is_selection or panel.is_ablation) and self.arm.epochs <= warmup:
            return f"no epoch after a warm-up of {warmup}"
        if panel.is_ablation and self._known.isdisjoint(_ABLATION):
            return "no majority meets a criterion"
        return "needs a second epoch" if self.arm.epochs < panel.first_epoch else None
