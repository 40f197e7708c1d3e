"""The phase figure: its cells, its boundaries and how far they are from the simulation."""

import polars as pl
import pytest

from olr_cli.analysis import style
from olr_cli.analysis.theory import phase
from olr_cli.analysis.theory.simulation import Simulation


@pytest.fixture(scope="module")
def chart():
    with style.applied():
        (drawn,) = phase.charts(cells=16)
    return drawn


def test_six_panels_show_three_cases_in_two_planes(chart):
    cases, planes = ("labels as given", "KL, β = 0.2", "OLR"), ("K = 16", "γ = 0.5")
    titles = [axes.get_title("left").partition(") ")[2] for axes in chart.figure.axes]
    assert titles == [f"{case}, {plane}" for case in cases for plane in planes]


def test_every_cell_is_a_row_with_its_outcome_and_boundaries(chart):
    rows = chart.data
    assert rows.filter(case="plain", plane="coupling").height == 16 * 16
    assert rows.filter(plane="rollouts")["rollouts"].unique().sort().to_list()[:3] == [2, 3, 4]
    assert rows.filter(plane="coupling")["rollouts"].unique().to_list() == [16]
    for column in ("coherent", "rises", "replaced", "rho", "printed"):
        assert rows[column].is_between(0, 1).all()
    assert rows.filter(pl.col("case") != "olr")["replaced"].sum() == 0
    assert (rows["corrected"].is_null() == (rows["case"] == "olr")).all()


def test_lines_are_named_with_the_share_of_cells_on_their_wrong_side(chart):
    parted = phase.wrong_sides(chart.data).filter(case="kl", plane="coupling").row(0, named=True)
    texts = [text.get_text() for text in chart.figure.axes[2].texts]
    assert texts == [f"printed\n{parted['printed']:.1%} wrong", f"corrected\n{parted['corrected']:.1%} wrong"]


def test_wrong_sides_are_counted_by_hand():
    cells = {"rho": [0.1, 0.3, 0.5, 0.7], "coherent": [1.0, 0.5, 0.25, 0.0], "rises": [1.0, 1.0, 1.0, 0.0]}
    rows = pl.DataFrame(cells).with_columns(
        case=pl.lit("kl"), plane=pl.lit("coupling"), printed=0.2, corrected=0.4
    )
    assert phase.wrong_sides(rows).rows() == [("kl", "coupling", 0.25, 0.0, 0.5)]


def test_simulation_agrees_with_theory_early_and_with_the_corrected_boundary_under_kl(chart):
    wrong = phase.wrong_sides(chart.data)
    plain, kl = wrong.filter(case="plain"), wrong.filter(case="kl")
    assert plain["printed_early"].max() <= 0.05
    assert plain["printed"].min() >= 0.1
    assert kl["corrected"].max() <= 0.1
    assert (kl["corrected"] < kl["printed"] - 0.03).all()


def test_a_coupling_that_is_not_normalised_puts_the_boundary_near_1(chart):
    (line,) = (line for line in chart.figure.axes[0].lines if line.get_color() == style.GREY)
    coupling, boundary = line.get_data()
    assert (boundary[coupling > 0.5] > 0.98).all()


def test_what_lemma_2_promises_without_enough_rollouts_is_not_drawn(chart):
    printed, corrected = (
        line for line in chart.figure.axes[1].lines if line.get_color() == style.darker(style.PURPLE)
    )
    assert min(printed.get_xdata()) > 32
    assert min(corrected.get_xdata()) == 2
    assert max(printed.get_ydata()) < max(corrected.get_ydata()) < 0.35


def test_the_same_seed_draws_the_same_cells():
    case, plane = phase.CASES[0], phase.PLANES[0]
    assert case.setting == Simulation()
    one, same, other = (phase.simulated(case, plane, 6, seed) for seed in (1, 1, 2))
    assert one.equals(same)
    assert not one.equals(other)
