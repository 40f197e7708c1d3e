"""Arms compared: paired by seed, with the interval that scipy gives."""

import io
import json

import pytest
from histories import write_history
from rich.console import Console
from scipy import stats

from olr_cli import tables
from olr_cli.analysis.arms import find_runs, group
from olr_cli.analysis.frame import Difference, difference
from olr_cli.analysis.tables import arms as arms_table
from olr_cli.errors import UserError
from olr_cli.runs.store import scan_labels
from olr_cli.supervision.metrics import label_metrics

SMALL = {"prompts": 20, "prompts_per_step": 10, "epochs": 4, "store_rollouts": False}
OWN, BASELINE = {1: 0.61, 2: 0.58, 3: 0.66, 5: 0.63}, {5: 0.60, 3: 0.59, 2: 0.57, 1: 0.55, 9: 0.99}


def arms_below(folder):
    return group(find_runs([folder]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arms")
    for seed in (1, 2, 3):
        write_history(folder / f"a-grpo-{seed}", arm="grpo", method={"name": "grpo"}, seed=seed, **SMALL)
        write_history(folder / f"b-olr-{seed}", arm="olr", seed=seed, **SMALL)
    write_history(folder / "c-clean-1", arm="clean", noise=None, method={"name": "grpo"}, seed=1, **SMALL)
    write_history(folder / "d-other-7", arm="other", noise="inactive", seed=7, **SMALL)
    return folder


@pytest.fixture(scope="module")
def table(folder):
    return arms_table.compare(arms_below(folder))


def row(table, metric, arm):
    (found,) = (row for row in table.rows if (row.metric, row.arm) == (metric, arm))
    return found


def test_the_paired_interval_is_scipys():
    found = difference(OWN, BASELINE)
    seeds = sorted(OWN)
    paired = stats.ttest_rel([OWN[s] for s in seeds], [BASELINE[s] for s in seeds])
    low, high = paired.confidence_interval(0.95)
    assert found is not None
    assert (found.pairs, found.mean) == (4, pytest.approx(0.0425))
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_seeds_are_paired_whatever_order_they_come_in():
    assert difference(OWN, BASELINE) == difference(dict(reversed(OWN.items())), BASELINE)


def test_one_pair_has_a_difference_but_no_interval_and_none_has_neither():
    assert difference({1: 0.6}, {1: 0.5, 2: 0.7}) == Difference(1, pytest.approx(0.1), None, None)
    assert difference({1: 0.6}, {2: 0.5}) is None


def test_equal_differences_have_an_interval_of_no_width():
    found = difference({1: 0.75, 2: 0.5}, {1: 0.5, 2: 0.25})
    assert found == Difference(2, 0.25, 0.25, 0.25)


def test_values_are_the_last_logged_and_those_of_the_last_epoch(folder, table):
    found = row(table, "eval/avg", "olr").values
    for seed in (1, 2, 3):
        run = folder / f"b-olr-{seed}"
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert found[seed] == lines[-1]["eval/avg"] != lines[0]["eval/avg"]
        last = label_metrics(scan_labels(run).collect().filter(visit=4))
        for metric in arms_table.COUNTED:
            assert row(table, metric, "olr").values[seed] == pytest.approx(last[metric])


def test_arms_are_compared_to_the_first_or_to_the_one_named(folder, table):
    assert table.baseline == "grpo"
    assert row(table, "eval/avg", "grpo").difference is None
    forth = row(table, "label/effective_noise", "olr").difference
    back = row(arms_table.compare(arms_below(folder), "olr"), "label/effective_noise", "grpo").difference
    assert forth.mean == pytest.approx(-back.mean)
    assert forth.pairs == 3
    with pytest.raises(UserError, match=r"no such arm \(did you mean 'clean'\?"):
        arms_table.compare(arms_below(folder), "claen")


def test_a_value_that_does_not_exist_is_left_out(table):
    assert row(table, "majority/accuracy_noisy", "clean").values == {}
    assert row(table, "label/selected_accuracy", "grpo").mean is None
    assert row(table, "eval/avg", "clean").sd is None
    assert row(table, "eval/avg", "other").difference is None


def test_a_metric_without_any_value_has_no_rows(tmp_path):
    write_history(tmp_path / "run", noise=None, method={"name": "grpo"}, **SMALL)
    metrics = {row.metric for row in arms_table.compare(arms_below(tmp_path)).rows}
    assert metrics == {"eval/avg", "label/effective_noise"}


def test_the_terminal_table_fits_80_columns_and_shows_every_arm_and_metric(table):
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(tables.terminal(table.table()))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    for title in table.titles.values():
        assert title in text
    olr = row(table, "eval/avg", "olr")
    (line,) = (line for line in text.split("majority accuracy")[0].splitlines() if line.startswith("olr"))
    change = olr.difference
    assert line.split() == [
        "olr",
        "3",
        f"{100 * olr.mean:.1f}",
        f"{100 * olr.sd:.1f}",
        f"{100 * change.mean:+.1f}",
        f"[{100 * change.low:+.1f},",
        f"{100 * change.high:+.1f}]",
    ]


def test_long_arm_names_wrap_in_80_columns(tmp_path):
    for threshold in (0.02, 0.1):
        method = {"name": "olr", "slope_threshold": threshold, "warmup_epochs": 3}
        write_history(tmp_path / str(threshold), arm="a_long_name_" * 5, method=method, **SMALL)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(tables.terminal(arms_table.compare(arms_below(tmp_path)).table()))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text


def test_documents_have_a_line_an_arm(table):
    lines = tables.markdown(table.table()).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:6]] == ["| grpo", "| olr", "| clean", "| other"]
    olr, change = row(table, "eval/avg", "olr"), row(table, "eval/avg", "olr").difference
    ends = f"[{100 * change.low:+.1f}, {100 * change.high:+.1f}]"
    cell = f"{100 * olr.mean:.1f} ± {100 * olr.sd:.1f} ({100 * change.mean:+.1f} {ends})"
    assert lines[3].startswith(f"| olr | 3 | {cell} |")
    assert "±" in lines[2] and "(" not in lines[2], "the baseline has no difference to itself"


def test_the_data_hold_every_number(table):
    rows = table.table().data["rows"]
    assert len(rows) == 4 * 4
    (olr,) = (r for r in rows if r["metric"] == "eval/avg" and r["arm"] == "olr")
    assert olr["mean"] == row(table, "eval/avg", "olr").mean
    assert olr["low"] == row(table, "eval/avg", "olr").difference.low
    assert [r["difference"] for r in rows if r["arm"] == "grpo"] == [None] * 4


def test_footnotes_say_what_cannot_be_said(table):
    notes = list(table.table().footnotes)
    assert "One seed gives no sd and no interval: train more seeds." in notes
    assert "other has no seed in common with grpo: no paired difference." in notes
