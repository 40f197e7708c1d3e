"""What runs show of the theory's quantities, as rows of the frame: log-ratio, rollout feasibility, Delta, Delta_p.

The theory's noisy label is one answer, its L_t the log-ratio of the true answer to it. On-policy noise (R3) draws a
label from the very rollouts of a visit, so that this visit's count of it is never 0 and too high by construction. Here
the first visit's label is followed through all visits: from the second on it is counted in rollouts that had no part in
its choice. Answers of different visits are the same where they are spelled alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import polars as pl

from benchmarks.theory import formulas
from olr_cli.analysis.arms import Arm
from olr_cli.analysis.frame import frame
from olr_cli.answers.graded import SENTINEL
from olr_cli.recipe.methods import OlrMethod
from olr_cli.runs.store import scan_rollouts
from olr_cli.runs.stored import Run
from olr_cli.supervision.metrics import LABEL_METRICS, by_visit

SMOOTHING = 0.5
"""s in L_t, the mean over prompts of log((N(y*) + s) / (N(label) + s)).

It makes a log-ratio finite and, of many rollouts, nearly unbiased (Haldane).
"""

GAP_EDGES = (0.0, 0.25, 0.5, 0.75)
"""Between bins of Delta_p; an edge belongs to the bin below."""

_KEYS = ["prompt_id", "visit"]
_NOISY = pl.col("noise_type") != "clean"
_KNOWN = pl.col("true_answer_count").is_not_null()
_HAS_LABEL = pl.col("noisy_label").is_not_null() & (pl.col("noisy_label") != SENTINEL)
_IS_RIGHT = pl.col("effective_label_is_correct").cast(pl.Boolean)
_REFINED = {
    "replaced": pl.col("is_selected").filter(_NOISY).mean(),
    "right": _IS_RIGHT.filter(_NOISY & pl.col("is_selected")).mean(),
    "spoilt": _IS_RIGHT.not_().filter(~_NOISY).mean(),
}
"""Delta; of the replaced labels those that became right; of the clean prompts those with a wrong label."""

_TRUE, _LABEL = (pl.col(f"{name}_count") for name in ("true", "label"))
_K = pl.col("rollouts")
_FIRST, _SECOND = (pl.col("visit") == number for number in (1, 2))
_FOLLOWED = {
    "start/prompts": pl.when(_FIRST.any()).then(_FIRST.sum()),
    "start/true_step_1": (_TRUE / _K).filter(_FIRST & (pl.col("step") == 1)).mean(),
    "start/true_1": (_TRUE / _K).filter(_FIRST).mean(),
    "start/label_1": (_LABEL / _K).filter(_FIRST).mean(),
    "start/true_2": (_TRUE / _K).filter(_SECOND).mean(),
    "start/label_2": (_LABEL / _K).filter(_SECOND).mean(),
    "start/holds": (_TRUE > _LABEL).filter(_SECOND).mean(),
    "feasibility/again": (_LABEL > 0).filter(_SECOND).mean(),
}
"""Over `followed_labels`: assumption (i), and labels of the first visit that are rolled out again."""

Values: TypeAlias = Iterator[tuple[str, int | None, float | None]]
"""Metric, `at` and value of one run."""


def measure(arms: Sequence[Arm]) -> pl.DataFrame:
    """Everything that the table and the figure show of some arms, for the epochs that all runs of an arm have.

    Returns:
        A frame. `at` is the epoch of ``log_ratio`` and ``effective_noise_*``, the bin of Delta_p of ``selection_error``
        and ``selection_bound``, else null.
    """
    return frame(
        (arm.name, run.seed, *value)
        for arm in arms
        for run in arm.runs
        for value in measure_run(run, arm.epochs)
    )


def measure_run(run: Run, epochs: int) -> Values:
    """The values of one run's first `epochs`."""
    followed = followed_labels(run, epochs)
    metrics = {**LABEL_METRICS, "replaced": _REFINED["replaced"]}
    by_epoch = by_visit(run.labels, metrics).head(epochs).to_dicts()
    first, last = by_epoch[0], by_epoch[-1]
    log_ratio = ((_TRUE + SMOOTHING) / (_LABEL + SMOOTHING)).log().mean()
    log_ratios = dict(followed.group_by("visit").agg(log_ratio).sort("visit").iter_rows())
    for epoch, value in log_ratios.items():
        yield "log_ratio", epoch, value
    yield from _refinement(run, by_epoch, epochs)
    yield from _selections(run, epochs)
    counted = followed.select(
        expression.alias(name) for name, expression in _FOLLOWED.items()
    )
    for name, value in counted.row(0, named=True).items():
        yield name, None, value
    yield "feasibility/realised_first", None, first["label/noise_realised"]
    yield "feasibility/realised_last", None, last["label/noise_realised"]
    p, prompts = counted["start/label_2"].item(), followed.filter(_SECOND).height
    if p is not None:
        k = run.recipe.train.rollouts_per_prompt
        yield "feasibility/expected", None, float(formulas.all_realised(p, k, 1))
        yield "feasibility/all", None, float(formulas.all_realised(p, k, prompts))
    # Of L not from the first epoch on, where it is too low.
    for name, later in (("early", 3), ("late", max(log_ratios, default=0))):
        if later > 2 and {2, later} <= log_ratios.keys():
            yield f"change/{name}", None, log_ratios[later] - log_ratios[2]
    yield (
        "change/majority",
        None,
        _less(*(end["majority/accuracy_noisy"] for end in (last, first))),
    )
    held_out = run.last_logged("eval/avg"), run.logged_before_training("eval/avg")
    yield "change/held_out", None, _less(*held_out)


