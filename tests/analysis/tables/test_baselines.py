"""The paper's table of baselines: rows in its order, ours beside the published, and what a reader must know."""

import csv
from decimal import Decimal
from pathlib import Path

import pytest
from paper_runs import NINE, OLR, row, table_of, write_evaluated, write_grid, write_run
from rendered import rendered
from scipy import stats

from olr_cli import tables
from olr_cli.analysis.arms import find_runs, group
from olr_cli.analysis.tables.layouts import LAYOUTS
from olr_cli.analysis.tables.paper import OTHERS
from olr_cli.errors import UserError
from olr_cli.evaluation.benchmark import PAPER
from olr_cli.evaluation.published import RESULTS

GOLDEN = Path(__file__).parents[2] / "fixtures" / "tables" / "baselines.md"
"""Written by `write_golden` below; look at the change before you keep it."""


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    return write_grid(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def table(grid):
    return table_of(grid)


def test_rows_stand_as_in_the_paper_and_then_what_it_has_not(table):
    noisy = [
        "GRPO",
        "Confidence Penalty",
        "Label Smoothing",
        "Small-loss Selection",
        "Random Selection",
        "OLR",
    ]
    unsupervised = ["TTRL", "Co-Reward", "Self-Certainty", "Token Entropy", "Sequence Entropy"]
    assert [(each.block, each.name) for each in table.rows] == [
        ("", "before training"),
        *(("Unsupervised methods", name) for name in unsupervised),
        *(("Active noise 0.5", name) for name in noisy),
        *(("Inactive noise 0.5", name) for name in noisy),
        (OTHERS, "GRPO, active 0.25"),
        (OTHERS, "OLR, active 0.25"),
        (OTHERS, "OLR + Confidence Penalty, active 0.5"),
    ]


def test_published_numbers_are_the_papers_cells_and_what_follows_from_them(table):
    with RESULTS.open(encoding="utf-8") as lines:
        cells = [line for line in csv.DictReader(lines) if line["table"] == "baselines"]

    def mean(method, noise, names):
        found = [
            Decimal(cell["score"])
            for cell in cells
            if (cell["method"], cell["noise_type"]) == (method, noise) and cell["benchmark"] in names
        ]
        assert len(found) == len(names)
        return float(sum(found) / len(found) / 100)

    for column, names in (("in", PAPER[:6]), ("out", PAPER[6:])):
        shown = [each for each in table.rows if each.published]
        assert len(shown) == 18
        for each in shown:
            method, noise = each.setting.method, each.setting.noise_type or ""
            published = each.published[column]
            assert published.value == pytest.approx(mean(method, noise, names))
            compared = noise and method != "grpo"
            expected = mean(method, noise, names) - mean("grpo", noise, names) if compared else None
            difference = published.change and published.change.value
            assert difference == (expected and pytest.approx(expected))


def test_means_are_over_seeds_and_differences_are_to_grpo_of_the_same_noise(tmp_path):
    ends = {"grpo": (0.5, 0.53, 0.52), "random_selection": (0.41, 0.47, 0.45)}
    for method, values in ends.items():
        for seed, end in enumerate(values):
            write_run(tmp_path / f"{method}{seed}", method, end, seed=seed)
            write_run(tmp_path / f"in-{method}{seed}", method, 0.9, seed=seed, noise="inactive")
    table = table_of(tmp_path)
    cell = row(table, "Random Selection", "Active noise 0.5").cells["eval/avg"]
    assert cell.value == pytest.approx(sum(ends["random_selection"]) / 3)
    assert cell.sd == pytest.approx(stats.tstd(ends["random_selection"]))
    interval = stats.ttest_rel(ends["random_selection"], ends["grpo"]).confidence_interval(0.95)
    assert cell.change.ends == pytest.approx(tuple(interval))
    assert row(table, "GRPO", "Active noise 0.5").cells["eval/avg"].change is None
    assert row(table, "Random Selection", "Inactive noise 0.5").cells["eval/avg"].change.value == 0


def test_unsupervised_rows_have_no_difference_and_rows_not_in_the_paper_have_one_to_grpo_of_their_noise(
    table,
):
    assert row(table, "TTRL").cells["eval/avg"].change is None
    low = row(table, "OLR, active 0.25").cells["eval/avg"].change
    assert low.value == pytest.approx(0.7 - 0.615)
    mix, own = row(table, "OLR + Confidence Penalty, active 0.5"), row(table, "GRPO", "Active noise 0.5")
    assert mix.cells["eval/avg"].change.value == pytest.approx(0.8 - own.cells["eval/avg"].value)
    assert mix.published == {}


def test_unsupervised_runs_count_once_whatever_noise_their_data_carry(tmp_path):
    write_run(tmp_path / "a", "ttrl", noise="inactive", ratio=0.25)
    assert [each.name for each in table_of(tmp_path).rows if each.arm][1:] == ["TTRL"]
    write_run(tmp_path / "b", "ttrl", noise="active")
    write_run(tmp_path / "c", "ttrl", noise=None)
    names = [each.name for each in table_of(tmp_path).rows if each.arm][1:]
    assert names == ["TTRL (inactive 0.25)", "TTRL (active 0.5)", "TTRL (no marked labels)"]


def test_several_arms_of_one_row_are_told_apart_by_their_settings_or_names(tmp_path):
    for weight in (0.001, 0.01):
        write_run(tmp_path / f"{weight}", {"name": "confidence_penalty", "penalty_weight": weight})
    names = [each.name for each in table_of(tmp_path).rows if each.arm][1:]
    assert names == ["Confidence Penalty (penalty_weight=0.001)", "Confidence Penalty (penalty_weight=0.01)"]
    for arm in ("one", "other"):
        write_run(tmp_path / "named" / arm, arm=arm)
    assert [each.name for each in table_of(tmp_path / "named").rows if each.arm][1:] == [
        "GRPO (one)",
        "GRPO (other)",
    ]


def test_runs_of_several_policies_are_compared_within_each(tmp_path):
    for policy, shift in (("easier", 0.0), ("harder", -0.2)):
        for method, end in (("grpo", 0.6), ("random_selection", 0.5)):
            run = write_run(tmp_path / f"{policy}-{method}", method, end + shift, start=0.4 + shift)
            recipe = run / "recipe.yaml"
            recipe.write_text(recipe.read_text().replace("addition-easier", f"addition-{policy}"))
    table = table_of(tmp_path)
    starts = [
        (each.name, each.cells["eval/avg"].value) for each in table.rows if each.setting.method == "base"
    ]
    assert starts == [
        ("before training (path=builtin:addition-easier)", 0.4),
        ("before training (path=builtin:addition-harder)", pytest.approx(0.2)),
    ]
    changes = [
        each.cells["eval/avg"].change for each in table.rows if each.label == "Random Selection" and each.arm
    ]
    assert [change.value for change in changes] == [pytest.approx(-0.1)] * 2


def test_a_marked_file_of_about_half_counts_as_the_papers_half(tmp_path):
    run = write_run(tmp_path / "run", ratio=0.48, prompts=25, prompts_per_step=25)
    recipe = run / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("  ratio: 0.48\n", ""))
    assert row(table_of(tmp_path), "GRPO", "Active noise 0.5").arm == "active 0.48 grpo"


