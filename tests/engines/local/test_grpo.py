"""The update is Eq. 1 and the loss of R17, equal to a plain implementation rollout by rollout."""

import math
from dataclasses import replace

import pytest
import torch
from cases import each
from tiny import PROMPTS, keys, plain_logprobs, tiny_policy

from olr_cli.engines.local import token_statistics
from olr_cli.engines.local.grpo import Grpo
from olr_cli.engines.local.loss import clipped_surrogate, k3_divergence
from olr_cli.engines.local.sampler import sample
from olr_cli.engines.local.token_statistics import response_statistics
from olr_cli.engines.run import NonFinite
from olr_cli.recipe.methods import MethodSection
from olr_cli.recipe.sampling import Sampling
from olr_cli.recipe.sections import TrainSection
from olr_cli.supervision.advantages import group_advantages

REWARDS = torch.tensor(
    [[1.0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0], [1, 1, 1, 0, 1, 1], [0.5, 0.25, 0, 1, 0, 0]]
)
ALL_TRAIN = [True] * 4
TEMPERATURE = 0.8


def sampled_by(policy, prompts=PROMPTS, rollouts=6, temperature=TEMPERATURE):
    policy.end_ids = [2, *range(45, 60)]  # responses of many lengths
    return sample(policy, prompts, keys(len(prompts), rollouts), Sampling(temperature, 8))


def moved(policy, seed, distance):
    """The policy with its weights moved a little, so that ratios and KL are not trivial."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight += distance * torch.randn(weight.shape, generator=generator)
    return policy


def grpo(
    policy,
    reference=None,
    micro_batch_tokens=16_384,
    penalty_weight=0.0,
    smoothing=0.0,
    **changes,
):
    usual = {
        "learning_rate": 1e-3,
        "kl_weight": 0.1 if reference else 0.0,
        "mini_batch_prompts": 4,
    }
    train = TrainSection(**usual | {"temperature": TEMPERATURE} | changes)
    method = MethodSection(name="grpo", penalty_weight=penalty_weight, smoothing=smoothing)
    return Grpo(policy, reference, train, method, micro_batch_tokens=micro_batch_tokens)


def off_policy_case(distance=0.01):
    """A policy that has moved on from the one that sampled, and a reference elsewhere."""
    policy = tiny_policy()
    rollouts = sampled_by(policy)
    return (
        moved(policy, 1, distance),
        moved(tiny_policy(), 2, 0.005).frozen_copy(),
        rollouts,
    )


def advantages(rewards_PG):
    return torch.tensor([group_advantages(rewards) for rewards in rewards_PG.tolist()])


def gradient_of(policy, reference, rollouts, rewards=REWARDS, trains=ALL_TRAIN, **changes):
    """Gradient of one mini-batch's loss, before it is clipped."""
    update = grpo(policy, reference, **changes)
    training = [p for p, t in enumerate(trains) if t]
    advantages_PG = advantages(rewards)
    old_logprobs_PGT = update._old_logprobs(rollouts, [training], advantages_PG)
    update._accumulate(rollouts, advantages_PG, old_logprobs_PGT, training)
    named = policy.model.named_parameters()
    return {
        name: torch.zeros_like(w) if w.grad is None else w.grad.clone() for name, w in named
    }


