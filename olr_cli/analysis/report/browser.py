"""The list of prompts: which runs it shows, and their data for the page's script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

import polars as pl

from olr_cli.analysis.arms import Arm, Run
from olr_cli.analysis.report import questions, responses
from olr_cli.analysis.report.payload import Block, array_blocks, json_block
from olr_cli.analysis.report.prompt_histories import prompt_histories
from olr_cli.tables.markup import element

MOST_VISITS = 4_000_000
"""Prompt visits of all runs that the list shows."""

MOST_TEXT = 16_000_000
"""Characters of responses of all these runs, and as many of questions: a page of some 10 MB."""

PROMPTS_A_BLOCK = 50
"""Responses are unpacked when a prompt is opened, those of so many prompts at once."""


@dataclass(frozen=True)
class Browser:
    """What the list of prompts needs.

    Attributes:
        choices: an ``option`` element a run.
        blocks: the data.
        notes: what is left out.
    """

    choices: Sequence[Element]
    blocks: Sequence[Block]
    notes: Sequence[str]


def browser(arms: Sequence[Arm]) -> Browser:
    """The list of prompts of the first run of each arm, as many as `MOST_VISITS` allows.

    Raises:
        UserError: a run has no complete step, or a shard is torn or foreign.
    """
    shown, notes = _chosen(arms)
    choices, blocks = [], []
    for number, (name, run, most_visits) in enumerate(shown):
        choices.append(element("option", f"{name}, seed {run.seed}", value=str(number)))
        made, left_out = _blocks(f"run{number}", run, most_visits, MOST_TEXT // len(shown))
        blocks += made
        if left_out:
            notes.append(
                f"The list of prompts leaves out the last {left_out:,} of {run.path}, to keep the page small."
            )
    return Browser(choices, blocks, notes)


def _chosen(arms: Sequence[Arm]) -> tuple[list[tuple[str, Run, int]], list[str]]:
    """Name, run and limit of visits of what is shown; and sentences on what is not."""
    shown: list[tuple[str, Run, int]] = []
    left_out = []
    remaining = MOST_VISITS
    for arm in arms:
        size = int(arm.runs[0].labels.select(pl.len()).collect().item())
        if shown and size > remaining:
            left_out.append(arm.name)
            continue
        shown.append((arm.name, arm.runs[0], remaining))
        remaining -= size
    notes = []
    if any(len(arm.runs) > 1 for arm in arms):
        notes.append(
            "The list of prompts shows the first seed of each arm; of another run: olr analyze RUN --report."
        )
    if left_out:
        notes.append(f"To keep the page small, the list of prompts leaves out {', '.join(left_out)}.")
    return shown, notes


def _blocks(prefix: str, run: Run, most_visits: int, budget: int) -> tuple[list[Block], int]:
    """The data of a run, and how many prompts are left out."""
    histories = prompt_histories(run, most_visits)
    asked = questions.questions(run)
    stored = responses.read_responses(run.path, histories.ends)
    told, limit = responses.by_prompt(stored, histories.ids, budget)
    header = histories.header() | {
        "questions": asked.plain(histories.ids, budget) if asked.texts else None,
        "questionsNote": asked.note,
        "samples": responses.SAMPLES,
        "longest": limit,
        "promptsABlock": PROMPTS_A_BLOCK,
    }
    blocks = [
        json_block(f"{prefix}-header", header),
        *array_blocks(prefix, histories.prompts),
        *array_blocks(prefix, histories.by_visit),
    ]
    blocks += [
        json_block(f"{prefix}-responses-{start // PROMPTS_A_BLOCK}", told[start : start + PROMPTS_A_BLOCK])
        for start in range(0, len(told), PROMPTS_A_BLOCK)
    ]
    return blocks, histories.left_out
