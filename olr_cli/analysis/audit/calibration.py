"""From the model's log odds to confidences that mean what they say: a logistic map of two parameters.

    P = 1 / (1 + exp(-(intercept + slope * log odds))),  slope > 0

Two parameters rather than isotonic regression: the order of the prompts stays as it is without ties, no confidence is
0 or 1, and a few trusted labels can move the map without tearing it (`recalibrated`).
The built-in maps were fitted on the arithmetic task (`benchmarks/audit_quality.py --fit` makes calibration.json anew).
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from olr_cli.analysis.audit.estimator import Floats

BUILT_IN = "calibration.json"

INTERCEPT_SD, LOG_SLOPE_SD = 2.0, 1.0
"""How far one's own data may lie from the built-in map, as standard deviations of the shrinkage's normal priors."""


@dataclass(frozen=True)
class Calibration:
    """One map.

    Attributes:
        intercept: of the log odds.
        slope: of the log odds, above 0.
    """

    intercept: float = 0.0
    slope: float = 1.0

    def apply(self, log_odds: Floats) -> Floats:
        """Confidences, shape like `log_odds`; not a number stays so."""
        return 1 / (1 + np.exp(-np.clip(self.intercept + self.slope * log_odds, -700, 700)))


@dataclass(frozen=True)
class Calibrations:
    """The maps of an audit.

    Attributes:
        wrong: that the given label is wrong.
        proposal: that the proposal in its place is right.
        unlabelled: that the proposal is right for a prompt without a label.
    """

    wrong: Calibration
    proposal: Calibration
    unlabelled: Calibration

    def plain(self) -> dict[str, dict[str, float]]:
        """For JSON."""
        return asdict(self)


def built_in() -> Calibrations:
    """The maps fitted on the arithmetic task."""
    text = resources.files("olr_cli.analysis.audit").joinpath(BUILT_IN).read_text("utf-8")
    return Calibrations(**{name: Calibration(**values) for name, values in json.loads(text).items()})


def fitted(log_odds: Floats, is_true: NDArray[np.bool_]) -> Calibration:
    """The maximum-likelihood map."""
    return _fitted(log_odds, is_true, Calibration(), weight=0.0)


def recalibrated(start: Calibration, log_odds: Floats, is_true: NDArray[np.bool_]) -> Calibration:
    """The map for data of which a few outcomes are known, shrunk toward `start`.

    The most probable map under independent normal priors around the intercept and the logarithm of the slope of
    `start`, with sd `INTERCEPT_SD` and `LOG_SLOPE_SD`; without outcomes it is `start`.

    Args:
        start: the map to shrink toward.
        log_odds: (N,) of the known prompts.
        is_true: (N,) their outcomes.
    """
    return _fitted(log_odds, is_true, start, weight=1.0)


def _fitted(
    log_odds: Floats, is_true: NDArray[np.bool_], start: Calibration, *, weight: float
) -> Calibration:
    from scipy.optimize import minimize

    # The values decide little beyond where a confidence is 0 or 1 to four digits; they would decide all of a fit.
    bounded = np.clip(log_odds, -20, 20)
    sign = np.where(is_true, 1.0, -1.0)

    def loss(parameters: Floats) -> float:
        intercept, log_slope = parameters
        misses = np.logaddexp(0, -sign * (intercept + math.exp(log_slope) * bounded)).sum()
        off = (intercept - start.intercept) / INTERCEPT_SD, (log_slope - math.log(start.slope)) / LOG_SLOPE_SD
        return float(misses + weight * (off[0] ** 2 + off[1] ** 2) / 2)

    found = minimize(loss, [start.intercept, math.log(start.slope)], bounds=[(-20, 20), (-6, 3)])
    return Calibration(float(found.x[0]), math.exp(float(found.x[1])))
