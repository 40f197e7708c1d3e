"""A run as it is stored: its recipe, what its manifest says, its labels; the runs below a folder."""

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
"""Keys, or sections of keys, in which runs of one arm may differ: the seeds, and what changes rounding alone."""


@dataclass(frozen=True)
class Run:
    """One run directory.

    Attributes:
        arm: what its sweep calls runs of this recipe; empty for a run of its own.
        created: when it was made, as an ISO time; empty if unknown.
        log: what another trainer logged, in place of a run directory; its recipe says nothing.
        rule_defaults: keys of a label rule of its own that the recipe may leave out, and their values in this run.
    """

    path: Path
    recipe: Recipe
    arm: str
    created: str
    kind: Kind = "training"
    log: RolloutLog | None = field(default=None, compare=False)
    rule_defaults: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def seed(self) -> int:
        """The seed, by which runs of several arms are paired."""
        return self.recipe.seed

    @cached_property
    def method(self) -> str:
        """The method's name, with what is added to it."""
        return compose(self.recipe.method).name

    @cached_property
    def labels(self) -> pl.LazyFrame:
        """The labels table (`LabelRecord`)."""
        return scan_labels(self.path)

    @cached_property
    def epochs(self) -> int:
        """How many epochs all prompts have gone through; 1 at least, even if the first is under way."""
        return complete_epochs(by_visit(self.labels, {}))

    def last_logged(self, name: str) -> float | None:
        """The last value of a metric in metrics.jsonl; None if there is none since training began (step 0)."""
        lines = reversed(read_metrics(self.path, name))
        return next((line[name] for line in lines if line["step"] > 0), None)

    def logged_before_training(self, name: str) -> float | None:
        """The value of a metric at step 0, of the policy before training; None if it was not measured."""
        return next(
            (line[name] for line in read_metrics(self.path, name) if line["step"] == 0),
            None,
        )

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings that make the run's arm: its recipe's dotted keys, without those that may differ."""
        flat = flatten({"method": dict(self.rule_defaults)}) | flatten(self.recipe.plain())
        return {
            k: v
            for k, v in flat.items()
            if k not in _SAME_ARM and k.split(".")[0] not in _SAME_ARM
        }

    @cached_property
    def noise(self) -> str:
        """Kind and ratio of the labels' noise, the recipe's or, where the training file marks labels, the share of the
        unverified ones; and the verifier's errors.
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
    """How many rows of `by_visit` have all prompts; the first always counts."""
    return len(whole_epochs(visits["prompts"].to_list()))


def whole_epochs(prompts: Sequence[float]) -> list[int]:
    """Return which epochs have all prompts (the first is 0), given how many each has; the first always counts."""
    return [place for place, count in enumerate(prompts) if count >= prompts[0]]


def marked_noise(labels: pl.LazyFrame) -> tuple[str, float] | None:
    """Kind and share of the noise that a training file marks among labels that nobody verified; None without marks."""
    first = labels.filter(pl.col("visit") == 1, pl.col("label_source") != "verified")
    kinds = first.select("noise_type").collect()["noise_type"]
    marks = kinds.filter(kinds.is_not_null() & (kinds != "clean"))
    if marks.is_empty():
        return None
    return marks[0] if marks.n_unique() == 1 else "mixed", len(marks) / len(kinds)


def read_run(path: Path, manifest: Mapping[str, Any] | None = None) -> Run:
    """Read a run by its recipe and manifest; `manifest` is the run's, if it has been read already."""
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
    """The arm as the sweep calls it, else noise and method; two arms may have one name."""
    if run.arm:
        return run.arm
    method = "rollouts" if run.kind == "rollouts" else run.method
    return f"{run.noise} {method}" if run.noise else method


def runs_below(folder: Path) -> Iterator[Path]:
    """The run directories at or below a folder, links followed; a run is not searched for others."""
    seen = set[str]()
    for place, below, _ in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in seen or is_run(place):
            below.clear()
        if real not in seen and is_run(place):
            yield Path(place)
        seen.add(real)  # a link may lead to a folder above it
