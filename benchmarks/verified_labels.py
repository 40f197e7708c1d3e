"""What verified labels are worth: tasks x policies x seeds x noise ratios x numbers of verified labels x five arms.

    python benchmarks/verified_labels.py runs/verified --jobs 2          # 1,320 runs
    python benchmarks/verified_labels.py runs/verified --tasks subtraction --policies 0 --seeds 1 2 --ratios 0.7

Trains ``laptop/verified`` once for each task and policy, below the folder, and prints the table of all finished runs
that were asked for. The same command resumes. Policy 0 is the package's; the others are warmed up here first, two
minutes each on one core: seed, right-probabilities and share of systematic errors are drawn from (task, number) alone.

A cell is the mean held-out accuracy in % over n seeds. A difference is to the better of verified alone and consistency,
by their means in the cell, paired by seed, with its 95 % t interval. The last rows take each policy's mean difference
as one value, so their n counts policies: seeds of one policy share what differs most.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
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


def train(arguments, task, number):
    """Train what is missing of a task and policy; each finished run's accuracy, by (verified, ratio, seed, arm)."""
    place = arguments.folder / f"{task}-{number}"
    grid = {"data.trusted": arguments.verified, "noise.ratio": arguments.ratios, "seed": arguments.seeds}
    settings = [f"sweep.grid={grid}", f"model.path={model(task, number, arguments.folder)}"]
    if task == "subtraction":
        settings += ["data.train=arithmetic:subtraction", "data.test=arithmetic:subtraction"]
    runs = [
        (index, place / run.place, run.recipe, arm)
        for index, run in enumerate(expand_sweep("laptop/verified", settings))
        if (arm := arm_of(run.place)) in arguments.arms
    ]
    options = [part for setting in settings for part in ("--set", setting)]
    command = [sys.executable, "-m", "olr_cli", "train", "laptop/verified", *options, "--sweep"]

    def train_one(index):
        done = subprocess.run(
            [*command, "--index", str(index), "--run-dir", str(place)], capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(done.stderr or done.returncode)

    first = arguments.ratios[0]
    runs = [run for run in runs if run[3] not in BLIND or float(run[2].noise.ratio) == first]
    if not arguments.table:
        missing = [index for index, run, *_ in runs if accuracy(run) is None]
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for count, _ in enumerate(pool.map(train_one, missing), 1):
                print(f"{place}: {count} of {len(missing)} runs", file=sys.stderr, flush=True)
    ends = {}
    for _, run, recipe, arm in runs:
        end = accuracy(run)
        if end is not None:
            for ratio in arguments.ratios if arm in BLIND else [float(recipe.noise.ratio)]:
                ends[recipe.data.trusted, ratio, recipe.seed, arm] = end
    return ends


def arm_of(place):
    """The arm of a sweep's run."""
    return next(arm for arm in ARMS if place.startswith(f"{arm}_trusted-"))


def accuracy(run):
    """Held-out accuracy in % at the end of a finished run, else None."""
    if not (run / "manifest.json").exists() or read_manifest(run)["status"] != "finished":
        return None
    return 100 * read_metrics(run, "eval/avg")[-1]["eval/avg"]


def interval(values):
    """Mean and 95 % t interval of n values; of a single one, the mean alone."""
    cell = mean_cell(values, "points")
    ends = mean_interval(cell)
    reach = "" if ends is None else f" ± {(ends[1] - ends[0]) / 2:.1f}"
    return f"{cell.number:+.1f}{reach} (n={cell.n})"


def table(cells, arms):
    """Markdown of {(task, policy): {(verified, ratio, seed, arm): accuracy}}."""
    others = [arm for arm in arms if arm not in FLOORS]
    head = ["task", "policy", "verified", "ratio", *arms, *(f"{arm} - floor" for arm in others)]
    lines, policies = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)], defaultdict(list)
    for (task, policy), ends in cells.items():
        for verified, ratio in sorted({key[:2] for key in ends}):
            by_arm = {
                arm: {
                    key[2]: end for key, end in ends.items() if key[:2] == (verified, ratio) and key[3] == arm
                }
                for arm in arms
            }
            shown = [
                f"{mean(by_arm[a].values()):.1f} (n={len(by_arm[a])})" if by_arm[a] else "" for a in arms
            ]
            floors = [by_arm[arm] for arm in FLOORS if by_arm.get(arm)]
            for arm in others:
                floor = max(floors, key=lambda of: mean(of.values())) if len(floors) == len(FLOORS) else {}
                differences = [end - floor[seed] for seed, end in by_arm[arm].items() if seed in floor]
                shown.append(interval(differences) if differences else "")
                if differences:
                    policies[verified, ratio, arm].append(mean(differences))
            lines.append(f"| {task} | {policy} | {verified} | {ratio:g} | " + " | ".join(shown) + " |")
    for verified, ratio in sorted({key[:2] for key in policies}):
        shown = [
            interval(policies[verified, ratio, arm]) if policies[verified, ratio, arm] else ""
            for arm in others
        ]
        blank = " | ".join([""] * len(arms))
        lines.append(f"| all | | {verified} | {ratio:g} | {blank} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def main():
    """Train and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="of all runs and policies; named again, it resumes")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--policies", nargs="+", type=int, default=[0, 1, 2, 3], help="0: the package's")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--ratios", nargs="+", type=float, default=[0.3, 0.5, 0.7, 0.9])
    parser.add_argument("--verified", nargs="+", type=int, default=[25, 50])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    parser.add_argument("--jobs", type=int, default=1, help="runs to train at a time")
    parser.add_argument(
        "--table", action="store_true", help="print the table of what is there, train nothing"
    )
    arguments = parser.parse_args()
    places = [(task, number) for task in arguments.tasks for number in arguments.policies]
    print(table({place: train(arguments, *place) for place in places}, arguments.arms))


if __name__ == "__main__":
    main()