def test_before_training_is_step_0_a_value_a_seed(tmp_path):
    for seed, starts in ((1, (0.4, 0.42)), (2, (0.5,))):
        for number, start in enumerate(starts):
            write_run(tmp_path / f"{seed}{number}", ("grpo", "ttrl")[number], seed=seed, start=start)
    start = row(table_of(tmp_path), "before training").cells["eval/avg"]
    assert (start.value, start.n) == (pytest.approx((0.41 + 0.5) / 2), 2)


def test_runs_that_end_below_their_own_start_are_counted(tmp_path):
    for seed, (start, end) in enumerate([(0.4, 0.3), (0.4, 0.4), (0.4, 0.5), (None, 0.1)]):
        write_run(tmp_path / str(seed), "token_entropy", end, start=start, seed=seed)
    assert row(table_of(tmp_path), "Token Entropy").below_start == (1, 3)


def test_arms_without_a_common_seed_have_no_difference_and_are_named(tmp_path):
    write_run(tmp_path / "one", "grpo", seed=1)
    write_run(tmp_path / "other", "random_selection", seed=2)
    table = table_of(tmp_path)
    assert row(table, "Random Selection", "Active noise 0.5").cells["eval/avg"].change is None
    named = "active 0.5 random_selection has no seed in common with active 0.5 grpo: no paired difference."
    assert named in table.notes


