"""The paper's tables of scores: rows as the paper has them, then those it doesn't have; on request its own numbers.

A table is a `Layout`: which rows of the published scores it prints, what of a run's setting makes it belong to a row,
and how rows are called and grouped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from olr_cli.analysis.arms import Arm, telling_settings
from olr_cli.analysis.frame import Summary, difference
from olr_cli.analysis.tables.paper_text import to_table
from olr_cli.analysis.tables.sources import HELD_OUT, BeforeTraining, BySeed, HeldOut, Source, source_of, task
from olr_cli.evaluation.published import PublishedRow, Setting, published_table, setting_of
from olr_cli.evaluation.tables import Column
from olr_cli.tables import Table

OTHERS = "Not in the paper's table"
BASE = "base"
"""What the published scores call the policy before training."""


@dataclass(frozen=True)
class Layout:
    """What a table of the paper shows.

    Attributes:
        name: of the table in the published scores, and of ours.
        published: what to know of the published scores, for when they are shown.
        key: what of a setting makes a row; runs and published rows with the same key stand together.
        block: the title of the rows that stand together; empty for a row above all others.
        label: what a row is called within its block.
        other_label: what a row is called that the paper's table doesn't have.
        reference: the key of the row that a row's difference is to; None where there is no difference to show.
        departures: sentences on where ours is not what the row's name says, for the arms that are shown.
        tells: what of a setting, besides method and noise, tells rows apart: columns of CSV, and the order of rows
            that the paper's table doesn't have.
        reference_name: what the differences are to, as the head of a column.
        reference_in_words: the same, as a part of a sentence.
    """

    name: str
    published: str
    key: Callable[[Setting], Hashable]
    block: Callable[[Setting], str]
    label: Callable[[Setting], str]
    other_label: Callable[[Setting], str]
    reference: Callable[[Setting], Hashable]
    departures: Callable[[Sequence[Arm]], Iterator[str]]
    tells: tuple[str, ...] = ()
    reference_name: str = "GRPO"
    reference_in_words: str = "GRPO under the same noise"


@dataclass(frozen=True)
class Published:
    """A published score, and its difference to the paper's own reference row where it prints one."""

    share: float
    difference: float | None


@dataclass(frozen=True)
class PaperRow:
    """A row of the paper's table, or one of ours that it doesn't have.

    Attributes:
        block: the title of the rows that it stands with.
        label: the row's name.
        detail: which of several arms of the same name it is.
        setting: method and noise, as the published scores call them.
        arm: the name of our arm; None if there is no run.
        cells: column -> ours; a column without a value has a row without values.
        published: column -> the paper's score; empty unless it was asked for.
        below_start: how many runs ended below their own held-out accuracy before training, of how many; None for
            benchmark scores.
    """

    block: str
    label: str
    detail: str
    setting: Setting
    arm: str | None
    cells: Mapping[str, Summary]
    published: Mapping[str, Published]
    below_start: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """As the row is shown."""
        return f"{self.label} ({self.detail})" if self.detail else self.label

    @property
    def noise(self) -> str:
        """Kind and ratio; empty for methods that use no labels, and where none are marked."""
        return f"{self.setting.noise_type} {self.setting.noise_ratio}" if self.setting.noise_type else ""

    @property
    def runs(self) -> int:
        """Over how many runs the means are, at most."""
        return max((len(cell.values) for cell in self.cells.values()), default=0)


