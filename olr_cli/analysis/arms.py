"""Runs, grouped into arms: an arm is one recipe under several seeds.

Everything that a figure or table shows is read from run directories; nothing here needs a model.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from olr_cli.analysis.frame import SCHEMA, frame
from olr_cli.data.log_files import is_log
from olr_cli.data.logs import RolloutLog, read_log
from olr_cli.errors import UserError, unknown
from olr_cli.grouping import gathered
from olr_cli.recipe.methods import OlrMethod
from olr_cli.recipe.schema import Recipe
from olr_cli.runs.directory import has_run, is_run, kind_note, require_run
from olr_cli.runs.shards import stored_steps
from olr_cli.runs.store import scan_labels_of
from olr_cli.runs.stored import Run, arm_name, complete_epochs, read_run, runs_below
from olr_cli.supervision.metrics import LABEL_METRICS, all_metrics, by_visit

_ACRONYM = re.compile("(?<![A-Za-z0-9])(grpo|olr|ttrl)(?![A-Za-z0-9])")


@dataclass(frozen=True)
class Arm:
    """One arm of a comparison: the runs of one recipe under different seeds, or one log of another trainer.

    Tables compare arms. Figures show the mean of an arm's runs and how far the runs spread. `group` makes the arms.
    """

    name: str
    """Name as tables show it and as a baseline is named; unique among the arms of one analysis."""

    runs: tuple[Run, ...]
    """At least one run, ordered by seed; the seeds are distinct."""

    visits: Callable[[], Mapping[Path, pl.DataFrame]] = field(repr=False, compare=False)
    """Run directory -> a row per visit with all metrics, for the runs of all arms of one analysis.

    They are counted together, since a query costs more time than the rows of a small run (`visits_of`).
    """

    is_labelled: bool = False
    """Whether the user chose the name (`relabel`)."""

    @property
    def title(self) -> str:
        """The arm's name in figures: the user's label (`relabel`), or without one its name in plain text (`spelt`)."""
        return self.name if self.is_labelled else spelt(self.name)

    @property
    def recipe(self) -> Recipe:
        """The recipe of the first run.

        The recipes of the other runs differ from it only in the seed and in settings that change no more than rounding.
        """
        return self.runs[0].recipe

    @property
    def log(self) -> RolloutLog | None:
        """The log of another trainer that this arm consists of; None for an arm of olr's own runs."""
        return self.runs[0].log

    @property
    def olr(self) -> OlrMethod | None:
        """The arm's settings of Online Label Refinement (OLR); None if its method is another one."""
        return self.recipe.method if isinstance(self.recipe.method, OlrMethod) else None

    @property
    def refinement(self) -> OlrMethod:
        """The arm's settings of Online Label Refinement (OLR), or OLR's defaults if its method is another one.

        The ablation metrics use these settings to count what OLR would have selected.
        """
        return self.olr or OlrMethod()

    @property
    def method(self) -> str:
        """The name of the method, with additions joined by plus signs, such as ``olr+label_smoothing``."""
        return self.runs[0].method

    def settings(self, *without: str) -> dict[str, Any]:
        """Return the settings that define the arm: dotted key of the recipe (such as ``noise.ratio``) -> value.

        Keys that begin with one of the prefixes `without`, such as ``method.``, are left out.
        """
        return {
            key: value
            for key, value in self.runs[0].settings.items()
            if not key.startswith(without)
        }

    @property
    def epochs(self) -> int:
        """The number of epochs that all runs have completed."""
        return min(map(complete_epochs, self._begun_epochs))

    @cached_property
    def _begun_epochs(self) -> list[pl.DataFrame]:
        """One frame of metrics per run, with a row per epoch; the last epoch may be incomplete.

        The frames are in the order of `runs` and have the columns of `by_epoch`.
        """
        return [self.visits()[run.path] for run in self.runs]

    def by_epoch(self) -> list[pl.DataFrame]:
        """Return one frame per run, in the order of `runs`, with a row of metrics per complete epoch.

        The columns are ``visit`` (the epoch, from 1), ``prompts`` (number of prompts visited) and one per metric of the
        labels, such as ``majority/accuracy``. A metric without a value is null.
        """
        return [visits.head(complete_epochs(visits)) for visits in self._begun_epochs]

    @cached_property
    def unfinished(self) -> dict[Path, str]:
        """The unfinished runs: run directory -> a sentence that says how many of the planned epochs are complete."""
        sentences = {}
        for run, visits in zip(self.runs, self._begun_epochs, strict=True):
            epochs, planned = complete_epochs(visits), run.recipe.train.epochs
            if epochs != planned:
                more = (
                    f"; epoch {epochs + 1} is under way and left out"
                    if visits.height > epochs
                    else ""
                )
                sentences[run.path] = (
                    f"{run.path} has gone through {epochs} of {planned} epochs{more}."
                )
        return sentences

    def notes(self) -> list[str]:
        """Return sentences on unfinished runs, on runs without training, and on epochs that figures leave out.

        Runs without training are those of `olr rollouts`. For another trainer's log, return the notes that were made
        when the log was read.
        """
        if self.log is not None:
            return list(self.log.notes)
        notes = list(self.unfinished.values())
        notes += [note for run in self.runs if (note := kind_note(run.path, run.kind))]
        if len(set(map(complete_epochs, self._begun_epochs))) > 1:
            notes.append(
                f"Figures by epoch show arm '{self.name}' up to epoch {self.epochs}, which all its runs have finished;"
                " tables and the figure arms take the last epoch of each run."
            )
        return notes

    def frame(self, metrics: Collection[str] = LABEL_METRICS) -> pl.DataFrame:
        """Return label metrics of all runs, for the epochs that every run has completed.

        There is one row per metric, run and epoch, with the columns arm, seed, metric, ``at`` (the epoch) and value.
        Rows without a value are left out. `metrics` are names of columns of `by_epoch`.
        """
        by_run = zip(self.runs, self.by_epoch(), strict=True)
        values = (
            pl.concat(
                rows.head(self.epochs).with_columns(seed=pl.lit(run.seed))
                for run, rows in by_run
            )
            .unpivot([*metrics], index=["seed", "visit"], variable_name="metric")
            .select(
                arm=pl.lit(self.name),
                seed="seed",
                metric="metric",
                at="visit",
                value="value",
            )
            .cast(SCHEMA)  # type: ignore[arg-type]
        )
        # An Enum sorts in the order of `metrics`; texts would sort by the alphabet.
        order = pl.col("metric").cast(pl.Enum([*metrics]))
        return values.drop_nulls("value").sort(order, "at", maintain_order=True)


