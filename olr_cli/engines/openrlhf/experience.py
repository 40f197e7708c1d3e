"""Conversions between OpenRLHF's tensors and the supervisor's rollout groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from olr_cli.answers import ResponseTexts
from olr_cli.data.prompts import Prompt, View
from olr_cli.engines.openrlhf.job_files import prompt_label, read_prompt_label
from olr_cli.engines.prompt_text import before_stop
from olr_cli.runs.throughput import StepWork
from olr_cli.supervision import Decided, Step


def response_tokens(sample: Any) -> list[int]:
    """Return the token ids of a rollout's response, end token included.

    `sample` is an OpenRLHF `Experience` of one rollout. Its `sequences` (1, T) has the token ids. Position i of its
    `action_mask` (1, T - 1) says whether token i + 1 belongs to the response.
    """
    following: Tensor = sample.sequences[0][1:]
    return list(following[sample.action_mask[0].bool()].tolist())


def _prompt_tokens(sample: Any) -> list[int]:
    """Return the token ids of a rollout's prompt, that is all tokens before its response.

    `sample` is an OpenRLHF `Experience` of one rollout. If the response is empty, return all tokens, padding included.
    """
    is_response = [False, *sample.action_mask[0].bool().tolist()]
    end = is_response.index(True) if any(is_response) else len(is_response)
    return list(sample.sequences[0][:end].tolist())


def response_texts(
    samples: Sequence[Any], texts: ResponseTexts, stop: Sequence[str] = ()
) -> list[str]:
    """Return the text of each rollout's response, cut off before the first stop text that it contains.

    A chat template may end the prompt with the opening of a thought, such as ``<think>``. Then the text begins with
    this opening.

    Args:
        samples: an OpenRLHF `Experience` for each rollout.
        texts: the decoder of token ids.
        stop: the stop texts.
    """
    openings = texts.opened([_prompt_tokens(sample) for sample in samples])
    decoded = texts.decode([response_tokens(sample) for sample in samples])
    return [
        opening + before_stop(text, stop)
        for opening, text in zip(openings, decoded, strict=True)
    ]


def token_means(
    values: Sequence[Tensor], experiences: Sequence[Any], samples: int
) -> list[float | None]:
    """Return, for each rollout, the mean of a quantity over its response tokens; None for an empty response.

    Args:
        values: the quantity at each token, as one tensor (B, A) for each micro-batch of B rollouts.
        experiences: the micro-batches. `index` has each rollout's position in the result. `action_mask` (B, A) is 1 at
            response tokens.
        samples: number of rollouts in the step, and length of the result.
    """
    means: list[float | None] = [None] * samples
    for values_BA, batch in zip(values, experiences, strict=True):
        mask_BA = batch.action_mask.double()
        sums_B = (values_BA.double() * mask_BA).sum(dim=1)
        for number, total, count in zip(
            batch.index, sums_B.tolist(), mask_BA.sum(dim=1).tolist(), strict=True
        ):
            means[number] = total / count if count else None
    return means


def sampler_gap(experiences: Sequence[Any], log_probs: Sequence[Tensor]) -> float | None:
    """Return the mean absolute difference between vLLM's and the policy's log-probabilities at response tokens.

    If vLLM has the policy's weights, only rounding makes a difference. If it has other weights, the gap is much larger.
    The unit is nats. Return None if vLLM gave no log-probability.

    Args:
        experiences: the micro-batches. `action_mask` (B, A) is 1 at response tokens. `rollout_log_probs` (B, A) has
            vLLM's log-probabilities, or NaN at tokens for which vLLM was not asked. These tokens are skipped.
        log_probs: the policy's log-probabilities, one tensor (B, A) for each micro-batch.
    """
    total, tokens = 0.0, 0
    for batch, log_probs_BA in zip(experiences, log_probs, strict=True):
        distances_BA = (batch.rollout_log_probs - log_probs_BA).double().abs()
        distances_N = distances_BA[
            batch.action_mask.bool() & ~batch.rollout_log_probs.isnan()
        ]
        total += distances_N.sum().item()
        tokens += len(distances_N)
    return total / tokens if tokens else None


def group_members(
    samples: Sequence[Any], views: Sequence[View], rollouts: int
) -> dict[str, list[int]]:
    """Group a step's samples by prompt; return prompt_id -> indices into `samples`.

    Prompts are in the order of their first sample. Each prompt has `rollouts` indices for each view, in the order of
    `views`.

    Args:
        samples: an OpenRLHF `Experience` for each rollout. Its label names the view and the prompt (`prompt_label`).
            The rollouts of a prompt in one view must be adjacent, because OpenRLHF's advantages rely on that.
        views: the wordings in which every prompt was sampled.
        rollouts: number of rollouts of a prompt in one view.

    Raises:
        ValueError: rollouts of a prompt in one view are not adjacent, or a prompt has too few or too many rollouts or
            views.
    """
    labels = [sample.labels[0] for sample in samples]
    starts: dict[str, int] = {}
    for start in range(0, len(labels), rollouts):
        group = labels[start : start + rollouts]
        if len(group) < rollouts or len(set(group)) > 1 or group[0] in starts:
            raise ValueError(
                f"samples {start} and following are of {group}, not {rollouts} of one view of a prompt"
            )
        starts[group[0]] = start
    ids = dict.fromkeys(read_prompt_label(label)[1] for label in starts)
    # Every prompt needs a group for each view of the method, and may have no other.
    unmatched = starts.keys() ^ {
        prompt_label(view, prompt_id) for prompt_id in ids for view in views
    }
    if unmatched:
        raise ValueError(
            f"these views of prompts are missing, or not asked for: {', '.join(sorted(unmatched))}"
        )
    return {
        prompt_id: [
            starts[prompt_label(view, prompt_id)] + k
            for view in views
            for k in range(rollouts)
        ]
        for prompt_id in ids
    }


def sampled_step(
    samples: Sequence[Any],
    prompts: Sequence[Prompt],
    texts: ResponseTexts,
    views: Sequence[View],
    *,
    visit: int,
    step: int,
    stop: Sequence[str] = (),
) -> Step:
    """Return a step's rollouts as the `Step` from which the supervisor decides labels and rewards.

    It has the responses as text, their numbers of tokens, and whether they were cut off at the token limit. What a
    forward pass measures, such as entropies, is added later (`with_statistics`).

    Args:
        samples: an OpenRLHF `Experience` for each rollout, prompt by prompt, and view by view within a prompt.
        prompts: the step's prompts.
        texts: the decoder of token ids.
        views: the wordings in which every prompt was sampled.
        visit: number of the epoch, from 1.
        step: number of the step, from 1.
        stop: stop texts. A response ends before the first one that it contains.
    """
    statistics: dict[str, list[Any]] = {
        "tokens": [len(response_tokens(sample)) for sample in samples],
        "truncated": [bool(sample.truncated[0]) for sample in samples],
    }
    return Step.sampled(
        step,
        visit,
        prompts,
        views,
        responses=response_texts(samples, texts, stop),
        statistics=statistics,
    )


def with_statistics(
    step: Step, order: Sequence[int], means: Mapping[str, Sequence[float | None]]
) -> Step:
    """Return a copy of the step with further statistics of its rollouts, such as entropies.

    `means` maps the name of a statistic to a value for each sample, in the order of OpenRLHF's list of the step's
    samples. `order[i]` is the index of the step's rollout i in this list.
    """
    measured = {
        name: [values[sample] for sample in order] for name, values in means.items()
    }
    return replace(step, statistics={**step.statistics, **measured})


def trains_by_sample(decided: Decided, order: Sequence[int]) -> Tensor:
    """Return a bool for each sample in OpenRLHF's list of a step's samples: whether its prompt is in the update.

    `decided` has the supervisor's decisions. `order[i]` is the index of rollout i of `decided` in OpenRLHF's list.
    """
    trains = torch.zeros(len(order), dtype=torch.bool)
    # All prompts of a step have the same number of rollouts.
    trains[list(order)] = torch.tensor(decided.trains).repeat_interleave(
        len(order) // len(decided.trains)
    )
    return trains


def step_work(
    experiences: Sequence[Any], decided: Decided, order: Sequence[int]
) -> StepWork:
    """Return how many tokens each rollout has and whether it trains, in the order of the micro-batches.

    Call it before `give_rewards`, which clears the action masks of prompts that do not train.

    Args:
        experiences: the micro-batches. `index` has their samples' indices in OpenRLHF's list of the step's samples.
            `attention_mask` is 1 at all tokens, and `action_mask` at response tokens.
        decided: the supervisor's decisions.
        order: `order[i]` is the index of rollout i of `decided` in OpenRLHF's list.
    """
    trains = trains_by_sample(decided, order)
    prompts, responses = [], []
    for batch in experiences:
        responses_B = batch.action_mask.sum(dim=1)
        responses += responses_B.tolist()
        prompts += (batch.attention_mask.sum(dim=1) - responses_B).tolist()
    return StepWork(
        prompts,
        responses,
        [
            is_trained
            for batch in experiences
            for is_trained in trains[batch.index].tolist()
        ],
    )


def give_rewards(
    experiences: Sequence[Any], decided: Decided, order: Sequence[int], *, normalised: bool
) -> None:
    """Write the supervisor's rewards into OpenRLHF's micro-batches, and mask the prompts that do not train.

    - `rewards` gets the rewards or, if `normalised`, the supervisor's advantages.
    - `info["reward"]`, which OpenRLHF logs, always gets the rewards.
    - `action_mask` becomes 0 for a prompt that does not train, so that the update counts none of its tokens.

    Args:
        experiences: the micro-batches, changed in place. `index` has their samples' indices in OpenRLHF's list of the
            step's samples.
        decided: the supervisor's decisions.
        order: `order[i]` is the index of rollout i of `decided` in OpenRLHF's list.
        normalised: whether OpenRLHF divides a group's `rewards` by their standard deviation (`divides_by_std`).
    """
    rewards, inputs = torch.zeros(len(order)), torch.zeros(len(order))
    rewards[list(order)] = torch.tensor(decided.rewards)
    # Rounding in float32 could make equal rewards differ, and the division would inflate the difference. The advantages
    # of equal rewards are exactly 0. Others have been divided already, so a second division leaves them as they are.
    inputs[list(order)] = torch.tensor(
        decided.advantages if normalised else decided.rewards
    )
    trains = trains_by_sample(decided, order)
    for batch in experiences:
        batch.rewards = inputs[batch.index]
        # OpenRLHF's log shows these.
        batch.info["reward"] = rewards[batch.index]
        batch.action_mask = batch.action_mask * trains[batch.index, None]
