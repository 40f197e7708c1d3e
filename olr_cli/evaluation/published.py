"""The paper's scores, and the row that belongs to a model or recipe."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import ClassVar

import polars as pl
from pydantic import TypeAdapter

from olr_cli.errors import UserError, did_you_mean
from olr_cli.evaluation.scores import averages
from olr_cli.recipe.methods import OlrMethod, ScoreMethod
from olr_cli.recipe.schema import Recipe
from olr_cli.runs.directory import read_recipe
from olr_cli.runs.store import scan_labels
from olr_cli.runs.stored import marked_noise
from olr_cli.supervision import compose
from olr_cli.tables.table import Cell

RESULTS = Path(__file__).with_name("published") / "results.csv"
COST = Path(__file__).with_name("published") / "cost.csv"


@dataclass(frozen=True)
class Setting:
    """The settings of one training run in the paper, as its tables print them; None where a setting does not apply."""

    model: str
    """Name without the owner, such as `Qwen3-4B-Base`."""

    method: str = "base"
    """`base` (before training), `grpo`, `olr`, ..."""

    noise_type: str | None = None
    noise_ratio: Decimal | None = None
    """Ratio as printed."""

    train_prompts: int = 800
    slope_threshold: Decimal | None = None
    """delta."""

    warmup_epochs: int | None = None
    """T, the number of visits that keep the label."""

    besides: str = ""
    """Other settings that decide labels or rewards, none of which the paper used; empty in its rows."""

    @property
    def noise(self) -> str:
        """Kind and ratio of the label noise, as in ``active 0.5``.

        Empty if the row has no noise, or its method uses no labels.
        """
        return f"{self.noise_type} {self.noise_ratio}" if self.noise_type else ""

    def __str__(self) -> str:
        # The paper's usual values (800 prompts, threshold 0.05, 5 epochs) are left out.
        words = {
            self.method: self.method != "base",
            f"{self.noise_type} noise {self.noise_ratio}": self.noise_type is not None,
            f"{self.train_prompts:,} prompts": self.train_prompts != 800,
            f"slope threshold {self.slope_threshold}": self.slope_threshold
            not in (None, Decimal("0.05")),
            f"{self.warmup_epochs} warm-up epochs": self.warmup_epochs not in (None, 5),
            self.besides: True,
        }
        shown = (text for text, is_shown in words.items() if is_shown)
        return ", ".join(filter(None, (self.model, *shown)))


@dataclass(frozen=True)
class PublishedRow:
    """The scores that the paper prints for one setting. If several tables print the setting, their numbers agree."""

    setting: Setting
    tables: tuple[str, ...]
    """Tables that print the row."""

    scores: Mapping[str, float]
    """Benchmark -> score as a share, 0 .. 1."""

    name: ClassVar[str] = "paper"
    notes: ClassVar[tuple[str, ...]] = ()

    @property
    def sentence(self) -> str:
        """Note for a table that compares scores with this row.

        It names the row and says how the paper made its scores.
        """
        return (
            f"The paper's row is {self.setting} ({', '.join(self.tables)}): 8 samples of AIME and AMC, the authors'"
            " grader, no intervals; differences are in points."
        )

    @property
    def cells(self) -> dict[str, Cell]:
        """The scores and means in `shares`, as name -> table cell without an interval."""
        return {name: Cell(share) for name, share in self.shares.items()}

    @property
    def shares(self) -> Mapping[str, float]:
        """Name -> score as a share in 0 .. 1, for each benchmark and the means ``in`` and ``out``.

        ``in`` and ``out`` are the means over in-distribution and out-of-distribution benchmarks. They are computed from
        the printed scores, so they may differ from the printed means by rounding. A mean is left out if the row lacks
        one of its benchmarks.
        """
        return {**self.scores, **averages(self.scores)}


@cache
def published_rows() -> Mapping[Setting, PublishedRow]:
    """Return setting -> row for all rows of the paper's tables, in the order of the tables."""
    tables: dict[Setting, dict[str, None]] = {}
    scores: dict[Setting, dict[str, float]] = {}
    for table, setting, benchmark, score in _scores():
        tables.setdefault(setting, {})[table] = None
        scores.setdefault(setting, {})[benchmark] = float(score / 100)
    return {
        setting: PublishedRow(setting, tuple(tables[setting]), by_benchmark)
        for setting, by_benchmark in scores.items()
    }


def published_table(name: str) -> list[PublishedRow]:
    """Return the rows of one of the paper's tables, from top to bottom; empty if there is no such table.

    Args:
        name: name of the table in results.csv, such as ``baselines``.
    """
    settings = dict.fromkeys(setting for table, setting, _, _ in _scores() if table == name)
    return [published_rows()[setting] for setting in settings]


