"""Arms compared: paired by seed, with the interval that scipy gives."""

import json

import pytest
from cases import each, refusal
from histories import SMALL, arms_of, write_history
from rendered import in_full, rendered
from scipy import stats

from olr_cli import tables
from olr_cli.analysis.arms import relabel
from olr_cli.analysis.frame import difference, recovered
from olr_cli.analysis.outcomes import TITLES
from olr_cli.analysis.tables.arms_table import arms_table
from olr_cli.errors import UserError
from olr_cli.runs.store import scan_labels
from olr_cli.supervision.metrics import label_metrics
from olr_cli.tables import Cell

VALUES, BASELINE = (
    {1: 0.61, 2: 0.58, 3: 0.66, 5: 0.63},
    {5: 0.60, 3: 0.59, 2: 0.57, 1: 0.55, 9: 0.99},
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arms")
    for seed in (1, 2, 3):
        write_history(
            folder / f"a-grpo-{seed}",
            arm="grpo",
            method={"name": "grpo"},
            seed=seed,
            **SMALL,
        )
        write_history(folder / f"b-olr-{seed}", arm="olr", seed=seed, **SMALL)
    write_history(
        folder / "c-clean-1",
        arm="clean",
        noise=None,
        method={"name": "grpo"},
        seed=1,
        **SMALL,
    )
    write_history(folder / "d-other-7", arm="other", noise="inactive", seed=7, **SMALL)
    return folder


def compared(folder, baseline=None):
    return arms_table(arms_of(folder), baseline)


@pytest.fixture(scope="module")
def table(folder):
    return compared(folder)


def line(table, metric, arm):
    (found,) = (row for row in table.rows if (row["metric"], row["arm"]) == (metric, arm))
    return found


def test_the_paired_interval_is_scipys_whatever_order_the_seeds_come_in():
    change = difference(VALUES, BASELINE)
    paired = stats.ttest_rel([*VALUES.values()], [BASELINE[seed] for seed in VALUES])
    assert (change.n, change.value) == (4, pytest.approx(0.0425))
    assert change.ends == pytest.approx(tuple(paired.confidence_interval(0.95)))
    assert change == difference(dict(reversed(VALUES.items())), BASELINE)


def test_one_pair_has_no_interval_equal_ones_one_of_no_width_and_none_no_difference():
    assert difference({1: 0.6}, {1: 0.5, 2: 0.7}) == Cell(pytest.approx(0.1), "points", n=1)
    equal = Cell(0.25, "points", ends=(0.25, 0.25), n=2)
    assert difference({1: 0.75, 2: 0.5}, {1: 0.5, 2: 0.25}) == equal
    assert difference({1: 0.6}, {2: 0.5}) is None


def test_the_share_of_the_gap_is_the_ratio_of_means_over_the_seeds_that_all_three_have():
    plain, best = {1: 0.50, 2: 0.52, 3: 0.60, 9: 0.1}, {1: 0.90, 2: 0.92, 3: 0.91, 8: 0.5}
    share = recovered({1: 0.70, 2: 0.72, 3: 0.80, 4: 0.99}, plain, best)
    assert (share.n, share.value) == (3, pytest.approx(0.6 / 1.11))
    assert share.low < share.value < share.high
    proportional = {
        seed: plain[seed] + (best[seed] - plain[seed]) / 2 for seed in (1, 2, 3)
    }
    assert recovered(proportional, plain, best).ends == pytest.approx((0.5, 0.5))
    assert recovered({1: 0.7}, plain, best) == Cell(pytest.approx(0.5), n=1)
    assert recovered({1: 0.7}, {1: 0.51}, {1: 0.55}) is None, "a gap of four points"
    assert recovered({4: 0.7}, plain, best) is None


def test_with_a_reference_a_method_is_compared_with_its_plain_arm(folder):
    labels = ["grpo=noisy", "olr=noisy+olr"]
    table = arms_table(relabel(arms_of(folder), labels), None, "clean")
    method, plain = (line(table, "eval/avg", arm) for arm in ("noisy+olr", "noisy"))
    alone = line(compared(folder), "eval/avg", "olr")
    assert (method["difference"], method["pairs"]) == (alone["difference"], 3)
    assert plain["pairs"] == 1, "the plain arm itself is compared with the reference"
    gap = (
        line(table, "eval/avg", "clean")["mean"]
        - line(compared(folder, "clean"), "eval/avg", "grpo")["mean"]
    )
    assert (method["recovered"] is None) == (gap < 0.05)
    assert "recovered" not in alone
    for reference, baseline, sentence in (
        ("noisy+olr", None, "no arm is named after another one"),
        ("clean", "noisy", "leave one of them out"),
        ("claen", None, r"reference.*did you mean 'clean'"),
    ):
        with pytest.raises(UserError, match=sentence):
            arms_table(relabel(arms_of(folder), labels), baseline, reference)


def test_means_are_of_the_last_logged_values_and_of_those_of_the_last_epoch(folder, table):
    ends = []
    for seed in (1, 2, 3):
        run = folder / f"b-olr-{seed}"
        lines = [
            json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()
        ]
        assert lines[-1]["eval/avg"] != lines[0]["eval/avg"]
        ends.append(lines[-1] | label_metrics(scan_labels(run).collect().filter(visit=4)))
    for metric in TITLES:
        values, shown = [end[metric] for end in ends], line(table, metric, "olr")
        assert (shown["n"], shown["mean"]) == (3, pytest.approx(sum(values) / 3))
        assert shown["sd"] == pytest.approx(stats.tstd(values), abs=1e-9)


def test_arms_are_compared_to_the_first_or_to_the_one_named(folder, table):
    assert [line(table, "eval/avg", arm)["baseline"] for arm in ("grpo", "olr")] == [
        None,
        "grpo",
    ]
    assert line(table, "eval/avg", "grpo")["difference"] is None
    forth = line(table, "label/effective_noise", "olr")
    back = line(compared(folder, "olr"), "label/effective_noise", "grpo")
    assert (forth["difference"], forth["pairs"]) == (pytest.approx(-back["difference"]), 3)
    assert "(did you mean 'clean'?" in refusal(compared, folder, "claen")


def test_a_value_that_does_not_exist_is_left_out(table, tmp_path):
    assert line(table, "majority/accuracy_noisy", "clean")["n"] == 0
    assert line(table, "label/selected_accuracy", "grpo")["mean"] is None
    assert line(table, "eval/avg", "clean")["sd"] is None
    assert line(table, "eval/avg", "other")["difference"] is None
    write_history(tmp_path / "run", noise=None, method={"name": "grpo"}, **SMALL)
    metrics = {row["metric"] for row in compared(tmp_path).rows}
    assert metrics == {"eval/avg", "label/effective_noise"}


def test_the_terminal_has_a_block_a_metric_and_documents_a_row_an_arm(table):
    olr = {
        key: 100 * value
        for key, value in line(table, "eval/avg", "olr").items()
        if key in ("mean", "sd")
    }
    mean, sd = (f"{olr[key]:.1f}" for key in ("mean", "sd"))
    change = line(table, "eval/avg", "olr")
    ends = "[{:+.1f}, {:+.1f}]".format(*(100 * change[key] for key in ("low", "high")))
    change = f"{100 * change['difference']:+.1f}"
    text = rendered(table)
    assert all(title in text for title in TITLES.values())
    (first,) = (
        row
        for row in text.split("majority accuracy")[0].splitlines()
        if row.startswith("olr")
    )
    assert first.split() == f"olr 3 {mean} {sd} {change} {ends}".split()
    lines = tables.markdown(table).splitlines()
    assert [row.split(" | ")[0] for row in lines[2:6]] == [
        "| grpo",
        "| olr",
        "| clean",
        "| other",
    ]
    assert lines[3].startswith(f"| olr | 3 | {mean} ± {sd} ({change} {ends}) |")
    assert "±" in lines[2] and "(" not in lines[2], (
        "the baseline has no difference to itself"
    )


def test_long_arm_names_wrap_in_80_columns(tmp_path):
    for threshold in (0.02, 0.1):
        method = {"name": "olr", "slope_threshold": threshold, "warmup_epochs": 3}
        write_history(
            tmp_path / str(threshold), arm="a_long_name_" * 5, method=method, **SMALL
        )
    assert "a_long_name" in rendered(compared(tmp_path))


def test_footnotes_say_what_cannot_be_said(table):
    assert "One seed gives no sd and no interval: train more seeds." in table.footnotes
    assert "other has no seed in common with grpo: no paired difference." in table.footnotes


def test_a_footnote_says_which_arms_are_measured_on_other_questions(tmp_path):
    for arm, test in (
        ("one", "arithmetic"),
        ("same", "arithmetic"),
        ("other", "arithmetic:subtraction"),
    ):
        run = write_history(tmp_path / arm, arm=arm, data={"test": test}, **SMALL)
        (run / "metrics.jsonl").write_text(
            json.dumps({"step": 4, "epoch": 2, "eval/avg": 0.5}) + "\n"
        )
    said = [note for note in compared(tmp_path).footnotes if "is measured on" in note]
    assert len(said) == 1 and said[0].startswith(
        "other is measured on arithmetic:subtraction, one on arithmetic:"
    )


@each("baseline, reference", (None, None), ("olr", None), (None, "clean"))
def test_arms_are_compared_in_every_format_as_they_always_were(
    folder, baseline, reference, is_as_stored
):
    """`--rewrite` writes them anew; look at the change before you keep it."""
    names = ["grpo=active", "olr=active+olr"]
    arms = relabel(arms_of(folder), names) if reference else arms_of(folder)
    table = arms_table(arms, baseline, reference)
    is_as_stored(f"tables/arms-{baseline}-{reference}.txt", in_full(table))