def test_what_is_missing_is_empty_and_named(grid, tmp_path, table):
    assert "No runs of unsupervised methods: Co-Reward." in table.notes
    write_run(tmp_path / "run", end=None)
    (tmp_path / "run" / "metrics.jsonl").write_text("")
    notes = table_of(tmp_path).notes
    assert "No value of GRPO, active noise 0.5." in notes
    assert "No value of before training." in notes
    (missing,) = (note for note in notes if note.startswith("No runs of"))
    assert missing.count("Random Selection") == 2 and "active noise 0.5: Confidence Penalty" in missing


def departures(*methods, tmp_path):
    for number, method in enumerate(methods):
        write_run(tmp_path / str(number), method)
    return list(LAYOUTS["baselines"].departures(group(find_runs([tmp_path]))))


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ({"name": "sequence_entropy"}, ["score_reduction: mean", "Agarwal et al. (2025)", "rewards length"]),
        ({"name": "sequence_entropy", "score_reduction": "sum"}, ["rewards length"]),
        ({"name": "token_entropy"}, ["score_reduction: mean", "Token Entropy", "rewards length"]),
        ({"name": "token_entropy", "score_reduction": "sum"}, ["rewards length"]),
        ({"name": "self_certainty"}, ["over response tokens only"]),
        ({"name": "small_loss_selection"}, ["abs(mean over response tokens of A log pi_old)"]),
        ({"name": "co_reward"}, ["twice as many", "not in the authors' code"]),
        ({"name": "confidence_penalty"}, ["not in the authors' code"]),
        (OLR | {"penalty_weight": 0.1}, ["confidence penalty is not in the authors' code"]),
        ({"name": "label_smoothing"}, ["does not give its weight"]),
        ({"name": "grpo"}, []),
    ],
    ids=str,
)
def test_departures_are_said_of_the_methods_that_are_shown(tmp_path, method, words):
    notes = departures(method, tmp_path=tmp_path)
    assert bool(notes) == bool(words)
    assert all(word in " ".join(notes) for word in words)
    if method.get("score_reduction") == "sum":
        assert "score_reduction" not in " ".join(notes)


def test_benchmark_scores_win_over_held_out_accuracy(tmp_path):
    run = write_run(tmp_path / "runs" / "a")
    write_evaluated(run / "evaluation" / "step-000010", {"aime24": 0.9}, step=10)
    write_evaluated(run / "evaluation" / "step-000020", NINE, step=20)
    write_evaluated(run / "evaluation" / "step-000030", {"arithmetic": 0.5}, step=30)
    write_run(tmp_path / "runs" / "b", "random_selection")
    model = write_evaluated(tmp_path / "base", dict.fromkeys(PAPER, 0.1))
    table = table_of(tmp_path / "runs", models=[model])
    cells = row(table, "GRPO", "Active noise 0.5").cells
    assert {name: cells[name].value for name in PAPER} == pytest.approx(NINE)
    assert cells["in"].value == pytest.approx(sum(list(NINE.values())[:6]) / 6)
    assert row(table, "before training").cells["out"].value == pytest.approx(0.1)
    assert any("what `olr evaluate` left in the runs" in note for note in table.notes)
    assert "No value of Random Selection, active noise 0.5." in table.notes
    assert any(
        note.startswith("Ours are of builtin:addition-easier, 4 prompts: levels do not")
        for note in table.notes
    )


def test_a_mean_needs_all_of_its_benchmarks(tmp_path):
    run = write_run(tmp_path / "run")
    write_evaluated(run / "evaluation" / "step-000001", {name: NINE[name] for name in PAPER[1:]}, step=1)
    table = table_of(tmp_path)
    cells = row(table, "GRPO", "Active noise 0.5").cells
    assert "in" not in cells and cells["out"].value is not None
    assert "No value of GRPO, active noise 0.5 in AIME24, the ID mean." in table.notes
    assert any("name its evaluation too" in note for note in table.notes)


