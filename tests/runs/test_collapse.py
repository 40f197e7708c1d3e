"""Which signs of collapse are reported, and when; a run that gets better has none."""

import json
from pathlib import Path

import pytest

from olr_cli.recipe.schema import Recipe
from olr_cli.runs.collapse import CollapseWatch

RECORDED = Path(__file__).parents[1] / "fixtures" / "metrics"


def recorded(name):
    return [json.loads(line) for line in (RECORDED / f"{name}.jsonl").read_text("utf-8").splitlines()]


def blind(lines):
    """The same run where nobody knows a true answer."""
    return [
        {name: value for name, value in line.items() if not name.startswith(("eval/", "majority/"))}
        for line in lines
    ]


def warnings(lines, method="grpo", seen=()):
    """(step, warning) of every warning."""
    watch = CollapseWatch(Recipe.model_validate({"method": {"name": method}}), seen)
    return [(line.get("step"), warning) for line in lines for warning in watch.look(line)]


def steps(*values, count=6, **start):
    """Three steps as at the start, then `count` for each of `values`, which replace metrics."""
    usual = {"policy/entropy": 0.4, "policy/kl": 0.0, "rollout/length": 400.0, **start}
    return [usual] * 3 + [{**usual, **value} for value in values for _ in range(count)]


@pytest.mark.parametrize("name", ["sequence_entropy", "grpo_clean_fast"])
def test_a_run_that_gets_better_gives_no_warning(name):
    assert warnings(recorded(name)) == []


@pytest.mark.parametrize("name", ["self_certainty", "token_entropy"])
def test_a_policy_that_trains_on_its_own_certainty_is_noticed_as_soon_as_accuracy_falls(name):
    found = warnings(recorded(name), name)
    assert [step for step, _ in found] == [10, 15]
    assert "held-out accuracy fell to" in found[0][1]
    assert "left the starting policy" in found[1][1]
    assert f"the paper reports collapse of {name}" in found[1][1]


@pytest.mark.parametrize(("name", "step"), [("self_certainty", 15), ("token_entropy", 15), ("ttrl_fast", 39)])
def test_collapse_is_noticed_where_no_true_answer_is_known(name, step):
    [(noticed, warning)] = warnings(blind(recorded(name)))
    assert noticed == step
    assert "if its answers are not better than at the start, the policy has collapsed" in warning


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"policy/entropy": 0.01}, "entropy 0.01 nats, 0.4 at the start)"),
        ({"policy/entropy": 0.03}, None),
        ({"policy/kl": 0.5}, "log-likelihood of 0.90 nats (0.40 at the start)"),
        ({"rollout/length": 810.0}, "has 810 tokens (400 at the start)"),
        ({"rollout/length": 790.0}, None),
        ({"rollout/length": 205.0}, None),
        ({"rollout/length": 195.0}, "has 195 tokens (400 at the start)"),
    ],
)
def test_a_sign_is_reported_unless_the_majority_is_right_more_often_than_at_the_start(change, expected):
    found = [warning for _, warning in warnings(steps(change))]
    assert len(found) == (expected is not None)
    assert all(expected in warning for warning in found)
    assert warnings(steps(change | {"majority/accuracy": 0.6}, **{"majority/accuracy": 0.5})) == []
    worse = warnings(steps(change | {"majority/accuracy": 0.6}, **{"majority/accuracy": 0.7}))
    assert all("right on 60% of the prompts (70% at the start)" in warning for _, warning in worse)
    assert len(worse) == len(found)


def test_one_bad_step_is_not_a_collapse():
    bad = {"policy/kl": 2.0, "rollout/length": 2000.0, "policy/entropy": 0.001}
    assert warnings(steps({}, bad, {}, count=2)) == []


def test_held_out_accuracy_counts_from_its_best_and_by_its_standard_error():
    def falls(to, error):
        lines = [{"eval/avg": avg, "eval/avg_stderr": error} for avg in (0.4, 0.7, to)]
        return [warning for _, warning in warnings(lines)]

    assert falls(0.66, 0.001) == []
    assert falls(0.6, 0.03) == []
    assert "fell to 60% (70% at its best)" in falls(0.6, 0.01)[0]


def test_a_resumed_run_knows_its_start_and_does_not_repeat_a_warning():
    lines = recorded("self_certainty")
    for done in range(len(lines) + 1):
        earlier, later = lines[:done], lines[done:]
        assert warnings(earlier) + warnings(later, seen=earlier) == warnings(lines)


def test_a_run_without_a_kl_term_or_entropy_is_watched_by_what_it_has():
    [(_, warning)] = warnings([{"rollout/length": length} for length in (4.0, 4.0, 4.0, 9.0, 9.0, 9.0)])
    assert "the mean response has 9 tokens (4 at the start)" in warning
