"""Metrics to TensorBoard and Weights & Biases, besides metrics.jsonl."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from olr_cli.errors import NotHere
from olr_cli.recipe.schema import Recipe
from olr_cli.runs.directory import read_manifest
from olr_cli.runs.metrics import Metrics


class MetricLog(Protocol):
    """Takes one step's metrics."""

    def __call__(self, step: int, metrics: Metrics) -> None: ...


def require_log_packages(recipe: Recipe) -> None:
    """Make sure that what the recipe logs to is installed.

    Raises:
        NotHere: a package is missing.
    """
    for wanted, package in ((recipe.logging.tensorboard, "tensorboard"), (recipe.logging.wandb, "wandb")):
        if wanted and find_spec(package) is None:
            raise NotHere(
                f"logging.{package} is set, but the package {package} is not installed; "
                f"pip install 'olr-cli[{package}]', or remove the key"
            )


@contextmanager
def metric_logs(recipe: Recipe, run: Path, done: int) -> Iterator[list[MetricLog]]:
    """The logs that the recipe asks for, open within the block.

    Args:
        recipe: names the logs.
        run: the run directory.
        done: steps before the first that will be logged; what was logged of later ones is done again.
    """
    with ExitStack() as stack:
        logs: list[MetricLog] = []
        if recipe.logging.tensorboard:
            logs.append(stack.enter_context(_tensorboard(run, done)))
        if recipe.logging.wandb:
            logs.append(stack.enter_context(_wandb(recipe, run)))
        yield logs


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
