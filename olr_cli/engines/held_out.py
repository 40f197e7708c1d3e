"""Accuracy on prompts that never train, against their true answers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from olr_cli.answers import Judge, default_extractor, extract, vote
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
    """How often a rollout, and the majority of a prompt's rollouts, is right.

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
    golds = [prompt.asked(prompt.gold) for prompt in prompts if prompt.gold is not None]
    answers = [
        [extract(response, extractor or default_extractor(prompt.data_source)) for response in responses]
        for prompt, responses in zip(prompts, responses_PG, strict=True)
    ]
    graded = list(zip(golds, answers, strict=True))
    pairs = [(gold, answer) for gold, texts in graded for answer in texts if answer is not None]
    keys = judge.keys(answer for _, answer in pairs)
    matching = {pair for pair, verdict in zip(pairs, judge.matches(pairs), strict=True) if verdict}
    rights = [sum((gold, answer) in matching for answer in texts) for gold, texts in graded]
    majorities = sum((gold, vote(texts, keys).majority_answer) in matching for gold, texts in graded)
    accuracy = {"avg": sum(rights) / sum(map(len, answers)), "majority": majorities / len(prompts)}
    if len(prompts) > 1:
        shares = [right / len(texts) for right, texts in zip(rights, answers, strict=True)]
        accuracy["avg_stderr"] = statistics.stdev(shares) / len(shares) ** 0.5
    return accuracy
