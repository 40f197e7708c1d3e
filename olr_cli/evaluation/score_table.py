"""One table of evaluations: side by side or in detail, next to a reference, and with a row for each score as CSV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

from olr_cli.evaluation import scores as scoring
from olr_cli.evaluation.benchmark import registry
from olr_cli.evaluation.published import PublishedRow
from olr_cli.evaluation.scores import Group, Score, ScoreColumn
from olr_cli.tables import NOTHING, UNKNOWN, Block, Cell, Column, Row, Table, percent

_SIDE_BY_SIDE = 5
"""Number of evaluations that fit into 80 columns."""

_LONGEST_HEAD = 11
"""Longest name of a reference that fits into the head of its column."""

_FACTS = (
    "problems",
    "samples",
    "majority",
    "truncated",
    "missing_answers",
    "mean_tokens",
    "unfinished_thoughts",
)
"""Attributes of a score that are columns of the CSV, in addition to its mean and interval."""

GROUPS: Mapping[Group | None, str] = {
    "in": "In-distribution",
    "out": "Out-of-distribution",
    None: "Other",
}
"""Group of benchmarks -> its heading; the first two groups are the paper's."""

Cells: TypeAlias = Mapping[str, Cell]
"""Scores and averages by name of the column. An evaluation's cells also have the differences to the reference."""


@dataclass(frozen=True)
class NamedScores:
    """The scores of one model or checkpoint, under the name that a table shows.

    The fields `model`, `folder`, `run` and `step` describe the stored evaluation. They are None if the scores only
    serve as a reference for other scores.
    """

    name: str
    """Name that is unique in the table."""

    scores: tuple[Score, ...]
    notes: tuple[str, ...] = field(default=(), repr=False)
    """Sentences about how the scores were made, for below the table."""

    model: str | None = None
    folder: Path | None = None
    run: str | None = None
    step: int | None = None
    before: NamedScores | None = field(default=None, repr=False)
    """Scores of the same samples under the keys that have been corrected since."""

    @cached_property
    def cells(self) -> Cells:
        """Name -> table cell with an interval, for each benchmark and each average (in- and out-of-distribution)."""
        return scoring.estimates(self.scores)

    @property
    def sentence(self) -> str:
        """Note for a table that compares other scores with these. It says how the differences are computed."""
        return f"Differences are to {self.name}, in points, paired by problem."

    def compared(self, reference: Reference | None) -> Cells:
        """Return the scores and averages as table cells whose `change` is the difference to a reference.

        A cell's `change` is None if the reference lacks that score or average, or if there is no reference. Differences
        to an evaluation are paired by problem. Differences to the paper's row are differences of means, because the
        paper prints no scores of problems.
        """
        changes: Cells = {}
        if isinstance(reference, NamedScores):
            changes = scoring.paired_differences(self.scores, reference.scores)
        elif reference is not None:
            # The paper prints no scores by problem, so its differences are neither paired nor have an interval.
            shares = reference.shares
            common = self.cells.keys() & shares.keys()
            changes = {
                name: Cell(self.cells[name].number - shares[name], "points")
                for name in common
            }
        return {
            name: replace(cell, change=changes.get(name))
            for name, cell in self.cells.items()
        }


Reference: TypeAlias = NamedScores | PublishedRow
_Rows: TypeAlias = Sequence[tuple[NamedScores, Cells]]


