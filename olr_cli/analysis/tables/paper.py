"""The paper's tables of scores: its published rows joined with our arms, then ours that it doesn't have.

    results.csv ──► rows of the paper ────────────────┐
                                                      ├──► rows ──► Table
    runs ──► source (their scores) ──► cells by arm ──┘

The published scores determine which setting a table varies, the order of its rows and their references. A run is in the
row of its method, its noise, and the one setting that the table varies. Other settings that decide labels or rewards
(`Setting.besides`) make a separate row. The remaining settings may differ from the paper's, as those of laptop runs do;
a note then says so. Published scores appear on a row below ours, or beside them if ours are in another column.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from olr_cli.analysis.arms import Arm, measured, telling_settings
from olr_cli.analysis.frame import (
    Lack,
    flat,
    notes_on_differences,
    summarise,
    without_difference,
)
from olr_cli.analysis.outcomes import BELOW_START, HELD_OUT, source_of, task
from olr_cli.analysis.tables.layout import BASE, METHOD_TITLES, USUAL, Layout
from olr_cli.evaluation.published import PublishedRow, Setting, setting_of
from olr_cli.grouping import gathered
from olr_cli.tables import UNKNOWN, Block, Cell, Column, Row, Table

OTHERS = "Not in the paper's table"

_DEPARTING = frozenset(
    {
        *("co_reward", "self_certainty", "token_entropy", "sequence_entropy"),
        *("confidence_penalty", "label_smoothing", "small_loss_selection"),
    }
)
"""Methods, and parts of mixed ones, whose definition is partly our own."""

_SYMBOLS = {"slope_threshold": "delta", "warmup_epochs": "T"}

_MISPRINTS = {
    "llama_8b": " The paper's scores of GRPO under active noise on AIME25 (56.2) and AMC (19.6) look exchanged; they"
    " are shown as printed."
}

Cells: TypeAlias = Mapping[str, Cell]
"""Measure -> its score, with the difference to the reference row; only measured ones."""

_Shown: TypeAlias = Callable[["PaperRow"], str | Cell]
"""Function from a row to the content of a column."""


@dataclass(frozen=True)
class PaperRow:
    """A row of a `PaperTable`: a setting, with our scores, the paper's scores, or both.

    It stands in the paper's own table, or is an additional row for a setting that the paper lacks.
    """

    block: str
    """Title above the group of rows that it belongs to."""

    label: str
    setting: Setting
    detail: str = ""
    """Which of several arms with the same label it is."""

    arm: str | None = None
    """Name of our arm; None if there is no run."""

    cells: Cells = field(default_factory=dict)
    published: Cells = field(default_factory=dict)
    """The paper's scores; empty unless the user asked for them."""

    @property
    def name(self) -> str:
        """The row's label, followed by its detail in brackets if it has one."""
        return f"{self.label} ({self.detail})" if self.detail else self.label

    @property
    def below_start(self) -> tuple[int, int] | None:
        """How many runs have a lower held-out accuracy after training than before, and how many runs measured both.

        None if no run did.
        """
        share = self.cells.get(BELOW_START)
        # The share is a mean of 0 and 1 over n runs; `round` removes the floating-point error from the count.
        return (round(share.number * share.n), share.n) if share else None


