"""What an engine gets, and what it is: the two sides of `olr_cli.engines.launch`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from olr_cli.data.prompt_set import PromptSet
from olr_cli.data.prompts import Message
from olr_cli.recipe.schema import Recipe
from olr_cli.runs.progress import Progress
from olr_cli.runs.store import RunStore
from olr_cli.supervision import Supervisor


@dataclass(frozen=True)
class DataSets:
    """What a run reads: prompts that train, and prompts that never do."""

    train: PromptSet
    validation: PromptSet | None
    test: PromptSet | None

    @property
    def held_out(self) -> dict[str, PromptSet]:
        """The sets that are only measured, by the prefix of their metrics."""
        sets = {"eval": self.test, "validation": self.validation}
        return {prefix: prompts for prefix, prompts in sets.items() if prompts is not None}

    @property
    def facts(self) -> dict[str, Any]:
        """For the manifest: source, digest and size of each set."""
        sets = {"train": self.train, "validation": self.validation, "test": self.test}
        return {
            name: {"source": str(prompts.source), "digest": prompts.digest, "prompts": len(prompts.prompts)}
            for name, prompts in sets.items()
            if prompts is not None
        }


@dataclass(frozen=True)
class Run:
    """A run that is ready to go on, as an engine gets it.

    Attributes:
        recipe: what to do.
        path: the run directory, held by this process.
        data: the prompts.
        supervisor: decides labels; its history holds every visit up to `done`.
        store: takes the records.
        done: complete steps; in training, a checkpoint after this step exists unless it is 0.
        progress: told what happens.
    """

    recipe: Recipe
    path: Path
    data: DataSets
    supervisor: Supervisor
    store: RunStore
    done: int
    progress: Progress


class EngineFailed(Exception):
    """An engine's own process ended by a bug; its traceback is in a log, which the message names."""


class Engine(Protocol):
    """Generates and optimises; made for a recipe and its data before anything is written.

    What it can't work with, it refuses when it is made.
    """

    def __init__(self, recipe: Recipe, data: DataSets) -> None:
        """Load the policy and check that the prompts fit it.

        Raises:
            UserError: the model or a prompt cannot be used.
        """

    @property
    def facts(self) -> dict[str, Any]:
        """For the manifest: engine, device, dtype, threads, policy_digest (of the starting policy's weights),
        departures from the authors' settings.
        """
        ...

    @property
    def warnings(self) -> list[str]:
        """What is likely a mistake, a sentence each."""
        ...

    @property
    def plan(self) -> list[str]:
        """What a dry run tells of how it would train, a line each."""
        ...

    def render(self, messages: Sequence[Message]) -> str:
        """A prompt exactly as the policy sees it."""
        ...

    def train(self, run: Run) -> dict[str, Any]:
        """Train from step `run.done` to the end; returns what the manifest should say of the finished run."""
        ...
