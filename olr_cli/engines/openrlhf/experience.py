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
    """Return the token ids of a single sample before its response, or all of them, with padding, if it has none."""
    is_response = [False, *sample.action_mask[0].bool().tolist()]
    end = is_response.index(True) if any(is_response) else len(is_response)
    return list(sample.sequences[0][:end].tolist())


def response_texts(
    samples: Sequence[Any], texts: ResponseTexts, stop: Sequence[str] = ()
) -> list[str]:
    """Return the responses of single samples as text: the prompt's opened thought, then the text up to a stop text."""
    openings = texts.opened([_prompt_tokens(sample) for sample in samples])
    decoded = texts.decode([response_tokens(sample) for sample in samples])
    return [
        opening + before_stop(text, stop)
        for opening, text in zip(openings, decoded, strict=True)
    ]


def token_means(
    values: Sequence[Tensor], experiences: Sequence[Any], samples: int
) -> list[float | None]:
    """Return the mean over every rollout's response tokens, in the order of sampling, or None without a token.

    Values of tokens are (B, A) for each micro-batch. A micro-batch has `index` (the rollouts' numbers) and
    `action_mask` (B, A), padded on the right.
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
    """Return the mean distance over response tokens between vLLM's log-probability and the policy's, in nats.

    While vLLM has the policy's weights, it is the difference in rounding of two programs. With other weights it is much
    larger. vLLM's `rollout_log_probs` are (B, A), like `log_probs`, and NaN for tokens that it was not asked for. The
    gap is None if all are NaN.
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
    """Return the numbers of each complete group's samples, by prompt_id, in the order in which vLLM finished them.

    Args:
        samples: an `Experience` for each rollout, with `prompt_label` as label.
        views: every prompt's; the samples of the first view come first in a group.
        rollouts: K of each view, next to each other, as OpenRLHF's advantages need them.

    Raises:
        ValueError: a group is not complete.
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
    """Return a step of samples in the order of its rollouts, without the statistics of a forward pass.

    Responses end before the first text of `stop`.
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
    """Return the step with `token_means`, by the names of the statistics; `order` has the samples of its rollouts."""
    measured = {
        name: [values[sample] for sample in order] for name, values in means.items()
    }
    return replace(step, statistics={**step.statistics, **measured})


def trains_by_sample(decided: Decided, order: Sequence[int]) -> Tensor:
    """Return for each sample whether its prompt trains."""
    trains = torch.zeros(len(order), dtype=torch.bool)
    # All prompts of a step have the same number of rollouts.
    trains[list(order)] = torch.tensor(decided.trains).repeat_interleave(
        len(order) // len(decided.trains)
    )
    return trains


def step_work(
    experiences: Sequence[Any], decided: Decided, order: Sequence[int]
) -> StepWork:
    """Return the work of a step; call it before `give_rewards`, which removes the actions of prompts that do not train.

    `order` has the samples of the rollouts of `decided`. Micro-batches have `index`, `attention_mask` (B, T) and
    `action_mask` (B, A).
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
    """Put the supervisor's decisions into the fields from which OpenRLHF computes advantages and loss.

    OpenRLHF divides by the standard deviation of float32 rewards, which would inflate the rounding of equal rewards. It
    gets the supervisor's advantages instead, exactly 0 in that case; for all others, normalising twice changes nothing.
    The response tokens of a prompt that does not train are no longer actions, so no sum and no count of the update has
    them.

    Micro-batches have `index` and `action_mask`, and `order` has the samples of the rollouts of `decided`.
    `normalised`: OpenRLHF's advantages are divided by a group's standard deviation.
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
