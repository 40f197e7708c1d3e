"""Where training on noisy labels keeps the true answers: simulated, and by the paper's boundaries.

Two planes, noise ratio by coupling and by rollouts, in three cases: labels as given, with KL regularisation, and with
OLR. Theory and simulation part in three places.

- The theorems hold G_c and G_n fixed. In the simulation clean prompts are soon solved and then push no more, while a
  noisy label keeps its pull as long as it is sampled: the log-ratio rises at first where rho < rho_c, and falls later
  in half of these cells and more.
- KL holds the policies near the reference, where fixed magnitudes are a fair account; then the corrected boundary is
  near, and the printed one shifts the wrong way. A reference that is surer of the true answer (0.6 against 0.1) takes
  both farther off: G_n has changed by the time that the log-ratio is at 0.
- OLR's Delta is no constant: near 1 where true answers win, near 0 elsewhere. Drawn with the Delta that each cell ended
  up with, its boundary describes the outcome more than it predicts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import matplotlib.colors
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

from benchmarks.theory import formulas
from benchmarks.theory.formulas import Numbers
from benchmarks.theory.simulation import Refinement, Simulation, simulate
from olr_cli.analysis.arms import Arm
from olr_cli.analysis.figures import style
from olr_cli.analysis.figures.sheet import Chart, Sheet
from olr_cli.analysis.figures.style import BLACK, BLUE, GREY, ORANGE, PURPLE, VERMILION

CELLS = 40
"""Along either side of a plane."""

COUPLING, ROLLOUTS = 0.5, 16
"""What the other plane holds fixed."""

BETA = 0.2
FAILURE = 0.05
"""The theorems' delta."""

SQUARED_GRADIENT = 100.0
"""E[|g_n|^2] of an example of a model whose coupling is not normalised."""

ENDINGS = (
    (BLUE, 0.6, "true answers win"),
    (ORANGE, 0.65, "they gain at first, then noisy labels win"),
    (VERMILION, 0.25, "noisy labels win"),
)
"""How runs can end: the colour, how much of it lies under the lines (in grey: from dark to light), and its name."""


@dataclass(frozen=True)
class Case:
    """One row of panels."""

    name: str
    title: str
    setting: Simulation


CASES = (
    Case("plain", "labels as given", Simulation()),
    Case("kl", f"KL, β = {BETA:g}", Simulation(beta=BETA)),
    Case("olr", "OLR", Simulation(refinement=Refinement())),
)


@dataclass(frozen=True)
class Plane:
    """One column of panels: the axis beside the noise ratio, and what it leaves fixed."""

    name: str
    column: str
    axis: str
    fixed: str


PLANES = (
    Plane("coupling", "gamma", "coupling γ (normalised)", f"K = {ROLLOUTS}"),
    Plane("rollouts", "rollouts", "rollouts K", f"γ = {COUPLING:g}"),
)


