"""The six panels of the training dynamics: their numbers against counts made here."""

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from histories import write_history

from olr_cli.analysis import dynamics
from olr_cli.analysis.arms import find_runs, group
from olr_cli.runs.store import scan_labels

SMALL = {"prompts": 60, "prompts_per_step": 30, "epochs": 7, "store_rollouts": False}
OLR = {"name": "olr", "slope_threshold": 0.02, "warmup_epochs": 3}


def drawn(*runs):
    (chart,) = dynamics.charts(group(find_runs(runs)))
    return chart


def values(chart, panel, metric):
    rows = chart.data.filter(panel=panel, metric=metric)
    return dict(zip(rows["epoch"].to_list(), rows["mean"].to_list(), strict=True))


def remarks(chart):
    """The text of panels without axes, by letter."""
    found = {}
    for axes in chart.figure.axes:
        if not axes.spines["left"].get_visible():
            found[axes.get_title("left")[1]] = " ".join(text.get_text() for text in axes.texts).replace(
                "\n", " "
            )
    return found


def counted(run, epoch, keep, value):
    """Mean of `value` over the stored rows of an epoch that `keep` keeps, in plain Python."""
    rows = [
        row for row in scan_labels(run).collect().iter_rows(named=True) if row["visit"] == epoch and keep(row)
    ]
    return sum(value(row) for row in rows) / len(rows) if rows else None


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_history(tmp_path_factory.mktemp("dynamics") / "run", method=OLR, **SMALL)


@pytest.fixture(scope="module")
def chart(run):
    return drawn(run)


def is_noisy(row):
    return row["noise_type"] != "clean"


@pytest.mark.parametrize(
    ("panel", "metric", "keep", "value"),
    [
        ("a", "majority/accuracy_noisy", is_noisy, lambda row: row["majority_is_correct"]),
        (
            "b",
            "majority/accuracy_selected",
            lambda row: row["is_selected"],
            lambda row: row["majority_is_correct"],
        ),
        (
            "b",
            "majority/accuracy_unselected",
            lambda row: not row["is_selected"],
            lambda row: row["majority_is_correct"],
        ),
        ("c", "slope/noisy", is_noisy, lambda row: row["slope"]),
        ("d", "label/selection_ratio_noisy", is_noisy, lambda row: row["is_selected"]),
        (
            "f",
            "label/effective_noise",
            lambda row: True,
            lambda row: row["effective_label"] != row["true_answer"],
        ),
        ("f", "label/initial_noise", lambda row: True, lambda row: row["given_label"] != row["true_answer"]),
    ],
)
def test_panels_show_what_the_labels_table_says(run, chart, panel, metric, keep, value):
    shown = values(chart, panel, metric)
    assert len(shown) >= 4
    for epoch, mean in shown.items():
        assert mean == pytest.approx(counted(run, epoch, keep, value))


@pytest.mark.parametrize(
    ("metric", "keep"),
    [
        ("ablation/both", lambda row: row["slope"] > 0.02 and row["is_consistent"]),
        ("ablation/slope", lambda row: row["slope"] > 0.02),
        ("ablation/consistency", lambda row: row["is_consistent"]),
    ],
)
def test_the_ablation_is_counted_from_the_stored_history(run, chart, metric, keep):
    shown = values(chart, "e", metric)
    assert list(shown) == [4, 5, 6, 7], "a criterion selects nothing in warm-up"
    for epoch, mean in shown.items():
        has_majority = lambda row: row["majority_answer"] is not None and keep(row)  # noqa: E731
        assert mean == pytest.approx(
            counted(run, epoch, has_majority, lambda row: row["majority_is_correct"])
        )


def test_under_both_criteria_the_ablation_is_what_was_selected(chart):
    assert values(chart, "e", "ablation/both") == pytest.approx(
        values(chart, "b", "majority/accuracy_selected")
    )


def test_selection_begins_after_warmup_and_slopes_with_the_second_epoch(chart):
    first = chart.data.group_by("panel").agg(pl.col("epoch").min()).sort("panel")
    assert dict(first.iter_rows()) == {"a": 1, "b": 4, "c": 2, "d": 4, "e": 4, "f": 1}
    assert remarks(chart) == {}


def test_a_method_that_selects_nothing_says_so_and_is_counted_at_the_defaults_of_olr(tmp_path):
    run = write_history(tmp_path / "run", method={"name": "grpo"}, **SMALL)
    chart = drawn(run)
    assert remarks(chart) == dict.fromkeys("bd", "nothing was selected (method grpo)")
    assert set(chart.data["panel"]) == set("acef")
    shown = values(chart, "e", "ablation/slope")
    assert list(shown) == [6, 7]
    right = counted(
        run,
        7,
        lambda row: row["slope"] > 0.05 and row["majority_count"],
        lambda row: row["majority_is_correct"],
    )
    assert shown[7] == pytest.approx(right)
    assert chart.figure.axes[4].get_xlabel() == "epoch\nOLR's defaults: δ = 0.05, T = 5"
    assert values(chart, "f", "label/effective_noise") == values(chart, "f", "label/initial_noise")


