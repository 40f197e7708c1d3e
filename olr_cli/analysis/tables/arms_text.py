"""A table of arms as text: for a terminal of 80 columns, Markdown, LaTeX, CSV."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from olr_cli.analysis.tables.arms_table import Row, Table
from olr_cli.evaluation import latex as tex
from olr_cli.evaluation import table_shapes

NOTHING = "\N{EN DASH}"


def terminal(table: Table) -> RenderableType:
    """One block a metric; accuracies and their differences in percent and percentage points."""
    blocks: list[RenderableType] = []
    width = min(max(len(row.arm) for row in table.rows), 32)
    for metric, title in table.titles.items():
        block = RichTable(box=None, padding=(0, 2, 0, 0), header_style="dim")
        block.add_column("arm", width=width, overflow="fold")
        for name, size in (("n", 3), ("mean", 5), ("sd", 4), ("difference", 10), ("95 % interval", 15)):
            block.add_column(name, justify="right", width=size)
        for row in (row for row in table.rows if row.metric == metric):
            block.add_row(
                row.arm, str(len(row.values)), _percent(row.mean), _percent(row.sd), *_difference(row, table)
            )
        blocks += [Text(f"{title}, %", style="bold"), block, Text()]
    return Group(*blocks)


def markdown(table: Table) -> str:
    """A line an arm: mean ± sd in percent, and the difference to the baseline with its interval in brackets."""
    return "\n".join([*table_shapes.markdown_table(_heads(table), _lines(table)), "", _what(table)])


def latex(table: Table) -> str:
    """A `tabular` with the rules of booktabs; the lines and cells of `markdown`."""
    heads = [tex.escaped(head) for head in _heads(table)]
    body = [tex.row([tex.escaped(arm), *map(tex.number, numbers)]) for arm, *numbers in _lines(table)]
    return tex.tabular(heads, body, [_what(table)])


def _heads(table: Table) -> list[str]:
    return ["arm", "n", *(f"{title}, %" for title in table.titles.values())]


def _lines(table: Table) -> Iterator[list[str]]:
    for arm in dict.fromkeys(row.arm for row in table.rows):
        rows = {row.metric: row for row in table.rows if row.arm == arm}
        runs = max(len(row.values) for row in rows.values())
        yield [arm, str(runs), *(_cell(rows[metric]) for metric in table.titles)]


def _what(table: Table) -> str:
    return f"Mean ± sd; in brackets the paired difference to {table.baseline} and its 95 % t interval."


def comma_separated(table: Table) -> str:
    """A line a metric and arm, values as shares; empty where there is none."""
    return table_shapes.comma_separated(table.rows[0].plain(), (row.plain() for row in table.rows))


def footnotes(table: Table) -> Iterator[str]:
    """What the reader of a table should know."""
    if any(row.difference for row in table.rows):
        yield f"Differences are to {table.baseline}, in points, paired by seed; intervals are Student's."
    if any(row.difference and row.difference.pairs == 1 for row in table.rows):
        yield "One seed gives no sd and no interval: train more seeds."
    arms = {row.arm for row in table.rows if row.difference}
    others = {row.arm for row in table.rows} - {table.baseline}
    for arm in sorted(others - arms):
        yield f"{arm} has no seed in common with {table.baseline}: no paired difference."


def _percent(share: float | None) -> str:
    return NOTHING if share is None else f"{100 * share:.1f}"


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"


def _difference(row: Row, table: Table) -> tuple[str, str]:
    if row.arm == table.baseline:
        return "baseline", ""
    if row.difference is None:
        return NOTHING, NOTHING
    return _points(row.difference.mean), _interval(row) or NOTHING


def _interval(row: Row) -> str:
    difference = row.difference
    if difference is None or difference.low is None or difference.high is None:
        return ""
    return f"[{_points(difference.low)}, {_points(difference.high)}]"


def _cell(row: Row) -> str:
    if row.mean is None:
        return NOTHING
    spread = "" if row.sd is None else f" ± {_percent(row.sd)}"
    change = (
        "" if row.difference is None else f" ({_points(row.difference.mean)} {_interval(row)}".rstrip() + ")"
    )
    return f"{_percent(row.mean)}{spread}{change}"
