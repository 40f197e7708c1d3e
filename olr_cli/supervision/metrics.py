"""The metrics: each is one expression over the rows of the labels or rollouts table.

The training loop applies them to a step's rows, the figures to an epoch's, so that a name means the same in
metrics.jsonl, in figures and in tables. A mean over nobody is no value, never 0: neither an empty group nor an
unknown true answer counts. *Noisy* prompts are those whose label is known to be noise; prompts of unknown
quality are neither clean nor noisy. *Verified* prompts, whose label somebody has verified, are counted apart: a method
changes only the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import assert_never

import polars as pl
import pyarrow as pa

from olr_cli.recipe.methods import Criterion

_VERIFIED = pl.col("label_source") == "verified"
_OTHERS = ~_VERIFIED
_CLEAN = _OTHERS & (pl.col("noise_type") == "clean")
_NOISY = _OTHERS & (pl.col("noise_type") != "clean")
_SELECTED = pl.col("is_selected")
_UNSELECTED = _OTHERS & ~_SELECTED
# Cast: in a frame that is made of rows, a column of nulls alone is not Boolean.
_RIGHT = pl.col("majority_is_correct").cast(pl.Boolean)
_KNOWN = pl.col("majority_is_correct").is_not_null()
_EQUAL = pl.col("majority_is_noisy_label").cast(pl.Boolean)


def _mean(value: str | pl.Expr, among: pl.Expr | None = None) -> pl.Expr:
    values = pl.col(value) if isinstance(value, str) else value
    # A value or null, not a filter: within groups polars filters each of them apart.
    return (values if among is None else pl.when(among).then(values)).mean()


MAJORITY_DIFFERS = pl.when(pl.col("majority_count") > 0).then(
    pl.col("given_label_count") < pl.col("majority_count")
)
"""Whether a visit's majority answer differs from the given label; null without a majority or a label.

The majority is the one class with the most rollouts (R9): a label that as many match is the majority.
"""

LABEL_METRICS: Mapping[str, pl.Expr] = {
    "majority/accuracy": _mean(_RIGHT, _OTHERS),
    "majority/accuracy_verified": _mean(_RIGHT, _VERIFIED),
    "majority/differs_from_label": _mean(MAJORITY_DIFFERS, _OTHERS),
    "majority/accuracy_clean": _mean(_RIGHT, _CLEAN),
    "majority/accuracy_noisy": _mean(_RIGHT, _NOISY),
    "majority/accuracy_selected": _mean(_RIGHT, _SELECTED),
    "majority/accuracy_unselected": _mean(_RIGHT, _UNSELECTED),
    "label/selection_ratio": _mean(_SELECTED, _OTHERS),
    "label/selection_ratio_clean": _mean(_SELECTED, _CLEAN),
    "label/selection_ratio_noisy": _mean(_SELECTED, _NOISY),
    "label/selected_accuracy": _mean("effective_label_is_correct", _SELECTED),
    "label/effective_noise": _mean(
        pl.col("effective_label_is_correct").cast(pl.Boolean).not_(), _OTHERS
    ),
    "label/initial_noise": _mean(pl.col("noise_type") != "clean", _OTHERS),
    "label/noise_realised": _mean(pl.col("noisy_label_count") > 0, _NOISY),
    "slope/clean": _mean("slope", _CLEAN),
    "slope/noisy": _mean("slope", _NOISY),
    "slope/selected": _mean("slope", _SELECTED),
    "slope/unselected": _mean("slope", _UNSELECTED),
}
"""Over the labels table (R9 to R15): shares and means over prompts."""

COMPOSITION: Mapping[str, pl.Expr] = {
    "composition/clean_right": _mean(_RIGHT, _CLEAN & _KNOWN),
    "composition/clean_wrong": _mean(~_RIGHT, _CLEAN & _KNOWN),
    "composition/noisy_right": _mean(_RIGHT, _NOISY & _KNOWN),
    "composition/noisy_equal": _mean(~_RIGHT & _EQUAL, _NOISY & _KNOWN),
    "composition/noisy_neither": _mean(~_RIGHT & ~_EQUAL, _NOISY & _KNOWN),
}
"""Kinds of majority answers: the shares among clean prompts add up to 1, those among noisy prompts too.

