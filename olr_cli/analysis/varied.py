"""Arms of OLR that differ in one setting and in nothing else, and the arm of GRPO that each lot compares with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import fmean, stdev
from typing import TypeAlias

from olr_cli.analysis.arms import Arm, grpo_beside, telling_settings, vary
from olr_cli.analysis.tables.sources import HELD_OUT, Source
from olr_cli.recipe.schema import OlrMethod

Value: TypeAlias = Decimal | int | tuple[str, ...]


@dataclass(frozen=True)
class Lot:
    """Arms that differ in one setting.

    Attributes:
        name: kind and ratio of the noise, and what tells the lot from others of the same noise.
        arms: value of the setting -> the first arm that has it; two at least, ascending.
        grpo: the arm that differs from these in nothing but the method, GRPO; None if there is none.
    """

    name: str
    arms: Mapping[Value, Arm]
    grpo: Arm | None

    @property
    def noise_type(self) -> str:
        """`active`, `inactive` or `mixed`; `clean` without marked labels."""
        return self.name.partition(" ")[0]


def lots(
    arms: Sequence[Arm], setting: str, applies: Callable[[OlrMethod], bool] = lambda _: True
) -> list[Lot]:
    """The lots among some arms, in the order in which each first appears.

    Args:
        arms: any.
        setting: key of the recipe's method section.
        applies: whether the setting decides anything in a method.
    """
    variations = vary((arm for arm in arms if arm.olr is not None and applies(arm.olr)), f"method.{setting}")
    details = telling_settings([variation.settings("noise.") for variation in variations])
    return [
        Lot(
            " ".join(filter(None, (variation.first.runs[0].noise or "clean", detail))),
            variation.arms,
            grpo_beside(variation.first, arms),
        )
        for variation, detail in zip(variations, details, strict=True)
    ]


def score_titles(source: Source) -> dict[str, str]:
    """What a figure shows as an arm's score: the means over kinds of benchmarks, or held-out accuracy; with titles."""
    averages = {column.name: f"{column.title} score" for column in source.columns if column.is_average}
    return averages or {HELD_OUT.name: "Held-out accuracy"}


def scores(arm: Arm, source: Source, name: str) -> list[float]:
    """One score of an arm's runs at their end, of those that have one."""
    measured = (source.values(run).get(name) for run in arm.runs)
    return [value for value in measured if value is not None]


def spread(values: Sequence[float]) -> tuple[float | None, float | None, int]:
    """Mean, sd of the sample (None below two) and number of some values."""
    return fmean(values) if values else None, stdev(values) if len(values) > 1 else None, len(values)
