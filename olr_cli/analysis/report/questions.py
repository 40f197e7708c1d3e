"""What the prompts of a run ask, read from its data set once more where that is still there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from olr_cli.analysis.arms import Run
from olr_cli.analysis.report import cuts
from olr_cli.data.arithmetic import parse_source
from olr_cli.data.files import matching_files
from olr_cli.data.readers import training_prompts
from olr_cli.errors import UserError
from olr_cli.runs.directory import read_manifest

LONGEST = 4000
"""Characters of a question, whatever the budget."""


@dataclass(frozen=True)
class Questions:
    """The questions of a run.

    Attributes:
        texts: prompt_id -> its turns, the role before each where there are several.
        note: why there are none; empty if there are.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    def plain(self, ids: Sequence[str], budget: int) -> list[list[Any]]:
        """Of each prompt ``[head, tail, characters left out between the two]``, all of them within a budget."""
        found = [self.texts.get(name, "") for name in ids]
        limit = cuts.longest(np.array([min(len(text), LONGEST) for text in found]), budget, LONGEST)
        ends = ((text, *cuts.ends(text, limit)) for text in found)
        return [[head, tail, len(text) - len(head) - len(tail)] for text, head, tail in ends]


def questions(run: Run) -> Questions:
    """The questions of the built-in data or of files; never from the hub, as no network is needed for a report."""
    source = run.recipe.data.train
    try:
        if parse_source(source) is None:
            matching_files(source)
        prompts = training_prompts(run.recipe)
    except (UserError, OSError) as error:
        return Questions(note=f"The questions are not shown: {source} is not to be read from here ({error}).")
    trained_on = read_manifest(run.path).get("data", {}).get("train", {}).get("digest")
    if prompts.digest != trained_on:
        return Questions(
            note=f"The questions are not shown: {source} does not hold the prompts of this run any more."
        )
    return Questions({prompt.prompt_id: _text(prompt.messages) for prompt in prompts.prompts})


def _text(messages: Sequence[Any]) -> str:
    if len(messages) == 1:
        return str(messages[0].content)
    return "\n\n".join(f"{message.role}: {message.content}" for message in messages)