def plain_gradient(
    policy,
    reference,
    rollouts,
    rewards=REWARDS,
    trains=ALL_TRAIN,
    clip=0.2,
    penalty_weight=0.0,
    smoothing=0.0,
    loss_average="token",
    sampler=None,
):
    """The same by the formulas: one rollout at a time, one token at a time, no cache, no padding.

    With smoothing, `sampler` is the policy that sampled.
    """
    policy.model.zero_grad()
    losses = []  # of each response, a list of its tokens'
    for p, prompt in enumerate(rollouts.prompts):
        if not trains[p]:
            continue
        r = rewards[p].double().numpy()
        for g, advantage in enumerate((r - r.mean()) / (r.std() + 1e-6)):
            length = int(rollouts.lengths_PG[p, g])
            response = rollouts.tokens_PGT[p, g, :length].tolist()
            new_T, log_pi_TV = plain_logprobs(policy, prompt, response, TEMPERATURE)
            old_T, fixed_T, smooth_T = (
                rollouts.logprobs_PGT[p, g, :length],
                new_T.detach(),
                new_T,
            )
            if reference:
                fixed_T = plain_logprobs(reference, prompt, response, TEMPERATURE)[
                    0
                ].detach()
            if smoothing:
                old_T, old_log_pi_TV = plain_logprobs(
                    sampler, prompt, response, TEMPERATURE
                )
                old_T = (
                    (1 - smoothing) * old_T + smoothing * old_log_pi_TV.mean(-1)
                ).detach()
                smooth_T = (1 - smoothing) * new_T + smoothing * log_pi_TV.mean(-1)
            losses.append([])
            for t in range(length):
                ratio = torch.exp(smooth_T[t] - old_T[t])
                gain = min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
                if advantage < 0:
                    gain = max(gain, torch.tensor(3.0 * advantage))
                kl = torch.exp(fixed_T[t] - new_T[t]) - 1 - (fixed_T[t] - new_T[t])
                entropy = -(log_pi_TV[t].exp() * log_pi_TV[t]).sum()
                losses[-1].append(
                    -gain + (0.1 * kl if reference else 0) - penalty_weight * entropy
                )
    if loss_average == "sequence":
        loss = sum(sum(tokens) / len(tokens) for tokens in losses) / len(losses)
    else:
        loss = sum(map(sum, losses)) / sum(map(len, losses))
    loss.backward()
    gradient = {
        name: weight.grad.clone() for name, weight in policy.model.named_parameters()
    }
    policy.model.zero_grad()
    return gradient


def assert_same_gradient(gradient, expected, atol=1e-6):
    assert max(float(g.abs().max()) for g in expected.values()) > 100 * atol
    for name, value in expected.items():
        torch.testing.assert_close(
            gradient[name], value, atol=atol, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}"
        )


@each(
    "ratio, advantage, clip_high, loss, clipped",
    (1.1, 1.0, None, -1.1, False),
    (1.5, 1.0, None, -1.2, True),
    (0.5, 1.0, None, -0.5, False),
    (0.5, -1.0, None, 0.8, True),
    (1.5, -1.0, None, 1.5, False),
    (5.0, -1.0, None, 3.0, False),  # the dual clip
    (5.0, -2.0, None, 6.0, False),
    (1.5, 0.0, None, 0.0, False),
    (1.25, 1.0, 0.28, -1.25, False),  # unlikely tokens gain more
    (1.5, 1.0, 0.28, -1.28, True),
    (0.5, -1.0, 0.28, 0.8, True),  # and lose as before
)
def test_the_surrogate_is_clipped_and_dual_clipped(
    ratio, advantage, clip_high, loss, clipped
):
    value, holds = clipped_surrogate(
        torch.tensor(math.log(ratio)),
        torch.tensor(0.0),
        torch.tensor(advantage),
        0.2,
        clip_high,
    )
    assert value == pytest.approx(loss)
    assert holds == clipped


def test_each_mini_batch_takes_its_learning_rate():
    policy = tiny_policy()
    update = grpo(policy, mini_batch_prompts=2)
    metrics = update.update(sampled_by(policy), advantages(REWARDS), ALL_TRAIN, [0.3, 0.4])
    assert metrics["policy/lr"] == 0.4
    with pytest.raises(ValueError, match="shorter"):
        update.update(sampled_by(policy), advantages(REWARDS), ALL_TRAIN, [0.3])


def test_k3_is_never_negative_and_its_mean_is_the_kl_divergence():
    generator = torch.Generator().manual_seed(0)
    log_pi, log_ref = (
        torch.log_softmax(torch.randn(10, generator=generator), -1) for _ in range(2)
    )
    estimate = k3_divergence(log_pi, log_ref)
    assert (estimate >= 0).all()
    torch.testing.assert_close(
        (log_pi.exp() * estimate).sum(), (log_pi.exp() * (log_pi - log_ref)).sum()
    )


def test_a_token_that_the_reference_finds_far_likelier_has_a_bounded_estimate_without_gradient():
    logprob = torch.tensor(-40.0, requires_grad=True)
    estimate = k3_divergence(logprob, torch.tensor(-1.0))
    estimate.backward()
    assert (estimate, logprob.grad) == (10, 0)


