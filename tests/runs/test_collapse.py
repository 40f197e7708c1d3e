"""What is said of a policy that collapses, and what of one that does not."""

import json
import random
from pathlib import Path

import pytest

from olr_cli.recipe.schema import Recipe
from olr_cli.runs.collapse import CollapseWatch

RECORDED = Path(__file__).parents[1] / "fixtures" / "metrics"


def recipe(method="grpo", prompts_per_step=80):
    return Recipe.model_validate(
        {
            "name": "watched",
            "data": {"train": "arithmetic"},
            "model": {"path": "builtin:addition-easier"},
            "method": {"name": method},
            "train": {"prompts_per_step": prompts_per_step, "mini_batch_prompts": prompts_per_step},
        }
    )


def recorded(name):
    return [json.loads(line) for line in (RECORDED / f"{name}.jsonl").read_text("utf-8").splitlines()]


def blind(lines):
    """The same run where nobody knows a true answer."""
    return [
        {name: value for name, value in line.items() if not name.startswith(("eval/", "majority/"))}
        for line in lines
    ]


def said(watch, lines):
    """(step, warning) of every warning."""
    return [(line.get("step"), warning) for line in lines for warning in watch.look(line)]


def steps(*values, count=6, **start):
    """Three steps as at the start, then `count` for each of `values`, which replace metrics."""
    usual = {
        "policy/entropy": 0.4,
        "policy/kl": 0.0,
        "rollout/length": 400.0,
        "rollout/truncated": 0.02,
        "rollout/missing_answers": 0.01,
        **start,
    }
    return [usual] * 3 + [{**usual, **value} for value in values for _ in range(count)]


def only(lines, method="grpo"):
    """The one warning of a run."""
    [(_, warning)] = said(CollapseWatch(recipe(method), 400), lines)
    return warning


@pytest.mark.parametrize("name", ["sequence_entropy", "grpo_clean_fast"])
def test_a_run_that_gets_better_gives_no_warning(name):
    assert said(CollapseWatch(recipe(), 400), recorded(name)) == []


@pytest.mark.parametrize("name", ["self_certainty", "token_entropy"])
def test_a_policy_that_trains_on_its_own_certainty_is_noticed_as_soon_as_accuracy_falls(name):
    found = said(CollapseWatch(recipe(name), 400), recorded(name))
    assert [step for step, _ in found] == [10, 15]
    assert "held-out accuracy fell to" in found[0][1]
    assert "left the starting policy" in found[1][1]
    assert f"the paper reports collapse of {name}" in found[1][1]


@pytest.mark.parametrize(("name", "step"), [("self_certainty", 15), ("token_entropy", 15), ("ttrl_fast", 39)])
def test_collapse_is_noticed_where_no_true_answer_is_known(name, step):
    [(noticed, warning)] = said(CollapseWatch(recipe(), 400), blind(recorded(name)))
    assert noticed == step
    assert "if its answers are not better than at the start, the policy has collapsed" in warning


def test_what_is_said_of_a_sure_policy_leaves_open_whether_it_is_right_where_nobody_knows():
    [(_, warning)] = said(CollapseWatch(recipe(), 400), blind(recorded("grpo_clean_fast")))
    assert "if it is not right every time, it has collapsed" in warning


def test_a_policy_that_is_sure_and_wrong_is_told_from_one_that_is_sure_and_right():
    sure = {"policy/entropy": 0.01}
    right, wrong = sure | {"majority/accuracy": 0.95}, sure | {"majority/accuracy": 0.7}
    assert said(CollapseWatch(recipe(), 400), steps(right, **{"majority/accuracy": 0.5})) == []
    warning = only(steps(wrong, **{"majority/accuracy": 0.5}))
    assert "entropy 0.01 nats, 0.4 at the start)" in warning
    assert "right on 70% of the prompts only" in warning


