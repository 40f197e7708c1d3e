"""What the theory assumes and predicts beside what runs show: one block per subject, one line per arm.

Everything is counted from run directories; what needs the policy itself is in `policies.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from benchmarks.theory import formulas
from benchmarks.theory.measure import SMOOTHING, gap_titles, measure
from olr_cli import tables
from olr_cli.analysis.arms import Arm, Variation, tell_apart, vary
from olr_cli.analysis.frame import frame, mean_interval, summarise
from olr_cli.tables import Cell, Table

NOTHING = "No run here has noisy labels and known true answers, which the theory is about."

MOST_EPOCHS = 10
"""Columns of L by epoch; of longer runs some epochs are left out, and all are in the figure's CSV."""


@dataclass(frozen=True)
class Column:
    """A column of a block.

    Attributes:
        name: in CSV and JSON.
        title: in the head, in two lines at most.
        kind: shares are shown in percent, other numbers as they are, with sd or with an interval.
        at: of a metric that has several values.
    """

    name: str
    title: str
    kind: Literal["share", "count", "number", "interval"] = "share"
    at: int | None = None

    @property
    def head(self) -> tables.Column:
        """As it is printed."""
        return tables.Column(
            self.title, self.title.replace("\n", " ") + ", %" * (self.kind == "share")
        )

    def cell(self, values: Cell | None) -> str | Cell:
        """A cell as it is printed: the mean, with sd where there is room."""
        if values is None:
            return ""
        mean = self.text(values.number)
        if self.kind == "interval" and (ends := mean_interval(values)) is not None:
            return f"{mean} [{self.text(ends[0])}, {self.text(ends[1])}]"
        if values.sd is None or self.kind in ("interval", "count"):
            return mean
        return Cell(f"{mean} ± {self.text(values.sd)}", "text", short=mean)

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
        name: in CSV and JSON; the metrics of the columns are ``name/column``, or ``name`` at several places.
        columns: all that runs may have a value for.
        notes: what the reader should know.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    notes: tuple[str, ...] = ()

    def key(self, column: Column) -> tuple[str, int | None]:
        """Metric and `at` of a column's values."""
        return f"{self.name}/{column.name}" if column.at is None else self.name, column.at


def theory_table(arms: Sequence[Arm]) -> Table:
    """Means over seeds and intervals, and where there is room sd; no blocks without noisy labels and known answers.

    The data have a row a cell: shares from 0 to 1, low and high the ends of Student's 95 % interval over seeds.

    Args:
        arms: at least one.
    """
    values = measure(arms)
    values = pl.concat([values, frame(_critical_ratios(arms, values))])
    lines: dict[str, dict[tuple[str, int | None], Cell]] = {}
    for (metric, arm, at), cell in summarise(values).items():
        lines.setdefault(arm, {})[metric, at] = cell
    blocks: list[tables.Block] = []
    rows: list[dict[str, Any]] = []
    for subject in _subjects(max(arm.epochs for arm in arms)):
        keys = {column: subject.key(column) for column in subject.columns}
        shown = {
            line: cells
            for line, cells in lines.items()
            if not cells.keys().isdisjoint(keys.values())
        }
        columns = [
            column
            for column in subject.columns
            if any(keys[column] in cells for cells in shown.values())
        ]
        printed = [
            tables.Row(
                [line, *(column.cell(cells.get(keys[column])) for column in columns)]
            )
            for line, cells in shown.items()
        ]
        if printed:
            heads = [tables.Column(""), *(column.head for column in columns)]
            blocks.append(tables.Block(heads, printed, subject.title, subject.notes))
        rows += [
            {"block": subject.name, "line": line, "column": column.name}
            | _plain(cells[keys[column]])
            for line, cells in shown.items()
            for column in columns
            if keys[column] in cells
        ]
    explanation = (
        "Means over seeds, shares in percent. For sd: --format markdown, latex or csv."
    )
    return Table(
        blocks=blocks,
        rows=rows,
        footnotes=[explanation if blocks else NOTHING],
        fields=("block", "line", "column", "n", "mean", "sd", "low", "high"),
        nothing=NOTHING,
    )