def test_logprobs_of_one_token_responses_need_no_second_pass():
    policy = tiny_policy()
    logprobs = response_statistics(policy, PROMPTS, torch.full((4, 1, 1), 7), 1.0).logprobs
    for p, prompt in enumerate(PROMPTS):
        torch.testing.assert_close(logprobs[p, 0], plain_logprobs(policy, prompt, [7])[0])


@each("with_reference, distance", (True, 0.01), (False, 0.02), ids=["KL", "far off-policy"])
@pytest.mark.parametrize("reads_trees", [False, True])
def test_the_gradient_is_that_of_a_plain_implementation(
    with_reference, distance, reads_trees
):
    policy, reference, rollouts = off_policy_case(distance)
    for repeated in (rollouts.tokens_PGT, rollouts.lengths_PG, rollouts.logprobs_PGT):
        repeated[:, 3:5] = repeated[:, :1]  # three of six responses are equal
    policy.reads_trees = reference.reads_trees = reads_trees
    reference = reference if with_reference else None
    gradient = gradient_of(policy, reference, rollouts)
    assert_same_gradient(gradient, plain_gradient(policy, reference, rollouts))


@each(
    "micro_batch_tokens, groups_of_scores, pieces",
    (1, 9, 24),
    (40, 9, 12),
    (200, 9, 2),
    (16_384, 2, 2),
)
def test_a_gradient_accumulated_over_micro_batches_is_that_of_the_whole(
    micro_batch_tokens, groups_of_scores, pieces, monkeypatch
):
    """Few tokens, or a large vocabulary, make micro-batches smaller."""
    policy, reference, rollouts = off_policy_case()
    whole, (_, G, T) = gradient_of(policy, reference, rollouts), rollouts.tokens_PGT.shape
    monkeypatch.setattr(token_statistics, "MOST_SCORES", 64 * T * G * groups_of_scores)
    update = grpo(policy, micro_batch_tokens=micro_batch_tokens)
    assert len(list(update._micro_batches(rollouts, [0, 1, 2, 3]))) == pieces
    in_pieces = gradient_of(
        policy, reference, rollouts, micro_batch_tokens=micro_batch_tokens
    )
    assert_same_gradient(in_pieces, whole)


def test_a_prompt_that_does_not_train_has_no_influence():
    policy, reference, rollouts = off_policy_case()
    gradient = gradient_of(policy, reference, rollouts, trains=[True, False, True, False])
    without = replace(
        rollouts,
        prompts=[PROMPTS[0], PROMPTS[2]],
        tokens_PGT=rollouts.tokens_PGT[[0, 2]],
        lengths_PG=rollouts.lengths_PG[[0, 2]],
        logprobs_PGT=rollouts.logprobs_PGT[[0, 2]],
    )
    expected = gradient_of(
        policy, reference, without, rewards=REWARDS[[0, 2]], trains=[True, True]
    )
    assert_same_gradient(gradient, expected)


def test_without_kl_a_group_of_equal_rewards_only_counts_in_the_mean():
    policy, _, rollouts = off_policy_case()
    assert not advantages(REWARDS)[1].any()
    read = []
    policy_read = policy.read
    policy.read = lambda prompts: read.extend(prompts) or policy_read(prompts)
    gradient = gradient_of(policy, None, rollouts)
    assert read == [PROMPTS[0], PROMPTS[2], PROMPTS[3]]
    assert_same_gradient(gradient, plain_gradient(policy, None, rollouts))


@pytest.mark.parametrize("with_reference", [True, False])
@each(
    "terms",
    {"penalty_weight": 0.3},
    {"smoothing": 0.2},
    {"penalty_weight": 0.3, "smoothing": 0.2},
)
def test_penalty_and_smoothing_have_the_gradient_of_their_formulas(terms, with_reference):
    policy, reference, rollouts = off_policy_case()
    reference = reference if with_reference else None
    gradient = gradient_of(policy, reference, rollouts, **terms)
    assert_same_gradient(
        gradient,
        plain_gradient(policy, reference, rollouts, sampler=tiny_policy(), **terms),
    )
    plain = plain_gradient(policy, reference, rollouts)
    assert any((gradient[name] - plain[name]).abs().max() > 1e-3 for name in plain)


