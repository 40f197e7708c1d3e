"""The score over a key: which runs are compared, what is counted of them, and panels without such runs."""

import polars as pl
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from histories import drawn, write_history
from paper_runs import NINE, write_evaluated, write_run

from olr_cli.analysis.frame import Lack
from olr_cli.errors import UserError
from olr_cli.runs.store import scan_labels

SMALL = {"prompts": 20, "prompts_per_step": 10, "epochs": 5, "store_rollouts": False}
WARMUP = 3
CRITERIA = {
    "both": ["slope", "consistency"],
    "consistency alone": ["consistency"],
    "slope alone": ["slope"],
    "every majority": [],
}


def olr(threshold=0.02, warmup=1, **others):
    return {"name": "olr", "slope_threshold": threshold, "warmup_epochs": warmup, **others}


def chosen(*criteria):
    return olr(warmup=WARMUP, criteria=list(criteria))


def refused(figure, *places):
    with pytest.raises(Lack) as lack:
        drawn(figure, *places)
    return str(lack.value)


def titles(chart):
    return [axes.get_title("left").strip() for axes in chart.figure.axes]


def texts(axes):
    return [text.get_text() for text in axes.texts]


def names_of(chart, column="series"):
    return chart.data[column].unique(maintain_order=True).to_list()


# Sensitivity


def write_sweep(folder, warmups=(1, 2)):
    for noise, lift in (("active", 0.0), ("inactive", 0.1)):
        for seed in (1, 2):
            write_run(
                folder / f"{noise}-grpo-{seed}", "grpo", 0.4 + lift, seed=seed, noise=noise
            )
            sections = [*map(olr, (0.1, 0.0)), *(olr(warmup=warmup) for warmup in warmups)]
            for place, section in enumerate(sections):
                end = 0.5 + 0.1 * place + lift + 0.02 * seed
                write_run(
                    folder / f"{noise}-{place}-{seed}", section, end, seed=seed, noise=noise
                )
    return folder


THRESHOLD, WARMUPS = "over-method.slope_threshold", "over-method.warmup_epochs"


def line(chart, noise, metric="eval/avg"):
    rows = chart.data.filter(pl.col("value").is_not_null(), series=noise, metric=metric)
    return dict(zip(rows["value"], rows["mean"], strict=True))


def test_lines_are_means_over_seeds_beside_the_level_of_grpo(tmp_path):
    chart = drawn(THRESHOLD, write_sweep(tmp_path))
    assert titles(chart) == ["(a) Held-out accuracy"]
    assert chart.figure.axes[0].get_xlabel() == "slope threshold δ"
    assert line(chart, "active 0.5") == pytest.approx({0.0: 0.63, 0.02: 0.73, 0.1: 0.53})
    assert line(drawn(WARMUPS, tmp_path), "inactive 0.5") == pytest.approx(
        {1: 0.83, 2: 0.93}
    )
    first = chart.data.row(0, named=True)
    assert (first["runs"], first["sd"]) == (2, pytest.approx(0.02 / 2**0.5))
    grpo = chart.data.filter(pl.col("value").is_null()).select("series", "mean").rows()
    assert grpo == [
        ("active 0.5", pytest.approx(0.4)),
        ("inactive 0.5", pytest.approx(0.5)),
    ]
    axes = chart.figure.axes[0]
    named = ["active 0.5", "inactive 0.5"]
    assert texts(axes) == [*named, *(f"{name},\nwithout OLR" for name in named)]
    dashed = [level.get_ydata()[0] for level in axes.lines if level.get_linestyle() == "--"]
    assert dashed == pytest.approx([0.4, 0.5])


def test_panels_are_of_both_kinds_of_benchmarks_where_runs_have_scores(tmp_path):
    for run in write_sweep(tmp_path).iterdir():
        write_evaluated(run / "evaluation" / "step-000001", NINE, step=1)
    chart = drawn(WARMUPS, tmp_path)
    assert titles(chart) == ["(a) ID score", "(b) OOD score"]
    expected = sum(list(NINE.values())[:6]) / 6
    assert line(chart, "active 0.5", "in") == pytest.approx({1: expected, 2: expected})


