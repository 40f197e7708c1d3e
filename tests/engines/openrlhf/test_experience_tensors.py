"""Tensors of rollouts to groups and back, on tensors made by hand; tests/openrlhf has OpenRLHF's own."""

from math import nan
from types import SimpleNamespace

import pytest
import torch
from cases import each

from olr_cli.answers import ResponseTexts
from olr_cli.data.prompts import Prompt
from olr_cli.engines.openrlhf.experience import (
    give_rewards,
    group_members,
    response_tokens,
    sampled_step,
    sampler_gap,
    step_work,
    token_means,
    with_statistics,
)
from olr_cli.engines.openrlhf.job_files import prompt_label, read_prompt_label

PROMPTS = {name: Prompt(name, (), "1", "1", "clean") for name in "ab"}


BOTH = ("original", "rephrased")


def sample(prompt_id, prompt, response, *, view="original", truncated=False, padding=0):
    """One rollout as OpenRLHF has it: `action_mask` is about the token that follows."""
    tokens = [*prompt, *response, *[0] * padding]
    mask = [0] * (len(prompt) - 1) + [1] * len(response) + [0] * padding
    return SimpleNamespace(
        sequences=torch.tensor([tokens]),
        action_mask=torch.tensor([mask]),
        labels=[prompt_label(view, prompt_id)],
        truncated=torch.tensor([truncated]),
    )


class Letters:
    """A tokenizer whose token 1 is a, 2 is b …; 0 is special, and 30 begins a thought."""

    all_special_ids, added_tokens_decoder = (0,), {}

    def convert_ids_to_tokens(self, token):
        return "</s>"

    def batch_decode(self, rows, *, skip_special_tokens, clean_up_tokenization_spaces):
        assert skip_special_tokens and not clean_up_tokenization_spaces
        return [
            "".join("<think>" if it == 30 else chr(96 + it) for it in row if it)
            for row in rows
        ]


def step_of(samples, views=("original",), **means):
    members = group_members(samples, views, 2)
    order = [number for group in members.values() for number in group]
    in_order, prompts = (
        [samples[number] for number in order],
        [PROMPTS[name] for name in members],
    )
    return with_statistics(
        sampled_step(in_order, prompts, ResponseTexts(Letters()), views, visit=2, step=5),
        order,
        means,
    )


def names(step):
    return [prompt.prompt_id for prompt in step.prompts]


@pytest.mark.parametrize("view", BOTH)
@pytest.mark.parametrize("prompt_id", ["7", "a:b", "original:7", ""])
def test_a_label_tells_view_and_prompt(view, prompt_id):
    assert read_prompt_label(prompt_label(view, prompt_id)) == (view, prompt_id)


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("response", [[7, 8, 9], [9], []])
def test_a_response_is_the_tokens_of_the_actions_without_prompt_or_padding(
    response, padding
):
    assert response_tokens(sample("a", [1, 2], response, padding=padding)) == response


def test_a_group_is_a_prompts_neighbours():
    first = [sample("b", [1], [2, 0]), sample("b", [1], [3, 3], truncated=True)]
    second = [sample("a", [1, 1], [0]), sample("a", [1, 1], [])]
    step = step_of([*first, *second])
    assert (names(step), step.number, step.visits) == (["b", "a"], 5, [2, 2])
    assert (step.responses, list(step.starts)) == (["b", "cc", "", ""], [0, 2, 4])
    assert step.statistics == {
        "tokens": [2, 2, 1, 0],
        "truncated": [False, True, False, False],
    }


def test_what_the_prompt_opened_begins_the_response():
    thought, cut = sample("a", [1, 30], [2, 0]), sample("a", [1, 30], [3])
    assert step_of([thought, cut]).responses == ["<think>b", "<think>c"]
    assert step_of([sample("a", [30], []), sample("a", [30, 1], [])]).responses == [
        "<think>",
        "",
    ]


def test_the_views_of_a_prompt_are_one_group_the_original_first_whenever_they_arrive():
    arrived = [("b", "rephrased"), ("a", "original"), ("b", "original"), ("a", "rephrased")]
    samples = [
        sample(prompt_id, [1], [number, 0], view=view)
        for number, (prompt_id, view) in enumerate(arrived, start=1)
        for _ in range(2)
    ]
    assert group_members(samples, BOTH, 2) == {"b": [4, 5, 0, 1], "a": [2, 3, 6, 7]}
    step = step_of(samples, BOTH, entropy=[0.1 * number for number in range(8)])
    assert names(step) == ["b", "a"]
    assert step.responses == ["c", "c", "a", "a", "b", "b", "d", "d"]
    assert step.views == [view for _ in "ba" for view in BOTH for _ in range(2)]
    assert step.statistics["entropy"][:4] == [0.4, 0.5, 0.0, 0.1]


@pytest.mark.parametrize("ids", ["ab", "aab", "aaab", "aaa", "aaaa"])
def test_a_group_that_is_not_whole_is_a_bug(ids):
    with pytest.raises(ValueError, match="not 2 of one view of a prompt"):
        step_of([sample(prompt_id, [1], [2]) for prompt_id in ids])


