"""Where coherence ends: how the noisy majority changes, against transfer and memory, from stored runs.

    olr train laptop/smollm/boundary --sweep --jobs 2       # and with --set other tasks and noise ratios
    python benchmarks/coherence_boundary.py runs/smollm-boundary runs/smollm-dates --out docs/figures

Takes the runs with GRPO and active noise, drawn at every visit or frozen, that measured held-out accuracy. Prints a
line an arm, and how often the majority rises and falls at which retention; writes coherence-boundary.csv and .png. Of
the prompts with a noisy label:

- rise: their majority accuracy in a visit, less that of held-out prompts before training;
- transfer: what held-out prompts gained meanwhile (between evaluations interpolated);
- memory: how much less than those the noisy prompts have, so rise = transfer - memory;
- retention: of a wrong label's share of the rollouts in the visit that drew it, what the next visit still gives.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import polars as pl
from matplotlib.ticker import FuncFormatter, PercentFormatter

from olr_cli import tables
from olr_cli.analysis.arms import find_runs
from olr_cli.analysis.figures import style
from olr_cli.analysis.figures.sheet import Chart, Sheet, save
from olr_cli.errors import UserError
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.store import scan_rollouts
from olr_cli.runs.stored import Run
from olr_cli.tables import Block, Cell, Column, Row, Table

ARM = ["task", "noise", "prompts", "visits"]


def measured(run: Run) -> Iterator[dict[str, Any]]:
    """One row per visit; none of a run that is no GRPO, has no active noise or measured no held-out accuracy."""
    labels = run.labels.filter(pl.col("noise_type").str.starts_with("active")).collect()
    held_out = [
        (line["step"], line["eval/majority"])
        for line in read_metrics(run.path, "eval/majority")
    ]
    if run.method != "grpo" or labels.is_empty() or len(held_out) < 2:
        return
    given = (
        scan_rollouts(run.path)
        .group_by("prompt_id", "visit", noisy_label="answer_class")
        .len()
        .collect()
    )
    share = pl.col("noisy_label_count") / pl.col("rollouts")
    drawn = labels.select(
        "prompt_id", pl.col("visit") + 1, "noisy_label", "rollouts", own=share
    )
    kept = drawn.join(
        given, on=["prompt_id", "visit", "noisy_label"], how="left"
    ).with_columns(kept=pl.col("len").fill_null(0) / pl.col("rollouts"))
    model, test = run.recipe.model.path, run.recipe.data.test
    steps, accuracies = zip(*held_out, strict=True)
    visits = labels["visit"].max()
    for (visit,), prompts in labels.sort("visit").group_by("visit", maintain_order=True):
        step, majority = prompts["step"].mean(), prompts["majority_is_correct"].mean()
        there = float(np.interp(step, steps, accuracies))
        again = kept.filter(visit=visit)
        yield {
            "task": (model if test == "arithmetic" else test or "").rpartition(":")[2],
            "noise": run.noise,
            "prompts": run.recipe.data.limit,
            "visits": visits,
            "seed": run.seed,
            "visit": visit,
            "step": step,
            "majority": majority,
            "retention": again["kept"].sum() / again["own"].sum() if len(again) else None,
            "transfer": there - accuracies[0],
            "memory": there - majority,
        }


def mean_visits(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per visit of an arm: means over seeds, the majority's change to this visit and from it to the next."""
    means = rows.group_by(*ARM, "visit").agg(
        pl.mean("step", "majority", "retention", "transfer", "memory")
    )
    change = pl.col("majority").diff().over(ARM)
    means = means.sort(*ARM, "visit").with_columns(
        change=change, later=change.shift(-1).over(ARM)
    )
    return means.join(
        rows.group_by(ARM).agg(runs=pl.col("seed").n_unique()),
        on=ARM,
        maintain_order="left",
    )


def ends_of(visits: pl.DataFrame) -> pl.DataFrame:
    """The last visit of each arm."""
    return visits.filter(visit=pl.col("visits")).with_columns(
        rise=pl.col("transfer") - pl.col("memory")
    )


def end_block(visits: pl.DataFrame) -> Block:
    """The end of each arm, one line per arm."""
    names = ("rise", "transfer", "memory", "retention")
    heads = [Column(head) for head in (*ARM, "runs", *(f"{name}, %" for name in names))]
    lines = [
        Row(
            [
                *(str(end[name]) for name in (*ARM, "runs")),
                *(Cell(end[name]) for name in names),
            ]
        )
        for end in ends_of(visits).iter_rows(named=True)
    ]
    return Block(heads, lines)


