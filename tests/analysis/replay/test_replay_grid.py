"""Every cell of a grid is what a full replay under its setting decides; what is not known is not a number."""

from dataclasses import replace
from decimal import Decimal
from itertools import product

import polars as pl
import pytest
from histories import write_history
from hypothesis import given
from hypothesis import strategies as st

from olr_cli.analysis.histories import read_history
from olr_cli.analysis.replay import grid_settings, grid_text
from olr_cli.analysis.replay.grid import Cell, GridResult, count, criteria_name, evidence, front, own_setting
from olr_cli.analysis.replay.grid_map import quantities, table
from olr_cli.analysis.replay.grid_report import report
from olr_cli.analysis.replay.grid_settings import Grid
from olr_cli.analysis.replay.replay import replay
from olr_cli.answers import Judge
from olr_cli.data.prompts import SENTINEL
from olr_cli.errors import UserError
from olr_cli.recipe.schema import OlrMethod
from olr_cli.runs.store import scan_labels, scan_rollouts

SETS = (("slope", "consistency"), ("consistency",), ("slope",), ())
# With K = 5, 0.05 and 0.2 are slopes that occur: a majority that does not exceed the threshold is not selected.
GRID = Grid(tuple(map(Decimal, ("-0.1", "0", "0.05", "0.2"))), (0, 2, 4), SETS)


@pytest.fixture(scope="module")
def judge():
    with Judge(workers=1) as judge:
        yield judge


@pytest.fixture(scope="module", params=["active", "inactive"])
def run(request, tmp_path_factory):
    place = tmp_path_factory.mktemp("runs") / request.param
    return write_history(place, noise=request.param, prompts=24, epochs=5, rollouts=5)


def as_table(run, file, *known):
    """A run's rollouts as a bare table, with some columns of its labels."""
    labels = scan_labels(run).filter(pl.col("visit") == 1).select("prompt_id", *known)
    rollouts = scan_rollouts(run).select("prompt_id", "visit", "response")
    rollouts.join(labels, on="prompt_id", maintain_order="left").collect().write_parquet(file)
    return file


def grid_of(source, judge, grid=GRID):
    history = read_history(source)
    return count(evidence(history, judge), grid, own_setting(history))


def replayed(source, judge, cell):
    """The counts of a cell from the records of a full replay under its setting."""
    settings = [
        f"method.criteria=[{','.join(cell.criteria)}]",
        f"method.warmup_epochs={cell.warmup_epochs}",
        f"method.slope_threshold={cell.slope_threshold or 0}",
    ]
    labels = [label for step in replay(read_history(source, settings), judge) for label in step]
    selected = [label for label in labels if label.is_selected]
    marked = [x for x in labels if x.noise_type not in (None, "clean") and x.true_answer is not None]
    return {
        "visits": len(labels),
        "marked": len(marked),
        "selected": len(selected),
        "known": sum(label.effective_label_is_correct is not None for label in selected),
        "right": sum(label.effective_label_is_correct is True for label in selected),
        "labelled": sum(label.given_label is not None for label in selected),
        "agreeing": sum(
            label.given_label not in (None, SENTINEL) and label.given_label == label.majority_answer
            for label in selected
        ),
        "repaired": sum(label.effective_label_is_correct is True for label in marked),
    }


def test_every_cell_of_a_run_is_a_full_replay_under_its_setting(run, judge):
    result = grid_of(run, judge)
    assert [cell.criteria for cell in result.cells] == [
        criteria for criteria in SETS for _ in range(12 if "slope" in criteria else 3)
    ]
    for cell in result.cells:
        expected = replayed(run, judge, cell)
        assert {name: getattr(cell, name) for name in expected} == expected, cell
    assert len({cell.selected for cell in result.cells}) > 10
    assert any(0 < cell.repaired < cell.right < cell.selected for cell in result.cells)


def test_a_bare_table_of_the_same_rollouts_gives_the_same_cells(run, judge, tmp_path):
    file = as_table(run, tmp_path / "log.parquet", "given_label", "true_answer", "noise_type")
    assert grid_of(file, judge).cells == grid_of(run, judge).cells


