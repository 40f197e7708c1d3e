"""How responses are drawn, in training, on held-out prompts and in evaluations: one value for all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from olr_cli.errors import UserError
from olr_cli.recipe.section import LEAST_TEMPERATURE
from olr_cli.recipe.sections import TrainSection


@dataclass(frozen=True)
class Sampling:
    """How responses are drawn; every penalty is off.

    Attributes:
        temperature: 0 takes the most likely token.
        max_new_tokens: of a response, its end token included.
        top_p: draw from the most likely tokens that together have this probability.
        top_k: draw from this many of the most likely tokens; None: from all.
        min_p: draw from the tokens that are at least this share as likely as the most likely one; 0: from all.
        stop: texts that end a response, which then lacks them.
    """

    temperature: float = 0.6
    max_new_tokens: int = 4096
    top_p: float = 1.0
    top_k: int | None = None
    min_p: float = 0.0
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (self.temperature == 0 or LEAST_TEMPERATURE <= self.temperature < math.inf):
            least = f"give 0, or a number from {LEAST_TEMPERATURE} on"
            raise UserError(f"the temperature is {self.temperature}", least)
        if not 0 < self.top_p <= 1:
            raise UserError(
                f"top_p is {self.top_p}", "give a number above 0, and at most 1"
            )
        if not 0 <= self.min_p <= 1:
            raise UserError(f"min_p is {self.min_p}", "give a number from 0 to 1")
        if "" in self.stop:
            raise UserError("a stop text is empty", "give at least one character")

    @classmethod
    def of(cls, train: TrainSection) -> Sampling:
        """Return how a run draws the rollouts that it trains on."""
        return cls(
            train.temperature,
            train.max_new_tokens,
            train.top_p,
            train.top_k,
            train.min_p,
            train.stop,
        )

    @classmethod
    def held_out(cls, train: TrainSection) -> Sampling:
        """Return how a run draws rollouts of its held-out prompts: alike, at a temperature of their own."""
        return replace(cls.of(train), temperature=train.evaluation_temperature)
