"""The theory's quantities, counted from handmade rollouts where the right values can be counted by hand."""

from dataclasses import fields
from itertools import chain
from math import exp, log

import polars as pl
import pytest
from decisions import columns
from histories import write_history

from benchmarks.theory.measure import (
    followed_labels,
    gap_bin,
    gap_titles,
    has_noisy_labels,
    measure,
    measure_run,
    selections,
)
from olr_cli.analysis.arms import find_runs, group
from olr_cli.answers.graded import SENTINEL
from olr_cli.runs.store import RunStore
from olr_cli.supervision.types import LabelRecord, RolloutRecord

OLR = {"name": "olr", "slope_threshold": 0.02, "warmup_epochs": 1}


def visit(prompt, number, answers, label, *, kind="active", selected=False):
    """A visit's records; the true answer is "1", and `answers` are one letter a rollout, "-" for none."""
    counts = {answer: answers.count(answer) for answer in set(answers) - {"-"}}
    top = max(counts.values())
    tops = [answer for answer, count in counts.items() if count == top]
    majority = tops[0] if len(tops) == 1 else None
    effective = majority if selected else label if label is not None else "1"
    place = {"prompt_id": prompt, "visit": number, "step": number}
    label_of_visit = {
        "noise_type": kind, "true_answer": "1", "noisy_label": label,
        "noisy_label_count": None if label is None else counts.get(label, 0),
        "true_answer_count": counts.get("1", 0), "majority_answer": majority,
        "majority_count": top if majority else 0, "rollouts": len(answers),
        "answered": len(answers) - answers.count("-"), "is_selected": selected, "effective_label": effective,
        "label_source": "majority" if selected else "noisy", "majority_is_correct": majority == "1",
        "effective_label_is_correct": effective == "1",
        **dict.fromkeys(("pass_rate", "slope", "reward_mean"), 0.0),
        **dict.fromkeys(("is_consistent", "has_zero_variance", "trains"), False),
    }  # fmt: skip
    rollouts = [
        {
            "sample": sample,
            "response": text,
            "answer": None if text == "-" else text,
            "reward": 0.0,
        }
        for sample, text in enumerate(answers)
    ]
    for rollout in rollouts:
        answer = rollout["answer"]
        rollout |= {"view": "original", "answer_class": answer, "is_correct": answer == "1"}
    of_rollouts = [record(RolloutRecord, place | rollout) for rollout in rollouts]
    return record(LabelRecord, place | label_of_visit), of_rollouts


