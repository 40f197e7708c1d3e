"""Noisy labels: the wrong label that noise gives a prompt at a visit (R2 to R4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from olr_cli import seeding
from olr_cli.answers import is_read
from olr_cli.answers.graded import SENTINEL
from olr_cli.recipe.sections import NoiseDraw
from olr_cli.supervision.group import Group


def noisy_label(group: Group, draw: NoiseDraw, seed: int) -> str | None:
    """Return the wrong label that noise gives a prompt at a visit, or None for a prompt without noise.

    Active noise draws the label from the visit's wrong answers: `draw` says how, and `seed` makes the draw repeatable.
    Any other noise is already in the training file, so the file's label is returned.
    """
    match group.prompt.noise_type:
        case "clean" | None:
            return None
        case "inactive" | "active_frozen":
            # The wrong label is the file's own, so it never changes.
            return group.prompt.given_label
        case "active":
            return _active_label(group, draw, seed)
    assert_never(group.prompt.noise_type)


def _active_label(group: Group, draw: NoiseDraw, seed: int) -> str:
    """Draw one of this visit's answers that are proved wrong (R3).

    If no answer is proved wrong, or if the true answer is unknown, return the sentinel, a label that no answer matches.
    `draw` says how an answer is chosen, and `seed` makes the draw repeatable.
    """
    prompt, vote, true_answer = group.prompt, group.votes[0], group.prompt.true_answer
    if true_answer is None:
        return SENTINEL
    # Sort the classes, or the order of the rollouts would decide the draw (R18). Never draw an answer that the grader
    # cannot read: it may be right, and a right label is not noise.
    proved_wrong = group.wrong(true_answer)
    wrong_classes = sorted(
        (spelling, vote.counts[key])
        for key, spelling in vote.spelling.items()
        if is_read(key) and spelling in proved_wrong
    )
    return drawn_label(wrong_classes, draw, (seed, prompt.prompt_id, group.visit))


def drawn_label(
    wrong: Sequence[tuple[str, int]], draw: NoiseDraw, of_visit: tuple[int, str, int]
) -> str:
    """Draw one of a visit's wrong classes of answers and return its spelling (R3).

    If `wrong` is empty, return the sentinel, a label that no answer matches.

    Args:
        wrong: spelling and number of rollouts of each class of answers that is proved wrong, sorted by spelling.
        draw: how one class is chosen, such as ``most_frequent``.
        of_visit: the run's seed, the prompt_id and the number of the visit. They alone decide the random draw, so it
            does not change with the number of prompts per step.
    """
    # A single class wins every draw, so compute no random number.
    if len(wrong) < 2:
        return wrong[0][0] if wrong else SENTINEL
    return draw_wrong_answer(wrong, draw, seeding.uniform("noisy label", *of_visit))


def draw_wrong_answer(wrong: Sequence[tuple[str, int]], draw: NoiseDraw, u: float) -> str:
    """Draw one of a visit's wrong classes of answers and return its spelling.

    Args:
        wrong: spelling and number of rollouts of each class, sorted by spelling; at least one.
        draw: ``most_frequent`` takes the class with the most rollouts or, on a tie, the one that sorts first.
            ``frequency`` draws with the numbers of rollouts as weights, and ``uniform`` with equal weights.
        u: the random number behind the draw, uniform in [0, 1); ``most_frequent`` ignores it.
    """
    if draw == "most_frequent":
        return min(wrong, key=lambda item: (-item[1], item[0]))[0]
    # Each class owns a part of [0, 1); pick the one that contains u.
    weights = [count if draw == "frequency" else 1 for _, count in wrong]
    remaining = u * sum(weights)
    for (spelling, _), weight in zip(wrong, weights, strict=True):
        remaining -= weight
        if remaining < 0:
            return spelling
    # `u * sum(weights)` can round up to the sum itself.
    return wrong[-1][0]
