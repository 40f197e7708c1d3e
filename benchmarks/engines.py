"""Both engines on one recipe: held-out accuracy before and after, and how often selected labels are right.

    olr train laptop/engines --sweep
    python benchmarks/engines.py runs/engines

Intervals are 95 %. Those of accuracies are over held-out prompts (1.96 standard errors). Those of differences come from
10,000 bootstrap samples of the training prompts, which both engines share seed by seed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl

from olr_cli.runs.directory import read_manifest
from olr_cli.runs.metrics import read_metrics
from olr_cli.runs.store import scan_labels

RESAMPLES = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sweep", type=Path)
    arguments = parser.parse_args()
    runs: dict[tuple[str, int], Path] = {}
    for manifest in sorted(arguments.sweep.glob("*/manifest.json")):
        facts = read_manifest(manifest.parent)
        runs[facts["engine"], facts["seed"]] = manifest.parent
    seeds = sorted({seed for _, seed in runs})
    print(
        "| seed | engine | held-out accuracy, start | end | labels selected | of them right |"
    )
    print("|---|---|---|---|---|---|")
    for seed in seeds:
        for engine in ("local", "openrlhf"):
            print_run(seed, engine, runs[engine, seed])
    print("\n| seed | right among selected, openrlhf - local |")
    print("|---|---|")
    pairs = [
        [selected(runs[engine, seed]) for engine in ("openrlhf", "local")] for seed in seeds
    ]
    for seed, pair in zip(seeds, pairs, strict=True):
        print(f"| {seed} | {difference([pair])} |")
    print(f"| all | {difference(pairs)} |")


def print_run(seed: int, engine: str, run: Path) -> None:
    """One row of the table of runs."""
    measured = [line for line in read_metrics(run) if "eval/avg" in line]
    start, end = (
        f"{100 * line['eval/avg']:.1f} ± {196 * line['eval/avg_stderr']:.1f}"
        for line in (measured[0], measured[-1])
    )
    counts = selected(run)
    share = counts["right"].sum() / counts["selected"].sum()
    print(
        f"| {seed} | {engine} | {start} | {end} | {counts['selected'].sum()} | {100 * share:.1f} % |"
    )


def selected(run: Path) -> pl.DataFrame:
    """How often each prompt's label was selected, and was right then, in the order of the prompts' ids."""
    right = pl.col("effective_label_is_correct") & pl.col("is_selected")
    counts = (pl.col("is_selected").sum().alias("selected"), right.sum().alias("right"))
    return scan_labels(run).group_by("prompt_id").agg(*counts).sort("prompt_id").collect()


def difference(pairs: list[list[pl.DataFrame]]) -> str:
    """Share right among the selected, first minus second, pooled over pairs, in points with its interval."""
    random = np.random.default_rng(0)
    columns = [
        [frame.select("selected", "right").to_numpy() for frame in pair] for pair in pairs
    ]

    def points(rows_of_pair: list[np.ndarray]) -> float:
        shares = []
        for side in range(2):
            picked = sum(
                pair[side][rows].sum(axis=0)
                for pair, rows in zip(columns, rows_of_pair, strict=True)
            )
            shares.append(picked[1] / picked[0])
        return float(100 * (shares[0] - shares[1]))

    sizes = [len(pair[0]) for pair in columns]
    found = points([np.arange(size) for size in sizes])
    samples = [
        points([random.integers(size, size=size) for size in sizes])
        for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(samples, (0.025, 0.975))
    return f"{found:+.1f} points ({low:+.1f} to {high:+.1f})"


if __name__ == "__main__":
    main()
