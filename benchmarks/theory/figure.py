"""The theory's figure.

Theorem "Early Correctness Coherence" has L_t rise or fall steadily, by the noise ratio; a rise that turns is what its
fixed magnitudes can't give. The first epoch, whose rollouts the followed label was drawn from, is in the CSV alone.
Counted noise is drawn against rho (1 - Delta), and counted errors beside exp(-K Delta_p^2): above them reality is worse
than the paper has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import matplotlib
import polars as pl
from matplotlib.axes import Axes

from benchmarks.theory.measure import gap_titles, has_noisy_labels, measure
from olr_cli.analysis.arms import Arm, spelt
from olr_cli.analysis.figures import style
from olr_cli.analysis.figures.sheet import Chart, Sheet
from olr_cli.analysis.figures.style import BLACK, GREY, VERMILION, Look
from olr_cli.analysis.frame import Lack, spreads

_LEFT_MARGIN = 0.5
"""Of a panel, in inches: title and lines begin right of it."""
_FEWEST_EPOCHS = 3
"""Delta_p of a visit is counted in those before and after."""
_NOISE = "effective_noise"
_SHOWN = f"^(log_ratio|{_NOISE}_.*|selection_.*)$"


def charts(arms: Sequence[Arm]) -> list[Chart]:
    """The theory's quantities drawn: L_t by epoch, OLR's effective noise, and how often majorities are wrong.

    A panel of L_t for each method, then effective noise under OLR, then errors by Delta_p.
    """
    if not any(
        arm.epochs >= _FEWEST_EPOCHS and any(map(has_noisy_labels, arm.runs))
        for arm in arms
    ):
        raise Lack(
            f"runs of {_FEWEST_EPOCHS} epochs or more with active noise whose true answers are known"
        )
    rows = spreads(measure(arms).filter(pl.col("metric").str.contains(_SHOWN)), "at")
    lines = _lines(arms)
    panels: list[tuple[str, Callable[[Sheet, Axes], None]]] = [
        (
            f"Log-ratio on noisy prompts, {spelt(method)}",
            partial(_log_ratios, lines=of_method, rows=rows),
        )
        for method, of_method in _by_method(arms, lines, rows).items()
    ]
    remarks = []
    if f"{_NOISE}_counted" in rows["metric"]:
        panels.append(
            ("Effective noise under OLR", partial(_noise, lines=lines, rows=rows))
        )
        remarks.append(
            f"{style.lettered(len(panels) - 1, 'Each mark is an epoch after warm-up')}."
        )
    panels.append(("Wrong majorities on noisy prompts", partial(_errors, rows=rows)))
    remarks.append(
        f"{style.lettered(len(panels) - 1, 'Each mark is an arm; lines are means over arms')}."
    )
    columns = min(len(panels), 2)
    sheet = Sheet(len(panels), columns, width=style.TEXT_WIDTH, panel_height=2.2)
    for number, (axes, (title, draw)) in enumerate(zip(sheet.panels, panels, strict=True)):
        lettered = style.lettered(number, title)
        axes.set_title(
            style.fitted(
                lettered, style.TEXT_WIDTH / columns - _LEFT_MARGIN, style.TITLE_SIZE
            )
        )
        draw(sheet, axes)
    return [sheet.chart("theory", _named_bins(rows), caption=" ".join(remarks))]


def _named_bins(rows: pl.DataFrame) -> pl.DataFrame:
    names = pl.col("at").replace_strict(
        dict(enumerate(gap_titles())), default=None, return_dtype=pl.String
    )
    is_bin = pl.col("metric").str.starts_with("selection_")
    return rows.with_columns(
        at=pl.when(is_bin).then(names).otherwise(pl.col("at").cast(pl.String))
    )


def _lines(arms: Sequence[Arm]) -> Mapping[str, Look]:
    """How each arm is drawn, by its noise ratio where that tells it from others of its method, else by its title."""
    ratios = {
        arm.name: noise.ratio
        for arm in arms
        if (noise := arm.recipe.noise) is not None and noise.ratio is not None
    }
    of_method = [(arm.method, ratios.get(arm.name)) for arm in arms]
    labels = {
        arm.name: ratio
        if ratio is not None and of_method.count((method, ratio)) == 1
        else None
        for arm, (method, ratio) in zip(arms, of_method, strict=True)
    }
    ordered = sorted({ratio for ratio in labels.values() if ratio is not None})
    places: dict[Any, int] = {
        label: place for place, label in enumerate([*ordered, *labels])
    }
    lines = {}
    for arm in arms:
        ratio = labels[arm.name]
        # A ratio has the same look in every panel.
        place = places[arm.name if ratio is None else ratio]
        shade = place / len(places) if ratio is None else float(ratio)
        colour = matplotlib.colors.to_hex(matplotlib.colormaps["viridis"](0.9 * shade))
        marker = style.MARKERS[place % len(style.MARKERS)]
        lines[arm.name] = Look(
            arm.title if ratio is None else f"ρ = {ratio}", colour, marker
        )
    return lines


def _by_method(
    arms: Sequence[Arm], lines: Mapping[str, Look], rows: pl.DataFrame
) -> Mapping[str, Sequence[tuple[Arm, Look]]]:
    """Method -> its arms that have an L to draw, and how they are drawn."""
    known = set(_drawn(rows)["arm"])
    methods: dict[str, list[tuple[Arm, Look]]] = {}
    for arm in arms:
        if arm.name in known:
            methods.setdefault(arm.method, []).append((arm, lines[arm.name]))
    return methods


def _drawn(rows: pl.DataFrame) -> pl.DataFrame:
    """L from the second epoch on."""
    return rows.filter(pl.col("at") > 1, metric="log_ratio")


def _log_ratios(
    sheet: Sheet, axes: Axes, lines: Sequence[tuple[Arm, Look]], rows: pl.DataFrame
) -> None:
    drawn = _drawn(rows)
    sheet.lines(axes, {arm.name: look for arm, look in lines}, drawn, of="arm", x="at")
    axes.axhline(0, color=GREY, linewidth=0.6)
    style.epoch_axis(axes, max(arm.epochs for arm, _ in lines))
    sd = pl.col("sd").fill_null(0.0)
    low, high = drawn.select(
        (pl.col("mean") - sd).min(), high=(pl.col("mean") + sd).max()
    ).row(0)
    margin = 0.05 * max(high - low, 0.5)
    axes.set_ylim(min(low, 0.0) - margin, max(high, 0.0) + margin)
    axes.set_ylabel("L, nats")


def _noise(sheet: Sheet, axes: Axes, lines: Mapping[str, Look], rows: pl.DataFrame) -> None:
    """Every epoch of every arm: predicted across, counted up; arms are named beside their last epoch."""
    noise = rows.filter(pl.col("metric").str.starts_with(_NOISE))
    pairs = noise.pivot("metric", index=["arm", "at"], values="mean").drop_nulls()
    top = 1.05 * max(*pairs.select(f"^{_NOISE}.*$").max().row(0), 0.1)
    axes.plot([0, top], [0, top], color=GREY, linewidth=0.6)
    for (arm,), of_arm in pairs.group_by("arm", maintain_order=True):
        line = lines[str(arm)]
        predicted, counted = (
            of_arm[f"{_NOISE}_{name}"].to_numpy() for name in ("predicted", "counted")
        )
        look = {"linestyle": "", "clip_on": False, **style.mark(line.marker)}
        sheet.curve(axes, predicted, counted, line.label, line.colour, **look)
    axes.set_xlim(0, top)
    style.percent_axis(axes, (0, top))
    axes.xaxis.set_major_formatter(axes.yaxis.get_major_formatter())
    axes.set_xlabel("predicted, ρ (1 - Δ)")
    axes.set_ylabel("counted")


def _errors(sheet: Sheet, axes: Axes, rows: pl.DataFrame) -> None:
    for metric, label, colour, dashes, marker in (
        ("selection_error", "counted", VERMILION, "-", "o"),
        ("selection_bound", "exp(-KΔ²)", BLACK, "--", "s"),
    ):
        of_metric = rows.filter(metric=metric)
        if of_metric.is_empty():
            continue
        places, means = of_metric["at"], of_metric["mean"]
        look = style.mark(marker) | {
            "alpha": 0.5,
            "markersize": 2.4,
            "markeredgewidth": 0.6,
        }
        axes.plot(places, means, color=colour, linestyle="", clip_on=False, **look)
        over_arms = of_metric.group_by("at").agg(pl.col("mean").mean()).sort("at")
        sheet.curve(
            axes,
            over_arms["at"],
            over_arms["mean"].to_numpy(),
            label,
            colour,
            linestyle=dashes,
        )
    titles = gap_titles()
    axes.set_xticks(range(len(titles)), [title.replace(" ", "\n", 1) for title in titles])
    axes.set_xlim(-0.3, len(titles) - 0.7)
    style.percent_axis(axes, (0, 1))
    axes.set_xlabel("Δp, from the visits before and after")