def scores_table(
    evaluations: Sequence[NamedScores], reference: Reference | None = None
) -> Table:
    """Return the table of evaluations, with benchmarks in the paper's order.

    A terminal shows one evaluation in detail, or several side by side, and then the differences. A document has a row
    for each evaluation.

    Args:
        evaluations: at least one. If the reference is among several, it is shown only as the reference.
        reference: the scores to compare with; None: there are none. An evaluation that has scores from before its golds
            were corrected (`NamedScores.before`) is compared with its own old scores instead.
    """
    evaluations = [
        evaluation for evaluation in evaluations if evaluation is not reference
    ] or evaluations
    columns = _columns(evaluations)
    rows: _Rows = [
        (evaluation, evaluation.compared(evaluation.before or reference))
        for evaluation in evaluations
    ]
    if len(evaluations) == 1:
        blocks = [_in_detail(evaluations[0], columns)]
    else:
        firsts = range(0, len(evaluations), _SIDE_BY_SIDE)
        blocks = [
            _side_by_side(evaluations[first : first + _SIDE_BY_SIDE], columns)
            for first in firsts
        ]
    blocks += [
        _against(evaluation.name, other, cells, columns)
        for evaluation, cells in rows
        if (other := evaluation.before or reference) is not None
    ]
    blocks.append(_document(rows, reference, columns))
    sentences = list(_sentences(rows, reference))
    lines = [
        _line(evaluation, name, cell, evaluation.before or reference)
        for evaluation, cells in rows
        for name, cell in cells.items()
    ]
    return Table(blocks, lines, notes=sentences, footnotes=sentences)


def _columns(evaluations: Sequence[NamedScores]) -> list[ScoreColumn]:
    """Return the benchmarks that any evaluation has, and the averages, in the paper's order.

    An average is included if some evaluation has all benchmarks that belong to the average.
    """
    scores = {
        score.benchmark: score for evaluation in evaluations for score in evaluation.scores
    }
    names = dict.fromkeys([*(name for name in registry() if name in scores), *scores])
    columns = []
    # A column for an average makes sense only if some evaluation has all of the group's benchmarks.
    for group in GROUPS:
        in_group = [name for name in names if scores[name].distribution == group]
        columns += [ScoreColumn(name, scores[name].title, group) for name in in_group]
        if group is not None and any(
            group in evaluation.cells for evaluation in evaluations
        ):
            columns.append(ScoreColumn(group, "", group, is_average=True))
    return columns


def _document(
    rows: _Rows, reference: Reference | None, columns: Sequence[ScoreColumn]
) -> Block:
    """Return the block for documents (Markdown, LaTeX): a row for each evaluation, each reference, and each difference.

    Args:
        rows: each evaluation, with its cells and their differences.
        reference: the scores that all evaluations are compared with. None if nothing is compared, or if each evaluation
            is compared with its own scores from before its golds were corrected (`NamedScores.before`).
        columns: the benchmarks and averages.
    """

    def row(name: str, cells: Cells, kind: Literal["", "compared"] = "") -> Row:
        return Row([name, *(cells.get(column.name, UNKNOWN) for column in columns)], kind)

    lines = [row(evaluation.name, cells) for evaluation, cells in rows]
    for it, _ in rows:
        if it.before is not None:
            lines.append(row(f"{it.name}, {it.before.name}", it.before.cells, "compared"))
    if reference is not None:
        lines.append(row(reference.name, reference.cells, "compared"))
    for evaluation, cells in rows:
        if evaluation.before or reference:
            name = f"difference: {evaluation.name}" if len(rows) > 1 else "difference"
            lines.append(row(name, _changes(cells), "compared"))
    heads = [
        Column(column.label, group=GROUPS[column.group], has_ends=True)
        for column in columns
    ]
    return Block([Column("avg@n, %"), *heads], lines, only="document")


def _changes(cells: Cells) -> dict[str, Cell]:
    """Return name -> difference for the cells that have a difference."""
    return {name: cell.change for name, cell in cells.items() if cell.change}


