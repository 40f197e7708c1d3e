"""Training dynamics (the paper's Fig. 3, and its twin under inactive noise): six panels, by epoch.

What a method selected is shown as it was stored; methods that always or never select have nothing to show there.
Panel (e) counts what each criterion *would* have selected from the same history; a run whose method has no criteria is
counted at the default settings of OLR, and the panel says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from olr_cli.analysis import style
from olr_cli.analysis.arms import Arm
from olr_cli.analysis.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, Chart, Line
from olr_cli.recipe.schema import Criterion, OlrMethod
from olr_cli.supervision import compose
from olr_cli.supervision.metrics import LABEL_METRICS, accuracy_among, selected_under

_ABLATION: Mapping[str, tuple[Criterion, ...]] = {
    "ablation/both": ("slope", "consistency"),
    "ablation/slope": ("slope",),
    "ablation/consistency": ("consistency",),
}


@dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes:
        title: what it shows.
        lines: the metrics it shows.
        otherwise: what it shows where nobody knows which labels are noise.
        needs_truth: it has nothing to show without true answers.
        is_selection: it is about what the method selected, so it begins after warm-up.
        first_epoch: earlier values are no measurement (a slope needs two visits).
        is_share: percentages; otherwise plain numbers.
        from_zero: the axis begins at 0.
    """

    title: str
    lines: tuple[Line, ...]
    otherwise: tuple[Line, ...] = ()
    needs_truth: bool = True
    is_selection: bool = False
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


def charts(arms: Sequence[Arm]) -> list[Chart]:
    """One chart an arm."""
    made = []
    with style.applied():
        for arm in arms:
            name = "dynamics" if len(arms) == 1 else f"dynamics_{re.sub('[^A-Za-z0-9.+-]+', '-', arm.name)}"
            history = _History(arm)
            rows = pl.concat([history.rows(letter) for letter in PANELS])
            made.append(Chart(name, _draw(history, rows), rows))
    return made


class _History:
    """The metrics of an arm's epochs, and what its panels may show of them."""

    def __init__(self, arm: Arm) -> None:
        self.arm = arm
        self.settings = arm.olr or OlrMethod()
        self.metrics = arm.by_epoch({**LABEL_METRICS, **self._ablation()})
        self.knows_truth = self._has("majority/accuracy")

    def _ablation(self) -> dict[str, pl.Expr]:
        threshold, warmup = self.settings.slope_threshold, self.settings.warmup_epochs
        return {
            name: accuracy_among(selected_under(criteria, threshold, warmup))
            for name, criteria in _ABLATION.items()
        }

    def _has(self, *metrics: str) -> bool:
        return not self.metrics.filter(pl.col("metric").is_in(metrics)).is_empty()

    def _selects(self) -> bool:
        """Whether any label was a majority."""
        ratio = self.metrics.filter(pl.col("metric") == "label/selection_ratio")
        return bool((ratio["mean"] > 0).any())

    def lines(self, panel: Panel) -> tuple[Line, ...]:
        """What the panel shows of this history."""
        if not panel.otherwise or self._has(*(line.metric for line in panel.lines)):
            return panel.lines
        known = [line for line in panel.otherwise if self._has(line.metric)]
        # Where nothing was ever selected, the unselected prompts are all prompts.
        return _of_all(known[0].metric) if len(known) == 1 else panel.otherwise

    def rows(self, letter: str) -> pl.DataFrame:
        """Columns panel, arm, metric, epoch, mean, sd, runs of one panel; none where it has a remark instead."""
        panel = PANELS[letter]
        first = max(panel.first_epoch, self.settings.warmup_epochs + 1 if panel.is_selection else 1)
        shown = pl.col("metric").is_in([line.metric for line in self.lines(panel)]) & (
            pl.col("epoch") >= first
        )
        if self.remark(letter):
            shown = pl.lit(False)
        return self.metrics.filter(shown).select(pl.lit(letter).alias("panel"), pl.all())

    def remark(self, letter: str) -> str | None:
        """Why a panel has nothing to show."""
        panel, warmup = PANELS[letter], self.settings.warmup_epochs
        if panel.needs_truth and not self.knows_truth:
            return style.NEEDS_TRUTH
        # In a line of its own each part of a mixed method: a panel is no wider than one.
        method = f"(method {compose(self.arm.recipe.method).name})".replace("+", "\n+ ")
        if panel.is_selection and self.arm.olr is None:
            what = "every majority\nis the label" if self._selects() else "nothing was selected"
            return f"{what}\n{method}"
        if letter == "f" and not self._has("label/effective_noise"):
            return f"no label is used\n{method}"
        if (panel.is_selection or letter == "e") and self.arm.epochs <= warmup:
            return f"no epoch after\na warm-up of {warmup}"
        if letter == "e" and not self._has(*_ABLATION):
            return "no majority\nmeets a criterion"
        if self.arm.epochs < panel.first_epoch:
            return "needs a\nsecond epoch"
        return None


def _draw(history: _History, rows: pl.DataFrame) -> Figure:
    sheet = style.Sheet(len(PANELS), 3, width=style.TEXT_WIDTH, panel_height=1.6)
    for axes, (letter, panel) in zip(sheet.panels, PANELS.items(), strict=True):
        axes.set_title(f"({letter}) {panel.title}")
        remark = history.remark(letter)
        if remark is not None:
            style.remark(axes, remark)
            continue
        own = rows.filter(pl.col("panel") == letter)
        style.epoch_axis(axes, history.arm.epochs)
        sheet.lines(axes, history.lines(panel), own)
        _finish_axes(axes, letter, own, history)
    return sheet.finish()


def _finish_axes(axes: Axes, letter: str, rows: pl.DataFrame, history: _History) -> None:
    panel, settings, arm = PANELS[letter], history.settings, history.arm
    if panel.is_share:
        low, high = style.percent_limits(rows)
        style.percent_axis(axes, (0.0 if panel.from_zero else low, high))
    else:
        axes.axhline(0, color=GREY, linewidth=0.6, zorder=1)
        axes.locator_params(axis="y", nbins=4)
    if arm.olr is not None or letter == "e":
        style.mark_warmup(axes, settings.warmup_epochs, arm.epochs, named=letter == "a")
    if letter == "e":
        threshold = f"\N{GREEK SMALL LETTER DELTA} = {settings.slope_threshold}"
        defaults = f"\nOLR's defaults: {threshold}, T = {settings.warmup_epochs}"
        axes.set_xlabel(f"epoch ({threshold})" if arm.olr is not None else f"epoch{defaults}")
