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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import polars as pl
from matplotlib.ticker import PercentFormatter

from olr_cli.analysis.arms import Run, find_runs
from olr_cli.analysis.figures import style
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.store import scan_rollouts

ARM = ["task", "noise", "prompts", "visits"]


def measured(run: Run) -> Iterator[dict[str, Any]]:
    """A row a visit; none of a run that is no GRPO, has no active noise or measured no held-out accuracy."""
    labels = run.labels.filter(pl.col("noise_type").str.starts_with("active")).collect()
    held_out = [(line["step"], line["eval/majority"]) for line in read_metrics(run.path, "eval/majority")]
    if run.method != "grpo" or labels.is_empty() or len(held_out) < 2:
        return
    given = scan_rollouts(run.path).group_by("prompt_id", "visit", noisy_label="answer_class").len().collect()
    share = pl.col("noisy_label_count") / pl.col("rollouts")
    drawn = labels.select("prompt_id", pl.col("visit") + 1, "noisy_label", "rollouts", own=share)
    kept = drawn.join(given, on=["prompt_id", "visit", "noisy_label"], how="left")
    kept = kept.with_columns(kept=pl.col("len").fill_null(0) / pl.col("rollouts"))
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
            "retention": again["kept"].sum() / again["own"].sum()
            if visit > 1 and again["own"].sum()
            else None,
            "transfer": there - accuracies[0],
            "memory": there - majority,
        }


def print_ends(rows: pl.DataFrame) -> None:
    """A Markdown table of each arm's end, means over its runs in %."""
    names = ["rise", "transfer", "memory", "retention"]
    ends = rows.filter(visit=pl.col("visits")).with_columns(rise=pl.col("transfer") - pl.col("memory"))
    ends = ends.group_by(ARM).agg(pl.len().alias("runs"), pl.mean(*names)).sort(ARM)
    print("|", " | ".join(ends.columns), "|")
    print("|---" * len(ends.columns), "|", sep="")
    for row in ends.with_columns(pl.col(names) * 100).rows():
        cells = [f"{value:+.1f}" if isinstance(value, float) else str(value) for value in row]
        print("|", " | ".join(cells), "|")


def print_changes(rows: pl.DataFrame) -> None:
    """How often the majority rises and falls, to the visit whose retention it is and from there to the next."""
    means = rows.group_by(*ARM, "visit").agg(pl.mean("retention", "majority")).sort(*ARM, "visit")
    change = pl.col("majority").diff().over(ARM)
    means = means.with_columns(here=change, later=change.shift(-1).over(ARM)).drop_nulls("retention")
    bins = means["retention"].cut(
        [0.6, 0.7, 0.8, 0.9], left_closed=True, labels=["<.6", ".6", ".7", ".8", ">=.9"]
    )
    print("\n| retention | rises | falls | rises next | falls next |\n|---|---|---|---|---|")
    for (name,), visits in (
        means.with_columns(bin=bins).sort("retention").group_by("bin", maintain_order=True)
    ):
        counts = [visits.filter(sign * pl.col(at) > 0).height for at in ("here", "later") for sign in (1, -1)]
        print("|", " | ".join([name, *map(str, counts)]), "|")


def chart(rows: pl.DataFrame) -> style.Chart:
    """For each task trained on several numbers of prompts the majority by step; then what goes with rise and fall."""
    shown = rows.filter(pl.col("noise") == "active 0.5")
    sizes = shown.group_by("task", maintain_order=True).agg(pl.col("prompts").n_unique())
    tasks = sizes.filter(pl.col("prompts") > 1)["task"].to_list()
    sheet = style.Sheet(len(tasks) + 2, 2, width=style.TEXT_WIDTH, panel_height=2.2)
    for number, (axes, task) in enumerate(zip(sheet.panels, tasks, strict=False)):
        means = shown.filter(task=task).group_by(*ARM, "visit").agg(pl.mean("step", "majority"))
        lines = means.sort("prompts", "step").group_by("prompts", "visits", maintain_order=True)
        for place, ((prompts, visits), line) in enumerate(lines):
            colour = matplotlib.colors.to_hex(matplotlib.colormaps["viridis"](0.18 * place))
            look = {"clip_on": False, **style.mark(style.MARKERS[place])}
            label = f"{prompts} \N{MULTIPLICATION SIGN} {visits}"
            sheet.curve(axes, line["step"], line["majority"].to_numpy(), label, colour, **look)
        axes.set_title(style.lettered(number, f"{task}: noisy majority right"))
        axes.set_xlabel("step (prompts \N{MULTIPLICATION SIGN} visits)")
        style.percent_axis(axes, (0.3, 1.0))
    changes = (
        rows.sort("visit").with_columns(change=pl.col("majority").diff().over(*ARM, "seed")).drop_nulls()
    )
    visits = changes.group_by(*ARM, "visit").agg(pl.mean("retention", "change"))
    ends = rows.filter(visit=pl.col("visits")).group_by(ARM).agg(pl.mean("transfer", "memory"))
    changing, ending = sheet.panels[-2:]
    changing.axhline(0, color=style.GREY, linewidth=0.6)
    ending.axline((0, 0), slope=1, color=style.GREY, linewidth=0.6)
    for place, (task, look) in enumerate(_looks(rows).items()):
        marks = {"color": look.colour, "linestyle": "", "markersize": 3, **style.mark(look.marker)}
        of_visits, of_ends = visits.filter(task=task), ends.filter(task=task)
        changing.plot(of_visits["retention"], of_visits["change"], **marks, zorder=len(rows) - place)
        ending.plot(of_ends["transfer"], of_ends["memory"], **marks, label=task)
    changing.set_title(style.lettered(len(tasks), "From one visit to the next"))
    changing.set_xlabel("retention of the wrong label")
    changing.set_ylabel("change of the noisy majority")
    ending.set_title(style.lettered(len(tasks) + 1, "At the end (above the line: a fall)"))
    ending.set_xlabel("transfer")
    ending.set_ylabel("memory")
    for axes in (changing, ending):
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(PercentFormatter(1, decimals=0))
    sheet.legend([*ending.get_lines()[1:]])
    caption = "Means over seeds. In (c) a mark is a visit of an arm, in (d) an arm."
    return sheet.chart("coherence-boundary", rows, caption=caption)


def _looks(rows: pl.DataFrame) -> dict[str, style.Look]:
    tasks = rows["task"].unique(maintain_order=True).to_list()
    return dict(zip(tasks, style.looks(tasks), strict=True))


def main(words: Sequence[str] | None = None) -> None:
    """Print the table, write the figure and its numbers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+", help="runs, or folders of runs")
    parser.add_argument("--out", type=Path, default=Path("figures"), help="folder (default figures)")
    options = parser.parse_args(words)
    rows = pl.DataFrame([row for run in find_runs(options.runs) for row in measured(run)])
    if rows.is_empty():
        parser.error("no run here has GRPO, active noise and held-out accuracy")
    print_ends(rows)
    print_changes(rows)
    with style.applied():
        style.save(chart(rows), options.out)


if __name__ == "__main__":
    main()