def test_a_replay_for_a_grid_needs_no_statistics_of_a_choice_of_prompts(run, judge, tmp_path):
    file = as_table(run, tmp_path / "log.parquet", "given_label")
    history = read_history(file, ["method.prompts=small_loss"])
    assert evidence(history, judge).equals(evidence(read_history(file), judge))


def test_answers_that_are_read_anew_are_replayed(run, judge):
    history = read_history(run, ["data.extractor=text"])
    anew, stored = evidence(history, judge), evidence(read_history(run), judge)
    assert len(anew) == len(stored)
    # "I give up" is an answer then, and has votes that it does not have in the run.
    assert not anew.equals(stored)
    labels = [label for step in replay(read_history(run, ["data.extractor=text"]), judge) for label in step]
    assert list(anew["majority_count"]) == [label.majority_count for label in labels]
    assert list(anew["slope"]) == [label.slope for label in labels]


def test_without_the_truth_there_is_coverage_and_agreement_and_no_front(run, judge, tmp_path):
    known = grid_of(run, judge)
    result = grid_of(as_table(run, tmp_path / "labelled.parquet", "given_label"), judge)
    assert not (result.knows_truth or (result.knows_marks and result.cells[0].repair is not None))
    assert [cell.accuracy for cell in result.cells] == [None] * len(result.cells)
    assert [cell.coverage for cell in result.cells] == [cell.coverage for cell in known.cells]
    assert [cell.agreement for cell in result.cells] == [cell.agreement for cell in known.cells]
    assert not any(cell.on_front for cell in result.cells)
    assert [quantity.title for quantity in quantities(result)] == [
        "Agreement with the label",
        "Share of visits selected",
    ]
    told = " ".join(grid_text.sentences(result, has_own=False))
    assert "No true answer is known, so nothing is said of accuracy" in told


def test_without_any_label_there_is_coverage_alone(run, judge, tmp_path):
    result = grid_of(as_table(run, tmp_path / "bare.parquet"), judge)
    assert not result.knows_labels
    assert [quantity.title for quantity in quantities(result)] == ["Share of visits selected"]
    assert next(grid_text.lines(result)) == "Share of all visits selected, in %."
    assert table(result)["agreement"].is_null().all()


def test_a_run_still_being_written_is_counted_as_far_as_it_is(tmp_path, judge):
    run = write_history(tmp_path / "run", prompts=24, epochs=5, prompts_per_step=12, steps=7)
    assert {cell.visits for cell in grid_of(run, judge).cells} == {84}


def test_the_runs_own_setting_is_marked_and_its_cell_is_what_the_run_did(tmp_path, judge):
    method = {"name": "olr", "slope_threshold": 0.05, "warmup_epochs": 2}
    run = write_history(tmp_path / "run", method=method, epochs=5, prompts=24)
    (own,) = [cell for cell in grid_of(run, judge).cells if cell.is_own]
    assert (criteria_name(own.criteria), own.slope_threshold, own.warmup_epochs) == (
        "slope+consistency",
        Decimal("0.05"),
        2,
    )
    assert own.selected == scan_labels(run).select(pl.col("is_selected").sum()).collect().item() > 0
    plain = write_history(tmp_path / "plain", method={"name": "grpo"}, epochs=5, prompts=24)
    assert not any(cell.is_own for cell in grid_of(plain, judge).cells)
    elsewhere = grid_of(run, judge, Grid((Decimal("0.05"),), (1,), SETS))
    assert "not in the grid" in next(grid_text.sentences(elsewhere, has_own=True))


def cell(selected, right, known=None):
    return Cell(
        ("slope",), Decimal(0), 0, 20, 0, selected, selected if known is None else known, right, 0, 0, 0
    )


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()).map(
            lambda x: cell(x[0], min(x[0], x[1]), None if x[2] else 0)
        ),
        max_size=12,
    )
)
def test_the_front_is_what_brute_force_finds(cells):
    def beats(other, one):
        as_good = other.selected >= one.selected and other.accuracy >= one.accuracy
        return as_good and (other.selected > one.selected or other.accuracy > one.accuracy)

    valued = [x for x in cells if x.accuracy is not None]
    expected = [x.accuracy is not None and not any(beats(other, x) for other in valued) for x in cells]
    assert front(cells) == expected