def record(kind, known):
    return kind(**{field.name: known.get(field.name) for field in fields(kind)})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of these visits alone."""
    visits = [
        visit("a", 1, "1122", "2"), visit("a", 2, "1112", "2", selected=True),
        visit("a", 3, "1111", SENTINEL, selected=True), visit("b", 1, "133-", "3"),
        visit("b", 2, "2221", "2", selected=True), visit("b", 3, "3311", "3"), visit("c", 1, "1111", SENTINEL),
        visit("c", 2, "1144", "4"), visit("c", 3, "4444", "4"), visit("d", 1, "1111", None, kind="clean"),
        visit("d", 2, "1222", None, kind="clean", selected=True), visit("d", 3, "1112", None, kind="clean"),
    ]  # fmt: skip
    place = tmp_path_factory.mktemp("theory") / "run"
    write_history(place, prompts=4, epochs=3, method=OLR, rollouts=4)
    for shard in place.glob("*/*.parquet"):
        shard.unlink()
    for number in (1, 2, 3):
        labels, rollouts = zip(
            *(pair for pair in visits if pair[0].visit == number), strict=True
        )
        of_rollouts = columns(RolloutRecord, list(chain(*rollouts)))
        RunStore(place).append(number, columns(LabelRecord, labels), of_rollouts)
    return find_runs([place])[0]


def measured(run, epochs=None):
    """Metric and `at` -> value, of those that have one."""
    values = measure_run(run, epochs or run.epochs)
    return {(metric, at): value for metric, at, value in values if value is not None}


def about(subject, run):
    """Column -> value of a subject."""
    values = measured(run).items()
    return {
        metric.removeprefix(f"{subject}/"): value
        for (metric, _), value in values
        if metric.startswith(f"{subject}/")
    }


def test_the_first_label_is_followed_through_all_visits(run):
    followed = followed_labels(run, 3)
    counted = {
        (row["prompt_id"], row["visit"]): row["label_count"] for row in followed.to_dicts()
    }
    assert counted == {
        ("a", 1): 2,
        ("b", 1): 2,
        ("a", 2): 1,
        ("b", 2): 0,
        ("a", 3): 0,
        ("b", 3): 2,
    }
    assert set(followed_labels(run, 2)["visit"]) == {1, 2}


def test_the_log_ratio_is_the_mean_over_prompts_of_smoothed_counts(run):
    values = measured(run)
    first = log(2.5 / 2.5), log(1.5 / 2.5)
    second = log(3.5 / 1.5), log(1.5 / 0.5)
    third = log(4.5 / 0.5), log(2.5 / 2.5)
    for epoch, ratios in enumerate((first, second, third), start=1):
        assert values["log_ratio", epoch] == pytest.approx(sum(ratios) / 2)
    rise = pytest.approx(values["log_ratio", 3] - values["log_ratio", 2])
    assert values["change/early", None] == values["change/late", None] == rise


def test_delta_p_is_counted_in_the_visits_before_and_after(run):
    right = {row["gap"]: row["is_right"] for row in selections(run, 3).to_dicts()}
    # a: 2 + 4 right of 8, and "2" twice; b: 1 + 2 right, and "3" four times; c: 4 + 0 right, and "4" four times.
    assert right == {4 / 8: True, -1 / 8: False, 0.0: False}


def test_bins_of_delta_p_hold_their_upper_edge():
    gaps = pl.DataFrame({"gap": [-0.3, 0.0, 0.001, 0.25, 0.5, 0.75, 0.76, 1.0]})
    assert gaps.select(gap_bin()).to_series().to_list() == [0, 0, 1, 1, 2, 3, 4, 4]
    assert len(gap_titles()) == 5


def test_assumption_i_is_shown_with_the_labels_own_rollouts_and_without(run):
    assert about("start", run) == {
        "prompts": 2, "true_step_1": 3 / 8, "true_1": 3 / 8, "label_1": 4 / 8, "true_2": 4 / 8, "label_2": 1 / 8,
        "holds": 1.0,
    }  # fmt: skip


def test_feasibility_has_the_footnotes_formula_with_the_runs_own_p(run):
    realised, expected = {"realised_first": 2 / 3, "realised_last": 2 / 3}, 1 - (7 / 8) ** 4
    found = about("feasibility", run)
    assert found == pytest.approx(
        realised | {"again": 0.5, "expected": expected, "all": expected**2}
    )


def test_delta_and_effective_noise_leave_warm_up_out(run):
    # In visit 2 a's label is right and d's is not; in visit 3 a's and d's are right.
    predicted, counted = {2: 3 / 4 * 1 / 3, 3: 3 / 4 * 2 / 3}, {2: 3 / 4, 3: 2 / 4}
    assert about("refinement", run) == pytest.approx(
        {
            "replaced": 3 / 6, "right": 2 / 3, "spoilt": 1 / 2, "replaced_last": 1 / 3, "initial": 3 / 4,
            "predicted": predicted[3], "counted": counted[3],
            "gap": sum(counted[visit] - predicted[visit] for visit in (2, 3)) / 2,
        }
    )  # fmt: skip
    values = measured(run)
    for name, expected in (("predicted", predicted), ("counted", counted)):
        shown = {
            at: value
            for (metric, at), value in values.items()
            if metric == f"effective_noise_{name}"
        }
        assert shown == pytest.approx(expected)


def test_errors_stand_beside_the_printed_bound_where_delta_p_is_positive(run):
    values = {
        key: value for key, value in measured(run).items() if key[0].startswith("selection")
    }
    assert values == {
        ("selection_error", 0): 1.0,
        ("selection_error", 2): 0.0,
        ("selection_bound", 2): pytest.approx(exp(-4 * 0.5**2)),
    }


def test_what_a_run_does_not_know_has_no_value(tmp_path):
    without_truth = write_history(tmp_path / "truth", prompts=8, knows_truth=False)
    inactive = write_history(
        tmp_path / "inactive", prompts=8, noise="inactive", method={"name": "grpo"}
    )
    bare = write_history(tmp_path / "bare", prompts=8, store_rollouts=False)
    without_truth, inactive, bare = runs = find_runs([without_truth, inactive, bare])
    for run in runs:
        assert not has_noisy_labels(run)
        assert about("start", run) == {}
        assert not {"log_ratio", "change/early"} & {metric for metric, _ in measured(run)}
    assert set(about("refinement", without_truth)) == {
        "replaced",
        "replaced_last",
        "initial",
        "predicted",
    }
    assert set(about("change", without_truth)) == {"held_out"}
    assert about("feasibility", inactive)["realised_first"] == 0
    assert about("refinement", inactive) == {}, "GRPO replaces nothing"


def test_a_run_is_measured_up_to_the_epoch_that_all_runs_of_its_arm_have(tmp_path):
    write_history(tmp_path / "whole", prompts=10, prompts_per_step=10, epochs=5, seed=1)
    write_history(
        tmp_path / "shorter", prompts=10, prompts_per_step=10, epochs=5, seed=2, steps=4
    )
    (arm,) = group(find_runs([tmp_path]))
    assert all(map(has_noisy_labels, arm.runs))
    values = measure([arm])
    for metric in ("log_ratio", "effective_noise_counted"):
        last = (
            values.filter(metric=metric)
            .group_by("seed")
            .agg(pl.col("at").max())
            .sort("seed")
        )
        assert last.rows() == [(1, 4), (2, 4)]
