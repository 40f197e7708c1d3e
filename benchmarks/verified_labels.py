"""What verified labels are worth: tasks x policies x seeds x noise ratios x numbers of verified labels x five arms.

    python benchmarks/verified_labels.py runs/verified --jobs 2          # 990 runs, 12 s each on an idle core
    python benchmarks/verified_labels.py runs/verified --tasks subtraction --seeds 1 2 --ratios 0.7
    python benchmarks/verified_labels.py runs/verified --table --ends docs/figures/verified-labels.csv

Trains ``laptop/verified`` for each task and policy, below the folder, and prints the table of all runs that were asked
for and have ended. A run that stands in the file of ends is not trained; the same command continues. Policies are
warmed up here first, two minutes each on one core: seed, right-probabilities and share of systematic errors are drawn
from (task, number) alone. Policy 0 is the package's, on which settings were chosen; it is left out unless asked for.

Accuracies are held out, in %, means over seeds. A difference is to the better of verified alone and consistency (by
their means in the cell), paired by seed, with its 95 % t interval. The first table takes each policy's mean difference
as one value, so its n counts policies (seeds of one policy share what differs most), and has the worst cell beside it;
the second has all cells.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from statistics import mean

from olr_cli.analysis.frame import mean_cell, mean_interval
from olr_cli.recipe.layers import expand_sweep
from olr_cli.runs.directory import read_manifest
from olr_cli.runs.metrics import read_metrics
from olr_cli.seeding import uniform

ARMS = ("verified_alone", "consistency", "ttrl", "self_training", "trapo")
FLOORS = ARMS[:2]
BLIND = ("verified_alone", "ttrl", "trapo")
"""Arms that never train on a label that is not verified: one run serves all noise ratios."""
TASKS = ("addition-easier", "addition-harder", "subtraction")


def drawn_mixture(task, number):
    """Policy `number` (from 1) of a task: another right-probability range and share of systematic errors."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
    from make_toys import MIXTURES

    low, high, wrong = (uniform("policy", what, task, number) for what in ("low", "high", "wrong"))
    return replace(
        MIXTURES[task], low=0.02 + 0.04 * low, high=0.5 + 0.4 * high, wrong_share=0.5 + 0.4 * wrong
    )


def model(task, number, folder):
    """The path of a policy, warmed up first if it is not there."""
    if number == 0:
        return f"builtin:{task}"
    place = folder / "policies" / f"{task}-{number}"
    if not (place / "config.json").exists():
        mixture = drawn_mixture(task, number)
        from make_toys import warm_up

        making = place.with_name(f"{place.name}.making")
        making.mkdir(parents=True, exist_ok=True)
        warm_up(mixture, number).save(making)
        making.rename(place)
    return str(place.resolve())


def runs_of(arguments, task, number):
    """The runs of a task and policy: (task, policy, verified, ratio, seed, arm) -> run directory and recipe."""
    grid = {"data.trusted": arguments.verified, "noise.ratio": arguments.ratios, "seed": arguments.seeds}
    settings = [f"sweep.grid={grid}", f"model.path={model(task, number, arguments.folder)}"]
    if task == "subtraction":
        settings += ["data.train=arithmetic:subtraction", "data.test=arithmetic:subtraction"]
    runs = {}
    for run in expand_sweep("laptop/verified", settings):
        arm, ratio = arm_of(run.place), float(run.recipe.noise.ratio)
        if arm in arguments.arms and (arm not in BLIND or ratio == arguments.ratios[0]):
            key = (task, number, run.recipe.data.trusted, ratio, run.recipe.seed, arm)
            runs[key] = arguments.folder / f"{task}-{number}" / run.place, run.recipe
    return runs


def arm_of(place):
    """The arm of a sweep's run."""
    return next(arm for arm in ARMS if place.startswith(f"{arm}_trusted-"))


def train(path, recipe):
    """Train a run to its end; its held-out accuracy in %."""
    from olr_cli.engines.launch import engine_of, launch
    from olr_cli.runs.progress import Progress

    there = (path / "manifest.json").exists()
    if not there or read_manifest(path)["status"] != "finished":
        launch(recipe, path, engine_of(recipe), Progress(), resume=there)
    return 100 * read_metrics(path, "eval/avg")[-1]["eval/avg"]


def train_missing(arguments, pool, ends):
    """Train the runs that have no end yet, those of the first seed first, and write each end down."""
    places = [(task, number) for task in arguments.tasks for number in arguments.policies]
    list(pool.map(model, *zip(*places, strict=True), [arguments.folder] * len(places)))
    runs = {
        key: run for place in places for key, run in runs_of(arguments, *place).items() if key not in ends
    }
    started = {pool.submit(train, *runs[key]): key for key in sorted(runs, key=lambda key: key[4])}
    for count, done in enumerate(as_completed(started), 1):
        key = started[done]
        ends[key] = done.result()
        with arguments.ends.open("a", encoding="utf-8") as file:
            file.write(",".join([*map(str, key), f"{ends[key]:.4f}"]) + "\n")
        print(f"{count} of {len(runs)} runs", file=sys.stderr, flush=True)


