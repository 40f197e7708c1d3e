"""The theory's figure.

Theorem "Early Correctness Coherence" has L_t rise or fall steadily, by the noise ratio; a rise that turns is what its
fixed magnitudes can't give. The first epoch, whose rollouts the followed label was drawn from, is in the CSV alone.
Counted noise is drawn against rho (1 - Delta), and counted errors beside exp(-K Delta_p^2): above them reality is worse
than the paper has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import cycle

import matplotlib
import polars as pl
from matplotlib.axes import Axes

from olr_cli.analysis import style
from olr_cli.analysis.arms import Arm
from olr_cli.analysis.frame import spreads
from olr_cli.analysis.style import BLACK, BLUE, GREY, VERMILION, Chart, Line
from olr_cli.analysis.theory.measure import gap_titles, has_noisy_labels, measure

_MARKERS = "os^vDPX"
_FEWEST_EPOCHS = 3
"""Delta_p of a visit is counted in those before and after."""
_SHOWN = "^(log_ratio|effective_noise_.*|selection_.*)$"


def lacking(arms: Sequence[Arm]) -> str | None:
    """What the figure needs that these arms are not; None if it can be drawn."""
    if any(arm.epochs >= _FEWEST_EPOCHS and any(map(has_noisy_labels, arm.runs)) for arm in arms):
        return None
    return f"runs of {_FEWEST_EPOCHS} epochs or more with active noise whose true answers are known"


def charts(arms: Sequence[Arm]) -> list[Chart]:
    """The theory's quantities drawn: L_t by epoch, OLR's effective noise, and how often majorities are wrong.

    A panel of L_t for each method, then effective noise under OLR, then errors by Delta_p. Some of the arms must have
    noisy labels: see `lacking`.

    Raises:
        UserError: a run has no labels, or a file is damaged.
    """
    rows = spreads(measure(arms).filter(pl.col("metric").str.contains(_SHOWN)), "at")
    panels: list[tuple[str, Callable[[style.Sheet, Axes], None]]] = [
        (f"log-ratio on noisy prompts, {method}", partial(_log_ratios, arms=named, rows=rows))
        for method, named in _by_method(arms, rows).items()
    ]
    if "effective_noise_counted" in rows["metric"]:
        panels.append(("effective noise under OLR", partial(_noise, rows=rows)))
    panels.append(("wrong majorities on noisy prompts", partial(_errors, rows=rows)))
    sheet = style.Sheet(len(panels), min(len(panels), 2), width=style.TEXT_WIDTH, panel_height=2.2)
    for number, (axes, (title, draw)) in enumerate(zip(sheet.panels, panels, strict=True)):
        axes.set_title(style.lettered(number, title))
        draw(sheet, axes)
    return [sheet.chart("theory", _named_bins(rows))]


def _named_bins(rows: pl.DataFrame) -> pl.DataFrame:
    names = pl.col("at").replace_strict(dict(enumerate(gap_titles())), default=None, return_dtype=pl.String)
    is_bin = pl.col("metric").str.starts_with("selection_")
    return rows.with_columns(at=pl.when(is_bin).then(names).otherwise(pl.col("at").cast(pl.String)))


def _by_method(arms: Sequence[Arm], rows: pl.DataFrame) -> Mapping[str, Sequence[tuple[Decimal | str, Arm]]]:
    """Method -> the noise ratio or else the name that tells its arms apart, and the arm; those with an L to draw."""
    known = set(_drawn(rows)["arm"])
    methods: dict[str, list[Arm]] = {}
    for arm in arms:
        if arm.name in known:
            methods.setdefault(arm.method, []).append(arm)
    return {method: _short_names(arms) for method, arms in methods.items()}


def _short_names(arms: Sequence[Arm]) -> Sequence[tuple[Decimal | str, Arm]]:
    """The arms by their noise ratio, ascending, where that tells them apart, else by name."""
    by_ratio = {
        noise.ratio: arm
        for arm in arms
        if (noise := arm.recipe.noise) is not None and noise.ratio is not None
    }
    return sorted(by_ratio.items()) if len(by_ratio) == len(arms) else [(arm.name, arm) for arm in arms]


def _drawn(rows: pl.DataFrame) -> pl.DataFrame:
    """L from the second epoch on."""
    return rows.filter(pl.col("at") > 1, metric="log_ratio")


def _log_ratios(
    sheet: style.Sheet, axes: Axes, arms: Sequence[tuple[Decimal | str, Arm]], rows: pl.DataFrame
) -> None:
    drawn = _drawn(rows)
    for number, ((label, arm), marker) in enumerate(zip(arms, cycle(_MARKERS), strict=False)):
        # A ratio has the same colour in every panel.
        place = number / len(arms) if isinstance(label, str) else float(label)
        shade = matplotlib.colors.to_hex(matplotlib.colormaps["viridis"](0.9 * place))
        line = Line("log_ratio", str(label), shade, marker)
        sheet.lines(axes, [line], drawn.filter(arm=arm.name), x="at")
    axes.axhline(0, color=GREY, linewidth=0.6)
    style.epoch_axis(axes, max(arm.epochs for _, arm in arms))
    low, high = style.band_ends(drawn)
    margin = 0.05 * max(high - low, 0.5)
    axes.set_ylim(min(low, 0.0) - margin, max(high, 0.0) + margin)
    axes.set_ylabel("L, nats")


def _noise(sheet: style.Sheet, axes: Axes, rows: pl.DataFrame) -> None:
    """Every epoch of every arm: predicted across, counted up."""
    noise = rows.filter(pl.col("metric").str.starts_with("effective_noise"))
    pairs = noise.pivot("metric", index=["arm", "at"], values="mean").drop_nulls()
    predicted, counted = (pairs[f"effective_noise_{name}"].to_numpy() for name in ("predicted", "counted"))
    top = 1.05 * max(predicted.max(), counted.max(), 0.1)
    axes.plot([0, top], [0, top], color=GREY, linewidth=0.6)
    axes.plot(predicted, counted, "o", color=BLUE, alpha=0.6, markersize=2.4, markeredgewidth=0)
    axes.set_xlim(0, top)
    style.percent_axis(axes, (0, top))
    axes.xaxis.set_major_formatter(axes.yaxis.get_major_formatter())
    axes.set_xlabel("predicted, ρ (1 - Δ)")
    axes.set_ylabel("counted")


def _errors(sheet: style.Sheet, axes: Axes, rows: pl.DataFrame) -> None:
    for metric, label, colour, dashes in (
        ("selection_error", "counted", VERMILION, "-"),
        ("selection_bound", "exp(-KΔ²)", BLACK, "--"),
    ):
        of_metric = rows.filter(metric=metric)
        if of_metric.is_empty():
            continue
        places, means = of_metric["at"], of_metric["mean"]
        axes.plot(places, means, "o", color=colour, alpha=0.4, markersize=2.4, markeredgewidth=0)
        over_arms = of_metric.group_by("at").agg(pl.col("mean").mean()).sort("at")
        sheet.curve(axes, over_arms["at"], over_arms["mean"].to_numpy(), label, colour, linestyle=dashes)
    titles = gap_titles()
    axes.set_xticks(range(len(titles)), [title.replace(" ", "\n", 1) for title in titles])
    axes.set_xlim(-0.3, len(titles) - 0.7)
    style.percent_axis(axes, (0, 1))
    axes.set_xlabel("Δp, from the visits before and after")
