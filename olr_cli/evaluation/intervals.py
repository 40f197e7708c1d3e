"""The 95 % intervals that come from draws, by two methods.

Means of scores have the bootstrap that corrects bias and skewness (BCa); rates of an audit, which are no means, and
gains, whose draws are of a posterior, have the percentiles of their draws, which correct neither.
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
"""Numbers of a bootstrap that are in memory at a time."""


def bootstrap_interval(strata: Sequence[Sequence[float]], *purpose: str) -> Ends | None:
    """The 95 % bootstrap interval (BCa, Efron 1987) of the mean over strata of their means.

    Args:
        strata: the values of each benchmark's problems, resampled within the benchmark.
        purpose: names what is estimated, so that it is always resampled alike (R18).

    Returns:
        None where a bootstrap can't tell: a stratum of one value, or no spread in any.
    """
    if any(len(values) < 2 for values in strata) or all(
        min(values) == max(values) for values in strata
    ):
        return None
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
    """Return the middle 95 % of the draws of a number."""
    import numpy as np

    low, high = np.quantile(draws, (0.025, 0.975))
    return float(low), float(high)
