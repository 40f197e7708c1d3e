"""The theory's quantities drawn: L_t by epoch, OLR's effective noise, and how often majorities are wrong.

Theorem "Early Correctness Coherence" has L_t rise or fall steadily, by the noise ratio; a rise that turns is what its
fixed magnitudes can't give. The first epoch, whose rollouts the followed label was drawn from, is in the CSV alone.
Then rho (1 - Delta) against the counted noise, and exp(-K Delta_p^2) against counted errors: what is above the line is
worse than the paper has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import cycle

import matplotlib
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from olr_cli.analysis import style
from olr_cli.analysis.arms import Arm
from olr_cli.analysis.style import BLACK, BLUE, GREY, VERMILION, Chart, Line
from olr_cli.analysis.theory.histories import gap_titles, has_noisy_labels
from olr_cli.analysis.theory.values import Measured, bounds, effective_noise, errors
from olr_cli.supervision import compose

_MARKERS = "os^vDPX"
_FEWEST_EPOCHS = 3
"""Delta_p of a visit is counted in those before and after."""
_COLUMNS = {"arm": str, "metric": str, "at": str, "mean": float, "sd": float, "runs": int}


def lacking(arms: Sequence[Arm]) -> str | None:
    """What the figure needs that these arms are not; None if it can be drawn."""
    if any(arm.epochs >= _FEWEST_EPOCHS and any(map(has_noisy_labels, arm.runs)) for arm in arms):
        return None
    return f"runs of {_FEWEST_EPOCHS} epochs or more with active noise whose true answers are known"


def charts(arms: Sequence[Arm]) -> list[Chart]:
    """One chart: a panel of L_t for each method, then effective noise under OLR, then errors by Delta_p.

    The arms must include some with noisy labels: see `lacking`.

    Raises:
        UserError: a run has no labels, or a file is damaged.
    """
    rows = pl.concat([_rows(arm) for arm in arms])
    with style.applied():
        return [Chart("theory", _draw(arms, rows), rows)]


def _rows(arm: Arm) -> pl.DataFrame:
    """Columns arm, metric, at (epoch or bin of Delta_p), mean, sd, runs."""
    found: dict[tuple[str, str], list[float]] = {}
    for run in arm.runs:
        for place, value in _values(Measured(run, arm.epochs)).items():
            found.setdefault(place, []).append(value)
    rows = [
        (arm.name, *place, np.mean(own), np.std(own, ddof=1) if len(own) > 1 else None, len(own))
        for place, own in found.items()
    ]
    return pl.DataFrame(rows, _COLUMNS, orient="row")


def _values(measured: Measured) -> dict[tuple[str, str], float]:
    found = {("log_ratio", str(epoch)): value for epoch, value in measured.log_ratios.items()}
    for epoch, predicted, counted in effective_noise(measured).iter_rows():
        found["effective_noise_predicted", str(epoch)] = predicted
        found["effective_noise_counted", str(epoch)] = counted
    for metric, values in (("error", errors(measured)), ("bound", bounds(measured))):
        for name, value in values.items():
            if value is not None:
                found[f"selection_{metric}", gap_titles()[int(name.rpartition("_")[2])]] = value
    return found


def _draw(arms: Sequence[Arm], rows: pl.DataFrame) -> Figure:
    methods = _by_method(arms, rows)
    refined = rows.filter(pl.col("metric").str.starts_with("effective_noise"))
    panels = len(methods) + (not refined.is_empty()) + 1
    sheet = style.Sheet(panels, min(panels, 2), width=style.TEXT_WIDTH, panel_height=2.2)
    drawn = iter(enumerate(sheet.panels))
    for method, own in methods.items():
        number, axes = next(drawn)
        axes.set_title(f"({chr(ord('a') + number)}) log-ratio on noisy prompts, {method}")
        _log_ratios(sheet, axes, own, rows)
    if not refined.is_empty():
        number, axes = next(drawn)
        axes.set_title(f"({chr(ord('a') + number)}) effective noise under OLR")
        _noise(axes, refined)
    number, axes = next(drawn)
    axes.set_title(f"({chr(ord('a') + number)}) wrong majorities on noisy prompts")
    _errors(sheet, axes, rows)
    return sheet.finish()


def _by_method(arms: Sequence[Arm], rows: pl.DataFrame) -> Mapping[str, Sequence[tuple[Decimal | str, Arm]]]:
    """Method -> what tells its arms apart, and the arm; those with a log-ratio to draw."""
    known = set(_drawn(rows)["arm"])
    found: dict[str, dict[str, Arm]] = {}
    for arm in arms:
        if arm.name in known:
            found.setdefault(compose(arm.recipe.method).name, {})[arm.name] = arm
    return {method: _short(own) for method, own in found.items()}


def _short(arms: Mapping[str, Arm]) -> Sequence[tuple[Decimal | str, Arm]]:
    """The arms by their noise ratio, ascending, where that tells them apart, else by name."""
    by_ratio = {
        noise.ratio: arm
        for arm in arms.values()
        if (noise := arm.recipe.noise) is not None and noise.ratio is not None
    }
    if len(by_ratio) < len(arms):
        return list(arms.items())
    return sorted(by_ratio.items())


def _drawn(rows: pl.DataFrame) -> pl.DataFrame:
    """L by epoch, from the second on: columns arm, metric, epoch, mean, sd."""
    found = rows.filter(pl.col("metric") == "log_ratio").with_columns(epoch=pl.col("at").cast(pl.Int64))
    return found.filter(pl.col("epoch") > 1)


def _log_ratios(
    sheet: style.Sheet, axes: Axes, arms: Sequence[tuple[Decimal | str, Arm]], rows: pl.DataFrame
) -> None:
    found = _drawn(rows)
    for number, ((label, arm), marker) in enumerate(zip(arms, cycle(_MARKERS), strict=False)):
        # A ratio has the same colour in every panel.
        place = number / len(arms) if isinstance(label, str) else float(label)
        shade = matplotlib.colors.to_hex(matplotlib.colormaps["viridis"](0.9 * place))
        own = found.filter(pl.col("arm") == arm.name)
        sheet.lines(axes, [Line("log_ratio", str(label), shade, marker)], own)
    axes.axhline(0, color=GREY, linewidth=0.6)
    style.epoch_axis(axes, max(arm.epochs for _, arm in arms))
    spread = pl.col("sd").fill_null(0.0)
    low, high = found.select((pl.col("mean") - spread).min(), high=(pl.col("mean") + spread).max()).row(0)
    margin = 0.05 * max(high - low, 0.5)
    axes.set_ylim(min(low, 0.0) - margin, max(high, 0.0) + margin)
    axes.set_ylabel("L, nats")


def _noise(axes: Axes, rows: pl.DataFrame) -> None:
    """Every epoch of every arm: predicted across, counted up."""
    pairs = rows.pivot("metric", index=["arm", "at"], values="mean")
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
    titles = gap_titles()
    for metric, label, colour in (
        ("selection_error", "counted", VERMILION),
        ("selection_bound", "exp(-KΔ²)", BLACK),
    ):
        own = rows.filter(pl.col("metric") == metric)
        if own.is_empty():
            continue
        places = own["at"].replace_strict(titles, range(len(titles)), return_dtype=pl.Int64)
        axes.plot(places, own["mean"], "o", color=colour, alpha=0.4, markersize=2.4, markeredgewidth=0)
        means = own.with_columns(place=places).group_by("place").agg(pl.col("mean").mean()).sort("place")
        axes.plot(means["place"], means["mean"], color=colour, linestyle="-" if colour == VERMILION else "--")
        sheet.label(axes, float(means["mean"][-1]), label, colour)
    axes.set_xticks(range(len(titles)), [title.replace(" ", "\n", 1) for title in titles])
    axes.set_xlim(-0.3, len(titles) - 0.7)
    style.percent_axis(axes, (0, 1))
    axes.set_xlabel("Δp, from the visits before and after")
