"""What stored runs show: one module a figure or table, read from run directories alone.

To add a figure, write a module with ``charts(arms) -> list[Chart]`` and add its line to `FIGURES`; for a table, one
with ``table(arms, baseline) -> Table`` and a line in `TABLES`. Modules are imported when they are asked for.
"""

from collections.abc import Mapping

FIGURES: Mapping[str, str] = {
    "coherence": "olr_cli.analysis.coherence",
    "dynamics": "olr_cli.analysis.dynamics",
    "composition": "olr_cli.analysis.composition",
}
"""Figure -> the module that draws it."""

TABLES: Mapping[str, str] = {
    "arms": "olr_cli.analysis.arms_table",
}
"""Table -> the module that counts it."""