def measured(
    arms: Iterable[Arm], values: Callable[[Run], Mapping[str, float | None]]
) -> pl.DataFrame:
    """Return a frame of metrics that have one value per run.

    The columns are arm, seed, metric, ``at`` (always null, since the values belong to no epoch) and value. Values that
    are None or not finite are left out.

    Args:
        arms: the arms whose runs are measured.
        values: called with each run; returns metric -> value.
    """
    return frame(
        (arm.name, run.seed, metric, None, value)
        for arm in arms
        for run in arm.runs
        for metric, value in values(run).items()
    )


_BESIDE_RUNS = ("figures", "logs")
"""Folders that olr writes beside the runs of a sweep; ``runs/sweep/*`` matches them too."""


def find_runs(
    places: Iterable[Path], columns: Mapping[str, str] | None = None
) -> list[Run]:
    """Return the runs at the given places, each once even if several places lead to it.

    What a place stands for depends on its kind:

    - A run directory stands for its run.
    - A folder with run directories below it stands for all of their runs, the oldest first.
    - A folder with another trainer's log stands for one run.
    - All other trainers' logs that are single files stand for one run together.

    Runs of other trainers come after all others. A folder named ``figures`` or ``logs`` that holds neither runs nor a
    log is skipped if another place holds runs.

    Args:
        places: paths of run directories, folders and logs.
        columns: for logs, olr's name of a column -> its name in the files. Other columns are found by their usual
            names.

    Raises:
        UserError: a place holds neither runs nor a log.
    """
    runs_by_place = {
        place: [place] if is_run(place) else list(runs_below(place)) for place in places
    }
    logs = [
        place for place, paths in runs_by_place.items() if not paths and _holds_log(place)
    ]
    runs: list[Run] = []
    for place, paths in runs_by_place.items():
        is_beside_runs = place.name in _BESIDE_RUNS and any(runs_by_place.values())
        if not (paths or place in logs or is_beside_runs):
            require_run(place)
        runs += sorted(map(read_run, paths), key=lambda run: (run.created, str(run.path)))
    folders = [[place] for place in logs if place.is_dir()]
    files = [place for place in logs if not place.is_dir()]
    runs += [
        _read_log(paths_of_log, columns)
        for paths_of_log in (*folders, files)
        if paths_of_log
    ]
    # `olr analyze runs runs/a` finds run a twice; kept twice, it would clash with itself as two runs of one seed.
    by_path: dict[Path, Run] = {}
    for run in runs:
        by_path.setdefault(run.path.resolve(), run)
    return list(by_path.values())


