"""The label that noise puts on a prompt at a visit (R2 to R4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from olr_cli import seeding
from olr_cli.answers import is_read
from olr_cli.answers.graded import SENTINEL
from olr_cli.recipe.sections import NoiseDraw
from olr_cli.supervision.group import Group


def noisy_label(group: Group, draw: NoiseDraw, seed: int) -> str | None:
    """The noisy label of a visit; None on a prompt without noise."""
    match group.prompt.noise_type:
        case "clean" | None:
            return None
        case "inactive" | "active_frozen":
            return group.prompt.given_label  # as the file has it, at every visit
        case "active":
            return _active_label(group, draw, seed)
    assert_never(group.prompt.noise_type)


def _active_label(group: Group, draw: NoiseDraw, seed: int) -> str:
    """One of this visit's wrong answers (R3); the sentinel if none is proved wrong."""
    prompt, vote, true = group.prompt, group.votes[0], group.prompt.true_answer
    if true is None:
        return SENTINEL
    # Sorted, or the order of the rollouts would decide (R18). An unread answer is never drawn: it may be right, and
    # would be no noise.
    proved = group.wrong(true)
    wrong = sorted(
        (spelling, vote.counts[key])
        for key, spelling in vote.spelling.items()
        if is_read(key) and spelling in proved
    )
    return drawn_label(wrong, draw, (seed, prompt.prompt_id, group.visit))


def drawn_label(
    wrong: Sequence[tuple[str, int]], draw: NoiseDraw, of_visit: tuple[int, str, int]
) -> str:
    """One of the wrong classes of a visit (R3): spelling and count of each, sorted; the sentinel if there is none.

    Args:
        wrong: the classes that are proved wrong.
        draw: how one of them is chosen.
        of_visit: the run's seed, prompt_id and the number of the visit. Not the step: the draw does not depend on the
            number of prompts per step.
    """
    if len(wrong) < 2:
        return wrong[0][0] if wrong else SENTINEL
    return draw_wrong_answer(wrong, draw, seeding.uniform("noisy label", *of_visit))


def draw_wrong_answer(wrong: Sequence[tuple[str, int]], draw: NoiseDraw, u: float) -> str:
    """One of the wrong classes (spelling, count), sorted by spelling, at the uniform number `u` in [0, 1)."""
    if draw == "most_frequent":
        return min(wrong, key=lambda item: (-item[1], item[0]))[0]
    # The first class whose share of [0, 1) holds u; rounding may leave u behind the last.
    weights = [count if draw == "frequency" else 1 for _, count in wrong]
    target = u * sum(weights)
    for (spelling, _), weight in zip(wrong, weights, strict=True):
        target -= weight
        if target < 0:
            return spelling
    return wrong[-1][0]