def test_points_of_different_seeds_are_not_joined_and_each_says_of_how_many_runs_it_is(
    tmp_path,
):
    def figure(seeds_at_half):
        folder = tmp_path / str(len(seeds_at_half)) / str(seeds_at_half[0])
        for ratio, seeds in ((0.3, (1, 2)), (0.5, seeds_at_half)):
            for seed in seeds:
                write_run(
                    folder / f"{ratio}-{seed}",
                    olr(),
                    0.9 - ratio + seed / 100,
                    ratio=ratio,
                    seed=seed,
                )
        return drawn("over-noise.ratio", folder)

    def joined(chart):
        return next(
            line.get_linestyle()
            for line in chart.figure.axes[0].lines
            if len(line.get_xdata()) == 2
        )

    paired, others, fewer = figure((1, 2)), figure((3, 4)), figure((2,))
    assert [joined(chart) for chart in (paired, others, fewer)] == ["-", "None", "None"]
    assert paired.caption == "Means of 2 runs; dots: single runs."
    assert (
        others.caption
        == "Means of 2 runs; dots: single runs. Points of different seeds are not joined."
    )
    assert others.data["seeds"].to_list() == ["1 2", "3 4"]
    assert {"n=1", "n=2"} <= {*texts(fewer.figure.axes[0])} and "n=2" not in texts(
        others.figure.axes[0]
    )


def test_arms_that_differ_in_name_alone_are_one_point(tmp_path):
    for arm, ratio, seed in (
        ("low", 0.3, 1),
        ("high", 0.5, 1),
        ("", 0.3, 2),
        ("again", 0.3, 1),
    ):
        write_run(
            tmp_path / f"{arm}{seed}", olr(), ratio * seed, ratio=ratio, seed=seed, arm=arm
        )
    rows = drawn("over-noise.ratio", tmp_path).data.select("value", "mean", "seeds").rows()
    assert rows == [(0.3, pytest.approx(0.45), "1 2"), (0.5, 0.5, "1")]


def test_arms_are_compared_with_a_dot_a_run(tmp_path):
    for arm, kind in (("grpo", {"name": "grpo"}), ("olr", chosen("slope"))):
        for seed in (1, 2, 3):
            write_history(
                tmp_path / f"{arm}-{seed}", arm=arm, method=kind, seed=seed, **SMALL
            )
    chart = drawn("arms", tmp_path)
    panel = next(
        axes for axes in chart.figure.axes if "Effective noise" in axes.get_title("left")
    )
    for place, arm in enumerate(["grpo", "olr"]):
        values = chart.data.filter(arm=arm, metric="label/effective_noise")[
            "value"
        ].to_list()
        assert len(values) == 3
        dots = next(line for line in panel.lines if list(line.get_ydata()) == [place] * 3)
        assert list(dots.get_xdata()) == values
        assert panel.texts[place].get_text() == f"{100 * sum(values) / 3:.1f}"
    assert "Each dot is a run (3 per arm)" in chart.caption
    assert "several arms" in refused("arms", tmp_path / "olr-1")


def test_runs_that_differ_in_more_than_one_setting_make_no_line(tmp_path):
    write_run(tmp_path / "one", olr(0.02, 1))
    write_run(tmp_path / "other", olr(0.05, 2))
    assert "method.slope_threshold" in refused(THRESHOLD, tmp_path)
    write_run(tmp_path / "third", olr(0.05, 1))
    assert list(line(drawn(THRESHOLD, tmp_path), "active 0.5")) == [0.02, 0.05]
    assert list(line(drawn(WARMUPS, tmp_path), "active 0.5")) == [1, 2]
    for threshold in (0.02, 0.05):
        write_run(tmp_path / f"idle/{threshold}", olr(threshold, criteria=["consistency"]))
    assert refused(THRESHOLD, tmp_path / "idle"), (
        "without the slope a threshold decides nothing"
    )


# Ablation


def write_choices(folder, noises=("active",), seeds=(1,), **others):
    for noise in noises:
        for seed in seeds:
            methods = {name: chosen(*criteria) for name, criteria in CRITERIA.items()}
            for name, method in (methods | {"grpo": {"name": "grpo"}}).items():
                path = folder / f"{noise}-{name.replace(' ', '-')}-{seed}"
                write_history(path, method=method, noise=noise, seed=seed, **SMALL | others)
    return folder


