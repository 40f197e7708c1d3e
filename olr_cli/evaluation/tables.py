"""Scores side by side: evaluations, and what they are compared with; benchmarks in the paper's order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from olr_cli.evaluation import scores as scoring
from olr_cli.evaluation.benchmark import registry
from olr_cli.evaluation.published import PublishedRow
from olr_cli.evaluation.scores import Difference, Group, Score, Value
from olr_cli.tables import NOTHING, Block, Row, Table, interval, percent, points
from olr_cli.tables import Column as TableColumn
from olr_cli.tables.numbers import joined

_SIDE_BY_SIDE = 5
"""Evaluations that fit into 80 columns."""

_LONGEST_HEAD = 11

_FACTS = ("problems", "samples", "majority", "truncated", "missing_answers", "mean_tokens")
"""What a line of CSV has of a score, beside its mean and interval."""

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


@dataclass(frozen=True)
class Evaluation:
    """The scores of one model or checkpoint, under a name that is unique in its table."""

    name: str
    scores: tuple[Score, ...]

    @cached_property
    def values(self) -> Mapping[str, Value]:
        """Scores and averages by name of the column."""
        return scoring.values(self.scores)


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
    differences: Sequence[Mapping[str, Difference]]


def scores_table(
    evaluations: Sequence[Evaluation], reference: Evaluation | PublishedRow | None = None
) -> Table:
    """Evaluations side by side.

    A terminal shows one evaluation in detail or several side by side, then the differences; a document a line each.

    Args:
        evaluations: at least one.
        reference: what each is compared with, benchmark by benchmark: another evaluation, paired by problem, or a
            row of the paper. It isn't compared with itself, if it is one of `evaluations`.
    """
    evaluations = [evaluation for evaluation in evaluations if evaluation is not reference] or evaluations
    columns = _columns(evaluations)
    compared = None if reference is None else _reference(evaluations, reference)
    if len(evaluations) == 1:
        blocks = [_in_detail(evaluations[0], columns)]
    else:
        firsts = range(0, len(evaluations), _SIDE_BY_SIDE)
        blocks = [_side_by_side(evaluations[first : first + _SIDE_BY_SIDE], columns) for first in firsts]
    if compared is not None:
        pairs = zip(evaluations, compared.differences, strict=True)
        blocks += [_compared(evaluation, compared, by, columns) for evaluation, by in pairs]
    sentences = list(_notes(evaluations, compared))
    return Table(
        [*blocks, _lines(evaluations, compared, columns)],
        _data(evaluations, compared),
        notes=sentences,
        footnotes=sentences,
    )


def _columns(evaluations: Sequence[Evaluation]) -> list[Column]:
    """The benchmarks that any evaluation has, and the averages, in the paper's order."""
    scores = {score.benchmark: score for evaluation in evaluations for score in evaluation.scores}
    order = [name for name in registry() if name in scores]
    columns = []
    for group in GROUPS:
        columns += [
            Column(name, scores[name].title, group)
            for name in dict.fromkeys([*order, *scores])
            if scores[name].distribution == group
        ]
        if group is not None and any(group in evaluation.values for evaluation in evaluations):
            columns.append(Column(group, "", group, is_average=True))
    return columns


def _reference(evaluations: Sequence[Evaluation], reference: Evaluation | PublishedRow) -> Reference:
    if isinstance(reference, Evaluation):
        note = f"Differences are to {reference.name}, in points, paired by problem."
        by = tuple(scoring.differences(ours.scores, reference.scores) for ours in evaluations)
        return Reference(reference.name, note, reference.values, by)
    shares = reference.shares
    note = (
        f"The paper's row is {reference.setting} ({', '.join(reference.tables)}), printed without intervals;"
        " differences are in points."
    )
    by = tuple(
        {
            name: Difference(value.share - shares[name])
            for name, value in ours.values.items()
            if name in shares
        }
        for ours in evaluations
    )
    return Reference("paper", note, {name: Value(share) for name, share in shares.items()}, by)


def _in_detail(evaluation: Evaluation, columns: Sequence[Column]) -> Block:
    scores = {score.benchmark: score for score in evaluation.scores}
    cells: dict[str, list[str]] = {}
    for name, value in evaluation.values.items():
        shares = [percent(value.share), interval(value.interval, percent) or NOTHING]
        if name not in scores:
            cells[name] = ["", "", *shares, *[""] * 4]
            continue
        score, n = scores[name], scores[name].samples
        several = [percent(score.majority), percent(score.pass_at[n])] if n > 1 else [NOTHING] * 2
        lost = [percent(score.truncated), percent(score.missing_answers)]
        cells[name] = [f"{score.problems:,}", str(n), *shares, *several, *lost]
    heads = ("problems", "n", "avg@n", "95 % interval", "maj@n", "pass@n", "cut", "no answer")
    return _block(f"{evaluation.name}, %", heads, columns, cells)


def _side_by_side(evaluations: Sequence[Evaluation], columns: Sequence[Column]) -> Block:
    cells = {
        column.name: [_share(evaluation.values, column) for evaluation in evaluations] for column in columns
    }
    return _block("avg@n, %", [evaluation.name for evaluation in evaluations], columns, cells)


