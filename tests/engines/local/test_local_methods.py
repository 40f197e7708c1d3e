"""The baselines on the local engine: scores against brute force, both views, who trains, resumed bit for bit."""

import math

import numpy as np
import polars as pl
import pytest
import torch
from cases import each
from decisions import by_group, make_method
from test_resume import recipe
from tiny import PROMPTS, keys, plain_logprobs, tiny_policy

from olr_cli.answers import Judge
from olr_cli.data.prompts import Prompt
from olr_cli.engines.launch import launch
from olr_cli.engines.local.engine import LocalRunner
from olr_cli.engines.local.loop import advantages_and_trains, sampled_step, training_keys
from olr_cli.engines.local.sampler import sample
from olr_cli.recipe.sampling import Sampling
from olr_cli.runs.progress import JsonProgress
from olr_cli.runs.store import scan_labels, scan_rollouts
from olr_cli.supervision import Supervisor, compose

TEMPERATURE = 0.7


def brute_force(policy, prompt, response):
    """Of one response: mean KL(uniform || pi), minus mean entropy, mean and sum of log pi, each by its definition."""
    logprobs_T, log_pi_TV = plain_logprobs(policy, prompt, response, TEMPERATURE)
    pi_TV, V = log_pi_TV.exp().double(), log_pi_TV.shape[1]
    certainty = sum(
        sum(1 / V * (math.log(1 / V) - math.log(p)) for p in pi_V.tolist())
        for pi_V in pi_TV
    )
    entropy = -sum(sum(p * math.log(p) for p in pi_V.tolist()) for pi_V in pi_TV)
    return {
        "self_certainty": certainty / len(response),
        "token_entropy": -entropy / len(response),
        "summed entropy": -entropy,
        "mean": float(logprobs_T.mean()),
        "sum": float(logprobs_T.sum()),
    }


@each(
    "method, name",
    (make_method("self_certainty"), "self_certainty"),
    (make_method("token_entropy"), "token_entropy"),
    (make_method("token_entropy", score_reduction="sum"), "summed entropy"),
    (make_method("sequence_entropy"), "mean"),
    (make_method("sequence_entropy", score_reduction="sum"), "sum"),
)
def test_intrinsic_rewards_are_what_their_definitions_say_over_response_tokens_alone(
    method, name
):
    policy = tiny_policy()
    policy.end_ids = [2, *range(45, 60)]
    sampled = sample(policy, PROMPTS, keys(4, 6), Sampling(TEMPERATURE, 8))
    assert len(set(sampled.lengths_PG.flatten().tolist())) > 3  # so padding would show
    prompts = [Prompt(str(p), (), None, None, None) for p in range(4)]
    with Judge() as judge, torch.no_grad():
        supervisor = Supervisor(compose(method), judge, seed=0)
        step = sampled_step(prompts, sampled, 1, 1, ("original",))
        for p, group in enumerate(by_group(supervisor.supervise(step))):
            for g, reward in enumerate(group.rewards):
                response = sampled.tokens_PGT[p, g, : sampled.lengths_PG[p, g]].tolist()
                expected = brute_force(policy, PROMPTS[p], response)[name]
                assert reward == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_the_views_of_a_prompt_are_neighbours_and_have_rollouts_of_their_own():
    a_recipe = recipe(method={"name": "co_reward"})
    views = compose(make_method("co_reward")).views
    prompts = [Prompt(name, (), "1", "1", "clean") for name in "abc"]
    both, plain = (
        training_keys(a_recipe, 1, prompts, names) for names in (views, ("original",))
    )
    assert both.shape == (6, a_recipe.train.rollouts_per_prompt)
    # What a prompt itself is asked is what any method asks it
    assert np.array_equal(both[::2], plain)
    assert len(set(both.flatten().tolist())) == both.size

    policy = tiny_policy()
    sampled = sample(
        policy, [tokens for tokens in PROMPTS[:3] for _ in views], both, Sampling(1.0, 3)
    )
    step = sampled_step(prompts, sampled, 1, 1, views)
    assert step.responses == [text for texts in sampled.texts_PG for text in texts]
    assert step.views == [
        view for _ in prompts for view in views for _ in range(both.shape[1])
    ]
    with Judge() as judge:
        decided = Supervisor(compose(make_method("co_reward")), judge, seed=0).supervise(
            step
        )
    advantages, trains = advantages_and_trains(decided, views)
    assert (advantages.shape, trains) == (both.shape, [True] * 6)
    assert advantages.flatten().tolist() == decided.advantages


def test_co_reward_stores_both_views_and_the_label_is_the_other_views_majority(tmp_path):
    place = tmp_path / "run"
    launch(recipe(method={"name": "co_reward"}), place, LocalRunner, JsonProgress())
    rollouts = scan_rollouts(place).collect()
    counts = rollouts.group_by("prompt_id", "visit", "view").len()
    assert set(counts["len"]) == {recipe().train.rollouts_per_prompt}
    assert set(rollouts["view"]) == {"original", "rephrased"}
    labels = scan_labels(place).filter(pl.col("label_source") == "majority")
    of_label = labels.select("prompt_id", "visit", "effective_label").collect()
    rewarded = rollouts.join(of_label, on=["prompt_id", "visit"]).filter(
        view="original", reward=1
    )
    assert rewarded.height > 0
    assert (rewarded["answer_class"] == rewarded["effective_label"]).all()
    assert rollouts.filter(view="rephrased")["reward"].sum() > 0
