"""Sampling draws from the policy's distribution, by each rollout's own key, and reports what it drew."""

import copy
import math

import numpy as np
import pytest
import torch
from cases import each, refusal
from hypothesis import given, strategies as st
from tiny import PROMPTS, keys, plain_logprobs, tiny_policy
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from olr_cli.engines.local import captured
from olr_cli.engines.local.policy import Policy
from olr_cli.engines.local.responses import drawn, truncated
from olr_cli.engines.local.room import rows_in
from olr_cli.engines.local.sampler import sample
from olr_cli.engines.local.token_statistics import response_statistics
from olr_cli.engines.prompt_text import before_stop
from olr_cli.recipe.sampling import Sampling

LIMIT = 12


@pytest.fixture(
    scope="module",
    params=["equal texts one row", "fixed places, as on a GPU"],
)
def policy(request):
    """Several end tokens, so that responses end at all lengths and the batch shrinks on the way."""
    policy = tiny_policy()
    policy.has_fixed_places = request.param.startswith("fixed")
    policy.end_ids = [2, *range(50, 60)]
    with pytest.MonkeyPatch.context() as patch:
        # Several looks, and windows that grow, in a few tokens.
        for name, value in {"LOOK": 3, "_LEAST_WINDOW": 8, "_STEP": 2}.items():
            patch.setattr(captured, name, value)
        yield policy


@pytest.fixture(scope="module")
def rollouts(policy):
    return sample(policy, PROMPTS, keys(4, 8), Sampling(0.7, LIMIT))


def responses(rollouts):
    """(prompt, sample, response tokens) of every rollout."""
    for p, lengths_G in enumerate(rollouts.lengths_PG.tolist()):
        for g, length in enumerate(lengths_G):
            yield p, g, rollouts.tokens_PGT[p, g, :length].tolist()


def test_the_same_keys_give_the_same_rollouts_however_they_are_batched(policy, rollouts):
    one_group_at_a_time = sample(
        policy, PROMPTS, keys(4, 8), Sampling(0.7, LIMIT), batch_tokens=1
    )
    assert list(responses(one_group_at_a_time)) == list(responses(rollouts))
    torch.testing.assert_close(
        one_group_at_a_time.logprobs_PGT, rollouts.logprobs_PGT, atol=1e-5, rtol=1e-5
    )


def test_a_rollout_does_not_depend_on_the_company_it_is_sampled_in(policy, rollouts):
    of_two = sample(policy, PROMPTS[3:1:-1], keys(4, 8)[3:1:-1, 5:], Sampling(0.7, LIMIT))
    drawn = {(p, g): response for p, g, response in responses(rollouts)}
    assert {(3 - p, 5 + g): response for p, g, response in responses(of_two)} == {
        place: response
        for place, response in drawn.items()
        if place[0] >= 2 and place[1] >= 5
    }


def test_other_keys_give_other_rollouts(policy, rollouts):
    others = sample(policy, PROMPTS, keys(4, 8, "other"), Sampling(0.7, LIMIT))
    assert list(responses(others)) != list(responses(rollouts))


def test_rollouts_that_say_the_same_so_far_are_one_row_until_they_differ(monkeypatch):
    rows, policy = [], tiny_policy()
    extend = Policy.extend
    monkeypatch.setattr(
        Policy, "extend", lambda *given: rows.append(len(given[2])) or extend(*given)
    )
    shared = sample(policy, PROMPTS, keys(4, 8), Sampling(0.4, LIMIT))
    policy.has_fixed_places = True  # where each is a row of its own
    apart = sample(policy, PROMPTS, keys(4, 8), Sampling(0.4, LIMIT))
    assert torch.equal(shared.tokens_PGT, apart.tokens_PGT)
    distinct = {
        (p, response[0]) for p, _, response in responses(shared) if len(response) > 1
    }
    assert rows[0] == len(distinct) < 32


