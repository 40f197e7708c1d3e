"""The subjects of ``--table theory``: their titles, columns and notes, in the order of the paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from olr_cli.analysis.theory import values
from olr_cli.analysis.theory.histories import SMOOTHING, gap_titles
from olr_cli.analysis.theory.values import Measured, Values

Kind = Literal["share", "count", "number", "interval"]

MOST_EPOCHS = 10
"""Columns of L by epoch; of longer runs some epochs are left out, and all are in the figure's CSV."""


@dataclass(frozen=True)
class Column:
    """A column of a block.

    Attributes:
        name: in CSV and JSON.
        title: what it is called, in two lines at most.
        kind: shares are shown in percent, other numbers as they are, with sd or with an interval.
    """

    name: str
    title: str
    kind: Kind = "share"

    def text(self, value: float) -> str:
        """A value as it is printed; numbers near 0, as the footnote's chance, keep their exponent."""
        if self.kind == "share":
            return f"{100 * value:.1f}"
        if self.kind == "count":
            return f"{value:.0f}" if value == round(value) else f"{value:.1f}"
        return f"{value:.0e}" if 0 < abs(value) < 0.005 else f"{value:.2f}"


@dataclass(frozen=True)
class Subject:
    """What a block of the table is about.

    Attributes:
        name: in CSV and JSON.
        title: of the block.
        columns: all that runs may have a value for.
        measure: a run's values by column.
        notes: what the reader should know.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    measure: Callable[[Measured], Values]
    notes: tuple[str, ...] = ()


def subjects(epochs: int) -> list[Subject]:
    """All subjects but the critical ratio, which needs several runs.

    Args:
        epochs: of the longest run.
    """
    by_epoch = tuple(Column(f"epoch_{epoch}", str(epoch), "number") for epoch in _shown(epochs))
    return [
        _START,
        Subject("log_ratio", _RATIO_TITLE, by_epoch, values.ratio_by_epoch, _RATIO_NOTES),
        _FEASIBILITY,
        _REFINEMENT,
        Subject("selection_error", _ERROR_TITLE, _bins("error"), values.errors, _ERROR_NOTES),
        Subject("selection_bound", _BOUND_TITLE, _bins("bound"), values.bounds, _BOUND_NOTES),
    ]


_START = Subject(
    "start",
    "Assumption (i), p_0(y*) > p_0(noisy label): noisy prompts in their first visits",
    (
        Column("prompts", "prompts", "count"),
        Column("true_step_1", "p(y*)\nstep 1"),
        Column("true_1", "p(y*)\nvisit 1"),
        Column("label_1", "p(label)\nvisit 1"),
        Column("true_2", "p(y*)\nvisit 2"),
        Column("label_2", "p(label)\nvisit 2"),
        Column("holds", "y* ahead\nvisit 2"),
    ),
    values.start,
    (
        "The label is the first visit's, where there was one. On-policy noise draws it from that visit's own rollouts,"
        " so that p(label) is too high there; the second visit counts it afresh.",
        "Ahead: prompts on which y* was sampled more often than the label. Only step 1 is of the untrained policy.",
    ),
)

_RATIO_TITLE = "Log-ratio L_t of noisy prompts by epoch: y* to the first visit's label"
_RATIO_NOTES = (
    f"Mean over prompts of log((N(y*) + s) / (N(label) + s)) with s = {SMOOTHING:g}, so that |L| is at most"
    " log(2 K + 1). Epoch 1 is too low: see p(label) above.",
)

_FEASIBILITY = Subject(
    "feasibility",
    "Rollout feasibility: noisy labels that are rolled out",
    (
        Column("realised_first", "realised,\nepoch 1"),
        Column("realised_last", "realised,\nlast"),
        Column("again", "again in\nvisit 2"),
        Column("expected", "expected\nagain"),
        Column("all", "all of them\n(footnote)", "number"),
    ),
    values.feasibility,
    (
        "Realised: the visit's own label has a rollout. Again: the first visit's label has one in the second visit, as"
        " a label written into the file would need.",
        "Expected: 1 - (1 - p)^K, with one p for all prompts, the mean share of that label in visit 2; all n of them:"
        " (1 - (1 - p)^K)^n.",
    ),
)

_REFINEMENT = Subject(
    "refinement",
    "OLR: Delta, and the effective noise ratio rho (1 - Delta) beside the counted one",
    (
        Column("replaced", "Delta,\nmean"),
        Column("right", "of these\nright"),
        Column("spoilt", "clean\nspoilt"),
        Column("replaced_last", "Delta,\nlast"),
        Column("initial", "rho"),
        Column("predicted", "predicted\nlast"),
        Column("counted", "counted\nlast"),
        Column("gap", "mean\ngap"),
    ),
    values.refinement,
    (
        "Delta: noisy prompts whose label the majority replaced, over all visits after warm-up, and in the last epoch."
        " Spoilt: clean prompts that got a wrong label.",
        "Gap: counted less predicted, in points, over the epochs after warm-up.",
    ),
)

_ERROR_TITLE = "Wrong majorities on noisy prompts, by Delta_p in the visits before and after"
_ERROR_NOTES = (
    "A visit without majority is wrong. Delta_p is counted in 2 K other rollouts, whose noise spreads it over"
    " neighbouring bins; benchmarks/theory.py computes it from the policy.",
)
_BOUND_TITLE = "exp(-K Delta_p^2), the printed bound, of the same visits"
_BOUND_NOTES = ("The theorem asks for Delta_p > 0.",)


def _bins(of: str) -> tuple[Column, ...]:
    return tuple(Column(f"{of}_{number}", title) for number, title in enumerate(gap_titles()))


CRITICAL_NAME = "critical_ratio"
CRITICAL_TITLE = "Observed critical noise ratio: where a change over training falls to 0"
CRITICAL_COLUMNS = (
    Column("observed", "rho_c", "interval"),
    Column("crossing", "seeds\nthat cross", "count"),
    Column("seeds", "of", "count"),
    Column("predicted", "rho_c / (1 - Delta)\nfrom GRPO's", "interval"),
)
CRITICAL_NOTES = (
    "Interpolated between the noise ratios of the runs, seed by seed; in brackets the 95 % t interval over the seeds"
    " whose change crosses 0 between them.",
    "From GRPO's: where rho (1 - Delta), Delta being each run's own, reaches the same seed's rho_c under GRPO; nothing"
    " stands where it does not at any of the noise ratios.",
)


def _early(measured: Measured) -> float | None:
    return values.rise(measured, 3)


def _late(measured: Measured) -> float | None:
    return values.rise(measured, max(measured.log_ratios, default=0))


CHANGES: Mapping[str, Callable[[Measured], float | None]] = {
    "L, epoch 2 to 3": _early,
    "L, epoch 2 to last": _late,
    "majority on noisy prompts": values.majority_change,
    "held-out accuracy": values.held_out_change,
}
"""What changes over training -> the change; of L not from the first epoch on, where it is too low."""


def _shown(epochs: int) -> list[int]:
    """All epochs, or `MOST_EPOCHS` of them from the first to the last."""
    if epochs <= MOST_EPOCHS:
        return list(range(1, epochs + 1))
    return [1 + round(at * (epochs - 1) / (MOST_EPOCHS - 1)) for at in range(MOST_EPOCHS)]