def settings(rows, *options, own=None, base=None):
    return grid_settings.resolve(grid_settings.parse(options), rows, base or OlrMethod(), own)


def visits(last, slope=0.3):
    return pl.DataFrame({"visit": list(range(1, last + 1)), "slope": [0.0, *[slope] * (last - 1)]})


def test_keys_outside_the_grid_stay_where_the_recipe_has_them():
    grid = settings(visits(9), "method.slope_threshold=0.1, 0,0.10", base=OlrMethod(warmup_epochs=3))
    assert grid == Grid((Decimal(0), Decimal("0.1")), (3,), (("slope", "consistency"),))


def test_the_default_grid_comes_from_the_history():
    own = OlrMethod(slope_threshold=Decimal("0.07"), warmup_epochs=2)
    grid = settings(visits(4), "default", own=own)
    assert list(map(str, grid.slope_thresholds)) == ["0", "0.05", "0.07", "0.1", "0.15", "0.2", "0.25", "0.3"]
    assert grid.warmups == (0, 1, 2, 3)
    assert grid.criteria == (("slope", "consistency"), ("consistency",), ("slope",))
    assert settings(visits(101), "default").warmups == (0, 20, 40, 60, 80, 100)
    flat = settings(visits(1), "default")
    assert (flat.slope_thresholds, flat.warmups) == ((Decimal(0),), (0,))
    some = settings(visits(4), "default", "method.warmup_epochs=1", "method.criteria=slope,none")
    assert (some.warmups, some.criteria) == ((1,), (("slope",), ()))
    assert len(some.slope_thresholds) > 3


@pytest.mark.parametrize(("top", "size"), list(product([1e-7, 0.0013, 0.02, 0.99, 1.0], [2, 30])))
def test_suggested_thresholds_are_round_few_and_within_reach(top, size):
    thresholds = settings(
        visits(size, top), "method.slope_threshold", "method.warmup_epochs=0"
    ).slope_thresholds
    assert 2 <= len(thresholds) <= 8
    assert all(float(value) <= top for value in thresholds[:-1])
    assert all(len(value.as_tuple().digits) <= 2 for value in thresholds)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("method.slope_treshold=0", "did you mean 'method.slope_threshold'"),
        ("defautl", "no key of a grid"),
        ("default=3", "no key of a grid"),
        ("train.epochs=3", "a grid has method.slope_threshold, method.warmup_epochs, method.criteria"),
        ("method.slope_threshold=0,low", "'low' is not a number"),
        ("method.slope_threshold=0,,1", "'' is not a number"),
        ("method.slope_threshold=nan", "'nan' is not a number"),
        ("method.warmup_epochs=1.5", "'1.5' is not a whole number"),
        ("method.warmup_epochs=-1", "'-1' is not a whole number"),
        ("method.warmup_epochs=3,4", "method.warmup_epochs 4 leaves none of the history's 4 visits"),
        ("method.criteria=slopes", "'slopes' is no set of criteria"),
        ("method.criteria=slope+slope", "'slope+slope' is no set of criteria"),
        (f"method.slope_threshold={','.join(map(str, range(3001)))}", "the grid has 3,001 cells"),
    ],
)
def test_what_is_no_grid_is_one_sentence(option, message):
    with pytest.raises(UserError) as error:
        settings(visits(4), option, base=OlrMethod(warmup_epochs=0))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_key_has_its_values_once():
    with pytest.raises(UserError, match="comes twice"):
        grid_settings.parse(["method.warmup_epochs=1", "method.warmup_epochs=2"])
    with pytest.raises(UserError, match="the grid goes through values of that"):
        grid_settings.parse(["method.warmup_epochs=1"], ["method.warmup_epochs=2"])
    assert grid_settings.parse(["method.warmup_epochs=1"], ["method.slope_threshold=2"])


