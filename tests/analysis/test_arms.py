"""Runs are found, grouped into arms by their recipes, and averaged over seeds."""

import json
import statistics
from dataclasses import replace
from decimal import Decimal

import pytest
from cases import each, refusal
from histories import arms_of, write_history
from polars.testing import assert_frame_equal

from olr_cli.analysis.arms import find_runs, grpo_beside, vary
from olr_cli.analysis.frame import spreads
from olr_cli.errors import UserError
from olr_cli.runs import store
from olr_cli.runs.store import scan_labels
from olr_cli.supervision.metrics import by_visit

SMALL = {"prompts": 12, "prompts_per_step": 6, "epochs": 4, "store_rollouts": False}
OLR = {"name": "olr", "slope_threshold": 0.02, "warmup_epochs": 1}
GRPO = {"name": "grpo"}


def write(path, **changes):
    return write_history(path, **{**SMALL, **changes})


def names_of(*places):
    return [arm.name for arm in arms_of(*places)]


# Arms and their names -------------------------------------------------------------------------------------------------


@each(
    "verifier, name",
    (
        {"false_negative_rate": 0.3, "false_positive_rate": 0.1},
        "active 0.5, verifier FN 0.3 FP 0.1 olr",
    ),
    (
        {"false_positive_rate": 0.1, "draw": "answer"},
        "active 0.5, verifier FP 0.1 by answer olr",
    ),
    (
        {"where": [{"error": [10], "false_positive_rate": 1}]},
        "active 0.5, verifier rule on error olr",
    ),
    ({}, "active 0.5 olr"),
)
def test_an_arm_is_named_by_its_verifiers_errors_too(tmp_path, verifier, name):
    write(tmp_path / "run", verifier=verifier)
    assert names_of(tmp_path) == [name]


def test_runs_that_differ_only_in_name_and_seed_are_one_arm(tmp_path):
    for seed in (2, 0, 1):
        write(tmp_path / f"any-name-{seed}", seed=seed)
    (arm,) = arms_of(tmp_path)
    assert [run.seed for run in arm.runs] == [0, 1, 2]
    assert arm.name == "active 0.5 olr"


def test_settings_that_do_not_change_a_result_do_not_split_an_arm_and_others_name_it(
    tmp_path,
):
    write(tmp_path / "one", seed=1)
    recipe = write(tmp_path / "two", seed=2) / "recipe.yaml"
    changed = recipe.read_text().replace("tensorboard: false", "tensorboard: true")
    changed = changed.replace("device: auto", "device: cpu")
    recipe.write_text(changed)
    assert len(arms_of(tmp_path)) == 1
    recipe.write_text(changed.replace("temperature: 1.0", "temperature: 0.9"))
    assert names_of(tmp_path) == [
        f"active 0.5 olr temperature={value}" for value in (1.0, 0.9)
    ]
    named = changed.replace("data:\n", "data:\n  columns: {question: Q, answer: A}\n")
    recipe.write_text(named)
    by_columns = ["answer=unset question=unset", "answer=A question=Q"]
    assert names_of(tmp_path) == [f"active 0.5 olr {columns}" for columns in by_columns]
    # Which says enough
    recipe.write_text(named.replace("temperature: 1.0", "temperature: 0.9"))
    assert names_of(tmp_path) == [
        f"active 0.5 olr temperature={value}" for value in (1.0, 0.9)
    ]


def test_arms_are_named_by_noise_and_method_or_by_their_sweep_in_the_order_given(tmp_path):
    places = [
        write(tmp_path / "b", noise="inactive", method=OLR),
        write(tmp_path / "a", noise="active", ratio=0.25, method=GRPO),
        write(tmp_path / "c", noise=None, method=GRPO),
        write(tmp_path / "d", method={**OLR, "criteria": ["consistency"]}),
        write(tmp_path / "x", arm="harder_olr"),
        write(tmp_path / "y", arm="harder_olr", seed=1),
    ]
    names = [
        "inactive 0.5 olr",
        "active 0.25 grpo",
        "grpo",
        "active 0.5 olr_without_slope",
        "harder_olr",
    ]
    assert names_of(*places) == names