@pytest.fixture(scope="module")
def choices(tmp_path_factory):
    return write_choices(tmp_path_factory.mktemp("choices"), ("active", "inactive"), (1, 2))


@pytest.fixture(scope="module")
def bars(choices):
    return drawn("over-method.criteria", choices)


def value(chart, noise, criteria, metric):
    return chart.data.filter(series=noise, value=criteria, metric=metric).row(0, named=True)


def test_accuracy_and_coverage_are_over_all_visits_after_warmup(choices, bars):
    right, covered = [], []
    for run in (choices / f"active-both-{seed}" for seed in (1, 2)):
        labels = scan_labels(run).filter(pl.col("visit") > WARMUP).collect()
        selected = labels.filter("is_selected")
        covered.append(len(selected) / len(labels))
        right.append(
            (selected["effective_label"] == selected["true_answer"]).sum() / len(selected)
        )
    coverage = value(bars, "active 0.5", "both", "coverage")
    assert (coverage["mean"], coverage["runs"]) == (pytest.approx(sum(covered) / 2), 2)
    accuracy = value(bars, "active 0.5", "both", "selection_accuracy")
    assert accuracy["mean"] == pytest.approx(sum(right) / 2)
    assert accuracy["sd"] == pytest.approx(abs(right[0] - right[1]) / 2**0.5)
    means = [
        value(bars, "inactive 0.5", name, "coverage")["mean"]
        for name in ("both", "every majority")
    ]
    assert means[0] < means[1]


def test_verified_prompts_which_no_method_selects_are_left_out_of_coverage(tmp_path):
    folder = write_choices(tmp_path)
    for shard in (folder / "active-both-1" / "labels").iterdir():
        table = pq.read_table(shard)
        source = pc.if_else(table["is_selected"], table["label_source"], "verified")
        place = table.column_names.index("label_source")
        pq.write_table(
            table.set_column(place, "label_source", source).cast(table.schema), shard
        )
    assert (
        value(drawn("over-method.criteria", folder), "active 0.5", "both", "coverage")[
            "mean"
        ]
        == 1
    )


def test_a_row_of_panels_a_noise_and_a_bar_a_choice_with_grpo_in_the_scores_alone(bars):
    panels = bars.figure.axes
    assert [len(axes.patches) for axes in panels] == [4, 4, 5] * 2
    assert [label.get_text() for label in panels[0].get_yticklabels()] == [
        *CRITERIA,
        "without OLR",
    ]
    assert titles(bars)[2] == "(c) Held-out accuracy"
    assert [texts(axes)[-1] for axes in (panels[0], panels[3])] == [
        "active 0.5",
        "inactive 0.5",
    ]
    assert bars.data.filter(value="without OLR")["metric"].unique().to_list() == [
        "eval/avg"
    ]
    width = panels[0].patches[0].get_width()
    assert width == pytest.approx(
        value(bars, "active 0.5", "both", "selection_accuracy")["mean"]
    )


def test_benchmark_scores_are_shown_in_place_of_held_out_accuracy(tmp_path):
    for run in write_choices(tmp_path).iterdir():
        write_evaluated(run / "evaluation" / "step-000010", NINE, step=10)
    chart = drawn("over-method.criteria", tmp_path)
    assert titles(chart)[2:] == ["(c) ID score", "(d) OOD score"]
    score = value(chart, "active 0.5", "slope alone", "out")
    assert score["mean"] == pytest.approx(sum(list(NINE.values())[6:]) / 3)


def test_without_true_answers_coverage_is_still_shown(tmp_path):
    chart = drawn("over-method.criteria", write_choices(tmp_path, knows_truth=False))
    assert titles(chart) == ["(a) Coverage", "(b) Held-out accuracy"]


def test_runs_that_differ_in_more_than_the_criteria_are_not_compared(tmp_path):
    write_history(tmp_path / "both", method=chosen("slope", "consistency"), **SMALL)
    assert "method.criteria" in refused("over-method.criteria", tmp_path)
    write_history(
        tmp_path / "other", method=chosen("slope") | {"slope_threshold": 0.1}, **SMALL
    )
    assert refused("over-method.criteria", tmp_path)
    write_history(tmp_path / "slope", method=chosen("slope"), **SMALL)
    assert names_of(drawn("over-method.criteria", tmp_path), "value") == [
        "both",
        "slope alone",
    ]


