"""The paper's tables of scores: the paper's rows, then ours that it doesn't have; on request its scores.

    runs ──► source (scores of runs) ──► cells by arm ─┐
                                                       ├──► rows ──► Table
    layout + published scores ─────────────────────────┘

Published scores, where they are shown, stand beside ours if ours are of another column, else on a row below.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from olr_cli.analysis.arms import Arm, measured, telling_settings
from olr_cli.analysis.frame import Lack, flat, summarise
from olr_cli.analysis.outcomes import BELOW_START, HELD_OUT, source_of, task
from olr_cli.analysis.tables.layouts import BASE, METHOD_TITLES, Layout
from olr_cli.evaluation.published import PublishedRow, Setting, published_table, setting_of
from olr_cli.tables import UNKNOWN, Block, Cell, Column, Row, Table

OTHERS = "Not in the paper's table"

Cells: TypeAlias = Mapping[str, Cell]
"""Measure -> its score, with the difference to the row that it is compared with; as far as measured."""

_Shown: TypeAlias = Callable[["PaperRow"], str | Cell]
"""What a column shows of a row."""


@dataclass(frozen=True)
class PaperRow:
    """A row of the paper's table, or one of ours that it doesn't have.

    Attributes:
        block: the title of the rows that it stands with.
        detail: which of several arms of the same label it is.
        arm: the name of our arm; None if there is no run.
        cells: ours.
        published: the paper's; empty unless they were asked for.
    """

    block: str
    label: str
    detail: str
    setting: Setting
    arm: str | None
    cells: Cells
    published: Cells

    @property
    def name(self) -> str:
        """As the row is shown."""
        return f"{self.label} ({self.detail})" if self.detail else self.label

    @property
    def noise(self) -> str:
        """Kind and ratio; empty for methods that use no labels, and where none are marked."""
        return f"{self.setting.noise_type} {self.setting.noise_ratio}" if self.setting.noise_type else ""

    @property
    def below_start(self) -> tuple[int, int] | None:
        """How many runs ended below their own held-out accuracy before training, of how many; None if unknown."""
        share = self.cells.get(BELOW_START)
        return (round(share.number * share.n), share.n) if share else None


class PaperTable:
    """One of the paper's tables, of our arms; without its scores, the rows that ours have a value of.

    `models` are evaluations of policies before training. `rows` has the paper's in its order, then our others.

    Raises:
        Lack: there is nothing to show.
    """

    def __init__(
        self,
        layout: Layout,
        arms: Sequence[Arm],
        models: Sequence[Path] = (),
        *,
        with_published: bool = False,
    ) -> None:
        self._layout, self._arms, self._source = layout, arms, source_of(arms, models)
        self._published = self._source.published if with_published else ()
        self._printed = {layout.key(row.setting): row for row in published_table(layout.name)}
        self._settings = {arm.name: setting_of(arm.runs[0].path) for arm in arms}
        self._by_key: defaultdict[Hashable, list[Arm]] = defaultdict(list)
        for arm in arms:
            self._by_key[layout.key(self._settings[arm.name])].append(arm)
        self._references = {arm.name: other for arm in arms if (other := self._reference(arm))}
        names = {arm: reference.name for arm, reference in self._references.items()}
        self._cells: defaultdict[str, dict[str, Cell]] = defaultdict(dict)
        for key, cell in summarise(measured(arms, self._source.values), names).items():
            self._cells[key.arm][key.metric] = cell
        self.rows = [*self._all_rows()]
        self.notes = [*self._notes()]
        # Rows with nothing to show are named in a note.
        self.rows = [row for row in self.rows if row.cells or row.published]
        if not self.rows:
            raise Lack(
                "held-out accuracy (data.test) or scores (`olr evaluate RUN`), and these runs have none"
            )

    # What is printed --------------------------------------------------------------------------------------------------

    def table(self) -> Table:
        """Scores in percent with sd, differences with intervals; in a terminal only held-out accuracy has either."""
        columns = [*self._columns()]
        rows: list[Row] = []
        for title, members in groupby(self.rows, lambda row: row.block):
            rows += [Row([title], "title")] if title else []
            for row in members:
                rows.append(Row([shown(row) for _, shown in columns]))
                if row.published and not self._source.is_held_out:
                    papers = replace(row, label="paper", detail="", cells=row.published)
                    rows.append(Row([shown(papers) for _, shown in columns], "published"))
        footnotes = [*self.notes]
        if not self._source.is_held_out:
            footnotes.append("For sd and intervals: --format markdown, latex or csv.")
        data = {"rows": [*self._lines()], "notes": self.notes}
        return Table([Block([column for column, _ in columns], rows)], data, self.notes, footnotes)

    def _columns(self) -> Iterator[tuple[Column, _Shown]]:
        to = f"to {METHOD_TITLES[self._layout.reference]}"
        brief, in_full = to.replace(" ", "\n"), f"{to} [95 %]"
        held_out = self._source.is_held_out
        yield Column("") if held_out else Column("scores, %", "scores, % ± sd"), lambda row: row.name
        yield Column("n"), _runs
        for score in self._source.columns:
            name = score.name
            if held_out:
                yield Column("held-out\n% ± sd", f"{score.title}, % ± sd"), partial(_in_full, name)
                yield Column(f"{to}\n[95 %]", in_full), partial(_in_full, name, is_change=True)
            elif score.is_average:
                yield Column(f"{score.title}\nmean"), partial(_cell, name)
                yield Column(brief, in_full), partial(_cell, name, is_change=True)
            else:
                yield Column(score.title), partial(_cell, name)
        if held_out:
            yield Column("below\nstart"), lambda row: "/".join(map(str, row.below_start or ()))
            for score in self._published:
                head = Column(f"paper\n{score.title}", is_dim=True)
                yield head, partial(_cell, score.name, is_published=True)
                change = partial(_cell, score.name, is_published=True, is_change=True)
                yield Column(brief, is_dim=True), change

    def _lines(self) -> Iterator[dict[str, Any]]:
        """Flat values, one line a row and column; shares from 0 to 1."""
        names = dict.fromkeys(score.name for score in (*self._source.columns, *self._published))
        varied = [self._layout.varies] if self._layout.varies else []
        for row in self.rows:
            for name in names:
                papers = row.published.get(name, UNKNOWN)
                published = {
                    "published": papers.value,
                    "published_difference": papers.change and papers.change.value,
                }
                below, of = row.below_start if row.below_start and name == HELD_OUT.name else (None, None)
                yield {
                    "block": row.block,
                    "method": row.setting.method,
                    "detail": row.detail,
                    "noise": row.noise,
                    **{field: _plain(getattr(row.setting, field)) for field in varied},
                    "column": name,
                    **flat(row.cells.get(name, UNKNOWN)),
                    **(published if self._published else {}),
                    "below_start": below,
                    "below_start_of": of,
                }

    # The rows ---------------------------------------------------------------------------------------------------------

    def _all_rows(self) -> Iterator[PaperRow]:
        """The paper's rows, with all our arms of each or none; then ours that it doesn't have, by noise."""
        layout, printed = self._layout, self._printed
        settings = [Setting(start.model) for start in self._source.starts]
        settings += sorted((self._settings[arms[0].name] for arms in self._by_key.values()), key=self._place)
        ours = {layout.key(setting): setting for setting in settings}
        for key, row in printed.items():
            block, label = layout.block(row.setting), layout.label(row.setting)
            without = PaperRow(block, label, "", row.setting, None, {}, self._papers(row))
            yield from [*self._ours(key, without)] or [without]
        for key, setting in ours.items():
            if key not in printed:
                yield from self._ours(
                    key, PaperRow(OTHERS, layout.full_label(setting), "", setting, None, {}, {})
                )

    def _ours(self, key: Hashable, row: PaperRow) -> Iterator[PaperRow]:
        for start in self._source.starts:
            if self._layout.key(Setting(start.model)) == key:
                yield replace(row, detail=start.detail, arm=row.label, cells=start.cells)
        arms = self._by_key.get(key, [])
        for arm, detail in zip(arms, _details(arms), strict=True):
            setting, cells = self._settings[arm.name], self._cells[arm.name]
            yield replace(row, detail=detail, setting=setting, arm=arm.name, cells=cells)

    def _papers(self, row: PublishedRow) -> dict[str, Cell]:
        """The paper's scores of one row, as far as they are shown, with the differences that follow from them."""
        reference = self._printed.get(self._layout.reference_key(row.setting))
        cells = {}
        for score in self._published:
            share = row.shares[score.name]
            change = Cell(share - reference.shares[score.name], "points") if reference else None
            cells[score.name] = Cell(share, change=change)
        return cells

    def _place(self, setting: Setting) -> tuple[Any, ...]:
        """By noise; first what the others are compared with; then by what the table varies."""
        noise = setting.noise_type or "", float(setting.noise_ratio or 0)
        is_compared = self._by_key[self._layout.key(setting)][0].name in self._references
        value = getattr(setting, self._layout.varies) if self._layout.varies else None
        return *noise, is_compared, value is not None, value

    def _reference(self, arm: Arm) -> Arm | None:
        """The arm that an arm's difference is to: on the same task, and among several the one most like it."""
        key = self._layout.reference_key(self._settings[arm.name])
        settings = arm.settings()

        def differences(other: Arm) -> int:
            others = other.settings()
            return sum(settings.get(name) != others.get(name) for name in settings.keys() | others.keys())

        same_task = (other for other in self._by_key.get(key, []) if task(other.runs[0]) == task(arm.runs[0]))
        return min(same_task, key=differences, default=None)

    # What a reader should know ----------------------------------------------------------------------------------------

    def _notes(self) -> Iterator[str]:
        yield from self._source.notes
        if self._published:
            yield self._layout.published
            yield (
                "The levels of ours and of the published scores compare only for the same policy, prompts and"
                " benchmarks; orders and signs of differences do."
            )
        scores = self._source.columns
        changes = [
            cell.change
            for row in self.rows
            for score in scores
            if (cell := row.cells.get(score.name)) and cell.change
        ]
        if changes:
            yield (
                f"Differences are to {self._layout.reference_in_words}, in points; ours are paired by seed, with"
                " Student's 95 % interval."
            )
        if any(change.n == 1 for change in changes):
            yield "One seed gives no sd and no interval: train more seeds."
        if self._source.is_held_out:
            yield "Below start: how many of the n runs ended below their own accuracy before training."
        yield from self._gaps()
        for arm in self._arms:
            yield from arm.notes()
        yield from self._layout.departures(self._arms)

    def _gaps(self) -> Iterator[str]:
        absent: defaultdict[str, list[str]] = defaultdict(list)
        shown = {self._layout.key(row.setting) for row in self.rows if row.arm is not None}
        for key, printed in self._printed.items():
            if key not in shown and (setting := printed.setting).method != BASE:
                absent[self._layout.block(setting)].append(self._layout.label(setting))
        if absent:
            named = "; ".join(f"{block.lower()}: {', '.join(labels)}" for block, labels in absent.items())
            yield f"No runs of {named}."
        for row in self.rows:
            if row.arm is not None and not row.cells:
                place = f", {row.block.lower()}" if row.noise and row.block != OTHERS else ""
                yield f"No value of {row.name}{place}."
        for arm in self._arms:
            reference = self._references.get(arm.name)
            seeds = {run.seed for run in arm.runs if self._source.values(run)}
            if reference and seeds and seeds.isdisjoint(run.seed for run in reference.runs):
                yield f"{arm.name} has no seed in common with {reference.name}: no paired difference."


