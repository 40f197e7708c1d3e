"""Scores side by side: evaluations, and what they are compared with; benchmarks in the paper's order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

from olr_cli.evaluation import scores as scoring
from olr_cli.evaluation.benchmark import registry
from olr_cli.evaluation.published import PublishedRow
from olr_cli.evaluation.scores import Group, Score
from olr_cli.tables import NOTHING, UNKNOWN, Block, Cell, Column, Row, Table, percent

_SIDE_BY_SIDE = 5
"""Evaluations that fit into 80 columns."""

_LONGEST_HEAD = 11

_FACTS = (
    "problems",
    "samples",
    "majority",
    "truncated",
    "missing_answers",
    "mean_tokens",
    "unfinished_thoughts",
)
"""What a line of CSV has of a score, beside its mean and interval."""

GROUPS: Mapping[Group | None, str] = {"in": "In-distribution", "out": "Out-of-distribution", None: "Other"}
"""What the paper calls the benchmarks of its two averages, and ours for the rest."""


@dataclass(frozen=True)
class ScoreColumn:
    """A benchmark, or the average of a group.

    Attributes:
        name: the benchmark's name, or ``in`` or ``out``.
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


Cells: TypeAlias = Mapping[str, Cell]
"""Scores and averages by name of the column."""


@dataclass(frozen=True)
class NamedScores:
    """The scores of one model or checkpoint, under a name that is unique in its table.

    Attributes:
        notes: sentences about how they were made, for under the table.
    """

    name: str
    scores: tuple[Score, ...]
    notes: tuple[str, ...] = ()

    @cached_property
    def cells(self) -> Cells:
        """Scores and averages."""
        return scoring.estimates(self.scores)


@dataclass(frozen=True)
class Reference:
    """What evaluations are compared with, with a sentence that says so, and notes as of `NamedScores`."""

    name: str
    note: str
    cells: Cells
    notes: tuple[str, ...] = ()


_Rows: TypeAlias = Sequence[tuple[NamedScores, Cells]]
"""Evaluations, each with its cells, which have the differences to a reference."""


