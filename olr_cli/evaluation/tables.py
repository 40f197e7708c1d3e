"""Scores side by side: evaluations, and what they are compared with; benchmarks in the paper's order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from olr_cli.evaluation import scores as scoring
from olr_cli.evaluation.benchmark import registry
from olr_cli.evaluation.published import PublishedRow
from olr_cli.evaluation.scores import Estimate, Group, Score
from olr_cli.tables import NOTHING, Block, Column, Row, Table, interval, percent, points
from olr_cli.tables.numbers import joined

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
class NamedScores:
    """The scores of one model or checkpoint, under a name that is unique in its table.

    Attributes:
        notes: sentences about how they were made, for under the table.
    """

    name: str
    scores: tuple[Score, ...]
    notes: tuple[str, ...] = ()

    @cached_property
    def values(self) -> Mapping[str, Estimate]:
        """Scores and averages by name of the column."""
        return scoring.estimates(self.scores)


@dataclass(frozen=True)
class Reference:
    """What evaluations are compared with, with a sentence that says so; its values by name of the column."""

    name: str
    note: str
    values: Mapping[str, Estimate]


Pairs = Sequence[tuple[NamedScores, Mapping[str, Estimate]]]
"""Evaluations, each with its differences to the reference by name of the column."""


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
    pairs: Pairs = [(evaluation, {}) for evaluation in evaluations]
    compared = None
    if reference is not None:
        compared, pairs = _compared(evaluations, reference)
    if len(evaluations) == 1:
        blocks = [_in_detail(evaluations[0], columns)]
    else:
        firsts = range(0, len(evaluations), _SIDE_BY_SIDE)
        blocks = [_side_by_side(evaluations[first : first + _SIDE_BY_SIDE], columns) for first in firsts]
    lines = [Row([it.name, *(_cell(it.values, column) for column in columns)]) for it in evaluations]
    if compared is not None:
        blocks += [_against(evaluation, compared, by, columns) for evaluation, by in pairs]
        cells = [_cell(compared.values, column) for column in columns]
        lines.append(Row([compared.name, *cells], "compared"))
        for evaluation, by in pairs:
            name = f"difference: {evaluation.name}" if len(pairs) > 1 else "difference"
            lines.append(Row([name, *(_cell(by, column, points) for column in columns)], "compared"))
    heads = [Column(column.label, group=GROUPS[column.group], has_ends=True) for column in columns]
    blocks.append(Block([Column(""), *heads], lines, only="document"))
    sentences = list(_notes(pairs, compared))
    return Table(blocks, _data(pairs, compared), notes=sentences, footnotes=sentences)


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
        if group is not None and any(group in evaluation.values for evaluation in evaluations):
            columns.append(ScoreColumn(group, "", group, is_average=True))
    return columns


def _compared(
    evaluations: Sequence[NamedScores], reference: NamedScores | PublishedRow
) -> tuple[Reference, Pairs]:
    if isinstance(reference, NamedScores):
        note = " ".join(
            (f"Differences are to {reference.name}, in points, paired by problem.", *reference.notes)
        )
        paired = [(ours, scoring.paired_differences(ours.scores, reference.scores)) for ours in evaluations]
        return Reference(reference.name, note, reference.values), paired
    shares = reference.shares
    note = (
        f"The paper's row is {reference.setting} ({', '.join(reference.tables)}): 8 samples of AIME and AMC, the"
        " authors' grader, no intervals; differences are in points."
    )
    values = {name: Estimate(share) for name, share in shares.items()}
    return Reference("paper", note, values), [
        (ours, {name: Estimate(it.mean - shares[name]) for name, it in ours.values.items() if name in shares})
        for ours in evaluations
    ]


def _cell(values: Mapping[str, Estimate], column: ScoreColumn, text: Callable[[float], str] = percent) -> str:
    """A value with its interval."""
    mean, ends = _parts(values, column, text)
    return joined(mean, ends if ends != NOTHING else "")


def _parts(
    values: Mapping[str, Estimate], column: ScoreColumn, text: Callable[[float], str] = percent
) -> tuple[str, str]:
    """A value and its interval."""
    value = values.get(column.name)
    if value is None:
        return NOTHING, NOTHING
    return text(value.mean), interval(value.interval, text) or NOTHING


def _in_detail(evaluation: NamedScores, columns: Sequence[ScoreColumn]) -> Block:
    scores = {score.benchmark: score for score in evaluation.scores}
    thinks = any(score.unfinished_thoughts is not None for score in scores.values())
    cells: dict[str, list[str]] = {}
    for column in columns:
        shares = _parts(evaluation.values, column)
        if column.is_average:
            cells[column.name] = ["", "", *shares, *[""] * (4 + thinks)]
            continue
        score = scores[column.name]
        n = score.samples
        several = [percent(score.majority), percent(score.pass_at[n])] if n > 1 else [NOTHING] * 2
        lost = [
            NOTHING if share is None else percent(share) for share in (score.truncated, score.missing_answers)
        ]
        if thinks:
            lost.append(NOTHING if (share := score.unfinished_thoughts) is None else percent(share))
        cells[column.name] = [f"{score.problems:,}", str(n), *shares, *several, *lost]
    heads = ["problems", "n", "avg@n", "95 % interval", "maj@n", "pass@n", "cut", "no answer"]
    if thinks:
        heads.append("think")
    return _block(f"{evaluation.name}, %", heads, columns, cells)


def _side_by_side(evaluations: Sequence[NamedScores], columns: Sequence[ScoreColumn]) -> Block:
    cells = {column.name: [_parts(it.values, column)[0] for it in evaluations] for column in columns}
    return _block("avg@n, %", [evaluation.name for evaluation in evaluations], columns, cells)


def _against(
    evaluation: NamedScores, reference: Reference, by: Mapping[str, Estimate], columns: Sequence[ScoreColumn]
) -> Block:
    """An evaluation, the reference, and the differences between them."""
    cells = {
        column.name: [
            *(_parts(side.values, column)[0] for side in (evaluation, reference)),
            *_parts(by, column, points),
        ]
        for column in columns
        if column.name in evaluation.values
    }
    name = reference.name if len(reference.name) <= _LONGEST_HEAD else "reference"
    heads = ("avg@n", name, "difference", "95 % interval")
    return _block(f"{evaluation.name} against {reference.name}, %", heads, columns, cells)


def _block(
    title: str, heads: Sequence[str], columns: Sequence[ScoreColumn], cells: Mapping[str, Sequence[str]]
) -> Block:
    """A row a benchmark or average that has cells, for a terminal."""
    rows = [
        Row([column.label, *cells[column.name]], "average" if column.is_average else "")
        for column in columns
        if column.name in cells
    ]
    return Block([*map(Column, ("benchmark", *heads))], rows, title, only="terminal")


def _data(pairs: Pairs, reference: Reference | None) -> dict[str, Any]:
    """As JSON values; shares from 0 to 1."""

    def plain(values: Mapping[str, Estimate]) -> dict[str, Any]:
        return {name: {"share": value.mean, "interval": value.interval} for name, value in values.items()}

    return {
        "evaluations": [
            {
                "name": evaluation.name,
                "scores": [score.plain() for score in evaluation.scores],
                "averages": plain({k: v for k, v in evaluation.values.items() if k in ("in", "out")}),
            }
            for evaluation, _ in pairs
        ],
        "reference": reference
        and {
            "name": reference.name,
            "values": plain(reference.values),
            "differences": {
                evaluation.name: {name: asdict(value) for name, value in by.items()}
                for evaluation, by in pairs
            },
        },
        "notes": list(_notes(pairs, reference, "as shares from 0 to 1")),
        "rows": list(_rows(pairs, reference)),
    }


def _rows(pairs: Pairs, reference: Reference | None) -> Iterator[dict[str, Any]]:
    """Flat lines for CSV: one an evaluation and benchmark, or average."""

    def flat(value: Estimate | None, *names: str) -> dict[str, Any]:
        low, high = (value and value.interval) or (None, None)
        return dict(zip(names, (value and value.mean, low, high), strict=True))

    for evaluation, by in pairs:
        scores = {score.benchmark: score.plain() for score in evaluation.scores}
        for name, value in evaluation.values.items():
            row = {"model": evaluation.name, "benchmark": name, **flat(value, "avg", "low", "high")}
            row |= {key: scores.get(name, {}).get(key) for key in _FACTS}
            if reference is not None:
                theirs = reference.values.get(name)
                row |= {"reference": reference.name, "reference_avg": theirs and theirs.mean}
                row |= flat(by.get(name), "difference", "difference_low", "difference_high")
            yield row


def _notes(pairs: Pairs, reference: Reference | None, unit: str = "in percent") -> Iterator[str]:
    """Sentences that the reader of a table should know."""
    yield f"Scores are avg@n {unit}; intervals are 95 % bootstrap intervals over problems."
    if reference is not None:
        yield reference.note
    shared = [note for note in pairs[0][0].notes if all(note in it.notes for it, _ in pairs)]
    yield from shared
    for evaluation, _ in pairs:
        yield from (f"{evaluation.name}: {note}" for note in evaluation.notes if note not in shared)
        partial = [
            f"{score.title} {score.problems:,} of {score.whole:,}"
            for score in evaluation.scores
            if not score.is_whole
        ]
        if partial:
            yield f"{evaluation.name}: only some problems were scored ({', '.join(partial)})."
    if any(score.unfinished_thoughts for evaluation, _ in pairs for score in evaluation.scores):
        yield (
            "Responses that end inside <think> have no answer and count as cut (column think); a larger"
            " --max-new-tokens lets them finish."
        )
    if any(score.interval is None for evaluation, _ in pairs for score in evaluation.scores):
        yield "Where all problems score the same, a bootstrap sees no spread and there is no interval."
    for evaluation, by in pairs:
        fewer = [
            f"{score.title} {common}"
            for score in evaluation.scores
            if score.benchmark in by
            and (common := by[score.benchmark].pairs) is not None
            and common < score.problems
        ]
        if fewer and reference is not None:
            yield f"{evaluation.name}: {reference.name} has only some of the problems scored ({', '.join(fewer)})."
