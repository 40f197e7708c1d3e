"""What a run's own rollouts say about the theory's quantities: log-ratio, rollout feasibility, Delta, Delta_p.

The theory's noisy label is one answer, its L_t the log-ratio of the true answer to it. On-policy noise (R3) draws a
label from the very rollouts of a visit, so that this visit's count of it is never 0 and too high by construction. Here
the first visit's label is followed through all visits: from the second on it is counted in rollouts that had no part in
its choice. Answers of different visits are the same where they are spelled alike.
"""

from __future__ import annotations

from itertools import pairwise

import polars as pl

from olr_cli.analysis.arms import Run
from olr_cli.data.prompts import SENTINEL
from olr_cli.runs.store import scan_rollouts

SMOOTHING = 0.5
"""Added to either count of a log-ratio, which is then finite and, of many rollouts, nearly unbiased (Haldane)."""

GAP_EDGES = (0.0, 0.25, 0.5, 0.75)
"""Between bins of Delta_p; an edge belongs to the bin below."""

_KEYS = ["prompt_id", "visit"]
_NOISY = pl.col("noise_type") != "clean"
_KNOWN = pl.col("true_answer_count").is_not_null()
_HAS_LABEL = pl.col("noisy_label").is_not_null() & (pl.col("noisy_label") != SENTINEL)


def has_noisy_labels(run: Run) -> bool:
    """Whether some visit has a noisy label that rollouts can meet, true answers are known, and rollouts are stored.

    Raises:
        UserError: the run has no complete step, or a shard is torn or foreign.
    """
    labelled = run.labels.filter(_NOISY, _KNOWN, _HAS_LABEL).select(_KEYS)
    return not labelled.join(_rolled_out(run), on=_KEYS, how="semi").head(1).collect().is_empty()


def followed_labels(run: Run, epochs: int) -> pl.DataFrame:
    """The visits of noisy prompts that had a noisy label some rollout could meet at their first visit.

    Args:
        run: the run.
        epochs: the first so many.

    Returns:
        A row a visit, by visit and prompt: prompt_id, visit, step, rollouts (K), true_count,
        own_count (rollouts with this visit's label; 0 where it had none) and label_count (with the first visit's
        label). No rows where the truth or the marks are unknown, or where noise is inactive.

    Raises:
        UserError: the run has no complete step, or a shard is torn or foreign.
    """
    visits = run.labels.filter(_NOISY, _KNOWN, pl.col("visit") <= epochs)
    first = visits.filter(pl.col("visit") == 1, _HAS_LABEL).select("prompt_id", label="noisy_label")
    counts = (
        _answers(run, epochs).join(first, on="prompt_id").filter(pl.col("answer_class") == pl.col("label"))
    )
    return (
        visits.join(first, on="prompt_id")
        .join(_rolled_out(run), on=_KEYS, how="semi")
        .join(counts.select(*_KEYS, label_count="count"), on=_KEYS, how="left")
        .select(
            *_KEYS,
            "step",
            "rollouts",
            true_count="true_answer_count",
            own_count="noisy_label_count",
            label_count=pl.col("label_count").fill_null(0),
        )
        .sort("visit", "prompt_id")
        .collect()
    )


def log_ratio(true: pl.Expr, noisy: pl.Expr) -> pl.Expr:
    """L from counts: log((N(y*) + s) / (N(noisy) + s)) with s = `SMOOTHING`."""
    return ((true + SMOOTHING) / (noisy + SMOOTHING)).log()


def log_ratios(followed: pl.DataFrame) -> pl.DataFrame:
    """L_t by visit, the mean over prompts.

    Args:
        followed: of `followed_labels`.

    Returns:
        Columns visit and log_ratio.
    """
    ratio = log_ratio(pl.col("true_count"), pl.col("label_count"))
    return followed.group_by("visit").agg(log_ratio=ratio.mean()).sort("visit")


def selections(run: Run, epochs: int) -> pl.DataFrame:
    """The visits of noisy prompts with Delta_p as the visits before and after show it.

    The visit's own rollouts decide its majority, so they can't also say how likely that was to be wrong.

    Args:
        run: the run.
        epochs: the first so many.

    Returns:
        A row a visit with both neighbours: rollouts (K), gap (Delta_p; from 2 K rollouts), is_right (the majority),
        is_selected. Errors as of `followed_labels`.
    """
    visits = run.labels.filter(_NOISY, _KNOWN, pl.col("visit") <= epochs).join(
        _rolled_out(run), on=_KEYS, how="semi"
    )
    wrong = _beside(_answers(run, epochs).filter(~pl.col("is_correct"))).group_by(*_KEYS, "answer_class")
    likeliest = wrong.agg(pl.col("count").sum()).group_by(_KEYS).agg(wrong=pl.col("count").max())
    around = (
        _beside(visits)
        .group_by(_KEYS)
        .agg(true=pl.col("true_answer_count").sum(), of=pl.col("rollouts").sum(), visits=pl.len())
        .filter(pl.col("visits") == 2)
    )
    gap = (pl.col("true") - pl.col("wrong").fill_null(0)) / pl.col("of")
    return (
        visits.join(around, on=_KEYS)
        .join(likeliest, on=_KEYS, how="left")
        .sort("visit", "prompt_id")
        .select("rollouts", "is_selected", gap=gap, is_right=pl.col("majority_is_correct"))
        .collect()
    )


def gap_bin() -> pl.Expr:
    """The number of each visit's bin of Delta_p, from 0."""
    return pl.sum_horizontal((pl.col("gap") > edge).cast(pl.Int32) for edge in GAP_EDGES)


def gap_titles() -> list[str]:
    """What the bins of Delta_p are called."""
    edges = [f"{edge:g}" for edge in GAP_EDGES]
    inner = [f"{low} to {high}" for low, high in pairwise(edges)]
    return [f"{edges[0]} or less", *inner, f"above {edges[-1]}"]


def _rolled_out(run: Run) -> pl.LazyFrame:
    """The visits whose rollouts are stored; without them a count of 0 would mean nothing."""
    return scan_rollouts(run.path).select(_KEYS).unique()


def _answers(run: Run, epochs: int) -> pl.LazyFrame:
    """How often each answer was given: prompt_id, visit, answer_class, is_correct, count."""
    rollouts = scan_rollouts(run.path).filter(
        pl.col("view") == "original", pl.col("answer_class").is_not_null(), pl.col("visit") <= epochs
    )
    return rollouts.group_by(*_KEYS, "answer_class", "is_correct").agg(count=pl.len().cast(pl.Int32))


def _beside(rows: pl.LazyFrame) -> pl.LazyFrame:
    """The rows of the visits before and after each visit, under its number."""
    return pl.concat([rows.with_columns(pl.col("visit") + by) for by in (-1, 1)])
