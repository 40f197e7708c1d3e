"""Tables that compare arms: what they count, and which there are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from olr_cli.analysis import PAPER_TABLES
from olr_cli.errors import UserError

if TYPE_CHECKING:
    from olr_cli.analysis.arms import Arm
    from olr_cli.tables import Table


def count(
    name: str,
    arms: Sequence[Arm],
    baseline: str | None,
    models: Sequence[Path] = (),
    *,
    with_published: bool = False,
) -> Table:
    """A table of some arms.

    Args:
        name: one of `TABLES`.
        arms: at least one.
        baseline: of ``arms``: the arm that others are compared to; by default the first.
        models: of the paper's tables of scores: evaluations of policies before training.
        with_published: show the paper's numbers too.

    Raises:
        UserError: there is no such arm, the table takes no baseline or needs other runs, a run has no labels, a file
            is damaged.
    """
    if name in PAPER_TABLES:
        from olr_cli.analysis.tables.layouts import LAYOUTS
        from olr_cli.analysis.tables.paper import paper_table

        layout = LAYOUTS[name]
        _refuse_baseline(baseline, name, layout.reference_in_words)
        return paper_table(layout, _trained(arms, name), models, with_published=with_published).table()
    if name == "cost":
        from olr_cli.analysis.tables.cost import cost_table

        _refuse_baseline(baseline, name, "GRPO under the same settings")
        return cost_table(arms, with_published=with_published)
    if name == "theory":
        from olr_cli.analysis.theory.table import theory_table

        _refuse_baseline(baseline, name, "what the theory predicts")
        return theory_table(arms)
    from olr_cli.analysis.tables.arms import arms_table

    return arms_table(arms, baseline)


def _trained(arms: Sequence[Arm], table: str) -> list[Arm]:
    """The arms without those of rollouts alone, whose recipe's method nothing was trained with."""
    trained = [arm for arm in arms if arm.runs[0].kind == "training"]
    if not trained:
        raise UserError(
            f"--table {table} needs training runs; {arms[0].runs[0].path} holds rollouts without training"
        )
    return trained


def _refuse_baseline(baseline: str | None, table: str, reference: str) -> None:
    if baseline is not None:
        raise UserError(
            f"--baseline {baseline} is for --table arms; --table {table} compares with {reference}"
        )
