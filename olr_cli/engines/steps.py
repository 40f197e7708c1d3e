"""The parts of a step that all engines share: its order, its records, its metrics and where they are logged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from olr_cli import seeding
from olr_cli.answers import EXTRACTORS
from olr_cli.data.prompts import Prompt
from olr_cli.engines.run import Run
from olr_cli.packages import not_installed
from olr_cli.recipe.schema import Recipe
from olr_cli.runs.checkpoints import VALIDATION, best_step
from olr_cli.runs.collapse import CollapseWatch
from olr_cli.runs.directory import read_manifest
from olr_cli.runs.metrics import Metrics, read_metrics


def steps_per_epoch(recipe: Recipe, prompts: int) -> int:
    """Steps in which every prompt is visited once; the last one may have fewer prompts."""
    return -(-prompts // recipe.train.prompts_per_step)


def epoch_order(recipe: Recipe, prompts: int, epoch: int) -> list[int]:
    """Rows of the prompts in the order of their visits in an epoch, which counts from 1 (R18)."""
    return seeding.permutation(prompts, "order", recipe.seed, epoch)


def total_steps(recipe: Recipe, prompts: int) -> int:
    """Steps of the whole run."""
    return recipe.train.epochs * steps_per_epoch(recipe, prompts)


def step_batches(recipe: Recipe, prompts: int, done: int = 0) -> Iterator[tuple[int, int, list[int]]]:
    """(step, epoch, rows of the prompts) of every step after `done`; steps and epochs count from 1.

    The last batch of an epoch may be smaller.
    """
    size, per_epoch = recipe.train.prompts_per_step, steps_per_epoch(recipe, prompts)
    for step in range(done + 1, total_steps(recipe, prompts) + 1):
        epoch, place = divmod(step - 1, per_epoch)
        order = epoch_order(recipe, prompts, epoch + 1)
        yield step, epoch + 1, order[place * size : (place + 1) * size]


def optimizer_steps(recipe: Recipe, prompts: int, done: int) -> int:
    """Mini-batches of the first `done` steps."""
    size = recipe.train.prompts_per_step
    mini = min(recipe.train.mini_batch_prompts or size, size)
    full = -(-size // mini)
    epochs, steps = divmod(done, steps_per_epoch(recipe, prompts))
    per_epoch = prompts // size * full + -(-(prompts % size) // mini)
    return epochs * per_epoch + steps * full


def rollout_keys(purpose: str, seed: int, epoch: int, prompts: Sequence[Prompt], rollouts: int) -> Any:
    """Keys (prompts, rollouts): the randomness of a rollout does not depend on its batch (R18)."""
    keys = [
        [seeding.key(purpose, seed, epoch, prompt.prompt_id, g) for g in range(rollouts)]
        for prompt in prompts
    ]
    return np.array(keys, dtype=np.uint64)


def epoch_so_far(run: Path, done: int, per_epoch: int) -> list[Metrics]:
    """The metrics of an epoch's steps so far, when a run goes on within the epoch after `done` steps."""
    epochs, steps = divmod(done, per_epoch)
    return [line for line in read_metrics(run) if line["epoch"] == epochs + 1] if steps else []


def is_due(step: int, every: int | None, last: int) -> bool:
    """Whether something that happens every so many steps, and at the last, happens now."""
    return step == last or (every is not None and step % every == 0)


def wants_checkpoint(recipe: Recipe, run: Path, step: int, last: int, metrics: Metrics) -> bool:
    """Whether a checkpoint is written after this step: it is due, or the best so far on the validation set (R22).

    The run's metrics.jsonl has this step's line already; `last` is the last step of the whole run.
    """
    return is_due(step, recipe.train.checkpoint_every, last) or (
        VALIDATION in metrics and best_step(run) == step
    )


def signs_of_a_wrong_template(metrics: Metrics) -> list[str]:
    """The two signs of a wrong chat template or answer extractor, a sentence each."""
    return [
        f"Warning: {metrics[name]:.0%} {what}; the chat template or data.extractor"
        f" ({', '.join(EXTRACTORS)}) may be wrong; `olr train --dry-run` shows a prompt as the policy sees it"
        for name, what in (
            ("rollout/zero_variance_groups", "of the groups have equal rewards throughout"),
            ("rollout/missing_answers", "of the responses have no answer"),
        )
        if metrics.get(name, 0) > 0.9
    ]


MetricLog = Callable[[int, Metrics], None]
"""Takes a step and its metrics."""


def require_log_packages(recipe: Recipe) -> None:
    """Make sure that the loggers of the recipe are installed.

    Raises:
        NotHere: a package is missing.
    """
    for wanted, package in ((recipe.logging.tensorboard, "tensorboard"), (recipe.logging.wandb, "wandb")):
        if wanted and find_spec(package) is None:
            raise not_installed(package, f"logging.{package}")


@contextmanager
def metric_logs(recipe: Recipe, run: Path, done: int) -> Iterator[list[MetricLog]]:
    """The logs that the recipe asks for besides metrics.jsonl, open within the block.

    Steps after `done` that an earlier attempt has logged are logged again.
    """
    with ExitStack() as stack:
        logs: list[MetricLog] = []
        if recipe.logging.tensorboard:
            logs.append(stack.enter_context(_tensorboard(run, done)))
        if recipe.logging.wandb:
            logs.append(stack.enter_context(_wandb(recipe, run)))
        yield logs


@contextmanager
def reports(run: Run) -> Iterator[MetricLog]:
    """What logs and shows a step's metrics, and warns when something is plainly wrong; open within the block."""
    watch = CollapseWatch(run.recipe, len(run.data.train.prompts), read_metrics(run.path))
    with metric_logs(run.recipe, run.path, run.done) as logs:

        def report(step: int, metrics: Metrics) -> None:
            for log in logs:
                log(step, metrics)
            run.progress.step(step, metrics)
            signs = signs_of_a_wrong_template(metrics) if step == 1 else []
            for warning in [*signs, *watch.look(metrics)]:
                run.progress.say(warning)

        yield report


@contextmanager
def _tensorboard(run: Path, done: int) -> Iterator[MetricLog]:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(run / "tensorboard"), purge_step=done + 1 if done else 0) as writer:

        def log(step: int, metrics: Metrics) -> None:
            for name, value in metrics.items():
                writer.add_scalar(name, value, step)

        yield log


@contextmanager
def _wandb(recipe: Recipe, run: Path) -> Iterator[MetricLog]:
    import wandb

    session = wandb.init(
        project=recipe.logging.wandb,
        name=recipe.name,
        dir=str(run),
        config=recipe.plain(),
        id=read_manifest(run)["id"],
        resume="allow",
    )

    def log(step: int, metrics: Metrics) -> None:
        session.log(metrics, step=step)

    try:
        yield log
    finally:
        session.finish()
