"""The observed critical noise ratio: where, among runs that differ in the ratio, a gain of training falls to 0."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from olr_cli.analysis.arms import Arm, Run, telling_settings, vary
from olr_cli.analysis.theory import formulas

_RATIO = "noise.ratio"


@dataclass(frozen=True)
class Series:
    """Arms that differ in the noise ratio and in nothing else.

    Attributes:
        name: kind of noise and method, and what tells the series from others of the same name.
        arms: noise ratio -> arm, ascending; two at least.
        unrefined: the series that differs from this one in the method alone, which is GRPO; None for GRPO itself or
            if there is none.
    """

    name: str
    arms: Mapping[float, Arm]
    unrefined: Series | None

    def runs(self) -> dict[int, dict[float, Run]]:
        """Seed -> noise ratio -> run, ratios ascending."""
        found: defaultdict[int, dict[float, Run]] = defaultdict(dict)
        for ratio, arm in self.arms.items():
            for run in arm.runs:
                found[run.seed][ratio] = run
        return dict(sorted(found.items()))


def series(arms: Sequence[Arm]) -> list[Series]:
    """The series of active noise among some arms, GRPO's before the others."""
    active = (arm for arm in arms if arm.recipe.noise is not None and arm.recipe.noise.type == "active")
    variations = sorted(vary(active, _RATIO), key=lambda variation: variation.first.method != "grpo")
    names = [f"active {variation.first.method}" for variation in variations]
    details = telling_settings([variation.settings("method.name") for variation in variations])
    found: list[Series] = []
    for variation, name, detail in zip(variations, names, details, strict=True):
        grpo = [
            other
            for other, done in zip(variations, found, strict=False)
            if other.first.method == "grpo" and other.settings("method.") == variation.settings("method.")
        ]
        found.append(
            Series(
                f"{name} {detail}" if names.count(name) > 1 else name,
                {float(ratio): arm for ratio, arm in variation.arms.items()},
                found[variations.index(grpo[0])] if grpo and variation.first.method != "grpo" else None,
            )
        )
    return found


def crossing(values: Mapping[float, float]) -> float | None:
    """Where a quantity that is positive at low noise ratios first reaches 0, by linear interpolation.

    Args:
        values: noise ratio -> value, ratios ascending.

    Returns:
        The ratio; None where the value is not positive at the lowest ratio, or positive at all.
    """
    before: tuple[float, float] | None = None
    for ratio, value in values.items():
        if value <= 0:
            if before is None:
                return None
            return before[0] + (ratio - before[0]) * before[1] / (before[1] - value)
        before = ratio, value
    return None


def refined_crossing(replaced: Mapping[float, float], critical: float) -> float | None:
    """Where rho (1 - Delta) reaches rho_c (Theorem "OLR Improves Label Noise Tolerance"), Delta varying with rho.

    Args:
        replaced: noise ratio -> Delta, ratios ascending.
        critical: rho_c without OLR.
    """
    left = {
        ratio: critical - float(formulas.effective_ratio(ratio, share)) for ratio, share in replaced.items()
    }
    return crossing(left)
