"""The bars of the ablation: what is counted, from which runs, and what stands where nothing can be counted."""

import polars as pl
import pytest
from histories import write_history
from paper_runs import NINE, write_evaluated

from olr_cli.analysis import ablation
from olr_cli.analysis.arms import find_runs, group
from olr_cli.runs.store import scan_labels

SMALL = {"prompts": 20, "prompts_per_step": 10, "epochs": 5, "store_rollouts": False}
WARMUP = 3
CRITERIA = {
    "both": ["slope", "consistency"],
    "consistency alone": ["consistency"],
    "slope alone": ["slope"],
    "every majority": [],
}


def olr(criteria, **others):
    section = {"name": "olr", "slope_threshold": 0.02, "warmup_epochs": WARMUP, "criteria": criteria}
    return section | others


def write_grid(folder, noises=("active", "inactive"), **others):
    for noise in noises:
        for seed in (1, 2):
            for name, criteria in CRITERIA.items():
                path = folder / f"{noise}-{name.replace(' ', '-')}-{seed}"
                write_history(path, method=olr(criteria), noise=noise, seed=seed, **SMALL | others)
            write_history(
                folder / f"{noise}-grpo-{seed}",
                method={"name": "grpo"},
                noise=noise,
                seed=seed,
                **SMALL | others,
            )
    return folder


def arms_of(*places):
    return group(find_runs(places))


def drawn(*places):
    (chart,) = ablation.charts(arms_of(*places))
    return chart


def value(chart, noise, criteria, metric):
    return chart.data.row(by_predicate=pl.all_horizontal(
        pl.col("noise") == noise, pl.col("criteria") == criteria, pl.col("metric") == metric
    ), named=True)  # fmt: skip


def test_accuracy_and_coverage_are_over_all_visits_after_warmup(tmp_path):
    chart = drawn(write_grid(tmp_path))
    runs = [tmp_path / f"active-both-{seed}" for seed in (1, 2)]
    right, covered = [], []
    for run in runs:
        labels = scan_labels(run).filter(pl.col("visit") > WARMUP).collect()
        selected = labels.filter("is_selected")
        covered.append(len(selected) / len(labels))
        right.append((selected["effective_label"] == selected["true_answer"]).sum() / len(selected))
    found = value(chart, "active 0.5", "both", "coverage")
    assert (found["mean"], found["runs"]) == (pytest.approx(sum(covered) / 2), 2)
    found = value(chart, "active 0.5", "both", "selection_accuracy")
    assert found["mean"] == pytest.approx(sum(right) / 2)
    assert found["sd"] == pytest.approx(abs(right[0] - right[1]) / 2**0.5)


def test_fewer_criteria_cover_more(tmp_path):
    chart = drawn(write_grid(tmp_path))
    both, none = (
        value(chart, "inactive 0.5", name, "coverage")["mean"] for name in ("both", "every majority")
    )
    assert both < none


def test_a_row_of_panels_a_noise_and_a_bar_a_choice_with_grpo_in_the_scores_alone(tmp_path):
    chart = drawn(write_grid(tmp_path))
    panels = chart.figure.axes
    assert len(panels) == 6
    assert [len(axes.patches) for axes in panels] == [4, 4, 5] * 2
    assert [label.get_text() for label in panels[0].get_yticklabels()] == [*CRITERIA, "without OLR"]
    assert panels[2].get_title("left").strip() == "(c) Held-out accuracy"
    assert [axes.texts[-1].get_text() for axes in (panels[0], panels[3])] == ["active 0.5", "inactive 0.5"]
    metrics = chart.data.filter(criteria="without OLR")["metric"].unique().to_list()
    assert metrics == ["eval/avg"]
    width = chart.figure.axes[0].patches[0].get_width()
    assert width == pytest.approx(value(chart, "active 0.5", "both", "selection_accuracy")["mean"])


def test_benchmark_scores_are_shown_in_place_of_held_out_accuracy(tmp_path):
    write_grid(tmp_path, noises=("active",))
    for run in tmp_path.iterdir():
        write_evaluated(run / "evaluation" / "step-000010", NINE, step=10)
    chart = drawn(tmp_path)
    titles = [axes.get_title("left").strip() for axes in chart.figure.axes]
    assert titles[2:] == ["(c) ID score", "(d) OOD score"]
    ours = value(chart, "active 0.5", "slope alone", "out")
    assert ours["mean"] == pytest.approx(sum(list(NINE.values())[6:]) / 3)


def test_without_true_answers_coverage_is_still_shown(tmp_path):
    chart = drawn(write_grid(tmp_path, noises=("active",), knows_truth=False))
    assert "selection_accuracy" not in chart.data["metric"]
    assert "coverage" in chart.data["metric"]
    assert "truth unknown" in " ".join(text.get_text() for text in chart.figure.axes[0].texts)


def test_runs_that_differ_in_more_than_the_criteria_are_not_compared(tmp_path):
    write_history(tmp_path / "both", method=olr(["slope", "consistency"]), **SMALL)
    assert "method.criteria" in ablation.lacking(arms_of(tmp_path))
    write_history(tmp_path / "other", method=olr(["slope"], slope_threshold=0.1), **SMALL)
    assert ablation.lacking(arms_of(tmp_path)) is not None
    write_history(tmp_path / "slope", method=olr(["slope"]), **SMALL)
    assert ablation.lacking(arms_of(tmp_path)) is None
    assert drawn(tmp_path).data["criteria"].unique(maintain_order=True).to_list() == ["both", "slope alone"]


def test_the_same_noise_on_two_policies_is_two_rows_that_are_told_apart(tmp_path):
    for policy in ("easier", "harder"):
        for criteria in (["slope"], []):
            run = write_history(tmp_path / f"{policy}{len(criteria)}", method=olr(criteria), **SMALL)
            recipe = run / "recipe.yaml"
            recipe.write_text(recipe.read_text().replace("addition-easier", f"addition-{policy}"))
    names = drawn(tmp_path).data["noise"].unique(maintain_order=True).to_list()
    assert names == ["active 0.5 path=builtin:addition-easier", "active 0.5 path=builtin:addition-harder"]
