"""Arms compared, paired by seed: mean, sd, and the difference to a baseline arm with Student's 95 % interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from olr_cli.analysis.arms import Arm, measured
from olr_cli.analysis.frame import Difference, Summary, summarise
from olr_cli.analysis.outcomes import TITLES, at_the_end
from olr_cli.errors import unknown
from olr_cli.tables import NOTHING, Block, Cell, Column, Row, Table, interval, percent, points
from olr_cli.tables.numbers import joined


def arms_table(arms: Sequence[Arm], baseline: str | None = None) -> Table:
    """In a terminal a block a metric; elsewhere a row an arm. A metric without any value is left out.

    The others are compared with the arm named `baseline`, by default the first.

    Raises:
        UserError: there is no arm of that name.
    """
    names = [arm.name for arm in arms]
    baseline = names[0] if baseline is None else baseline
    if baseline not in names:
        raise unknown("--baseline", baseline, names)
    summaries = {(row.metric, row.arm): row for row in summarise(measured(arms, at_the_end), baseline)}
    metrics = [metric for metric in TITLES if any((metric, arm) in summaries for arm in names)]
    rows = {
        metric: [summaries.get((metric, arm), Summary(metric, arm, {})) for arm in names]
        for metric in metrics
    }
    every_row = [row for of_metric in rows.values() for row in of_metric]
    return Table(
        blocks=[
            *(_metric_block(metric, of_metric, baseline) for metric, of_metric in rows.items()),
            _document_block(rows),
        ],
        data={"baseline": baseline, "rows": [row.plain() for row in every_row]},
        notes=[
            f"Mean ± sd; in brackets the difference to {baseline}, paired by seed, with Student's 95 % interval."
        ],
        footnotes=[*_footnotes(every_row, baseline)],
    )


def _metric_block(metric: str, summaries: Sequence[Summary], baseline: str) -> Block:
    heads = ("arm", "n", "mean", "sd", "difference", "95 % interval")
    rows = []
    for row in summaries:
        change = ["baseline", ""] if row.arm == baseline else [NOTHING, NOTHING]
        if row.difference is not None:
            change = [points(row.difference.mean), interval(row.difference.ends) or NOTHING]
        rows.append(Row([row.arm, str(len(row.values)), percent(row.mean), percent(row.sd), *change]))
    return Block([*map(Column, heads)], rows, f"{TITLES[metric]}, %", only="terminal")


def _document_block(summaries: Mapping[str, Sequence[Summary]]) -> Block:
    columns = [Column("arm"), Column("n"), *(Column(f"{TITLES[metric]}, %") for metric in summaries)]
    rows = []
    for of_arm in zip(*summaries.values(), strict=True):
        runs = max(len(row.values) for row in of_arm)
        rows.append(Row([of_arm[0].arm, str(runs), *map(_document_cell, of_arm)]))
    return Block(columns, rows, only="document")


def _document_cell(row: Summary) -> str:
    change = difference_cell(row.difference).full
    return joined(mean_and_sd(row), change and f"({change})") or NOTHING


def _footnotes(rows: Sequence[Summary], baseline: str) -> Iterator[str]:
    changes = [row.difference for row in rows if row.difference]
    if changes:
        yield f"Differences are to {baseline}, in points, paired by seed, with Student's 95 % interval."
    if any(change.pairs == 1 for change in changes):
        yield "One seed gives no sd and no interval: train more seeds."
    paired = {baseline, *(row.arm for row in rows if row.difference)}
    for arm in sorted({row.arm for row in rows} - paired):
        yield f"{arm} has no seed in common with {baseline}: no paired difference."


def mean_and_sd(row: Summary) -> str:
    """`45.0 ± 1.2`, in percent; nothing without a value, and no sd below two seeds."""
    return joined(percent(row.mean, ""), "" if row.sd is None else f"± {percent(row.sd)}")


def difference_cell(difference: Difference | None) -> Cell:
    """A difference in points: alone where there is no room, else with its interval."""
    mean = points(difference.mean if difference else None, "")
    return Cell(mean, joined(mean, interval(difference.ends if difference else None)))