def begun(runs: Sequence[Run], named: Iterable[Path]) -> tuple[list[Run], list[str]]:
    """Leave out runs without a complete step. Return the other runs, and a sentence on each run that is left out.

    A run stays even without a complete step if it is another trainer's log, or if its directory is in `named`. If no
    run would remain, all runs are returned, without sentences.

    Args:
        runs: the runs to choose from.
        named: the paths that the user named: run directories, logs, or folders above them.
    """
    named_paths = set(named)
    waiting = {
        run.path: f"{run.path} holds no complete step yet and is left out."
        for run in runs
        if run.log is None and run.path not in named_paths and not stored_steps(run.path)
    }
    # If no run would remain, keep all of them: a later error then says what they lack.
    if len(waiting) == len(runs):
        return list(runs), []
    return [run for run in runs if run.path not in waiting], list(waiting.values())


def _holds_log(place: Path) -> bool:
    is_of_run = has_run(place) or (place.is_dir() and has_run(place.parent))
    return place.name not in _BESIDE_RUNS and not is_of_run and is_log(place)


def _read_log(places: Sequence[Path], columns: Mapping[str, str] | None) -> Run:
    # Figures of logs need no answers, and `text` is the extractor that costs nothing.
    log = read_log(
        places, columns, wanted=("reward", "tokens", "truncated"), extractor="text"
    )
    name = log.source.resolve().stem
    return Run(log.source, Recipe(name=name), f"{log.trainer}: {name}", "", log=log)


def group(runs: Iterable[Run]) -> list[Arm]:
    """Group runs into arms, in the order in which each arm first appears.

    Runs belong to one arm if their name and their settings without the seed are equal.

    Raises:
        UserError: two runs of an arm have the same seed.
    """
    members = gathered((_arm_key(run), run) for run in runs)
    firsts = [group[0] for group in members.values()]
    names = tell_apart([arm_name(run) for run in firsts], [run.settings for run in firsts])
    arms: list[Arm] = []
    # Lazy and shared: the first arm that is asked for its visits counts those of all arms, which `arms` will hold by
    # then. A command that asks none reads no labels.
    visits = cache(lambda: visits_of(arms))
    for name, members_of_arm in zip(names, members.values(), strict=True):
        ordered = sorted(members_of_arm, key=lambda run: run.seed)
        for previous, current in pairwise(ordered):
            if previous.seed == current.seed:
                raise UserError(
                    f"{previous.path} and {current.path} are both seed {previous.seed} of arm '{name}'",
                    "leave one out, or take the newest run of every arm and seed",
                    "newest",
                )
        arms.append(Arm(name, tuple(ordered), visits))
    return arms