def charts(arms: Sequence[Arm] = (), *, cells: int = CELLS) -> list[Chart]:
    """Where training on noisy labels keeps the true answers: simulated, and by the paper's boundaries.

    One chart of three cases in two planes, with `cells` along either side; `arms` are not read.
    """
    rows = pl.concat([simulated(case, plane, cells) for case in CASES for plane in PLANES])
    sheet = Sheet(
        len(CASES) * len(PLANES), len(PLANES), width=style.TEXT_WIDTH, panel_height=1.75
    )
    for number, axes in enumerate(sheet.panels):
        case, plane = CASES[number // len(PLANES)], PLANES[number % len(PLANES)]
        _panel(sheet, axes, case, plane, rows.filter(case=case.name, plane=plane.name))
        axes.set_title(style.lettered(number, f"{case.title}, {plane.fixed}"))
        if number // len(PLANES) == len(CASES) - 1:
            axes.set_xlabel(plane.axis)
        if number % len(PLANES) == 0:
            axes.set_ylabel("noise ratio ρ")
    sheet.legend(
        [
            Patch(facecolor=_tinted(colour, tint), label=label)
            for colour, tint, label in ENDINGS
        ]
    )
    plain = CASES[0].setting
    caption = (
        f"Colours: after {plain.steps} steps. Wrong: cells on the wrong side of a line; early: by whether the log-ratio"
        f" has risen after {plain.early} steps. Not normalised: with |g|² = {SQUARED_GRADIENT:g}. Promised: by Lemma 2,"
        f" with δ = {FAILURE:g} and C\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}1. OLR's boundary takes the"
        " Δ that each cell ended up with."
    )
    return [sheet.chart("phase", rows, caption=caption)]


def wrong_sides(rows: pl.DataFrame) -> pl.DataFrame:
    """Share of cells in which a boundary and the simulation part; a tie between runs counts as coherence.

    Args:
        rows: of the chart.

    Returns:
        Columns case, plane; printed and corrected: against the end of the simulation; printed_early: against whether
        the log-ratio rises at first.
    """
    below = {name: pl.col("rho") < pl.col(name) for name in ("printed", "corrected")}
    ends, begins = pl.col("coherent") >= 0.5, pl.col("rises") >= 0.5
    return rows.group_by("case", "plane", maintain_order=True).agg(
        (below["printed"] != ends).mean().alias("printed"),
        (below["corrected"] != ends).mean().alias("corrected"),
        (below["printed"] != begins).mean().alias("printed_early"),
    )


def simulated(case: Case, plane: Plane, cells: int, seed: int = 0) -> pl.DataFrame:
    """The cells of one panel, `cells` along either side.

    Returns:
        Columns case, plane, rho, gamma, rollouts, those of `Outcome`, and the boundaries printed and corrected at each
        cell (corrected is null for OLR); by rho, then by the plane's other axis.
    """
    shares = (np.arange(cells) + 0.5) / cells
    gammas, rollouts = shares, np.array([ROLLOUTS])
    if plane.column == "rollouts":
        # Whole numbers, so fewer than `cells` where neighbours round to the same one.
        rollouts = np.unique(np.geomspace(2, 256, cells).round().astype(np.int64))
        gammas = np.array([COUPLING])
    rho, gamma, k = (
        axis.ravel() for axis in np.meshgrid(shares, gammas, rollouts, indexing="ij")
    )
    outcome = simulate(case.setting, rho, gamma, k, seed)
    printed, corrected = _boundaries(case, gamma, k, outcome.replaced)
    columns = {
        "rho": rho,
        "gamma": gamma,
        "rollouts": k,
        **vars(outcome),
        "printed": printed,
        "corrected": corrected,
    }
    names = {"case": case.name, "plane": plane.name}
    return pl.DataFrame(names | columns, schema_overrides={"corrected": pl.Float64})


def _boundaries(
    case: Case, gamma: Numbers, rollouts: NDArray[np.int64], replaced: Numbers
) -> tuple[Numbers, Numbers | None]:
    """The noise ratio that each cell should be below, within 0 to 1: as printed, and corrected.

    Printed ones know no K: magnitudes are those of infinitely many rollouts.
    """
    setting, expected = case.setting, case.setting.magnitudes()
    sampled = setting.magnitudes(rollouts)
    if case.name == "kl":
        printed = formulas.kl_critical_ratio_printed(
            gamma, *expected, setting.beta, setting.reference
        )
        corrected = formulas.kl_critical_ratio(
            gamma, *sampled, setting.beta, setting.reference
        )
        return np.clip(printed, 0, 1), np.clip(corrected, 0, 1)
    critical = formulas.critical_ratio(gamma, *expected)
    if case.name == "olr":
        kept = np.minimum(
            replaced, 1 - critical
        )  # beyond that every ratio is below the boundary
        return np.minimum(formulas.olr_critical_ratio(critical, kept), 1), None
    return critical, formulas.critical_ratio(gamma, *sampled)


def _panel(sheet: Sheet, axes: Axes, case: Case, plane: Plane, rows: pl.DataFrame) -> None:
    ratio, across = (np.unique(rows[name].to_numpy()) for name in ("rho", plane.column))
    names = ("coherent", "rises", "gamma", "printed", "corrected")
    field = {name: rows[name].to_numpy().reshape(len(ratio), -1) for name in names}
    if plane.column == "rollouts":
        axes.set_xscale("log", base=2)
        axes.set_xticks([2, 8, 32, 128], ["2", "8", "32", "128"])
        axes.xaxis.set_minor_locator(NullLocator())
    axes.pcolormesh(
        across,
        ratio,
        _colours(field["coherent"], field["rises"]),
        shading="nearest",
        rasterized=True,
    )
    axes.set_xlim(across[0], across[-1])
    axes.set_ylim(0, 1)
    axes.grid(False)
    axes.tick_params(left=True)
    line = partial(sheet.curve, axes, across)
    wrong = wrong_sides(rows).row(0, named=True)
    printed = f"printed\n{wrong['printed']:.1%} wrong"
    if case.name == "olr":
        line(_edge(ratio, field["printed"]), printed, BLACK, linestyle="--")
        critical = formulas.critical_ratio(field["gamma"][0], *case.setting.magnitudes())
        line(critical, "printed,\nno OLR", GREY, linestyle=":")
        return
    early = f"\n(early {wrong['printed_early']:.1%})" if case.name == "plain" else ""
    line(field["printed"][0], printed + early, BLACK, linestyle="--")
    if case.name == "kl":
        line(
            field["corrected"][0],
            f"corrected\n{wrong['corrected']:.1%} wrong",
            BLACK,
            linestyle="-",
        )
    elif plane.column == "gamma":
        unnormalised = formulas.critical_ratio(
            SQUARED_GRADIENT * across, *case.setting.magnitudes()
        )
        line(unnormalised, "γ not\nnormalised", GREY, linestyle=":")
    else:
        _guarantees(sheet, axes, case.setting, across.astype(np.int64))


def _guarantees(
    sheet: Sheet, axes: Axes, setting: Simulation, rollouts: NDArray[np.int64]
) -> None:
    """Below which noise ratio the theorem promises coherence: by Lemma 2 as printed, and corrected."""
    clean, noisy = setting.magnitudes()
    critical = formulas.critical_ratio(COUPLING, clean, noisy)
    for label, deviation, dashes in (
        ("promised,\nprinted", formulas.deviation_printed, "--"),
        ("promised,\ncorrected", formulas.deviation, "-"),
    ):
        margin = deviation(rollouts, setting.steps, FAILURE)
        promised = formulas.guaranteed_ratio(critical, margin, COUPLING * clean, noisy)
        shown = promised >= 0
        sheet.curve(
            axes,
            rollouts[shown],
            promised[shown],
            label,
            style.darker(PURPLE),
            linestyle=dashes,
        )


def _colours(coherent: Numbers, rises: Numbers) -> Numbers:
    """Each cell's mixture of the three endings, shape (ratios, across, 3)."""
    keeps, late, falls = (np.array(_tinted(colour, tint)) for colour, tint, _ in ENDINGS)
    ends = rises[..., None] * late + (1 - rises[..., None]) * falls
    return np.asarray(coherent[..., None] * keeps + (1 - coherent[..., None]) * ends)


def _tinted(colour: str, tint: float) -> tuple[float, float, float]:
    red, green, blue = (1 - tint * (1 - part) for part in matplotlib.colors.to_rgb(colour))
    return red, green, blue


def _edge(ratio: Numbers, boundary: Numbers) -> Numbers:
    """Where cells of the lowest noise ratio begin that is not below its own boundary, for each column of cells."""
    above = ratio[:, None] >= boundary
    return np.asarray(
        np.where(above.any(axis=0), ratio[above.argmax(axis=0)] - ratio[0], 1.0)
    )
