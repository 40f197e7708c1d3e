"""What the theory speaks of, counted from one run: the values of each block of ``--table theory``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import polars as pl

from olr_cli.analysis.arms import Run
from olr_cli.analysis.theory import formulas, histories
from olr_cli.recipe.schema import OlrMethod
from olr_cli.supervision.metrics import LABEL_METRICS

Values = Mapping[str, float | None]
"""Column -> value; None, or no entry, where there is none."""

_NOISY = pl.col("noise_type") != "clean"
_CHANGED = _NOISY & pl.col("is_selected")
_REFINED: Mapping[str, pl.Expr] = {
    "replaced": pl.col("is_selected").filter(_NOISY).mean(),
    "right": pl.col("effective_label_is_correct").cast(pl.Boolean).filter(_CHANGED).mean(),
    "spoilt": pl.col("effective_label_is_correct").cast(pl.Boolean).not_().filter(~_NOISY).mean(),
}
"""Delta; of the replaced labels those that became right; of the clean prompts those with a wrong label."""


class Measured:
    """What is counted of one run, each only once and when it is asked for.

    Attributes:
        run: the run.
        epochs: the last one that is looked at.
    """

    def __init__(self, run: Run, epochs: int | None = None) -> None:
        """Look at a run.

        Args:
            run: the run.
            epochs: the first so many; by default all complete ones.
        """
        self.run = run
        self.epochs = run.epochs if epochs is None else epochs

    @cached_property
    def followed(self) -> pl.DataFrame:
        """As `histories.followed_labels`."""
        return histories.followed_labels(self.run, self.epochs)

    @cached_property
    def log_ratios(self) -> dict[int, float]:
        """Epoch -> L_t."""
        return dict(histories.log_ratios(self.followed).iter_rows())

    @cached_property
    def selections(self) -> pl.DataFrame:
        """As `histories.selections`, with the bin of Delta_p and exp(-K Delta_p^2)."""
        rows = histories.selections(self.run, self.epochs)
        bound = formulas.selection_error_printed(rows["rollouts"].to_numpy(), rows["gap"].to_numpy())
        return rows.with_columns(histories.gap_bin().alias("bin"), pl.Series("bound", bound))

    @cached_property
    def by_epoch(self) -> list[dict[str, Any]]:
        """`LABEL_METRICS` by epoch, and the shares that OLR's theorem is about."""
        return self.run.by_epoch({**LABEL_METRICS, **_REFINED}).head(self.epochs).to_dicts()

    @cached_property
    def refined(self) -> dict[str, float | None]:
        """`_REFINED` over all visits after warm-up; empty without OLR, or before warm-up has ended."""
        method = self.run.recipe.method
        if not isinstance(method, OlrMethod) or self.epochs <= method.warmup_epochs:
            return {}
        visit = pl.col("visit")
        rows = self.run.labels.filter(visit > method.warmup_epochs, visit <= self.epochs)
        named = [expression.alias(name) for name, expression in _REFINED.items()]
        return rows.select(named).collect().row(0, named=True)


def start(measured: Measured) -> Values:
    """Assumption (i): shares of the true answer and of the first label in the first two visits."""
    rows = measured.followed
    at_1, at_2 = (rows.filter(pl.col("visit") == visit) for visit in (1, 2))
    true, label = (pl.col(name) / pl.col("rollouts") for name in ("true_count", "label_count"))
    above = pl.col("true_count") > pl.col("label_count")
    return {
        "prompts": float(at_1.height) or None,
        "true_step_1": _mean(at_1.filter(pl.col("step") == 1), true),
        "true_1": _mean(at_1, true),
        "label_1": _mean(at_1, label),
        "true_2": _mean(at_2, true),
        "label_2": _mean(at_2, label),
        "holds": _mean(at_2, above),
    }


def ratio_by_epoch(measured: Measured) -> Values:
    """L_t by epoch."""
    return {f"epoch_{epoch}": value for epoch, value in measured.log_ratios.items()}


def feasibility(measured: Measured) -> Values:
    """Noisy labels that are rolled out, and how many the footnote's formula expects."""
    realised = [row["label/noise_realised"] for row in measured.by_epoch]
    second = measured.followed.filter(pl.col("visit") == 2)
    found = {
        "realised_first": realised[0],
        "realised_last": realised[-1],
        "again": _mean(second, pl.col("label_count") > 0),
    }
    p = _mean(second, pl.col("label_count") / pl.col("rollouts"))
    if p is None:
        return found
    k = measured.run.recipe.train.rollouts_per_prompt
    expected = {"expected": 1, "all": second.height}
    return found | {name: float(formulas.all_realised(p, k, n)) for name, n in expected.items()}


def refinement(measured: Measured) -> Values:
    """Delta, and the effective noise ratio that it predicts; nothing where no label could be replaced."""
    overall = measured.refined
    if overall.get("replaced") is None:
        return {}
    last = measured.by_epoch[-1]
    gaps = effective_noise(measured)["counted"] - effective_noise(measured)["predicted"]
    return {
        **overall,
        "replaced_last": last["replaced"],
        "initial": last["label/initial_noise"],
        "predicted": effective_noise(measured)["predicted"][-1],
        "counted": last["label/effective_noise"],
        "gap": _number(gaps.mean()),
    }


def effective_noise(measured: Measured) -> pl.DataFrame:
    """The effective noise ratio by epoch after warm-up: rho (1 - Delta) and counted.

    Returns:
        Columns visit, predicted, counted; no rows without OLR.
    """
    method = measured.run.recipe.method
    warmup = method.warmup_epochs if isinstance(method, OlrMethod) else measured.epochs
    rows = [
        {
            "visit": row["visit"],
            "predicted": float(formulas.effective_ratio(row["label/initial_noise"], row["replaced"])),
            "counted": row["label/effective_noise"],
        }
        for row in measured.by_epoch
        if row["visit"] > warmup and row["replaced"] is not None
    ]
    return pl.DataFrame(rows, {"visit": pl.Int64, "predicted": pl.Float64, "counted": pl.Float64})


def errors(measured: Measured) -> Values:
    """Share of wrong majorities by bin of Delta_p."""
    return _by_bin(measured, "error", ~pl.col("is_right"))


def bounds(measured: Measured) -> Values:
    """Mean of exp(-K Delta_p^2) by bin of Delta_p; of visits without a gap above 0 it promises nothing."""
    return _by_bin(measured, "bound", pl.col("bound").filter(pl.col("gap") > 0))


def _by_bin(measured: Measured, name: str, value: pl.Expr) -> Values:
    means = measured.selections.group_by("bin").agg(value.mean().alias("value")).sort("bin")
    return {f"{name}_{number}": _number(mean) for number, mean in means.iter_rows()}


def rise(measured: Measured, visit: int) -> float | None:
    """How far L has risen from the second visit to a later one."""
    found = measured.log_ratios
    return found[visit] - found[2] if visit > 2 and {2, visit} <= found.keys() else None


def majority_change(measured: Measured) -> float | None:
    """How far majority accuracy on noisy prompts has risen from the first epoch to the last."""
    first, last = (measured.by_epoch[at]["majority/accuracy_noisy"] for at in (0, -1))
    return None if first is None or last is None else float(last - first)


def held_out_change(measured: Measured) -> float | None:
    """How far held-out accuracy has risen from before training to its last measurement."""
    before = measured.run.logged_before_training("eval/avg")
    after = measured.run.last_logged("eval/avg")
    return None if before is None or after is None else after - before


def _mean(rows: pl.DataFrame, value: pl.Expr) -> float | None:
    return _number(rows.select(value.mean()).item()) if rows.height else None


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