def _less(value: float | None, other: float | None) -> float | None:
    return None if value is None or other is None else value - other


def _refinement(run: Run, by_epoch: Sequence[dict[str, Any]], epochs: int) -> Values:
    """Delta, and the effective noise that it predicts, after warm-up; nothing where no label could be replaced."""
    method = run.recipe.method
    if not isinstance(method, OlrMethod) or epochs <= method.warmup_epochs:
        return
    after = pl.col("visit").is_between(method.warmup_epochs + 1, epochs)
    overall = run.labels.filter(after).select(**_REFINED).collect().row(0, named=True)
    if overall["replaced"] is None:
        return
    for name, value in overall.items():
        yield f"refinement/{name}", None, value
    gaps = []
    for row in by_epoch:
        if row["visit"] > method.warmup_epochs and row["replaced"] is not None:
            predicted = float(
                formulas.effective_ratio(row["label/initial_noise"], row["replaced"])
            )
            counted = row["label/effective_noise"]
            gaps += [] if counted is None else [counted - predicted]
            yield "effective_noise_predicted", row["visit"], predicted
            yield "effective_noise_counted", row["visit"], counted
    last = by_epoch[-1]
    yield "refinement/replaced_last", None, last["replaced"]
    yield "refinement/initial", None, last["label/initial_noise"]
    yield "refinement/predicted", None, predicted
    yield "refinement/counted", None, last["label/effective_noise"]
    gap: Any = pl.Series(gaps, dtype=pl.Float64).mean()
    yield "refinement/gap", None, gap


def _selections(run: Run, epochs: int) -> Values:
    """Shares of wrong majorities, and means of exp(-K Delta_p^2), which promises nothing without a gap above 0."""
    rows = selections(run, epochs)
    bound = formulas.selection_error_printed(
        rows["rollouts"].to_numpy(), rows["gap"].to_numpy()
    )
    bins = rows.with_columns(pl.Series("bound", bound)).group_by(gap_bin().alias("bin"))
    wrong, promised = (
        (~pl.col("is_right")).mean(),
        pl.col("bound").filter(pl.col("gap") > 0).mean(),
    )
    means = bins.agg(error=wrong, bound=promised).sort("bin")
    for name in ("error", "bound"):
        for at, value in means.select("bin", name).iter_rows():
            yield f"selection_{name}", at, value


