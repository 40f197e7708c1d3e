"""Self-training: what verified labels say of votes, which pseudo-label a prompt gets, and who trains."""

import random

import numpy as np
import pytest
from decisions import by_group
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from olr_cli.data.prompts import Prompt
from olr_cli.recipe.schema import OlrMethod, SelfTrainingMethod, TrapoMethod
from olr_cli.runs.store import RunStore, stored_history
from olr_cli.supervision import Rollout, RolloutGroup, Step, Supervisor, compose
from olr_cli.supervision.rewards import group_advantages
from olr_cli.supervision.self_training import LABEL, MAJORITY, NEITHER, Counts, VerifiedVisit, calibrate

K = 8


def counts(majority, label, *, is_consistent=True):
    return Counts(majority, label, K, is_consistent)


def votes(rights, wrongs):
    """K rollouts: 12 is right, 7 is the wrong answer that the policy likes."""
    return ["12"] * rights + ["7"] * wrongs + [str(100 + n) for n in range(K - rights - wrongs)]


def group(name, visit, answers, label="7", *, is_trusted=False):
    prompt = Prompt(name, (), label, "12", None, is_trusted=is_trusted)
    return RolloutGroup(prompt, visit, visit, tuple(Rollout(rf"\boxed{{{a}}}") for a in answers))


outcomes = st.lists(
    st.builds(
        VerifiedVisit,
        st.builds(counts, st.integers(0, K), st.integers(0, K), is_consistent=st.booleans()),
        st.integers(0, K),
        st.just(NEITHER),
        st.booleans(),
    ),
    min_size=1,
    max_size=30,
)


@given(outcomes, st.randoms(use_true_random=False))
def test_the_weights_are_those_that_a_general_optimiser_finds(known, draw):
    known = [
        VerifiedVisit(
            one.counts,
            one.right_rollouts,
            draw.choice([k for k in range(3) if one.counts.is_candidate[k]]),
            True,
        )
        for one in known
    ]
    mean, sd = np.array([1.5, 0.5, 0.5, -2.0]), np.array([0.7, 1.0, 0.7, 1.0])

    def loss(weights):
        total = (((weights - mean) / sd) ** 2).sum() / 2
        for one in known:
            scores = np.array(one.counts.features) @ weights
            scores = scores[np.array(one.counts.is_candidate)]
            right = sum(one.counts.is_candidate[: one.right_candidate])
            total -= scores[right] - np.log(np.exp(scores - scores.max()).sum()) - scores.max()
        return total

    best = minimize(loss, mean, method="BFGS").x
    assert calibrate(known).weights == pytest.approx(best, abs=1e-3)


def test_chances_are_those_of_the_outcomes():
    """Votes that are right half of the time, whatever their share, are worth no more than that."""
    draw = random.Random(1)
    known = [
        VerifiedVisit(counts(draw.randint(4, 8), 0), 4, MAJORITY if draw.random() < 0.5 else NEITHER, False)
        for _ in range(2000)
    ]
    chances = calibrate(known).chances(counts(6, 0))
    assert chances == pytest.approx([0.5, 0, 0.5], abs=0.04)


def test_a_label_that_is_right_wherever_it_is_known_beats_the_majority():
    known = [VerifiedVisit(counts(5, 2), 2, LABEL, True) for _ in range(50)]
    chances = calibrate(known).chances(counts(5, 2))
    assert chances[LABEL] > 0.9 > chances[MAJORITY]


@pytest.mark.parametrize(
    ("label", "true", "is_right"),
    [(3, 3, True), (2, 5, False), (8, 8, True), (0, 4, False), (7, 0, False), (1, 1, True)],
)
def test_the_gain_of_a_label_is_the_mean_advantage_of_right_rollouts(label, true, is_right):
    """Summed over the rollouts, from the advantages that the label gives."""
    is_labelled = [n < label for n in range(K)]
    is_true = is_labelled if is_right else [n >= K - true for n in range(K)]
    advantages = group_advantages([float(hit) for hit in is_labelled])
    gain = sum(a for a, hit in zip(advantages, is_true, strict=True) if hit) / K
    outcome = VerifiedVisit(counts(max(label, true), label), true, NEITHER, is_right)
    assert outcome.gain_of_label == pytest.approx(gain, abs=1e-5)


