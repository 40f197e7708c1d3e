"""Figures by epoch, from labels tables: early coherence, composition of majority answers, and training dynamics.

A panel is a function from an arm's epochs to the rows that it shows; it raises `Lack` if there are none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import polars as pl
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from olr_cli.analysis.arms import Arm
from olr_cli.analysis.figures import style
from olr_cli.analysis.figures.sheet import Chart, Sheet
from olr_cli.analysis.figures.style import BLACK, GREEN, GREY, SKY, VERMILION, Look
from olr_cli.analysis.frame import Lack, spreads
from olr_cli.grouping import gathered
from olr_cli.supervision.metrics import ABLATION, COMPOSITION, LABEL_METRICS

_GROUPS = {
    "clean": Look("clean", style.BLUE, "o"),
    "noisy": Look("noisy", VERMILION, "s"),
    "selected": Look("selected", GREEN, "o"),
    "unselected": Look("unselected", style.PURPLE, "s"),
}
_ALL = Look("all prompts", BLACK, "o")

LOOKS = {
    **{f"majority/accuracy_{group}": look for group, look in _GROUPS.items()},
    **{f"slope/{group}": look for group, look in _GROUPS.items()},
    **{f"label/selection_ratio_{group}": look for group, look in _GROUPS.items()},
    "majority/accuracy": _ALL,
    "label/selection_ratio": _ALL,
    "ablation/both": Look("both", BLACK, "o"),
    "ablation/slope": Look("slope\nalone", style.ORANGE, "s"),
    "ablation/consistency": Look("consistency\nalone", SKY, "^"),
    "label/effective_noise": Look("effective", VERMILION, "s"),
    "label/initial_noise": Look("initial", GREY, "", style.DASHES),
}
"""Metrics of coherence and dynamics, and how each is drawn."""

_BY_NOISE, _BY_SELECTION = ("clean", "noisy"), ("selected", "unselected")


class Epochs:
    """The metrics of an arm by epoch, averaged over its seeds.

    Args:
        arm: the arm.
        metrics: names of the metrics to compute; by default all that this module's figures show.

    Attributes:
        settings: the arm's settings of OLR; OLR's defaults if the arm has another method.
        is_trained: whether the policy was trained; False for `olr rollouts`, which only samples.
    """

    def __init__(self, arm: Arm, metrics: Sequence[str] = tuple(LOOKS)) -> None:
        self.arm = arm
        self.settings = arm.refinement
        self.is_trained = arm.runs[0].kind != "rollouts"
        self._rows = spreads(
            arm.frame([name for name in (*LABEL_METRICS, *ABLATION) if name in metrics])
        )

    def rows(self, *metrics: str, first: int = 1) -> pl.DataFrame:
        """Return a frame with one row for each of these metrics and each epoch from `first` on.

        The columns are arm, metric, epoch, mean, sd, runs (their number), and values (a list of the single runs'
        values). Mean and sd are over the arm's runs, one per seed. A metric without a value has no rows.
        """
        return self._rows.filter(pl.col("metric").is_in(metrics), pl.col("epoch") >= first)

    def by_noise(self, prefix: str, *otherwise: str, first: int = 1) -> pl.DataFrame:
        """Return the frame of a metric on clean and on noisy prompts, as `rows` does.

        If it is unknown which prompts are noisy, return the frame of the metrics `otherwise` instead.

        Args:
            prefix: the metric's name without its last part, such as ``slope/`` for ``slope/clean`` and ``slope/noisy``.
            otherwise: names of the metrics that stand in.
            first: the first epoch to return.
        """
        rows = self.rows(*(prefix + group for group in _BY_NOISE), first=first)
        return self.rows(*otherwise, first=first) if rows.is_empty() else rows

    def require_truth(self) -> None:
        """Raise `Lack` if the arm's runs do not know the true answers to their prompts."""
        if self.rows("majority/accuracy").is_empty():
            raise Lack("true answers")

    def after_warmup(self) -> int:
        """Return the number of the first epoch after OLR's warm-up, the phase in which OLR keeps every label.

        If the arm has another method, this is the epoch after the warm-up of OLR's default settings.

        Raises:
            Lack: the arm has no epoch after the warm-up.
        """
        if self.arm.epochs <= self.settings.warmup_epochs:
            raise Lack(f"an epoch after the warm-up of {self.settings.warmup_epochs}")
        return self.settings.warmup_epochs + 1

    def selecting(self) -> int:
        """Return the number of the first epoch in which the arm's method, OLR, can select labels.

        A label is selected if the majority answer replaces it. This epoch is the one after the warm-up.

        Raises:
            Lack: the method is not OLR, or no epoch follows the warm-up.
        """
        if self.arm.olr is None:
            selects = self.rows("label/selection_ratio").filter(pl.col("mean") > 0)
            verb_phrase = "selects none" if selects.is_empty() else "takes every majority"
            raise Lack(f"a method that selects labels, and {self.arm.method} {verb_phrase}")
        return self.after_warmup()


