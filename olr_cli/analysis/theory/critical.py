"""The observed critical noise ratio: where, among runs that differ in the ratio, a gain of training falls to 0."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from olr_cli.analysis.arms import Arm, Run, telling_settings
from olr_cli.analysis.theory import formulas
from olr_cli.supervision import compose

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
    members: defaultdict[str, dict[float, Arm]] = defaultdict(dict)
    for arm in arms:
        noise = arm.recipe.noise
        if noise is not None and noise.type == "active" and noise.ratio is not None:
            members[repr(_rest(arm))].setdefault(float(noise.ratio), arm)
    several = [dict(sorted(own.items())) for own in members.values() if len(own) > 1]
    several.sort(key=lambda own: not _is_grpo(own))
    names = _names([next(iter(own.values())) for own in several])
    found: list[Series] = []
    for name, own in zip(names, several, strict=True):
        beside = (each for each in found if _is_grpo(each.arms) and _data(each.arms) == _data(own))
        found.append(Series(name, own, None if _is_grpo(own) else next(beside, None)))
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


def _rest(arm: Arm, *sections: str) -> list[tuple[str, object]]:
    settings = arm.runs[0].settings
    return sorted((key, value) for key, value in settings.items() if not key.startswith((_RATIO, *sections)))


def _data(arms: Mapping[float, Arm]) -> list[tuple[str, object]]:
    return _rest(next(iter(arms.values())), "method.")


def _is_grpo(arms: Mapping[float, Arm]) -> bool:
    return compose(next(iter(arms.values())).recipe.method).name == "grpo"


def _names(firsts: Sequence[Arm]) -> list[str]:
    names = [f"active {compose(arm.recipe.method).name}" for arm in firsts]
    details = telling_settings([dict(_rest(arm, "method.name")) for arm in firsts])
    return [
        f"{name} {detail}" if names.count(name) > 1 else name
        for name, detail in zip(names, details, strict=True)
    ]
