"""Coherence, composition and dynamics: their numbers against counts made here, and what they say without any."""

import re

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import each
from histories import arms_of, drawn, write_history

from olr_cli.analysis import figures
from olr_cli.analysis.figures import charts_of
from olr_cli.runs.store import scan_labels
from olr_cli.supervision.metrics import by_visit

SMALL = {"prompts": 20, "prompts_per_step": 10, "epochs": 5, "store_rollouts": False}
LARGER = {**SMALL, "prompts": 60, "prompts_per_step": 30, "epochs": 7}
GRPO = {"name": "grpo"}
OLR = {"name": "olr", "slope_threshold": 0.02, "warmup_epochs": 3}


def texts(chart):
    return [
        [text.get_text().replace("\n", " ") for text in axes.texts]
        for axes in chart.figure.axes
    ]


def rows_of(run, epoch):
    return [
        row
        for row in scan_labels(run).collect().iter_rows(named=True)
        if row["visit"] == epoch
    ]


def is_noisy(row):
    return row["noise_type"] != "clean"


# Coherence


def test_coherence_is_majority_accuracy_on_clean_and_noisy_prompts_by_epoch(tmp_path):
    run = write_history(tmp_path / "run", **SMALL)
    chart = drawn("coherence", run)
    counted = by_visit(scan_labels(run))
    for metric in ("majority/accuracy_clean", "majority/accuracy_noisy"):
        rows = chart.data.filter(metric=metric)
        assert rows["epoch"].to_list() == [1, 2, 3, 4, 5]
        assert rows["mean"].to_list() == pytest.approx(counted[metric].to_list())
        assert rows["sd"].null_count() == 5
    assert chart.data.height == 10
    assert texts(chart) == [["warm-up ends", "clean", "noisy"]]
    (mark,) = [
        line for line in chart.figure.axes[0].lines if len(set(line.get_xdata())) == 1
    ]
    assert mark.get_xdata()[0] == 3.5


def test_four_arms_are_four_panels_side_by_side(tmp_path):
    for noise in ("inactive", "active"):
        for seed in (1, 2):
            write_history(
                tmp_path / f"{noise}{seed}", noise=noise, method=GRPO, seed=seed, **SMALL
            )
            write_history(tmp_path / f"{noise}{seed}-olr", noise=noise, seed=seed, **SMALL)
    chart = drawn("coherence", tmp_path)
    axes = chart.figure.axes
    assert len(axes) == 4
    assert len({round(panel.get_position().y0, 6) for panel in axes}) == 1
    assert len({panel.get_ylim() for panel in axes}) == 1, (
        "panels to be compared share their axis"
    )
    assert {panel.get_title("left")[:3] for panel in axes} == {"(a)", "(b)", "(c)", "(d)"}
    assert chart.data["runs"].unique().to_list() == [2]
    assert chart.data["sd"].null_count() == 0


@each(
    "settings, shown",
    ({"knows_truth": False}, ["needs true answers"]),
    ({"knows_noise": False}, ["warm-up ends", "all prompts"]),
    ({"noise": None}, ["warm-up ends", "clean"]),
)
def test_coherence_shows_what_is_known(tmp_path, settings, shown):
    known = write_history(tmp_path / "known", arm="known", **SMALL)
    chart = drawn(
        "coherence", write_history(tmp_path / "run", arm="run", **SMALL, **settings), known
    )
    assert texts(chart)[0] == shown


# Composition


def test_shares_are_those_of_the_labels_table(tmp_path):
    run = write_history(tmp_path / "run", method=GRPO, **SMALL | {"prompts": 30})
    data = drawn("composition", run).data
    rows = rows_of(run, 3)
    noisy = [row for row in rows if is_noisy(row)]
    expected = {
        "clean_right": sum(row["majority_is_correct"] for row in rows if not is_noisy(row))
        / 15,
        "noisy_right": sum(row["majority_is_correct"] for row in noisy) / 15,
        "noisy_equal": sum(row["majority_answer"] == row["noisy_label"] for row in noisy)
        / 15,
    }
    means = dict(data.filter(epoch=3).select("metric", "mean").iter_rows())
    assert {name: means[f"composition/{name}"] for name in expected} == pytest.approx(
        expected
    )
    assert means["composition/noisy_equal"] > 0
    assert data.group_by("epoch").agg(pl.col("mean").sum())[
        "mean"
    ].to_list() == pytest.approx([2.0] * 5)


def test_each_area_is_named_but_one_that_never_occurs(tmp_path):
    active = drawn("composition", write_history(tmp_path / "active", method=GRPO, **SMALL))
    assert texts(active) == [["right", "wrong"], ["right", "the noisy label", "neither"]]
    inactive = write_history(tmp_path / "inactive", noise="inactive", method=GRPO, **SMALL)
    assert texts(drawn("composition", inactive))[1] == ["right", "neither"]