PanelRows: TypeAlias = Callable[[Epochs], pl.DataFrame]


def _attempt(panel: PanelRows, epochs: Epochs) -> pl.DataFrame | Lack:
    try:
        return panel(epochs)
    except Lack as lack:
        return lack


# Panels of the dynamics -------------------------------------------------------------------------------------------


def training_accuracy(epochs: Epochs) -> pl.DataFrame:
    """Return by epoch how often the majority answer is right, on clean and on noisy prompts.

    The frame has a row per metric and epoch (`Epochs.rows`). If it is unknown which prompts are noisy, the rows are of
    all prompts together.

    Raises:
        Lack: true answers are unknown.
    """
    epochs.require_truth()
    return epochs.by_noise("majority/accuracy_", "majority/accuracy")


def accuracy_by_selection(epochs: Epochs) -> pl.DataFrame:
    """Return by epoch how often the majority answer is right: where it replaced the label, and where it did not.

    The frame has a row per metric and epoch (`Epochs.rows`), from the first epoch after the warm-up on.

    Raises:
        Lack: true answers are unknown, the method is not OLR, or no epoch follows the warm-up.
    """
    epochs.require_truth()
    names = (f"majority/accuracy_{group}" for group in _BY_SELECTION)
    return epochs.rows(*names, first=epochs.selecting())


def slope(epochs: Epochs) -> pl.DataFrame:
    """Return by epoch, from epoch 2 on, the mean slope of the pass rates on clean and on noisy prompts.

    A prompt's slope is that of a line fitted to the pass rates of its visits so far. The frame has a row per metric and
    epoch (`Epochs.rows`). If it is unknown which prompts are noisy, prompts whose label was replaced by the majority
    answer are compared with all other prompts instead.

    Raises:
        Lack: there is only one epoch, or the policy was not trained.
    """
    if epochs.arm.epochs < 2:
        raise Lack("a second epoch")
    if not epochs.is_trained:
        raise Lack("training, without which slopes are chance")
    return epochs.by_noise(
        "slope/", *(f"slope/{group}" for group in _BY_SELECTION), first=2
    )


def selection_ratio(epochs: Epochs) -> pl.DataFrame:
    """Return by epoch the share of clean prompts and the share of noisy prompts whose label is replaced.

    The frame has a row per metric and epoch (`Epochs.rows`), from the first epoch after the warm-up on. If it is
    unknown which prompts are noisy, the rows are of all prompts together.

    Raises:
        Lack: the method is not OLR, or no epoch follows the warm-up.
    """
    return epochs.by_noise(
        "label/selection_ratio_", "label/selection_ratio", first=epochs.selecting()
    )


