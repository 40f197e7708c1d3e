"""A table of scores as text: for a terminal of 80 columns, Markdown, LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from olr_cli.evaluation.latex import escaped
from olr_cli.evaluation.scores import Difference, Interval
from olr_cli.evaluation.table_shapes import markdown_table
from olr_cli.evaluation.tables import GROUPS, Column, Evaluation, Reference, Table, Value, notes

NOTHING = "\N{EN DASH}"
_SIDE_BY_SIDE = 5
"""Evaluations that fit into 80 columns."""

T = TypeVar("T")


def terminal(table: Table) -> RenderableType:
    """One evaluation in detail, or several side by side; then what each is compared with."""
    if len(table.evaluations) == 1:
        blocks = [_details(table.evaluations[0], table.columns)]
    else:
        firsts = range(0, len(table.evaluations), _SIDE_BY_SIDE)
        blocks = [_side_by_side(table.evaluations[i : i + _SIDE_BY_SIDE], table.columns) for i in firsts]
    if table.reference is not None:
        blocks += [
            _compared(each, table.reference, known, table.columns)
            for each, known in zip(table.evaluations, table.reference.differences, strict=True)
        ]
    return Group(*(part for title, block in blocks for part in (Text(title, style="bold"), block, Text())))


def _details(evaluation: Evaluation, columns: Sequence[Column]) -> tuple[str, RichTable]:
    sizes = {"problems": 8, "n": 3, "avg@n": 5, "95 % interval": 13, "maj@n": 5, "pass@n": 6, "cut": 5}
    block = _block(sizes | {"no answer": 9})
    for column in columns:
        value = evaluation.values.get(column.name)
        if value is None:
            continue
        cells = [_percent(value.share), _bracketed(value.interval, _percent) or NOTHING]
        score = evaluation.by_benchmark.get(column.name)
        if score is None:
            block.add_row(_name(column), "", "", *cells, style="bold")
        else:
            n = score.samples
            several = [_percent(score.majority), _percent(score.pass_at[n])] if n > 1 else [NOTHING] * 2
            lost = [_percent(score.truncated), _percent(score.missing_answers)]
            block.add_row(_name(column), f"{score.problems:,}", str(n), *cells, *several, *lost)
    return f"{evaluation.name}, %", block


def _side_by_side(evaluations: Sequence[Evaluation], columns: Sequence[Column]) -> tuple[str, RichTable]:
    block = _block({each.name: 11 for each in evaluations})
    for column in columns:
        values = [each.values.get(column.name) for each in evaluations]
        block.add_row(_name(column), *map(_share, values), style="bold" if column.is_average else None)
    return "avg@n, %", block


def _compared(
    evaluation: Evaluation, reference: Reference, known: Mapping[str, Difference], columns: Sequence[Column]
) -> tuple[str, RichTable]:
    name = reference.name if len(reference.name) <= 11 else "reference"
    block = _block({"avg@n": 5, name: 11, "difference": 10, "95 % interval": 15})
    for column in columns:
        if column.name in evaluation.values:
            difference = known.get(column.name)
            block.add_row(
                _name(column),
                _share(evaluation.values[column.name]),
                _share(reference.values.get(column.name)),
                _points(difference.mean) if difference else NOTHING,
                (_bracketed(difference.interval, _points) if difference else "") or NOTHING,
                style="bold" if column.is_average else None,
            )
    return f"{evaluation.name} against {reference.name}, %", block


def _block(sizes: Mapping[str, int]) -> RichTable:
    block = RichTable(box=None, padding=(0, 1, 0, 0), header_style="dim")
    block.add_column("benchmark", width=15, overflow="fold")
    for name, size in sizes.items():
        block.add_column(Text(name), justify="right", width=size, overflow="fold")
    return block


def markdown(table: Table) -> str:
    """A line an evaluation, a column a benchmark; then the reference and the differences to it."""
    lines = [["", *map(_title, table.columns)]]
    for each in table.evaluations:
        lines.append([each.name, *_cells(table.columns, each.values, _share_with_interval)])
    if table.reference is not None:
        lines.append(
            [table.reference.name, *_cells(table.columns, table.reference.values, _share_with_interval)]
        )
        for name, known in _named_differences(table, table.reference):
            lines.append([name, *_cells(table.columns, known, _difference_with_interval)])
    return "\n".join([*markdown_table(lines[0], lines[1:]), "", *notes(table)])


def latex(table: Table) -> str:
    """A `tabular` with the rules of booktabs, as in the paper; intervals as sub- and superscripts."""
    groups = [
        (GROUPS[group], len(list(columns))) for group, columns in groupby(table.columns, lambda c: c.group)
    ]
    body = [(each.name, _cells(table.columns, each.values, _latex_share)) for each in table.evaluations]
    compared = []
    if table.reference is not None:
        compared.append((table.reference.name, _cells(table.columns, table.reference.values, _latex_share)))
        compared += [
            (name, _cells(table.columns, known, _latex_difference))
            for name, known in _named_differences(table, table.reference)
        ]
    heads = "".join(f" & \\multicolumn{{{size}}}{{c}}{{{title}}}" for title, size in groups)
    titles = "".join(f" & {'Avg.' if c.is_average else escaped(c.title)}" for c in table.columns)
    return "\n".join(
        [
            *(f"% {note}" for note in notes(table)),
            "% Needs \\usepackage{booktabs}; subscript and superscript are the ends of the 95 % interval.",
            f"\\begin{{tabular}}{{l{'c' * len(table.columns)}}}",
            "\\toprule",
            f"{heads} \\\\",
            " ".join(_rules([size for _, size in groups])),
            f"{titles} \\\\",
            "\\midrule",
            *_latex_rows(body),
            *(["\\midrule", *_latex_rows(compared)] if compared else []),
            "\\bottomrule",
            "\\end{tabular}",
        ]
    )


def _rules(sizes: Sequence[int]) -> Iterator[str]:
    last = 1
    for size in sizes:
        yield f"\\cmidrule(lr){{{last + 1}-{last + size}}}"
        last += size


def _latex_rows(rows: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    return [f"{' & '.join([escaped(name), *cells])} \\\\" for name, cells in rows]


def _named_differences(table: Table, reference: Reference) -> list[tuple[str, Mapping[str, Difference]]]:
    """The differences with the name of their line, which says whose they are where there are several."""
    several = len(table.evaluations) > 1
    return [
        (f"difference: {each.name}" if several else "difference", known)
        for each, known in zip(table.evaluations, reference.differences, strict=True)
    ]


def _cells(columns: Sequence[Column], found: Mapping[str, T], text: Callable[[T], str]) -> list[str]:
    return [text(found[column.name]) if column.name in found else NOTHING for column in columns]


def _name(column: Column) -> Text:
    """A line's name, not to be read as markup."""
    return Text(_title(column))


def _title(column: Column) -> str:
    return (
        {"in": "in-distribution", "out": "out-of-distr."}[column.name] if column.is_average else column.title
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"


def _bracketed(interval: Interval | None, text: Callable[[float], str]) -> str:
    return "" if interval is None else f"[{text(interval[0])}, {text(interval[1])}]"


def _share(value: Value | None) -> str:
    return NOTHING if value is None else _percent(value.share)


def _share_with_interval(value: Value) -> str:
    return f"{_percent(value.share)} {_bracketed(value.interval, _percent)}".rstrip()


def _difference_with_interval(difference: Difference) -> str:
    return f"{_points(difference.mean)} {_bracketed(difference.interval, _points)}".rstrip()


def _latex_share(value: Value) -> str:
    return _latex_number(value.share, value.interval, _percent)


def _latex_difference(difference: Difference) -> str:
    return _latex_number(difference.mean, difference.interval, _points)


def _latex_number(share: float, interval: Interval | None, text: Callable[[float], str]) -> str:
    ends = "" if interval is None else f"_{{{text(interval[0])}}}^{{{text(interval[1])}}}"
    return f"${text(share)}{ends}$"
