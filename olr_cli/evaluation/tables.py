"""Scores side by side: evaluations, and what they are compared with; benchmarks in the paper's order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from olr_cli.evaluation.benchmark import registry
from olr_cli.evaluation.published import PublishedRow
from olr_cli.evaluation.scores import (
    Difference,
    Group,
    Interval,
    Score,
    average_intervals,
    averages,
    differences,
)
from olr_cli.tables import NOTHING, Block, Row, Table, interval, percent, points
from olr_cli.tables import Column as TableColumn
from olr_cli.tables.numbers import joined

_SIDE_BY_SIDE = 5
"""Evaluations that fit into 80 columns."""

_LONGEST_HEAD = 11

GROUPS: Mapping[Group | None, str] = {
    "in": "In-distribution",
    "out": "Out-of-distribution",
    None: "Other",
}
"""What the paper calls the benchmarks of its two averages, and ours for the rest."""


@dataclass(frozen=True)
class Column:
    """A benchmark, or the average of a group.

    Attributes:
        name: of the benchmark, or ``in`` or ``out``.
        title: the benchmark as tables call it; empty for an average.
    """

    name: str
    title: str
    group: Group | None
    is_average: bool = False

    @property
    def label(self) -> str:
        """What a row or column of it is called."""
        return {"in": "in-distribution", "out": "out-of-distr."}[self.name] if self.is_average else self.title

    def row(self, cells: Sequence[str]) -> Row:
        """A row with its label in front."""
        return Row([self.label, *cells], "average" if self.is_average else "")


@dataclass(frozen=True)
class Value:
    """A share, 0 .. 1, and its 95 % interval where one is known."""

    share: float
    interval: Interval | None = None


@dataclass(frozen=True)
class Evaluation:
    """The scores of one model or checkpoint, under a name that is unique in its table."""

    name: str
    scores: tuple[Score, ...]

    @cached_property
    def values(self) -> Mapping[str, Value]:
        """Scores and averages by name of the column."""
        intervals = average_intervals(self.scores)
        means = {group: Value(mean, intervals[group]) for group, mean in averages(self.scores).items()}
        return {score.benchmark: Value(score.avg, score.interval) for score in self.scores} | means


@dataclass(frozen=True)
class Reference:
    """What evaluations are compared with.

    Attributes:
        note: a sentence that says what it is.
        values: by name of the column.
        differences: a mapping an evaluation, in the table's order, by name of the column.
    """

    name: str
    note: str
    values: Mapping[str, Value]
    differences: tuple[Mapping[str, Difference], ...]


@dataclass(frozen=True)
class Comparison:
    """Evaluations side by side.

    Attributes:
        evaluations: at least one.
        columns: the benchmarks that any of them has, and the averages, in the paper's order.
        reference: what they are compared with, if anything.
    """

    evaluations: tuple[Evaluation, ...]
    columns: tuple[Column, ...]
    reference: Reference | None

    def table(self) -> Table:
        """In a terminal one evaluation in detail or several side by side, then the differences; else a line each."""
        if len(self.evaluations) == 1:
            blocks = [self._in_detail(self.evaluations[0])]
        else:
            firsts = range(0, len(self.evaluations), _SIDE_BY_SIDE)
            blocks = [self._side_by_side(self.evaluations[i : i + _SIDE_BY_SIDE]) for i in firsts]
        if self.reference is not None:
            pairs = zip(self.evaluations, self.reference.differences, strict=True)
            blocks += [self._compared(evaluation, self.reference, by) for evaluation, by in pairs]
        sentences = [*notes(self)]
        return Table([*blocks, self._lines()], self.plain(), notes=sentences, footnotes=sentences)

    def _in_detail(self, evaluation: Evaluation) -> Block:
        heads = ("problems", "n", "avg@n", "95 % interval", "maj@n", "pass@n", "cut", "no answer")
        scores = {score.benchmark: score for score in evaluation.scores}
        rows = []
        for column in self.columns:
            value = evaluation.values.get(column.name)
            if value is None:
                continue
            shares = [_share(value), interval(value.interval, percent) or NOTHING]
            if column.is_average:
                rows.append(column.row(["", "", *shares, *[""] * 4]))
                continue
            score = scores[column.name]
            n = score.samples
            several = [percent(score.majority), percent(score.pass_at[n])] if n > 1 else [NOTHING] * 2
            lost = [percent(score.truncated), percent(score.missing_answers)]
            rows.append(column.row([f"{score.problems:,}", str(n), *shares, *several, *lost]))
        return self._block(heads, rows, f"{evaluation.name}, %")

    def _side_by_side(self, evaluations: Sequence[Evaluation]) -> Block:
        rows = [
            column.row([_share(evaluation.values.get(column.name)) for evaluation in evaluations])
            for column in self.columns
        ]
        return self._block([evaluation.name for evaluation in evaluations], rows, "avg@n, %")

    def _compared(
        self, evaluation: Evaluation, reference: Reference, differences: Mapping[str, Difference]
    ) -> Block:
        name = reference.name if len(reference.name) <= _LONGEST_HEAD else "reference"
        rows = []
        for column in self.columns:
            if column.name in evaluation.values:
                shares = [_share(side.values.get(column.name)) for side in (evaluation, reference)]
                difference = differences.get(column.name)
                by = (
                    [points(difference.mean), interval(difference.interval) or NOTHING]
                    if difference
                    else [NOTHING] * 2
                )
                rows.append(column.row([*shares, *by]))
        title = f"{evaluation.name} against {reference.name}, %"
        return self._block(("avg@n", name, "difference", "95 % interval"), rows, title)

    def _block(self, heads: Sequence[str], rows: Sequence[Row], title: str) -> Block:
        return Block([*map(TableColumn, ("benchmark", *heads))], rows, title, only="terminal")

    def _lines(self) -> Block:
        """A line an evaluation, a column a benchmark; then the reference and the differences to it."""
        columns = [TableColumn("")]
        columns += [
            TableColumn(column.label, group=GROUPS[column.group], has_ends=True) for column in self.columns
        ]
        rows = [Row([each.name, *self._shares(each.values)]) for each in self.evaluations]
        if self.reference is not None:
            rows.append(Row([self.reference.name, *self._shares(self.reference.values)], "compared"))
            for evaluation, by in zip(self.evaluations, self.reference.differences, strict=True):
                name = f"difference: {evaluation.name}" if len(self.evaluations) > 1 else "difference"
                rows.append(Row([name, *self._differences(by)], "compared"))
        return Block(columns, rows, only="document")

    def _shares(self, values: Mapping[str, Value]) -> list[str]:
        known = (values.get(column.name) for column in self.columns)
        return [
            joined(_share(value), interval(value.interval if value else None, percent)) for value in known
        ]

    def _differences(self, differences: Mapping[str, Difference]) -> list[str]:
        known = (differences.get(column.name) for column in self.columns)
        return [joined(points(by.mean), interval(by.interval)) if by else NOTHING for by in known]

    def plain(self) -> dict[str, Any]:
        """As JSON values; shares from 0 to 1."""
        evaluations = [
            {
                "name": evaluation.name,
                "scores": [score.plain() for score in evaluation.scores],
                "averages": {
                    name: asdict(value) for name, value in evaluation.values.items() if name in ("in", "out")
                },
            }
            for evaluation in self.evaluations
        ]
        reference = None
        if self.reference is not None:
            pairs = zip(self.evaluations, self.reference.differences, strict=True)
            reference = {
                "name": self.reference.name,
                "values": {name: asdict(value) for name, value in self.reference.values.items()},
                "differences": {
                    evaluation.name: {name: asdict(difference) for name, difference in by.items()}
                    for evaluation, by in pairs
                },
            }
        return {
            "evaluations": evaluations,
            "reference": reference,
            "notes": list(notes(self, "as shares from 0 to 1")),
        }


def compare(
    evaluations: Sequence[Evaluation], reference: Evaluation | PublishedRow | None = None
) -> Comparison:
    """Put evaluations side by side.

    Args:
        evaluations: at least one.
        reference: what each is compared with, benchmark by benchmark: another evaluation, paired by problem, or a
            row of the paper. It isn't compared with itself, if it is one of `evaluations`.
    """
    evaluations = [each for each in evaluations if each is not reference] or evaluations
    compared: Reference | None = None
    if isinstance(reference, PublishedRow):
        compared = _published(evaluations, reference)
    elif reference is not None:
        compared = Reference(
            name=reference.name,
            note=f"Differences are to {reference.name}, in points, paired by problem.",
            values=reference.values,
            differences=tuple(differences(each.scores, reference.scores) for each in evaluations),
        )
    return Comparison(tuple(evaluations), _columns(evaluations), compared)


def _published(evaluations: Sequence[Evaluation], row: PublishedRow) -> Reference:
    shares = row.shares
    return Reference(
        name="paper",
        note=f"The paper's row is {row.setting} ({', '.join(row.tables)}), printed without intervals; differences are"
        " in points.",
        values={name: Value(share) for name, share in shares.items()},
        differences=tuple(
            {
                name: Difference(value.share - shares[name])
                for name, value in each.values.items()
                if name in shares
            }
            for each in evaluations
        ),
    )


def _columns(evaluations: Sequence[Evaluation]) -> tuple[Column, ...]:
    scores = {score.benchmark: score for evaluation in evaluations for score in evaluation.scores}
    order = {name: place for place, name in enumerate(registry())}
    in_order = sorted(scores.values(), key=lambda score: order.get(score.benchmark, len(order)))
    with_average = {group for evaluation in evaluations for group in GROUPS if group in evaluation.values}
    columns = []
    for group in GROUPS:
        columns += [
            Column(score.benchmark, score.title, group) for score in in_order if score.distribution == group
        ]
        if group is not None and group in with_average:
            columns.append(Column(group, "", group, is_average=True))
    return tuple(columns)


def notes(table: Comparison, unit: str = "in percent") -> Iterator[str]:
    """Sentences that the reader of a table should know."""
    yield f"Scores are avg@n {unit}; intervals are 95 % bootstrap intervals over problems."
    if table.reference is not None:
        yield table.reference.note
    for evaluation in table.evaluations:
        partial = [
            f"{score.title} {score.problems:,} of {score.whole:,}"
            for score in evaluation.scores
            if not score.is_whole
        ]
        if partial:
            yield f"{evaluation.name}: only some problems were scored ({', '.join(partial)})."
    if any(score.interval is None for evaluation in table.evaluations for score in evaluation.scores):
        yield "Where all problems score the same, a bootstrap sees no spread and there is no interval."
    if table.reference is None:
        return
    for evaluation, by_column in zip(table.evaluations, table.reference.differences, strict=True):
        fewer = [
            f"{score.title} {pairs}"
            for score in evaluation.scores
            if score.benchmark in by_column
            and (pairs := by_column[score.benchmark].pairs) is not None
            and pairs < score.problems
        ]
        if fewer:
            other = table.reference.name
            yield f"{evaluation.name}: {other} has only some of the problems scored ({', '.join(fewer)})."


def _share(value: Value | None) -> str:
    return percent(value.share if value else None)