def criteria(epochs: Epochs) -> pl.DataFrame:
    """Return by epoch the share of right answers among the majority answers that OLR's criteria select.

    There is a metric for the slope criterion, one for consistency, and one for both together. The frame has a row per
    metric and epoch (`Epochs.rows`). The criteria are applied to the stored rollouts; which labels the run itself
    replaced does not matter. A policy that was not trained has only the metric for consistency, because its pass rates
    change by chance alone.

    Raises:
        Lack: true answers are unknown, no epoch follows the warm-up, or no majority answer meets a criterion.
    """
    epochs.require_truth()
    epochs.after_warmup()
    # Without training slopes are chance, so only consistency can be shown.
    rows = epochs.rows(*(ABLATION if epochs.is_trained else ["ablation/consistency"]))
    if rows.is_empty():
        raise Lack("majorities that meet a criterion")
    return rows


def effective_noise(epochs: Epochs) -> pl.DataFrame:
    """Return by epoch the share of wrong labels in training, and the share of noisy labels in the data.

    Training uses the labels in the data, except those that majority answers replace. The frame has a row per metric and
    epoch (`Epochs.rows`).

    Raises:
        Lack: true answers are unknown, or the method uses no labels.
    """
    epochs.require_truth()
    if epochs.rows("label/effective_noise").is_empty():
        raise Lack(f"labels, and {epochs.arm.method} uses none")
    return epochs.rows("label/effective_noise", "label/initial_noise")


def _shares(axes: Axes, _: Epochs, rows: pl.DataFrame) -> None:
    style.percent_axis(axes, style.percent_limits(rows))


def _shares_from_zero(axes: Axes, _: Epochs, rows: pl.DataFrame) -> None:
    style.percent_axis(axes, (0.0, style.percent_limits(rows)[1]))


def _slopes(axes: Axes, _: Epochs, rows: pl.DataFrame) -> None:
    axes.axhline(0, color=GREY, linewidth=0.6, zorder=1)
    axes.locator_params(axis="y", nbins=4)


def _criteria_axes(axes: Axes, epochs: Epochs, rows: pl.DataFrame) -> None:
    _shares(axes, epochs, rows)
    settings = epochs.settings
    threshold = f"\N{GREEK SMALL LETTER DELTA} = {settings.slope_threshold}"
    if epochs.arm.olr is not None:
        axes.set_xlabel(f"epoch ({threshold})")
        return
    axes.set_xlabel(f"epoch\nOLR's defaults: {threshold}, T = {settings.warmup_epochs}")
    style.mark_warmup(axes, settings, epochs.arm.epochs, named=False)


class Panel(NamedTuple):
    """A kind of panel in the figure `dynamics`: title, label of the y axis, and two functions.

    `rows` returns the numbers to show, given an arm's `Epochs`. `finish` sets the limits and ticks of the panel's axes.
    """

    title: str
    shows: str
    """Label of its y axis."""

    rows: PanelRows
    """Function from an arm's epochs to its rows."""

    finish: Callable[[Axes, Epochs, pl.DataFrame], None]
    """Function that finishes its axes."""


PANELS: Mapping[str, Panel] = {
    "a": Panel("Majority accuracy", "right majorities", training_accuracy, _shares),
    "b": Panel("Accuracy by selection", "right majorities", accuracy_by_selection, _shares),
    "c": Panel("Slope of the pass rate", "slope per visit", slope, _slopes),
    "d": Panel("Selection ratio", "selected prompts", selection_ratio, _shares_from_zero),
    "e": Panel("Ablation accuracy", "right majorities", criteria, _criteria_axes),
    "f": Panel("Effective noise", "wrong labels", effective_noise, _shares_from_zero),
}


# Figures ----------------------------------------------------------------------------------------------------------