def _plain(values: Cell) -> dict[str, Any]:
    low, high = mean_interval(values) or (None, None)
    return {"n": values.n, "mean": values.value, "sd": values.sd, "low": low, "high": high}


CHANGES = {
    "early": "L, epoch 2 to 3",
    "late": "L, epoch 2 to last",
    "majority": "majority on noisy prompts",
    "held_out": "held-out accuracy",
}
"""What changes over training, by its metric ``change/…``."""


def crossing(values: Mapping[float, float]) -> float | None:
    """Where a quantity that is positive at low noise ratios first reaches 0, by linear interpolation.

    Args:
        values: noise ratio -> value, ratios ascending.

    Returns:
        The ratio; None where the value is not positive at the lowest ratio, or positive at all.
    """
    before: tuple[float, float] | None = None
    for ratio, value in values.items():
        if value <= 0:
            if before is None:
                return None
            return before[0] + (ratio - before[0]) * before[1] / (before[1] - value)
        before = ratio, value
    return None


def refined_crossing(replaced: Mapping[float, float], critical: float) -> float | None:
    """Where rho (1 - Delta) reaches rho_c (Theorem "OLR Improves Label Noise Tolerance"), Delta varying with rho.

    Args:
        replaced: noise ratio -> Delta, ratios ascending.
        critical: rho_c without OLR.
    """
    left = {
        ratio: critical - float(formulas.effective_ratio(ratio, share))
        for ratio, share in replaced.items()
    }
    return crossing(left)


def _critical_ratios(
    arms: Sequence[Arm], values: pl.DataFrame
) -> Iterator[tuple[str, int, str, int | None, float | None]]:
    """The observed critical noise ratio: where, among arms that differ in the ratio alone, a change falls to 0.

    Seed by seed, with the ratio that OLR's theorem has from the same seed's under GRPO, where that crosses.

    Returns:
        Rows of a frame, whose arms are the variations under active noise and what changes, GRPO's first.
    """
    active = (
        arm
        for arm in arms
        if arm.recipe.noise is not None and arm.recipe.noise.type == "active"
    )
    variations = sorted(
        vary(active, "noise.ratio"), key=lambda variation: variation.first.method != "grpo"
    )
    names = tell_apart(
        [f"active {variation.first.method}" for variation in variations],
        [variation.settings("method.name") for variation in variations],
    )
    for variation, name in zip(variations, names, strict=True):
        data = variation.settings("method.")
        alike = [other for other in variations if other.settings("method.") == data]
        grpo = (
            alike[0] if alike[0].first.method == "grpo" != variation.first.method else None
        )
        replaced = _by_ratio(variation, "refinement/replaced", values)
        for change, title in CHANGES.items():
            seeds = _by_ratio(variation, f"change/{change}", values)
            known = {seed: changes for seed, changes in seeds.items() if len(changes) > 1}
            if not known:
                continue
            line, observed = (
                f"{name}: {title}",
                {seed: crossing(changes) for seed, changes in known.items()},
            )
            for seed, ratio in observed.items():
                yield line, seed, "critical_ratio/observed", None, ratio
            crossed = sum(ratio is not None for ratio in observed.values())
            yield line, 0, "critical_ratio/crossing", None, float(crossed)
            yield line, 0, "critical_ratio/seeds", None, float(len(known))
            unrefined = _by_ratio(grpo, f"change/{change}", values) if grpo else {}
            for seed, changes in unrefined.items():
                critical = crossing(changes)
                if critical is not None and seed in replaced:
                    predicted = refined_crossing(replaced[seed], critical)
                    yield line, seed, "critical_ratio/predicted", None, predicted


def _by_ratio(
    variation: Variation, metric: str, values: pl.DataFrame
) -> dict[int, dict[float, float]]:
    """Seed -> noise ratio -> value, both ascending."""
    seeds: defaultdict[int, dict[float, float]] = defaultdict(dict)
    for ratio, arm in variation.arms.items():
        for seed, value in (
            values.filter(arm=arm.name, metric=metric).select("seed", "value").iter_rows()
        ):
            seeds[seed][float(ratio)] = value
    return dict(sorted(seeds.items()))


