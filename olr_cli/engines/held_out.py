"""Accuracy on prompts that never train, against their true answers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from olr_cli.answers import Grading, Judge, default_extractor, read_answer, right_answers
from olr_cli.data.chat import ending
from olr_cli.data.prompts import Prompt, PromptSet
from olr_cli.runs.metrics import Metrics


def held_out_metrics(
    sets: Mapping[str, PromptSet],
    responses: Mapping[str, Sequence[Sequence[str]]],
    judge: Judge,
    extractor: str | None,
) -> Metrics:
    """The accuracies of all held-out sets, which like the responses are by the prefix of their metrics."""
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
    """Return how often a rollout, and the majority of a prompt's rollouts, is right.

    Args:
        prompts: P prompts with a gold answer (`Prompt.gold`).
        responses_PG: the same number G of rollouts for each.
        judge: decides which answers are right.
        extractor: of answers; by default what each prompt's data source calls for.

    Returns:
        ``avg`` (avg@G: the mean over all rollouts) and ``majority`` (a tie is not right), in [0, 1], and the
        standard error of ``avg`` over prompts as ``avg_stderr`` (absent for a single prompt); avg ± 1.96 of it is a
        95 % interval.
    """
    grading = Grading(
        [
            [
                read_answer(
                    one,
                    extractor or default_extractor(prompt.data_source),
                    ending(prompt.messages),
                )
                for one in texts
            ]
            for prompt, texts in zip(prompts, responses_PG, strict=True)
        ],
        judge,
    )
    golds = [
        [prompt.asked(gold) for gold in right_answers(prompt.gold)] if prompt.gold else []
        for prompt in prompts
    ]
    grading.ask(golds)
    right_P = [set[str | None]().union(*map(grading.right, of_one)) for of_one in golds]
    rights_P = [
        sum(map(right.__contains__, of_one))
        for right, of_one in zip(right_P, grading.answers, strict=True)
    ]
    majorities = sum(
        vote.majority_answer in right
        for vote, right in zip(grading.votes(), right_P, strict=True)
    )
    accuracy = {
        "avg": sum(rights_P) / sum(map(len, responses_PG)),
        "majority": majorities / len(prompts),
    }
    if len(prompts) > 1:
        shares = [
            right / len(texts) for right, texts in zip(rights_P, responses_PG, strict=True)
        ]
        accuracy["avg_stderr"] = statistics.stdev(shares) / len(shares) ** 0.5
    return accuracy