def visits_of(arms: Iterable[Arm]) -> dict[Path, pl.DataFrame]:
    """Compute the metrics of every epoch of the arms' runs; other trainers' logs are left out.

    Returns:
        Run directory -> a frame with a row per epoch, with the columns of `Arm.by_epoch`. The last epoch may be
            incomplete.
    """
    # The metrics of the ablation depend on OLR's criteria, so one query can count only runs with the same criteria.
    by_criteria = gathered(
        ((arm.refinement.slope_threshold, arm.refinement.warmup_epochs), run.path)
        for arm in arms
        for run in arm.runs
        if run.log is None
    )
    visits: dict[Path, pl.DataFrame] = {}
    for criteria, paths in by_criteria.items():
        by_scan = [
            by_visit(rows, all_metrics(*criteria), "run") for rows in scan_labels_of(paths)
        ]
        by_run = [
            # The index `run` counts within a scan, and scans come in the order of `paths`, so the order is all that is
            # needed.
            rows
            for scan in by_scan
            for rows in scan.partition_by("run", include_key=False)
        ]
        visits |= zip(paths, by_run, strict=True)
    return visits


def relabel(arms: Sequence[Arm], labels: Iterable[str]) -> list[Arm]:
    """Return the arms in the given order, with new names for those that the user labels.

    `labels` are texts ``ARM=LABEL``, which rename the arm ARM.

    Raises:
        UserError: no arm is called ARM, a LABEL is empty, or two arms would have the same name.
    """
    arm_by_name = {arm.name: arm for arm in arms}
    for label in labels:
        # An arm may be called `olr warmup_epochs=2`, so the first equals sign need not end its name: take the longest
        # arm name that fits.
        of_arm = [arm.name for arm in arms if label.startswith(f"{arm.name}=")]
        name = max(of_arm, key=len, default=label.partition("=")[0])
        if name not in arm_by_name:
            raise unknown("label", name, arm_by_name)
        text = label.removeprefix(name).removeprefix("=").strip()
        if not text:
            raise UserError(f"{label} has no text", f"write it as '{name}=TEXT'", "label")
        arm_by_name[name] = replace(arm_by_name[name], name=text, is_labelled=True)
    names = [arm.name for arm in arm_by_name.values()]
    if len(set(names)) < len(names):
        raise UserError(
            f"two arms would have one name ({', '.join(names)})",
            "give them different ones",
            "label",
        )
    return list(arm_by_name.values())