def _shown_epochs(epochs: int) -> list[int]:
    """All epochs, or `MOST_EPOCHS` of them from the first to the last."""
    if epochs <= MOST_EPOCHS:
        return list(range(1, epochs + 1))
    return [1 + round(at * (epochs - 1) / (MOST_EPOCHS - 1)) for at in range(MOST_EPOCHS)]


def _bins(name: str) -> tuple[Column, ...]:
    return tuple(
        Column(f"{name}_{at}", title, at=at) for at, title in enumerate(gap_titles())
    )


def _subjects(epochs: int) -> list[Subject]:
    """All subjects, in the order of the paper.

    Args:
        epochs: of the longest run.
    """
    by_epoch = tuple(
        Column(f"epoch_{at}", str(at), "number", at) for at in _shown_epochs(epochs)
    )
    return [
        Subject(
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
            (
                "The label is the first visit's, where there was one. On-policy noise draws it from that visit's own"
                " rollouts, so that p(label) is too high there; the second visit counts it afresh.",
                "Ahead: prompts on which y* was sampled more often than the label. Only step 1 is of the untrained"
                " policy.",
            ),
        ),
        Subject(
            "log_ratio",
            "Log-ratio L_t of noisy prompts by epoch: y* to the first visit's label",
            by_epoch,
            (
                f"Mean over prompts of log((N(y*) + s) / (N(label) + s)) with s = {SMOOTHING:g}, so that |L| is at most"
                " log(2 K + 1). Epoch 1 is too low: see p(label) above.",
            ),
        ),
        Subject(
            "feasibility",
            "Rollout feasibility: noisy labels that are rolled out",
            (
                Column("realised_first", "realised,\nepoch 1"),
                Column("realised_last", "realised,\nlast"),
                Column("again", "again in\nvisit 2"),
                Column("expected", "expected\nagain"),
                Column("all", "all of them\n(footnote)", "number"),
            ),
            (
                "Realised: the visit's own label has a rollout. Again: the first visit's label has one in the second"
                " visit, as a label written into the file would need.",
                "Expected: 1 - (1 - p)^K, with one p for all prompts, the mean share of that label in visit 2; all n of"
                " them: (1 - (1 - p)^K)^n.",
            ),
        ),
        Subject(
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
            (
                "Delta: noisy prompts whose label the majority replaced, over all visits after warm-up, and in the last"
                " epoch. Spoilt: clean prompts that got a wrong label.",
                "Gap: counted less predicted, in points, over the epochs after warm-up.",
            ),
        ),
        Subject(
            "selection_error",
            "Wrong majorities on noisy prompts, by Delta_p in the visits before and after",
            _bins("error"),
            (
                "A visit without majority is wrong. Delta_p is counted in 2 K other rollouts, whose noise spreads it"
                " over neighbouring bins; the tables of the policies have it exactly.",
            ),
        ),
        Subject(
            "selection_bound",
            "exp(-K Delta_p^2), the printed bound, of the same visits",
            _bins("bound"),
            ("The theorem asks for Delta_p > 0.",),
        ),
        Subject(
            "critical_ratio",
            "Observed critical noise ratio: where a change over training falls to 0",
            (
                Column("observed", "rho_c", "interval"),
                Column("crossing", "seeds\nthat cross", "count"),
                Column("seeds", "of", "count"),
                Column("predicted", "rho_c / (1 - Delta)\nfrom GRPO's", "interval"),
            ),
            (
                "Interpolated between the noise ratios of the runs, seed by seed; in brackets Student's 95 % interval"
                " over the seeds whose change crosses 0 between them.",
                "From GRPO's: where rho (1 - Delta), Delta being each run's own, reaches the same seed's rho_c under"
                " GRPO; nothing stands where it does not at any of the noise ratios.",
            ),
        ),
    ]
