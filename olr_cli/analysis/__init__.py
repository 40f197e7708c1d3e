"""What stored runs show: one module a figure, one description a table, read from run directories alone.

To add a figure, write a module with ``charts(arms) -> list[Chart]`` and add its line to `FIGURES`; for a table of the
paper, a description in `olr_cli.analysis.tables.layouts` and its name to `PAPER_TABLES`. Modules are imported when they
are asked for.
"""

from collections.abc import Mapping

FIGURES: Mapping[str, str] = {
    "coherence": "olr_cli.analysis.coherence",
    "dynamics": "olr_cli.analysis.dynamics",
    "composition": "olr_cli.analysis.composition",
    "ablation": "olr_cli.analysis.ablation",
    "sensitivity": "olr_cli.analysis.sensitivity",
    "cost": "olr_cli.analysis.cost",
    "theory": "olr_cli.analysis.theory.figure",
    "phase": "olr_cli.analysis.theory.phase",
}
"""Figure -> the module that draws it."""

NEEDING = ("ablation", "sensitivity", "cost", "theory")
"""Figures that not all runs can show: their modules also have ``lacking(arms) -> str | None``."""

OF_NO_RUN = ("phase",)
"""Figures of the theory alone: they need no run, and ``all`` leaves them out."""

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
"""Tables of the paper, named as in the published scores; each has its line in `LAYOUTS` of `tables.layouts`."""

PUBLISHED_TABLES = (*PAPER_TABLES, "cost")
"""Tables that ``--compare paper`` is for: the paper prints them too."""

TABLES = ("arms", *PUBLISHED_TABLES, "theory")
"""What `olr analyze --table` knows; see `figures.count`."""
