"""The paper's tables of scores: the paper's rows, then ours that it doesn't have; on request its scores.

    runs ──► source (scores by column and seed) ─┐
                                                 ├──► rows ──► Table
    layout + published scores ───────────────────┘

Published scores, where they are shown, stand beside ours if ours are of another column, else on a row below.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import Any

from olr_cli.analysis.arms import Arm, measured, telling_settings
from olr_cli.analysis.frame import Summary, difference, summarise
from olr_cli.analysis.outcomes import BELOW_START, HELD_OUT, Source, source_of, task
from olr_cli.analysis.tables.arms import difference_cell, mean_and_sd
from olr_cli.analysis.tables.layouts import BASE, TITLES, Layout
from olr_cli.evaluation.published import PublishedRow, Setting, published_table, setting_of
from olr_cli.evaluation.tables import ScoreColumn
from olr_cli.tables import Block, Cell, Column, Row, Table, percent, points

OTHERS = "Not in the paper's table"


@dataclass(frozen=True)
class PaperRow:
    """A row of the paper's table, or one of ours that it doesn't have.

    Attributes:
        block: the title of the rows that it stands with.
        label: the row's name.
        detail: which of several arms of the same name it is.
        setting: method and noise, as the published scores call them.
        arm: the name of our arm; None if there is no run.
        cells: column -> ours, as far as measured.
        published: column -> the paper's score, as that of one seed; empty unless it was asked for.
    """

    block: str
    label: str
    detail: str
    setting: Setting
    arm: str | None
    cells: Mapping[str, Summary]
    published: Mapping[str, Summary]

    @property
    def below_start(self) -> tuple[int, int] | None:
        """How many runs ended below their own held-out accuracy before training, of how many; None if unknown."""
        values = self.cell(BELOW_START).values.values()
        return (round(sum(values)), len(values)) if values else None

    @property
    def name(self) -> str:
        """As the row is shown."""
        return f"{self.label} ({self.detail})" if self.detail else self.label

    def cell(self, column: str) -> Summary:
        """Ours; without values where nothing was measured."""
        return self.cells.get(column, Summary(column, self.arm or "", {}))

    @property
    def noise(self) -> str:
        """Kind and ratio; empty for methods that use no labels, and where none are marked."""
        return f"{self.setting.noise_type} {self.setting.noise_ratio}" if self.setting.noise_type else ""


@dataclass(frozen=True)
class PaperTable:
    """Rows in the paper's order; `published` are the columns of the paper's scores that are shown."""

    layout: Layout
    source: Source
    published: Sequence[ScoreColumn]
    rows: Sequence[PaperRow]
    notes: Sequence[str]

    def table(self) -> Table:
        """Scores in percent with sd, differences with intervals; in a terminal only held-out accuracy has either."""
        rows: list[Row] = []
        for title, members in groupby(self.rows, lambda row: row.block):
            rows += [Row([title], "title")] if title else []
            for row in members:
                rows.append(Row([*self._our_cells(row)]))
                if row.published and not self.source.is_held_out:
                    rows.append(Row([*self._paper_cells(row)], "published"))
        footnotes = [*self.notes]
        if not self.source.is_held_out:
            footnotes.append("For sd and intervals: --format markdown, latex or csv.")
        data = {"rows": [*self._lines()], "notes": list(self.notes)}
        return Table([Block([*self._columns()], rows)], data, self.notes, footnotes)

    def _columns(self) -> Iterator[Column]:
        to = f"to {TITLES[self.layout.reference]}"
        brief = to.replace(" ", "\n")
        if self.source.is_held_out:
            yield from (Column(""), Column("n"))
            yield Column("held-out\n% ± sd", f"{HELD_OUT.title}, % ± sd")
            yield from (Column(f"{to}\n[95 %]", f"{to} [95 %]"), Column("below\nstart"))
            for score in self.published:
                yield from (Column(f"paper\n{score.title}", is_dim=True), Column(brief, is_dim=True))
            return
        yield from (Column("scores, %", "scores, % ± sd"), Column("n"))
        for score in self.source.columns:
            if score.is_average:
                yield from (Column(f"{score.title}\nmean"), Column(brief, f"{to} [95 %]"))
            else:
                yield Column(score.title)

    def _our_cells(self, row: PaperRow) -> Iterator[str | Cell]:
        held_out = self.source.is_held_out
        runs = max((len(cell.values) for cell in row.cells.values()), default=0)
        yield from (row.name, str(runs or ""))
        for score in self.source.columns:
            cell = row.cell(score.name)
            full = mean_and_sd(cell)
            yield Cell(full if held_out else percent(cell.mean, ""), full)
            if held_out or score.is_average:
                change = difference_cell(cell.difference)
                yield change.full if held_out else change
        if held_out:
            yield "{}/{}".format(*row.below_start) if row.below_start else ""
            for score in self.published:
                yield from _published_cells(row, score)

    def _paper_cells(self, row: PaperRow) -> Iterator[str]:
        yield from ("paper", "")
        for score in self.source.columns:
            yield from _published_cells(row, score)[: 1 + score.is_average]

    def _lines(self) -> Iterator[dict[str, Any]]:
        """Flat values, one line a row and column; shares from 0 to 1."""
        names = dict.fromkeys(score.name for score in (*self.source.columns, *self.published))
        for row in self.rows:
            for name in names:
                published = row.published.get(name)
                change = published.difference if published else None
                papers = {
                    "published": published.mean if published else None,
                    "published_difference": change.mean if change else None,
                }
                below, of = row.below_start if row.below_start and name == HELD_OUT.name else (None, None)
                varied = [self.layout.varies] if self.layout.varies else []
                yield {
                    "block": row.block,
                    "method": row.setting.method,
                    "detail": row.detail,
                    "noise": row.noise,
                    **{field: _plain(getattr(row.setting, field)) for field in varied},
                    "column": name,
                    **{
                        key: value
                        for key, value in row.cell(name).plain().items()
                        if key not in ("metric", "arm")
                    },
                    **(papers if self.published else {}),
                    "below_start": below,
                    "below_start_of": of,
                }


def _published_cells(row: PaperRow, score: ScoreColumn) -> tuple[str, str]:
    published = row.published.get(score.name)
    if published is None:
        return "", ""
    change = published.difference
    return percent(published.mean, ""), points(change.mean if change else None, "")


def _plain(value: Any) -> Any:
    """As a JSON value; decimals as they are written."""
    return str(value) if isinstance(value, Decimal) else value


def paper_table(
    layout: Layout, arms: Sequence[Arm], models: Sequence[Path] = (), *, with_published: bool = False
) -> PaperTable:
    """One of the paper's tables, of our arms, and of `models`: evaluations of policies before training."""
    source = source_of(arms, models)
    rows = _Rows(layout, arms, source, source.published if with_published else ())
    shown = [*rows.of_the_paper(), *rows.others()]
    notes = [
        *source.notes,
        *([layout.published, *rows.unlike_the_paper()] if with_published else []),
        *_notes(layout, shown, source),
        *rows.unpaired(),
        *(note for arm in arms for note in arm.notes()),
        *layout.departures(arms),
    ]
    return PaperTable(layout, source, rows.published, shown, notes)