def test_statistics_are_those_of_a_forward_pass_over_each_whole_sequence(policy, rollouts):
    for p, g, response in responses(rollouts):
        logprobs_T, log_pi_TV = plain_logprobs(
            policy, PROMPTS[p], response, temperature=0.7
        )
        entropy = -(log_pi_TV.exp() * log_pi_TV).sum(-1).mean()
        self_certainty = (-math.log(log_pi_TV.shape[1]) - log_pi_TV.mean(-1)).mean()
        close = {"atol": 1e-5, "rtol": 1e-5}
        torch.testing.assert_close(
            rollouts.logprobs_PGT[p, g, : len(response)], logprobs_T, **close
        )
        torch.testing.assert_close(
            rollouts.statistics["mean_logprob"][p, g], logprobs_T.mean(), **close
        )
        torch.testing.assert_close(rollouts.entropy_PG[p, g], entropy, **close)
        torch.testing.assert_close(
            rollouts.statistics["self_certainty"][p, g], self_certainty, **close
        )


def test_a_response_stops_at_its_first_end_token_or_at_the_limit(policy, rollouts):
    lengths = [len(response) for *_, response in responses(rollouts)]
    assert min(lengths) < LIMIT // 2
    for p, g, response in responses(rollouts):
        ends = [token in policy.end_ids for token in response]
        assert not any(ends[:-1])
        assert rollouts.truncated_PG[p, g] == (not ends[-1])
        assert ends[-1] or len(response) == LIMIT
    assert rollouts.truncated_PG.any()


def test_an_end_token_at_the_limit_is_not_a_truncation(policy, rollouts):
    length = int(rollouts.lengths_PG[~rollouts.truncated_PG].max())
    cut = sample(policy, PROMPTS, keys(4, 8), Sampling(0.7, length))
    ended_just_there = (rollouts.lengths_PG == length) & ~rollouts.truncated_PG
    assert not cut.truncated_PG[ended_just_there].any()


def test_nothing_stands_after_the_end(policy, rollouts):
    positions_T = torch.arange(rollouts.tokens_PGT.shape[2])
    after_PGT = positions_T >= rollouts.lengths_PG[..., None]
    assert (rollouts.tokens_PGT[after_PGT] == policy.pad_id).all()
    assert (rollouts.logprobs_PGT[after_PGT] == 0).all()
    assert rollouts.tokens_PGT.shape[2] == rollouts.lengths_PG.max()


def test_texts_are_the_responses_without_their_end_tokens(policy, rollouts):
    for p, g, response in responses(rollouts):
        kept = response if rollouts.truncated_PG[p, g] else response[:-1]
        assert rollouts.texts_PG[p][g] == policy.tokenizer.decode(
            kept, skip_special_tokens=True
        )


def test_a_stop_text_that_is_a_special_token_ends_a_response_by_its_id(policy, rollouts):
    policy = copy.copy(policy)
    policy.tokenizer = copy.deepcopy(policy.tokenizer)
    policy.tokenizer.add_special_tokens({"additional_special_tokens": ["m"]})
    special = policy.tokenizer.convert_tokens_to_ids("m")
    whole = {(p, g): response for p, g, response in responses(rollouts)}
    stopped = sample(policy, PROMPTS, keys(4, 8), Sampling(0.7, LIMIT, stop=("m",)))
    ended = 0
    for p, g, response in responses(stopped):
        full = whole[p, g]
        if special in full:
            ended += 1
            assert response == full[: full.index(special) + 1]
            assert not stopped.truncated_PG[p, g]
            assert stopped.texts_PG[p][g] == policy.decode([response[:-1]])[0]
        else:
            assert response == full
    assert ended


def test_a_stop_text_that_contains_a_special_token_is_refused(policy):
    stop = ["\n" + policy.tokenizer.eos_token]
    said = refusal(
        sample, policy, PROMPTS, keys(4, 8), Sampling(stop=stop, max_new_tokens=LIMIT)
    )
    assert "contains the special token <eos>" in said


