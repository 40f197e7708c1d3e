"""The theory's table and figure: which blocks there are, what stands in them, every format."""

import csv
import io
import statistics

import pytest
from histories import write_history
from rich.console import Console
from typer.testing import CliRunner

from olr_cli import tables
from olr_cli.analysis.arms import find_runs, group
from olr_cli.analysis.theory import figure
from olr_cli.analysis.theory.critical import crossing
from olr_cli.analysis.theory.histories import gap_titles
from olr_cli.analysis.theory.subjects import MOST_EPOCHS, subjects
from olr_cli.analysis.theory.table import NOTHING, theory_table
from olr_cli.analysis.theory.values import Measured, held_out_change
from olr_cli.cli import app

GRPO = {"name": "grpo"}
SMALL = {"prompts": 20, "prompts_per_step": 10, "epochs": 5}
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


def block(table, name):
    return next(each for each in table.blocks if each.name == name)


def test_there_is_a_block_for_each_subject_and_a_line_for_each_arm(table, arms):
    names = [each.name for each in table.blocks]
    assert names == [*(subject.name for subject in subjects(5)), "critical_ratio"]
    assert [line for line, _ in block(table, "start").lines] == [arm.name for arm in arms]
    assert [line for line, _ in block(table, "refinement").lines] == [arm.name for arm in arms if arm.olr]


def test_cells_hold_each_seeds_value(table, arms):
    (cells,) = (cells for line, cells in block(table, "log_ratio").lines if line == arms[0].name)
    values = [Measured(run).log_ratios[5] for run in arms[0].runs]
    assert list(cells["epoch_5"].values.values()) == values
    assert cells["epoch_5"].sd == pytest.approx(statistics.stdev(values))


def test_the_critical_ratio_is_that_of_each_seeds_changes(table, arms):
    cells = dict(block(table, "critical_ratio").lines)["active grpo: held-out accuracy"]
    expected = {}
    for seed in (1, 2):
        own = [arm for arm in arms if not arm.olr]
        changes = {
            float(arm.recipe.noise.ratio): held_out_change(Measured(arm.runs[seed - 1])) for arm in own
        }
        if (at := crossing(dict(sorted(changes.items())))) is not None:
            expected[seed] = at
    assert dict(cells["observed"].values if "observed" in cells else {}) == expected
    assert cells["crossing"].mean == len(expected)
    assert cells["seeds"].mean == 2


def test_long_runs_show_some_epochs_the_first_and_last_among_them():
    columns = [column.name for column in subjects(100)[1].columns if column.name.startswith("epoch")]
    assert len(columns) == MOST_EPOCHS
    assert (columns[0], columns[-1]) == ("epoch_1", "epoch_100")


@pytest.mark.parametrize("shape", ["markdown", "latex", "comma_separated"])
def test_every_format_has_every_line(table, shape):
    text = getattr(tables, shape)(table.table())
    for each in table.blocks:
        assert all(line.replace("_", "\\_" if shape == "latex" else "_") in text for line, _ in each.lines)
    assert "None" not in text


def test_csv_has_a_line_a_cell_with_shares_as_they_are(table):
    rows = list(csv.DictReader(io.StringIO(tables.comma_separated(table.table()))))
    assert len(rows) == sum(len(cells) for each in table.blocks for _, cells in each.lines)
    shares = [float(row["mean"]) for row in rows if row["column"] in ("true_1", "replaced", "counted")]
    assert shares and all(0 <= share <= 1 for share in shares)


def test_the_terminal_shows_the_table_in_80_columns(table):
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(tables.terminal(table.table()))
    lines = console.export_text().splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert any(line.startswith("active 0.2 grpo") for line in lines)


def test_runs_without_noise_have_nothing_to_show_and_are_told_so(tmp_path):
    write_history(tmp_path / "clean", noise=None, method=GRPO, **SMALL)
    result = CliRunner().invoke(app, ["analyze", str(tmp_path / "clean"), "--table", "theory"])
    assert result.exit_code == 0, result.output
    assert NOTHING in " ".join(result.output.split())
    result = CliRunner().invoke(app, ["analyze", str(tmp_path / "clean"), "--figure", "theory"])
    assert result.exit_code == 2
    assert "active noise" in result.output


def test_a_baseline_is_refused(folder):
    result = CliRunner().invoke(app, ["analyze", str(folder), "--table", "theory", "--baseline", "x"])
    assert result.exit_code == 2
    assert "--baseline" in result.output


def test_the_figure_has_all_it_draws_in_its_data(arms, tmp_path):
    (chart,) = figure.charts(arms)
    data = chart.data
    assert set(data["metric"]) == {
        "log_ratio",
        "effective_noise_predicted",
        "effective_noise_counted",
        "selection_error",
        "selection_bound",
    }
    assert data.filter(metric="log_ratio", arm=arms[0].name)["at"].to_list() == ["1", "2", "3", "4", "5"]
    assert [axes.get_title("left")[:3] for axes in chart.figure.axes] == ["(a)", "(b)", "(c)", "(d)"]


def test_bins_stand_in_their_order_in_the_figures_csv(folder):
    (chart,) = figure.charts(group(find_runs([folder / "olr-0.2-1"])))
    for metric in ("selection_error", "selection_bound"):
        bins = chart.data.filter(metric=metric)["at"].to_list()
        assert len(bins) > 2
        assert bins == sorted(bins, key=gap_titles().index)


def test_the_figure_needs_three_epochs(tmp_path):
    write_history(tmp_path / "short", prompts=20, epochs=2)
    assert "3 epochs" in figure.lacking(group(find_runs([tmp_path])))
