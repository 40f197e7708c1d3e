"""Every cell of a grid is what a full replay under its setting decides; what is not known is not a number."""

from decimal import Decimal
from itertools import product

import polars as pl
import pytest
from histories import replayed, write_history
from hypothesis import given
from hypothesis import strategies as st

from olr_cli.analysis.histories import read_history
from olr_cli.analysis.replay.grid import (
    Grid,
    GridResult,
    count,
    evidence,
    front,
    parse,
    resolve,
    trained_setting,
)
from olr_cli.analysis.replay.grid_answer import grid_answer, sentences, table
from olr_cli.data.prompts import SENTINEL
from olr_cli.errors import UserError
from olr_cli.recipe.schema import OlrMethod
from olr_cli.runs.store import scan_labels, scan_rollouts

SETS = (("slope", "consistency"), ("consistency",), ("slope",), ())
# With K = 5, 0.05 and 0.2 are slopes that occur: a majority that does not exceed the threshold is not selected.
GRID = Grid(tuple(map(Decimal, ("-0.1", "0", "0.05", "0.2"))), (0, 2, 4), SETS)


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
    return count(evidence(history, judge), grid, trained_setting(history))


def counts_of(source, judge, cell):
    """The counts of a cell from the records of a full replay under its setting."""
    criteria = "" if cell["criteria"] == "none" else cell["criteria"].replace("+", ",")
    settings = [
        f"method.criteria=[{criteria}]",
        f"method.warmup_epochs={cell['warmup_epochs']}",
        f"method.slope_threshold={cell['slope_threshold'] or 0}",
    ]
    labels = replayed(read_history(source, settings), judge)
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
    cells = grid_of(run, judge).cells
    sizes = dict.fromkeys(("slope+consistency", "slope"), 12) | dict.fromkeys(("consistency", "none"), 3)
    assert dict(cells.group_by("criteria").len().iter_rows()) == sizes
    for cell in cells.iter_rows(named=True):
        expected = counts_of(run, judge, cell)
        assert {name: cell[name] for name in expected} == expected, cell
    assert cells["selected"].n_unique() > 10
    assert any(0 < x["repaired"] < x["right"] < x["selected"] for x in cells.iter_rows(named=True))


def test_a_bare_table_of_the_same_rollouts_gives_the_same_cells(run, judge, tmp_path):
    file = as_table(run, tmp_path / "log.parquet", "given_label", "true_answer", "noise_type")
    assert grid_of(file, judge).cells.equals(grid_of(run, judge).cells)


def test_a_replay_for_a_grid_needs_no_statistics_of_a_choice_of_prompts(run, judge, tmp_path):
    file = as_table(run, tmp_path / "log.parquet", "given_label")
    history = read_history(file, ["method.prompts=small_loss"])
    assert evidence(history, judge).equals(evidence(read_history(file), judge))


def test_answers_that_are_read_anew_are_replayed(run, judge):
    history = read_history(run, ["data.extractor=text"])
    anew, stored = evidence(history, judge), evidence(read_history(run), judge)
    # "I give up" is an answer then, and has votes that it does not have in the run.
    assert len(anew) == len(stored) and not anew.equals(stored)
    labels = replayed(read_history(run, ["data.extractor=text"]), judge)
    assert list(anew["majority_count"]) == [label.majority_count for label in labels]
    assert list(anew["slope"]) == [label.slope for label in labels]


def test_without_the_truth_there_is_coverage_and_agreement_and_no_front(run, judge, tmp_path):
    known, result = (
        grid_of(run, judge),
        grid_of(as_table(run, tmp_path / "log.parquet", "given_label"), judge),
    )
    assert (known.shares, result.shares) == (("accuracy", "coverage", "repair"), ("agreement", "coverage"))
    assert result.cells["accuracy"].is_null().all() and result.cells["repair"].is_null().all()
    same = ["coverage", "agreement"]
    assert result.cells.select(same).equals(known.cells.select(same))
    assert not result.cells["on_front"].any()
    assert "No true answer is known, so nothing is said of accuracy" in " ".join(
        sentences(result, has_own=False)
    )


def test_without_any_label_there_is_coverage_alone(run, judge, tmp_path):
    result = grid_of(as_table(run, tmp_path / "bare.parquet"), judge)
    assert result.shares == ("coverage",)
    assert result.cells["agreement"].is_null().all()


def test_a_run_still_being_written_is_counted_as_far_as_it_is(tmp_path, judge):
    run = write_history(tmp_path / "run", prompts=24, epochs=5, prompts_per_step=12, steps=7)
    assert set(grid_of(run, judge).cells["visits"]) == {84}


def test_the_runs_own_setting_is_marked_and_its_cell_is_what_the_run_did(tmp_path, judge):
    method = {"name": "olr", "slope_threshold": 0.05, "warmup_epochs": 2}
    run = write_history(tmp_path / "run", method=method, epochs=5, prompts=24)
    result = grid_of(run, judge)
    (cell,) = result.cells.filter("is_own").to_dicts()
    settings = (cell["criteria"], cell["slope_threshold"], cell["warmup_epochs"])
    assert settings == ("slope+consistency", "0.05", 2)
    assert cell["selected"] == scan_labels(run).select(pl.col("is_selected").sum()).collect().item() > 0
    texts = [str(text) for block in table(result).blocks for row in block.rows for text in row.cells]
    assert sum(text.startswith(("[", "*[")) for text in texts) == len(result.shares)
    assert sum(text.startswith("*") for text in texts) == result.cells["on_front"].sum() * len(result.shares)
    plain = write_history(tmp_path / "plain", method={"name": "grpo"}, epochs=5, prompts=24)
    assert not grid_of(plain, judge).cells["is_own"].any()
    elsewhere = grid_of(run, judge, Grid((Decimal("0.05"),), (1,), SETS))
    assert "not in the grid" in next(sentences(elsewhere, has_own=True))


