"""Metrics, each defined once as an expression over the rows of the labels or rollouts table.

The training loop applies them to the rows of a step, the figures to those of an epoch. A name therefore means the same
in metrics.jsonl, in figures and in tables.

A mean over nobody is no value, never 0: empty groups and unknown true answers do not count. *Noisy* prompts are those
whose label is known to be noise; prompts of unknown quality are neither clean nor noisy. *Verified* prompts, whose
label a person has checked, are counted apart, because a method changes only the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import assert_never

import polars as pl
import pyarrow as pa

from olr_cli.recipe.methods import Criterion

_VERIFIED = pl.col("label_source") == "verified"
_UNVERIFIED = ~_VERIFIED
_CLEAN = _UNVERIFIED & (pl.col("noise_type") == "clean")
_NOISY = _UNVERIFIED & (pl.col("noise_type") != "clean")
_SELECTED = pl.col("is_selected")
_UNSELECTED = _UNVERIFIED & ~_SELECTED
# Cast, because polars infers the type of a frame made from rows: a column with nothing but nulls is not Boolean.
_RIGHT = pl.col("majority_is_correct").cast(pl.Boolean)
_HAS_TRUTH = pl.col("majority_is_correct").is_not_null()
_IS_NOISY_LABEL = pl.col("majority_is_noisy_label").cast(pl.Boolean)


def _mean(value: str | pl.Expr, among: pl.Expr | None = None) -> pl.Expr:
    """Return an expression for the mean of a column or expression over the rows where `among` is true.

    By default, it is the mean over all rows.
    """
    values = pl.col(value) if isinstance(value, str) else value
    # Null out the other values instead of filtering: in a group-by, polars runs a filter once per group.
    return (values if among is None else pl.when(among).then(values)).mean()


MAJORITY_DIFFERS = pl.when(pl.col("majority_count") > 0).then(
    pl.col("given_label_count") < pl.col("majority_count")
)
"""Whether a visit's majority answer differs from the given label; null without a majority or a label.

The majority is the one class with the most rollouts (R9), so a label that as many rollouts match is the majority.
"""

LABEL_METRICS: Mapping[str, pl.Expr] = {
    "majority/accuracy": _mean(_RIGHT, _UNVERIFIED),
    "majority/accuracy_verified": _mean(_RIGHT, _VERIFIED),
    "majority/differs_from_label": _mean(MAJORITY_DIFFERS, _UNVERIFIED),
    "majority/accuracy_clean": _mean(_RIGHT, _CLEAN),
    "majority/accuracy_noisy": _mean(_RIGHT, _NOISY),
    "majority/accuracy_selected": _mean(_RIGHT, _SELECTED),
    "majority/accuracy_unselected": _mean(_RIGHT, _UNSELECTED),
    "label/selection_ratio": _mean(_SELECTED, _UNVERIFIED),
    "label/selection_ratio_clean": _mean(_SELECTED, _CLEAN),
    "label/selection_ratio_noisy": _mean(_SELECTED, _NOISY),
    "label/selected_accuracy": _mean("effective_label_is_correct", _SELECTED),
    "label/effective_noise": _mean(
        pl.col("effective_label_is_correct").cast(pl.Boolean).not_(), _UNVERIFIED
    ),
    "label/initial_noise": _mean(pl.col("noise_type") != "clean", _UNVERIFIED),
    "label/noise_realised": _mean(pl.col("noisy_label_count") > 0, _NOISY),
    "slope/clean": _mean("slope", _CLEAN),
    "slope/noisy": _mean("slope", _NOISY),
    "slope/selected": _mean("slope", _SELECTED),
    "slope/unselected": _mean("slope", _UNSELECTED),
}
"""Metrics over the labels table (R9 to R15): shares and means over prompts."""

COMPOSITION: Mapping[str, pl.Expr] = {
    "composition/clean_right": _mean(_RIGHT, _CLEAN & _HAS_TRUTH),
    "composition/clean_wrong": _mean(~_RIGHT, _CLEAN & _HAS_TRUTH),
    "composition/noisy_right": _mean(_RIGHT, _NOISY & _HAS_TRUTH),
    "composition/noisy_equal": _mean(~_RIGHT & _IS_NOISY_LABEL, _NOISY & _HAS_TRUTH),
    "composition/noisy_neither": _mean(~_RIGHT & ~_IS_NOISY_LABEL, _NOISY & _HAS_TRUTH),
}
"""Shares of the majority answers by what they are, among clean prompts and among noisy ones; each group adds up to 1.

