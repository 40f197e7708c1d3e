"""How training went: of runs by their metrics.jsonl, of other trainers' logs by their rollouts."""

import json
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from histories import SMALL, drawn, write_history
from samples import json_lines

from olr_cli.analysis.frame import Lack

learning = partial(drawn, "learning")
TRL = Path(__file__).parents[2] / "fixtures" / "logs" / "trl"


def write_run(path, rewards, **settings):
    """A run with these rewards, step by step, in its metrics.jsonl."""
    run = write_history(path, **SMALL, **settings)
    file = run / "metrics.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()[:1]]
    lines += [
        {"step": step, "epoch": 1, "rollout/reward": value}
        for step, value in enumerate(rewards, 1)
    ]
    json_lines(file, *lines)
    return run


def values(chart, metric, column="mean"):
    return chart.data.filter(metric=metric).sort("step")[column].to_list()


def test_a_run_without_truth_has_a_panel_for_all_that_it_measured_and_no_other(tmp_path):
    chart = learning(write_run(tmp_path / "run", [0.0, 1.0, 0.5], knows_truth=False))
    assert [axes.get_title(loc="left") for axes in chart.figure.axes] == [
        "Reward",
        "Held-out accuracy",
    ]
    assert values(chart, "rollout/reward") == [0.0, 1.0, 0.5], "few steps are not averaged"
    assert values(chart, "eval/avg", "step") == [0]


def test_many_steps_are_averaged_over_a_fifteenth_of_the_run_and_accuracy_is_not(tmp_path):
    chart = learning(write_run(tmp_path / "run", [step % 2 for step in range(45)]))
    reward = values(chart, "rollout/reward")
    assert reward[1:3] == pytest.approx([1 / 3, 2 / 3])
    assert reward[0] == 0.5, "at the ends, fewer steps"


def test_seeds_are_a_mean_with_a_band_and_arms_are_lines(tmp_path):
    for seed, reward in ((1, 0.2), (2, 0.4)):
        write_run(tmp_path / f"olr{seed}", [reward] * 3, arm="olr", seed=seed)
    write_run(tmp_path / "grpo", [0.1] * 3, arm="grpo", seed=1, method={"name": "grpo"})
    chart = learning(tmp_path)
    rows = chart.data.filter(metric="rollout/reward", step=2)
    assert dict(rows.select("arm", "mean").iter_rows()) == pytest.approx(
        {"olr": 0.3, "grpo": 0.1}
    )
    assert dict(rows.select("arm", "runs").iter_rows()) == {"olr": 2, "grpo": 1}
    assert [text.get_text() for text in chart.figure.legends[0].get_texts()] == [
        "GRPO",
        "OLR",
    ]


def test_a_line_breaks_where_a_run_ends(tmp_path):
    for seed, rewards in ((1, [0.2] * 2), (2, [0.8] * 4)):
        write_run(tmp_path / f"{seed}", rewards, arm="olr", seed=seed)
    chart = learning(tmp_path)
    assert values(chart, "rollout/reward") == [0.5, 0.5, 0.8, 0.8]
    lines = [[*line.get_xdata()] for line in chart.figure.axes[0].lines]
    assert lines[:2] == [[1, 2], [3, 4]]
    assert chart.caption.endswith("Lines break where runs end.")


def test_a_step_at_which_a_trainer_logged_nan_counts_in_no_mean(tmp_path):
    for seed, rewards in ((1, [0.2, float("nan")]), (2, [0.4, 0.6])):
        write_run(tmp_path / f"{seed}", rewards, arm="olr", seed=seed)
    assert values(learning(tmp_path), "rollout/reward") == pytest.approx([0.3, 0.6])


def test_a_log_of_trl_shows_rewards_lengths_and_groups_of_equal_rewards():
    chart = learning(TRL / "text")
    raw = pl.read_parquet(TRL / "text" / "*.parquet")
    by_step = raw.group_by("step").agg(
        pl.col("accuracy_reward").mean(), pl.col("completion").str.len_chars().mean()
    )
    rows = by_step.sort("step")
    assert values(chart, "rollout/reward") == pytest.approx(
        rows["accuracy_reward"].to_list()
    )
    assert values(chart, "rollout/characters") == pytest.approx(
        rows["completion"].to_list()
    )
    equal = raw.group_by("step", "prompt").agg(
        equal=pl.col("accuracy_reward").n_unique() == 1
    )
    shares = equal.group_by("step").agg(pl.col("equal").mean()).sort("step")["equal"]
    assert values(chart, "rollout/zero_variance_groups") == pytest.approx(shares.to_list())
    assert set(chart.data["metric"]) == {
        "rollout/reward",
        "rollout/characters",
        "rollout/zero_variance_groups",
    }


def test_what_has_nothing_to_show_says_what_is_missing(tmp_path):
    run = write_history(tmp_path / "run", **SMALL)
    (run / "metrics.jsonl").write_text('{"step": 1, "epoch": 1, "time/step": 1.0}\n')
    with pytest.raises(Lack, match="of these runs has none"):
        drawn("learning", run)


def write_metrics(path, **metrics):
    """A run of two steps with these metrics."""
    run = write_history(path, **SMALL)
    lines = [
        {"step": step, "epoch": 1} | {k: v[step - 1] for k, v in metrics.items()}
        for step in (1, 2)
    ]
    json_lines(run / "metrics.jsonl", *lines)
    return run


def test_small_changes_do_not_fill_an_axis(tmp_path):
    small = {
        "rollout/reward": [0.5, 0.501],
        "policy/kl": [0.001, 0.002],
        "rollout/length": [100.0, 100.5],
    }
    figure = learning(write_metrics(tmp_path / "run", **small)).figure
    spans = {
        axes.get_title(loc="left"): high - low
        for axes in figure.axes
        for low, high in [axes.get_ylim()]
    }
    assert spans["Reward"] == pytest.approx(0.1) and spans[
        "KL to the reference, nats"
    ] == pytest.approx(0.01)
    assert 10 <= spans["Response length, tokens"] < 11


def test_what_labels_do_is_shown_where_nobody_knows_the_truth(tmp_path):
    labels = {"rollout/reward": [0.1, 0.2], "majority/differs_from_label": [0.5, 0.4]}
    unknown = write_metrics(
        tmp_path / "unknown", **labels, **{"label/selection_ratio": [0.0, 0.3]}
    )
    shown = [axes.get_title(loc="left") for axes in learning(unknown).figure.axes]
    assert shown == ["Reward", "Majority is not the label", "Labels replaced"]
    grpo = write_metrics(
        tmp_path / "grpo", **labels, **{"label/selection_ratio": [0.0, 0.0]}
    )
    assert "label/selection_ratio" not in learning(grpo).data["metric"]
    known = write_metrics(tmp_path / "known", **labels, **{"majority/accuracy": [0.5, 0.6]})
    assert set(learning(known).data["metric"]) == {"rollout/reward"}