def test_the_same_noise_on_two_policies_is_two_rows_that_are_told_apart(tmp_path):
    for policy in ("easier", "harder"):
        for criteria in (("slope",), ()):
            run = write_history(
                tmp_path / f"{policy}{len(criteria)}", method=chosen(*criteria), **SMALL
            )
            recipe = run / "recipe.yaml"
            recipe.write_text(
                recipe.read_text().replace("addition-easier", f"addition-{policy}")
            )
    names = [
        f"active 0.5 path=builtin:addition-{policy}" for policy in ("easier", "harder")
    ]
    assert names_of(drawn("over-method.criteria", tmp_path)) == names


# Over any key


def test_methods_are_drawn_over_the_noise_ratio_a_panel_a_number_of_verified_labels(
    tmp_path,
):
    for verified in (None, 2):
        for ratio in (0.25, 0.75):
            for method, lift in (("grpo", 0.0), ("ttrl", 0.1)):
                end = 0.9 - ratio + lift + 0.05 * bool(verified)
                place = tmp_path / f"{verified}-{ratio}-{method}"
                write_run(place, method, end, ratio=ratio, data={"verified": verified})
    write_run(tmp_path / "alone", olr(), 0.5)
    chart = drawn("over-noise.ratio", tmp_path)
    assert titles(chart) == ["(a) none verified", "(b) 2 verified labels"]
    rows = chart.data.filter(panel="2 verified labels", series="TTRL")
    assert rows.select("value", "mean").rows() == [
        (0.25, pytest.approx(0.8)),
        (0.75, pytest.approx(0.3)),
    ]
    assert names_of(chart) == ["GRPO", "TTRL"]
    assert "noise.ratio" in refused("over-noise.ratio", tmp_path / "alone")


def test_methods_of_one_name_are_lines_that_their_settings_tell_apart(tmp_path):
    for ratio in (0.25, 0.75):
        for threshold in (0.02, 0.1):
            write_run(
                tmp_path / f"{ratio}-{threshold}",
                olr(threshold),
                0.9 - ratio + threshold,
                ratio=ratio,
            )
    chart = drawn("over-noise.ratio", tmp_path)
    assert names_of(chart) == ["OLR slope_threshold=0.02", "OLR slope_threshold=0.1"]
    for name, lift in zip(names_of(chart), (0.02, 0.1), strict=True):
        rows = chart.data.filter(series=name).select("value", "mean").rows()
        assert rows == [
            (0.25, pytest.approx(0.65 + lift)),
            (0.75, pytest.approx(0.15 + lift)),
        ]
    assert [len(line.get_xdata()) for line in chart.figure.axes[0].lines] == [2, 2]
    assert texts(chart.figure.axes[0]) == [
        "OLR slope\nthreshold=0.02",
        "OLR slope\nthreshold=0.1",
    ]


def test_the_score_is_drawn_over_any_key_numbers_as_lines_and_names_as_bars(tmp_path):
    for epochs in (2, 3):
        for policy in ("easier", "harder"):
            run = write_run(
                tmp_path / f"{epochs}-{policy}",
                {"name": "grpo"},
                epochs / 10,
                epochs=epochs,
            )
            recipe = run / "recipe.yaml"
            recipe.write_text(
                recipe.read_text().replace("addition-easier", f"addition-{policy}")
            )
    lines, bars = drawn("over-train.epochs", tmp_path), drawn("over-model.path", tmp_path)
    assert (lines.name, lines.figure.axes[0].get_xlabel()) == (
        "over-train.epochs",
        "train.epochs",
    )
    assert lines.data.select("value", "mean").rows() == [(2, 0.2), (3, 0.3)] * 2
    assert sorted(names_of(bars, "value")) == [
        "builtin:addition-easier",
        "builtin:addition-harder",
    ]
    assert [len(axes.patches) for axes in bars.figure.axes] == [2, 2]
    assert "runs that differ in noise.ratio, and in nothing else" in refused(
        "over-noise.ratio", tmp_path
    )
    with pytest.raises(
        UserError, match=r"over: there is no 'noise.rato' \(did you mean 'noise.ratio'"
    ):
        drawn("over-noise.rato", tmp_path)