@each("micro_batch_tokens, trains", (40, [True, False, True, True]), (16_384, ALL_TRAIN))
@pytest.mark.parametrize("terms", [{}, {"penalty_weight": 0.3, "smoothing": 0.2}])
def test_a_mean_over_responses_has_the_gradient_of_its_formula(
    terms, trains, micro_batch_tokens
):
    policy, reference, rollouts = off_policy_case()
    by_response = {"loss_average": "sequence", **terms}
    gradient = gradient_of(
        policy,
        reference,
        rollouts,
        trains=trains,
        micro_batch_tokens=micro_batch_tokens,
        **by_response,
    )
    sampler = tiny_policy()
    expected = plain_gradient(
        policy, reference, rollouts, trains=trains, sampler=sampler, **by_response
    )
    assert_same_gradient(gradient, expected)
    by_token = plain_gradient(
        policy, reference, rollouts, trains=trains, sampler=sampler, **terms
    )
    assert any((expected[name] - by_token[name]).abs().max() > 1e-3 for name in expected)


@pytest.mark.parametrize("loss_average", ["token", "sequence"])
def test_the_kl_is_averaged_as_the_loss_is_over_the_whole_step(loss_average):
    policy, reference, rollouts = off_policy_case()
    update = grpo(
        policy,
        reference,
        mini_batch_prompts=2,
        learning_rate=1e-9,
        loss_average=loss_average,
    )
    metrics = update.update(rollouts, advantages(REWARDS), ALL_TRAIN)
    new, fixed = (
        response_statistics(one, PROMPTS, rollouts.tokens_PGT, TEMPERATURE).logprobs
        for one in (policy, reference)
    )
    kl_PGT = k3_divergence(new, fixed)
    responses = [
        kl_PGT[p, g, : rollouts.lengths_PG[p, g]] for p in range(4) for g in range(6)
    ]
    means = torch.stack([kl.mean() for kl in responses])
    expected = {"token": torch.cat(responses).mean(), "sequence": means.mean()}
    assert metrics["policy/kl"] == pytest.approx(expected[loss_average].item(), rel=1e-3)
    assert expected["token"].item() != pytest.approx(expected["sequence"].item(), rel=1e-2)


def test_the_penalty_teaches_groups_of_equal_rewards_too_and_nothing_else_does_without_a_reference():
    policy, _, rollouts = off_policy_case()
    equal = torch.zeros(4, 6)
    smoothed = gradient_of(policy, None, rollouts, rewards=equal, smoothing=0.2)
    assert not any(part.any() for part in smoothed.values())
    penalised = gradient_of(policy, None, rollouts, rewards=equal, penalty_weight=0.3)
    assert_same_gradient(
        penalised, plain_gradient(policy, None, rollouts, equal, penalty_weight=0.3)
    )


def test_padding_after_a_response_has_no_influence():
    policy, reference, rollouts = off_policy_case()
    after = torch.arange(rollouts.tokens_PGT.shape[2]) >= rollouts.lengths_PG[..., None]
    assert after.any()
    other = replace(rollouts, tokens_PGT=rollouts.tokens_PGT.masked_fill(after, 33))
    gradient, expected = (gradient_of(policy, reference, r) for r in (other, rollouts))
    assert_same_gradient(gradient, expected, atol=1e-7)


def weights(policy):
    return torch.cat([weight.detach().flatten() for weight in policy.model.parameters()])


def test_mini_batches_are_prompts_in_their_order_the_last_one_smaller(monkeypatch):
    policy = tiny_policy()
    rollouts = sampled_by(policy)
    update = grpo(policy, mini_batch_prompts=3)
    taken = []
    accumulate = update._accumulate
    monkeypatch.setattr(
        update,
        "_accumulate",
        lambda *arguments: taken.append(arguments[-1]) or accumulate(*arguments),
    )
    update.update(rollouts, advantages(REWARDS), [True, False, True, True])
    assert taken == [[0, 2], [3]]


