"""How responses are drawn in training, on held-out prompts and in evaluations, as one value for all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from olr_cli.errors import UserError
from olr_cli.recipe.section import LEAST_TEMPERATURE
from olr_cli.recipe.sections import TrainSection


@dataclass(frozen=True)
class Sampling:
    """How responses are sampled: temperature, length limit, which tokens may be drawn, and texts that end a response.

    Raises:
        UserError: a value is out of range.
    """

    temperature: float = 0.6
    """0 takes the most likely token."""

    max_new_tokens: int = 4096
    """Most tokens of a response, including its end token."""

    top_p: float = 1.0
    """Draw from the fewest most likely tokens that together have this probability."""

    top_k: int | None = None
    """Draw from this many of the most likely tokens; None: from all."""

    min_p: float = 0.0
    """Draw from the tokens that are at least this share as likely as the most likely one; 0: from all."""

    stop: tuple[str, ...] = ()
    """Texts that end a response; the response does not contain them."""

    def __post_init__(self) -> None:
        # Checked here too: evaluations set these values without a recipe.
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
        """Return the parameters for sampling training rollouts, from a recipe's section `train`."""
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
        """Return the parameters for sampling held-out prompts, from a recipe's section `train`.

        Only the temperature differs from training: it is `train.evaluation_temperature`.
        """
        return replace(cls.of(train), temperature=train.evaluation_temperature)
