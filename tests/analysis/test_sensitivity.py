"""The figure of sensitivity: which runs make a line, its values, and panels that lack runs."""

import pytest
from paper_runs import NINE, write_evaluated, write_run

from olr_cli.analysis import sensitivity
from olr_cli.analysis.arms import find_runs, group


def olr(threshold=0.02, warmup=1, **others):
    return {"name": "olr", "slope_threshold": threshold, "warmup_epochs": warmup, **others}


def write_sweep(folder, warmups=(1, 2)):
    for noise, lift in (("active", 0.0), ("inactive", 0.1)):
        for seed in (1, 2):
            write_run(folder / f"{noise}-grpo-{seed}", "grpo", 0.4 + lift, seed=seed, noise=noise)
            sections = [
                *(olr(threshold) for threshold in (0.1, 0.0)),
                *(olr(warmup=each) for each in warmups),
            ]
            for place, section in enumerate(sections):
                end = 0.5 + 0.1 * place + lift + 0.02 * seed
                write_run(folder / f"{noise}-{place}-{seed}", section, end, seed=seed, noise=noise)
    return folder


def arms_of(*places):
    return group(find_runs(places))


def drawn(*places):
    (chart,) = sensitivity.charts(arms_of(*places))
    return chart


def line(chart, setting, noise, metric="eval/avg"):
    own = chart.data.filter(setting=setting, noise=noise, metric=metric, method="olr")
    return dict(zip(own["value"], own["mean"], strict=True))


def test_lines_are_means_over_seeds_against_each_setting(tmp_path):
    chart = drawn(write_sweep(tmp_path))
    assert line(chart, "slope_threshold", "active 0.5") == pytest.approx({0.0: 0.63, 0.02: 0.73, 0.1: 0.53})
    assert line(chart, "warmup_epochs", "inactive 0.5") == pytest.approx({1: 0.83, 2: 0.93})
    first = chart.data.row(0, named=True)
    assert (first["runs"], first["sd"]) == (2, pytest.approx(0.02 / 2**0.5))


def test_grpo_without_olr_is_a_dashed_level_that_is_named(tmp_path):
    chart = drawn(write_sweep(tmp_path))
    grpo = chart.data.filter(setting="slope_threshold", method="grpo")
    assert dict(zip(grpo["noise"], grpo["mean"], strict=True)) == pytest.approx(
        {"active 0.5": 0.4, "inactive 0.5": 0.5}
    )
    assert grpo["value"].null_count() == 2
    axes = chart.figure.axes[0]
    assert [text.get_text() for text in axes.texts] == [
        "active 0.5",
        "active 0.5,\nwithout OLR",
        "inactive 0.5",
        "inactive 0.5,\nwithout OLR",
    ]
    dashed = [each.get_ydata()[0] for each in axes.lines if each.get_linestyle() == "--"]
    assert dashed == pytest.approx([0.4, 0.5])


def test_panels_are_of_held_out_accuracy_or_of_both_kinds_of_benchmarks(tmp_path):
    write_sweep(tmp_path)
    titles = [axes.get_title("left") for axes in drawn(tmp_path).figure.axes]
    assert titles == ["(a) Held-out accuracy", "(b) Held-out accuracy"]
    for run in tmp_path.iterdir():
        write_evaluated(run / "evaluation" / "step-000001", NINE, step=1)
    chart = drawn(tmp_path)
    assert [axes.get_title("left") for axes in chart.figure.axes] == [
        "(a) ID score",
        "(b) ID score",
        "(c) OOD score",
        "(d) OOD score",
    ]
    expected = sum(list(NINE.values())[:6]) / 6
    assert line(chart, "warmup_epochs", "active 0.5", "in") == pytest.approx({1: expected, 2: expected})


def test_a_panel_without_such_runs_says_so(tmp_path):
    chart = drawn(write_sweep(tmp_path, warmups=(1,)))
    assert [text.get_text() for text in chart.figure.axes[1].texts] == [
        "needs runs with several\nwarm-up lengths"
    ]
    assert chart.data["setting"].unique().to_list() == ["slope_threshold"]


def test_runs_that_differ_in_more_than_one_setting_make_no_line(tmp_path):
    write_run(tmp_path / "one", olr(0.02, 1))
    write_run(tmp_path / "other", olr(0.05, 2))
    assert "method.slope_threshold" in sensitivity.lacking(arms_of(tmp_path))
    write_run(tmp_path / "third", olr(0.05, 1))
    assert sensitivity.lacking(arms_of(tmp_path)) is None
    chart = drawn(tmp_path)
    assert list(line(chart, "slope_threshold", "active 0.5")) == [0.02, 0.05]
    assert list(line(chart, "warmup_epochs", "active 0.5")) == [1, 2]


def test_a_threshold_that_decides_nothing_makes_no_line(tmp_path):
    for threshold in (0.02, 0.05):
        write_run(tmp_path / str(threshold), olr(threshold, criteria=["consistency"]))
    assert sensitivity.lacking(arms_of(tmp_path)) is not None
