"""The numbers and figures of docs/results/theory.md, made from runs by one command.

    olr train laptop/theory --sweep --jobs 2
    python -m benchmarks.theory runs/theory

Prints Markdown tables: what is counted in the rollouts, then what is computed from the policies at checkpoints. Draws
the log-ratio and the errors (theory.png), and the paper's boundaries against a simulation (phase.png).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from benchmarks.theory import figure, phase
from benchmarks.theory.table import theory_table
from olr_cli import tables
from olr_cli.analysis.arms import find_runs, group
from olr_cli.analysis.figures import style
from olr_cli.analysis.figures.sheet import save
from olr_cli.errors import UserError
from olr_cli.recipe.sections import NoiseDraw


def main(words: Sequence[str] | None = None) -> int:
    """Print the tables, draw the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+", help="runs, or folders of runs")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("figures"),
        help="folder of the figures (default figures)",
    )
    parser.add_argument(
        "--cells",
        type=int,
        default=phase.CELLS,
        help="along a side of the phase figure (default 40)",
    )
    parser.add_argument(
        "--counted",
        action="store_true",
        help="leave out what is computed from the policies",
    )
    parser.add_argument(
        "--epochs",
        type=int,
        nargs="*",
        default=[0, 1],
        help="after which more than L is computed (default 0 1)",
    )
    parser.add_argument(
        "--groups",
        type=int,
        default=8,
        help="new groups of K rollouts a prompt (default 8)",
    )
    parser.add_argument(
        "--gradients",
        type=int,
        default=100,
        help="of so many prompts of a kind (default 100)",
    )
    parser.add_argument(
        "--draw", choices=get_args(NoiseDraw), help="push as if noisy labels were drawn so"
    )
    options = parser.parse_args(words)
    try:
        runs = find_runs(options.runs)
    except UserError as error:
        parser.error(str(error))
    arms = group(runs)
    print(tables.markdown(theory_table(arms)))
    with style.applied():
        charts = [*figure.charts(arms), *phase.charts(cells=options.cells)]
        for chart in charts:
            save(chart, options.out)
    if not options.counted:
        from benchmarks.theory.policies import print_measured

        print_measured(
            runs, options.epochs, options.groups, options.gradients, options.draw
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