@dataclass(frozen=True)
class PaperTable:
    """Rows in the paper's order.

    Attributes:
        layout: of the table.
        columns: what is measured of each run.
        published_columns: the columns of the published scores; none unless they were asked for.
        rows: all of them.
        notes: what a reader should know.
    """

    layout: Layout
    columns: Sequence[Column]
    published_columns: Sequence[Column]
    rows: Sequence[PaperRow]
    notes: Sequence[str]

    @property
    def is_held_out(self) -> bool:
        """Whether ours are held-out accuracy; the published scores, of other columns, stand beside then, not below."""
        return tuple(self.columns) == HeldOut.columns

    def lines(self) -> Iterator[dict[str, Any]]:
        """Flat values, one line a row and column; shares from 0 to 1."""
        for row in self.rows:
            for name in dict.fromkeys(column.name for column in (*self.columns, *self.published_columns)):
                yield _line(row, name, self.layout.tells, with_published=bool(self.published_columns))

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {"rows": list(self.lines()), "notes": list(self.notes)}

    def table(self) -> Table:
        """As it is printed."""
        return to_table(self)


def _line(row: PaperRow, column: str, tells: Sequence[str], *, with_published: bool) -> dict[str, Any]:
    cell = row.cells.get(column, Summary(column, row.arm or "", {}))
    below, of = row.below_start or (None, None)
    published = row.published.get(column)
    papers = {
        "published": published.share if published else None,
        "published_difference": published.difference if published else None,
    }
    return {
        "block": row.block,
        "method": row.setting.method,
        "detail": row.detail,
        "noise": row.noise,
        **{name: _plain(getattr(row.setting, name)) for name in tells},
        "column": column,
        **{name: value for name, value in cell.plain().items() if name not in ("metric", "arm")},
        **(papers if with_published else {}),
        "below_start": below if column == HELD_OUT.name else None,
        "below_start_of": of if column == HELD_OUT.name else None,
    }


def _plain(value: Any) -> Any:
    """As a JSON value; decimals as they are written."""
    return str(value) if isinstance(value, Decimal) else value


def build(
    layout: Layout, arms: Sequence[Arm], models: Sequence[Path] = (), *, with_published: bool = False
) -> PaperTable:
    """One of the paper's tables.

    Args:
        layout: which.
        arms: ours.
        models: evaluations of policies before training, as `olr evaluate MODEL` leaves them.
        with_published: show the published scores too.

    Raises:
        UserError: a run has no labels yet, or its files are damaged.
    """
    source = source_of(arms, models)
    shown = source.published if with_published else ()
    maker = _Maker(layout, arms, source, shown)
    rows = [*maker.rows_of_the_paper(), *maker.other_rows()]
    notes = [*source.notes()]
    if with_published:
        notes += [layout.published, *maker.unlike_the_paper()]
    notes += [
        *_notes(layout, rows, source),
        *maker.unpaired(),
        *(note for arm in arms for note in arm.notes()),
        *layout.departures(arms),
    ]
    return PaperTable(layout, source.columns, shown, rows, tuple(notes))