def test_each_arm_is_a_pair_of_panels_and_the_end_of_warmup_is_named_once(tmp_path):
    places = [
        write_history(
            tmp_path / arm, arm=arm, method=GRPO if arm == "grpo" else OLR, **SMALL
        )
        for arm in ("grpo", "olr", "other")
    ]
    chart = drawn("composition", *places)
    named = ["warm-up ends" in panel for panel in texts(chart)]
    assert named == [False, False, True, False, False, False]
    titles = [axes.get_title("left") for axes in chart.figure.axes]
    assert titles[:3] == [
        "(a) GRPO\nclean prompts",
        "\nnoisy prompts",
        "(b) OLR\nclean prompts",
    ]
    (legend,) = chart.figure.legends
    areas = {
        area.get_facecolor()[0].tobytes()
        for axes in chart.figure.axes
        for area in axes.collections
    }
    named = {patch.get_facecolor() for patch in legend.get_patches()}
    assert len(legend.texts) == len(named) == len(areas) == 3, (
        "the areas of many arms are named once"
    )


@each(
    "settings",
    {"knows_truth": False},
    {"knows_noise": False},
    {"steps": 2},
    {"noise": None},
    ids=str,
)
def test_a_panel_of_the_composition_without_numbers_says_why(tmp_path, settings):
    known = write_history(tmp_path / "known", arm="known", **SMALL)
    run = write_history(tmp_path / "run", arm="run", **{**SMALL, **settings})
    remark = "needs two epochs of such prompts, and true answers"
    assert texts(drawn("composition", run, known))[1] == [remark]


# Dynamics


def values(chart, panel, metric):
    return dict(
        chart.data.filter(panel=panel, metric=metric).select("epoch", "mean").iter_rows()
    )


def remarks(chart):
    """Panel -> why the chart leaves it out, as its note says."""
    _, _, said = chart.note.rstrip(".").partition(" leaves out ")
    reasons = (part.rpartition(": ") for part in said.split("; ") if part)
    return {
        letter: reason
        for panels, _, reason in reasons
        for letter in re.findall(r"\((.)\)", panels)
    }


def counted(run, epoch, keep, value):
    """Mean of `value` over the stored rows of an epoch that `keep` keeps, in plain Python."""
    rows = [row for row in rows_of(run, epoch) if keep(row)]
    return sum(value(row) for row in rows) / len(rows) if rows else None


