"""Whether an intrinsic score ranks right responses above wrong ones of the same prompt, epoch by epoch.

    python benchmarks/score_ranks.py runs/baselines/token_entropy_seed-* --epochs 1 2 3 5 10

Prints, for each score, the share of pairs (right response, wrong response, of one prompt visit) in which the right one
scores higher, ties counting half: the area under the ROC curve within prompts. 0.5 is chance. Every run stores what it
takes, whatever its method.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import polars as pl

from olr_cli.runs.store import scan_rollouts

SCORES = {
    "self-certainty": pl.col("self_certainty"),
    "minus token entropy": -pl.col("entropy"),
    "log-likelihood, mean": pl.col("mean_logprob"),
    "log-likelihood, sum": pl.col("mean_logprob") * pl.col("tokens"),
}
ROUNDING = 1e-6
"""Scores this close are those of one response."""


def pairs_won(run: Path, epoch: int) -> dict[str, float]:
    """The share of pairs for each score; not a number where no prompt has right and wrong responses."""
    rows = (
        scan_rollouts(run)
        .filter(pl.col("visit") == epoch, pl.col("view") == "original")
        .select("prompt_id", "is_correct", **SCORES)
        .collect()
    )
    right, wrong = (
        rows.filter(pl.col("is_correct") == is_right) for is_right in (True, False)
    )
    pairs = right.join(wrong, on="prompt_id", suffix=" of wrong")
    return {name: _won(pairs[name] - pairs[f"{name} of wrong"]) for name in SCORES}


def _won(differences: pl.Series) -> float:
    mean = ((differences > ROUNDING) * 0.5 + (differences >= -ROUNDING) * 0.5).mean()
    return float("nan") if mean is None else float(mean)


def main() -> None:
    """Print a Markdown table, means over the runs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--epochs", type=int, nargs="+", default=[1])
    arguments = parser.parse_args()
    print(f"| score | {' | '.join(f'epoch {epoch}' for epoch in arguments.epochs)} |")
    print("|---" * (1 + len(arguments.epochs)) + "|")
    found = [
        [pairs_won(run, epoch) for run in arguments.runs] for epoch in arguments.epochs
    ]
    for name in SCORES:
        means = (sum(own[name] for own in runs) / len(runs) for runs in found)
        print(f"| {name} | {' | '.join(f'{mean:.2f}' for mean in means)} |")


if __name__ == "__main__":
    main()