def coherence(arms: Sequence[Arm]) -> list[Chart]:
    """Early Correctness Coherence (the paper's Fig. 2): right majority answers on clean and noisy prompts, by epoch.

    There is one chart, with one panel per arm, up to four side by side. The panel of an arm without true answers is
    empty and says so. At first the accuracy rises on clean and noisy prompts alike; later differences are the effect of
    the noise.

    Raises:
        Lack: no arm has true answers.
    """
    metrics = [name for name in LOOKS if name.startswith("majority/accuracy")]
    panels = [_attempt(training_accuracy, Epochs(arm, metrics)) for arm in arms]
    shown = [panel for panel in panels if isinstance(panel, pl.DataFrame)]
    if not shown:
        raise Lack("true answers")
    rows = pl.concat(shown)
    columns = style.columns_of(len(arms), 4)
    width = style.COLUMN_WIDTH if columns == 1 else style.TEXT_WIDTH
    sheet = Sheet(
        len(arms), columns, width=width, panel_height=2.1 if columns < 3 else 1.75
    )
    for number, (axes, panel) in enumerate(zip(sheet.panels, panels, strict=True)):
        arm = arms[number]
        axes.set_title(style.arm_title(number, arms, width / columns))
        if isinstance(panel, Lack):
            style.remark(axes, f"needs {panel}")
            continue
        style.epoch_axis(axes, arm.epochs)
        style.percent_axis(axes, style.percent_limits(rows))
        style.mark_warmup(axes, arm.olr, arm.epochs, named=True)
        sheet.lines(axes, LOOKS, panel)
        style.label_first(axes, number % columns, "majority accuracy")
    return [sheet.chart("coherence", rows)]


def dynamics(arms: Sequence[Arm]) -> list[Chart]:
    """Training dynamics (the paper's Fig. 3, and its twin under inactive noise): up to six panels, by epoch.

    There is one chart per arm. A panel without data is left out, and the chart's note says why. The data have one row
    per panel, metric and epoch.

    Panels (b) and (d) show which labels the run itself replaced by the majority answer; only OLR has these panels.
    Panel (e) takes the majority answers that each criterion *would* have selected from the same history, and shows how
    many are right. If the arm's method is not OLR, panel (e) uses OLR's default settings, and says so.

    Raises:
        Lack: no arm has a panel with data.
    """
    charts = []
    for arm in arms:
        epochs = Epochs(arm)
        attempts = {
            letter: _attempt(panel.rows, epochs) for letter, panel in PANELS.items()
        }
        shown = {
            letter: rows
            for letter, rows in attempts.items()
            if isinstance(rows, pl.DataFrame)
        }
        if not shown:
            continue
        width = style.TEXT_WIDTH if len(shown) > 1 else style.COLUMN_WIDTH
        columns = style.columns_of(len(shown), 3)
        sheet = Sheet(len(shown), columns, width=width, panel_height=1.6)
        for axes, (letter, rows) in zip(sheet.panels, shown.items(), strict=True):
            axes.set_title(f"({letter}) {PANELS[letter].title}")
            axes.set_ylabel(PANELS[letter].shows)
            style.epoch_axis(axes, arm.epochs)
            sheet.lines(axes, LOOKS, rows)
            PANELS[letter].finish(axes, epochs, rows)
            style.mark_warmup(axes, arm.olr, arm.epochs, named=axes is sheet.panels[0])
        # Arms may be called anything, but file names may not.
        suffix = "" if len(arms) == 1 else "_" + re.sub(r"[^\w.+-]+", "-", arm.name)
        caption = f"Arm: {arm.title}, of {arm.recipe.name}."
        data = pl.concat(
            rows.select(pl.lit(letter).alias("panel"), pl.all())
            for letter, rows in shown.items()
        )
        note = _left_out(f"dynamics{suffix}", attempts)
        charts.append(sheet.chart(f"dynamics{suffix}", data, note=note, caption=caption))
    if not charts:
        raise Lack("true answers, or two epochs")
    return charts


def _left_out(name: str, attempts: Mapping[str, pl.DataFrame | Lack]) -> str:
    lacks = gathered(
        (str(lack), f"({letter}) {PANELS[letter].title}")
        for letter, lack in attempts.items()
        if isinstance(lack, Lack)
    )
    left_out = "; ".join(
        f"{', '.join(panels)}: needs {lack}" for lack, panels in lacks.items()
    )
    return f"{name} leaves out {left_out}." if lacks else ""