def test_a_step_is_adamw_on_a_gradient_clipped_to_norm_one():
    policy, reference, rollouts = off_policy_case()
    gradient = gradient_of(policy, reference, rollouts)
    norm = torch.cat([g.flatten() for g in gradient.values()]).norm()
    assert norm > 1.1
    before = {
        name: weight.detach().clone() for name, weight in policy.model.named_parameters()
    }

    update = grpo(policy, reference, learning_rate=0.01)
    metrics = update.update(rollouts, advantages(REWARDS), ALL_TRAIN)
    assert metrics["policy/grad_norm"] == pytest.approx(norm.item(), rel=1e-5)
    for name, weight in policy.model.named_parameters():
        state, clipped = update.optimizer.state[weight], gradient[name] / norm
        torch.testing.assert_close(state["exp_avg"], 0.1 * clipped, atol=1e-7, rtol=1e-4)
        torch.testing.assert_close(
            state["exp_avg_sq"], 0.001 * clipped**2, atol=1e-9, rtol=1e-4
        )
        is_large = clipped.abs() > 1e-4  # where Adam's eps of 1e-8 and rounding do not show
        step = before[name] * 0.01 * 0.01 + 0.01 * clipped.sign()
        torch.testing.assert_close(
            (before[name] - weight)[is_large], step[is_large], atol=1e-5, rtol=1e-3
        )


def test_a_gradient_that_is_not_finite_stops_the_run_before_the_weights_change():
    policy = tiny_policy()
    rollouts = sampled_by(policy)
    with torch.no_grad():
        policy.model.model.norm.weight[0] = torch.inf
    before = weights(policy)
    with pytest.raises(NonFinite, match="its loss or gradient is not finite"):
        grpo(policy).update(rollouts, advantages(REWARDS), ALL_TRAIN)
    assert torch.equal(weights(policy), before)


def test_a_loss_alone_or_a_gradient_alone_that_is_not_finite_stops_the_run_too(monkeypatch):
    policy = tiny_policy()
    rollouts, before = sampled_by(policy), weights(policy)
    for bad in (torch.inf, torch.nan):
        update = grpo(policy)
        with monkeypatch.context() as patched, pytest.raises(NonFinite):
            patched.setattr(
                update, "_accumulate", lambda *_, bad=bad: torch.tensor([bad, 0, 0])
            )
            update.update(rollouts, advantages(REWARDS), ALL_TRAIN)
        hook = policy.model.model.norm.weight.register_hook(
            lambda grad, bad=bad: grad * bad
        )
        with pytest.raises(NonFinite):
            grpo(policy).update(rollouts, advantages(REWARDS), ALL_TRAIN)
        hook.remove()
        policy.model.zero_grad()
    assert torch.equal(weights(policy), before)


def test_a_step_that_trains_nothing_changes_nothing_and_reports_no_gradient():
    policy = tiny_policy()
    rollouts = sampled_by(policy)
    before = weights(policy)
    metrics = grpo(policy, policy.frozen_copy()).update(
        rollouts, advantages(REWARDS), [False] * 4
    )
    assert torch.equal(weights(policy), before)
    assert set(metrics) == {"policy/entropy", "policy/lr", "policy/nonfinite"}


def test_a_step_without_signal_still_lets_momentum_go_on():
    policy = tiny_policy()
    update = grpo(policy)
    update.update(sampled_by(policy), advantages(REWARDS), ALL_TRAIN)
    before = weights(policy)
    update.update(sampled_by(policy), torch.zeros(4, 6), ALL_TRAIN)
    assert not torch.equal(weights(policy), before)


def test_metrics_are_those_of_the_step():
    policy = tiny_policy()
    rollouts = sampled_by(policy)
    metrics = grpo(
        policy, policy.frozen_copy(), learning_rate=0.01, mini_batch_prompts=2
    ).update(rollouts, advantages(REWARDS), ALL_TRAIN)
    entropies, sampler = [], tiny_policy()
    for p, prompt in enumerate(PROMPTS):
        for g in range(6):
            response = rollouts.tokens_PGT[p, g, : rollouts.lengths_PG[p, g]].tolist()
            _, log_pi_TV = plain_logprobs(sampler, prompt, response, TEMPERATURE)
            entropies.append(-(log_pi_TV.exp() * log_pi_TV).sum(-1))
    assert metrics["policy/entropy"] == pytest.approx(
        torch.cat(entropies).mean().item(), rel=1e-4
    )
    assert metrics["policy/lr"] == 0.01
    assert metrics["policy/kl"] > 0  # the second mini-batch sees a policy that has moved
    assert 0 < metrics["policy/clip_fraction"] < 1
    assert metrics["policy/grad_norm"] > 0


