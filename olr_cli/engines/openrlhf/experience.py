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
    """Return the token ids of a single sample's response, end token included.

    The sample is an `Experience` of one rollout: `sequences` (1, T), and `action_mask` (1, T - 1), which at each
    position describes the token that follows.
    """
    following: Tensor = sample.sequences[0][1:]
    return list(following[sample.action_mask[0].bool()].tolist())


def _prompt_tokens(sample: Any) -> list[int]:
    """Return the token ids before a single sample's response: the prompt.

    For an empty response, these are all tokens of the sequence, padding included.
    """
    is_response = [False, *sample.action_mask[0].bool().tolist()]
    end = is_response.index(True) if any(is_response) else len(is_response)
    return list(sample.sequences[0][:end].tolist())


def response_texts(
    samples: Sequence[Any], texts: ResponseTexts, stop: Sequence[str] = ()
) -> list[str]:
    """Return the response of each single sample as text, without the first text of `stop` and what follows it.

    If a prompt ends by opening a thought, such as ``<think>``, the response begins with that opening. `texts` decodes
    token ids.
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
    """Return for each of the step's `samples` rollouts the mean of its response tokens' values; None if it has none.

    Args:
        values: for each micro-batch of B rollouts the values at A token positions, (B, A).
        experiences: micro-batches with `index`, the numbers of their rollouts, and `action_mask` (B, A).
        samples: number of rollouts in the step; rollout i's mean is at position i.
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
    """Return the mean over response tokens of |log-probability by vLLM - that by the policy|, in nats.

    While vLLM has the policy's weights, the gap is only the difference in rounding of two programs. With other weights
    it is much larger. It is None if vLLM gave no log-probability.

    Args:
        experiences: micro-batches of B rollouts with A token positions: `action_mask`, and `rollout_log_probs` by vLLM.
            Both are (B, A). A log-probability of NaN was not asked for and does not count.
        log_probs: the policy's log-probabilities of each micro-batch, (B, A).
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
    """Return each prompt_id's samples as indices into `samples`, prompts in the order in which vLLM finished them.

    Within a prompt, the samples of the first view come first, then those of the next.

    Args:
        samples: an `Experience` for each rollout, with its `prompt_label` in `labels`.
        views: the wordings in which every prompt was sampled.
        rollouts: number of rollouts per view; those of a view must be adjacent, as OpenRLHF's advantages need them.

    Raises:
        ValueError: a prompt lacks rollouts or a view, or has too many.
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
    """Return a step's rollouts as the supervisor takes them, with texts, token counts and whether each was cut off.

    Statistics of a forward pass, such as entropies, are not yet in it (`with_statistics` adds them).

    Args:
        samples: an `Experience` for each rollout, prompt by prompt, and view by view within a prompt.
        prompts: the step's prompts.
        texts: the decoder of token ids.
        views: the wordings in which every prompt was sampled.
        visit: number of the epoch, from 1.
        step: number of the step, from 1.
        stop: texts before the first of which a response ends.
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
    """Return the step with further statistics of its rollouts.

    Args:
        step: the step.
        order: for each rollout of the step, its position among OpenRLHF's samples, which are in another order.
        means: by name of the statistic, the mean of each of OpenRLHF's samples, as from `token_means`.
    """
    measured = {
        name: [values[sample] for sample in order] for name, values in means.items()
    }
    return replace(step, statistics={**step.statistics, **measured})


def trains_by_sample(decided: Decided, order: Sequence[int]) -> Tensor:
    """Return a bool tensor that tells of each of OpenRLHF's samples whether its prompt takes part in the update.

    `order` has, for each rollout of `decided`, its position among these samples, which are in another order.
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
    """Return the token counts of all rollouts, and which of them train: the base of throughput.

    Call it before `give_rewards`, which clears the action masks of prompts that do not train.

    Args:
        experiences: micro-batches with `index` (numbers of OpenRLHF's samples), `attention_mask` and `action_mask`.
        decided: the supervisor's decisions.
        order: for each rollout of `decided`, its position among OpenRLHF's samples, which are in another order.
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
    """Write the supervisor's decisions into micro-batches, where OpenRLHF computes advantages and loss from them.

    OpenRLHF divides by the standard deviation of float32 rewards, which would inflate the rounding of equal rewards.
    Instead of rewards it gets the supervisor's advantages, exactly 0 in that case. For all others, normalising twice
    changes nothing. The action mask of a prompt that does not train is cleared, so no sum and no count of the update
    has its tokens.

    Args:
        experiences: micro-batches with `index` (numbers of OpenRLHF's samples) and `action_mask`; changed in place.
        decided: the supervisor's decisions.
        order: for each rollout of `decided`, its position among OpenRLHF's samples, which are in another order.
        normalised: whether OpenRLHF divides a group's rewards by their standard deviation. If not, it gets the rewards.
    """
    rewards, inputs = torch.zeros(len(order)), torch.zeros(len(order))
    rewards[list(order)] = torch.tensor(decided.rewards)
    inputs[list(order)] = torch.tensor(
        decided.advantages if normalised else decided.rewards
    )
    trains = trains_by_sample(decided, order)
    for batch in experiences:
        batch.rewards = inputs[batch.index]
        # OpenRLHF's log shows these.
        batch.info["reward"] = rewards[batch.index]
        batch.action_mask = batch.action_mask * trains[batch.index, None]
