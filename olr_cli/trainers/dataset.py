"""Common parts of the trainers' rewards: rows as prompts, by the rules of `olr train` for files, and the start of a
run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from olr_cli.answers import is_placeholder
from olr_cli.api import OnlineLabelRefinement, RecipeSource
from olr_cli.data.chat import Message
from olr_cli.data.check import label_notes
from olr_cli.data.external_prompts import DATA_SOURCE
from olr_cli.data.prompt_files import read_rows
from olr_cli.data.prompts import Prompt
from olr_cli.data.questions import normal_question
from olr_cli.data.rows import Rows
from olr_cli.data.sets import recipe_reading, sentinel_type
from olr_cli.data.values import Origins
from olr_cli.errors import UserError, shortened
from olr_cli.recipe.checks import recipe_warnings
from olr_cli.recipe.schema import Recipe
from olr_cli.supervision import compose
from olr_cli.trainers.grading import row_turns


class PromptIndex:
    """Finds the training prompt of a row that a trainer passes to its reward function.

    Args:
        table: the training data, with the columns that `olr inject-noise` writes, or with plain columns such as
            `prompt` and `answer`. The column `prompt` holds what the trainer samples from.
        recipe: says whether the method needs a label in every row, and which noise type (inactive or active) a row has
            if its label is the sentinel, a text that no answer matches.
        place: the table's name in errors.

    Raises:
        UserError: a row cannot be used or lacks a label, or a table without ids has the same prompt twice.
    """

    def __init__(self, table: pa.Table, recipe: Recipe, place: str) -> None:
        self.prompts = _training_prompts(table, recipe, place)
        self._place = place
        self._by_id = {prompt.prompt_id: prompt for prompt in self.prompts}
        self._by_question: dict[str, dict[tuple[Message, ...], list[Prompt]]] = {}
        asked = table.column("prompt").to_pylist() if "prompt" in table.column_names else []
        for turns, prompt in zip(map(row_turns, asked), self.prompts, strict=False):
            wordings = self._by_question.setdefault(normal_question(turns), {})
            wordings.setdefault(turns, []).append(prompt)
        # With neither column, the trainer can only pass the prompt, so prompts have to differ.
        if not {"prompt_id", "extra_info"} & set(table.column_names):
            self._require_different_prompts()

    def _require_different_prompts(self) -> None:
        """Raise UserError if two rows have the same prompt.

        Call this for tables without ids, where only the prompt tells rows apart.
        """
        of_one_wording = chain.from_iterable(
            wordings.values() for wordings in self._by_question.values()
        )
        twice = next((prompts for prompts in of_one_wording if len(prompts) > 1), None)
        if twice is not None:
            question = shortened(twice[0].messages[-1].content)
            raise UserError(
                f"{self._place}: {len(twice)} rows have the prompt '{question}'",
                "remove all but one, or add a column prompt_id",
            )

    @property
    def questions(self) -> set[str]:
        """The questions of all prompts as normalised texts (`normal_question`).

        To find out whether another prompt asks one of these questions, normalise its question too and look it up.
        """
        return set(self._by_question)

    def of(self, row: Mapping[str, Any]) -> Prompt:
        """Return the training prompt that belongs to a row from the trainer.

        Four things are looked up in turn, until one is found: the row's `prompt_id`, its `extra_info.index`, the exact
        messages in its `prompt`, and its normalised question (`normal_question`). Raise UserError if none is found, or
        if several training prompts fit.
        """
        for name in (row.get("prompt_id"), (row.get("extra_info") or {}).get("index")):
            if name is not None and str(name) in self._by_id:
                return self._by_id[str(name)]
        turns = row_turns(row["prompt"])
        wordings = self._by_question.get(normal_question(turns), {})
        # Several rows may ask one question in different words; then the exact words decide.
        same = wordings.get(turns) or [
            prompt for prompts in wordings.values() for prompt in prompts
        ]
        if len(same) != 1:
            raise UserError(
                f"{self._place} has {'no' if not same else 'more than one'} row with the prompt"
                f" {shortened(repr(row['prompt']))}, which the trainer has sampled from",
                "train on the data set that olr was given, without changing its prompts",
            )
        return same[0]


def _training_prompts(table: pa.Table, recipe: Recipe, place: str) -> Sequence[Prompt]:
    """Return one prompt per row of a table, in order; raise UserError if a row cannot be used.

    A row without a label, for example, cannot be used if the recipe's method needs labels. `place` is the table's name
    in errors.
    """
    prompts = read_rows(
        Rows(table, Origins(place)),
        data_source=DATA_SOURCE,
        split="train",
        noise_type_of_sentinel=sentinel_type(recipe),
    )
    if recipe.method.row.needs_labels:
        prompts.require_labels(f"method '{recipe.method.name}'")
    # `olr train` would leave such rows out, but the trainer has them already and would sample from them.
    if len(prompts) < table.num_rows:
        raise UserError(
            f"the trainer samples from every row, and {prompts.notes[0]}",
            "remove such rows",
        )
    return prompts.prompts


def begin(
    run_dir: str | Path,
    recipe: RecipeSource | None,
    *,
    trainer: str,
    settings: Mapping[str, Any],
    table: pa.Table,
    place: str,
) -> tuple[OnlineLabelRefinement, PromptIndex]:
    """Return the object that refines labels for a trainer's run, and the index that finds prompts in the training data.

    Print a warning for each likely mistake in the recipe or the labels. Raise UserError if the training data cannot be
    used, or if the method needs something that a reward function does not get, such as token probabilities.

    Args:
        run_dir: the directory for the run.
        recipe: keys of a recipe as nested mappings, or the name of a recipe file; None for the defaults.
        trainer: the trainer's name and version.
        settings: the trainer's own settings, as nested keys of a recipe.
        table: the training data.
        place: the name of the training data in errors.
    """
    olr = OnlineLabelRefinement(run_dir, recipe, trainer=trainer, settings=settings)
    _require_fitting_method(olr.recipe)
    index = PromptIndex(table, olr.recipe, place)
    for warning in (
        *label_notes(index.prompts, olr.recipe.data.train, recipe_reading(olr.recipe)),
        *recipe_warnings(olr.recipe),
    ):
        print(f"Warning: {warning}")
    return olr, index


def grade_held_out(
    olr: OnlineLabelRefinement,
    rows: Sequence[Mapping[str, Any]],
    completions: Sequence[Any],
) -> list[float]:
    """Return 1.0 for each completion that matches the right answer in its row of the evaluation data, else 0.0.

    `rows` has one row per completion; raise UserError if a row has no right answer. The recipe of `olr` says how
    answers are read.
    """
    prompts = [_held_out_prompt(row) for row in rows]
    return olr.grade(
        completions,
        [str(prompt.gold) for prompt in prompts],
        data_sources=[prompt.data_source for prompt in prompts],
        prompts=[row["prompt"] for row in rows],
    )


def _require_fitting_method(recipe: Recipe) -> None:
    """Raise UserError if the recipe's method needs more than a trainer's reward function gets.

    A reward function only gets the responses to one prompt. So a method is refused if it needs token statistics, a
    second wording of the prompt, a choice among the step's prompts, or another loss.
    """
    section, method = recipe.method, compose(recipe.method)
    by_answers = method.score is None and not method.statistics and len(method.views) == 1
    # A choice needs all prompts of a step, which arrive here one by one.
    chooses = method.rank is not None
    if by_answers and not chooses and not section.penalty_weight and not section.smoothing:
        return
    raise UserError(
        f"method {section.name} needs more than a reward function gives (token statistics, a second wording, a choice"
        " of prompts, or another loss), which `olr train` has",
        "with another trainer use olr, grpo or ttrl",
    )


def _held_out_prompt(row: Mapping[str, Any]) -> Prompt:
    """Return a row of the evaluation data as a prompt; raise UserError if the row has no right answer."""
    rows = read_rows(
        Rows(pa.Table.from_pylist([dict(row)]), Origins("the evaluation data")),
        data_source=DATA_SOURCE,
        split="test",
    )
    (prompt,) = rows.prompts
    # No response matches a placeholder, so accuracy would silently be too low.
    if is_placeholder(prompt.gold or ""):
        raise UserError(
            f"the evaluation data has neither a true answer nor a clean label for the prompt"
            f" {shortened(repr(row['prompt']))}",
            "remove it",
        )
    return prompt
