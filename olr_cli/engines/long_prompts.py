"""Prompts that are too long for a run, left out before it starts where `data.drop_long` says so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any, Protocol

from olr_cli.data.prompts import LEFT_OUT, PromptSet, View
from olr_cli.engines.models import load_tokenizer, model_location
from olr_cli.engines.prompt_text import ChatFormat, long_rows, token_ids_of
from olr_cli.errors import UserError
from olr_cli.recipe.schema import Recipe


class Fit(Protocol):
    """Leaves prompts out of a set."""

    def __call__(
        self, prompts: PromptSet, views: Sequence[View] = ("original",)
    ) -> PromptSet:
        """Return the set without the prompts that are too long in one of the views."""


def fitting(recipe: Recipe, day: date | None) -> Fit:
    """Return the function that leaves long prompts out if the recipe says so, else none.

    Labels have their noise before, so that it does not depend on the tokenizer. `day`: of the run's start.
    """
    if not recipe.data.drop_long:
        return lambda prompts, views=(): prompts
    model, limit = recipe.model, recipe.train.max_prompt_tokens
    chat = ChatFormat.of(recipe, day)
    tokenizer: Any = load_tokenizer(
        model_location(model.path), trust_remote_code=model.trust_remote_code
    )

    def fit(prompts: PromptSet, views: Sequence[View] = ("original",)) -> PromptSet:
        encoded = (token_ids_of(tokenizer, prompts.prompts, chat, view) for view in views)
        long = sorted({row for token_ids in encoded for row in long_rows(token_ids, limit)})
        return _without(prompts, long, limit) if long else prompts

    return fit


def _without(prompts: PromptSet, long: Sequence[int], limit: int) -> PromptSet:
    """Return the prompts without those at some rows, with a note on them."""
    what = f"{len(long):,} of {len(prompts):,} prompts of {prompts.source} longer than train.max_prompt_tokens {limit}"
    first = f"the first: {prompts.place(long[0])}"
    if len(long) == len(prompts):
        raise UserError(f"{what} ({first}), so none is left", "raise the limit")
    left_out = json.dumps([prompts.prompts[row].prompt_id for row in long])
    return replace(
        prompts.subset(sorted({*range(len(prompts))}.difference(long))),
        notes=[*prompts.notes, f"{what} left out ({first})"],
        facts={**prompts.facts, LEFT_OUT: left_out},
    )
