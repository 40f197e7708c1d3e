"""The figure of Early Correctness Coherence: its numbers, and what it says when it cannot be drawn."""

import polars as pl
import pytest
from histories import write_history

from olr_cli.analysis import coherence
from olr_cli.analysis.arms import find_runs, group
from olr_cli.runs.store import scan_labels
from olr_cli.supervision.metrics import by_visit

SMALL = {"prompts": 20, "prompts_per_step": 10, "epochs": 5, "store_rollouts": False}
GRPO = {"name": "grpo"}


def drawn(*runs):
    (chart,) = coherence.charts(group(find_runs(runs)))
    return chart


def texts(chart):
    return [[text.get_text() for text in axes.texts] for axes in chart.figure.axes]


def test_it_shows_majority_accuracy_on_clean_and_noisy_prompts_by_epoch(tmp_path):
    run = write_history(tmp_path / "run", **SMALL)
    data = drawn(run).data
    counted = by_visit(scan_labels(run))
    for metric in ("majority/accuracy_clean", "majority/accuracy_noisy"):
        rows = data.filter(metric=metric)
        assert rows["epoch"].to_list() == [1, 2, 3, 4, 5]
        assert rows["mean"].to_list() == pytest.approx(counted[metric].to_list())
        assert rows["sd"].null_count() == 5
    assert data.height == 10


def test_four_arms_are_four_panels_side_by_side(tmp_path):
    for noise in ("inactive", "active"):
        for seed in (1, 2):
            write_history(tmp_path / f"{noise}{seed}", noise=noise, method=GRPO, seed=seed, **SMALL)
            write_history(tmp_path / f"{noise}{seed}-olr", noise=noise, seed=seed, **SMALL)
    chart = drawn(tmp_path)
    axes = chart.figure.axes
    assert len(axes) == 4
    assert len({round(panel.get_position().y0, 6) for panel in axes}) == 1
    assert len({panel.get_ylim() for panel in axes}) == 1, "panels to be compared share their axis"
    assert {panel.get_title("left")[:3] for panel in axes} == {"(a)", "(b)", "(c)", "(d)"}
    assert chart.data["runs"].unique().to_list() == [2]
    assert chart.data["sd"].null_count() == 0


def test_every_line_is_named_where_it_ends_and_the_end_of_warmup_is_marked(tmp_path):
    chart = drawn(write_history(tmp_path / "run", **SMALL))
    assert texts(chart) == [["warm-up ends", "clean", "noisy"]]
    (mark,) = [line for line in chart.figure.axes[0].lines if len(set(line.get_xdata())) == 1]
    assert mark.get_xdata()[0] == 3.5


def test_without_true_answers_it_says_so(tmp_path):
    chart = drawn(write_history(tmp_path / "run", knows_truth=False, **SMALL))
    assert texts(chart) == [["needs true answers"]]
    assert chart.data.is_empty()


def test_where_nobody_knows_which_labels_are_noise_it_shows_all_prompts(tmp_path):
    chart = drawn(write_history(tmp_path / "run", knows_noise=False, **SMALL))
    assert set(chart.data["metric"]) == {"majority/accuracy"}
    assert "all\nprompts" in texts(chart)[0]


def test_a_clean_arm_has_one_line(tmp_path):
    chart = drawn(write_history(tmp_path / "run", noise=None, method=GRPO, **SMALL))
    assert set(chart.data["metric"]) == {"majority/accuracy_clean"}
    assert isinstance(chart.data, pl.DataFrame)
    assert texts(chart) == [["clean"]]