def read_ends(file):
    """(task, policy, verified, ratio, seed, arm) -> held-out accuracy in %, of runs that have ended."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("task,policy,verified,ratio,seed,arm,accuracy\n", encoding="utf-8")
    rows = [line.split(",") for line in file.read_text(encoding="utf-8").splitlines()[1:]]
    return {
        (task, int(policy), int(verified), float(ratio), int(seed), arm): float(accuracy)
        for task, policy, verified, ratio, seed, arm, accuracy in rows
    }


def cells_of(arguments, ends):
    """The cells that are asked for; an arm that sees no noise has its runs at each ratio."""
    cells = defaultdict(dict)
    for (task, number, verified, ratio, seed, arm), end in ends.items():
        asked = task in arguments.tasks and number in arguments.policies and verified in arguments.verified
        if asked and seed in arguments.seeds and arm in arguments.arms:
            for at in arguments.ratios if arm in BLIND else {ratio} & set(arguments.ratios):
                cells[task, number, verified, at][arm, seed] = end
    return {key: Cell(of_cell) for key, of_cell in cells.items()}


def interval(values):
    """Mean and 95 % t interval of n values; of a single one, the mean alone; of none, nothing."""
    if not values:
        return ""
    cell = mean_cell(values, "points")
    ends = mean_interval(cell)
    reach = "" if ends is None else f" ± {(ends[1] - ends[0]) / 2:.1f}"
    return f"{cell.number:+.1f}{reach} (n={cell.n})"


class Cell:
    """The runs of a task, policy, number of verified labels and noise ratio; `ends` by (arm, seed)."""

    def __init__(self, ends):
        self.by_arm = defaultdict(dict)
        for (arm, seed), end in ends.items():
            self.by_arm[arm][seed] = end

    def mean(self, arm):
        """Over its seeds; None without a run."""
        return mean(self.by_arm[arm].values()) if self.by_arm[arm] else None

    def differences(self, arm):
        """To the better of verified alone and consistency, seed by seed; empty while one of the two has no run."""
        if not all(self.by_arm[floor] for floor in FLOORS):
            return []
        floor = self.by_arm[max(FLOORS, key=self.mean)]
        return [end - floor[seed] for seed, end in self.by_arm[arm].items() if seed in floor]


def cell_table(cells, arms):
    """Markdown of {(task, policy, verified, ratio): Cell}, a row a cell."""
    others = [arm for arm in arms if arm not in FLOORS]
    yield row("task", "policy", "verified", "ratio", *arms, *(f"{arm} - floor" for arm in others))
    yield "|---" * (4 + len(arms) + len(others)) + "|"
    for (task, policy, verified, ratio), cell in sorted(cells.items()):
        means = (
            "" if cell.mean(arm) is None else f"{cell.mean(arm):.1f} (n={len(cell.by_arm[arm])})"
            for arm in arms
        )
        yield row(
            task, policy, verified, f"{ratio:g}", *means, *(interval(cell.differences(arm)) for arm in others)
        )


def policy_table(cells, arms):
    """Markdown of {(task, policy, verified, ratio): Cell}: a row a number of verified labels and ratio."""
    others = [arm for arm in arms if arm not in FLOORS]
    yield row("verified", "ratio", *arms, *(f"{arm} - floor | worst cell" for arm in others))
    yield "|---" * (2 + len(arms) + 2 * len(others)) + "|"
    for verified, ratio in sorted({key[2:] for key in cells}):
        here = [cell for key, cell in cells.items() if key[2:] == (verified, ratio)]
        means = ([end for cell in here if (end := cell.mean(arm)) is not None] for arm in arms)
        shown = []
        for arm in others:
            by_cell = [differences for cell in here if (differences := cell.differences(arm))]
            worst = min(by_cell, key=mean, default=[])
            shown += [interval([mean(differences) for differences in by_cell]), interval(worst)]
        yield row(verified, f"{ratio:g}", *(f"{mean(ends):.1f}" if ends else "" for ends in means), *shown)


def row(*texts):
    """A line of a Markdown table."""
    return "| " + " | ".join(map(str, texts)) + " |"


def main():
    """Train and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="of all runs and policies; named again, it resumes")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--policies", nargs="+", type=int, default=[1, 2, 3], help="0: the package's")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--ratios", nargs="+", type=float, default=[0.3, 0.5, 0.7, 0.9])
    parser.add_argument("--verified", nargs="+", type=int, default=[25, 50])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    parser.add_argument("--jobs", type=int, default=1, help="runs to train at a time")
    parser.add_argument(
        "--ends", type=Path, help="a CSV file of runs that have ended; by default FOLDER/ends.csv"
    )
    parser.add_argument(
        "--table", action="store_true", help="print the table of what is there, train nothing"
    )
    arguments = parser.parse_args()
    arguments.ends = arguments.ends or arguments.folder / "ends.csv"
    ends = read_ends(arguments.ends)
    if not arguments.table:
        with ProcessPoolExecutor(arguments.jobs, get_context("spawn")) as pool:
            train_missing(arguments, pool, ends)
    cells = cells_of(arguments, ends)
    print(*policy_table(cells, arguments.arms), "", *cell_table(cells, arguments.arms), sep="\n")


if __name__ == "__main__":
    main()