class PaperTable:
    """One of the paper's tables, with the scores of our arms in its rows. Rows without a score are left out.

    Args:
        name: the table's name, such as ``baselines``.
        arms: our arms.
        models: folders with evaluations of policies before training.
        with_published: whether to add the paper's scores.

    Attributes:
        rows: the paper's rows in its order, then rows of ours that the paper does not have.
        notes: sentences for the reader.

    Raises:
        Lack: no row has a score.
    """

    def __init__(
        self,
        name: str,
        arms: Sequence[Arm],
        models: Sequence[Path] = (),
        *,
        with_published: bool,
    ) -> None:
        self._name, self._arms = name, arms
        self._layout = Layout.of(name)
        self._source = source_of(arms, models)
        self._published = self._source.published if with_published else ()
        self._settings = {arm.name: setting_of(arm.runs[0].path) for arm in arms}
        self._by_key = gathered(
            (self._layout.key(self._settings[arm.name]), arm) for arm in arms
        )
        self._compared = {
            arm.name: other.name for arm in arms if (other := self._reference_arm(arm))
        }
        self._summary = summarise(measured(arms, self._source.values), self._compared)
        self._cells: defaultdict[str, dict[str, Cell]] = defaultdict(dict)
        for key, cell in self._summary.items():
            self._cells[key.arm][key.metric] = cell
        rows = [*self._all_rows()]
        self.notes = [*self._notes(rows)]
        # `_notes` names the rows without any value, so nothing is left out silently.
        self.rows = [row for row in rows if row.cells or row.published]
        if not self.rows:
            raise Lack(
                "held-out accuracy (data.test) or scores (`olr evaluate RUN`), and these runs have none"
            )

    # Output ---------------------------------------------------------------------------------------------------------

    def table(self) -> Table:
        """Return the table to print.

        It has scores in percent with sd, and differences with intervals to a reference row, such as GRPO under the same
        noise. In a terminal, benchmark scores have neither sd nor intervals.
        """
        columns = [*self._columns()]
        rows: list[Row] = []
        for title, members in groupby(self.rows, lambda row: row.block):
            rows += [Row([title], "title")] if title else []
            for row in members:
                rows.append(Row([shown(row) for _, shown in columns]))
                if row.published and not self._source.is_held_out:
                    paper_row = replace(row, label="paper", detail="", cells=row.published)
                    rows.append(
                        Row([shown(paper_row) for _, shown in columns], "published")
                    )
        footnotes = [*self.notes]
        if not self._source.is_held_out:
            footnotes.append(
                "The formats markdown, latex and csv have sd and intervals too."
            )
        return Table(
            [Block([column for column, _ in columns], rows)],
            [*self._lines()],
            self.notes,
            footnotes,
        )

    def _columns(self) -> Iterator[tuple[Column, _Shown]]:
        to = f"to {METHOD_TITLES[self._layout.reference]}"
        brief, in_full = to.replace(" ", "\n"), f"{to} [95 %]"
        held_out = self._source.is_held_out
        yield (
            Column("") if held_out else Column("scores, %", "scores, % ± sd"),
            lambda row: row.name,
        )
        yield (
            Column("n"),
            lambda row: str(max((cell.n for cell in row.cells.values()), default=0) or ""),
        )
        for score in self._source.columns:
            ours = partial(_cell, score.name)
            change = partial(ours, is_change=True)
            if held_out:
                yield (
                    Column("held-out\n% ± sd", f"{score.title}, % ± sd"),
                    partial(ours, in_full=True),
                )
                yield Column(f"{to}\n[95 %]", in_full), partial(change, in_full=True)
            elif score.is_average:
                yield Column(f"{score.title}\nmean"), ours
                yield Column(brief, in_full), change
            else:
                yield Column(score.title), ours
        if held_out:
            yield (
                Column("below\nstart"),
                lambda row: "/".join(map(str, row.below_start or ())),
            )
            for score in self._published:
                papers = partial(_cell, score.name, is_published=True)
                yield Column(f"paper\n{score.title}", is_dim=True), papers
                yield Column(brief, is_dim=True), partial(papers, is_change=True)

    def _lines(self) -> Iterator[dict[str, Any]]:
        """Yield the table's content for CSV and JSON: a dict of column -> value for each score of each row.

        Scores are shares from 0 to 1. Unknown numbers are None.
        """
        names = dict.fromkeys(
            score.name for score in (*self._source.columns, *self._published)
        )
        for row in self.rows:
            setting = row.setting
            varied = self._layout.varied(setting)
            # JSON has no decimals; as text a value keeps the digits that the recipe has.
            varied = str(varied) if isinstance(varied, Decimal) else varied
            for name in names:
                papers = row.published.get(name, UNKNOWN)
                published = {
                    "published": papers.value,
                    "published_difference": papers.change and papers.change.value,
                }
                below, of = (
                    row.below_start
                    if row.below_start and name == HELD_OUT.name
                    else (None, None)
                )
                yield {
                    "block": row.block,
                    "method": setting.method,
                    "detail": row.detail,
                    "noise": ", ".join(filter(None, (setting.noise, setting.besides))),
                    **({self._layout.varies: varied} if self._layout.varies else {}),
                    "column": name,
                    **flat(row.cells.get(name, UNKNOWN)),
                    **(published if self._published else {}),
                    "below_start": below,
                    "below_start_of": of,
                }

    # The rows ---------------------------------------------------------------------------------------------------------

    def _all_rows(self) -> Iterator[PaperRow]:
        """Yield the paper's rows in its order, then rows of ours that the paper does not have, sorted by noise.

        A row with several of our arms is yielded once for each arm. A row with none of our arms is yielded once,
        without our scores.
        """
        rows = {}
        for key, printed in self._layout.printed.items():
            block, label = self._layout.names(printed.setting)
            rows[key] = PaperRow(
                block, label, printed.setting, published=self._published_cells(printed)
            )
        ours = sorted(
            (self._settings[arms[0].name] for arms in self._by_key.values()),
            key=self._sort_key,
        )
        for setting in (*(Setting(start.model) for start in self._source.starts), *ours):
            # A row that the paper has keeps its label and block, although ours may differ in other settings.
            rows.setdefault(
                self._layout.key(setting),
                PaperRow(OTHERS, self._layout.full_label(setting), setting),
            )
        for key, row in rows.items():
            yield from [*self._ours(key, row)] or [row]

    def _ours(self, key: Hashable, row: PaperRow) -> Iterator[PaperRow]:
        for start in self._source.starts:
            if self._layout.key(Setting(start.model)) == key:
                yield replace(row, detail=start.detail, arm=row.label, cells=start.cells)
        arms = self._by_key.get(key, [])
        for arm, detail in zip(arms, _details(arms), strict=True):
            setting, cells = self._settings[arm.name], self._cells[arm.name]
            yield replace(row, detail=detail, setting=setting, arm=arm.name, cells=cells)

    def _published_cells(self, row: PublishedRow) -> dict[str, Cell]:
        """Return the paper's scores of a row, as name of the column -> table cell.

        A cell's `change` is the difference to the paper's reference row, or None if there is no such row. The dict is
        empty if the table shows no published scores.
        """
        other = self._layout.printed.get(self._layout.reference_key(row.setting))
        cells = {}
        for score in self._published:
            share = row.shares[score.name]
            change = Cell(share - other.shares[score.name], "points") if other else None
            cells[score.name] = Cell(share, change=change)
        return cells

    def _sort_key(self, setting: Setting) -> tuple[Any, ...]:
        """Return the sort key of a row of ours that the paper does not have.

        Rows are sorted by noise. Within a noise, rows that are not compared with another row come first, and then the
        value that the table varies decides.
        """
        noise = setting.noise_type or "", float(setting.noise_ratio or 0), setting.besides
        is_compared = self._by_key[self._layout.key(setting)][0].name in self._compared
        value = self._layout.varied(setting)
        return *noise, is_compared, value is not None, value

    def _reference_arm(self, arm: Arm) -> Arm | None:
        """Return the arm that `arm` is compared with, or None if there is none.

        Candidates are the arms in the reference row with the same starting policy, training data and held-out data. If
        there are several, the one whose settings differ least from those of `arm` is returned.
        """
        settings = arm.settings()

        def differences(other: Arm) -> int:
            others = other.settings()
            return sum(
                settings.get(name) != others.get(name)
                for name in settings.keys() | others.keys()
            )

        candidates = self._by_key.get(
            self._layout.reference_key(self._settings[arm.name]), []
        )
        on_same_task = (
            other for other in candidates if task(other.runs[0]) == task(arm.runs[0])
        )
        return min(on_same_task, key=differences, default=None)

    # Notes for the reader ---------------------------------------------------------------------------------------------

    def _notes(self, rows: Sequence[PaperRow]) -> Iterator[str]:
        yield from self._source.notes
        if self._published:
            trained = next(
                row.setting
                for row in self._layout.printed.values()
                if row.setting.method != BASE
            )
            yield (
                f"Published: {trained.model} trained on {trained.train_prompts:,} prompts; means over the six"
                " in-distribution (ID) and the three out-of-distribution (OOD) benchmarks, and differences of them, are"
                " computed from its scores and may differ by 0.1 from the printed ones."
                f"{_MISPRINTS.get(self._name, '')}"
            )
            yield (
                "The levels of ours and of the published scores compare only for the same policy, prompts and"
                " benchmarks; orders and signs of differences do."
            )
        cells = [
            row.cells.get(score.name) for row in rows for score in self._source.columns
        ]
        yield from notes_on_differences(
            cells, self._layout.in_words, "ours " if self._published else ""
        )
        if self._source.is_held_out:
            yield "Below start: how many of the n runs ended below their own accuracy before training."
        yield from self._gaps(rows)
        for arm in self._arms:
            yield from arm.notes()
        yield from departures(self._arms, self._layout.varies)

    def _gaps(self, rows: Sequence[PaperRow]) -> Iterator[str]:
        absent = gathered(
            (row.block, row.label)
            for row in rows
            if row.arm is None and row.setting.method != BASE
        )
        if absent:
            named = "; ".join(
                f"{block.lower()}: {', '.join(labels)}" for block, labels in absent.items()
            )
            yield f"No runs of {named}."
        for row in rows:
            if row.arm is not None and not row.cells:
                place = (
                    f", {row.block.lower()}"
                    if row.setting.noise_type and row.block != OTHERS
                    else ""
                )
                yield f"No value of {row.name}{place}."
        yield from without_difference(self._summary, self._compared)