# Composition ------------------------------------------------------------------------------------------------------

STACKS = {
    "clean": {
        "composition/clean_right": Look("right", GREEN),
        "composition/clean_wrong": Look("wrong", SKY),
    },
    "noisy": {
        "composition/noisy_right": Look("right", GREEN),
        "composition/noisy_equal": Look("the noisy\nlabel", VERMILION, hatch="////"),
        "composition/noisy_neither": Look("neither", SKY),
    },
}
"""Kind of prompts -> the areas of their panel, from the bottom up."""

_LEGEND = ("right", "the noisy label", "wrong (clean prompts), neither (noisy)")
"""Names of the areas on noisy prompts, for a legend when there are too many panels to name each area in place."""


def composition(arms: Sequence[Arm]) -> list[Chart]:
    """What majority answers are made of, by epoch: stacked shares on clean and on noisy prompts.

    On clean prompts a majority is right or wrong; on noisy ones it is right, equal to the noisy label, or neither.
    There is one chart, with two panels per arm.

    Raises:
        Lack: true answers are unknown, or it is unknown which prompts are noisy.
    """  # noqa: D401 - a caption
    rows = pl.concat([spreads(arm.frame(COMPOSITION)) for arm in arms])
    if rows.is_empty():
        raise Lack("true answers, and to know which labels are noise")
    is_alone, are_many = len(arms) == 1, len(arms) > 2
    columns = 2 if is_alone else 4
    width, height = (4.0, 2.1) if is_alone else (style.TEXT_WIDTH, 1.75)
    sheet = Sheet(2 * len(arms), columns, width=width, panel_height=height)
    # Only methods with a warm-up have the line that the name belongs to, and one name is enough.
    first_of_olr = next(
        (2 * number for number, arm in enumerate(arms) if arm.olr is not None), None
    )
    for number, axes in enumerate(sheet.panels):
        arm, prompts = arms[number // 2], list(STACKS)[number % 2]
        name = (
            style.arm_title(number // 2, arms, 2 * width / columns)
            if number % 2 == 0
            else ""
        )
        axes.set_title(f"{name}\n{prompts} prompts", pad=12)
        shares = rows.filter(pl.col("metric").is_in(list(STACKS[prompts])), arm=arm.name)
        # With a single epoch an area has no width.
        if shares["epoch"].n_unique() < 2:
            style.remark(axes, "needs two epochs of such prompts, and true answers")
            continue
        _stack(sheet, axes, STACKS[prompts], shares, named=not are_many)
        # Stacked areas fill their panel, so no margin.
        style.epoch_axis(axes, arm.epochs, most=4, margin=0)
        style.percent_axis(axes, (0.0, 1.0))
        style.mark_warmup(
            axes, arm.olr, arm.epochs, named=number == first_of_olr, colour=BLACK
        )
        style.label_first(axes, number % columns, "share of prompts")
    if are_many:
        areas = zip(STACKS["noisy"].values(), _LEGEND, strict=True)
        sheet.legend(
            [
                Patch(fc=area.colour, hatch=area.hatch, ec="white", label=label)
                for area, label in areas
            ]
        )
    return [sheet.chart("composition", rows)]


def _stack(
    sheet: Sheet,
    axes: Axes,
    areas: Mapping[str, Look],
    rows: pl.DataFrame,
    *,
    named: bool,
) -> None:
    shares = [rows.filter(metric=metric) for metric in areas]
    axes.stackplot(
        shares[0]["epoch"].to_numpy(),
        *(share["mean"].to_numpy() for share in shares),
        colors=[area.colour for area in areas.values()],
        hatch=[area.hatch for area in areas.values()],
        linewidth=0.4,
        edgecolor="white",
    )
    below = 0.0
    for area, share in zip(areas.values(), shares, strict=True):
        last = float(share["mean"][-1])
        if named and share["mean"].max():
            sheet.label(axes, below + last / 2, area.label, area.colour)
        below += last
    axes.grid(visible=False)