def has_noisy_labels(run: Run) -> bool:
    """Whether some visit has a noisy label that rollouts can meet, true answers are known, and rollouts are stored."""
    labelled = run.labels.filter(_NOISY, _KNOWN, _HAS_LABEL).select(_KEYS)
    return (
        not labelled.join(_rolled_out(run), on=_KEYS, how="semi")
        .head(1)
        .collect()
        .is_empty()
    )


def followed_labels(run: Run, epochs: int) -> pl.DataFrame:
    """The visits, up to an epoch, of noisy prompts whose first visit had a noisy label that some rollout could meet.

    Returns:
        One row per visit, by visit and prompt: prompt_id, visit, step, rollouts (K), true_count and label_count (with
        the first visit's label). No rows where the truth or the marks are unknown, or where noise is inactive.
    """
    visits = run.labels.filter(_NOISY, _KNOWN, pl.col("visit") <= epochs)
    first = visits.filter(pl.col("visit") == 1, _HAS_LABEL).select(
        "prompt_id", label="noisy_label"
    )
    counts = (
        _answers(run, epochs)
        .join(first, on="prompt_id")
        .filter(pl.col("answer_class") == pl.col("label"))
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
            label_count=pl.col("label_count").fill_null(0),
        )
        .sort("visit", "prompt_id")
        .collect()
    )


def selections(run: Run, epochs: int) -> pl.DataFrame:
    """The visits of noisy prompts, up to an epoch, with Delta_p as the visits before and after show it.

    The visit's own rollouts decide its majority, so they can't also say how likely that was to be wrong.

    Returns:
        One row per visit with both neighbours: rollouts (K), gap (Delta_p; from 2 K rollouts), is_right (the majority).
    """
    visits = run.labels.filter(_NOISY, _KNOWN, pl.col("visit") <= epochs).join(
        _rolled_out(run), on=_KEYS, how="semi"
    )
    wrong = _beside(_answers(run, epochs).filter(~pl.col("is_correct"))).group_by(
        *_KEYS, "answer_class"
    )
    likeliest = (
        wrong.agg(pl.col("count").sum()).group_by(_KEYS).agg(wrong=pl.col("count").max())
    )
    around = (
        _beside(visits)
        .group_by(_KEYS)
        .agg(
            true=pl.col("true_answer_count").sum(),
            of=pl.col("rollouts").sum(),
            visits=pl.len(),
        )
        .filter(pl.col("visits") == 2)
    )
    gap = (pl.col("true") - pl.col("wrong").fill_null(0)) / pl.col("of")
    return (
        visits.join(around, on=_KEYS)
        .join(likeliest, on=_KEYS, how="left")
        .sort("visit", "prompt_id")
        .select("rollouts", gap=gap, is_right=pl.col("majority_is_correct"))
        .collect()
    )


def gap_bin() -> pl.Expr:
    """The number of each visit's bin of Delta_p, from 0."""
    return pl.sum_horizontal((pl.col("gap") > edge).cast(pl.Int32) for edge in GAP_EDGES)


def gap_titles() -> list[str]:
    """The names of the bins of Delta_p."""
    edges = [f"{edge:g}" for edge in GAP_EDGES]
    inner = [f"{low} to {high}" for low, high in pairwise(edges)]
    return [f"{edges[0]} or less", *inner, f"above {edges[-1]}"]


def _rolled_out(run: Run) -> pl.LazyFrame:
    """The visits whose rollouts are stored; without them a count of 0 would mean nothing."""
    return scan_rollouts(run.path).select(_KEYS).unique()


def _answers(run: Run, epochs: int) -> pl.LazyFrame:
    """How often each answer was given: prompt_id, visit, answer_class, is_correct, count."""
    rollouts = scan_rollouts(run.path).filter(
        pl.col("view") == "original",
        pl.col("answer_class").is_not_null(),
        pl.col("visit") <= epochs,
    )
    return rollouts.group_by(*_KEYS, "answer_class", "is_correct").agg(
        count=pl.len().cast(pl.Int32)
    )


def _beside(rows: pl.LazyFrame) -> pl.LazyFrame:
    """The rows of the visits before and after each visit, under its number."""
    return pl.concat([rows.with_columns(pl.col("visit") + by) for by in (-1, 1)])