A visit without a majority counts as wrong on a clean prompt, and as neither right nor the noisy label on a noisy one.
"""

_ROLLOUT_METRICS: Mapping[str, pl.Expr] = {
    "rollout/reward": _mean("reward"),
    "rollout/length": _mean("tokens"),
    "rollout/truncated": _mean("truncated"),
    "rollout/missing_answers": _mean(pl.col("answer").is_null()),
}

_IS_VERDICT = pl.col("reward").is_in(
    [0.0, 1.0]
)  # leave out intrinsic rewards, which are not verdicts
_MATCHES = pl.col("oracle_reward").cast(pl.Float64)

_TPR = _mean("reward", _IS_VERDICT & pl.col("is_correct"))
_FPR = _mean("reward", _IS_VERDICT & ~pl.col("is_correct").cast(pl.Boolean))

_REWARD_METRICS: Mapping[str, pl.Expr] = {
    "reward/tpr": _TPR,
    "reward/fpr": _FPR,
    "verifier/tpr": _mean("reward", _MATCHES == 1),
    "verifier/fpr": _mean("reward", _MATCHES == 0),
    "reward/youden": _TPR - _FPR,
}
"""How often right and wrong answers are rewarded: by the true answer, and by a verifier without errors (R25)."""


def selected_under(
    criteria: Collection[Criterion],
    slope_threshold: Decimal | float | pl.Expr,
    warmup_epochs: int,
) -> pl.Expr:
    """Return an expression for whether the majority replaces the label of a visit under these settings (R14).

    The expression is for rows of the labels table. It is false on verified prompts and without a majority.

    Args:
        criteria: the criteria to apply.
        slope_threshold: a number delta, which the column slope must exceed (compared as doubles, R12). Or a Boolean
            expression for whether the exact slope exceeds delta.
        warmup_epochs: T; the first T visits of a prompt keep their label.
    """
    is_steep = (
        slope_threshold
        if isinstance(slope_threshold, pl.Expr)
        else pl.col("slope") > float(slope_threshold)
    )
    selected = (
        _UNVERIFIED & (pl.col("visit") > warmup_epochs) & (pl.col("majority_count") > 0)
    )
    for criterion in criteria:
        match criterion:
            case "slope":
                selected &= is_steep
            case "consistency":
                selected &= pl.col("is_consistent")
            case _:
                assert_never(criterion)
    return selected


def accuracy_among(selected: pl.Expr) -> pl.Expr:
    """Return an expression for the share of right majority answers among the visits for which `selected` is true.

    Visits whose true answer is unknown are left out. If no visit remains, the value is null.
    """
    return _mean(_RIGHT, selected)


ABLATION: Mapping[str, tuple[Criterion, ...]] = {
    "ablation/both": ("slope", "consistency"),
    "ablation/slope": ("slope",),
    "ablation/consistency": ("consistency",),
}
"""Metric -> the criteria under which a majority would have replaced the label."""


def all_metrics(slope_threshold: Decimal | float, warmup_epochs: int) -> dict[str, pl.Expr]:
    """Return metric -> expression for all metrics over the labels table (`LABEL_METRICS`, `COMPOSITION`, `ABLATION`).

    Each ablation metric is the accuracy of the majorities that would replace a label under one or both criteria of
    label refinement. Only these metrics depend on the arguments, the slope threshold (delta) and the warm-up epochs
    (T).
    """
    ablation = {
        name: accuracy_among(selected_under(criteria, slope_threshold, warmup_epochs))
        for name, criteria in ABLATION.items()
    }
    return {**LABEL_METRICS, **COMPOSITION, **ablation}


def label_metrics(labels: pl.DataFrame) -> dict[str, float]:
    """Return metric -> value for the metrics of majorities and labels (`LABEL_METRICS`).

    `labels` has rows of the labels table. Metrics without a value are left out.
    """
    return _values(labels, LABEL_METRICS)


def rollout_metrics(labels: pl.DataFrame, rollouts: pl.DataFrame) -> dict[str, float]:
    """Return metric -> value for the ``rollout/``, ``reward/`` and ``verifier/`` metrics.

    Both tables must have the rows of the same visits. Metrics without a value are left out. Three metrics come
    from `step_metrics` only: ``rollout/groups``, ``rollout/verification_timeouts`` and ``rollout/undecided``.
    """
    groups = _values(labels, {"rollout/zero_variance_groups": _mean("has_zero_variance")})
    return _values(rollouts, {**_ROLLOUT_METRICS, **_REWARD_METRICS}) | groups


def step_metrics(
    labels: pa.Table, rollouts: pa.Table, timeouts: int, undecided: int
) -> dict[str, float]:
    """Return metric -> value for one step; metrics without a value are left out.

    Args:
        labels: the step's rows of the labels table.
        rollouts: the step's rows of the rollouts table.
        timeouts: how often verification gave up on parsing an answer, or on comparing one with a label.
        undecided: number of rollouts whose answer is proved neither right nor wrong under the effective label.
    """
    label_rows, rollout_rows = (
        pl.DataFrame(pl.from_arrow(table)) for table in (labels, rollouts)
    )
    return {
        **label_metrics(label_rows),
        **rollout_metrics(label_rows, rollout_rows),
        "rollout/groups": labels.num_rows,
        "rollout/verification_timeouts": timeouts,
        "rollout/undecided": undecided / max(1, rollouts.num_rows),
    }


def by_visit(
    labels: pl.LazyFrame, metrics: Mapping[str, pl.Expr] = LABEL_METRICS, *within: str
) -> pl.DataFrame:
    """Compute metrics for each visit number (epoch), in ascending order.

    Args:
        labels: rows of the labels table.
        metrics: name -> expression over these rows.
        within: names of columns, such as ``run``. Metrics are computed separately for each combination of their values.

    Returns:
        One row per combination and visit number. The columns are `within`, ``visit``, ``prompts`` (how many prompts
        made the visit) and one per metric, null without a value.
    """
    keys = (*within, "visit")
    named = [expression.alias(name) for name, expression in metrics.items()]
    return labels.group_by(keys).agg(pl.len().alias("prompts"), *named).sort(keys).collect()


def _values(rows: pl.DataFrame, metrics: Mapping[str, pl.Expr]) -> dict[str, float]:
    """Return the value of each metric over all rows, without the metrics that have no value."""
    values = rows.select(
        expression.alias(name) for name, expression in metrics.items()
    ).row(0, named=True)
    return {name: float(value) for name, value in values.items() if value is not None}
