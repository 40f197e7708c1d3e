"""The theory's table and figure: their blocks and cells, and where a change crosses 0."""

import statistics

import pytest
from histories import write_history
from hypothesis import given
from hypothesis import strategies as st

from olr_cli import tables
from olr_cli.analysis.arms import find_runs, group
from olr_cli.analysis.figures import FIGURES, Lack
from olr_cli.analysis.theory.measure import gap_titles, measure
from olr_cli.analysis.theory.table import MOST_EPOCHS, NOTHING, crossing, refined_crossing, theory_table

GRPO = {"name": "grpo"}
SMALL = {"prompts": 20, "prompts_per_step": 10, "epochs": 5}
TINY = {"prompts": 10, "prompts_per_step": 10, "epochs": 4}
RATIOS = (0.2, 0.8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    for ratio in RATIOS:
        for seed in (1, 2):
            write_history(place / f"grpo-{ratio}-{seed}", ratio=ratio, method=GRPO, seed=seed, **SMALL)
            write_history(place / f"olr-{ratio}-{seed}", ratio=ratio, seed=seed, **SMALL)
    return place


@pytest.fixture(scope="module")
def arms(folder):
    return group(find_runs([folder]))


@pytest.fixture(scope="module")
def table(arms):
    return theory_table(arms)


def lines(table, block):
    return list(dict.fromkeys(row["line"] for row in table.data["rows"] if row["block"] == block))


def cell(table, block, line, column):
    rows = {(row["block"], row["line"], row["column"]): row for row in table.data["rows"]}
    return rows.get((block, line, column))


def drawn(arms):
    (chart,) = FIGURES["theory"].draw(arms)
    return chart


def test_there_is_a_block_for_each_subject_and_a_line_for_each_arm(table, arms):
    assert list(dict.fromkeys(row["block"] for row in table.data["rows"])) == [
        "start",
        "log_ratio",
        "feasibility",
        "refinement",
        "selection_error",
        "selection_bound",
        "critical_ratio",
    ]
    assert lines(table, "start") == [arm.name for arm in arms]
    assert lines(table, "refinement") == [arm.name for arm in arms if arm.olr]
    assert [row.cells[0] for row in table.blocks[0].rows] == lines(table, "start")


def test_cells_are_means_over_seeds(table, arms):
    values = measure(arms[:1]).filter(metric="log_ratio", at=5)["value"].to_list()
    row = cell(table, "log_ratio", arms[0].name, "epoch_5")
    assert (row["n"], row["mean"]) == (2, pytest.approx(statistics.fmean(values)))
    assert row["sd"] == pytest.approx(statistics.stdev(values))
    assert f"{row['mean']:.2f} ± {row['sd']:.2f}" in tables.markdown(table)
    shares = [row["mean"] for row in table.data["rows"] if row["column"] in ("true_1", "replaced", "counted")]
    assert shares and all(0 <= share <= 1 for share in shares)


def test_the_critical_ratio_is_that_of_each_seeds_changes(table, arms):
    changes = {1: {}, 2: {}}
    for arm in arms:
        for seed, value in (
            measure([arm]).filter(metric="change/held_out").select("seed", "value").iter_rows()
        ):
            if not arm.olr:
                changes[seed][float(arm.recipe.noise.ratio)] = value
    crossings = [crossing(dict(sorted(of_seed.items()))) for of_seed in changes.values()]
    expected = [ratio for ratio in crossings if ratio is not None]
    line = "active grpo: held-out accuracy"
    observed = cell(table, "critical_ratio", line, "observed")
    assert observed is None if not expected else observed["mean"] == pytest.approx(statistics.fmean(expected))
    assert cell(table, "critical_ratio", line, "crossing")["mean"] == len(expected)
    assert cell(table, "critical_ratio", line, "seeds")["mean"] == 2


def test_a_crossing_is_the_first_fall_interpolated():
    assert crossing({0.1: 3.0, 0.5: 1.0, 0.7: -1.0, 0.9: -5.0}) == pytest.approx(0.6)
    assert crossing({0.1: 1.0, 0.5: 0.0}) == pytest.approx(0.5)
    assert crossing({0.1: 1.0, 0.3: -1.0, 0.5: 1.0, 0.7: -1.0}) == pytest.approx(0.2)


@pytest.mark.parametrize("changes", [{0.1: 1.0, 0.9: 0.2}, {0.1: -1.0, 0.9: 0.2}, {}])
def test_a_change_that_never_crosses_has_no_critical_ratio(changes):
    assert crossing(changes) is None


@given(st.floats(0.05, 0.9), st.floats(0.0, 0.9))
def test_with_a_constant_delta_olrs_ratio_is_the_theorems(critical, replaced):
    moved = critical / (1 - replaced)
    predicted = refined_crossing({0.01: replaced, 0.999: replaced}, critical)
    assert predicted is None if moved > 0.999 else predicted == pytest.approx(moved)


def test_critical_ratios_are_of_arms_that_differ_in_the_ratio_of_active_noise_alone(tmp_path):
    for ratio in (0.7, 0.3):
        write_history(tmp_path / f"olr-{ratio}", ratio=ratio, **TINY)
        write_history(tmp_path / f"inactive-{ratio}", noise="inactive", ratio=ratio, **TINY)
        for rollouts in (4, 8):
            place = tmp_path / f"grpo-{ratio}-{rollouts}"
            write_history(place, ratio=ratio, method=GRPO, rollouts=rollouts, **TINY)
    write_history(tmp_path / "alone", ratio=0.3, method=GRPO | {"penalty_weight": 0.1}, **TINY)
    write_history(tmp_path / "clean", noise=None, method=GRPO, **TINY)
    shown = lines(theory_table(group(find_runs([tmp_path]))), "critical_ratio")
    assert list(dict.fromkeys(line.partition(":")[0] for line in shown)) == [
        "active grpo rollouts_per_prompt=4",
        "active grpo rollouts_per_prompt=8",
        "active olr",
    ]


def test_long_runs_show_some_epochs_the_first_and_last_among_them(tmp_path):
    write_history(tmp_path / "long", prompts=4, prompts_per_step=4, epochs=25)
    rows = theory_table(group(find_runs([tmp_path]))).data["rows"]
    columns = [row["column"] for row in rows if row["block"] == "log_ratio"]
    assert len(columns) == MOST_EPOCHS
    assert (columns[0], columns[-1]) == ("epoch_1", "epoch_25")


def test_runs_without_noise_have_nothing_to_show(tmp_path):
    write_history(tmp_path / "clean", noise=None, method=GRPO, **SMALL)
    arms = group(find_runs([tmp_path]))
    table = theory_table(arms)
    assert (table.blocks, table.data["rows"], table.nothing) == ([], [], NOTHING)
    with pytest.raises(Lack, match="active noise"):
        drawn(arms)


def test_the_figure_has_all_it_draws_in_its_data_and_bins_in_their_order(arms):
    chart = drawn(arms)
    assert set(chart.data["metric"]) == {
        "log_ratio",
        "effective_noise_predicted",
        "effective_noise_counted",
        "selection_error",
        "selection_bound",
    }
    of_arm = chart.data.filter(arm=arms[0].name)
    assert of_arm.filter(metric="log_ratio")["at"].to_list() == ["1", "2", "3", "4", "5"]
    for metric in ("selection_error", "selection_bound"):
        bins = of_arm.filter(metric=metric)["at"].to_list()
        assert len(bins) > 2
        assert bins == sorted(bins, key=gap_titles().index)
    assert [axes.get_title("left")[:3] for axes in chart.figure.axes] == ["(a)", "(b)", "(c)", "(d)"]


def test_the_figure_draws_arms_of_which_some_have_no_true_answers(tmp_path):
    write_history(tmp_path / "known", **TINY)
    write_history(tmp_path / "unknown", knows_truth=False, ratio=0.25, **TINY)
    assert len(drawn(group(find_runs([tmp_path]))).figure.axes) == 3


def test_the_figure_needs_three_epochs(tmp_path):
    write_history(tmp_path / "short", prompts=20, epochs=2)
    with pytest.raises(Lack, match="3 epochs"):
        drawn(group(find_runs([tmp_path])))
