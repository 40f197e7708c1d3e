"""Arms compared, paired by seed: mean, sd, and the difference to a baseline arm with Student's 95 % interval."""

from __future__ import annotations

from collections.abc import Sequence

from olr_cli.analysis.arms import Arm
from olr_cli.analysis.frame import Key, Lack, flat, notes_on_differences, summarise, without_difference
from olr_cli.analysis.outcomes import TITLES, at_the_end
from olr_cli.errors import unknown
from olr_cli.tables import NOTHING, UNKNOWN, Block, Cell, Column, Row, Table
from olr_cli.tables.table import joined


def arms_table(arms: Sequence[Arm], baseline: str | None = None) -> Table:
    """In a terminal one block per metric; elsewhere one row per arm. A metric without any value is left out.

    The others are compared with the arm named `baseline`, by default the first. No run with a value is a `Lack`.
    """
    names = [arm.name for arm in arms]
    baseline = names[0] if baseline is None else baseline
    if baseline not in names:
        raise unknown("baseline", baseline, names)
    references = {name: baseline for name in names if name != baseline}
    known = summarise(at_the_end(arms), references)
    metrics = [metric for metric in TITLES if any(key.metric == metric for key in known)]
    if not metrics:
        raise Lack("held-out accuracy (data.test), true answers or labels, and these runs have none")
    cells = {Key(metric, arm): known.get(Key(metric, arm), UNKNOWN) for metric in metrics for arm in names}
    columns = [Column("arm"), Column("n"), *(Column(f"{TITLES[metric]}, %") for metric in metrics)]
    rows = []
    for arm in names:
        of_arm = [cells[Key(metric, arm)] for metric in metrics]
        rows.append(Row([arm, str(max(cell.n for cell in of_arm)), *map(_with_change, of_arm)]))
    heads = [Column(head) for head in ("arm", "n", "mean", "sd", "difference", "95 % interval")]
    in_detail = [
        Block(
            heads,
            [_in_detail(arm, cells[Key(metric, arm)], is_baseline=arm == baseline) for arm in names],
            f"{TITLES[metric]}, %",
            only="terminal",
        )
        for metric in metrics
    ]
    return Table(
        blocks=[*in_detail, Block(columns, rows, only="document")],
        data={
            "baseline": baseline,
            "rows": [{"metric": key.metric, "arm": key.arm, **flat(cell)} for key, cell in cells.items()],
        },
        notes=[
            f"Mean ± sd; in brackets the difference to {baseline}, paired by seed, with Student's 95 % interval."
        ],
        footnotes=[
            *notes_on_differences(cells.values(), baseline),
            *sorted(without_difference(known, references)),
        ],
    )


def _in_detail(arm: str, cell: Cell, *, is_baseline: bool) -> Row:
    change = cell.change or UNKNOWN
    compared = ["baseline", ""] if is_baseline else [change.brief, change.interval or NOTHING]
    return Row([arm, str(cell.n), cell.brief, cell.text(cell.sd), *compared])


def _with_change(cell: Cell) -> str:
    return joined(cell.full, f"({cell.change.full})" if cell.change else "")