A visit without majority is wrong on a clean prompt, and neither right nor the noisy label on a noisy one.
"""

_ROLLOUT_METRICS: Mapping[str, pl.Expr] = {
    "rollout/reward": _mean("reward"),
    "rollout/length": _mean("tokens"),
    "rollout/truncated": _mean("truncated"),
    "rollout/missing_answers": _mean(pl.col("answer").is_null()),
}

_IS_VERDICT = pl.col("reward").is_in([0.0, 1.0])  # not the policy's own certainty
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
"""How often right and wrong answers are rewarded, against the truth and against a verifier without errors (R25)."""


def selected_under(
    criteria: Collection[Criterion],
    slope_threshold: Decimal | float | pl.Expr,
    warmup_epochs: int,
) -> pl.Expr:
    """Whether a visit's majority would replace the label under these settings (R14), from its columns.

    The stored slope is the correctly rounded double of an exact fraction, and so is the threshold's: the two
    doubles are ordered as the exact numbers are (R12). A verified label is never replaced.

    Args:
        criteria: those that count.
        slope_threshold: delta; or whether the slope is above it, for whoever has the exact fraction.
        warmup_epochs: T.
    """
    is_steep = (
        slope_threshold
        if isinstance(slope_threshold, pl.Expr)
        else pl.col("slope") > float(slope_threshold)
    )
    selected = _OTHERS & (pl.col("visit") > warmup_epochs) & (pl.col("majority_count") > 0)
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
    """Share of right majority answers among the visits that `selected` picks."""
    return _mean(_RIGHT, selected)


ABLATION: Mapping[str, tuple[Criterion, ...]] = {
    "ablation/both": ("slope", "consistency"),
    "ablation/slope": ("slope",),
    "ablation/consistency": ("consistency",),
}


def all_metrics(slope_threshold: Decimal | float, warmup_epochs: int) -> dict[str, pl.Expr]:
    """`LABEL_METRICS`, `COMPOSITION`, and the accuracy of the majorities that each of `ABLATION` would select."""
    ablation = {
        name: accuracy_among(selected_under(criteria, slope_threshold, warmup_epochs))
        for name, criteria in ABLATION.items()
    }
    return {**LABEL_METRICS, **COMPOSITION, **ablation}


def label_metrics(labels: pl.DataFrame) -> dict[str, float]:
    """`LABEL_METRICS` of some rows of the labels table, for example one step's, without those that have no value."""
    return _known(labels, LABEL_METRICS)


def rollout_metrics(labels: pl.DataFrame, rollouts: pl.DataFrame) -> dict[str, float]:
    """The ``rollout/`` metrics of the same visits' rows in both tables, without those that have no value.

    Not in here: ``rollout/verification_timeouts`` and ``rollout/undecided``, which are in no row (`step_metrics`).
    """
    groups = _known(labels, {"rollout/zero_variance_groups": _mean("has_zero_variance")})
    return _known(rollouts, {**_ROLLOUT_METRICS, **_REWARD_METRICS}) | groups


def step_metrics(
    labels: pa.Table, rollouts: pa.Table, timeouts: int, undecided: int = 0
) -> dict[str, float]:
    """Return the metrics of one step, of its rows, and of what is in no row: `Decided.timeouts` and `undecided`."""
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
    """The metrics of every epoch: one row per visit, ascending, in each value of the columns `within`.

    Returns:
        Columns `within`, ``visit``, ``prompts`` (that have made the visit) and one per metric, null without a value.
    """
    keys = (*within, "visit")
    named = [expression.alias(name) for name, expression in metrics.items()]
    return labels.group_by(keys).agg(pl.len().alias("prompts"), *named).sort(keys).collect()


def _known(rows: pl.DataFrame, metrics: Mapping[str, pl.Expr]) -> dict[str, float]:
    values = rows.select(
        expression.alias(name) for name, expression in metrics.items()
    ).row(0, named=True)
    return {name: float(value) for name, value in values.items() if value is not None}
