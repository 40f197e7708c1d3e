"""Every row of the methods table: label, reward, prompts that train; and mixes of them."""

from fractions import Fraction

import numpy as np
import pytest
from cases import each
from decisions import by_group, make_method
from hypothesis import given, strategies as st

from olr_cli.answers.graded import SENTINEL
from olr_cli.data.prompts import Prompt
from olr_cli.recipe.layers import validate
from olr_cli.recipe.methods import METHODS, OlrMethod
from olr_cli.supervision import Rollout, RolloutGroup, Step, Supervisor, compose
from olr_cli.supervision.advantages import group_advantages
from olr_cli.supervision.rewards import SCORES, Score

WRONG = Prompt("p", (), SENTINEL, "12", "inactive")


def answering(answers, view="original"):
    return [Rollout("none" if a is None else rf"\boxed{{{a}}}", view=view) for a in answers]


def supervise(judge, method, rollouts, prompt=WRONG, **settings):
    supervisor = Supervisor(compose(method), judge, seed=0, **settings)
    (decided,) = by_group(
        supervisor.supervise(Step.of([RolloutGroup(prompt, 1, 1, tuple(rollouts))]))
    )
    return decided


def test_every_method_of_a_recipe_can_be_composed():
    assert [compose(make_method(name)).name for name in METHODS] == [*METHODS]


@each(
    "section, name",
    ({"name": "grpo", "penalty_weight": 0.01}, "confidence_penalty"),
    (
        {"name": "confidence_penalty", "smoothing": 0.1},
        "confidence_penalty+label_smoothing",
    ),
    ({"name": "olr", "penalty_weight": 0.01}, "olr+confidence_penalty"),
    (
        {"name": "olr", "criteria": ["slope"], "prompts": "random"},
        "olr_without_consistency+random_selection",
    ),
    ({"name": "ttrl", "prompts": "small_loss"}, "ttrl+small_loss_selection"),
    ({"name": "random_selection"}, "random_selection"),
    ({"name": "mine.py:cautious"}, "cautious"),
    ({"name": "mine.py:olr"}, "mine.py:olr"),
)
def test_a_mix_is_named_by_its_parts(section, name):
    assert compose(validate({"method": section}, "x").method).name == name


@each(
    "answers, label, rewards",
    (["7", "7", "12", None], "7", (1, 1, 0, 0)),
    (["7", "12", "12", "7"], "12", (0, 1, 1, 0)),  # a tie: 12 is the first to have two
    (["12", "7", "7", "12"], "7", (0, 1, 1, 0)),
    (["7", "12"], "7", (1, 0)),
)
def test_ttrl_rewards_the_majority_of_the_visit_in_a_tie_the_first_to_reach_it(
    judge, answers, label, rewards
):
    decided = supervise(judge, make_method("ttrl"), answering(answers))
    assert (decided.label.effective_label, decided.rewards) == (label, rewards)
    assert (decided.label.label_source, decided.label.is_selected) == ("majority", True)


def test_without_an_answer_there_is_no_vote_and_no_reward(judge):
    decided = supervise(judge, make_method("ttrl"), answering([None, None]))
    assert (decided.label.label_source, decided.label.effective_label) == ("none", None)
    assert decided.rewards == (0, 0)


def test_co_reward_rewards_each_view_by_the_majority_of_the_other(judge):
    rollouts = answering(["7", "7", "12"]) + answering(["12", "12", "7"], "rephrased")
    decided = supervise(judge, make_method("co_reward"), rollouts)
    assert decided.rewards == (0, 0, 1, 0, 0, 1)
    assert [(r.view, r.sample) for r in decided.rollouts] == [
        (view, place) for place, view in enumerate(["original"] * 3 + ["rephrased"] * 3)
    ]
    label = decided.label
    assert (label.majority_answer, label.majority_count, label.rollouts) == ("7", 2, 3)
    assert (label.effective_label, label.effective_label_is_correct) == ("12", True)
    assert label.reward_mean == pytest.approx(1 / 3)
    counts = label.given_label_count, label.true_answer_count
    assert counts == tuple(["7", "7", "12"].count(it) for it in (label.given_label, "12"))


def test_co_reward_normalises_each_view_for_itself(judge):
    rollouts = answering(["7", "7", "12"]) + answering(["12", "12", "12"], "rephrased")
    decided = supervise(judge, make_method("co_reward"), rollouts)
    assert decided.rewards == (0, 0, 1, 0, 0, 0)
    assert decided.advantages[3:] == (0, 0, 0)
    assert sum(decided.advantages[:3]) == pytest.approx(0)
    assert not decided.label.has_zero_variance


def test_a_view_without_answers_gives_the_other_no_label(judge):
    decided = supervise(
        judge,
        make_method("co_reward"),
        answering(["7", "7"]) + answering([None, None], "rephrased"),
    )
    assert decided.label.label_source == "none"
    assert decided.rewards == (0, 0, 0, 0)
    assert decided.label.has_zero_variance