def newest_of_each(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """Keep only the run of each arm and seed that was created last.

    Returns:
        The kept runs, in the order of `runs`.
        A sentence on each run that is left out.
    """
    newest = {
        (*_arm_key(run), run.seed): run for run in sorted(runs, key=lambda run: run.created)
    }
    pairs = [(run, newest[(*_arm_key(run), run.seed)]) for run in runs]
    sentence = "{} is left out: {} is newer, of the same arm and seed.".format
    older = [sentence(run.path, chosen.path) for run, chosen in pairs if run is not chosen]
    return [run for run, chosen in pairs if run is chosen], older


def _arm_key(run: Run) -> tuple[str, str]:
    # A setting may be a list, which cannot be part of a key, so the key is a text.
    return arm_name(run), repr(sorted(run.settings.items()))


@dataclass(frozen=True)
class Variation:
    """Two or more arms that differ in one key of the recipe and, apart from the seed, in nothing else; made by `vary`.

    `arms` maps each value of the key to its arm.
    """

    key: str
    """The key with dots, such as ``noise.ratio``."""

    arms: Mapping[Any, Arm]
    """Value of the key -> the first arm that has it; at least two, ascending."""

    name: str = ""
    """Label of its line in a figure, distinct within the panel."""

    panel: str = ""
    """Title of its panel: the settings in which panels differ; empty if there is only one."""

    @property
    def first(self) -> Arm:
        """The arm with the smallest value of `key`. Apart from `key` and the seed, all arms have its settings."""
        return next(iter(self.arms.values()))

    def settings(self, *without: str) -> dict[str, Any]:
        """Return the settings that all arms share: dotted key of the recipe -> value.

        The key that varies is left out, and so are keys that begin with one of the prefixes `without`, such as
        ``method.``.
        """
        return self.first.settings(self.key, *without)


def merged(arms: Iterable[Arm]) -> list[Arm]:
    """Merge arms with equal settings into one arm, which has the name of the first of them.

    The new arm has the runs of all of them. If several have a run with the same seed, only the first such run is kept.
    """
    groups = gathered((repr(sorted(arm.settings().items())), arm) for arm in arms)
    of_seeds = [
        # Reversed, because the last entry of a seed wins: the first arm's run has to.
        {run.seed: run for arm in reversed(group) for run in arm.runs}
        for group in groups.values()
    ]
    return [
        replace(group[0], runs=tuple(run for _, run in sorted(runs.items())))
        for group, runs in zip(groups.values(), of_seeds, strict=True)
    ]


def vary(arms: Iterable[Arm], key: str) -> list[Variation]:
    """Return every group of arms that differ in `key` alone, in the order in which each group first appears.

    `key` is a dotted key of the recipe, such as ``noise.ratio``. An arm without a value of it is left out. If several
    arms of a group have the same value, the first is kept. A group with only one value is left out.
    """
    groups: defaultdict[str, dict[Any, Arm]] = defaultdict(dict)
    for arm in arms:
        if (value := _value(arm.runs[0], key)) is not None:
            groups[repr(sorted(arm.settings(key).items()))].setdefault(value, arm)
    return [
        Variation(key, dict(sorted(group.items())))
        for group in groups.values()
        if len(group) > 1
    ]


def _value(run: Run, key: str) -> Any:
    """Return the value of a dotted key in a run's recipe, or None if the recipe has no such key.

    If the method is a label rule that the user wrote, a setting that the recipe leaves out has the rule's default.
    """
    part: Any = run.recipe
    for name in key.split("."):
        part = getattr(part, name, None)
    return run.rule_defaults.get(key.removeprefix("method.")) if part is None else part


def grpo_beside(arm: Arm, arms: Iterable[Arm]) -> Arm | None:
    """Return the first GRPO arm that differs from `arm` in nothing but the method, or None if there is none."""
    data = arm.settings("method.")
    return next(
        (
            candidate
            for candidate in arms
            if candidate.method == "grpo" and candidate.settings("method.") == data
        ),
        None,
    )


def spelt(name: str) -> str:
    """Return the name of an arm or method as text: ``active+label_smoothing`` becomes ``active + label smoothing``."""
    text = _ACRONYM.sub(lambda word: word[0].upper(), name.replace("_", " "))
    return " ".join(text.replace("+", " + ").split())


def tell_apart(names: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names, with distinguishing settings appended to names that occur several times.

    Two arms ``olr`` may become ``olr ratio=0.3`` and ``olr ratio=0.5``. Equal names with equal settings stay equal.
    `settings` has one mapping per name, in the same order, from dotted keys of the recipe to values.
    """
    namesakes = gathered(zip(names, settings, strict=True))
    details = {name: iter(telling_settings(recipes)) for name, recipes in namesakes.items()}
    return [f"{name} {next(details[name])}".rstrip() for name in names]


def telling_settings(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one text per recipe with the settings in which the recipes differ, such as ``ratio=0.3 seed=2``.

    `settings` has one mapping per recipe, from dotted keys to values. A key that a recipe lacks is shown as ``unset``.
    If all recipes are equal, the texts are empty.
    """
    keys = sorted({key for recipe in settings for key in recipe})
    differing = [
        key
        for key in keys
        if any(recipe.get(key) != settings[0].get(key) for recipe in settings)
    ]
    # Data files with different columns usually differ in their names too, and a name is easier to read.
    differing = [
        key for key in differing if not key.startswith("data.columns.")
    ] or differing
    return [
        " ".join(
            f"{key.rpartition('.')[2]}={_shown(recipe.get(key, 'unset'))}"
            for key in differing
        )
        for recipe in settings
    ]


def _shown(value: Any) -> str:
    return "+".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