def _in_detail(evaluation: NamedScores, columns: Sequence[ScoreColumn]) -> Block:
    """Return the terminal's block for a single evaluation: a row with all numbers for each benchmark or average."""
    scores = {score.benchmark: score for score in evaluation.scores}
    thinks = any(score.unfinished_thoughts is not None for score in scores.values())
    heads = [
        "problems",
        "n",
        "avg@n",
        "95 % interval",
        "maj@n",
        "pass@n",
        "cut",
        "no answer",
    ]
    rows = []
    for column in columns:
        parts, score = _parts(evaluation.cells[column.name]), scores.get(column.name)
        # An average has a mean and an interval only. The column "think" exists if any sample thinks.
        if score is None:
            rows.append((column, ["", "", *parts, *[""] * (4 + thinks)]))
            continue
        # With one sample, maj@1 and pass@1 are avg@1 again.
        several = (
            [score.majority, score.pass_at[score.samples]]
            if score.samples > 1
            else [None, None]
        )
        lost = [
            score.truncated,
            score.missing_answers,
            *([score.unfinished_thoughts] if thinks else []),
        ]
        counts = [f"{score.problems:,}", str(score.samples)]
        rows.append((column, [*counts, *parts, *map(percent, [*several, *lost])]))
    return _block(f"{evaluation.name}, %", [*heads, "think"] if thinks else heads, rows)


def _side_by_side(
    evaluations: Sequence[NamedScores], columns: Sequence[ScoreColumn]
) -> Block:
    """Return the terminal's block for several evaluations: benchmarks and averages as rows, evaluations as columns."""
    rows = [
        (column, [it.cells.get(column.name, UNKNOWN).brief for it in evaluations])
        for column in columns
    ]
    return _block("avg@n, %", [evaluation.name for evaluation in evaluations], rows)


def _against(
    name: str, reference: Reference, cells: Cells, columns: Sequence[ScoreColumn]
) -> Block:
    """Return the terminal's block with an evaluation's scores, those of a reference, and the differences.

    Args:
        name: the evaluation's name in the title.
        reference: the scores to compare with.
        cells: the evaluation's scores, with their differences to the reference.
        columns: the benchmarks and averages, a row each; those that the evaluation lacks are left out.
    """
    rows = []
    for column in columns:
        if (cell := cells.get(column.name)) is not None:
            theirs = reference.cells.get(column.name, UNKNOWN)
            rows.append(
                (column, [cell.brief, theirs.brief, *_parts(cell.change or UNKNOWN)])
            )
    head = reference.name if len(reference.name) <= _LONGEST_HEAD else "reference"
    heads = ("avg@n", head, "difference", "95 % interval")
    return _block(f"{name} against {reference.name}, %", heads, rows)


def _parts(cell: Cell) -> tuple[str, str]:
    return cell.brief, cell.interval or NOTHING


def _block(
    title: str, heads: Sequence[str], rows: Iterable[tuple[ScoreColumn, Sequence[str]]]
) -> Block:
    """Return a block for the terminal, with a row for each benchmark or average.

    Args:
        title: the block's title.
        heads: the headings of the columns after the first, which has the rows' names.
        rows: each benchmark or average, with its texts under `heads`.
    """
    shown = [
        Row([column.label, *texts], "average" if column.is_average else "")
        for column, texts in rows
    ]
    return Block([*map(Column, ("benchmark", *heads))], shown, title, only="terminal")


def _line(
    evaluation: NamedScores, name: str, cell: Cell, reference: Reference | None
) -> dict[str, Any]:
    """Return the row of the CSV for one score or average, as column -> value.

    Args:
        evaluation: the evaluation.
        name: a benchmark, or ``in`` or ``out``.
        cell: its score or average, with any difference to the reference.
        reference: the scores to compare with; None adds no columns for them.
    """
    score = next((score for score in evaluation.scores if score.benchmark == name), None)
    line = {"model": evaluation.name, "benchmark": name, **cell.flat("avg", "low", "high")}
    # An average has no `score`, and its facts stay empty.
    line |= {fact: getattr(score, fact, None) for fact in _FACTS}
    if reference is not None:
        line |= {
            "reference": reference.name,
            "reference_avg": reference.cells.get(name, UNKNOWN).value,
        }
        change = cell.change or UNKNOWN
        line |= {
            "pairs": change.n or None,
            **change.flat("difference", "difference_low", "difference_high"),
        }
    return line