class _Maker:
    """Makes the rows of one table; `published_columns` are those of the published scores that are shown."""

    def __init__(
        self, layout: Layout, arms: Sequence[Arm], source: Source, published_columns: Sequence[Column]
    ) -> None:
        self.layout, self.source, self.published_columns = layout, source, published_columns
        self.arms = {arm.name: arm for arm in arms}
        self.settings = {arm.name: setting_of(arm.runs[0].path) for arm in arms}
        self.by_key: defaultdict[Hashable, list[Arm]] = defaultdict(list)
        for arm in arms:
            self.by_key[layout.key(self.settings[arm.name])].append(arm)
        self.values = {arm.name: self._values(arm) for arm in arms}
        self.printed = published_table(layout.name)
        self.printed_by_key = {layout.key(each.setting): each for each in self.printed}

    def _values(self, arm: Arm) -> dict[str, BySeed]:
        """Column -> seed -> value of an arm."""
        measured = [(run.seed, self.source.values(run)) for run in arm.runs]
        return {
            column.name: {seed: values[column.name] for seed, values in measured if column.name in values}
            for column in self.source.columns
        }

    def rows_of_the_paper(self) -> Iterator[PaperRow]:
        """The rows that the paper has, with all our arms of each, or none."""
        for printed in self.printed:
            setting, block = printed.setting, self.layout.block(printed.setting)
            arms = self.by_key.get(self.layout.key(setting), [])
            label, published = self.layout.label(setting), self._published(printed)
            if setting.method == BASE:
                yield from self._before_training(printed, label, published)
            elif not arms:
                yield PaperRow(block, label, "", setting, None, {}, published)
            for arm, detail in zip(arms, _details(arms), strict=True):
                yield self._row(arm, block, label, detail, published)

    def other_rows(self) -> Iterator[PaperRow]:
        """Policies before training that the paper's table doesn't have, then our other arms, by noise."""
        for start in self.source.before_training():
            setting = Setting(start.model)
            if self.layout.key(setting) not in self.printed_by_key:
                yield self._start(start, setting, OTHERS, self.layout.other_label(setting), {})
        others = [arms for key, arms in self.by_key.items() if key not in self.printed_by_key]
        for arms in sorted(others, key=lambda arms: self._place(arms[0])):
            label = self.layout.other_label(self.settings[arms[0].name])
            for arm, detail in zip(arms, _details(arms), strict=True):
                yield self._row(arm, OTHERS, label, detail, {})

    def _place(self, arm: Arm) -> tuple[Any, ...]:
        """By noise, first what has no difference: what the others are compared with; then by what tells them apart."""
        setting = self.settings[arm.name]
        noise = setting.noise_type or "", float(setting.noise_ratio or 0)
        told = [getattr(setting, name) for name in self.layout.tells]
        order = [(value is not None, value) for value in told]
        return *noise, self._reference(arm) is not None, *order

    def _row(
        self, arm: Arm, block: str, label: str, detail: str, published: Mapping[str, Published]
    ) -> PaperRow:
        values, reference = self.values[arm.name], self._reference(arm)
        others = self.values[reference.name] if reference else {}
        cells = {
            name: Summary(name, arm.name, own, difference(own, others.get(name, {})))
            for name, own in values.items()
        }
        below = _below_start(arm, values[HELD_OUT.name]) if HELD_OUT.name in values else None
        return PaperRow(block, label, detail, self.settings[arm.name], arm.name, cells, published, below)

    def _reference(self, arm: Arm) -> Arm | None:
        """The arm that an arm's difference is to: on the same task, and among several the one most like it."""
        key = self.layout.reference(self.settings[arm.name])
        same = [each for each in self.by_key.get(key, []) if task(each.runs[0]) == task(arm.runs[0])]
        own = arm.runs[0].settings

        def unlike(other: Arm) -> int:
            theirs = other.runs[0].settings
            return sum(own.get(name) != theirs.get(name) for name in own.keys() | theirs.keys())

        return min(same, key=unlike, default=None)

    def unpaired(self) -> Iterator[str]:
        """Arms whose difference has no seed to be counted on."""
        for name, arm in self.arms.items():
            reference = self._reference(arm)
            seeds = {seed for values in self.values[name].values() for seed in values}
            if reference and seeds and seeds.isdisjoint(run.seed for run in reference.runs):
                yield f"{name} has no seed in common with {reference.name}: no paired difference."

    def _before_training(
        self, printed: PublishedRow, label: str, published: Mapping[str, Published]
    ) -> Iterator[PaperRow]:
        block, own = self.layout.block(printed.setting), self.layout.key(printed.setting)
        starts = [
            start
            for start in self.source.before_training()
            if self.layout.key(replace(printed.setting, model=start.model)) == own
        ]
        for start in starts:
            yield self._start(start, printed.setting, block, label, published)
        if not starts:
            yield PaperRow(block, label, "", printed.setting, None, {}, published)

    def _start(
        self,
        start: BeforeTraining,
        setting: Setting,
        block: str,
        label: str,
        published: Mapping[str, Published],
    ) -> PaperRow:
        cells = {
            column.name: Summary(column.name, label, start.values.get(column.name, {}))
            for column in self.source.columns
        }
        return PaperRow(block, label, start.detail, setting, label, cells, published)

    def unlike_the_paper(self) -> Iterator[str]:
        """A sentence if ours are of another task or policy than the paper's, or of more or fewer prompts."""
        if isinstance(self.source, HeldOut):
            yield (
                "The level of held-out accuracy does not compare with the published scores, of another policy on other"
                " benchmarks; orders and signs of differences do."
            )
            return
        theirs = {(each.setting.model, each.setting.train_prompts) for each in self.printed}
        ours = {(each.model, each.train_prompts) for each in self.settings.values()} - theirs
        if ours:
            named = "; ".join(f"{model}, {prompts:,} prompts" for model, prompts in sorted(ours))
            yield (
                f"Ours are of {named}: levels do not compare with the published ones, orders and signs of differences"
                " do."
            )

    def _published(self, printed: PublishedRow) -> dict[str, Published]:
        reference = self.printed_by_key.get(self.layout.reference(printed.setting))
        shares = printed.shares
        others = reference.shares if reference else {}
        return {
            column.name: Published(
                shares[column.name], shares[column.name] - others[column.name] if others else None
            )
            for column in self.published_columns
        }