class _Rows:
    """The rows of one table; `published` are the columns of the paper's scores that are shown."""

    def __init__(
        self, layout: Layout, arms: Sequence[Arm], source: Source, published: Sequence[ScoreColumn]
    ) -> None:
        self.layout, self.arms, self.source, self.published = layout, arms, source, published
        self.settings = {arm.name: setting_of(arm.runs[0].path) for arm in arms}
        self.by_key: defaultdict[Hashable, list[Arm]] = defaultdict(list)
        for arm in arms:
            self.by_key[layout.key(self.settings[arm.name])].append(arm)
        self.values: defaultdict[str, dict[str, Mapping[int, float]]] = defaultdict(dict)
        for score in summarise(measured(arms, source.values)):
            self.values[score.arm][score.metric] = score.values
        self.printed = {layout.key(row.setting): row for row in published_table(layout.name)}

    def of_the_paper(self) -> Iterator[PaperRow]:
        """The rows that the paper has, with all our arms of each, or none."""
        for key, printed in self.printed.items():
            setting = printed.setting
            block, label = self.layout.block(setting), self.layout.label(setting)
            ours = list(self._rows_of(key, block, label, setting, self._published(printed)))
            yield from ours or [PaperRow(block, label, "", setting, None, {}, self._published(printed))]

    def others(self) -> Iterator[PaperRow]:
        """Policies before training that the paper's table doesn't have, then our other arms, by noise."""
        arms = (self.settings[arms[0].name] for arms in self.by_key.values())
        settings = [*(Setting(start.model) for start in self.source.starts), *sorted(arms, key=self._place)]
        for key, setting in {self.layout.key(setting): setting for setting in settings}.items():
            if key not in self.printed:
                yield from self._rows_of(key, OTHERS, self.layout.full_label(setting), setting, {})

    def _rows_of(
        self, key: Hashable, block: str, label: str, setting: Setting, published: Mapping[str, Summary]
    ) -> Iterator[PaperRow]:
        """The policies before training, and our arms, of one row."""
        for start in self.source.starts:
            if self.layout.key(Setting(start.model)) == key:
                cells = {name: Summary(name, label, values) for name, values in start.values.items()}
                yield PaperRow(block, label, start.detail, setting, label, cells, published)
        arms = self.by_key.get(key, [])
        for arm, detail in zip(arms, _details(arms), strict=True):
            reference = self._reference(arm)
            others = self.values[reference.name] if reference else {}
            cells = {
                name: Summary(name, arm.name, values, difference(values, others.get(name, {})))
                for name, values in self.values[arm.name].items()
            }
            yield PaperRow(block, label, detail, self.settings[arm.name], arm.name, cells, published)

    def _place(self, setting: Setting) -> tuple[Any, ...]:
        """By noise; first what the others are compared with; then by what the table varies."""
        noise = setting.noise_type or "", float(setting.noise_ratio or 0)
        is_compared = self._reference(self.by_key[self.layout.key(setting)][0]) is not None
        value = getattr(setting, self.layout.varies) if self.layout.varies else None
        return *noise, is_compared, value is not None, value

    def _reference(self, arm: Arm) -> Arm | None:
        """The arm that an arm's difference is to: on the same task, and among several the one most like it."""
        key = self.layout.reference_key(self.settings[arm.name])
        settings = arm.settings()

        def differences(other: Arm) -> int:
            others = other.settings()
            return sum(settings.get(name) != others.get(name) for name in settings.keys() | others.keys())

        same_task = (other for other in self.by_key.get(key, []) if task(other.runs[0]) == task(arm.runs[0]))
        return min(same_task, key=differences, default=None)

    def unpaired(self) -> Iterator[str]:
        """Arms whose difference has no seed to be counted on."""
        for arm in self.arms:
            reference = self._reference(arm)
            seeds = {run.seed for run in arm.runs if self.source.values(run)}
            if reference and seeds and seeds.isdisjoint(run.seed for run in reference.runs):
                yield f"{arm.name} has no seed in common with {reference.name}: no paired difference."

    def unlike_the_paper(self) -> Iterator[str]:
        """A sentence if ours are of another task or policy than the paper's, or of more or fewer prompts."""
        if self.source.is_held_out:
            yield (
                "The level of held-out accuracy does not compare with the published scores, of another policy on other"
                " benchmarks; orders and signs of differences do."
            )
            return
        theirs = {(row.setting.model, row.setting.train_prompts) for row in self.printed.values()}
        ours = {(setting.model, setting.train_prompts) for setting in self.settings.values()} - theirs
        if ours:
            named = "; ".join(f"{model}, {prompts:,} prompts" for model, prompts in sorted(ours))
            yield (
                f"Ours are of {named}: levels do not compare with the published ones, orders and signs of differences"
                " do."
            )

    def _published(self, printed: PublishedRow) -> dict[str, Summary]:
        reference = self.printed.get(self.layout.reference_key(printed.setting))
        others = reference.shares if reference else {}
        return {
            score.name: Summary(
                score.name,
                "paper",
                {0: printed.shares[score.name]},
                difference({0: printed.shares[score.name]}, {0: others[score.name]} if others else {}),
            )
            for score in self.published
        }


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


def _notes(layout: Layout, rows: Sequence[PaperRow], source: Source) -> Iterator[str]:
    changes = [
        change for row in rows for score in source.columns if (change := row.cell(score.name).difference)
    ]
    if changes:
        yield (
            f"Differences are to {layout.reference_in_words}, in points; ours are paired by seed, with Student's 95 %"
            " interval."
        )
    if any(change.pairs == 1 for change in changes):
        yield "One seed gives no sd and no interval: train more seeds."
    if source.is_held_out:
        yield "Below start: how many of the n runs ended below their own accuracy before training."
    absent: defaultdict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row.arm is None and row.setting.method != BASE:
            absent[row.block].append(row.label)
    if absent:
        named = "; ".join(f"{block.lower()}: {', '.join(labels)}" for block, labels in absent.items())
        yield f"No runs of {named}."
    for row in rows:
        empty = [score for score in source.columns if row.arm is not None and not row.cell(score.name).values]
        if empty:
            titles = [f"the {score.title} mean" if score.is_average else score.title for score in empty]
            place = f", {row.block.lower()}" if row.noise and row.block != OTHERS else ""
            columns = f" in {', '.join(titles)}" if len(empty) < len(source.columns) else ""
            yield f"No value of {row.name}{place}{columns}."
