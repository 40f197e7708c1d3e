"""The paper's scores, and which of its rows belongs to a model or recipe."""

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
    """A training of the paper, as far as its tables say. None: doesn't apply.

    Attributes:
        model: without its owner, as in `Qwen3-4B-Base`.
        method: `base` (before training), `grpo`, `olr`, ...
        noise_ratio: as printed.
        slope_threshold: delta.
        warmup_epochs: T, as visits that keep the label.
        besides: what else decides labels or rewards, of which the paper has nothing; empty in its rows.
    """

    model: str
    method: str = "base"
    noise_type: str | None = None
    noise_ratio: Decimal | None = None
    train_prompts: int = 800
    slope_threshold: Decimal | None = None
    warmup_epochs: int | None = None
    besides: str = ""

    @property
    def noise(self) -> str:
        """``active 0.5``; empty where no labels are marked, or none are used."""
        return f"{self.noise_type} {self.noise_ratio}" if self.noise_type else ""

    def __str__(self) -> str:
        words = {
            self.method: self.method != "base",
            f"{self.noise_type} noise {self.noise_ratio}": self.noise_type is not None,
            f"{self.train_prompts:,} prompts": self.train_prompts != 800,
            f"slope threshold {self.slope_threshold}": self.slope_threshold
            not in (None, Decimal("0.05")),
            f"{self.warmup_epochs} warm-up epochs": self.warmup_epochs not in (None, 5),
            self.besides: True,
        }
        said = (text for text, is_said in words.items() if is_said)
        return ", ".join(filter(None, (self.model, *said)))


@dataclass(frozen=True)
class PublishedRow:
    """A row of the paper's tables, which agree where several print it; scores are shares, 0 .. 1, by benchmark."""

    setting: Setting
    tables: tuple[str, ...]
    scores: Mapping[str, float]
    name: ClassVar[str] = "paper"
    notes: ClassVar[tuple[str, ...]] = ()

    @property
    def sentence(self) -> str:
        """A sentence on differences to these scores."""
        return (
            f"The paper's row is {self.setting} ({', '.join(self.tables)}): 8 samples of AIME and AMC, the authors'"
            " grader, no intervals; differences are in points."
        )

    @property
    def cells(self) -> dict[str, Cell]:
        """Scores and means, as those of an evaluation."""
        return {name: Cell(share) for name, share in self.shares.items()}

    @property
    def shares(self) -> Mapping[str, float]:
        """The scores, and as ``in`` and ``out`` their means over in- and out-of-distribution benchmarks.

        The paper prints the means too, to one decimal, mostly those of the rounded scores.
        """
        return {**self.scores, **averages(self.scores)}


@cache
def published_rows() -> Mapping[Setting, PublishedRow]:
    """Every setting in the paper's tables, in their order."""
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
    """The rows of one of the paper's tables, from top to bottom; none if there is no such table."""
    settings = dict.fromkeys(setting for table, setting, _, _ in _scores() if table == name)
    return [published_rows()[setting] for setting in settings]


@cache
def _scores() -> list[tuple[str, Setting, str, Decimal]]:
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
    """The paper's table of training time: phase -> time, both as printed, for 800 prompts."""
    with COST.open(encoding="utf-8", newline="") as lines:
        return {line["phase"]: line["time"] for line in csv.DictReader(lines)}


def published_row(setting: Setting) -> PublishedRow:
    """The paper's row for a setting."""
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
    """The paper's setting that a run has, from its recipe and its labels."""
    recipe = read_recipe(run)
    labels, uses_labels = scan_labels(run), recipe.method.row.uses_labels
    olr = recipe.method if isinstance(recipe.method, OlrMethod) else None
    noise_type: str | None = None
    noise_ratio = None
    if uses_labels and recipe.noise is not None and recipe.noise.ratio is not None:
        noise_type, noise_ratio = recipe.noise.type, recipe.noise.ratio
    elif uses_labels and (marked := marked_noise(labels)):
        noise_type, share = marked
        noise_ratio = Decimal(share).quantize(Decimal("0.1"))  # as printed
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
    """The method's name, with what tells it from the paper's method of that name."""
    section = recipe.method
    names = compose(section).name.split("+")
    if isinstance(section, ScoreMethod) and section.score_reduction == "sum":
        names.append("sum")
    if recipe.verifier is not None and section.majority_graded_by == "verifier":
        names.append("graded_by_verifier")
    return "+".join(names)


def _besides(recipe: Recipe) -> Iterator[str]:
    """Words for what decides labels and rewards besides method and noise; runs that share them are compared."""
    draw = getattr(recipe.noise, "draw", "uniform")
    if draw != "uniform" and recipe.method.row.uses_labels:
        yield f"labels drawn by {draw}"
    if recipe.data.verified is not None:
        yield "verified labels"
    if recipe.verifier is not None and recipe.verifier.brief:
        yield f"verifier {recipe.verifier.brief}"


def model_name(model: str) -> str:
    """A model as the paper's tables call it: a hub id without its owner, the last part of a path."""
    return model.rstrip("/").rpartition("/")[2]