def rewritten(run, **columns):
    """The run with other values in columns of its labels table."""
    for shard in (run / "labels").iterdir():
        table = pq.read_table(shard)
        for name, value in columns.items():
            place, field = table.schema.get_field_index(name), table.schema.field(name)
            table = table.set_column(place, field, pa.array([value] * len(table), field.type))
        pq.write_table(table, shard)
    return run


def test_a_method_whose_every_label_is_a_majority_says_so(tmp_path):
    run = rewritten(write_history(tmp_path / "run", method={"name": "ttrl"}, **SMALL), is_selected=True)
    assert remarks(drawn(run)) == dict.fromkeys("bd", "every majority is the label (method ttrl)")


def test_a_method_without_labels_has_no_effective_noise_and_says_so(tmp_path):
    run = write_history(tmp_path / "run", method={"name": "token_entropy"}, **SMALL)
    rewritten(run, effective_label=None, effective_label_is_correct=None, label_source="none")
    assert remarks(drawn(run)) == dict.fromkeys("bd", "nothing was selected (method token_entropy)") | {
        "f": "no label is used (method token_entropy)"
    }


def test_a_mixed_method_is_named_in_lines_that_fit_a_panel(tmp_path):
    mixed = {"name": "small_loss_selection", "penalty_weight": 0.01}
    chart = drawn(write_history(tmp_path / "run", method=mixed, **SMALL))
    (text,) = (text.get_text() for text in chart.figure.axes[1].texts)
    assert text.splitlines()[1:] == ["(method small_loss_selection", "+ confidence_penalty)"]


def test_the_threshold_of_the_ablation_is_the_runs_own(chart):
    assert chart.figure.axes[4].get_xlabel() == "epoch (δ = 0.02)"


def test_without_true_answers_panels_that_need_them_say_so(tmp_path):
    chart = drawn(write_history(tmp_path / "run", method=OLR, knows_truth=False, **SMALL))
    assert remarks(chart) == dict.fromkeys("abef", "needs true answers")
    assert set(chart.data["panel"]) == set("cd")


def test_labels_of_unknown_quality_are_shown_together(tmp_path):
    chart = drawn(write_history(tmp_path / "run", method=OLR, knows_noise=False, **SMALL))
    shown = dict(chart.data.group_by("panel").agg(pl.col("metric").unique().sort()).iter_rows())
    assert shown["a"] == ["majority/accuracy"]
    assert shown["c"] == ["slope/selected", "slope/unselected"]
    assert shown["d"] == ["label/selection_ratio"]
    assert shown["f"] == ["label/effective_noise"]


def test_without_selection_and_marks_the_slope_is_that_of_all_prompts(tmp_path):
    settings = {"method": {"name": "grpo"}, "knows_noise": False, "knows_truth": False}
    chart = drawn(write_history(tmp_path / "run", **settings, **SMALL))
    assert [text.get_text() for text in chart.figure.axes[2].texts] == ["all prompts"]


def test_a_run_in_its_warmup_says_what_is_missing(tmp_path):
    chart = drawn(write_history(tmp_path / "run", method=OLR, steps=2, **SMALL))
    assert remarks(chart) == {
        "c": "needs a second epoch",
        **dict.fromkeys("bde", "no epoch after a warm-up of 3"),
    }
    assert set(chart.data["panel"]) == set("af")


def test_a_threshold_nobody_reaches_leaves_the_criteria_without_it(tmp_path):
    never = {**OLR, "slope_threshold": 0.9, "criteria": ["slope"]}
    chart = drawn(write_history(tmp_path / "run", method=never, **SMALL))
    assert set(chart.data.filter(panel="e")["metric"]) == {"ablation/consistency"}
    assert set(values(chart, "d", "label/selection_ratio_clean").values()) == {0.0}


def test_seeds_of_an_arm_are_averaged_and_several_arms_are_several_charts(tmp_path):
    for seed in (1, 2, 3):
        write_history(tmp_path / f"olr{seed}", method=OLR, seed=seed, **SMALL)
    write_history(tmp_path / "grpo", method={"name": "grpo"}, seed=1, **SMALL)
    charts = dynamics.charts(group(find_runs([tmp_path])))
    assert sorted(chart.name for chart in charts) == ["dynamics_active-0.5-grpo", "dynamics_active-0.5-olr"]
    (averaged,) = (chart for chart in charts if chart.name.endswith("olr"))
    rows = averaged.data.filter(panel="a")
    assert rows["runs"].unique().to_list() == [3]
    assert rows["sd"].null_count() == 0