def is_right(row):
    return row["majority_is_correct"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_history(tmp_path_factory.mktemp("dynamics") / "run", method=OLR, **LARGER)


@pytest.fixture(scope="module")
def chart(run):
    return drawn("dynamics", run)


@each(
    "panel, metric, keep, value",
    ("a", "majority/accuracy_noisy", is_noisy, is_right),
    ("b", "majority/accuracy_selected", lambda row: row["is_selected"], is_right),
    ("b", "majority/accuracy_unselected", lambda row: not row["is_selected"], is_right),
    ("c", "slope/noisy", is_noisy, lambda row: row["slope"]),
    ("d", "label/selection_ratio_noisy", is_noisy, lambda row: row["is_selected"]),
    (
        "e",
        "ablation/both",
        lambda row: row["slope"] > 0.02 and row["is_consistent"],
        is_right,
    ),
    (
        "e",
        "ablation/slope",
        lambda row: row["slope"] > 0.02 and row["majority_answer"],
        is_right,
    ),
    ("e", "ablation/consistency", lambda row: row["is_consistent"], is_right),
    (
        "f",
        "label/effective_noise",
        lambda _: True,
        lambda row: row["effective_label"] != row["true_answer"],
    ),
    (
        "f",
        "label/initial_noise",
        lambda _: True,
        lambda row: row["given_label"] != row["true_answer"],
    ),
)
def test_panels_show_what_the_labels_table_says(run, chart, panel, metric, keep, value):
    shown = values(chart, panel, metric)
    first = {"a": 1, "c": 2, "f": 1}.get(panel, 4)
    assert list(shown) == list(range(first, 8)), (
        "selection begins after warm-up, a slope needs two epochs"
    )
    for epoch, mean in shown.items():
        assert mean == pytest.approx(counted(run, epoch, keep, value))


def test_under_both_criteria_the_ablation_is_what_was_selected_under_the_runs_own_threshold(
    chart,
):
    selected = values(chart, "b", "majority/accuracy_selected")
    assert values(chart, "e", "ablation/both") == pytest.approx(selected)
    assert chart.figure.axes[4].get_xlabel() == "epoch (δ = 0.02)"
    assert remarks(chart) == {}


def test_a_method_that_selects_nothing_says_so_and_is_counted_at_the_defaults_of_olr(
    tmp_path,
):
    run = write_history(tmp_path / "run", method=GRPO, **LARGER)
    chart = drawn("dynamics", run)
    assert remarks(chart) == dict.fromkeys(
        "bd", "needs a method that selects labels, and grpo selects none"
    )
    assert set(chart.data["panel"]) == set("acef")
    shown = values(chart, "e", "ablation/slope")
    assert list(shown) == [6, 7]
    steep = lambda row: row["slope"] > 0.05 and row["majority_count"]  # noqa: E731
    assert shown[7] == pytest.approx(counted(run, 7, steep, is_right))
    assert chart.figure.axes[2].get_xlabel() == "epoch\nOLR's defaults: δ = 0.05, T = 5"
    assert values(chart, "f", "label/effective_noise") == values(
        chart, "f", "label/initial_noise"
    )


def rewritten(run, **columns):
    """The run with other values in columns of its labels table."""
    for shard in (run / "labels").iterdir():
        table = pq.read_table(shard)
        for name, value in columns.items():
            place, field = table.schema.get_field_index(name), table.schema.field(name)
            table = table.set_column(
                place, field, pa.array([value] * len(table), field.type)
            )
        pq.write_table(table, shard)
    return run


NO_CHOICE = "needs a method that selects labels, and"
NO_LABELS = {
    "effective_label": None,
    "effective_label_is_correct": None,
    "label_source": "none",
}


@each(
    "settings, columns, said",
    (
        {"method": {"name": "ttrl"}},
        {"is_selected": True},
        {"bd": f"{NO_CHOICE} ttrl takes every majority"},
    ),
    (
        {"method": {"name": "token_entropy"}},
        NO_LABELS,
        {
            "bd": f"{NO_CHOICE} token_entropy selects none",
            "f": "needs labels, and token_entropy uses none",
        },
    ),
    ({"knows_truth": False}, {}, {"abef": "needs true answers"}),
    (
        {"steps": 2},
        {},
        {"c": "needs a second epoch", "bde": "needs an epoch after the warm-up of 3"},
    ),
    ({"kind": "rollouts"}, {}, {"c": "needs training, without which slopes are chance"}),
    ids=["every majority", "no labels", "no truth", "warm-up", "rollouts"],
)
def test_panels_that_a_run_has_nothing_for_are_left_out_and_say_why(
    tmp_path, settings, columns, said
):
    run = write_history(tmp_path / "run", **{"method": OLR, **LARGER, **settings})
    chart = drawn("dynamics", rewritten(run, **columns))
    expected = {letter: text for letters, text in said.items() for letter in letters}
    assert remarks(chart) == expected
    assert set(chart.data["panel"]) == set("abcdef") - expected.keys()
    assert [axes.get_title(loc="left")[1] for axes in chart.figure.axes] == sorted(
        set(chart.data["panel"])
    )


def test_labels_of_unknown_quality_are_shown_together(tmp_path):
    chart = drawn(
        "dynamics", write_history(tmp_path / "run", method=OLR, knows_noise=False, **LARGER)
    )
    shown = dict(
        chart.data.group_by("panel").agg(pl.col("metric").unique().sort()).iter_rows()
    )
    assert {panel: shown[panel] for panel in "acdf"} == {
        "a": ["majority/accuracy"],
        "c": ["slope/selected", "slope/unselected"],
        "d": ["label/selection_ratio"],
        "f": ["label/effective_noise"],
    }


def test_a_threshold_nobody_reaches_leaves_the_criteria_without_it(tmp_path):
    never = {**OLR, "slope_threshold": 0.9, "criteria": ["slope"]}
    chart = drawn("dynamics", write_history(tmp_path / "run", method=never, **LARGER))
    assert set(chart.data.filter(panel="e")["metric"]) == {"ablation/consistency"}
    assert set(values(chart, "d", "label/selection_ratio_clean").values()) == {0.0}


@pytest.mark.parametrize("name", ["all", "dynamics"])
def test_of_many_arms_the_first_have_charts_and_a_note_says_so(tmp_path, monkeypatch, name):
    monkeypatch.setattr(figures, "_MOST_CHARTS", 1)
    monkeypatch.setattr(figures, "FIGURES", {"dynamics": figures.FIGURES["dynamics"]})
    for number, ratio in enumerate((0.25, 0.5)):
        write_history(tmp_path / str(number), **SMALL, ratio=ratio)
    (chart,) = figures.draw([name], arms_of(tmp_path))["dynamics"]
    note = "dynamics is drawn of the first 1 of 2 arms; for others, name their runs."
    assert note in chart.note


def test_seeds_of_an_arm_are_averaged_and_several_arms_are_several_charts(tmp_path):
    for seed in (1, 2, 3):
        write_history(tmp_path / f"olr{seed}", method=OLR, seed=seed, **SMALL)
    write_history(tmp_path / "grpo", method=GRPO, seed=1, **SMALL)
    charts = charts_of("dynamics", arms_of(tmp_path))
    assert sorted(chart.name for chart in charts) == [
        "dynamics_active-0.5-grpo",
        "dynamics_active-0.5-olr",
    ]
    (averaged,) = (chart for chart in charts if chart.name.endswith("olr"))
    rows = averaged.data.filter(panel="a")
    assert rows["runs"].unique().to_list() == [3]
    assert rows["sd"].null_count() == 0