@each(
    "rolled_out, views, said",
    ([("a", "original")], BOTH, "rephrased:a"),
    ([("a", "original"), ("b", "rephrased")], BOTH, "original:b, rephrased:a"),
    ([("a", "original"), ("a", "rephrased")], ("original",), "rephrased:a"),
)
def test_a_view_that_is_missing_or_was_not_asked_for_is_a_bug(rolled_out, views, said):
    samples = [
        sample(prompt_id, [1], [2], view=view)
        for prompt_id, view in rolled_out
        for _ in range(2)
    ]
    with pytest.raises(ValueError, match=f"missing, or not asked for: {said}$"):
        step_of(samples, views)


def batch(index, mask):
    return SimpleNamespace(index=index, action_mask=torch.tensor(mask), info={})


def test_means_are_of_the_actions_alone_and_in_the_samples_order():
    batches = [batch([2, 0], [[0, 1, 1], [0, 1, 0]]), batch([1, 3], [[0], [1]])]
    values = [
        torch.tensor([[-9.0, -1.0, -2.0], [-9.0, -4.0, -9.0]]),
        torch.tensor([[-9.0], [-0.5]]),
    ]
    assert token_means(values, batches, 4) == [-4.0, None, -1.5, -0.5]


def decided(rewards, advantages, trains):
    return SimpleNamespace(rewards=rewards, advantages=advantages, trains=trains)


ORDER = [2, 3, 0, 1]
DECIDED = decided([1.0, 0.0, 0.25, 0.5], [0.9, -0.9, -0.7, 0.7], trains=[True, False])


def four_rollouts():
    """In three micro-batches, each rollout with two response tokens after one of its prompt."""
    return [batch(index, [[0, 1, 1]] * len(index)) for index in ([3, 0], [2], [1])]


@each(
    "normalised, given",
    (True, [[-0.9, -0.7], [0.9], [0.7]]),
    (False, [[0.0, 0.25], [1.0], [0.5]]),
)
def test_advantages_or_rewards_go_to_the_rollouts_that_earned_them(normalised, given):
    batches = four_rollouts()
    give_rewards(batches, DECIDED, ORDER, normalised=normalised)
    assert [b.rewards.tolist() for b in batches] == [
        [pytest.approx(value, rel=1e-6) for value in own] for own in given
    ]
    assert [b.info["reward"].tolist() for b in batches] == [[0.0, 0.25], [1.0], [0.5]]
    assert {tensor.dtype for b in batches for tensor in (b.rewards, b.info["reward"])} == {
        torch.float32
    }


def test_a_prompt_that_does_not_train_has_no_action_left():
    batches = four_rollouts()
    before = [b.action_mask.clone() for b in batches]
    kept = [b.action_mask for b in batches]
    give_rewards(batches, DECIDED, ORDER, normalised=True)
    assert [b.action_mask.tolist() for b in batches] == [
        [[0, 1, 1], [0, 0, 0]],
        [[0, 1, 1]],
        [[0, 0, 0]],
    ]
    assert all(torch.equal(one, other) for one, other in zip(kept, before, strict=True))


def test_a_steps_work_is_counted_per_rollout_before_actions_are_taken_away():
    batches = [
        SimpleNamespace(
            index=[2, 0],
            attention_mask=torch.tensor([[1, 1, 1, 1, 0], [0, 1, 1, 1, 1]]),
            action_mask=torch.tensor([[0, 1, 1, 0], [0, 0, 0, 1]]),
        ),
        SimpleNamespace(
            index=[1, 3],
            attention_mask=torch.tensor([[1, 1, 1], [1, 1, 0]]),
            action_mask=torch.tensor([[0, 1], [0, 0]]),
        ),
    ]
    step = decided([1.0, 0.0, 1.0, 0.0], [1.0, -1.0, 1.0, -1.0], trains=[True, False])
    work = step_work(batches, step, [0, 1, 2, 3])
    assert work.prompt_tokens == [2, 3, 2, 2]
    assert work.response_tokens == [2, 1, 1, 0]
    assert work.trains == [False, True, True, False]


def test_the_samplers_gap_is_a_mean_over_the_response_tokens_that_vllm_was_asked_for():
    vllms = [
        torch.tensor([[-1.0, -2.0, 9.0], [nan, nan, 0.0]]),
        torch.tensor([[-3.0, -4.0, -5.0]]),
    ]
    policys = [
        torch.tensor([[-1.5, -2.0, 0.0], [-1.0, -1.0, 0.0]]),
        torch.tensor([[-3.0, -3.0, -5.5]]),
    ]
    masks = [torch.tensor([[1, 1, 0], [1, 1, 0]]), torch.tensor([[1, 1, 1]])]
    batches = [
        SimpleNamespace(rollout_log_probs=vllm, action_mask=mask)
        for vllm, mask in zip(vllms, masks, strict=True)
    ]
    assert sampler_gap(batches, policys) == pytest.approx((0.5 + 0 + 0 + 1 + 0.5) / 5)
    for batch in batches:
        batch.rollout_log_probs.fill_(nan)
    assert sampler_gap(batches, policys) is None