@pytest.mark.parametrize(("right", "helps"), [(50, True), (25, True), (15, False), (5, False)])
def test_labels_help_up_to_about_the_critical_noise(right, helps):
    """Of 50 labels, wrong ones being an answer that a quarter of the rollouts give and right ones half of them."""
    known = [
        VerifiedVisit(counts(4, 4), 4, MAJORITY, True)
        if n < right
        else VerifiedVisit(counts(4, 2), 4, MAJORITY, False)
        for n in range(50)
    ]
    assert calibrate(known).labels_help is helps


def verified_step(visit, *, rights=6):
    """Twenty verified prompts whose majority is right and whose label is wrong, one of which is not verified."""
    answers = votes(rights, K - rights)
    return [group(f"v{n:02}", visit, answers, is_trusted=True) for n in range(20)] + [
        group("other", visit, answers)
    ]


def test_verified_prompts_train_alone_until_their_votes_are_right(judge):
    supervisor = Supervisor(compose(SelfTrainingMethod()), judge, seed=0)
    first, second = (by_group(supervisor.supervise(Step.of(verified_step(visit)))) for visit in (1, 2))
    assert [one.trains for one in first] == [True] * 20 + [False]
    assert first[-1].label.effective_label == "7"
    assert all(one.trains for one in second)
    assert (second[-1].label.effective_label, second[-1].label.label_source) == ("12", "majority")


def test_labels_that_are_right_train_at_once(judge):
    step = [group(f"v{n}", 1, votes(1, 6), "12", is_trusted=True) for n in range(20)]
    supervisor = Supervisor(compose(SelfTrainingMethod()), judge, seed=0)
    *_, other = by_group(supervisor.supervise(Step.of([*step, group("o", 1, votes(1, 6))])))
    assert other.trains
    assert (other.label.effective_label, other.label.label_source) == ("7", "given")


def test_majorities_that_are_wrong_on_verified_prompts_do_not_train_the_others(judge):
    supervisor = Supervisor(compose(SelfTrainingMethod()), judge, seed=0)
    for visit in (1, 2, 3):
        *_, other = by_group(supervisor.supervise(Step.of(verified_step(visit, rights=1))))
        assert not other.trains


def test_without_a_verified_label_it_is_the_consistent_majority(judge):
    draw = random.Random(3)
    supervisors = [
        Supervisor(compose(method), judge, seed=0)
        for method in (SelfTrainingMethod(), OlrMethod(criteria=("consistency",)))
    ]
    for visit in range(1, 9):
        groups = [group(f"p{n}", visit, votes(draw.randint(0, 5), 3)) for n in range(10)]
        ours, theirs = (
            [one.label for one in by_group(supervisor.supervise(Step.of(groups)))]
            for supervisor in supervisors
        )
        assert ours == theirs
    assert any(label.is_selected for label in ours)


@pytest.mark.parametrize("section", [SelfTrainingMethod(), TrapoMethod(warmup_epochs=1)])
def test_a_resumed_run_decides_as_one_that_was_not_stopped(judge, tmp_path, section):
    """In whatever order the prompts came."""
    draw, method = random.Random(5), compose(section)

    def step(visit):
        groups = [
            group(
                f"p{n:02}", visit, votes(draw.randint(0, 6), 2), draw.choice(["7", "12"]), is_trusted=n < 15
            )
            for n in range(30)
        ]
        draw.shuffle(groups)
        return groups

    whole, store = Supervisor(method, judge, seed=0), RunStore(tmp_path)
    for visit in (1, 2):
        decided = whole.supervise(Step.of(step(visit)))
        store.append(visit, decided.labels, decided.rollouts)
    history = stored_history(tmp_path, judge, follows=method.follows)
    third = step(3)
    decided = by_group(whole.supervise(Step.of(third)))
    assert sum(one.label.trains for one in decided) > 15
    resumed = Supervisor(method, judge, seed=0, history=history)
    assert by_group(resumed.supervise(Step.of(third))) == decided
    assert resumed.history.trajectories == whole.history.trajectories