def test_a_response_ends_before_the_first_stop_text_whose_tokens_count(policy, rollouts):
    stop = [")=", "m"]
    stopped = sample(policy, PROMPTS, keys(4, 8), Sampling(0.7, LIMIT, stop=stop))
    endings = 0
    for p, g, response in responses(stopped):
        whole = rollouts.texts_PG[p][g]
        assert stopped.texts_PG[p][g] == before_stop(whole, stop)
        assert response == rollouts.tokens_PGT[p, g, : len(response)].tolist()
        if any(text in whole for text in stop):
            endings += 1
            assert not stopped.truncated_PG[p, g]
            assert policy.tokenizer.decode(response).endswith(tuple(stop))
    assert 0 < endings < 32


def test_temperature_zero_is_the_models_own_greedy_decoding():
    policy = tiny_policy()
    greedy = sample(policy, PROMPTS, keys(4, 1), Sampling(0, LIMIT))
    for p, _, response in responses(greedy):
        ids = policy.model.generate(
            torch.tensor([PROMPTS[p]]),
            max_new_tokens=LIMIT,
            do_sample=False,
            pad_token_id=policy.pad_id,
        )
        assert response == ids[0, len(PROMPTS[p]) :].tolist()


def test_tokens_are_drawn_with_the_policys_probabilities():
    policy = tiny_policy()
    draws = 20_000
    rollouts = sample(policy, PROMPTS[:1], keys(1, draws), Sampling(1.0, 1))
    _, log_pi_TV = plain_logprobs(policy, PROMPTS[0], [0])
    pi_V = log_pi_TV[0].exp().detach().double().numpy()
    drawn_V = np.bincount(rollouts.tokens_PGT.flatten().numpy(), minlength=len(pi_V))
    standard_errors_V = (drawn_V - draws * pi_V) / np.sqrt(draws * pi_V * (1 - pi_V))
    assert np.abs(standard_errors_V[draws * pi_V > 20]).max() < 4


@each(
    "truncation",
    {"top_p": 0.9},
    {"top_p": 1e-6},
    {"top_k": 1},
    {"top_k": 5},
    {"top_k": 10_000},
    {"min_p": 0.3},
    {"min_p": 0.05, "top_k": 12, "top_p": 0.8},
    ids=str,
)
def test_truncation_leaves_the_tokens_that_transformers_own_processors_leave(truncation):
    logits_BV = 3 * torch.randn(200, 60, generator=torch.Generator().manual_seed(0))
    kept_BV = truncated(logits_BV.softmax(-1), Sampling(**truncation))
    processors = [
        process(truncation[name])
        for name, process in (
            ("min_p", MinPLogitsWarper),
            ("top_k", TopKLogitsWarper),
            ("top_p", TopPLogitsWarper),
        )
        if name in truncation
    ]
    for process in processors:
        logits_BV = process(None, logits_BV)
    torch.testing.assert_close(
        kept_BV / kept_BV.sum(-1, keepdim=True), logits_BV.softmax(-1)
    )


def test_tokens_as_likely_as_the_last_of_the_top_k_stay_and_a_nucleus_is_as_small_as_it_can_be():
    pi_BV = torch.tensor([[0.25, 0.125, 0.25, 0.125, 0.25]])
    assert truncated(pi_BV, Sampling(top_k=2)).tolist() == [[0.25, 0, 0.25, 0, 0.25]]
    assert truncated(pi_BV, Sampling(top_p=0.5)).tolist() == [[0.25, 0, 0.25, 0, 0]]
    assert truncated(pi_BV, Sampling(top_p=0.51)).tolist() == [[0.25, 0, 0.25, 0, 0.25]]


def test_a_truncated_draw_reports_the_log_probabilities_of_all_tokens():
    policy, draws = tiny_policy(), 20_000
    rollouts = sample(policy, PROMPTS[:1], keys(1, draws), Sampling(0.7, 1, top_k=4))
    _, log_pi_TV = plain_logprobs(policy, PROMPTS[0], [0], temperature=0.7)
    pi_V = log_pi_TV[0].detach()
    tokens_N = rollouts.tokens_PGT.flatten()
    torch.testing.assert_close(
        rollouts.logprobs_PGT.flatten(), pi_V[tokens_N], atol=1e-5, rtol=1e-5
    )
    best = pi_V.topk(4)
    share_4 = best.values.softmax(-1).numpy()
    drawn_4 = np.array([(tokens_N == token).sum() for token in best.indices])
    assert drawn_4.sum() == draws
    assert (
        np.abs((drawn_4 - draws * share_4) / np.sqrt(draws * share_4 * (1 - share_4))).max()
        < 4
    )