def test_an_arm_trained_on_a_marked_file_is_named_after_its_marks(tmp_path):
    (run,) = find_runs([write_history(tmp_path / "run", noise="inactive")])
    assert (
        replace(run, recipe=run.recipe.model_copy(update={"noise": None})).noise
        == "inactive 0.5"
    )


def varied(folder, key="method.slope_threshold"):
    return vary(arms_of(folder), key)


def test_arms_that_differ_in_one_key_alone_stand_in_the_order_of_its_values(tmp_path):
    for ratio in (0.25, 0.5):
        for threshold in (0.1, 0.02):
            method = {**OLR, "slope_threshold": threshold}
            write(tmp_path / f"{ratio}-{threshold}", method=method, ratio=ratio)
        write(tmp_path / f"{ratio}-grpo", method=GRPO, ratio=ratio)
    write(tmp_path / "penalised", method={**OLR, "penalty_weight": 0.1})
    write(tmp_path / "clean", method=OLR, noise=None)
    by_threshold, by_ratio = varied(tmp_path), varied(tmp_path, "noise.ratio")
    assert [list(each.arms) for each in by_threshold] == [
        [Decimal("0.02"), Decimal("0.1")]
    ] * 2
    assert [list(each.arms) for each in by_ratio] == [[Decimal("0.25"), Decimal("0.5")]] * 3
    assert by_threshold[0].first.name == "active 0.25 olr slope_threshold=0.02"
    shared = by_threshold[0].settings("noise.")
    assert "method.warmup_epochs" in shared
    assert not {"method.slope_threshold", "noise.ratio"} & shared.keys()


def test_grpo_beside_an_arm_is_trained_on_the_same_data_without_additions(tmp_path):
    write(tmp_path / "olr", method=OLR)
    write(tmp_path / "other-noise", method=GRPO, noise="inactive")
    write(tmp_path / "penalised", method={**GRPO, "penalty_weight": 0.1})
    arms = arms_of(tmp_path)
    (olr,) = (arm for arm in arms if arm.olr)
    assert grpo_beside(olr, arms) is None
    write(tmp_path / "grpo", method=GRPO)
    assert grpo_beside(olr, arms_of(tmp_path)).name == "active 0.5 grpo"


# Finding runs ---------------------------------------------------------------------------------------------------------


def test_the_runs_of_a_folder_come_once_each_in_the_order_in_which_they_were_made(tmp_path):
    for number, name in enumerate(["c", "a", "b"]):
        file = write(tmp_path / "deep" / name, arm=name) / "manifest.json"
        made = {"created": f"2026-01-0{number + 1}T00:00:00+00:00"}
        file.write_text(json.dumps(json.loads(file.read_text()) | made))
    found = find_runs(
        [tmp_path, tmp_path / "deep" / "a", tmp_path / "deep" / ".." / "deep" / "b"]
    )
    assert [run.path.name for run in found] == ["c", "a", "b"]


def test_what_is_no_run_and_two_runs_of_one_seed_are_refused(tmp_path):
    run, figures, others = (
        write(tmp_path / "run"),
        tmp_path / "figures",
        tmp_path / "others",
    )
    figures.mkdir()
    others.mkdir()
    assert [found.path for found in find_runs([figures, run])] == [run], (
        "folders that olr makes are no runs"
    )
    for places in ([figures], [run, others]):
        assert "is not a run directory" in refusal(find_runs, places)
    (others / "manifest.json").write_text("{}")
    assert "is not a run directory" in refusal(find_runs, [others])
    assert "nowhere does not exist" in refusal(find_runs, [tmp_path / "nowhere"])
    again = write(tmp_path / "two")
    with pytest.raises(
        UserError, match=r"run and .*two are both seed 0 of arm 'active 0.5 olr'"
    ):
        arms_of(run, again)


# Epochs and values ----------------------------------------------------------------------------------------------------


def test_mean_and_spread_are_over_runs_that_have_a_value(tmp_path):
    runs = [write(tmp_path / str(seed), seed=seed, method=OLR) for seed in (1, 2, 3)]
    (arm,) = arms_of(tmp_path)
    rows = spreads(arm.frame())
    assert set(rows["arm"]) == {"active 0.5 olr"}
    tables = [by_visit(scan_labels(run)) for run in runs]
    for row in rows.iter_rows(named=True):
        values = [table[row["metric"]][row["epoch"] - 1] for table in tables]
        known = [value for value in values if value is not None]
        assert row["runs"] == len(known)
        assert row["mean"] == pytest.approx(statistics.fmean(known))
        assert row["sd"] == (
            pytest.approx(statistics.stdev(known)) if len(known) > 1 else None
        )
    first = rows.filter(metric="majority/accuracy_selected")["epoch"].min()
    assert first == 2, "nothing is selected in warm-up, so there is no row"


