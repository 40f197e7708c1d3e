"""The plan of a run: the prompts of each step, the work due after it, and the learning rate of every update.

    prompts = 20, size = 8          step    1        2         3     | 4  …
    epochs = 3, mini = 4            rows    8        8         4     | 8
                                    updates 0 1      2 3       4     | 5 6

Nothing here depends on results of the steps, so a run that is resumed after any step follows the same plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from olr_cli import seeding
from olr_cli.recipe.schema import Recipe
from olr_cli.recipe.sections import LrSchedule

MIN_LR_RATIO = 0.1
"""The final learning rate of `cosine_with_min_lr`, as a share of the highest."""


@dataclass(frozen=True)
class Schedule:
    """The plan of a run: the prompts of each step, the learning rate of each update, and when periodic work is due.

    Steps and epochs count from 1. Updates (optimiser steps) and the rows of the training data count from 0.
    """

    prompts: int
    """Number of training prompts; every epoch visits each of them once."""

    size: int
    """Prompts per step; the last step of an epoch may have fewer."""

    mini: int
    """Prompts per update, at most `size`; the last update of a step may have fewer."""

    epochs: int
    """Passes over the prompts."""

    seed: int
    """Seed of the order within each epoch (R18)."""

    highest: float = 1.0
    """The learning rate at its highest."""

    decay: LrSchedule = "constant"
    """How the learning rate falls after the warm-up."""

    warmup_ratio: float = 0.0
    """Share of all updates during which the learning rate rises from 0."""

    @classmethod
    def of(cls, recipe: Recipe, prompts: int) -> Schedule:
        """Return the schedule of a recipe for this number of training prompts."""
        train = recipe.train
        return cls(
            prompts=prompts,
            size=train.prompts_per_step,
            mini=min(
                train.mini_batch_prompts or train.prompts_per_step, train.prompts_per_step
            ),
            epochs=train.epochs,
            seed=recipe.seed,
            highest=train.learning_rate,
            decay=train.lr_schedule,
            warmup_ratio=train.lr_warmup_ratio,
        )

    @property
    def per_epoch(self) -> int:
        """Number of steps per epoch."""
        return -(-self.prompts // self.size)

    @property
    def last(self) -> int:
        """Number of the last step, which is also the number of steps."""
        return self.epochs * self.per_epoch

    def epoch(self, step: int) -> int:
        """Return the epoch of a step; step 0, before training, is in epoch 0."""
        return -(-step // self.per_epoch)

    def rows(self, step: int) -> list[int]:
        """Return the row numbers (from 0) of the training prompts that a step visits, in the order of the visits."""
        first = (step - 1) % self.per_epoch * self.size
        return _order(self.prompts, self.seed, self.epoch(step))[first : first + self.size]

    def after(self, done: int) -> range:
        """Return the numbers of the steps that remain after `done` steps."""
        return range(done + 1, self.last + 1)

    def is_due(self, step: int, every: int | None) -> bool:
        """Return whether periodic work is due after a step.

        It is due after the last step and, unless `every` is None, after each step that is a multiple of `every`.
        """
        return step == self.last or (every is not None and step % every == 0)

    def updates_before(self, step: int) -> int:
        """Return the number of updates in all steps before this one, including updates in which no prompt trains.

        The number does not depend on results of earlier steps, so the learning rate is the same after a resume.
        """
        epochs, steps = divmod(step - 1, self.per_epoch)
        in_full_step, rest = -(-self.size // self.mini), self.prompts % self.size
        in_epoch = self.prompts // self.size * in_full_step + -(-rest // self.mini)
        return epochs * in_epoch + steps * in_full_step

    def learning_rates(self, step: int) -> list[float]:
        """Return the learning rate of each update of a step."""
        updates = range(self.updates_before(step), self.updates_before(step + 1))
        return [self.learning_rate(update) for update in updates]

    def learning_rate(self, update: int) -> float:
        """Return the learning rate of an update, which counts from 0 over the whole run.

        With a warm-up, the first update's rate is 0. The rates are bit for bit those of the schedules in transformers,
        which TRL uses.
        """
        updates = self.updates_before(self.last + 1)
        # `ceil`, as in transformers' `get_warmup_steps`.
        warmup = math.ceil(self.warmup_ratio * updates)
        if update < warmup:
            return self.highest * (update / warmup)
        if self.decay == "constant":
            return self.highest
        if self.decay == "linear":
            return self.highest * ((updates - update) / (updates - warmup))
        lowest = MIN_LR_RATIO if self.decay == "cosine_with_min_lr" else 0.0
        progress = (update - warmup) / (updates - warmup)
        share = 0.5 * (1.0 + math.cos(math.pi * progress))
        return self.highest * (share * (1 - lowest) + lowest)


# Every step of an epoch asks again, and a permutation takes one hash per prompt.
@lru_cache(maxsize=2)
def _order(prompts: int, seed: int, epoch: int) -> list[int]:
    """Return the row numbers of the training data (0 to `prompts` - 1) in the order in which an epoch visits them.

    The order in one epoch does not depend on how many epochs there are.
    """
    return seeding.permutation(prompts, "order", seed, epoch)
