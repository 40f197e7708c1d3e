"""The paper's tables: rows in its order, ours beside the published, and what a reader must know."""

import csv
from pathlib import Path

import pytest
from histories import arms_of
from paper_runs import NINE, OLR, row, table_of, write_evaluated, write_grid, write_run
from rendered import in_full, rendered
from scipy import stats

from olr_cli import tables
from olr_cli.analysis.tables import PAPER_TABLES
from olr_cli.analysis.tables.paper import OTHERS, PaperTable, departures
from olr_cli.errors import UserError
from olr_cli.evaluation.benchmark import PAPER
from olr_cli.evaluation.published import RESULTS

GOLDEN = Path(__file__).parents[2] / "fixtures" / "tables" / "baselines.md"
"""Written by `write_golden` below; look at the change before you keep it."""

ACTIVE, INACTIVE = "Active noise 0.5", "Inactive noise 0.5"


def olr(threshold="0.02", warmup=3, **others):
    return {"name": "olr", "slope_threshold": threshold, "warmup_epochs": warmup, **others}


def names(table, block):
    return [each.name for each in table.rows if each.block == block]


def ours(table):
    """The names of the rows with runs, but for the policy before training."""
    return [each.name for each in table.rows if each.arm and each.setting.method != "base"]


def held_out(table, label, block=None):
    return row(table, label, block).cells["eval/avg"]


def change(table, label, block=None):
    """The difference of held-out accuracy, in points; None if there is none."""
    difference = held_out(table, label, block).change
    return difference and round(100 * difference.value, 1)


def policy(run, name):
    """The same run of another policy."""
    recipe = run / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("builtin:addition-easier", name))
    return run


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    return write_grid(tmp_path_factory.mktemp("grid"))