def scores_table(
    evaluations: Sequence[NamedScores], reference: NamedScores | PublishedRow | None = None
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
    rows: _Rows = [(evaluation, _compared(evaluation, reference)) for evaluation in evaluations]
    compared = None if reference is None else _reference(reference)
    if len(evaluations) == 1:
        blocks = [_in_detail(evaluations[0], columns)]
    else:
        firsts = range(0, len(evaluations), _SIDE_BY_SIDE)
        blocks = [_side_by_side(evaluations[first : first + _SIDE_BY_SIDE], columns) for first in firsts]
    if compared is not None:
        blocks += [_against(evaluation, compared, cells, columns) for evaluation, cells in rows]
    blocks.append(_document(rows, compared, columns))
    sentences = list(_notes(rows, compared))
    return Table(blocks, _data(rows, compared), notes=sentences, footnotes=sentences)


def _columns(evaluations: Sequence[NamedScores]) -> list[ScoreColumn]:
    """The benchmarks that any evaluation has, and the averages, in the paper's order."""
    scores = {score.benchmark: score for evaluation in evaluations for score in evaluation.scores}
    order = [name for name in registry() if name in scores]
    columns = []
    for group in GROUPS:
        columns += [
            ScoreColumn(name, scores[name].title, group)
            for name in dict.fromkeys([*order, *scores])
            if scores[name].distribution == group
        ]
        if group is not None and any(group in evaluation.cells for evaluation in evaluations):
            columns.append(ScoreColumn(group, "", group, is_average=True))
    return columns


def _reference(reference: NamedScores | PublishedRow) -> Reference:
    if isinstance(reference, NamedScores):
        note = f"Differences are to {reference.name}, in points, paired by problem."
        return Reference(reference.name, note, reference.cells, reference.notes)
    note = (
        f"The paper's row is {reference.setting} ({', '.join(reference.tables)}): 8 samples of AIME and AMC, the"
        " authors' grader, no intervals; differences are in points."
    )
    return Reference("paper", note, {name: Cell(share) for name, share in reference.shares.items()})


def _compared(evaluation: NamedScores, reference: NamedScores | PublishedRow | None) -> Cells:
    """The cells of an evaluation, with their differences to the reference's."""
    changes: Cells = {}
    if isinstance(reference, NamedScores):
        changes = scoring.paired_differences(evaluation.scores, reference.scores)
    elif reference is not None:
        shares = reference.shares
        changes = {
            name: Cell(cell.number - shares[name], "points")
            for name, cell in evaluation.cells.items()
            if name in shares
        }
    return {name: replace(cell, change=changes.get(name)) for name, cell in evaluation.cells.items()}


def _document(rows: _Rows, reference: Reference | None, columns: Sequence[ScoreColumn]) -> Block:
    """A row an evaluation; then the reference, and the differences to it."""

    def row(name: str, cells: Cells, kind: Literal["", "compared"] = "") -> Row:
        return Row([name, *(cells.get(column.name, UNKNOWN) for column in columns)], kind)

    lines = [row(evaluation.name, cells) for evaluation, cells in rows]
    if reference is not None:
        lines.append(row(reference.name, reference.cells, "compared"))
        for evaluation, cells in rows:
            name = f"difference: {evaluation.name}" if len(rows) > 1 else "difference"
            lines.append(row(name, _changes(cells), "compared"))
    heads = [Column(column.label, group=GROUPS[column.group], has_ends=True) for column in columns]
    return Block([Column(""), *heads], lines, only="document")


def _changes(cells: Cells) -> dict[str, Cell]:
    return {name: cell.change for name, cell in cells.items() if cell.change}


def _in_detail(evaluation: NamedScores, columns: Sequence[ScoreColumn]) -> Block:
    scores = {score.benchmark: score for score in evaluation.scores}
    thinks = any(score.unfinished_thoughts is not None for score in scores.values())
    heads = ["problems", "n", "avg@n", "95 % interval", "maj@n", "pass@n", "cut", "no answer"]
    rows = []
    for column in columns:
        cell, score = evaluation.cells[column.name], scores.get(column.name)
        if score is None:
            rows.append((column, ["", "", *_parts(cell), *[""] * (4 + thinks)]))
            continue
        several = [score.majority, score.pass_at[score.samples]] if score.samples > 1 else [None, None]
        lost = [score.truncated, score.missing_answers, *([score.unfinished_thoughts] if thinks else [])]
        counts = [f"{score.problems:,}", str(score.samples)]
        rows.append((column, [*counts, *_parts(cell), *map(percent, [*several, *lost])]))
    return _block(f"{evaluation.name}, %", [*heads, "think"] if thinks else heads, rows)


def _side_by_side(evaluations: Sequence[NamedScores], columns: Sequence[ScoreColumn]) -> Block:
    rows = [(column, [it.cells.get(column.name, UNKNOWN).brief for it in evaluations]) for column in columns]
    return _block("avg@n, %", [evaluation.name for evaluation in evaluations], rows)


def _against(
    evaluation: NamedScores, reference: Reference, cells: Cells, columns: Sequence[ScoreColumn]
) -> Block:
    """An evaluation, the reference, and the differences between them."""
    rows = []
    for column in columns:
        if (cell := cells.get(column.name)) is not None:
            theirs = reference.cells.get(column.name, UNKNOWN)
            rows.append((column, [cell.brief, theirs.brief, *_parts(cell.change or UNKNOWN)]))
    name = reference.name if len(reference.name) <= _LONGEST_HEAD else "reference"
    heads = ("avg@n", name, "difference", "95 % interval")
    return _block(f"{evaluation.name} against {reference.name}, %", heads, rows)


def _parts(cell: Cell) -> tuple[str, str]:
    """A value and its interval."""
    return cell.brief, cell.interval or NOTHING


def _block(title: str, heads: Sequence[str], rows: Iterable[tuple[ScoreColumn, Sequence[str]]]) -> Block:
    """A row a benchmark or average, for a terminal."""
    shown = [Row([column.label, *texts], "average" if column.is_average else "") for column, texts in rows]
    return Block([*map(Column, ("benchmark", *heads))], shown, title, only="terminal")


def _data(rows: _Rows, reference: Reference | None) -> dict[str, Any]:
    """As JSON values; shares from 0 to 1."""

    def plain(cells: Cells) -> dict[str, Any]:
        return {name: {"share": cell.value, "interval": cell.ends} for name, cell in cells.items()}

    def differences(cells: Cells) -> dict[str, Any]:
        return {
            name: {"mean": change.value, "interval": change.ends, "pairs": change.n or None}
            for name, change in _changes(cells).items()
        }

    return {
        "evaluations": [
            {
                "name": evaluation.name,
                "scores": [score.plain() for score in evaluation.scores],
                "averages": plain({name: cell for name, cell in cells.items() if name in ("in", "out")}),
            }
            for evaluation, cells in rows
        ],
        "reference": reference
        and {
            "name": reference.name,
            "values": plain(reference.cells),
            "differences": {evaluation.name: differences(cells) for evaluation, cells in rows},
        },
        "notes": list(_notes(rows, reference, "as shares from 0 to 1")),
        "rows": list(_lines(rows, reference)),
    }


def _lines(rows: _Rows, reference: Reference | None) -> Iterator[dict[str, Any]]:
    """Flat lines for CSV: one an evaluation and benchmark, or average."""
    for evaluation, cells in rows:
        scores = {score.benchmark: score.plain() for score in evaluation.scores}
        for name, cell in cells.items():
            line = {"model": evaluation.name, "benchmark": name, **cell.flat("avg", "low", "high")}
            line |= {key: scores.get(name, {}).get(key) for key in _FACTS}
            if reference is not None:
                line |= {"reference": reference.name}
                line |= {"reference_avg": reference.cells.get(name, UNKNOWN).value}
                change = cell.change or UNKNOWN
                line |= change.flat("difference", "difference_low", "difference_high")
            yield line


def _notes(rows: _Rows, reference: Reference | None, unit: str = "in percent") -> Iterator[str]:
    """Sentences that the reader of a table should know."""
    yield f"Scores are avg@n {unit}; intervals are 95 % bootstrap intervals over problems."
    if reference is not None:
        yield reference.note
    noted: list[NamedScores | Reference] = [evaluation for evaluation, _ in rows]
    if reference is not None and reference.notes:
        noted.append(reference)
    shared = [note for note in noted[0].notes if all(note in it.notes for it in noted)]
    yield from shared
    for it in noted:
        yield from (f"{it.name}: {note}" for note in it.notes if note not in shared)
    for evaluation, _ in rows:
        partial = [
            f"{score.title} {score.problems:,} of {score.whole:,}"
            for score in evaluation.scores
            if not score.is_whole
        ]
        if partial:
            yield f"{evaluation.name}: only some problems were scored ({', '.join(partial)})."
    if any(score.unfinished_thoughts for evaluation, _ in rows for score in evaluation.scores):
        yield (
            "Responses that end inside <think> have no answer and count as cut (column think); a larger"
            " --max-new-tokens lets them finish."
        )
    if any(score.interval is None for evaluation, _ in rows for score in evaluation.scores):
        yield "Where all problems score the same, a bootstrap sees no spread and there is no interval."
    for evaluation, cells in rows:
        changes = _changes(cells)
        fewer = [
            f"{score.title} {common}"
            for score in evaluation.scores
            if 0 < (common := changes.get(score.benchmark, UNKNOWN).n) < score.problems
        ]
        if fewer and reference is not None:
            yield f"{evaluation.name}: {reference.name} has only some of the problems scored ({', '.join(fewer)})."
