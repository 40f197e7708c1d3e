"""Threshold x warm-up x criteria over one stored history: what each setting would have selected, and how well.

Votes, slopes and historical majorities do not depend on the settings, so one pass over the rollouts serves every cell:
a run has stored it, a table of another trainer's rollouts is replayed once. Each cell then is R14 over the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, Any

from olr_cli.analysis.histories import RolloutHistory
from olr_cli.analysis.replay.grid_settings import Grid
from olr_cli.analysis.replay.replay import replay
from olr_cli.answers import Judge
from olr_cli.errors import UserError
from olr_cli.recipe.schema import Criterion, OlrMethod
from olr_cli.runs.directory import read_recipe
from olr_cli.runs.store import scan_labels

if TYPE_CHECKING:
    import polars as pl

    from olr_cli.supervision import LabelRecord

_COLUMNS = (
    "visit",
    "slope",
    "majority_count",
    "is_consistent",
    "majority_is_correct",
    "given_label_count",
)
"""What a cell depends on, of the labels table, besides the marks."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What one setting would have selected; counts are of prompt visits, those of warm-up included.

    Attributes:
        criteria: which of slope and consistency count.
        slope_threshold: delta; None where the slope does not count.
        warmup_epochs: T.
        visits: in the history; the same in every cell.
        marked: of the visits, those of prompts known to be mislabelled, with a known true answer.
        selected: visits whose majority would replace the label.
        known: of these, with a known true answer.
        right: of these, with a right majority.
        labelled: of the selected, those with a given label.
        agreeing: of these, with a majority that is the given label.
        repaired: selected visits of mislabelled prompts with a right majority.
        is_own: the run was trained under this setting.
        on_front: on the Pareto front of coverage and accuracy (`front`).
    """

    criteria: tuple[Criterion, ...]
    slope_threshold: Decimal | None
    warmup_epochs: int
    visits: int
    marked: int
    selected: int
    known: int
    right: int
    labelled: int
    agreeing: int
    repaired: int
    is_own: bool = False
    on_front: bool = False

    @property
    def coverage(self) -> float:
        """Share of all visits that are selected."""
        return self.selected / self.visits

    @property
    def accuracy(self) -> float | None:
        """Share of right majorities among the selected visits; None where no truth is known."""
        return self.right / self.known if self.known else None

    @property
    def agreement(self) -> float | None:
        """Share of the selected visits whose majority is the given label; None where no label is given."""
        return self.agreeing / self.labelled if self.labelled else None

    @property
    def repair(self) -> float | None:
        """Share of the visits of mislabelled prompts whose label would be right; None where none is known to be."""
        return self.repaired / self.marked if self.marked else None

    def plain(self) -> dict[str, Any]:
        """For JSON and CSV: settings, counts and shares."""
        shares = {name: getattr(self, name) for name in ("coverage", "accuracy", "agreement", "repair")}
        return {**asdict(self), "criteria": criteria_name(self.criteria), **shares}


@dataclass(frozen=True)
class GridResult:
    """The cells of a grid, criteria by criteria, each threshold by threshold, and what is known of the history.

    Attributes:
        cells: in the order of the grid; of criteria without the slope one a warm-up.
        knows_truth: some visit has a known true answer; otherwise there is no accuracy and no Pareto front.
        knows_labels: some visit has a given label.
    """

    cells: Sequence[Cell]
    knows_truth: bool
    knows_labels: bool

    @property
    def knows_marks(self) -> bool:
        """Some prompt with a known true answer is known to be mislabelled."""
        return self.cells[0].marked > 0

    def of(self, criteria: tuple[Criterion, ...]) -> list[Cell]:
        """The cells of one set of criteria."""
        return [cell for cell in self.cells if cell.criteria == criteria]

    @property
    def criteria(self) -> list[tuple[Criterion, ...]]:
        """The sets of criteria, in order."""
        return list(dict.fromkeys(cell.criteria for cell in self.cells))


def criteria_name(criteria: Sequence[Criterion]) -> str:
    """A set of criteria in one word, as ``--grid method.criteria=`` takes it."""
    return "+".join(criteria) or "none"


def own_setting(history: RolloutHistory) -> OlrMethod | None:
    """The setting the run was trained under; None for a bare table, or a run of another method."""
    method = read_recipe(history.source).method if history.is_run else None
    return method if isinstance(method, OlrMethod) else None


def evidence(history: RolloutHistory, judge: Judge) -> pl.DataFrame:
    """What every cell is counted from: a row a prompt visit, `_COLUMNS` and is_marked.

    A run's stored labels serve as they are, unless its answers are to be read anew; other rollouts are replayed.

    Raises:
        UserError: a shard is torn or foreign, or the history can't be replayed.
    """
    import polars as pl

    if history.is_run and read_recipe(history.source).data.extractor == history.recipe.data.extractor:
        return (
            scan_labels(history.source).select(*_COLUMNS, is_marked=pl.col("noise_type") != "clean").collect()
        )
    # The settings decide nothing that is counted from, and another choice of prompts could need statistics.
    plain = history.recipe.model_copy(update={"method": OlrMethod()})
    steps = replay(replace(history, recipe=plain), judge)
    return pl.concat([_narrow(labels) for labels in steps])


def _narrow(labels: Iterable[LabelRecord]) -> pl.DataFrame:
    import polars as pl

    kinds = (pl.Int32, pl.Float64, pl.Int32, pl.Boolean, pl.Boolean, pl.Int32)
    schema = dict(zip(_COLUMNS, kinds, strict=True)) | {"is_marked": pl.Boolean}
    rows = [
        (*(getattr(label, name) for name in _COLUMNS), label.noise_type and label.noise_type != "clean")
        for label in labels
    ]
    return pl.DataFrame(rows, schema=schema, orient="row")


def count(rows: pl.DataFrame, grid: Grid, own: OlrMethod | None = None) -> GridResult:
    """What each cell of a grid would have selected (R14), from `evidence`.

    Args:
        rows: at least one.
        grid: the settings.
        own: the setting the run was trained under, which is marked where it is in the grid.
    """
    import polars as pl

    is_known = pl.col("majority_is_correct").is_not_null()
    visits, known, labelled, marked = rows.select(
        pl.len(),
        known=is_known.sum(),
        labelled=pl.col("given_label_count").is_not_null().sum(),
        marked=(pl.col("is_marked") & is_known).sum(),
    ).row(0)
    cells = [
        Cell(*one, visits, marked, **rows.select(_counts(*one)).row(0, named=True), is_own=_is(own, one))
        for one in _settings(grid)
    ]
    flags = front(cells)
    cells = [replace(cell, on_front=flag) for cell, flag in zip(cells, flags, strict=True)]
    return GridResult(cells, known > 0, labelled > 0)


Setting = tuple[tuple[Criterion, ...], Decimal | None, int]


def _settings(grid: Grid) -> Iterator[Setting]:
    for criteria in grid.criteria:
        thresholds = grid.slope_thresholds if "slope" in criteria else (None,)
        for threshold, warmup in product(thresholds, grid.warmups):
            yield criteria, threshold, warmup


def _is(own: OlrMethod | None, setting: Setting) -> bool:
    if own is None:
        return False
    threshold = own.slope_threshold if "slope" in own.criteria else None
    return setting == (own.criteria, threshold, own.warmup_epochs)


def _counts(criteria: tuple[Criterion, ...], threshold: Decimal | None, warmup: int) -> list[pl.Expr]:
    """The counts of a `Cell`, by name."""
    import polars as pl

    from olr_cli.supervision.metrics import selected_under

    selected = selected_under(criteria, Decimal(0) if threshold is None else threshold, warmup)
    right, given = pl.col("majority_is_correct"), pl.col("given_label_count")
    chosen = {
        "selected": selected,
        "known": selected & right.is_not_null(),
        "right": selected & right,
        "labelled": selected & given.is_not_null(),
        # The majority is the one class with the most rollouts (R9): a label that as many match is the majority.
        "agreeing": selected & (given >= pl.col("majority_count")),
        "repaired": selected & right & pl.col("is_marked"),
    }
    return [visits.sum().alias(name) for name, visits in chosen.items()]


def front(cells: Sequence[Cell]) -> list[bool]:
    """Which cells are on the Pareto front of coverage and accuracy.

    A cell is on it where no other is at least as good in both and better in one. Cells without accuracy are not.
    """
    valued = [(cell.selected, cell.accuracy) for cell in cells]
    best: dict[int, float] = {}
    for selected, accuracy in valued:
        if accuracy is not None:
            best[selected] = max(accuracy, best.get(selected, accuracy))
    on_front, highest = set(), -1.0
    for selected in sorted(best, reverse=True):
        if best[selected] > highest:
            highest = best[selected]
            on_front.add((selected, highest))
    return [value in on_front for value in valued]


def require_olr(history: RolloutHistory) -> OlrMethod:
    """The settings at which keys outside the grid stay.

    Raises:
        UserError: the replay is to be of another method.
    """
    method = history.recipe.method
    if not isinstance(method, OlrMethod):
        raise UserError(
            f"--grid is of the settings of olr, and method.name is {method.name}; leave one of them out"
        )
    return method