@pytest.mark.parametrize(
    ("method", "views"), [(make_method("co_reward"), 1), (make_method("grpo"), 2)]
)
def test_a_group_with_other_views_than_the_methods_is_refused(judge, method, views):
    rollouts = [
        r for view in ("original", "rephrased")[:views] for r in answering(["7", "7"], view)
    ]
    with pytest.raises(ValueError, match="rollouts of the views"):
        supervise(judge, method, rollouts)


STATISTICS = [
    Rollout("a", tokens=4, mean_logprob=-0.5, entropy=0.9, self_certainty=2.0),
    Rollout("b", tokens=1, mean_logprob=-1.0, entropy=0.1, self_certainty=1.0),
    Rollout("c", tokens=3, mean_logprob=-0.1, entropy=0.4, self_certainty=7.0),
]


@each(
    "method, rewards",
    (make_method("self_certainty"), (2.0, 1.0, 7.0)),
    (make_method("token_entropy"), (-0.9, -0.1, -0.4)),
    (
        make_method("token_entropy", score_reduction="sum"),
        (-3.6, -0.1, -1.2000000000000002),
    ),
    (make_method("sequence_entropy"), (-0.5, -1.0, -0.1)),
    (
        make_method("sequence_entropy", score_reduction="sum"),
        (-2.0, -1.0, -0.30000000000000004),
    ),
)
def test_intrinsic_rewards_are_the_rollouts_own_statistics_and_need_no_label(
    judge, method, rewards
):
    decided = supervise(judge, method, STATISTICS, Prompt("p", (), None, None, None))
    assert decided.rewards == rewards
    assert (decided.label.label_source, decided.label.effective_label) == ("none", None)
    assert not compose(method).needs_labels


@given(
    st.lists(st.floats(-10, 10), min_size=2, max_size=9).filter(
        lambda rewards: np.std(rewards) > 1e-3
    )
)
def test_advantages_are_rewards_minus_mean_over_population_std_plus_eps(rewards):
    r = np.array(rewards)
    expected = (r - r.mean()) / (r.std() + 1e-6)
    np.testing.assert_allclose(group_advantages(rewards), expected, rtol=1e-9, atol=1e-9)


@given(st.floats(-10, 10), st.integers(1, 9))
def test_a_group_of_equal_rewards_has_advantages_of_exactly_zero(reward, rollouts):
    assert group_advantages([reward] * rollouts) == (0.0,) * rollouts


def test_equal_responses_have_equal_intrinsic_rewards_whatever_rounding_did(judge):
    rounded = [
        Rollout("same", tokens=4, self_certainty=5.0 + error)
        for error in (0, 1e-7, -1e-7, 2e-7)
    ]
    decided = supervise(judge, make_method("self_certainty"), rounded)
    assert decided.advantages == (0, 0, 0, 0)
    assert decided.label.has_zero_variance


def test_one_text_in_other_tokens_is_another_response(judge):
    end_tokens = [
        Rollout("same", tokens=4, self_certainty=score) for score in (5.0, 2.0, 5.000001)
    ]
    rewards = supervise(judge, make_method("self_certainty"), end_tokens).rewards
    assert rewards[0] == rewards[2] == pytest.approx(5.0000005)
    assert rewards[1] == 2.0


def test_a_reward_without_its_statistic_is_an_error_not_a_zero(judge):
    with pytest.raises(ValueError, match="no self_certainty"):
        supervise(judge, make_method("self_certainty"), answering(["12", "7"]))


def step(judge, method, groups, **settings):
    supervisor = Supervisor(compose(method), judge, seed=0, **settings)
    return by_group(supervisor.supervise(Step.of(groups)))


@each(
    "method, label_of",
    (make_method("small_loss_selection"), make_method("grpo")),
    (make_method("random_selection"), make_method("grpo")),
    (
        OlrMethod(criteria=(), warmup_epochs=0, prompts="random"),
        OlrMethod(criteria=(), warmup_epochs=0),
    ),
)
def test_a_selection_marks_who_trains_and_leaves_labels_and_rewards_as_they_are(
    judge, method, label_of
):
    groups = [
        RolloutGroup(
            Prompt(str(n), (), "12", "12", "clean"),
            1,
            1,
            tuple(
                Rollout(rf"\boxed{{{answer}}}", tokens=2, mean_logprob=-0.1 * n)
                for answer in (12, 12, 7, n)
            ),
        )
        for n in range(6)
    ]
    chosen = step(judge, method, groups, keep_fraction=Fraction(1, 2))
    everyone = step(judge, label_of, groups)
    assert sum(group.trains for group in chosen) == 3
    assert [group.rewards for group in chosen] == [group.rewards for group in everyone]
    assert all(group.trains for group in everyone)


def test_a_score_names_what_an_engine_measures_for_it():
    assert Score("entropy", -1).statistics == ("entropy",)
    assert Score("entropy", -1, is_summed=True).statistics == ("entropy", "tokens")
    assert dict(SCORES) == {
        "self_certainty": ("self_certainty", 1),
        "token_entropy": ("entropy", -1),
        "sequence_entropy": ("mean_logprob", 1),
    }
