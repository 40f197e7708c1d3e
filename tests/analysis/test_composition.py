"""What majority answers are made of."""

import pytest
from histories import write_history

from olr_cli.analysis import composition
from olr_cli.analysis.arms import find_runs, group
from olr_cli.runs.store import scan_labels

SMALL = {"prompts": 30, "prompts_per_step": 15, "epochs": 5, "store_rollouts": False}


def drawn(*runs):
    (chart,) = composition.charts(group(find_runs(runs)))
    return chart


def texts(chart):
    return [[text.get_text().replace("\n", " ") for text in axes.texts] for axes in chart.figure.axes]


def test_shares_are_those_of_the_labels_table(tmp_path):
    run = write_history(tmp_path / "run", method={"name": "grpo"}, **SMALL)
    data = drawn(run).data
    rows = [row for row in scan_labels(run).collect().iter_rows(named=True) if row["visit"] == 3]
    noisy = [row for row in rows if row["noise_type"] != "clean"]
    expected = {
        "clean_right": sum(row["majority_is_correct"] for row in rows if row["noise_type"] == "clean") / 15,
        "noisy_right": sum(row["majority_is_correct"] for row in noisy) / 15,
        "noisy_equal": sum(row["majority_answer"] == row["noisy_label"] for row in noisy) / 15,
    }
    shown = data.filter(epoch=3)
    means = dict(zip(shown["metric"].to_list(), shown["mean"].to_list(), strict=True))
    for name, share in expected.items():
        assert means[f"composition/{name}"] == pytest.approx(share)
    assert means["composition/noisy_equal"] > 0
    for epoch in range(1, 6):
        assert data.filter(epoch=epoch)["mean"].sum() == pytest.approx(2.0)


def test_each_area_is_named_and_one_that_never_occurs_is_not(tmp_path):
    active = drawn(write_history(tmp_path / "active", method={"name": "grpo"}, **SMALL))
    assert texts(active) == [["right", "wrong"], ["right", "the noisy label", "neither"]]
    inactive = drawn(write_history(tmp_path / "inactive", noise="inactive", method={"name": "grpo"}, **SMALL))
    assert texts(inactive)[1] == ["right", "neither"]


def test_the_end_of_warmup_is_named_once(tmp_path):
    write_history(tmp_path / "grpo", arm="grpo", method={"name": "grpo"}, **SMALL)
    for arm in ("olr", "other"):
        write_history(tmp_path / arm, arm=arm, **SMALL)
    found = texts(drawn(tmp_path / "grpo", tmp_path / "olr", tmp_path / "other"))
    assert ["warm-up ends" in panel for panel in found] == [False, False, True, False, False, False]


def test_the_areas_of_many_arms_are_named_once(tmp_path):
    for arm in ("one", "two", "three"):
        write_history(tmp_path / arm, arm=arm, method={"name": "grpo"}, **SMALL)
    chart = drawn(tmp_path)
    assert texts(chart) == [[]] * 6
    (legend,) = chart.figure.legends
    named = {
        text.get_text(): patch.get_facecolor()
        for text, patch in zip(legend.texts, legend.get_patches(), strict=True)
    }
    colours = {area.get_facecolor()[0].tobytes() for axes in chart.figure.axes for area in axes.collections}
    assert len(named) == 3 and len(set(named.values())) == len(colours) == 3


def test_several_arms_are_pairs_of_panels(tmp_path):
    for noise in ("inactive", "active"):
        write_history(tmp_path / noise, noise=noise, **SMALL)
    titles = [axes.get_title("left") for axes in drawn(tmp_path).figure.axes]
    assert titles == [
        "(a) active 0.5 olr\nclean prompts",
        "\nnoisy prompts",
        "(b) inactive 0.5 olr\nclean prompts",
        "\nnoisy prompts",
    ]


@pytest.mark.parametrize(
    ("settings", "remark"),
    [
        ({"knows_truth": False}, "needs true answers"),
        ({"knows_noise": False}, "needs to know which labels are noise"),
        ({"steps": 2}, "needs a second epoch"),
        ({"noise": None}, "no noisy prompts"),
    ],
)
def test_a_panel_without_numbers_says_why(tmp_path, settings, remark):
    chart = drawn(write_history(tmp_path / "run", **{**SMALL, **settings}))
    assert texts(chart)[1] == [remark]