def test_scores_that_do_not_compare_are_named(tmp_path):
    for name, problems, samples, step in (("a", 10, 1, 3), ("b", 10, 2, 4)):
        run = write_run(tmp_path / name, "ttrl" if name == "b" else "grpo")
        (run / "checkpoints" / "step-000004").mkdir(parents=True)
        folder = run / "evaluation" / f"step-00000{step}"
        write_evaluated(folder, {"amc": 0.5}, step=step, problems=problems, samples=samples)
    notes = " ".join(table_of(tmp_path).notes)
    assert "AMC: only some of the problems were scored" in notes
    assert "AMC: not all runs were scored on the same number of problems and samples." in notes
    assert f"The scores of {tmp_path / 'a'} are of step 3; its last checkpoint is of step 4." in notes
    assert f"scores of {tmp_path / 'b'}" not in notes


def test_damaged_scores_and_a_runs_own_evaluation_in_place_of_a_model_are_refused(tmp_path):
    run = write_run(tmp_path / "run")
    folder = write_evaluated(run / "evaluation" / "step-000001", NINE, step=1)
    with pytest.raises(UserError, match="is the evaluation of a run's checkpoint; name the run itself"):
        table_of(run, models=[folder])
    (folder / "scores.json").write_text('{"name": "x"}')
    with pytest.raises(UserError, match=r"scores.json is damaged; `olr evaluate --regrade"):
        table_of(run)
    (folder / "scores.json").unlink()
    with pytest.raises(UserError, match="has no scores yet"):
        table_of(run, models=[folder])


def test_a_model_that_was_scored_on_its_own_task_alone_is_refused(tmp_path):
    run = write_run(tmp_path / "run")
    model = write_evaluated(tmp_path / "model", {"arithmetic": 0.5})
    with pytest.raises(
        UserError, match=r"has scores on none of the paper's benchmarks \(aime24, .*leave it out"
    ):
        table_of(run, models=[model])


def test_the_terminal_table_fits_80_columns_without_cutting_anything(table):
    (line,) = (line for line in rendered(table.table()).splitlines() if "-17.4" in line and "22.9" in line)
    cell = row(table, "Small-loss Selection", "Active noise 0.5").cells["eval/avg"]
    mean, sd, change = (100 * value for value in (cell.value, cell.sd, cell.change.value))
    low, high = (100 * end for end in cell.change.ends)
    numbers = f"2 {mean:.1f} ± {sd:.1f} {change:+.1f} [{low:+.1f}, {high:+.1f}] 2/2 18.1 -17.4 22.9 -26.2"
    assert " ".join(line.split()).endswith(numbers)


def test_with_nine_benchmarks_the_papers_line_is_below_ours(tmp_path):
    run = write_run(tmp_path / "run")
    write_evaluated(run / "evaluation" / "step-000001", NINE, step=1)
    lines = rendered(table_of(tmp_path).table(), 200).splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("Active noise")) + 1
    assert lines[place].split()[:5] == ["GRPO", "1", "20.0", "25.0", "30.0"]
    assert lines[place + 1].split()[:4] == ["paper", "10.4", "8.8", "45.8"]


def golden(folder):
    return tables.markdown((table_of(folder)).table()) + "\n"


def write_golden(folder):
    """For a developer, when the layout is to change: from the made-up grid, written to an empty folder."""
    GOLDEN.write_text(golden(write_grid(folder)), encoding="utf-8")


def test_the_markdown_table_is_laid_out_as_the_golden_one(grid):
    assert golden(grid) == GOLDEN.read_text(encoding="utf-8")


def test_the_data_have_a_line_a_row_and_column(table):
    lines = {(line["method"], line["noise"], line["column"]): line for line in table.table().data["rows"]}
    line, cell = (
        lines["olr", "active 0.5", "eval/avg"],
        row(table, "OLR", "Active noise 0.5").cells["eval/avg"],
    )
    assert (line["n"], line["mean"], line["low"]) == (2, cell.value, cell.change.ends[0])
    assert (line["published"], line["below_start"], line["below_start_of"]) == (None, 0, 2)
    line = lines["olr", "active 0.5", "in"]
    assert (line["n"], line["mean"], round(100 * line["published"], 1)) == (0, None, 41.9)
