"""A stored run: its recipe, the facts in its manifest, its labels; and a search for runs in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from olr_cli.data.logs import RolloutLog
from olr_cli.recipe.schema import UNDECIDING, Recipe
from olr_cli.recipe.section import flatten
from olr_cli.runs.directory import Kind, is_run, kind_of, read_manifest, read_recipe
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.shards import stored_steps
from olr_cli.runs.store import scan_labels
from olr_cli.supervision import compose
from olr_cli.supervision.metrics import by_visit

_SAME_ARM = UNDECIDING | {
    "seed",
    "noise.seed",
    "engine.device",
    "engine.dtype",
    "engine.threads",
}
"""Keys, or sections of keys, in which runs of one arm may differ: the seeds, and settings that only change rounding."""


@dataclass(frozen=True)
class Run:
    """A stored run: its recipe, what its manifest says, and its tables. `read_run` makes it from a run directory.

    Another trainer's log can be read as a run too. The field `log` then holds the log, and there is no run directory.
    """

    path: Path
    recipe: Recipe
    arm: str
    """The name that its sweep gave to runs of this recipe; empty for a run outside of a sweep."""

    created: str
    """Time of its creation in ISO format; empty if unknown."""

    kind: Kind = "training"
    log: RolloutLog | None = field(default=None, compare=False)
    """Another trainer's log that stands in for a run directory; its recipe then says nothing about the training."""

    rule_defaults: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Keys of a user's label rule that the recipe may leave out -> their values in this run."""

    @property
    def seed(self) -> int:
        """The recipe's seed. Reports compare two methods by pairs of runs with the same seed."""
        return self.recipe.seed

    @cached_property
    def method(self) -> str:
        """The method's name in reports, with its additions, such as a selection of prompts."""
        return compose(self.recipe.method).name

    @cached_property
    def labels(self) -> pl.LazyFrame:
        """The labels table of the complete steps, read lazily: one row per prompt and visit."""
        return scan_labels(self.path)

    @cached_property
    def epochs(self) -> int:
        """Number of epochs in which all prompts have been visited.

        The first epoch counts even before it is complete.
        """
        return complete_epochs(by_visit(self.labels, {}))

    def last_logged(self, name: str) -> float | None:
        """Return the last value of a metric in metrics.jsonl from step 1 on, or None if there is none."""
        lines = reversed(read_metrics(self.path, name))
        return next((line[name] for line in lines if line["step"] > 0), None)

    def logged_before_training(self, name: str) -> float | None:
        """Return the value of a metric at step 0, before training, or None if it was not measured."""
        return next(
            (line[name] for line in read_metrics(self.path, name) if line["step"] == 0),
            None,
        )

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings that define the run's arm, as dotted key of the recipe -> value.

        The runs of an arm repeat one recipe. Seeds and settings that only change rounding may differ, so they are left
        out.
        """
        flat = flatten({"method": dict(self.rule_defaults)}) | flatten(self.recipe.plain())
        return {
            k: v
            for k, v in flat.items()
            if k not in _SAME_ARM and k.split(".")[0] not in _SAME_ARM
        }

    @cached_property
    def noise(self) -> str:
        """The noise of the labels and the verifier's errors, as text; empty without noise or errors.

        The text names the kind and the ratio of the noise, such as ``active 0.4``. If the recipe sets no ratio, the
        ratio is the share of unverified labels that the training file marks as noise.
        """
        noise, verifier = self.recipe.noise, self.recipe.verifier
        if noise is not None and noise.ratio is not None:
            of_labels = f"{noise.type} {noise.ratio}"
        else:
            marked = marked_noise(self.labels) if stored_steps(self.path) else None
            of_labels = f"{marked[0]} {marked[1]:.2g}" if marked else ""
        of_verdicts = (
            f"verifier {verifier.brief}" if verifier is not None and verifier.brief else ""
        )
        return ", ".join(filter(None, (of_labels, of_verdicts)))


def complete_epochs(visits: pl.DataFrame) -> int:
    """Return how many epochs have visited all prompts; the first epoch always counts.

    `visits` has one row per epoch; its column ``prompts`` has the number of prompts visited (`by_visit`).
    """
    return len(whole_epochs(visits["prompts"].to_list()))


def whole_epochs(prompts: Sequence[float]) -> list[int]:
    """Return the indices, from 0, of the epochs that have visited all prompts.

    `prompts` has the number of prompts that each epoch has visited. The first epoch always counts. Any other epoch
    counts if it has visited at least as many prompts as the first.
    """
    return [epoch for epoch, count in enumerate(prompts) if count >= prompts[0]]


def marked_noise(labels: pl.LazyFrame) -> tuple[str, float] | None:
    """Return the kind and share of the noise that the training file marks; None if it marks no label.

    The file marks a label with the kind of its noise. The kind is ``mixed`` if several kinds occur. The share is that
    of the marked labels among the unverified ones, from 0 to 1. `labels` is the labels table of a run.
    """
    # First visits only, so that every prompt counts once.
    first = labels.filter(pl.col("visit") == 1, pl.col("label_source") != "verified")
    kinds = first.select("noise_type").collect()["noise_type"]
    marks = kinds.filter(kinds.is_not_null() & (kinds != "clean"))
    if marks.is_empty():
        return None
    return marks[0] if marks.n_unique() == 1 else "mixed", len(marks) / len(kinds)


def read_run(path: Path, manifest: Mapping[str, Any] | None = None) -> Run:
    """Read a run from its recipe and manifest.

    Args:
        path: the run directory.
        manifest: the run's manifest, if it has been read already.

    Raises:
        UserError: `path` is no run directory, its manifest or recipe is damaged, or a newer olr wrote it.
    """
    manifest = manifest or read_manifest(path)
    arm, created = (str(manifest.get(key) or "") for key in ("arm", "created"))
    defaults = (manifest.get("rule") or {}).get("defaults", {})
    return Run(
        path,
        read_recipe(path, manifest),
        arm,
        created,
        kind_of(manifest),
        rule_defaults=defaults,
    )


def arm_name(run: Run) -> str:
    """Return the name of a run's arm, that is of the runs that differ only in their seed.

    It is the name that the run's sweep gave. Without a sweep, it is made of the run's noise and method, so two arms may
    share a name.
    """
    if run.arm:
        return run.arm
    method = "rollouts" if run.kind == "rollouts" else run.method
    return f"{run.noise} {method}" if run.noise else method


def runs_below(folder: Path) -> Iterator[Path]:
    """Yield the run directories at or below a folder. Links are followed; folders inside a run are not searched."""
    seen = set[str]()
    for path, below, _ in os.walk(folder, followlinks=True):
        real = os.path.realpath(path)
        if real in seen or is_run(path):
            below.clear()
        if real not in seen and is_run(path):
            yield Path(path)
        # A link may lead to a folder above itself; without this, the walk would never end.
        seen.add(real)
