"""Accuracy on prompts that never train, against their true answers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from operator import truediv

from olr_cli.answers import (
    Gold,
    Grading,
    Judge,
    default_extractor,
    read_answer,
    right_answers,
)
from olr_cli.data.chat import ending
from olr_cli.data.prompts import Prompt, PromptSet
from olr_cli.runs.metrics import Metrics


def held_out_metrics(
    sets: Mapping[str, PromptSet],
    responses: Mapping[str, Sequence[Sequence[str]]],
    judge: Judge,
    extractor: str | None,
) -> Metrics:
    """Return the accuracies of all held-out sets, as metrics such as ``eval/avg`` (see `held_out_accuracy`).

    Args:
        sets: the held-out prompts, by the prefix of their metrics, such as ``eval``.
        responses: for each prefix, the responses to each prompt of its set, equally many to each.
        judge: decides which answers are right.
        extractor: name of the extractor that reads the answers; None for the default of each prompt's data source.
    """
    metrics: Metrics = {}
    for prefix, held_out in sets.items():
        accuracy = held_out_accuracy(held_out.prompts, responses[prefix], judge, extractor)
        metrics |= {f"{prefix}/{name}": value for name, value in accuracy.items()}
    return metrics


def held_out_accuracy(
    prompts: Sequence[Prompt],
    responses_PG: Sequence[Sequence[str]],
    judge: Judge,
    extractor: str | None = None,
) -> dict[str, float]:
    """Return the share of rollouts, and of majority answers, that are right.

    Args:
        prompts: P prompts with a gold answer (`Prompt.gold`).
        responses_PG: G responses to each prompt.
        judge: decides which answers are right.
        extractor: name of the extractor that reads the answers; None for the default of each prompt's data source.

    Returns:
        Three numbers by name. ``avg`` is avg@G, the share of all rollouts that are right. ``majority`` is the share of
        prompts whose most frequent answer is right; a tie counts as wrong. ``avg_stderr`` is the standard error of
        ``avg`` over prompts, so avg ± 1.96 standard errors is a 95 % interval. With a single prompt, ``avg_stderr`` is
        absent.
    """
    grading = Grading(
        [
            _answers(prompt, responses, extractor)
            for prompt, responses in zip(prompts, responses_PG, strict=True)
        ],
        judge,
    )
    golds_P = [_golds(prompt) for prompt in prompts]
    # Ask about all prompts at once: the judge verifies a batch in parallel.
    grading.ask(golds_P)
    # A prompt may have several gold answers; an answer is right if it matches one of them.
    right_P = [set[str | None]().union(*map(grading.right, golds)) for golds in golds_P]
    counts_P = [
        sum(map(right.__contains__, answers))
        for right, answers in zip(right_P, grading.answers, strict=True)
    ]
    majorities = sum(
        vote.majority_answer in right
        for vote, right in zip(grading.votes(), right_P, strict=True)
    )
    sizes_P = list(map(len, responses_PG))
    accuracy = {"avg": sum(counts_P) / sum(sizes_P), "majority": majorities / len(prompts)}
    if len(prompts) > 1:
        shares_P = list(map(truediv, counts_P, sizes_P))
        # Prompts are independent and the rollouts of one prompt are not, so the error is taken over prompts.
        accuracy["avg_stderr"] = statistics.stdev(shares_P) / len(shares_P) ** 0.5
    return accuracy


def _answers(
    prompt: Prompt, responses: Sequence[str], extractor: str | None
) -> list[str | None]:
    """Return the answer that the extractor reads from each response to a prompt, or None where it finds none.

    If `extractor` is None, the default for the prompt's data source is used.
    """
    read_as = extractor or default_extractor(prompt.data_source)
    return [
        read_answer(response, read_as, ending(prompt.messages)) for response in responses
    ]


def _golds(prompt: Prompt) -> list[Gold]:
    """Return a prompt's right answers in the form that the judge takes, or an empty list if it has no gold answer.

    A response is right if its answer matches any of them.
    """
    return (
        [prompt.asked(gold) for gold in right_answers(prompt.gold)] if prompt.gold else []
    )