def test_the_epochs_of_a_metric_ascend_where_only_some_runs_have_a_value(tmp_path):
    for seed in (1, 2, 3):
        write(tmp_path / str(seed), seed=seed, method={**OLR, "slope_threshold": 0.2})
    (arm,) = arms_of(tmp_path)
    for _, rows in spreads(arm.frame()).group_by("metric"):
        assert rows["epoch"].is_sorted()


@pytest.mark.parametrize("shards", [1, 16, 2000])
def test_runs_keep_their_epochs_however_many_are_read_at_once(
    tmp_path, monkeypatch, shards
):
    monkeypatch.setattr(store, "_SHARDS_OF_A_SCAN", shards)
    for seed, steps in enumerate((8, 5, 8)):
        write(tmp_path / f"run-{seed}", seed=seed, steps=steps)
    (arm,) = arms_of(tmp_path)
    epochs = zip(arm.runs, (4, 2, 4), strict=True)
    alone = [by_visit(scan_labels(run.path)).head(number) for run, number in epochs]
    for together, rows in zip(arm.by_epoch(), alone, strict=True):
        assert_frame_equal(together.select(rows.columns), rows)


def test_arms_that_are_counted_together_have_the_epochs_of_each_alone(tmp_path):
    methods = (
        OLR,
        {**OLR, "slope_threshold": 0.1},
        {**OLR, "slope_threshold": "0.100001"},
        {**OLR, "warmup_epochs": 2},
        GRPO,
    )
    for number, method in enumerate(methods):
        for seed in (1, 2):
            write(tmp_path / f"{number}-{seed}", seed=seed, method=method)
    arms = arms_of(tmp_path)
    assert len(arms) == len(methods)
    for arm in arms:
        (alone,) = arms_of(*(run.path for run in arm.runs))
        for together, rows in zip(arm.by_epoch(), alone.by_epoch(), strict=True):
            assert_frame_equal(together, rows)


@each(
    "steps, epochs, note",
    (1, 1, None),
    (5, 2, "has gone through 2 of 4 epochs; epoch 3 is under way and left out."),
    (8, 4, None),
)
def test_an_epoch_under_way_is_left_out_and_said_unless_it_is_the_first(
    tmp_path, steps, epochs, note
):
    run = write(tmp_path / "run", steps=steps)
    (arm,) = arms_of(tmp_path)
    assert (arm.epochs, spreads(arm.frame())["epoch"].max()) == (epochs, epochs)
    if note is not None:
        assert arm.notes() == [f"{run} {note}"]


def test_runs_of_different_length_are_averaged_over_the_epochs_that_all_have(tmp_path):
    write(tmp_path / "long", seed=1)
    write(tmp_path / "short", seed=2, steps=6)
    (arm,) = arms_of(tmp_path)
    assert spreads(arm.frame())["epoch"].max() == 3
    assert arm.notes()[-1] == (
        "Figures by epoch show arm 'active 0.5 olr' up to epoch 3, which all its runs have finished; tables and the"
        " figure arms take the last epoch of each run."
    )


def test_the_last_logged_value_is_one_since_training_began(tmp_path):
    (run,) = find_runs([write(tmp_path / "run")])
    file = run.path / "metrics.jsonl"
    assert (
        run.last_logged("eval/avg")
        == json.loads(file.read_text().splitlines()[-1])["eval/avg"]
    )
    assert run.last_logged("eval/unheard_of") is None
    file.write_text('{"step": 0, "epoch": 0, "eval/avg": 0.4}\n{"step": 1, "epoch": 1}\n')
    assert run.last_logged("eval/avg") is None


def test_links_to_runs_are_followed_and_a_loop_ends(tmp_path):
    run = write(tmp_path / "elsewhere" / "run")
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "mine").symlink_to(run)
    (linked / "above").symlink_to(tmp_path)
    assert [found.path.resolve() for found in find_runs([linked])] == [run]
