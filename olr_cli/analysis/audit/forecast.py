"""How many labels are right before and after the changes, as far as an audit can know."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from olr_cli.analysis.audit.confidence import Calibrations
from olr_cli.analysis.audit.estimator import Floats, floats

_TAILS = (0.025, 0.975)
_PROMPTS_AT_ONCE = 8192


@dataclass(frozen=True)
class Estimate:
    """A share of the labels: its expectation, and a 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Forecast:
    """Of the prompts with a label of which something can be said.

    Attributes:
        ratio: share of wrong labels as given.
        before: share of right labels as given.
        after: with the changes made.
        gain: their difference.
    """

    ratio: Estimate
    before: Estimate
    after: Estimate
    gain: Estimate


def forecast(table: pl.DataFrame, maps: Calibrations) -> Forecast | None:
    """What the verdicts and changes (`verdicts`) add up to under every map, and chance in which labels are wrong.

    Returns:
        None where no label can be judged.
    """
    rows = table.filter(pl.col("log_odds").is_not_null() & (pl.col("status") != "missing"))
    if rows.is_empty():
        return None
    rows = rows.with_columns(
        pl.col("proposal_log_odds").fill_null(0),
        known=pl.when("is_trusted").then("confidence"),
        known_proposal=pl.when(pl.col("is_trusted") & (pl.col("proposal_confidence") == 1)).then(1.0),
    )
    size, variance = len(rows), np.zeros(3)
    wrong, right = np.zeros(len(maps.wrong.weights)), np.zeros((1, 1))
    for part in rows.iter_slices(_PROMPTS_AT_ONCE):
        is_wrong = _chances(maps.wrong.chances(floats(part["log_odds"])), floats(part["known"]))
        is_changed = (part["change"] == "changed").to_numpy()
        replaced = part.filter(pl.Series(is_changed))
        proposal_odds = floats(replaced["proposal_log_odds"])
        is_right = _chances(maps.proposal.chances(proposal_odds), floats(replaced["known_proposal"]))
        wrong = wrong + is_wrong.sum(axis=1)
        kept = (1 - is_wrong[:, ~is_changed]).sum(axis=1)
        right = right + kept[:, None] + is_wrong[:, is_changed] @ is_right.T
        doubt = maps.wrong.weights @ is_wrong
        mended, lost = doubt[is_changed] * (maps.proposal.weights @ is_right), 1 - doubt[is_changed]
        kept_variance = (doubt * (1 - doubt))[~is_changed].sum()
        variance += [
            (doubt * (1 - doubt)).sum(),
            kept_variance + (mended * (1 - mended)).sum(),
            (mended + lost - (mended - lost) ** 2).sum(),
        ]
    weights = maps.joint_weights
    ratio, after = np.broadcast_to((wrong / size)[:, None], weights.shape), right / size
    shares: list[Floats] = [ratio, after, after + ratio - 1]
    of_wrong, of_right, gain = (
        _estimate(share, weights, float(of_chance) / size**2)
        for share, of_chance in zip(shares, variance, strict=True)
    )
    before = Estimate(1 - of_wrong.mean, 1 - of_wrong.high, 1 - of_wrong.low)
    return Forecast(of_wrong, before, of_right, gain)


def _chances(chances: Floats, known: Floats) -> Floats:
    """(G, N), with what is known (N,) in place of chances."""
    return np.where(np.isnan(known), chances, known)


def _estimate(values: Floats, weights: Floats, variance: float) -> Estimate:
    """Of a mixture of normals with one variance, around weighted values."""
    from scipy.special import ndtri

    nodes = ndtri((np.arange(9) + 0.5) / 9) * np.sqrt(max(variance, 0.0))
    spread = (values.ravel()[:, None] + nodes).ravel()
    order = np.argsort(spread)
    reached = np.cumsum(np.repeat(weights.ravel() / len(nodes), len(nodes))[order])
    low, high = spread[order[np.minimum(np.searchsorted(reached, _TAILS), len(order) - 1)]].tolist()
    mean = float((values * weights).sum())
    bottom, top = (-1.0, 1.0) if (values < 0).any() else (0.0, 1.0)
    return Estimate(mean, min(max(low, bottom), mean), max(min(high, top), mean))
