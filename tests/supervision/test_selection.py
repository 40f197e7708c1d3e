"""Which prompts of a step train: so many, the right ones, the same ones again (R18)."""

from collections import Counter
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from cases import each, refusal
from decisions import make_method
from hypothesis import given, strategies as st

from olr_cli.answers.graded import SENTINEL
from olr_cli.data.prompts import Prompt
from olr_cli.supervision import Decided, Rollout, RolloutGroup, Step
from olr_cli.supervision.advantages import group_advantages
from olr_cli.supervision.selection import (
    any_prompt,
    keep_fraction,
    prompts_that_train,
    small_loss,
)

HALF = Fraction(1, 2)


def candidate(name, rewards, mean_logprobs=None, tokens=None, visit=1):
    mean_logprobs = mean_logprobs or [-1.0] * len(rewards)
    tokens = tokens or [3] * len(rewards)
    rollouts = tuple(
        Rollout("", tokens=length, mean_logprob=mean)
        for length, mean in zip(tokens, mean_logprobs, strict=True)
    )
    return RolloutGroup(
        Prompt(name, (), "1", "1", "clean"), visit, visit, rollouts
    ), rewards


def decided_on(candidates):
    """A step of these candidates, with their rewards."""
    groups, rewards_PG = zip(*candidates, strict=True)
    rewards = [reward for rewards in rewards_PG for reward in rewards]
    return Decided(Step.of(groups), {}, [], [], [], rewards)


def losses(*candidates):
    return small_loss(decided_on(candidates))


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 1.0]),
            st.lists(st.floats(-9, -0.01), min_size=1, max_size=5),
        ),
        min_size=2,
        max_size=8,
    )
)
def test_small_loss_is_the_absolute_token_mean_of_advantage_times_log_likelihood(rollouts):
    rewards = [reward for reward, _ in rollouts]
    advantages = group_advantages(rewards)
    of_tokens = [
        advantage * logprob
        for advantage, (_, logprobs) in zip(advantages, rollouts, strict=True)
        for logprob in logprobs
    ]
    (found,) = losses(
        candidate(
            "p",
            rewards,
            [np.mean(own) for _, own in rollouts],
            [len(own) for _, own in rollouts],
        )
    )
    assert found == pytest.approx(abs(np.mean(of_tokens)), abs=1e-9)


def test_groups_of_equal_rewards_have_no_loss_and_are_the_first_to_train():
    step = [candidate("solved", [1, 1, 1, 1]), candidate("hopeless", [0, 0, 0, 0])]
    step += [candidate(name, [1, 1, 0, 0], [-0.1, -0.2, -2.0, -3.0]) for name in ("a", "b")]
    assert losses(*step[:2]) == [0, 0]
    assert prompts_that_train(decided_on(step), small_loss, HALF, seed=0) == [
        True,
        True,
        False,
        False,
    ]


def test_the_prompts_with_the_smallest_loss_train():
    step = [candidate(str(gap), [1, 0], [-1.0, -1.0 - gap]) for gap in (3, 1, 2, 4)]
    assert prompts_that_train(decided_on(step), small_loss, HALF, seed=0) == [
        False,
        True,
        True,
        False,
    ]


@each(
    "prompts, fraction, kept",
    (5, "0.5", 3),
    (4, "0.5", 2),
    (10, "0.25", 3),
    (3, "0.01", 1),
    (7, "1", 7),
)
def test_so_many_prompts_train_as_the_fraction_says_halves_up_and_at_least_one(
    prompts, fraction, kept
):
    step = [candidate(str(number), [1, 0]) for number in range(prompts)]
    assert (
        sum(prompts_that_train(decided_on(step), any_prompt, Fraction(fraction), seed=0))
        == kept
    )


def test_a_random_choice_is_that_of_its_seed_whatever_the_order_and_another_at_every_visit():
    names = [str(number) for number in range(12)]

    def chosen(order, seed=0, visit=1):
        step = [candidate(name, [1, 0], visit=visit) for name in order]
        trains = prompts_that_train(decided_on(step), any_prompt, HALF, seed)
        return {name for name, does in zip(order, trains, strict=True) if does}

    first = chosen(names)
    assert chosen(names[::-1]) == first
    assert chosen(names, visit=2) != first
    assert chosen(names, seed=1) != first


def test_every_prompt_is_chosen_about_equally_often():
    step = [candidate(str(number), [1, 0]) for number in range(8)]
    times = Counter()
    for seed in range(400):
        trains = prompts_that_train(decided_on(step), any_prompt, HALF, seed)
        times.update(number for number, does in enumerate(trains) if does)
    # 200 expected, standard deviation 10
    assert all(150 < times[number] < 250 for number in range(8))


PROMPTS = [Prompt(str(n), (), "1", "1", "clean") for n in range(3)]
MARKED = [*PROMPTS, Prompt("3", (), SENTINEL, "1", "inactive")]
UNKNOWN = [replace(PROMPTS[0], noise_type=None)]


@each(
    "method, prompts, expected",
    (make_method("grpo"), MARKED, Fraction(1)),
    (make_method("random_selection"), MARKED, Fraction(3, 4)),
    (
        make_method("small_loss_selection", keep_fraction=Decimal("0.3")),
        MARKED,
        Fraction(3, 10),
    ),
    (make_method("small_loss_selection", keep_fraction=Decimal("0.5")), UNKNOWN, HALF),
    (
        make_method("small_loss_selection"),
        UNKNOWN,
        "not known of these data; set method.keep_fraction",
    ),
    (
        make_method("random_selection"),
        MARKED[3:],
        "which is none; set method.keep_fraction",
    ),
)
def test_by_default_the_share_that_is_not_marked_trains(method, prompts, expected):
    if isinstance(expected, Fraction):
        assert keep_fraction(method, prompts) == expected
        return
    assert expected in refusal(keep_fraction, method, prompts)