@pytest.mark.parametrize(("length", "is_said"), [(810, True), (790, False), (205, False), (195, True)])
def test_length_is_said_where_it_has_doubled_or_halved(length, is_said):
    found = said(CollapseWatch(recipe(), 400), steps({"rollout/length": float(length)}))
    assert len(found) == is_said
    assert all(f"has {length} tokens (400 at the start)" in warning for _, warning in found)


def test_longer_responses_that_are_more_often_right_are_no_collapse():
    longer = {"rollout/length": 1000.0, "majority/accuracy": 0.6}
    assert said(CollapseWatch(recipe(), 400), steps(longer, **{"majority/accuracy": 0.5})) == []
    assert "right on 60% of the prompts (70% at the start)" in only(
        steps(longer, **{"majority/accuracy": 0.7})
    )


@pytest.mark.parametrize(
    ("name", "what"), [("truncated", "are cut off"), ("missing_answers", "have no answer")]
)
def test_most_responses_without_an_end_or_an_answer_are_said_unless_it_was_so_from_the_start(name, what):
    metric = f"rollout/{name}"
    assert f"60% of the responses {what}" in only(steps({metric: 0.6}))
    assert said(CollapseWatch(recipe(), 400), steps({metric: 0.6}, **{metric: 0.6})) == []


def test_one_bad_step_is_not_a_collapse():
    bad = {"policy/kl": 2.0, "rollout/length": 2000.0, "rollout/truncated": 0.9, "policy/entropy": 0.001}
    lines = steps({}, bad, {}, count=2)
    assert said(CollapseWatch(recipe(), 400), lines) == []


def test_held_out_accuracy_counts_from_its_best_and_by_its_standard_error():
    def falls(to, error):
        lines = [{"eval/avg": avg, "eval/avg_stderr": error} for avg in (0.4, 0.7, to)]
        return [warning for _, warning in said(CollapseWatch(recipe(), 400), lines)]

    assert falls(0.66, 0.001) == []
    assert falls(0.6, 0.03) == []
    assert "fell to 60% (70% at its best)" in falls(0.6, 0.01)[0]


@pytest.mark.parametrize(("prompts_per_step", "is_said"), [(80, True), (8, False)])
def test_majority_accuracy_is_averaged_over_enough_prompts(prompts_per_step, is_said):
    watch = CollapseWatch(recipe(prompts_per_step=prompts_per_step), 400)
    lines = steps({"majority/accuracy": 0.7}, {"majority/accuracy": 0.5}, **{"majority/accuracy": 0.7})
    assert bool(said(watch, lines)) == is_said


@pytest.mark.parametrize(("prompts", "per_step", "epochs"), [(4000, 160, 10), (40, 160, 100), (800, 160, 30)])
def test_a_policy_that_does_not_change_is_not_said_to_fall_whichever_prompts_a_step_has(
    prompts, per_step, epochs
):
    for seed in range(5):
        drawn = random.Random(seed)
        is_right = [drawn.random() < 0.6 for _ in range(prompts)]
        lines = []
        for _ in range(epochs):
            drawn.shuffle(is_right)
            parts = [is_right[first : first + per_step] for first in range(0, prompts, per_step)]
            lines += [{"rollout/length": 9.0, "majority/accuracy": sum(own) / len(own)} for own in parts]
        assert said(CollapseWatch(recipe(prompts_per_step=per_step), prompts), lines) == []


def test_a_resumed_run_knows_its_start_and_does_not_repeat_a_warning():
    lines = recorded("self_certainty")
    whole = said(CollapseWatch(recipe(), 400), lines)
    for done in range(len(lines) + 1):
        earlier = said(CollapseWatch(recipe(), 400), lines[:done])
        assert earlier + said(CollapseWatch(recipe(), 400, lines[:done]), lines[done:]) == whole


def test_a_run_without_a_kl_term_or_entropy_is_watched_by_what_it_has():
    lines = [{"rollout/length": length} for length in (4.0, 4.0, 4.0, 9.0, 9.0, 9.0)]
    assert "the mean response has 9 tokens (4 at the start)" in only(lines)
