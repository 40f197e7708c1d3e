"""The map of noises: which method helps against which noise, from stored runs of `laptop/bed`.

    olr train laptop/bed --sweep --jobs 2       # and with --set other tasks, as docs/results/noise-map.md says
    python benchmarks/noise_map.py runs/bed runs/bed-harder --out docs/figures

An arm is called X+method for a noise X, and X for GRPO; clean has no noise. Runs of one policy make one panel: held-out
accuracy at the end, and how far it is below GRPO's without noise. A method that reads neither labels nor verdicts is
trained once, as clean+method, and so are verified labels alone, which errors of other labels don't reach. Writes
noise-map.csv and noise-map.png.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import FixedLocator

from olr_cli import tables
from olr_cli.analysis.arms import find_runs, group
from olr_cli.analysis.figures import style
from olr_cli.analysis.figures.sheet import Chart, Sheet, save
from olr_cli.analysis.tables.arms_table import arms_table
from olr_cli.errors import UserError
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.stored import Run
from olr_cli.tables import Block, Column, Row, Table

CLEAN = "clean"
NOISES = {
    CLEAN: "none",
    "active": "labels: active",
    "frozen": "labels: active, frozen",
    "random": "verifier: random",
    "endings": "verifier: rejects a third",
    "near": "verifier: near misses",
}
METHODS = {
    "": "GRPO",
    "olr": "OLR",
    "consistency": "consistency",
    "olr by verifier": "OLR, verifier\ngrades",
    "ttrl": "TTRL",
    "verified": "50 verified\nalone",
}
"""How rows and columns are called, in this order; others follow under their own names."""

DARKEST = 0.3
"""The loss that is drawn darkest."""


def measured(task: str, runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """One row per arm of a policy's runs; also for those that are trained once for several noises."""
    arms = {arm.name: arm for arm in group(runs)}
    table = arms_table([*arms.values()], reference=CLEAN)
    scores = {row.pop("arm"): row for row in table.rows if row.pop("metric") == "eval/avg"}
    noises = [name for name in arms if "+" not in name]
    for name, score in scores.items():
        noise, _, method = name.partition("+")
        runs_of = arms[name].runs
        last = [
            [*read_metrics(run.path, "reward/youden")][-1]["reward/youden"]
            for run in runs_of
            if not method
        ]
        yield {
            "task": task,
            "noise": noise,
            "method": method,
            "is_own": True,
            **score,
            "youden": _mean(last),
        }
        if noise != CLEAN or not method:
            continue
        recipe = runs_of[0].recipe
        for other in noises:
            reads_nothing = recipe.method.row.label == "majority"
            only_verified = (
                recipe.method.prompts == "verified"
                and arms[other].runs[0].recipe.verifier is None
            )
            if (
                other != CLEAN
                and f"{other}+{method}" not in scores
                and (reads_nothing or only_verified)
            ):
                yield {
                    "task": task,
                    "noise": other,
                    "method": method,
                    "is_own": False,
                    **score,
                    "youden": None,
                }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def chart(rows: pl.DataFrame) -> Chart:
    """A panel for each task: noises down, methods across, the colour how far a cell is below clean labels."""
    tasks = rows["task"].unique(maintain_order=True).to_list()
    noises, methods = (
        _ordered(rows[name], names)
        for name, names in (("noise", NOISES), ("method", METHODS))
    )
    height = 0.55 + 0.2 * len(noises)
    sheet = Sheet(len(tasks), 1, width=style.TEXT_WIDTH, panel_height=height)
    colours = LinearSegmentedColormap.from_list(
        "loss", ["#FFFFFF", style.ORANGE, style.VERMILION]
    )
    for number, (axes, task) in enumerate(zip(sheet.panels, tasks, strict=True)):
        shown = {
            (row["noise"], row["method"]): row["mean"]
            for row in rows.filter(task=task).iter_rows(named=True)
        }
        scores = np.array(
            [
                [shown.get((noise, method), np.nan) for method in methods]
                for noise in noises
            ],
            float,
        )
        loss = shown[CLEAN, ""] - scores
        axes.pcolormesh(
            np.clip(loss, 0, DARKEST),
            cmap=colours,
            vmin=0,
            vmax=DARKEST,
            edgecolors="w",
            linewidth=1,
        )
        for (down, across), score in np.ndenumerate(scores):
            text = "" if np.isnan(score) else f"{100 * score:.1f}"
            axes.text(across + 0.5, down + 0.5, text, ha="center", va="center")
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.xaxis.set_major_locator(
            FixedLocator([place + 0.5 for place in range(len(methods))])
        )
        axes.yaxis.set_major_locator(
            FixedLocator([place + 0.5 for place in range(len(noises))])
        )
        axes.set_xticklabels(
            [METHODS.get(name, name) for name in methods]
            if number == 0
            else [""] * len(methods)
        )
        axes.set_yticklabels([NOISES.get(name, name) for name in noises])
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        seeds = sorted({*rows.filter(task=task, is_own=True)["n"]})
        count = f"{seeds[-1]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        title = f"{task} ({count} seed{'s' * (seeds[-1] > 1)})"
        axes.set_title(style.lettered(number, title), pad=4 if number else 22)
    caption = (
        "Held-out accuracy at the end, %, mean over seeds; the colour is the distance to GRPO without noise, white to"
        f" red: 0 to {100 * DARKEST:.0f} points and more."
    )
    return sheet.chart("noise-map", rows, caption=caption)


