"""The observed critical ratio: where a change crosses 0, and which runs are one series."""

import pytest
from histories import write_history
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from olr_cli.analysis.arms import find_runs, group
from olr_cli.analysis.frame import mean_interval
from olr_cli.analysis.theory.critical import crossing, refined_crossing, series

GRPO = {"name": "grpo"}
SMALL = {"prompts": 10, "prompts_per_step": 10, "epochs": 4}


def test_a_crossing_is_interpolated():
    assert crossing({0.1: 3.0, 0.5: 1.0, 0.7: -1.0, 0.9: -5.0}) == pytest.approx(0.6)
    assert crossing({0.1: 1.0, 0.5: 0.0}) == pytest.approx(0.5)


def test_only_the_first_fall_counts():
    assert crossing({0.1: 1.0, 0.3: -1.0, 0.5: 1.0, 0.7: -1.0}) == pytest.approx(0.2)


def test_a_change_that_never_crosses_has_no_critical_ratio():
    assert crossing({0.1: 1.0, 0.9: 0.2}) is None
    assert crossing({0.1: -1.0, 0.9: 0.2}) is None
    assert crossing({}) is None


@given(st.floats(0.05, 0.9), st.floats(0.0, 0.9))
def test_with_a_constant_delta_olrs_ratio_is_the_theorems(critical, replaced):
    moved = critical / (1 - replaced)
    found = refined_crossing({0.01: replaced, 0.999: replaced}, critical)
    assert found is None if moved > 0.999 else found == pytest.approx(moved)


def test_the_interval_is_students():
    values = [0.61, 0.64, 0.70]
    expected = stats.t.interval(0.95, 2, loc=sum(values) / 3, scale=stats.sem(values))
    assert mean_interval(values) == pytest.approx(expected)
    assert mean_interval([0.5]) is None


def test_a_series_is_runs_that_differ_in_the_ratio_alone(tmp_path):
    for ratio in (0.7, 0.3):
        for seed in (1, 2):
            write_history(tmp_path / f"olr-{ratio}-{seed}", ratio=ratio, seed=seed, **SMALL)
        write_history(tmp_path / f"grpo-{ratio}", ratio=ratio, method=GRPO, **SMALL)
        write_history(tmp_path / f"inactive-{ratio}", noise="inactive", ratio=ratio, method=GRPO, **SMALL)
    write_history(tmp_path / "alone", ratio=0.3, method={"name": "grpo", "penalty_weight": 0.1}, **SMALL)
    write_history(tmp_path / "clean", noise=None, method=GRPO, **SMALL)
    grpo, olr = series(group(find_runs([tmp_path])))
    assert (grpo.name, olr.name) == ("active grpo", "active olr")
    assert list(grpo.arms) == list(olr.arms) == [0.3, 0.7]
    assert olr.unrefined is grpo and grpo.unrefined is None
    assert {seed: list(runs) for seed, runs in olr.runs().items()} == {1: [0.3, 0.7], 2: [0.3, 0.7]}


def test_series_of_one_method_are_told_apart(tmp_path):
    for ratio in (0.3, 0.7):
        for rollouts in (4, 8):
            write_history(
                tmp_path / f"{ratio}-{rollouts}", ratio=ratio, method=GRPO, rollouts=rollouts, **SMALL
            )
    names = {each.name for each in series(group(find_runs([tmp_path])))}
    assert names == {"active grpo rollouts_per_prompt=4", "active grpo rollouts_per_prompt=8"}
