"""The phase figure: its cells, its boundaries and how far they are from the simulation."""

import polars as pl
import pytest

from olr_cli.analysis import style
from olr_cli.analysis.theory import phase
from olr_cli.analysis.theory.simulation import Setting


@pytest.fixture(scope="module")
def chart():
    with style.applied():
        (drawn,) = phase.charts(cells=16)
    return drawn


def test_six_panels_show_three_cases_in_two_planes(chart):
    titles = [axes.get_title("left") for axes in chart.figure.axes]
    assert titles == [
        "(a) labels as given, K = 16",
        "(b) labels as given, γ = 0.5",
        "(c) KL, β = 0.2, K = 16",
        "(d) KL, β = 0.2, γ = 0.5",
        "(e) OLR, K = 16",
        "(f) OLR, γ = 0.5",
    ]
    assert {axes.get_ylim() for axes in chart.figure.axes} == {(0.0, 1.0)}


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
    rows = pl.DataFrame(
        {
            "case": ["kl"] * 4,
            "plane": ["coupling"] * 4,
            "rho": [0.1, 0.3, 0.5, 0.7],
            "coherent": [1.0, 0.5, 0.25, 0.0],
            "rises": [1.0, 1.0, 1.0, 0.0],
            "printed": [0.2] * 4,
            "corrected": [0.4] * 4,
        }
    )
    (counted,) = phase.wrong_sides(rows).rows()
    assert counted == ("kl", "coupling", 0.25, 0.0, 0.5)


def test_theory_and_simulation_agree_early_but_not_at_the_end(chart):
    plain = phase.wrong_sides(chart.data).filter(case="plain")
    assert plain["printed_early"].max() <= 0.05
    assert plain["printed"].min() >= 0.1


def test_under_kl_the_corrected_boundary_is_nearer_to_the_simulation_than_the_printed_one(chart):
    kl = phase.wrong_sides(chart.data).filter(case="kl")
    assert kl["corrected"].max() <= 0.1
    assert (kl["corrected"] < kl["printed"] - 0.03).all()


def test_a_coupling_that_is_not_normalised_puts_the_boundary_near_1(chart):
    (line,) = (line for line in chart.figure.axes[0].lines if line.get_color() == style.GREY)
    coupling, boundary = line.get_data()
    assert (boundary[coupling > 0.5] > 0.98).all()


def test_what_lemma_2_promises_without_enough_rollouts_is_not_drawn(chart):
    printed, corrected = (line for line in chart.figure.axes[1].lines if line.get_color() == style.PURPLE)
    assert min(printed.get_xdata()) > 32
    assert min(corrected.get_xdata()) == 2
    assert max(printed.get_ydata()) < max(corrected.get_ydata()) < 0.35


def test_it_needs_no_run_and_is_saved_as_png_pdf_and_csv(chart, tmp_path):
    files = style.save(chart, tmp_path)
    assert sorted(file.name for file in files) == ["phase.csv", "phase.pdf", "phase.png"]
    assert pl.read_csv(tmp_path / "phase.csv").height == chart.data.height


def test_the_same_seed_draws_the_same_cells():
    case, plane = phase.CASES[0], phase.PLANES[0]
    assert case.setting == Setting()
    one, same, other = (phase.simulated(case, plane, 6, seed) for seed in (1, 1, 2))
    assert one.equals(same)
    assert not one.equals(other)