def table(rows: pl.DataFrame) -> Table:
    """A block for each task: its cells with sd, and what a method recovers: of the gap, or in points."""
    noises, methods = (
        _ordered(rows[name], names)
        for name, names in (("noise", NOISES), ("method", METHODS))
    )
    heads = [
        "noise",
        "TPR - FPR",
        *(METHODS.get(name, name).replace("\n", " ") for name in methods),
    ]
    blocks = []
    for task in rows["task"].unique(maintain_order=True):
        cells = {
            (row["noise"], row["method"]): row
            for row in rows.filter(task=task).iter_rows(named=True)
        }
        lines = []
        for noise in (noise for noise in noises if (noise, "") in cells):
            youden = cells[noise, ""]["youden"]
            texts = [_text(cells.get((noise, method))) for method in methods]
            lines.append(
                Row(
                    [
                        NOISES.get(noise, noise),
                        "" if youden is None else f"{youden:.2f}",
                        *texts,
                    ]
                )
            )
        blocks.append(Block([*map(Column, heads)], lines, task))
    return Table(blocks)


def _text(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return ""
    text = f"{100 * cell['mean']:.1f}" + (
        "" if cell["sd"] is None else f" ± {100 * cell['sd']:.1f}"
    )
    if not cell["is_own"] or not cell["method"] or cell["difference"] is None:
        return text
    gain, share = cell["difference"], cell["recovered"]
    return f"{text} ({100 * gain:+.1f})" if share is None else f"{text} ({share:.0%})"


def _ordered(found: pl.Series, names: dict[str, str]) -> list[str]:
    present = found.unique(maintain_order=True).to_list()
    return [
        *(name for name in names if name in present),
        *(name for name in present if name not in names),
    ]


def main(words: Sequence[str] | None = None) -> None:
    """Print the cells, write the figure and its numbers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "runs",
        type=Path,
        nargs="+",
        help="runs, or folders of runs; those of one policy make a panel",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("figures"), help="folder (default figures)"
    )
    options = parser.parse_args(words)
    try:
        by_task: dict[str, list[Run]] = {}
        for run in find_runs(options.runs):
            path, data = run.recipe.model.path, run.recipe.data.test or ""
            task = (
                path
                if data.partition(":")[0] != "arithmetic" or not data.partition(":")[2]
                else data
            )
            by_task.setdefault(task.partition(":")[2] or task, []).append(run)
        rows = pl.DataFrame(
            [row for task, runs in by_task.items() for row in measured(task, runs)],
            infer_schema_length=None,
        )
    except UserError as error:
        parser.error(str(error))
    with style.applied():
        save(chart(rows), options.out)
    print(tables.markdown(table(rows)))


if __name__ == "__main__":
    main()