@given(st.lists(st.tuples(st.integers(0, 9), st.none() | st.sampled_from([0.0, 0.5, 1.0])), max_size=12))
def test_the_front_is_what_brute_force_finds(cells):
    def beats(other, cell):
        return other != cell and other[0] >= cell[0] and other[1] >= cell[1]

    valued = [cell for cell in cells if cell[1] is not None]
    expected = [cell[1] is not None and not any(beats(other, cell) for other in valued) for cell in cells]
    selected = pl.Series([cell[0] for cell in cells], dtype=pl.Int64)
    accuracy = pl.Series([cell[1] for cell in cells], dtype=pl.Float64)
    assert front(selected, accuracy).to_list() == expected


def settings(rows, *options, own=None, base=None):
    return resolve(parse(options), rows, base or OlrMethod(), own)


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
    grid = settings(visits(size, top), "method.slope_threshold", "method.warmup_epochs=0")
    assert 2 <= len(grid.slope_thresholds) <= 8
    assert all(float(value) <= top for value in grid.slope_thresholds[:-1])
    assert all(len(value.as_tuple().digits) <= 2 for value in grid.slope_thresholds)


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
        parse(["method.warmup_epochs=1", "method.warmup_epochs=2"])
    with pytest.raises(UserError, match="the grid goes through values of that"):
        parse(["method.warmup_epochs=1"], ["method.warmup_epochs=2"])
    assert parse(["method.warmup_epochs=1"], ["method.slope_threshold=2"])


def written(*arguments, **options):
    """The files of a grid's heat map, by ending."""
    image = grid_answer(*arguments, **options).files[0].path
    return {end: image.with_suffix(f".{end}") for end in ("png", "pdf", "csv")}


def test_the_heat_maps_csv_has_every_cell_as_counted(run, tmp_path):
    options = ["method.slope_threshold=0,0.05", "method.criteria=slope,consistency"]
    answer = grid_answer(run, options, ["method.warmup_epochs=1"], tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(map(type(tmp_path), answer.data["written"]))
    rows = pl.read_csv(answer.files[0].path.with_suffix(".csv"), infer_schema_length=None).to_dicts()
    settings = [(row["criteria"], row["slope_threshold"]) for row in rows]
    assert settings == [("slope", 0), ("slope", 0.05), ("consistency", None)]
    for row, cell in zip(rows, answer.data["cells"], strict=True):
        assert row == {name: pytest.approx(value, abs=1e-6) for name, value in cell.items()}


def test_figures_of_other_settings_have_other_names_and_equal_ones_the_same_bytes(run, tmp_path):
    def files(threshold):
        return written(run, [f"method.slope_threshold={threshold}"], ["method.warmup_epochs=1"], tmp_path)

    first = files("0")
    before = [file.read_bytes() for file in first.values()]
    assert files("0.0") != files("0.1")
    assert files("0") == first
    assert [file.read_bytes() for file in first.values()] == before


def test_maps_of_several_runs_lie_side_by_side_in_one_folder_wherever_the_runs_are(tmp_path):
    for seed, place in enumerate("aab"):
        run = tmp_path / place / f"active-0.{seed}"
        write_history(run, prompts=6, epochs=2, seed=seed)
        assert written(run, ["default"], out=tmp_path / "maps")["png"].name.startswith(f"{run.name}-grid-")
    assert len(list((tmp_path / "maps").iterdir())) == 9
    (tmp_path / "a").rename(tmp_path / "moved")
    written(tmp_path / "moved" / "active-0.0", ["default"], out=tmp_path / "maps")
    assert len(list((tmp_path / "maps").iterdir())) == 9


def test_a_long_front_is_named_by_its_ends_and_a_short_one_by_its_cells():
    def said(*cells):
        frame = pl.DataFrame(cells, schema=["selected", "right", "known"], orient="row").with_columns(
            criteria=pl.lit("slope"),
            slope_threshold=pl.lit("0"),
            warmup_epochs=0,
            coverage=pl.col("selected") / 20,
            is_own=False,
            on_front=front(pl.Series([c[0] for c in cells]), pl.Series([c[1] / c[2] if c[2] else None for c in cells])),
        )  # fmt: skip
        return " ".join(sentences(GridResult(frame, ("accuracy", "coverage")), has_own=False))

    assert (
        "3 of 4 cells, equal ones named once: slope delta 0 T 0 (4 of 4 right, 20.0% selected); slope"
        in said((4, 4, 4), (4, 4, 4), (8, 6, 8), (7, 4, 7))
    )
    long = said(*((selected, 10 - selected, 10) for selected in range(1, 9)))
    assert "8 of 8 cells, from slope delta 0 T 0 (9 of 10 right, 5.0% selected) to slope" in long
    assert "so there is no Pareto front" in said((0, 0, 0))
