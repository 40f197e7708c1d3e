"""The page of the theory, made from runs: blocks and lines of its tables, its figures, and where a change crosses 0."""

import statistics

import polars as pl
import pytest
from histories import write_history
from hypothesis import given, strategies as st

from benchmarks.theory import phase
from benchmarks.theory.__main__ import main
from benchmarks.theory.measure import measure
from benchmarks.theory.table import crossing, refined_crossing, theory_table
from olr_cli.analysis.arms import find_runs, group
from olr_cli.analysis.figures import style

GRPO = {"name": "grpo"}
SMALL = {"prompts": 20, "prompts_per_step": 10, "epochs": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    for ratio in (0.2, 0.8):
        for seed in (1, 2):
            write_history(
                place / f"grpo-{ratio}-{seed}", ratio=ratio, method=GRPO, seed=seed, **SMALL
            )
            write_history(place / f"olr-{ratio}-{seed}", ratio=ratio, seed=seed, **SMALL)
    return place


@pytest.fixture(scope="module")
def phases():
    with style.applied():
        (chart,) = phase.charts(cells=16)
    return chart.data


def test_one_command_prints_the_tables_and_draws_both_figures(folder, tmp_path, capsys):
    assert main([str(folder), "--out", str(tmp_path), "--cells", "4", "--counted"]) == 0
    printed = capsys.readouterr().out
    for title in (
        "Assumption (i)",
        "Rollout feasibility",
        "OLR: Delta",
        "Observed critical noise ratio",
    ):
        assert title in printed
    assert sorted(file.name for file in tmp_path.glob("*.png")) == [
        "phase.png",
        "theory.png",
    ]


def test_a_cell_is_the_mean_over_seeds_and_a_critical_ratio_that_of_each_seeds_changes(
    folder,
):
    arms = group(find_runs([folder]))
    cells = {(row["line"], row["column"]): row for row in theory_table(arms).rows}
    values = measure(arms[:1]).filter(metric="log_ratio", at=5)["value"].to_list()
    assert cells[arms[0].name, "epoch_5"]["mean"] == pytest.approx(statistics.fmean(values))
    changes = {1: {}, 2: {}}
    for arm in arms:
        rows = (
            measure([arm])
            .filter(metric="change/held_out")
            .select("seed", "value")
            .iter_rows()
        )
        for seed, value in () if arm.olr else rows:
            changes[seed][float(arm.recipe.noise.ratio)] = value
    crossings = [crossing(dict(sorted(of_seed.items()))) for of_seed in changes.values()]
    line = "active grpo: held-out accuracy"
    assert cells[line, "crossing"]["mean"] == sum(ratio is not None for ratio in crossings)
    assert cells[line, "seeds"]["mean"] == 2


def test_a_crossing_is_the_first_fall_interpolated():
    assert crossing({0.1: 3.0, 0.5: 1.0, 0.7: -1.0, 0.9: -5.0}) == pytest.approx(0.6)
    assert crossing({0.1: 1.0, 0.5: 0.0}) == pytest.approx(0.5)
    assert crossing({0.1: 1.0, 0.3: -1.0, 0.5: 1.0, 0.7: -1.0}) == pytest.approx(0.2)
    for changes in ({0.1: 1.0, 0.9: 0.2}, {0.1: -1.0, 0.9: 0.2}, {}):
        assert crossing(changes) is None


@given(st.floats(0.05, 0.9), st.floats(0.0, 0.9))
def test_with_a_constant_delta_olrs_ratio_is_the_theorems(critical, replaced):
    moved = critical / (1 - replaced)
    predicted = refined_crossing({0.01: replaced, 0.999: replaced}, critical)
    assert predicted is None if moved > 0.999 else predicted == pytest.approx(moved)


def test_wrong_sides_are_counted_by_hand():
    cells = {
        "rho": [0.1, 0.3, 0.5, 0.7],
        "coherent": [1.0, 0.5, 0.25, 0.0],
        "rises": [1.0, 1.0, 1.0, 0.0],
    }
    rows = pl.DataFrame(cells).with_columns(
        case=pl.lit("kl"), plane=pl.lit("coupling"), printed=0.2, corrected=0.4
    )
    assert phase.wrong_sides(rows).rows() == [("kl", "coupling", 0.25, 0.0, 0.5)]


@pytest.mark.slow
def test_simulation_agrees_with_theory_early_and_with_the_corrected_boundary_under_kl(
    phases,
):
    wrong = phase.wrong_sides(phases)
    plain, kl = wrong.filter(case="plain"), wrong.filter(case="kl")
    assert plain["printed_early"].max() <= 0.05
    assert plain["printed"].min() >= 0.1
    assert kl["corrected"].max() <= 0.1
    assert (kl["corrected"] < kl["printed"] - 0.03).all()