@cache
def _scores() -> list[tuple[str, Setting, str, Decimal]]:
    """Return the lines of results.csv, each as (table, setting, benchmark, score in percent)."""
    read = TypeAdapter(Setting).validate_python
    with RESULTS.open(encoding="utf-8", newline="") as lines:
        return [
            (
                line["table"],
                read(
                    {
                        f.name: line[f.name] or None
                        for f in fields(Setting)
                        if f.name in line
                    }
                ),
                line["benchmark"],
                Decimal(line["score"]),
            )
            for line in csv.DictReader(lines)
        ]


def published_cost() -> Mapping[str, str]:
    """Return phase of training -> time for 800 prompts, both as the paper's table prints them."""
    with COST.open(encoding="utf-8", newline="") as lines:
        return {line["phase"]: line["time"] for line in csv.DictReader(lines)}


def published_row(setting: Setting) -> PublishedRow:
    """Return the paper's row for a setting.

    Raises:
        UserError: there is no such row. If the paper has rows of the model, the error names the most similar ones, at
            most three.
    """
    rows = published_rows()
    if setting in rows:
        return rows[setting]
    models = dict.fromkeys(row.model for row in rows)
    if setting.model not in models:
        hint = did_you_mean(setting.model, models)
        raise UserError(
            f"the paper has no scores of '{setting.model}'{hint}",
            f"it has {', '.join(models)}",
            "paper",
        )

    def distance(other: Setting) -> int:
        """Return the number of fields in which another setting differs from `setting`."""
        return sum(
            getattr(setting, field.name) != getattr(other, field.name)
            for field in fields(Setting)
        )

    nearest = sorted((row for row in rows if row.model == setting.model), key=distance)
    raise UserError(
        f"the paper has no row for {setting}",
        f"the nearest are {'; '.join(map(str, nearest[:3]))}",
        "paper",
    )


def setting_of(run: Path) -> Setting:
    """Return a run's settings in the terms of the paper's tables, from its recipe and its stored labels.

    The paper need not have a row with these settings.
    """
    recipe = read_recipe(run)
    labels, uses_labels = scan_labels(run), recipe.method.row.uses_labels
    olr = recipe.method if isinstance(recipe.method, OlrMethod) else None
    noise_type: str | None = None
    noise_ratio = None
    if uses_labels and recipe.noise is not None and recipe.noise.ratio is not None:
        noise_type, noise_ratio = recipe.noise.type, recipe.noise.ratio
    # Without `noise` in the recipe, the data file may still have marked labels (`olr inject-noise`).
    elif uses_labels and (marked := marked_noise(labels)):
        noise_type, share = marked
        # The tables print one decimal; an exact share, such as 0.4988, would match no row.
        noise_ratio = Decimal(share).quantize(Decimal("0.1"))
    return Setting(
        model=model_name(recipe.model.path),
        method=_method(recipe),
        noise_type=noise_type,
        noise_ratio=noise_ratio,
        train_prompts=labels.filter(pl.col("visit") == 1).select(pl.len()).collect().item(),
        slope_threshold=olr.slope_threshold if olr and "slope" in olr.criteria else None,
        warmup_epochs=olr.warmup_epochs if olr else None,
        besides=", ".join(_besides(recipe)),
    )


def _method(recipe: Recipe) -> str:
    """Return the method's name in the paper's tables; a variant that the paper lacks has a suffix such as ``+sum``."""
    section = recipe.method
    names = compose(section).name.split("+")
    if isinstance(section, ScoreMethod) and section.score_reduction == "sum":
        names.append("sum")
    if recipe.verifier is not None and section.majority_graded_by == "verifier":
        names.append("graded_by_verifier")
    return "+".join(names)


def _besides(recipe: Recipe) -> Iterator[str]:
    """Yield words, such as ``verified labels``, for each setting of labels or rewards that the paper never used."""
    draw = getattr(recipe.noise, "draw", "uniform")
    if draw != "uniform" and recipe.method.row.uses_labels:
        yield f"labels drawn by {draw}"
    if recipe.data.verified is not None:
        yield "verified labels"
    if recipe.verifier is not None and recipe.verifier.brief:
        yield f"verifier {recipe.verifier.brief}"


def model_name(model: str) -> str:
    """Return the name of a model in the paper's tables: a hub id without its owner, or the last part of a path."""
    return model.rstrip("/").rpartition("/")[2]
