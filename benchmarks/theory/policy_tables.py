"""The tables that `policies.py` beside this file prints; rows are its policies' values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.theory.measure import GAP_EDGES, gap_titles
from benchmarks.theory.table import crossing
from olr_cli.analysis.frame import mean_cell, mean_interval

COLUMNS = {
    "p_true": "p(y*)",
    "p_label": "p(label)",
    "true_ahead": "y* ahead",
    "gamma_printed": "γ printed",
    "gamma": "γ",
    "cosine": "cosine",
    "G_c": "G_c",
    "G_n": "G_n",
    "rho_c_printed": "ρ_c printed",
    "rho_c": "ρ_c, γ normalised",
    "push_clean": "push clean",
    "push_noisy": "push noisy",
    "rho_c_pushes": "ρ_c, pushes",
    "adam_rho_c_pushes": "ρ_c, Adam",
    "rho_c_simulated_early": "simulated with γ, early",
    "rho_c_simulated_end": "end",
    "gamma_relative": "γ relative",
    "rho_c_simulated_early_relative": "simulated with it, early",
    "rho_c_simulated_end_relative": "end",
}


def print_table(title: str, heads: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    """A Markdown table."""
    print(f"\n{title}\n\n| {' | '.join(heads)} |")
    print("|---" * len(heads) + "|")
    for line in lines:
        print(f"| {' | '.join(line)} |")


def by_arm(
    rows: Iterable[dict[str, Any]],
) -> dict[tuple[str, float, str], list[dict[str, Any]]]:
    """The rows of each arm, by method and noise ratio."""
    grouped = defaultdict(list)
    for row in rows:
        grouped[row["method"], row["ratio"], row["arm"]].append(row)
    return dict(sorted(grouped.items()))


def print_log_ratios(rows: Sequence[dict[str, Any]]) -> None:
    """L by epoch."""
    epochs = sorted({row["epoch"] for row in rows})
    lines = []
    for (_, _, arm), own in by_arm(rows).items():
        values = (
            [row["log_ratio"] for row in own if row["epoch"] == epoch] for epoch in epochs
        )
        lines.append([arm, *(f"{fmean(each):.2f}" if each else "" for each in values)])
    print_table(
        "Exact L of noisy prompts after each epoch", ["arm", *map(str, epochs)], lines
    )


def print_policies(rows: Sequence[dict[str, Any]]) -> None:
    """Couplings, magnitudes, pushes and predictions."""
    lines = []
    for (_, _, arm), own in by_arm(row for row in rows if "gamma" in row).items():
        for epoch in sorted({row["epoch"] for row in own}):
            here = [row for row in own if row["epoch"] == epoch]
            values = ([row[name] for row in here if name in row] for name in COLUMNS)
            shown = (f"{fmean(each):.3g}" if each else "" for each in values)
            lines.append([arm, str(epoch), str(len(here)), *shown])
    print_table(
        "Assumptions and predictions", ["arm", "epoch", "n", *COLUMNS.values()], lines
    )


def print_errors(rows: Sequence[dict[str, float]]) -> None:
    """Errors by exact Delta_p."""
    bins = np.digitize([row["gap"] for row in rows], GAP_EDGES, right=True)
    lines = []
    for number, title in enumerate(gap_titles()):
        own = [row for row, place in zip(rows, bins, strict=True) if place == number]
        if own:
            means = (
                fmean(row[name] for row in own) for name in ("error", "printed", "chernoff")
            )
            lines.append([title, f"{len(own):,}", *(f"{mean:.4f}" for mean in means)])
    print_table(
        "Wrong majorities", ["Δp", "prompts", "error", "exp(-KΔp²)", "Chernoff"], lines
    )


def print_critical(rows: Sequence[dict[str, Any]]) -> None:
    """Where the change of exact L since the start, and in the last epoch, reaches 0."""
    at = {
        (row["method"], row["seed"], row["ratio"], row["epoch"]): row["log_ratio"]
        for row in rows
    }
    epochs = sorted({key[3] for key in at})
    spans = [(0, epoch) for epoch in epochs if epoch] + [
        (a, b) for a, b in pairwise(epochs) if a
    ]
    lines = []
    for method in sorted({key[0] for key in at}):
        for span in spans:
            found = list(_crossings(at, method, span))
            known = [place for place in found if place is not None]
            ends = mean_interval(mean_cell(known)) if known else None
            reach = "" if ends is None else f"{ends[0]:.2f} to {ends[1]:.2f}"
            mean = f"{fmean(known):.2f}" if known else ""
            lines.append(
                [
                    method,
                    f"{span[0]} to {span[1]}",
                    str(len(known)),
                    str(len(found)),
                    mean,
                    reach,
                ]
            )
    heads = ["method", "epochs", "seeds that cross", "of", "ρ_c", "95 % interval"]
    print_table("Observed critical ratio: where the change of L is 0", heads, lines)


def _crossings(
    at: dict[tuple[str, int, float, int], float], method: str, span: tuple[int, int]
) -> Iterator[float | None]:
    """Of each seed that has the change at two ratios or more."""
    for seed in sorted({key[1] for key in at if key[0] == method}):
        ratios = sorted({key[2] for key in at if key[:2] == (method, seed)})
        ends = {
            ratio: [at.get((method, seed, ratio, epoch)) for epoch in span]
            for ratio in ratios
        }
        changes = {
            ratio: b - a
            for ratio, (a, b) in ends.items()
            if a is not None and b is not None
        }
        if len(changes) > 1:
            yield crossing(changes)
