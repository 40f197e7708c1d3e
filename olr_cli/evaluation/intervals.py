"""The 95 % intervals that are computed from draws, by two methods.

Means of scores have bootstrap intervals that are corrected for bias and skewness (BCa). Rates of an audit are no means,
and gains are drawn from a posterior: their intervals are percentiles of the draws, without a correction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from olr_cli.seeding import key
from olr_cli.tables.table import Ends

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

CONFIDENCE = 0.95
RESAMPLES = 9999
_BATCH = 2_000_000
"""Number of resampled values that a bootstrap holds in memory at a time."""


def bootstrap_interval(strata: Sequence[Sequence[float]], *purpose: str) -> Ends | None:
    """Return a 95 % bootstrap interval (BCa, Efron 1987) for an average over benchmarks (R18).

    The average is the mean of the benchmarks' means. Each benchmark's problems are resampled among themselves.

    Args:
        strata: one list for each benchmark, with a value for each of its problems.
        purpose: words that name the average. They serve as the seed: the same words give the same draws.

    Returns:
        The lower and upper end. None if a benchmark has fewer than two values, or if every benchmark's values are all
        equal, because a bootstrap is then not possible.
    """
    # BCa leaves out each value in turn to estimate skewness. With one value, or without spread, it divides by zero.
    if any(len(values) < 2 for values in strata) or all(
        min(values) == max(values) for values in strata
    ):
        return None
    # scipy takes a second to import, and most commands compute no interval.
    import numpy as np
    from scipy.stats import bootstrap

    def mean_of_means(*values: Any, axis: int = -1) -> Any:
        return sum(np.mean(v, axis=axis) for v in values) / len(values)

    result = bootstrap(
        [np.asarray(values) for values in strata],
        mean_of_means,
        n_resamples=RESAMPLES,
        batch=max(1, _BATCH // sum(map(len, strata))),
        vectorized=True,
        confidence_level=CONFIDENCE,
        method="BCa",
        rng=np.random.default_rng(key("bootstrap", *purpose)),
    ).confidence_interval
    return float(result.low), float(result.high)


def percentile_interval(draws: NDArray[float64]) -> Ends:
    """Return the lower and upper end of the interval that contains the middle 95 % of the draws."""
    import numpy as np

    low, high = np.quantile(draws, (0.025, 0.975))
    return float(low), float(high)