def change_block(visits: pl.DataFrame) -> Block:
    """How often the majority rises and falls, to the visit whose retention it is and from there to the next."""
    lines = []
    for low, high in pairwise((0.0, 0.6, 0.7, 0.8, 0.9, math.inf)):
        inside = visits.filter(pl.col("retention").is_between(low, high, closed="left"))
        counts = [
            inside.filter(sign * pl.col(at) > 0).height
            for at in ("change", "later")
            for sign in (1, -1)
        ]
        lines.append(Row([f"from {100 * low:.0f} % on", *map(str, counts)]))
    return Block(
        [*map(Column, ("retention", "rises", "falls", "rises next", "falls next"))], lines
    )


def chart(rows: pl.DataFrame, visits: pl.DataFrame) -> Chart:
    """For each task trained on several numbers of prompts the majority by step; then what goes with rise and fall."""
    shown = visits.filter(pl.col("noise") == "active 0.5")
    sizes = shown.group_by("task", maintain_order=True).agg(pl.col("prompts").n_unique())
    tasks = sizes.filter(pl.col("prompts") > 1)["task"].to_list()
    sheet = Sheet(len(tasks) + 2, 2, width=style.TEXT_WIDTH, panel_height=2.2)
    looks = {
        look.label: look
        for look in style.looks(rows["task"].unique(maintain_order=True).to_list())
    }
    for number, (axes, task) in enumerate(zip(sheet.panels, tasks, strict=False)):
        lines = shown.filter(task=task).group_by("prompts", "visits", maintain_order=True)
        for place, ((prompts, most), line) in enumerate(lines):
            # A task has one colour in all panels; the fewer visits, the paler.
            red_green_blue = np.array(matplotlib.colors.to_rgb(looks[task].colour))
            colour = matplotlib.colors.to_hex(1 - (1 - red_green_blue) * (1 - 0.14 * place))
            look = {"clip_on": False, **style.mark(style.MARKERS[place])}
            label = f"{prompts} \N{MULTIPLICATION SIGN} {most}"
            sheet.curve(
                axes, line["step"], line["majority"].to_numpy(), label, colour, **look
            )
        axes.set_title(style.lettered(number, f"{task}: noisy majority right"))
        axes.set_xlabel("step (prompts \N{MULTIPLICATION SIGN} visits)")
        style.percent_axis(axes, (0.3, 1.0))
    changing, ending = sheet.panels[-2:]
    changing.axhline(0, color=style.GREY, linewidth=0.6)
    ending.axline((0, 0), slope=1, color=style.GREY, linewidth=0.6)
    handles = []
    for look in looks.values():
        marks = {
            "color": look.colour,
            "linestyle": "",
            "markersize": 3,
            **style.mark(look.marker),
        }
        of_task = visits.filter(task=look.label)
        changing.plot(of_task["retention"], of_task["change"], **marks)
        ends = ends_of(of_task)
        handles += ending.plot(ends["transfer"], ends["memory"], **marks, label=look.label)
    changing.set_title(style.lettered(len(tasks), "From one visit to the next"))
    changing.set_xlabel("retention of the wrong label")
    changing.set_ylabel("change of the noisy majority (points)")
    ending.set_title(style.lettered(len(tasks) + 1, "At the end (above the line: a fall)"))
    ending.set_xlabel("transfer (points)")
    ending.set_ylabel("memory (points)")
    low, high = (
        min(ending.get_xlim()[0], ending.get_ylim()[0]),
        max(ending.get_xlim()[1], ending.get_ylim()[1]),
    )
    ending.set(xlim=(low, high), ylim=(low, high), aspect="equal", anchor="W")
    changing.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    points = FuncFormatter(lambda value, _: f"{100 * value:.0f}")
    for axis in (changing.yaxis, ending.xaxis, ending.yaxis):
        axis.set_major_formatter(points)
    sheet.legend(handles)
    caption = "Means over seeds. In (c) a mark is a visit of an arm, in (d) an arm."
    return sheet.chart("coherence-boundary", rows, caption=caption)


def main(words: Sequence[str] | None = None) -> None:
    """Print the table, write the figure and its numbers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+", help="runs, or folders of runs")
    parser.add_argument(
        "--out", type=Path, default=Path("figures"), help="folder (default figures)"
    )
    options = parser.parse_args(words)
    try:
        rows = pl.DataFrame(
            [row for run in find_runs(options.runs) for row in measured(run)]
        )
    except UserError as error:
        parser.error(str(error))
    if rows.is_empty():
        parser.error("no run here has GRPO, active noise and held-out accuracy")
    visits = mean_visits(rows)
    print(tables.markdown(Table([end_block(visits), change_block(visits)])))
    with style.applied():
        save(chart(rows, visits), options.out)


if __name__ == "__main__":
    main()