def test_the_first_mini_batch_is_on_policy():
    policy = tiny_policy()
    metrics = grpo(policy, policy.frozen_copy()).update(
        sampled_by(policy), advantages(REWARDS), ALL_TRAIN
    )
    assert metrics["policy/kl"] == pytest.approx(0, abs=1e-6)
    assert metrics["policy/clip_fraction"] == 0
    assert "policy/kl" not in grpo(policy).update(
        sampled_by(policy), advantages(REWARDS), ALL_TRAIN
    )


@pytest.mark.parametrize("smoothing", [0, 0.3])
def test_in_bfloat16_ratios_start_at_one_whatever_the_sampler_rounded(smoothing):
    policy = tiny_policy(dtype=torch.bfloat16)
    rollouts = sampled_by(policy)
    rounded = replace(rollouts, logprobs_PGT=rollouts.logprobs_PGT - 1)
    update = grpo(policy, policy.frozen_copy(), clip=1e-6, smoothing=smoothing)
    metrics = update.update(rounded, advantages(REWARDS), ALL_TRAIN)
    assert (metrics["policy/clip_fraction"], metrics["policy/kl"]) == (0, 0)
    assert metrics["policy/grad_norm"] > 0


@each("terms", {}, {"smoothing": 0.3, "clip": 1e-3}, {"penalty_weight": 0.3})
@each("mini_batch, micro_batch_tokens", (4, 40), (1, 16_384))
@pytest.mark.parametrize("with_reference", [False, True])
def test_in_bfloat16_the_first_mini_batch_needs_no_pass_for_old_log_probabilities(
    with_reference, mini_batch, micro_batch_tokens, terms, monkeypatch
):
    """Weights and metrics are to the last bit those of a pass over all prompts before the first optimiser step."""
    passes = []
    statistics = Grpo._statistics
    monkeypatch.setattr(
        Grpo,
        "_statistics",
        lambda *given, **wanted: (
            passes.append(given[2].where[0]) or statistics(*given, **wanted)
        ),
    )

    def results(is_given):
        policy = tiny_policy(dtype=torch.bfloat16)
        rollouts = sampled_by(policy)
        update = grpo(
            policy,
            moved(tiny_policy(dtype=torch.bfloat16), 1, 0.1).frozen_copy()
            if with_reference
            else None,
            mini_batch_prompts=mini_batch,
            micro_batch_tokens=micro_batch_tokens,
            learning_rate=0.01,
            **terms,
        )
        if is_given:
            everywhere = update._old_logprobs(rollouts, [[0], [0, 1, 2, 3]], REWARDS + 1)
            accumulate = update._accumulate
            update._accumulate = lambda all_of, advantages_PG, _, chosen: accumulate(
                all_of, advantages_PG, everywhere, chosen
            )
            update._old_logprobs = lambda *_: None
        passes.clear()
        metrics = update.update(rollouts, advantages(REWARDS), [True, True, False, True])
        return weights(policy), metrics

    (expected, metrics), (weights_after, metrics_after) = results(True), results(False)
    assert torch.equal(weights_after, expected)
    assert metrics_after == metrics
    prompts_read = sorted({prompt for where in passes for prompt in where})
    assert prompts_read == (
        [0, 1, 3] if with_reference or "penalty_weight" in terms else [0, 3]
    )


def probability_of_20(policy):
    with torch.no_grad():
        return policy.read(PROMPTS).logits_BV.softmax(-1)[:, 20].mean()


def test_what_is_rewarded_becomes_likely():
    policy = tiny_policy()
    before = probability_of_20(policy)
    update = grpo(
        policy, policy.frozen_copy(), learning_rate=3e-3, temperature=1.0, kl_weight=1e-3
    )
    for step in range(40):
        rollouts = sample(policy, PROMPTS, keys(4, 16, f"step {step}"), Sampling(1.0, 3))
        update.update(
            rollouts, advantages((rollouts.tokens_PGT[:, :, 0] == 20).float()), ALL_TRAIN
        )
    assert before < 0.1
    assert probability_of_20(policy) > 0.5
