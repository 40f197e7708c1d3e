"""TraPO: prompts train on their majority where their pass rates rise and fall as those of verified prompts (R24)."""

from fractions import Fraction

import numpy as np
import pytest
from decisions import by_group
from hypothesis import given
from hypothesis import strategies as st

from olr_cli.data.prompts import Prompt
from olr_cli.recipe.schema import TrapoMethod
from olr_cli.runs.store import RunStore, stored_history
from olr_cli.supervision import Rollout, RolloutGroup, Step, Supervisor, compose
from olr_cli.supervision.trapo import mean_trajectory, resembling, similarity

K = 8
rates = st.integers(0, K).map(lambda count: count / K)


def group(name, visit, rights, *, is_trusted=False):
    """K rollouts of which `rights` say 12, the truth, and the others 7, which is the label too."""
    prompt = Prompt(name, (), "7", "12", None, is_trusted=is_trusted)
    answers = ["12"] * rights + ["7"] * (K - rights)
    return RolloutGroup(prompt, visit, visit, tuple(Rollout(rf"\boxed{{{a}}}") for a in answers))


@given(st.integers(2, 9).flatmap(lambda t: st.lists(st.tuples(*[rates] * t), min_size=2, max_size=9)))
def test_the_similarity_is_the_correlation_with_the_mean_of_the_verified_trajectories(trajectories):
    own, *verified = trajectories
    reference = np.mean(verified, axis=0)
    if np.ptp(own) == 0 or np.ptp(reference) < 1e-9:
        return
    expected = np.corrcoef(own, reference)[0, 1]
    assert similarity(own, mean_trajectory(verified)) == pytest.approx(expected, abs=1e-9)


def test_only_visits_that_all_have_had_count_and_a_constant_trajectory_resembles_none():
    reference = mean_trajectory([(0.0, 0.5, 1.0), (0.5, 1.0)])
    assert reference == (0.25, 0.75)
    assert similarity((0.1, 0.9, 0.0), reference) == pytest.approx(1)
    assert similarity((0.3, 0.3, 0.9), reference) == 0
    assert similarity((), ()) == 0


@given(
    st.lists(st.tuples(st.sampled_from([-1.0, -0.2, 0.0, 0.5, 0.9]), st.floats(0, 1)), unique=True),
    st.sampled_from([Fraction(0), Fraction(1, 10), Fraction(1, 2), Fraction(1)]),
)
def test_the_largest_share_and_those_above_the_threshold_resemble(ranks, share):
    least = max(1, int(share * len(ranks)))
    expected = [sum(other > rank for other in ranks) < least or rank[0] >= 0.5 for rank in ranks]
    assert resembling(ranks, share, 0.5) == expected


def test_during_the_warm_up_verified_prompts_train_alone_and_then_those_that_learn_alike(judge):
    supervisor = Supervisor(compose(TrapoMethod(warmup_epochs=2, top_share=0)), judge, seed=0)
    rights = {"verified": (1, 4, 7), "alike": (5, 6, 7), "flat": (6, 6, 6), "falling": (8, 6, 5)}
    for visit in (1, 2, 3):
        groups = [
            group(name, visit, of[visit - 1], is_trusted=name == "verified") for name, of in rights.items()
        ]
        decided = by_group(supervisor.supervise(Step.of(groups)))
        trains = {name: one.label.trains for name, one in zip(rights, decided, strict=True)}
        assert trains == {"verified": True, "alike": visit == 3, "flat": False, "falling": False}
    alike = decided[1]
    assert (alike.label.effective_label, alike.label.label_source) == ("12", "majority")
    assert sum(alike.rewards) == 7


def test_without_a_verified_prompt_nobody_trains(judge):
    decided = Supervisor(compose(TrapoMethod(warmup_epochs=0)), judge, seed=0).supervise(
        Step.of([group("p", 1, 6)])
    )
    assert decided.trains == [False]


def test_a_method_that_follows_no_trajectories_keeps_none(judge, tmp_path):
    decided = Supervisor(compose(TrapoMethod()), judge, seed=0).supervise(Step.of([group("p", 1, 6)]))
    RunStore(tmp_path).append(1, decided.labels, decided.rollouts)
    assert stored_history(tmp_path, judge).trajectories == {}