@each(
    "uniform, token", (0.0, 1), (0.24, 1), (0.26, 3), (0.99, 3), (np.nextafter(1.0, 0.0), 3)
)
@pytest.mark.parametrize("total", [1.0, 0.9, 1.1, 1 - 2**-24])  # as rounding leaves it
def test_a_token_without_probability_is_never_drawn(uniform, token, total):
    pi_BV = total * torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]])
    uniform_B = torch.tensor([uniform, 0.3, uniform], dtype=torch.float64)
    tokens_B = drawn(pi_BV.repeat(2, 1), torch.tensor([1, 0, 1]), uniform_B)
    assert tokens_B.tolist() == [token, 3, token]


def scanned(pi_DV, rows_B, uniform_B):
    """The draw by its definition, from the cumulative distribution of all words."""
    cumulative_BV = pi_DV.double().cumsum(-1)[rows_B]
    threshold_B1 = uniform_B[:, None] * cumulative_BV[:, -1:]
    places_B1 = torch.searchsorted(cumulative_BV, threshold_B1, right=True)
    return places_B1.clamp(max=pi_DV.shape[-1] - 1)[:, 0], cumulative_BV, threshold_B1


@given(
    words=st.integers(1, 1500),
    temperature=st.sampled_from([0.05, 0.3, 1.0, 5.0]),
    kept=st.sampled_from([0.003, 0.1, 1.0]),
    seed=st.integers(0, 2**32 - 1),
    edge=st.sampled_from([None, 0.0, 1 - 2**-53]),
)
def test_a_draw_by_blocks_is_that_of_one_scan(words, temperature, kept, seed, edge):
    generator = torch.Generator().manual_seed(seed)
    logits_DV = torch.randn(3, words, generator=generator) / temperature
    pi_DV = logits_DV.softmax(-1).where(torch.rand(3, words, generator=generator) < kept, 0)
    pi_DV[:, torch.randint(words, (), generator=generator)] = 0.1
    rows_B = torch.randint(3, (40,), generator=generator)
    uniform_B = torch.rand(40, generator=generator, dtype=torch.float64)
    if edge is not None:
        uniform_B.fill_(edge)
    tokens_B = drawn(pi_DV, rows_B, uniform_B)
    expected_B, cumulative_BV, threshold_B1 = scanned(pi_DV, rows_B, uniform_B)
    assert (pi_DV[rows_B, tokens_B] > 0).all()
    # Sums in another order may part at a threshold that lies on the border of two words.
    is_border_B = (cumulative_BV - threshold_B1).abs().amin(-1) < 1e-14
    assert (tokens_B == expected_B)[~is_border_B].all()


@pytest.mark.parametrize("words", [1, 64, 256, 257, 1024])
def test_of_a_row_that_is_no_distribution_the_last_token_is_drawn(words):
    rows_B, uniform_B = torch.tensor([0, 0]), torch.tensor([0.0, 0.5], dtype=torch.float64)
    pi_DV = torch.full((1, words), torch.nan)
    assert drawn(pi_DV, rows_B, uniform_B).tolist() == [words - 1] * 2


def casts_of_weights(policy):
    """How often each weight of a linear layer is rounded while responses are sampled."""
    places = {
        layer.weight.data_ptr(): 0
        for layer in policy.model.modules()
        if isinstance(layer, torch.nn.Linear)
    }

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function is torch.ops.aten._to_copy.default and args[0].data_ptr() in places:
                places[args[0].data_ptr()] += 1
            return function(*args, **(kwargs or {}))

    with Counting():
        sample(policy, PROMPTS, keys(4, 8), Sampling(0.7, LIMIT))
    return set(places.values())


