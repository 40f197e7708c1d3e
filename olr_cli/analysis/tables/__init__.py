"""The registry of tables of runs. Modules are imported when a table is counted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from olr_cli.errors import UserError

if TYPE_CHECKING:
    from olr_cli.analysis.arms import Arm
    from olr_cli.tables import Table

PAPER_TABLES = (
    "noise_ratios",
    "baselines",
    "scale_4k",
    "qwen3_8b",
    "llama_8b",
    "slope_sensitivity",
    "warmup_sensitivity",
    "ablation",
)
"""Tables of the paper, named and ordered as in the published scores."""

PUBLISHED_TABLES = (*PAPER_TABLES, "cost")
"""All tables with numbers that the paper prints too."""

TABLES = ("arms", *PUBLISHED_TABLES)
"""Names that `olr analyze --table` accepts."""


def count(
    name: str,
    arms: Sequence[Arm],
    baseline: str | None = None,
    reference: str | None = None,
    models: Sequence[Path] = (),
    *,
    with_published: bool = False,
) -> Table:
    """Compute one table of the arms.

    Args:
        name: name of the table, one of `TABLES`.
        arms: the arms to compare.
        baseline: name of the arm that others are compared with. Only the table ``arms`` takes it.
        reference: name of an arm that others should reach, such as training without noise. Only the table ``arms``
            takes it, and not together with a baseline. The table then shows how much of the gap between an arm ``X``
            and the reference is closed by the arm ``X+method``.
        models: folders of evaluations of policies before training. Only the paper's tables of scores show them.
        with_published: whether to add the paper's numbers. The table ``arms`` has none.

    Raises:
        Lack: the runs lack the data that the table needs.
        UserError: a baseline or reference is given for a table other than ``arms``, or names no arm.
    """
    if name == "arms":
        from olr_cli.analysis.tables.arms_table import arms_table

        return arms_table(arms, baseline, reference)
    from olr_cli.analysis.frame import Lack
    from olr_cli.analysis.tables.cost_table import cost_table
    from olr_cli.analysis.tables.layout import compared_with
    from olr_cli.analysis.tables.paper import PaperTable

    if baseline is not None or reference is not None:
        compares = f"with {compared_with(name)[1]}" if name in PAPER_TABLES else "no arms"
        option = f"baseline {baseline}" if reference is None else f"reference {reference}"
        raise UserError("this is for the table arms", f"{name} compares {compares}", option)
    if name == "cost":
        return cost_table(arms, with_published=with_published)
    # A run of `olr rollouts` has a recipe with a method, but the method trained nothing: such a row would be wrong.
    trained = [arm for arm in arms if arm.runs[0].kind == "training"]
    if not trained:
        raise Lack(f"training runs; {arms[0].runs[0].path} holds rollouts without training")
    return PaperTable(name, trained, models, with_published=with_published).table()