def _details(arms: Sequence[Arm]) -> list[str]:
    """What tells several arms of one row apart: the noise of their data, other settings, else their names."""
    if len(arms) == 1:
        return [""]
    noises = [arm.runs[0].noise or "no marked labels" for arm in arms]
    settings = [
        {key: value for key, value in arm.runs[0].settings.items() if not key.startswith("noise.")}
        for arm in arms
    ]
    details = [
        ", ".join(filter(None, (noise if len(set(noises)) > 1 else "", others)))
        for noise, others in zip(noises, telling_settings(settings), strict=True)
    ]
    return details if len(set(details)) == len(arms) else [arm.name for arm in arms]


def _below_start(arm: Arm, ends: Mapping[int, float]) -> tuple[int, int]:
    """How many of an arm's runs ended below their held-out accuracy before training, of those that measured both."""
    starts = {run.seed: run.logged_before_training(HELD_OUT.name) for run in arm.runs}
    both = [(ends[seed], start) for seed, start in starts.items() if start is not None and seed in ends]
    return sum(end < start for end, start in both), len(both)


def _notes(layout: Layout, rows: Sequence[PaperRow], source: Source) -> Iterator[str]:
    cells = [cell for row in rows for cell in row.cells.values()]
    if any(cell.difference for cell in cells):
        yield (
            f"Differences are to {layout.reference_in_words}, in points; ours are paired by seed, with Student's 95 %"
            " interval."
        )
    if any(cell.difference and cell.difference.pairs == 1 for cell in cells):
        yield "One seed gives no sd and no interval: train more seeds."
    if isinstance(source, HeldOut):
        yield "Below start: how many of the n runs ended below their own accuracy before training."
    yield from _missing(rows, source.columns)


def _missing(rows: Sequence[PaperRow], columns: Sequence[Column]) -> Iterator[str]:
    """What is empty, by name."""
    absent: defaultdict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row.arm is None and row.setting.method != BASE:
            absent[row.block].append(row.label)
    if absent:
        named = "; ".join(f"{block.lower()}: {', '.join(labels)}" for block, labels in absent.items())
        yield f"No runs of {named}."
    for row in rows:
        empty = [
            f"the {column.title} mean" if column.is_average else column.title
            for column in columns
            if row.arm is not None and not row.cells[column.name].values
        ]
        if len(empty) == len(columns):
            yield f"No value of {row.name}{_within(row)}."
        elif empty:
            yield f"No value of {row.name}{_within(row)} in {', '.join(empty)}."


def _within(row: PaperRow) -> str:
    return f", {row.block.lower()}" if row.noise and row.block != OTHERS else ""