def _other_ends(evaluation: NamedScores) -> Iterator[str]:
    """Yield a sentence for each benchmark with responses that the server ended for an unusual reason.

    The usual reasons are that the model has finished and that the length limit is reached. A content filter, for
    example, is unusual.
    """
    for score in evaluation.scores:
        if score.ended_by:
            counts = ", ".join(
                f"{name} {count:,}" for name, count in score.ended_by.items()
            )
            yield (
                f"{evaluation.name}: of {score.title} the server ended {sum(score.ended_by.values()):,} responses"
                f" otherwise ({counts}); they are graded by what they say."
            )


def _sentences(rows: _Rows, reference: Reference | None) -> Iterator[str]:
    """Yield the notes under the table: what the numbers mean, how the scores were made, and what is left out.

    Args:
        rows: each evaluation, with its cells and their differences.
        reference: the scores that all evaluations are compared with. None if nothing is compared, or if each evaluation
            is compared with its own scores from before its golds were corrected (`NamedScores.before`).
    """
    yield "Scores are avg@n; intervals are 95 % bootstrap intervals over problems."
    # The paper's row has no notes; as a reference without notes, it would keep notes from being shared by all.
    noted: list[Reference] = [evaluation for evaluation, _ in rows]
    if (other := rows[0][0].before or reference) is not None:
        yield other.sentence
        noted += [other] if other.notes else []
    yield from _notes_on_origin(noted)
    for evaluation, _ in rows:
        yield from _problems_left_out(evaluation)
        yield from _other_ends(evaluation)
    yield from _notes_on_scores([score for it, _ in rows for score in it.scores])
    for evaluation, cells in rows:
        if isinstance(other := evaluation.before or reference, NamedScores):
            yield from _problems_not_paired(evaluation, _changes(cells), other)


def _notes_on_origin(noted: Sequence[Reference]) -> Iterator[str]:
    """Yield the notes of evaluations and references on how their scores were made.

    Notes that all of them share come first. Every other note is preceded by the name of its evaluation or reference.
    """
    shared = [note for note in noted[0].notes if all(note in it.notes for it in noted)]
    yield from shared
    for it in noted:
        yield from (f"{it.name}: {note}" for note in it.notes if note not in shared)


def _problems_left_out(evaluation: NamedScores) -> Iterator[str]:
    """Yield a sentence on the benchmarks of which only some problems were scored, if there are any."""
    counts = [
        f"{score.title} {score.problems:,} of {score.whole:,}"
        for score in evaluation.scores
        if not score.is_whole
    ]
    if counts:
        yield f"{evaluation.name}: only some problems were scored ({', '.join(counts)})."


def _notes_on_scores(scores: Sequence[Score]) -> Iterator[str]:
    """Yield a note if responses end inside their thinking, and another if a score has no interval."""
    if any(score.unfinished_thoughts for score in scores):
        yield (
            "Responses that end inside their thinking have no answer and count as cut (column think); more new"
            " tokens let them finish."
        )
    if any(score.interval is None for score in scores):
        yield "Where all problems score the same, a bootstrap sees no spread and there is no interval."


def _problems_not_paired(
    evaluation: NamedScores, changes: Mapping[str, Cell], reference: NamedScores
) -> Iterator[str]:
    """Yield a sentence that lists the benchmarks whose problems differ between an evaluation and its reference, if any.

    `changes` maps a benchmark to its difference, whose `n` is the number of problems that both have.
    """
    theirs = {score.benchmark: score.problems for score in reference.scores}
    of_both = [score for score in evaluation.scores if score.benchmark in theirs]
    # `n` counts the pairs. It is below the larger number of problems if one of the two has problems of its own.
    pairs = {it.benchmark: changes.get(it.benchmark, UNKNOWN).n for it in of_both}
    partly = [
        f"{it.title} {pairs[it.benchmark]}"
        for it in of_both
        if pairs[it.benchmark] < max(it.problems, theirs[it.benchmark])
    ]
    if partly:
        yield f"{evaluation.name}: differences are of the problems that both have ({', '.join(partly)})."
