"""Every cell of a grid is what a full replay under its setting decides; what is not known is not a number."""

from decimal import Decimal

import polars as pl
import pytest
from histories import replayed, write_history

from olr_cli.analysis.histories import read_history
from olr_cli.analysis.replay.grid import (
    CRITERIA,
    THRESHOLD,
    WARMUP,
    complete,
    count,
    evidence,
    grid_answer,
    parse,
    shown_shares,
    table,
    trained_setting,
)
from olr_cli.data.prompts import SENTINEL
from olr_cli.errors import UserError
from olr_cli.recipe.schema import OlrMethod
from olr_cli.runs.store import scan_labels, scan_rollouts

SETS = (("slope", "consistency"), ("consistency",), ("slope",), ())
# With K = 5, 0.05 and 0.2 are slopes that occur: a majority that does not exceed the threshold is not selected.
GRID = {THRESHOLD: list(map(Decimal, ("-0.1", "0", "0.05", "0.2"))), WARMUP: [0, 2, 4], CRITERIA: SETS}


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
    cells = grid_of(run, judge)
    sizes = dict.fromkeys(("slope+consistency", "slope"), 12) | dict.fromkeys(("consistency", "none"), 3)
    assert dict(cells.group_by("criteria").len().iter_rows()) == sizes
    for cell in cells.iter_rows(named=True):
        expected = counts_of(run, judge, cell)
        assert {name: cell[name] for name in expected} == expected, cell
    assert cells["selected"].n_unique() > 10
    assert any(0 < x["repaired"] < x["right"] < x["selected"] for x in cells.iter_rows(named=True))


def test_a_bare_table_of_the_same_rollouts_gives_the_same_cells(run, judge, tmp_path):
    file = as_table(run, tmp_path / "log.parquet", "given_label", "true_answer", "noise_type")
    assert grid_of(file, judge).equals(grid_of(run, judge))


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


def test_without_the_truth_agreement_stands_in_for_accuracy_and_without_labels_there_is_coverage(
    run, judge, tmp_path
):
    known, labelled = (
        grid_of(run, judge),
        grid_of(as_table(run, tmp_path / "log.parquet", "given_label"), judge),
    )
    assert shown_shares(known) == ["accuracy", "coverage", "repair"]
    assert shown_shares(labelled) == ["agreement", "coverage"]
    same = ["coverage", "agreement"]
    assert labelled.select(same).equals(known.select(same))
    assert shown_shares(grid_of(as_table(run, tmp_path / "bare.parquet"), judge)) == ["coverage"]


def test_a_run_still_being_written_is_counted_as_far_as_it_is(tmp_path, judge):
    run = write_history(tmp_path / "run", prompts=24, epochs=5, prompts_per_step=12, steps=7)
    assert set(grid_of(run, judge)["visits"]) == {84}


def test_the_runs_own_setting_is_marked_and_its_cell_is_what_the_run_did(tmp_path, judge):
    method = {"name": "olr", "slope_threshold": 0.05, "warmup_epochs": 2}
    run = write_history(tmp_path / "run", method=method, epochs=5, prompts=24)
    cells = grid_of(run, judge)
    (cell,) = cells.filter("is_own").to_dicts()
    settings = (cell["criteria"], cell["slope_threshold"], cell["warmup_epochs"])
    assert settings == ("slope+consistency", "0.05", 2)
    assert cell["selected"] == scan_labels(run).select(pl.col("is_selected").sum()).collect().item() > 0
    texts = [str(text) for block in table(cells).blocks for row in block.rows for text in row.cells]
    assert sum(text.startswith("[") for text in texts) == len(shown_shares(cells))
    plain = write_history(tmp_path / "plain", method={"name": "grpo"}, epochs=5, prompts=24)
    assert not grid_of(plain, judge)["is_own"].any()
    elsewhere = grid_answer(run, ["method.warmup_epochs=1"], out=tmp_path / "maps")
    assert "The setting the run was trained under is not in the grid." in elsewhere.data["notes"]


def settings(*options, visits=4, base=None):
    return complete(parse(options), base or OlrMethod(), visits, is_default="default" in options)


