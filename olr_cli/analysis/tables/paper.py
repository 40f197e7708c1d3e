"""The paper's tables of scores: its published rows joined with our arms, then ours that it doesn't have.

    results.csv ──► rows of the paper ────────────────┐
                                                      ├──► rows ──► Table
    runs ──► source (their scores) ──► cells by arm ──┘

What a table varies, the order of its rows and what they are compared with follow from the published scores. Runs stand
in the row of their method and noise, and of the one setting that the table varies besides; what else decides labels or
rewards (`Setting.besides`) makes a row of its own. Other settings of ours may differ from the paper's, as those of
laptop runs do: a note says so. Published scores, where they are shown, stand beside ours if ours are of another column,
else on a row below.
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
"""Methods, and parts of mixed ones, whose definition is ours in part."""

_SYMBOLS = {"slope_threshold": "delta", "warmup_epochs": "T"}

_MISPRINTS = {
    "llama_8b": " The paper's scores of GRPO under active noise on AIME25 (56.2) and AMC (19.6) look exchanged; they"
    " are shown as printed."
}

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
        published: the paper's; empty unless they were asked for.
    """

    block: str
    label: str
    setting: Setting
    detail: str = ""
    arm: str | None = None
    cells: Cells = field(default_factory=dict)
    published: Cells = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The row's name in the table."""
        return f"{self.label} ({self.detail})" if self.detail else self.label

    @property
    def below_start(self) -> tuple[int, int] | None:
        """How many runs ended below their own held-out accuracy before training, of how many; None if unknown."""
        share = self.cells.get(BELOW_START)
        return (round(share.number * share.n), share.n) if share else None


class PaperTable:
    """One of the paper's tables, of our arms; without its scores, the rows that ours have a value of.

    `models` are evaluations of policies before training. `rows` has the paper's in its order, then our others; none at
    all is a `Lack`.
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
        # Rows with nothing to show are named in a note.
        self.rows = [row for row in rows if row.cells or row.published]
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
        """Flat values, one line a row and column; shares from 0 to 1."""
        names = dict.fromkeys(
            score.name for score in (*self._source.columns, *self._published)
        )
        for row in self.rows:
            setting = row.setting
            varied = self._layout.varied(setting)
            # Decimals as they are written.
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
        """The paper's rows, with all our arms of each or none; then ours that it doesn't have, by noise."""
        rows = {}
        for key, printed in self._layout.printed.items():
            block, label = self._layout.names(printed.setting)
            rows[key] = PaperRow(
                block, label, printed.setting, published=self._papers(printed)
            )
        ours = sorted(
            (self._settings[arms[0].name] for arms in self._by_key.values()),
            key=self._place,
        )
        for setting in (*(Setting(start.model) for start in self._source.starts), *ours):
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

    def _papers(self, row: PublishedRow) -> dict[str, Cell]:
        """The paper's scores of one row, as far as they are shown, with the differences that follow from them."""
        other = self._layout.printed.get(self._layout.reference_key(row.setting))
        cells = {}
        for score in self._published:
            share = row.shares[score.name]
            change = Cell(share - other.shares[score.name], "points") if other else None
            cells[score.name] = Cell(share, change=change)
        return cells

    def _place(self, setting: Setting) -> tuple[Any, ...]:
        """Sort key: by noise, the reference first, then by the setting that the table varies."""
        noise = setting.noise_type or "", float(setting.noise_ratio or 0), setting.besides
        is_compared = self._by_key[self._layout.key(setting)][0].name in self._compared
        value = self._layout.varied(setting)
        return *noise, is_compared, value is not None, value

    def _reference_arm(self, arm: Arm) -> Arm | None:
        """The arm that an arm's difference is to: on the same task, and among several the one most like it."""
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
        same_task = (
            other for other in candidates if task(other.runs[0]) == task(arm.runs[0])
        )
        return min(same_task, key=differences, default=None)

    # What a reader should know ----------------------------------------------------------------------------------------

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
    """Sentences on where arms are not what their rows' names say, but for the field that the table varies."""
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
    """A row's score; `in_full` in a terminal too."""
    cell = (row.published if is_published else row.cells).get(name)
    cell = cell.change if cell and is_change else cell
    return (cell.full if in_full else cell) if cell else ""


def _details(arms: Sequence[Arm]) -> list[str]:
    """How several arms of one row differ: in the noise of their data, other settings, else by name."""
    if len(arms) < 2:
        return [""] * len(arms)
    noises = [arm.runs[0].noise or "no marked labels" for arm in arms]
    settings = telling_settings([arm.settings("noise.") for arm in arms])
    details = [
        ", ".join(filter(None, (noise if len(set(noises)) > 1 else "", others)))
        for noise, others in zip(noises, settings, strict=True)
    ]
    return details if len(set(details)) == len(arms) else [arm.name for arm in arms]
