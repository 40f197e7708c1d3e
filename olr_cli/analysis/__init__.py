"""What stored runs show: figures (`figures.FIGURES`) and tables, read from run directories alone.

To add a figure, write a function from arms to charts and add its line to `FIGURES`; for a table of the paper, a
description in `olr_cli.analysis.tables.layouts` and its name to `PAPER_TABLES`. Modules are imported when needed.
"""

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
"""What `olr analyze --table` knows; see `tables.count`."""