def _runs(row: PaperRow) -> str:
    return str(max((cell.n for cell in row.cells.values()), default=0) or "")


def _cell(name: str, row: PaperRow, *, is_published: bool = False, is_change: bool = False) -> str | Cell:
    cell = (row.published if is_published else row.cells).get(name)
    return (cell.change if cell and is_change else cell) or ""


def _in_full(name: str, row: PaperRow, *, is_change: bool = False) -> str:
    """In a terminal too."""
    cell = _cell(name, row, is_change=is_change)
    return cell if isinstance(cell, str) else cell.full


def _plain(value: Any) -> Any:
    """As a JSON value; decimals as they are written."""
    return str(value) if isinstance(value, Decimal) else value


def _details(arms: Sequence[Arm]) -> list[str]:
    """What tells several arms of one row apart: the noise of their data, other settings, else their names."""
    if len(arms) < 2:
        return [""] * len(arms)
    noises = [arm.runs[0].noise or "no marked labels" for arm in arms]
    settings = telling_settings([arm.settings("noise.") for arm in arms])
    details = [
        ", ".join(filter(None, (noise if len(set(noises)) > 1 else "", others)))
        for noise, others in zip(noises, settings, strict=True)
    ]
    return details if len(set(details)) == len(arms) else [arm.name for arm in arms]