def _compared(
    evaluation: Evaluation,
    reference: Reference,
    differences: Mapping[str, Difference],
    columns: Sequence[Column],
) -> Block:
    cells = {}
    for column in columns:
        if column.name in evaluation.values:
            by = differences.get(column.name)
            shares = [_share(side.values, column) for side in (evaluation, reference)]
            ends = interval(by.interval) if by else ""
            cells[column.name] = [*shares, points(by.mean if by else None), ends or NOTHING]
    name = reference.name if len(reference.name) <= _LONGEST_HEAD else "reference"
    heads = ("avg@n", name, "difference", "95 % interval")
    return _block(f"{evaluation.name} against {reference.name}, %", heads, columns, cells)


def _block(
    title: str, heads: Sequence[str], columns: Sequence[Column], cells: Mapping[str, Sequence[str]]
) -> Block:
    """A row a benchmark or average that has cells, for a terminal."""
    rows = [
        Row([column.label, *cells[column.name]], "average" if column.is_average else "")
        for column in columns
        if column.name in cells
    ]
    return Block([*map(TableColumn, ("benchmark", *heads))], rows, title, only="terminal")


def _lines(
    evaluations: Sequence[Evaluation], reference: Reference | None, columns: Sequence[Column]
) -> Block:
    """A line an evaluation, a column a benchmark; then the reference and the differences to it."""

    def shares(values: Mapping[str, Value]) -> list[str]:
        known = [values.get(column.name) for column in columns]
        return [joined(percent(it.share), interval(it.interval, percent)) if it else NOTHING for it in known]

    heads = [TableColumn(column.label, group=GROUPS[column.group], has_ends=True) for column in columns]
    rows = [Row([evaluation.name, *shares(evaluation.values)]) for evaluation in evaluations]
    if reference is not None:
        rows.append(Row([reference.name, *shares(reference.values)], "compared"))
        for evaluation, by in zip(evaluations, reference.differences, strict=True):
            name = f"difference: {evaluation.name}" if len(evaluations) > 1 else "difference"
            known = [by.get(column.name) for column in columns]
            cells = [joined(points(it.mean), interval(it.interval)) if it else NOTHING for it in known]
            rows.append(Row([name, *cells], "compared"))
    return Block([TableColumn(""), *heads], rows, only="document")


def _share(values: Mapping[str, Value], column: Column) -> str:
    return percent(values[column.name].share) if column.name in values else NOTHING


def _data(evaluations: Sequence[Evaluation], reference: Reference | None) -> dict[str, Any]:
    """As JSON values; shares from 0 to 1."""
    return {
        "evaluations": [
            {
                "name": evaluation.name,
                "scores": [score.plain() for score in evaluation.scores],
                "averages": {
                    name: asdict(value) for name, value in evaluation.values.items() if name in ("in", "out")
                },
            }
            for evaluation in evaluations
        ],
        "reference": reference
        and {
            "name": reference.name,
            "values": {name: asdict(value) for name, value in reference.values.items()},
            "differences": {
                evaluation.name: {name: asdict(difference) for name, difference in by.items()}
                for evaluation, by in zip(evaluations, reference.differences, strict=True)
            },
        },
        "notes": list(_notes(evaluations, reference, "as shares from 0 to 1")),
        "rows": list(_rows(evaluations, reference)),
    }


def _rows(evaluations: Sequence[Evaluation], reference: Reference | None) -> Iterator[dict[str, Any]]:
    """The same as flat objects: a line an evaluation and benchmark, or average."""
    for place, evaluation in enumerate(evaluations):
        scores = {score.benchmark: score.plain() for score in evaluation.scores}
        for name, value in evaluation.values.items():
            low, high = value.interval or (None, None)
            row = {"model": evaluation.name, "benchmark": name, "avg": value.share, "low": low, "high": high}
            row |= {key: scores.get(name, {}).get(key) for key in _FACTS}
            if reference is not None:
                theirs, by = reference.values.get(name), reference.differences[place].get(name)
                low, high = (by and by.interval) or (None, None)
                row |= {"reference": reference.name, "reference_avg": theirs and theirs.share}
                row |= {"difference": by and by.mean, "difference_low": low, "difference_high": high}
            yield row


def _notes(
    evaluations: Sequence[Evaluation], reference: Reference | None, unit: str = "in percent"
) -> Iterator[str]:
    """Sentences that the reader of a table should know."""
    yield f"Scores are avg@n {unit}; intervals are 95 % bootstrap intervals over problems."
    if reference is not None:
        yield reference.note
    for evaluation in evaluations:
        partial = [
            f"{score.title} {score.problems:,} of {score.whole:,}"
            for score in evaluation.scores
            if not score.is_whole
        ]
        if partial:
            yield f"{evaluation.name}: only some problems were scored ({', '.join(partial)})."
    if any(score.interval is None for evaluation in evaluations for score in evaluation.scores):
        yield "Where all problems score the same, a bootstrap sees no spread and there is no interval."
    if reference is None:
        return
    for evaluation, by in zip(evaluations, reference.differences, strict=True):
        fewer = [
            f"{score.title} {pairs}"
            for score in evaluation.scores
            if score.benchmark in by
            and (pairs := by[score.benchmark].pairs) is not None
            and pairs < score.problems
        ]
        if fewer:
            yield f"{evaluation.name}: {reference.name} has only some of the problems scored ({', '.join(fewer)})."
