"""What stored runs show: one module a figure or table, read from run directories alone.

To add a figure, write a module with ``charts(arms) -> list[Chart]`` and add its line to `FIGURES`; for a table of the
paper, one with a ``LAYOUT`` and a line in `PAPER_TABLES`. Modules are imported when they are asked for.
"""

from collections.abc import Mapping

FIGURES: Mapping[str, str] = {
    "coherence": "olr_cli.analysis.coherence",
    "dynamics": "olr_cli.analysis.dynamics",
    "composition": "olr_cli.analysis.composition",
}
"""Figure -> the module that draws it."""

PAPER_TABLES: Mapping[str, str] = {
    "baselines": "olr_cli.analysis.baselines",
}
"""Table of the paper -> the module that has its `olr_cli.analysis.paper_table.Layout`."""

TABLES = ("arms", *PAPER_TABLES)
"""What `olr analyze --table` knows; arms compared are `olr_cli.analysis.arms_table`."""