def departures(arms: Sequence[Arm], varies: str) -> Iterator[str]:
    """Yield sentences on how our arms depart from the paper.

    There is a sentence for each setting of OLR whose value is not the paper's, except for the setting `varies`, which
    the table varies. A last sentence follows if a method's definition is partly our own.
    """
    for name, symbol in _SYMBOLS.items():
        methods = [arm.olr for arm in arms if arm.olr]
        ours = {
            getattr(it, name)
            for it in methods
            if name != "slope_threshold" or "slope" in it.criteria
        }
        papers = getattr(USUAL, name)
        if name != varies and ours - {papers}:
            values = ", ".join(map(str, sorted(ours)))
            yield f"OLR's {name} ({symbol}) is {values} in ours and {papers} in the paper."
    if any(_DEPARTING & set(arm.method.split("+")) for arm in arms):
        yield "Where methods depart from the paper, their sources or the authors' code: docs/methods.md."


def _cell(
    name: str,
    row: PaperRow,
    *,
    is_published: bool = False,
    is_change: bool = False,
    in_full: bool = False,
) -> str | Cell:
    """Return a row's score in the column `name`, or an empty text if the row has none.

    Args:
        name: name of the score.
        row: the row.
        is_published: whether to take the paper's score instead of ours.
        is_change: whether to take the score's difference to the reference row.
        in_full: whether the sd or interval is shown in a terminal too.
    """
    cell = (row.published if is_published else row.cells).get(name)
    cell = cell.change if cell and is_change else cell
    return (cell.full if in_full else cell) if cell else ""


def _details(arms: Sequence[Arm]) -> list[str]:
    """Return a text for each arm that tells it apart from the other arms of the same row.

    The text has the noise and the other settings in which the arms differ. If two texts would be equal, the arms' names
    are returned instead. A single arm gets an empty text.
    """
    if len(arms) < 2:
        return [""] * len(arms)
    noises = [arm.runs[0].noise or "no marked labels" for arm in arms]
    settings = telling_settings([arm.settings("noise.") for arm in arms])
    details = [
        ", ".join(filter(None, (noise if len(set(noises)) > 1 else "", others)))
        for noise, others in zip(noises, settings, strict=True)
    ]
    # Details can still be equal, for instance if arms differ in nothing but their names.
    return details if len(set(details)) == len(arms) else [arm.name for arm in arms]