@pytest.mark.parametrize("has_fixed_places", [False, True])
@pytest.mark.parametrize("is_frozen", [False, True])
def test_in_bfloat16_a_weight_is_rounded_once_for_all_tokens(has_fixed_places, is_frozen):
    policy = tiny_policy(dtype=torch.bfloat16)
    policy.model.requires_grad_(not is_frozen)
    policy.has_fixed_places = has_fixed_places
    assert casts_of_weights(policy) == {1}
    assert all(it.requires_grad != is_frozen for it in policy.model.parameters())


@pytest.mark.parametrize("has_fixed_places", [False, True])
def test_in_bfloat16_frozen_weights_that_have_changed_are_rounded_anew(has_fixed_places):
    policy, fresh = (tiny_policy(dtype=torch.bfloat16) for _ in range(2))
    for one in (policy, fresh):
        one.model.requires_grad_(False)
        one.has_fixed_places = has_fixed_places
    before = sample(policy, PROMPTS, keys(4, 8), Sampling(0.7, LIMIT))
    for weight in (*policy.model.parameters(), *fresh.model.parameters()):
        weight *= 1.5
    after, expected = (
        sample(one, PROMPTS, keys(4, 8), Sampling(0.7, LIMIT)) for one in (policy, fresh)
    )
    assert torch.equal(after.logprobs_PGT, expected.logprobs_PGT)
    assert not torch.equal(after.logprobs_PGT[..., 0], before.logprobs_PGT[..., 0])


@pytest.mark.parametrize("has_fixed_places", [False, True])
def test_in_bfloat16_weights_are_rounded_anew_after_a_step_of_the_optimiser(
    has_fixed_places,
):
    policy, fresh = (tiny_policy(dtype=torch.bfloat16) for _ in range(2))
    policy.has_fixed_places = fresh.has_fixed_places = has_fixed_places
    before = sample(policy, PROMPTS, keys(4, 8), Sampling(0.7, LIMIT))
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=0.05)
    statistics = response_statistics(policy, PROMPTS, before.tokens_PGT, 0.7)
    statistics.logprobs.mean().backward()
    optimizer.step()
    fresh.model.load_state_dict(policy.model.state_dict())
    after, expected = (
        sample(one, PROMPTS, keys(4, 8), Sampling(0.7, LIMIT)) for one in (policy, fresh)
    )
    assert torch.equal(after.tokens_PGT, expected.tokens_PGT)
    assert torch.equal(after.logprobs_PGT, expected.logprobs_PGT)
    assert before.texts_PG != after.texts_PG


def test_in_bfloat16_the_statistics_stay_near_those_of_float32(rollouts):
    policy = tiny_policy(dtype=torch.bfloat16)
    sampled = sample(policy, PROMPTS, keys(4, 8), Sampling(0.7, LIMIT))
    assert sampled.logprobs_PGT.dtype == torch.float32
    for p, g, response in responses(sampled):
        logprobs_T, _ = plain_logprobs(policy, PROMPTS[p], response, temperature=0.7)
        assert abs(sampled.statistics["mean_logprob"][p, g] - logprobs_T.mean()) < 0.1


@pytest.mark.parametrize(
    ("dtype", "bytes_of_a_number"), [(torch.float32, 4), (torch.bfloat16, 2)]
)
def test_a_batch_has_as_many_rows_as_memory_holds_keys_values_and_distributions_of(
    dtype, bytes_of_a_number
):
    policy = tiny_policy(dtype=dtype)
    # Keys and values, 2 layers, 2 heads, 8 numbers
    of_a_token = 2 * 2 * 2 * 8 * bytes_of_a_number
    of_a_row = 10 * of_a_token + 40 * policy.model.config.vocab_size
    assert policy.bytes_per_token == of_a_token
    assert [
        rows_in(memory, policy, 10) for memory in (3 * of_a_row, 3 * of_a_row - 1, 1)
    ] == [
        3,
        2,
        1,
    ]