def test_the_heat_maps_csv_has_every_cell_as_counted(run, judge, tmp_path):
    made = report(
        run,
        ["method.slope_threshold=0,0.05", "method.criteria=slope,consistency"],
        ["method.warmup_epochs=1"],
        tmp_path,
    )
    assert sorted(file.suffix for file in made.written) == [".csv", ".pdf", ".png"]
    assert all(file.parent == tmp_path and file.stat().st_size for file in made.written)
    rows = pl.read_csv(next(file for file in made.written if file.suffix == ".csv"), infer_schema_length=None)
    assert list(rows["criteria"]) == ["slope", "slope", "consistency"]
    assert list(rows["slope_threshold"]) == [0, 0.05, None]
    for row, one in zip(rows.iter_rows(named=True), made.result.cells, strict=True):
        assert (row["selected"], row["right"], row["on_front"]) == (one.selected, one.right, one.on_front)
        assert row["accuracy"] == pytest.approx(one.accuracy, abs=1e-6)
        assert row["coverage"] == pytest.approx(one.selected / one.visits, abs=1e-6)
        assert row["repair"] == pytest.approx(one.repaired / one.marked, abs=1e-6)


def test_figures_of_other_settings_have_other_names_and_equal_ones_the_same_bytes(run, tmp_path):
    def written(*grid):
        return report(run, grid, ["method.warmup_epochs=1"], tmp_path).written

    first = written("method.slope_threshold=0")
    before = [file.read_bytes() for file in first]
    assert written("method.slope_threshold=0.0") != written("method.slope_threshold=0.1")
    assert written("method.slope_threshold=0") == first
    assert [file.read_bytes() for file in first] == before


def test_maps_of_several_runs_lie_side_by_side_in_one_folder(tmp_path):
    runs = [write_history(tmp_path / place / "active-0.5", prompts=6, epochs=2) for place in ("a", "b")]
    made = [report(run, ["default"], out=tmp_path / "maps").written for run in runs]
    assert len({file for files in made for file in files}) == 6
    assert all(file.name.startswith("active-0.5-grid-") for files in made for file in files)


def test_the_table_fits_eighty_columns_and_has_every_warm_up_once_a_block(tmp_path, judge):
    run = write_history(tmp_path / "run", prompts=24, epochs=13, method={"name": "olr", "warmup_epochs": 3})
    warmups = tuple(range(13))
    result = grid_of(run, judge, Grid((Decimal("0.05"), Decimal("0.0625")), warmups, SETS))
    _, *blocks = "\n".join(grid_text.lines(result)).split("\n\n")
    assert len(blocks) == 4
    for block in blocks:
        heads = [line.split() for line in block.splitlines()[1:] if not set(line) - set("0123456789 ")]
        assert [int(head) for line in heads for head in line] == list(warmups)
        assert max(map(len, block.splitlines())) <= 80
    assert "\n".join(blocks).count("[") == 1, "the run's own setting"
    assert "\n".join(blocks).count("*") == sum(cell.on_front for cell in result.cells)


@pytest.mark.parametrize(
    ("right", "shown"),
    [(0, "0/100"), (1, "<0.1/100"), (2_500, "12.5/100"), (19_999, ">99.9/100"), (20_000, "100/100")],
)
def test_what_is_not_all_or_nothing_does_not_read_so(right, shown):
    one = replace(cell(20_000, right), visits=20_000)
    result = GridResult([one], knows_truth=True, knows_labels=False)
    assert list(grid_text.lines(result))[-1].split() == ["0", shown]


def test_a_long_front_is_told_by_its_ends_and_a_short_one_by_its_cells():
    def told(cells):
        flagged = [replace(x, on_front=flag) for x, flag in zip(cells, front(cells), strict=True)]
        return " ".join(grid_text.sentences(GridResult(flagged, True, False), has_own=False))

    assert (
        "3 of 4 cells, equal ones named once: slope delta 0 T 0 (4 of 4 right, 20.0 % selected); slope"
        in told([cell(4, 4), cell(4, 4), cell(8, 6), cell(7, 4)])
    )
    long = told([cell(selected, 10 - selected, 10) for selected in range(1, 9)])
    assert "8 of 8 cells, from slope delta 0 T 0 (9 of 10 right, 5.0 % selected) to slope" in long
    assert "so there is no Pareto front" in told([cell(0, 0)])