def test_keys_that_are_not_named_stay_where_the_recipe_has_them():
    grid = settings("method.slope_threshold=0.1, 0,0.10", base=OlrMethod(warmup_epochs=3))
    assert list(grid.values()) == [[Decimal(0), Decimal("0.1")], [3], [("slope", "consistency")]]


def test_the_default_has_the_recipes_own_setting_too_and_no_warmup_longer_than_the_history():
    own = OlrMethod(slope_threshold=Decimal("0.07"), warmup_epochs=2)
    grid = settings("default", base=own)
    assert list(map(str, grid[THRESHOLD])) == ["0", "0.02", "0.05", "0.07", "0.1", "0.2"]
    assert grid[WARMUP] == [0, 1, 2, 3]
    assert grid[CRITERIA] == [("slope", "consistency"), ("consistency",), ("slope",)]
    assert settings("default", visits=1)[WARMUP] == [0]
    some = settings("default", "method.warmup_epochs=1", "method.criteria=slope,none")
    assert (some[WARMUP], some[CRITERIA]) == ([1], [("slope",), ()])
    assert len(some[THRESHOLD]) > 3


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("method.slope_treshold=0", "did you mean 'method.slope_threshold'"),
        ("defautl", "did you mean 'default'"),
        ("train.epochs=3", "known: method.slope_threshold, method.warmup_epochs, method.criteria, default"),
        (
            "method.slope_threshold=0,low",
            "'low' is no value of that; write for example method.slope_threshold=0,",
        ),
        ("method.slope_threshold=nan", "'nan' is no value"),
        ("method.warmup_epochs=1.5", "'1.5' is no value"),
        ("method.warmup_epochs=-1", "'-1' is no value"),
        ("method.criteria=slope+slope", "'slope+slope' is no value"),
        ("method.slope_threshold", "'' is no value"),
    ],
)
def test_what_is_no_grid_is_one_sentence(option, message):
    with pytest.raises(UserError) as error:
        settings(option, base=OlrMethod(warmup_epochs=0))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_values_of_a_key_come_from_all_its_options_and_from_none_of_the_settings():
    assert parse(["method.warmup_epochs=2,1", "method.warmup_epochs=1"]) == {WARMUP: [1, 2]}
    with pytest.raises(UserError, match="the grid goes through values of that"):
        parse(["method.warmup_epochs=1"], ["method.warmup_epochs=2"])


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


def test_a_share_of_few_visits_has_no_colour(run, judge):
    from olr_cli.analysis.replay.grid_map import chart

    cells = grid_of(run, judge, {THRESHOLD: [Decimal("0")], WARMUP: [0, 2], CRITERIA: SETS[:1]})
    few = cells.with_columns(known=pl.Series([20, 19]), accuracy=pl.Series([0.5, 0.75]))
    panel = next(axes for axes in chart(few, "map").figure.axes if "Accuracy" in axes.get_title("left"))
    assert panel.images[0].get_array().mask.tolist() == [[False, True]]
    assert [text.get_text() for text in panel.texts] == ["50", "75"]
    assert "no colour: of fewer than 20 visits" in panel.figure.get_supxlabel()


def test_figures_of_other_settings_have_other_names_and_equal_ones_the_same_bytes(tmp_path):
    run = write_history(tmp_path / "run", prompts=6, epochs=2)

    def files(threshold):
        return written(run, [f"method.slope_threshold={threshold}"], ["method.warmup_epochs=1"], out=tmp_path)

    first = files("0")
    before = [file.read_bytes() for file in first.values()]
    assert files("0.1") != first
    assert files("0") == first
    assert [file.read_bytes() for file in first.values()] == before


def test_maps_of_several_runs_lie_side_by_side_in_one_folder_wherever_the_runs_are(tmp_path):
    for seed, place in enumerate("ab"):
        run = tmp_path / place / f"active-0.{seed}"
        write_history(run, prompts=6, epochs=2, seed=seed)
        image = written(run, ["method.warmup_epochs=1"], out=tmp_path / "maps")["png"]
        assert image.name.startswith(f"{run.name}-grid-")
    (tmp_path / "a").rename(tmp_path / "moved")
    written(tmp_path / "moved" / "active-0.0", ["method.warmup_epochs=1"], out=tmp_path / "maps")
    assert len(list((tmp_path / "maps").iterdir())) == 6
