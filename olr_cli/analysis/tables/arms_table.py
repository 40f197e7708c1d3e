"""Arms compared, paired by seed: mean, sd, and the difference to a baseline arm with Student's 95 % interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from olr_cli.analysis.arms import Arm
from olr_cli.analysis.frame import (
    SMALLEST_GAP,
    Key,
    Lack,
    flat,
    notes_on_differences,
    summarise,
    without_difference,
)
from olr_cli.analysis.outcomes import HELD_OUT, TITLES, at_the_end
from olr_cli.errors import UserError, unknown
from olr_cli.tables import NOTHING, UNKNOWN, Block, Cell, Column, Row, Table
from olr_cli.tables.table import joined


def arms_table(
    arms: Sequence[Arm], baseline: str | None = None, reference: str | None = None
) -> Table:
    """Return a table that compares arms by their metrics at the end of training.

    In a terminal there is one block per metric, in a document one row per arm.

    Every arm is compared with the arm named `baseline`, by default the first arm. If a `reference` is named instead, an
    arm named ``X+method`` is compared with the arm ``X``, and any other arm with the reference. The table then also
    shows how much of the gap between ``X`` and the reference is closed by ``X+method``.

    Raises:
        Lack: no run has a value.
        UserError: a baseline and a reference are given, no arm has the given name, or a reference is given and no arm
            is named ``X+method``.
    """
    names = [arm.name for arm in arms]
    best, references = _compared(names, baseline, reference)
    summary = summarise(at_the_end(arms), references, best if reference else "")
    measured = {key.metric for key in summary}
    metrics = [metric for metric in TITLES if metric in measured]
    if not metrics:
        raise Lack(
            "held-out accuracy (data.test), true answers or labels, and these runs have none"
        )
    cells = {
        Key(metric, arm): summary.get(Key(metric, arm), UNKNOWN)
        for metric in metrics
        for arm in names
    }
    details = [
        _detail(metric, names, cells, best, has_shares=bool(reference))
        for metric in metrics
    ]
    reference_name = f"X for an arm X+method, else to {best}" if reference else best
    notes = [
        f"Mean ± sd; in brackets the difference to {reference_name}, paired by seed, with Student's 95 % interval."
    ]
    footnotes = [*notes_on_differences(cells.values(), reference_name)]
    if reference:
        least = f"{100 * SMALLEST_GAP:.0f} points"
        footnotes.append(
            f"Recovered: of the gap from X to {best}, by X+method; none of a gap below {least}."
        )
    footnotes += sorted(without_difference(summary, references))
    footnotes += _on_other_questions(arms, references, summary)
    rows = [
        {
            "metric": key.metric,
            "arm": key.arm,
            "baseline": references.get(key.arm),
            **flat(cell),
            **(_share(cell) if reference else {}),
        }
        for key, cell in cells.items()
    ]
    return Table([*details, _document(metrics, names, cells)], rows, notes, footnotes)


def _compared(
    names: Sequence[str], baseline: str | None, reference: str | None
) -> tuple[str, dict[str, str]]:
    """Decide which arm each arm is compared with.

    `names` are the names of all arms. `baseline` and `reference` are the names that the user gave. If both are None,
    the first arm is the baseline.

    Returns:
        The name of the reference if one is given, otherwise that of the baseline; and a mapping from the name of every
        other arm to the name of the arm that it is compared with.

    Raises:
        UserError: a baseline and a reference are given, no arm has the given name, or a reference is given and no arm
            is named ``X+method``.
    """
    if baseline is not None and reference is not None:
        raise UserError(
            "both say what arms are compared with",
            "leave one of them out",
            "baseline and reference",
        )
    best = reference or baseline or names[0]
    if best not in names:
        raise unknown("baseline" if reference is None else "reference", best, names)
    plain = _plain_arms(names, reference) if reference else {}
    return best, {name: plain.get(name, best) for name in names if name != best}


def _on_other_questions(
    arms: Sequence[Arm], references: Mapping[str, str], cells: Mapping[Key, Cell]
) -> Iterator[str]:
    """Yield a warning for each arm whose held-out questions differ from those of the arm that it is compared with.

    If an arm's difference in held-out accuracy is unknown, there is no warning, because the table shows no difference.

    Args:
        arms: the arms.
        references: name of an arm -> name of the arm that it is compared with.
        cells: (metric, arm) -> the arm's mean and, as `change`, its difference.
    """
    first = {arm.name: arm.runs[0].settings for arm in arms}
    held_out = {
        name: keys.get("data.test", keys.get("data.train")) for name, keys in first.items()
    }
    for name, other in references.items():
        if (
            held_out[name] != held_out[other]
            and cells.get(Key(HELD_OUT.name, name), UNKNOWN).change
        ):
            yield (
                f"{name} is measured on {held_out[name]}, {other} on {held_out[other]}: their difference in held-out"
                " accuracy is no difference of methods."
            )


def _plain_arms(names: Sequence[str], reference: str) -> dict[str, str]:
    """Return ``X+method`` -> ``X`` for every arm named ``X+method`` for which there is an arm named ``X``.

    Pairs that contain the arm `reference` are left out.

    Raises:
        UserError: there are no such pairs.
    """
    # `active+label_smoothing+olr` is compared with `active+label_smoothing`: split at the last plus.
    plain = {name: name.rpartition("+")[0] for name in names if name != reference}
    plain = {name: arm for name, arm in plain.items() if arm in names and arm != reference}
    if not plain:
        raise UserError(
            "no arm is named after another one, as active+olr is after active",
            "give them such labels",
            f"reference {reference}",
        )
    return plain


def _detail(
    metric: str,
    arms: Sequence[str],
    cells: Mapping[Key, Cell],
    best: str,
    *,
    has_shares: bool,
) -> Block:
    """Return the part of the terminal's table that shows one metric.

    There is a row for each arm, with mean, sd and difference.

    Args:
        metric: name of the metric.
        arms: names of the arms.
        cells: (metric, arm) -> the arm's mean and, as `change`, its difference.
        best: name of the arm whose row says ``baseline`` instead of a difference: the reference if there is one,
            otherwise the baseline.
        has_shares: whether a further column says how much of the gap to the reference an arm closes.
    """
    heads = [
        "arm",
        "n",
        "mean",
        "sd",
        "difference",
        "95 % interval",
        *["gap\nrecovered, %"] * has_shares,
    ]
    rows = []
    for arm in arms:
        cell = cells[Key(metric, arm)]
        change, share = cell.change or UNKNOWN, cell.recovered or UNKNOWN
        compared = (
            ["baseline", ""] if arm == best else [change.brief, change.interval or NOTHING]
        )
        shares = [share.full] * has_shares
        rows.append(
            Row([arm, str(cell.n), cell.brief, cell.text(cell.sd), *compared, *shares])
        )
    return Block([*map(Column, heads)], rows, f"{TITLES[metric]}, %", only="terminal")


def _document(
    metrics: Sequence[str], arms: Sequence[str], cells: Mapping[Key, Cell]
) -> Block:
    """Return the table for documents, such as Markdown, with a row per arm and a column per metric.

    A column has means and differences. `cells` maps (metric, arm) to the arm's mean and, as `change`, its difference.
    """
    columns = [
        Column("arm"),
        Column("n"),
        *(Column(f"{TITLES[metric]}, %") for metric in metrics),
    ]
    rows = []
    for arm in arms:
        of_arm = [cells[Key(metric, arm)] for metric in metrics]
        rows.append(
            Row([arm, str(max(cell.n for cell in of_arm)), *map(_with_change, of_arm)])
        )
    return Block(columns, rows, only="document")


def _share(cell: Cell) -> dict[str, float | None]:
    return (cell.recovered or UNKNOWN).flat("recovered", "recovered_low", "recovered_high")


def _with_change(cell: Cell) -> str:
    share = f"; {cell.recovered.full} % of the gap" if cell.recovered else ""
    return joined(cell.full, f"({cell.change.full}{share})" if cell.change else "")