@pytest.fixture(scope="module")
def table(grid):
    return table_of(grid)


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """A run with scores on the paper's nine benchmarks."""
    run = write_run(tmp_path_factory.mktemp("scored") / "run")
    write_evaluated(run / "evaluation" / "step-000001", NINE, step=1)
    return run


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Two seeds of GRPO and of OLR with thresholds of the paper and of ours."""
    folder = tmp_path_factory.mktemp("sweep")
    for seed in (1, 2):
        for noise, lift in (("active", 0.0), ("inactive", 0.1)):
            write_run(
                folder / f"{noise}-grpo-{seed}", "grpo", 0.5 + lift, seed=seed, noise=noise
            )
            for threshold, end in (
                ("0.1", 0.55),
                ("0.02", 0.7),
                ("0.05", 0.65),
                ("0.01", 0.6),
            ):
                run = folder / f"{noise}-{threshold}-{seed}"
                write_run(
                    run, olr(threshold), end + lift + 0.01 * seed, seed=seed, noise=noise
                )
    return folder


# Rows and published scores --------------------------------------------------------------------------------------------


def test_the_tables_are_those_of_the_published_scores():
    with RESULTS.open(encoding="utf-8") as lines:
        assert (
            tuple(dict.fromkeys(line["table"] for line in csv.DictReader(lines)))
            == PAPER_TABLES
        )


@pytest.mark.parametrize("name", PAPER_TABLES)
def test_rows_and_published_numbers_are_the_papers_in_its_order(name, scored):
    table = table_of(scored, name=name)
    with RESULTS.open(encoding="utf-8") as lines:
        cells = [line for line in csv.DictReader(lines) if line["table"] == name]
    shown = [each.published for each in table.rows if each.published]
    scores = [published[benchmark].brief for published in shown for benchmark in PAPER]
    assert scores == [cell["score"] for cell in cells]


def test_rows_are_called_by_what_the_table_varies(scored):
    table = table_of(scored, name="noise_ratios")
    by_ratio = [
        f"{name} at 0.{ratio}" for ratio in (1, 3, 5, 7, 9) for name in ("GRPO", "OLR")
    ]
    assert names(table, "Inactive noise") == names(table, "Active noise") == by_ratio
    deltas = [
        f"OLR at delta {delta}" for delta in ("0.0", "0.025", "0.05", "0.075", "0.1", "0.2")
    ]
    assert names(table_of(scored, name="slope_sensitivity"), ACTIVE) == ["GRPO", *deltas]
    assert names(table_of(scored, name="qwen3_8b"), INACTIVE) == ["GRPO", "OLR"]


def test_ours_that_the_paper_has_not_come_after_its_rows(table):
    others = [
        "GRPO, active 0.25",
        "OLR, active 0.25",
        "OLR + Confidence Penalty, active 0.5",
    ]
    assert names(table, OTHERS) == others
    assert row(table, "OLR + Confidence Penalty, active 0.5").published == {}


def test_thresholds_that_the_paper_has_not_come_after_it_in_their_order(sweep):
    table = table_of(sweep, name="slope_sensitivity")
    noises = ("active 0.5", "inactive 0.5")
    expected = [
        f"OLR, {noise}, delta {delta}" for noise in noises for delta in ("0.01", "0.02")
    ]
    assert names(table, OTHERS) == expected
    assert held_out(table, "OLR at delta 0.05", ACTIVE).value == pytest.approx(0.665)
    assert change(table, expected[-1]) == 21.5, "to GRPO under the same noise"
    lines = [
        line
        for line in table.table().rows
        if (line["method"], line["noise"], line["column"])
        == ("olr", "active 0.5", "eval/avg")
    ]
    runs = {"0.05": 2, "0.1": 2, "0.01": 2, "0.02": 2}
    assert {line["slope_threshold"]: line["n"] for line in lines if line["n"]} == runs


def test_warmups_are_counted_as_epochs_that_keep_the_label_and_named_as_printed(tmp_path):
    for warmup in (4, 3, 2, 5):
        write_run(tmp_path / str(warmup), olr("0.05", warmup), 0.5 + 0.01 * warmup)
    table = table_of(tmp_path, name="warmup_sensitivity")
    assert {
        each.name: each.cells["eval/avg"].brief for each in table.rows if each.cells
    } == {
        "before training": "40.0",
        "OLR at T = 3 (printed 2)": "53.0",
        "OLR at T = 5 (printed 4)": "55.0",
        "OLR, active 0.5, T = 2": "52.0",
        "OLR, active 0.5, T = 4": "54.0",
    }
    published = row(table, "OLR at T = 5 (printed 4)", ACTIVE).published["in"]
    assert (published.brief, published.change.brief) == ("41.9", "+6.4")


def test_runs_of_other_sizes_and_policies_do_not_stand_in_the_papers_rows(tmp_path):
    for method in ("grpo", olr()):
        write_run(tmp_path / str(len(method)), method)
    trained = ["GRPO, active 0.5", "OLR, active 0.5"]
    scale, model = table_of(tmp_path, name="scale_4k"), table_of(tmp_path, name="qwen3_8b")
    assert names(scale, OTHERS) == [
        "before training",
        *(f"{name}, 4 prompts" for name in trained),
    ]
    others = [f"{name}, builtin:addition-easier" for name in ("before training", *trained)]
    assert names(model, OTHERS) == others
    assert row(model, "before training", "").cells == {}
    assert change(model, others[-1]) == 0


def test_runs_of_the_papers_policy_stand_in_its_rows_with_their_start(tmp_path):
    runs = [
        write_run(tmp_path / name, method)
        for name, method in (("g", "grpo"), ("o", olr("0.05", 5)))
    ]
    for run in runs:
        policy(run, "Qwen/Qwen3-8B-Base")
        write_evaluated(run / "evaluation" / "step-000001", NINE, step=1)
    start = write_evaluated(
        tmp_path / "base", dict.fromkeys(PAPER, 0.1), name="Qwen/Qwen3-8B-Base"
    )
    table = table_of(*runs, models=[start], name="qwen3_8b")
    assert row(table, "before training", "").cells["in"].value == pytest.approx(0.1)
    assert row(table, "OLR", ACTIVE).cells["in"].change.value == 0
    assert names(table, OTHERS) == []


def test_unsupervised_runs_count_once_whatever_noise_their_data_carry(tmp_path):
    write_run(tmp_path / "a", "ttrl", noise="inactive", ratio=0.25)
    assert ours(table_of(tmp_path)) == ["TTRL"]
    write_run(tmp_path / "b", "ttrl", noise="active")
    write_run(tmp_path / "c", "ttrl", noise=None)
    noises = ("inactive 0.25", "active 0.5", "no marked labels")
    assert ours(table_of(tmp_path)) == [f"TTRL ({noise})" for noise in noises]


def test_runs_with_other_labels_or_rewards_have_rows_of_their_own(tmp_path):
    verifier = {"false_negative_rate": "0.3"}
    for seed in (1, 2):
        write_run(tmp_path / f"g{seed}", "grpo", 0.6, seed=seed)
        write_run(tmp_path / f"v{seed}", "grpo", 0.4, seed=seed, verifier=verifier)
        write_run(tmp_path / f"o{seed}", OLR, 0.5, seed=seed, verifier=verifier)
        section = OLR | {"majority_graded_by": "verifier"}
        write_run(tmp_path / f"b{seed}", section, 0.45, seed=seed, verifier=verifier)
        write_run(
            tmp_path / f"s{seed}",
            {"name": "token_entropy", "score_reduction": "sum"},
            0.3,
            seed=seed,
        )
    table = table_of(tmp_path)
    assert held_out(table, "GRPO", ACTIVE).brief == "60.0"
    methods = ("GRPO", "OLR + graded by the verifier", "OLR")
    others = [f"{method}, active 0.5, verifier FN 0.3" for method in methods]
    assert names(table, OTHERS) == ["Token Entropy + sum", *others]
    assert [change(table, name) for name in others] == [None, 5, 10], (
        "to GRPO with the same verifier"
    )
    lines = [
        line
        for line in table.table().rows
        if line["noise"] == "active 0.5, verifier FN 0.3"
    ]
    assert {line["method"] for line in lines} == {"grpo", "olr+graded_by_verifier", "olr"}


def test_several_arms_of_one_row_are_told_apart_by_their_settings_or_names(tmp_path):
    for weight in (0.001, 0.01):
        write_run(
            tmp_path / f"{weight}", {"name": "confidence_penalty", "penalty_weight": weight}
        )
    assert ours(table_of(tmp_path)) == [
        f"Confidence Penalty (penalty_weight={weight})" for weight in (0.001, 0.01)
    ]
    for arm in ("one", "other"):
        write_run(tmp_path / "named" / arm, arm=arm)
    assert ours(table_of(tmp_path / "named")) == ["GRPO (one)", "GRPO (other)"]


# Values and differences -----------------------------------------------------------------------------------------------


def test_means_are_over_seeds_and_differences_are_to_grpo_of_the_same_noise(tmp_path):
    ends = {"grpo": (0.5, 0.53, 0.52), "random_selection": (0.41, 0.47, 0.45)}
    for method, values in ends.items():
        for seed, end in enumerate(values):
            write_run(tmp_path / f"{method}{seed}", method, end, seed=seed)
            write_run(
                tmp_path / f"in-{method}{seed}", method, 0.9, seed=seed, noise="inactive"
            )
    table = table_of(tmp_path)
    cell = held_out(table, "Random Selection", ACTIVE)
    assert cell.value == pytest.approx(sum(ends["random_selection"]) / 3)
    assert cell.sd == pytest.approx(stats.tstd(ends["random_selection"]))
    interval = stats.ttest_rel(ends["random_selection"], ends["grpo"]).confidence_interval(
        0.95
    )
    assert cell.change.ends == pytest.approx(tuple(interval))
    assert change(table, "GRPO", ACTIVE) is None
    assert change(table, "Random Selection", INACTIVE) == 0


def test_unsupervised_rows_have_no_difference_and_rows_not_in_the_paper_one_to_grpo_of_their_noise(
    table,
):
    assert change(table, "TTRL") is None
    assert change(table, "OLR, active 0.25") == 8.5
    assert change(table, "OLR + Confidence Penalty, active 0.5") == 29.3


def test_the_ablation_compares_with_olr_under_both_criteria(tmp_path):
    methods = {
        "both": olr(),
        "consistency": olr(criteria=["consistency"]),
        "none": olr(criteria=[]),
    }
    ends = {"both": 0.7, "consistency": 0.72, "none": 0.6, "grpo": 0.5, "ttrl": 0.55}
    for seed in (1, 2):
        for name, end in ends.items():
            write_run(tmp_path / f"{name}{seed}", methods.get(name, name), end, seed=seed)
    table = table_of(tmp_path, name="ablation")
    shown = (
        "OLR",
        "OLR without slope",
        "OLR, every majority, active 0.5",
        "GRPO, active 0.5",
        "TTRL",
    )
    blocks = (ACTIVE, ACTIVE, None, None, None)
    assert [*map(change, [table] * 5, shown, blocks)] == [None, 2.0, -10.0, -20.0, None]
    assert row(table, "OLR without slope", ACTIVE).published["in"].change.brief == "-4.9"
    assert any(
        note.startswith("Differences are to OLR with both criteria") for note in table.notes
    )
    heads = [column.full for column in table.table().blocks[0].columns]
    assert "to OLR [95 %]" in heads and "to GRPO [95 %]" not in heads


def test_runs_of_several_policies_are_compared_within_each(tmp_path):
    for name, shift in (("easier", 0.0), ("harder", -0.2)):
        for method, end in (("grpo", 0.6), ("random_selection", 0.5)):
            run = write_run(
                tmp_path / f"{name}-{method}", method, end + shift, start=0.4 + shift
            )
            policy(run, f"builtin:addition-{name}")
    table = table_of(tmp_path)
    starts = {
        each.name: each.cells["eval/avg"].brief
        for each in table.rows
        if each.setting.method == "base"
    }
    before = "before training (path=builtin:addition-{})".format
    assert starts == {before("easier"): "40.0", before("harder"): "20.0"}
    compared = [
        each.cells["eval/avg"]
        for each in table.rows
        if each.label == "Random Selection" and each.arm
    ]
    assert [cell.change.brief for cell in compared] == ["-10.0", "-10.0"]


def test_before_training_is_step_0_a_value_a_seed(tmp_path):
    for seed, starts in ((1, (0.4, 0.42)), (2, (0.5,))):
        for method, start in zip(("grpo", "ttrl"), starts, strict=False):
            write_run(tmp_path / f"{method}{seed}", method, seed=seed, start=start)
    start = held_out(table_of(tmp_path), "before training")
    assert (start.value, start.n) == (pytest.approx((0.41 + 0.5) / 2), 2)


def test_runs_that_end_below_their_own_start_are_counted(tmp_path):
    for seed, (start, end) in enumerate([(0.4, 0.3), (0.4, 0.4), (0.4, 0.5), (None, 0.1)]):
        write_run(tmp_path / str(seed), "token_entropy", end, start=start, seed=seed)
    assert row(table_of(tmp_path), "Token Entropy").below_start == (1, 3)


def test_benchmark_scores_win_over_held_out_accuracy(tmp_path):
    run = write_run(tmp_path / "runs" / "a")
    for step, scores in ((10, {"aime24": 0.9}), (20, NINE), (30, {"arithmetic": 0.5})):
        write_evaluated(run / "evaluation" / f"step-{step:06}", scores, step=step)
    write_run(tmp_path / "runs" / "b", "random_selection")
    model = write_evaluated(tmp_path / "base", dict.fromkeys(PAPER, 0.1))
    table = table_of(tmp_path / "runs", models=[model])
    cells = row(table, "GRPO", ACTIVE).cells
    assert {name: cells[name].value for name in PAPER} == pytest.approx(NINE)
    assert cells["in"].value == pytest.approx(sum(list(NINE.values())[:6]) / 6)
    assert row(table, "before training").cells["out"].value == pytest.approx(0.1)
    notes = " ".join(table.notes)
    assert "what `olr evaluate` left in the runs" in notes
    assert "No value of Random Selection, active noise 0.5." in notes


def test_a_mean_needs_all_of_its_benchmarks(tmp_path):
    run = write_run(tmp_path / "run")
    write_evaluated(
        run / "evaluation" / "step-000001", {name: NINE[name] for name in PAPER[1:]}, step=1
    )
    table = table_of(tmp_path)
    assert {"in", "out"} & row(table, "GRPO", ACTIVE).cells.keys() == {"out"}
    assert any("name its evaluation too" in note for note in table.notes)


# Notes and refusals ---------------------------------------------------------------------------------------------------


def test_arms_without_a_common_seed_have_no_difference_and_are_named(tmp_path):
    write_run(tmp_path / "one", "grpo", seed=1)
    write_run(tmp_path / "other", "random_selection", seed=2)
    table = table_of(tmp_path)
    assert change(table, "Random Selection", ACTIVE) is None
    named = "active 0.5 random_selection has no seed in common with active 0.5 grpo: no paired difference."
    assert named in table.notes


def test_what_is_missing_is_empty_and_named(tmp_path, table):
    assert "No runs of unsupervised methods: Co-Reward." in table.notes
    (write_run(tmp_path / "run") / "metrics.jsonl").write_text("")
    notes = table_of(tmp_path).notes
    assert {"No value of GRPO, active noise 0.5.", "No value of before training."} <= set(
        notes
    )
    (missing,) = (note for note in notes if note.startswith("No runs of"))
    assert (
        missing.count("Random Selection") == 2
        and "active noise 0.5: Confidence Penalty" in missing
    )


def test_a_note_says_where_methods_depart_from_their_sources(tmp_path):
    arms = [
        OLR | {"criteria": ["slope"]},
        OLR | {"penalty_weight": 0.1},
        {"name": "grpo"},
        {"name": "ttrl"},
    ]
    for place, method in enumerate(arms):
        write_run(tmp_path / str(place), method)
        notes = departures(arms_of(tmp_path / str(place)), "")
        assert any("docs/methods.md" in note for note in notes) is (place == 1)


def test_settings_that_are_not_the_papers_are_named_but_not_what_the_table_varies(tmp_path):
    write_run(tmp_path / "run", olr("0.02", 3))
    write_run(tmp_path / "papers" / "run", olr("0.05", 5))

    def departures(name, folder="run"):
        return [
            note
            for note in table_of(tmp_path / folder, name=name).notes
            if "in ours and" in note
        ]

    delta = "OLR's slope_threshold (delta) is 0.02 in ours and 0.05 in the paper."
    warmup = "OLR's warmup_epochs (T) is 3 in ours and 5 in the paper."
    assert departures("noise_ratios") == [delta, warmup]
    assert departures("slope_sensitivity") == [warmup]
    assert departures("warmup_sensitivity") == [delta]
    assert departures("ablation", "papers") == []


def test_scores_that_do_not_compare_are_named(tmp_path):
    for name, method, samples, step in (("a", "grpo", 1, 3), ("b", "ttrl", 2, 4)):
        run = write_run(tmp_path / name, method)
        folder = run / "evaluation" / f"step-00000{step}"
        write_evaluated(folder, {"amc": 0.5}, step=step, problems=10, samples=samples)
    notes = " ".join(table_of(tmp_path).notes)
    assert "AMC: only some of the problems were scored" in notes
    assert (
        "AMC: not all runs were scored on the same number of problems and samples." in notes
    )


def test_evaluations_that_do_not_belong_there_are_refused(tmp_path):
    run = write_run(tmp_path / "run")
    folder = write_evaluated(run / "evaluation" / "step-000001", NINE, step=1)
    other = write_evaluated(tmp_path / "model", {"arithmetic": 0.5})
    for place, words in (
        (folder, "is the evaluation of a run's checkpoint; name the run itself"),
        (other, r"on none of the paper's benchmarks \(aime24, .*leave it out"),
    ):
        with pytest.raises(UserError, match=words):
            table_of(run, models=[place])
    (folder / "scores.json").write_text('{"name": "x"}')
    with pytest.raises(UserError, match=r"scores.json is damaged; `olr regrade"):
        table_of(run)


# How it is printed ----------------------------------------------------------------------------------------------------


def test_the_terminal_table_fits_80_columns_without_cutting_anything(table):
    (line,) = (
        line
        for line in rendered(table.table()).splitlines()
        if "-17.4" in line and "22.9" in line
    )
    cell = held_out(table, "Small-loss Selection", ACTIVE)
    assert " ".join(line.split()).endswith(
        f"2 {cell.full} {cell.change.full} 2/2 18.1 -17.4 22.9 -26.2"
    )


def test_with_nine_benchmarks_the_papers_line_is_below_ours(scored):
    lines = rendered(table_of(scored).table(), 200).splitlines()
    place = (
        next(number for number, line in enumerate(lines) if line.startswith("Active noise"))
        + 1
    )
    assert lines[place].split()[:5] == ["GRPO", "1", "20.0", "25.0", "30.0"]
    assert lines[place + 1].split()[:4] == ["paper", "10.4", "8.8", "45.8"]


def golden(folder):
    return tables.markdown(table_of(folder).table()) + "\n"


def write_golden(folder):
    """For a developer, when the layout is to change: from the made-up grid, written to an empty folder."""
    GOLDEN.write_text(golden(write_grid(folder)), encoding="utf-8")


def test_the_markdown_table_is_laid_out_as_the_golden_one(grid):
    assert golden(grid) == GOLDEN.read_text(encoding="utf-8")


def test_latex_is_plain_text_in_balanced_braces(sweep):
    latex = tables.latex(table_of(sweep, name="slope_sensitivity").table())
    assert latex.count("{") == latex.count("}")
    assert {sign for sign in latex if not sign.isascii()} <= {"±"}


def test_the_data_have_a_line_a_row_and_column(table):
    rows = table.table().rows
    assert len(rows) == 3 * len(table.rows)
    lines = {(line["method"], line["noise"], line["column"]): line for line in rows}
    line, cell = lines["olr", "active 0.5", "eval/avg"], held_out(table, "OLR", ACTIVE)
    assert (line["n"], line["mean"], line["low"]) == (2, cell.value, cell.change.ends[0])
    assert (line["published"], line["below_start"], line["below_start_of"]) == (None, 0, 2)
    line = lines["olr", "active 0.5", "in"]
    assert (line["n"], line["mean"], round(100 * line["published"], 1)) == (0, None, 41.9)


@pytest.mark.parametrize(
    ("runs", "name", "with_published"),
    [
        ("grid", "baselines", False),
        ("grid", "noise_ratios", True),
        ("sweep", "slope_sensitivity", True),
        ("scored", "llama_8b", True),
        ("scored", "ablation", False),
    ],
)
def test_tables_say_in_every_format_what_they_always_said(
    runs, name, with_published, request, is_as_stored
):
    """`--rewrite` writes them anew; look at the change before you keep it."""
    arms = arms_of(request.getfixturevalue(runs))
    paper = PaperTable(name, arms, with_published=with_published)
    is_as_stored(f"tables/{name}-{runs}.txt", in_full(paper.table()))
