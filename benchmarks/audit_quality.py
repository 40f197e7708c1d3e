"""How good `olr audit` is, on seeds that nothing in it was fitted on: the tables of docs/audit.md.

    python benchmarks/audit_quality.py FOLDER               # makes the histories (hours on one core), then prints
    python benchmarks/audit_quality.py FOLDER --no-making   # of the histories that are there
    python benchmarks/audit_quality.py FOLDER --spread      # maps fitted to seeds 101 to 103, for `confidence.priors`

FOLDER/TASK/ARM/seed-N is a run, and FOLDER/measured-VISITS.jsonl holds a row for each audit of it, which is not made
again. A history of fewer visits is a longer one, cut. OLR and GRPO histories coincide until the fourth visit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from olr_cli import seeding
from olr_cli.analysis.audit.answer import warnings
from olr_cli.analysis.audit.audit import Audit, audit
from olr_cli.analysis.audit.confidence import auroc, is_right
from olr_cli.analysis.audit.tally import MISSING, Tally, tally
from olr_cli.analysis.histories import RolloutHistory, read_history
from olr_cli.answers import Judge
from olr_cli.data.prompt_files import read_prompts
from olr_cli.errors import UserError
from olr_cli.runs.directory import read_manifest

Row = dict[str, Any]

TASKS = {
    "easier": ("builtin:addition-easier", "arithmetic"),
    "harder": ("builtin:addition-harder", "arithmetic"),
    "subtraction": ("builtin:subtraction", "arithmetic:subtraction"),
}
GRPO, CLEAN = "method.name=grpo", "noise=null"
ARMS = {  # settings of laptop/quickstart; a frozen arm trains on a file of labels, drawn from untrained rollouts (R4)
    "active-0.5": [GRPO],
    "active-0.5+olr": [],
    "active-0.3": [GRPO, "noise.ratio=0.3"],
    "active-0.7": [GRPO, "noise.ratio=0.7"],
    "inactive-0.5": [GRPO, "noise.type=inactive"],
    "mixed-0.5": [GRPO, "noise.type=mixed"],
    "frozen-0.5": [GRPO, CLEAN],
    "frozen-0.7": [GRPO, CLEAN],
    "clean": [GRPO, CLEAN],
}
UNTRAINED = ("untrained+frozen-0.5", "untrained+clean")
"""Labels put on rollouts that no training followed."""

CELLS: list[tuple[str, str, Sequence[int], int]] = [  # task, arm, seeds, visits
    ("easier", "active-0.5", range(1, 11), 10),
    *((task, "untrained", range(1, 4), 10) for task in TASKS),
    ("harder", "active-0.5", range(1, 4), 10),
    ("subtraction", "active-0.5", range(1, 4), 10),
    ("easier", "frozen-0.5", range(1, 4), 10),
    ("easier", "active-0.7", range(1, 4), 10),
    ("easier", "mixed-0.5", range(1, 4), 5),
    ("harder", "frozen-0.5", range(1, 4), 5),
    ("subtraction", "frozen-0.5", range(1, 4), 5),
    ("easier", "inactive-0.5", range(1, 3), 5),
    ("easier", "active-0.3", range(1, 4), 5),
    ("easier", "clean", range(1, 3), 5),
    ("harder", "active-0.7", range(1, 4), 5),
    ("easier", "frozen-0.7", range(1, 4), 5),
    ("easier", "active-0.5+olr", range(1, 11), 10),
]
FITTED_SEEDS = (101, 102, 103)
VISITS = (1, 2, 3, 5, 10)
TRUSTED = (25, 100)
TRUSTED_ARMS = ("active-0.5", "active-0.7", "untrained+frozen-0.5")
ORDER = (*ARMS, *UNTRAINED)
EDGES = (0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)


def main() -> None:
    """Print Markdown tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--no-making", action="store_true")
    parser.add_argument("--spread", action="store_true")
    parser.add_argument("--figure", type=Path, help="the reliability diagram as PNG")
    arguments = parser.parse_args()
    folder = arguments.folder
    if not arguments.no_making:
        for task, arm, seeds, visits in CELLS:
            for seed in seeds:
                make(folder, task, arm, seed, visits)
    rows = list(measured(folder, FITTED_SEEDS if arguments.spread else None))
    tables = {"Spread of maps": spread_table(rows)} if arguments.spread else TABLES
    for title, table in tables.items():
        lines = table if arguments.spread else table(rows)
        print(f"### {title}\n\n" + "\n".join(lines) + "\n")
    if arguments.figure:
        draw(rows, arguments.figure)


# Histories --------------------------------------------------------------------------------------------------------


def make(folder: Path, task: str, arm: str, seed: int, visits: int) -> Path:
    """Train, or only sample, unless the run is there."""
    run = folder / task / arm / f"seed-{seed}"
    if is_finished(run):
        return run
    policy, data = TASKS[task]
    if arm == "untrained":
        options = ["--visits", visits, "--max-new-tokens", 5, "--device", "cpu", "--seed", seed]
        olr("rollouts", policy, data, *options, "--run-dir", run)
        return run
    settings = [f"seed={seed}", f"model.path={policy}", f"data.train={data}", f"data.test={data}"]
    settings += [f"train.epochs={visits}", "train.evaluate_every=1000", *ARMS[arm]]
    if arm.startswith("frozen"):
        settings.append(f"data.train={frozen_labels(folder, task, arm.removeprefix('frozen-'), seed)}")
    olr(
        "train",
        "laptop/quickstart",
        "--run-dir",
        run,
        *(word for setting in settings for word in ("--set", setting)),
    )
    return run


def frozen_labels(folder: Path, task: str, ratio: str, seed: int) -> Path:
    """A data set of which that share has a wrong answer of the untrained policy as its label."""
    file = folder / task / f"labels-frozen-{ratio}" / f"seed-{seed}.parquet"
    if not file.exists():
        rollouts = make(folder, task, "untrained", seed, 10)
        options = ["--type", "active", "--ratio", ratio, "--dataset", TASKS[task][1], "--seed", seed]
        olr("inject-noise", *options, "--rollouts", rollouts, "--out", file)
    return file


def olr(*words: object) -> None:
    """Run a command of the toolkit."""
    print("olr", *words, file=sys.stderr)
    subprocess.run([sys.executable, "-m", "olr_cli", *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def is_finished(run: Path) -> bool:
    try:
        return read_manifest(run)["status"] == "finished"
    except UserError:
        return False


def until(history: RolloutHistory, visits: int) -> RolloutHistory:
    """The history without later visits."""
    return replace(history, steps=(rows.filter(pl.col("visit") <= visits) for rows in history.steps))


# Audits -----------------------------------------------------------------------------------------------------------


def measured(folder: Path, seeds: Sequence[int] | None) -> Iterator[Row]:
    """A row for every audit of every finished history of the cells; of the fitted seeds, of every history."""
    with Judge() as judge:
        for task in TASKS:
            for arm in (*ARMS, *UNTRAINED):
                source = "untrained" if arm in UNTRAINED else arm
                cells = {(t, a): s for t, a, s, _ in CELLS}
                for seed in seeds or cells.get((task, source), ()):
                    run = folder / task / source / f"seed-{seed}"
                    if not is_finished(run):
                        continue
                    for visits in VISITS:
                        if visits > read_history(run).recipe.train.epochs:
                            continue
                        sizes = (0, *TRUSTED) if arm in TRUSTED_ARMS and visits in (2, 5) else (0,)
                        yield from kept(
                            folder / "measured" / f"{task}-{arm}-{seed}-{visits}.jsonl",
                            lambda: [
                                measure(folder, task, arm, seed, visits, size, judge)  # noqa: B023
                                for size in sizes  # noqa: B023
                            ],
                        )


def kept(file: Path, make_rows: Any) -> list[Row]:
    """Rows that a file holds, which is written first if it is missing."""
    if not file.exists():
        rows = make_rows()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [json.loads(line) for line in file.read_text().splitlines()]


def labelled(folder: Path, task: str, arm: str, seed: int, visits: int) -> RolloutHistory:
    """A cut history; of an untrained policy, with frozen wrong labels if the arm says so."""
    run = folder / task / ("untrained" if arm in UNTRAINED else arm) / f"seed-{seed}"
    history = until(read_history(run), visits)
    if arm != "untrained+frozen-0.5":
        return history
    noisy = {
        prompt.prompt_id: prompt
        for prompt in read_prompts(str(frozen_labels(folder, task, "0.5", seed))).prompts
    }
    return replace(history, prompts={name: noisy[name] for name in history.prompts})


def measure(folder: Path, task: str, arm: str, seed: int, visits: int, trusted: int, judge: Judge) -> Row:
    """Audit one history, with some verified labels drawn at random, and compare with the truth and simple rules."""
    history = labelled(folder, task, arm, seed, visits)
    counted = tally(history, judge)
    truths = {name: prompt.true_answer for name, prompt in history.prompts.items()}
    with tempfile.TemporaryDirectory() as place:
        file = None
        if trusted:
            drawn = seeding.permutation(len(counted), "trusted", seed)[:trusted]
            rows = [
                {"prompt_id": counted.prompt_ids[p], "true_answer": truths[counted.prompt_ids[p]]}
                for p in drawn
            ]
            file = Path(place) / "trusted.jsonl"
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        result = audit(labelled(folder, task, arm, seed, visits), judge, trusted=file)
    return {
        "task": task, "arm": arm, "seed": seed, "visits": visits, "trusted": trusted,
        **_measured(result, truths, judge),
        **simple_rules(counted, [truths[name] for name in counted.prompt_ids], judge),
    }  # fmt: skip


def _measured(result: Audit, truths: Mapping[str, str | None], judge: Judge) -> Row:
    table = result.prompts.filter(pl.col("status") != "missing")
    table = table.filter(pl.col("given_label").is_not_null())
    answers = [truths[name] for name in table["prompt_id"]]
    right, proposal_right = (
        is_right(table[name].to_list(), answers, judge) for name in ("given_label", "proposed_label")
    )
    is_wrong, is_trusted = right == 0, table["is_trusted"].to_numpy()
    confidence = _floats(table["confidence"])
    changed = (table["change"] == "changed").to_numpy()
    after = np.where(changed, np.nan_to_num(proposal_right), right)
    is_open = ~np.isnan(confidence) & ~is_trusted
    odds = _floats(table["log_odds"])
    missing = result.prompts.filter(pl.col("status") == "missing")
    added = missing.filter(pl.col("change") == "added")
    added_right = is_right(added["proposed_label"].to_list(), [truths[n] for n in added["prompt_id"]], judge)
    expected, validation = result.forecast, result.cross_validation
    assert expected is not None and result.noise is not None
    doubted = is_open & (confidence >= 0.5)
    return {
        "labels": len(table),
        "wrong": int(is_wrong.sum()),
        "doubted": int(doubted.sum()),
        "hits": int((doubted & is_wrong).sum()),
        "wrong_open": int((is_wrong & ~is_trusted).sum()),
        "auroc": auroc(confidence[is_open], is_wrong[is_open]),
        "brier": float(np.mean((confidence - is_wrong)[is_open] ** 2)),
        "before": float(right.mean()),
        "after": float(after.mean()),
        "harmed": int((changed & ~is_wrong).sum()),
        "expected": asdict(expected),
        "can_be_told": result.noise.can_be_told,
        "is_convincing": validation is not None and validation.is_convincing,
        "warnings": list(warnings(result)),
        "missing": len(missing),
        "added": len(added),
        "added_right": int(np.nansum(added_right)),
        "bins": bins(confidence[is_open], is_wrong[is_open]),
        "evidence": by_evidence(table, is_wrong),
        "map": fitted_map(odds[~np.isnan(odds)], is_wrong[~np.isnan(odds)]),
    }


def _floats(values: pl.Series) -> np.ndarray:
    return values.cast(pl.Float64).fill_null(np.nan).to_numpy()


def simple_rules(counted: Tally, truths: Sequence[str | None], judge: Judge) -> Row:
    """Right labels after the pooled majority replaces every one, and cleanlab's normalised margin of the labels.

    Votes of all visits count alike; of labelled prompts. A tie keeps the label.
    """
    size = len(counted)
    answers = counted.counts.group_by("answer").agg(pl.col("count").sum()).sort("answer")
    votes = answers["count"].to_numpy().astype(float)
    prompts = counted.answers["prompt"].to_numpy()
    labels, is_labelled = counted.label_answers, counted.label_answers != MISSING
    top = np.zeros(size)
    np.maximum.at(top, prompts, votes)
    leads = votes == top[prompts]
    leaders = np.full(size, -1)
    leaders[prompts[leads]] = np.flatnonzero(leads)
    leaders[np.bincount(prompts[leads], minlength=size) != 1] = -1
    spellings = counted.answers["spelling"].to_list()
    majority = [spellings[a] if a >= 0 else label for a, label in zip(leaders, counted.labels, strict=True)]
    is_wrong = is_right(counted.labels, truths, judge) == 0
    shares = votes / np.bincount(prompts, votes, size)[prompts]
    others, given = shares.copy(), np.zeros(size)
    seen = labels[labels >= 0]
    given[labels >= 0], others[seen] = shares[seen], 0
    best_other = np.zeros(size)
    np.maximum.at(best_other, prompts, others)
    right = is_right(majority, truths, judge)
    return {
        "majority_after": float(np.nan_to_num(right)[is_labelled].mean()),
        "margin_auroc": auroc((best_other - given)[is_labelled], is_wrong[is_labelled]),
    }


def bins(confidence: np.ndarray, is_wrong: np.ndarray) -> list[tuple[float, int, int]]:
    """Of each bin of `EDGES`: the sum of confidences, how many labels are wrong, how many there are."""
    places = np.clip(np.digitize(confidence, EDGES) - 1, 0, len(EDGES) - 2)
    chosen = [places == b for b in range(len(EDGES) - 1)]
    return [(float(confidence[c].sum()), int(is_wrong[c].sum()), int(c.sum())) for c in chosen]


EVIDENCE = {
    "another leads, label not given": pl.col("proposed_label").is_not_null()
    & (pl.col("given_pass_rate") == 0),
    "another leads, label given": pl.col("proposed_label").is_not_null() & (pl.col("given_pass_rate") > 0),
    "label leads, at most half of the visits": pl.col("proposed_label").is_null()
    & (pl.col("consistency") <= 0.5),
    "label leads, more visits": pl.col("proposed_label").is_null() & (pl.col("consistency") > 0.5),
}
"""Classes of decided prompts: whether another answer than the label leads; whether the last visit gave the label."""


def by_evidence(table: pl.DataFrame, is_wrong: np.ndarray) -> dict[str, tuple[int, int]]:
    """Of each class of `EVIDENCE`: how many labels there are, and how many of them are wrong."""
    rows = table.with_columns(is_wrong=is_wrong).filter(pl.col("status") != "undecided")
    classes = {name: rows.filter(which)["is_wrong"] for name, which in EVIDENCE.items()}
    return {name: (len(values), int(values.sum())) for name, values in classes.items()}


def fitted_map(log_odds: np.ndarray, is_wrong: np.ndarray) -> tuple[float, float]:
    """Intercept and log slope of the likeliest map, with a weak prior."""
    from scipy.optimize import minimize

    sign, bounded = np.where(is_wrong, 1.0, -1.0), np.clip(log_odds, -20, 20)

    def loss(x: np.ndarray) -> float:
        misses = np.logaddexp(0, -sign * (x[0] + np.exp(x[1]) * bounded)).sum()
        return float(misses + (x[0] / 5) ** 2 / 2 + (x[1] / 3) ** 2 / 2)

    found = minimize(loss, [0.0, 0.0]).x
    return float(found[0]), float(found[1])


# Tables -----------------------------------------------------------------------------------------------------------


def grouped(
    rows: Sequence[Row], visits: Sequence[int] = VISITS, trusted: int = 0
) -> dict[tuple[str, str, int], list[Row]]:
    """The seeds of each arm, task and number of visits; an OLR history is a GRPO history until the fourth visit."""
    groups: dict[tuple[str, str, int], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (ORDER.index(row["arm"]), list(TASKS).index(row["task"]))):
        is_copy = row["arm"].endswith("+olr") and row["visits"] < 4
        if row["trusted"] == trusted and row["visits"] in visits and not is_copy:
            groups.setdefault((row["arm"], row["task"], row["visits"]), []).append(row)
    return groups


def table(head: str, groups: Mapping[tuple[str, str, int], list[Row]], cells: Any) -> Iterator[str]:
    """A row for each group: arm, task, visits, seeds, and cells."""
    names = f"noise | task | visits | seeds | {head}".split(" | ")
    yield f"| {' | '.join(names)} |"
    yield "|---" * len(names) + "|"
    for (arm, task, visits), group in groups.items():
        values = [arm, task, visits, len(group), *cells(group)]
        yield f"| {' | '.join(map(str, values))} |"


def quality_table(rows: Sequence[Row]) -> Iterator[str]:
    """Ranking and repair beside the simple rules."""

    def cells(group: list[Row]) -> Iterator[object]:
        yield total(group, "labels")
        yield spread([row["auroc"] for row in group], ".3f")
        yield spread([row["margin_auroc"] for row in group], ".3f")
        yield f"{share(group, 'hits', 'doubted')}, {share(group, 'hits', 'wrong_open')}"
        yield spread([100 * row["before"] for row in group], ".1f")
        yield spread([100 * row["after"] for row in group], ".1f")
        yield spread([100 * (row["after"] - row["majority_after"]) for row in group], "+.1f")

    head = "labels | AUROC | margin | precision, recall | right | repaired | over pooled majority"
    return table(head, grouped([row for row in rows if row["wrong"]]), cells)


def forecast_table(rows: Sequence[Row]) -> Iterator[str]:
    """Ratio and gain as expected, how often their intervals hold them, and what is warned of."""
    names = ("ratio", "after", "gain")

    def cells(group: list[Row]) -> Iterator[object]:
        true = [(1 - row["before"], row["after"], row["after"] - row["before"]) for row in group]
        for place, name in enumerate(names):
            low, mean, high = (
                100 * np.mean([row["expected"][name][end] for row in group])
                for end in ("low", "mean", "high")
            )
            held = sum(
                row["expected"][name]["low"] - 1e-9 <= values[place] <= row["expected"][name]["high"] + 1e-9
                for row, values in zip(group, true, strict=True)
            )
            yield f"{100 * np.mean([v[place] for v in true]):.0f}: {mean:.0f} ({low:.0f} to {high:.0f}), {held}"
        yield sum(not row["can_be_told"] for row in group)
        yield sum(bool(row["warnings"]) for row in group)
        yield f"{np.mean([row['brier'] for row in group]):.3f}"

    head = "wrong: expected, held | right after | gain | beyond the guard | warned | squared error"
    for trusted in (0, *TRUSTED):
        yield f"With {trusted} trusted labels:\n"
        yield from table(head, grouped(rows, (2, 5, 10), trusted), cells)
        yield ""


def missing_table(rows: Sequence[Row]) -> Iterator[str]:
    """Labels that are missing, and what is filled in."""
    groups = {key: group for key, group in grouped(rows, (2, 5)).items() if total(group, "missing")}
    head = "missing | filled in | of them right"
    return table(
        head,
        groups,
        lambda group: [total(group, "missing"), total(group, "added"), share(group, "added_right", "added")],
    )


def reliability_table(rows: Sequence[Row]) -> Iterator[str]:
    """Mean confidence: share of wrong labels (how many), in bins."""
    groups = grouped([row for row in rows if row["wrong"]], (2, 5))
    return table("confidence: share wrong (labels)", groups, lambda group: [reliability(group)])


def reliability(group: Sequence[Row]) -> str:
    return ", ".join(f"{mean:.2f}: {wrong:.2f} ({size})" for mean, wrong, size in pooled_bins(group))


def pooled_bins(group: Sequence[Row]) -> list[tuple[float, float, int]]:
    """Mean confidence, share of wrong labels and size of each bin that has any."""
    sums = np.sum([row["bins"] for row in group], axis=0) if group else ()
    return [(c / size, wrong / size, int(size)) for c, wrong, size in sums if size]


def evidence_table(rows: Sequence[Row]) -> Iterator[str]:
    """Share of wrong labels by class of evidence, after five visits."""

    def cells(group: list[Row]) -> Iterator[str]:
        for name in EVIDENCE:
            size, wrong = np.sum([row["evidence"][name] for row in group], axis=0)
            yield f"{100 * wrong / size:.0f} % of {size}" if size else "–"

    return table(" | ".join(EVIDENCE), grouped(rows, (5,)), cells)


def spread_table(rows: Sequence[Row]) -> Iterator[str]:
    """Fitted maps beside the guard, by which `confidence.priors` tells histories apart."""

    def cells(group: list[Row]) -> Iterator[object]:
        yield spread([row["map"][0] for row in group], ".2f")
        yield spread([row["map"][1] for row in group], ".2f")
        yield sum(not row["can_be_told"] for row in group)

    return table("intercept | log slope | beyond the guard", grouped(rows), cells)


TABLES = {
    "Ranking and repair": quality_table,
    "Expected and true, in %": forecast_table,
    "Missing labels": missing_table,
    "Reliability": reliability_table,
    "Wrong labels by evidence": evidence_table,
}


def total(group: Sequence[Row], name: str) -> int:
    return sum(row[name] for row in group)


def share(group: Sequence[Row], part: str, whole: str) -> str:
    """In %, over all labels of the group."""
    size = total(group, whole)
    return "–" if not size else f"{100 * total(group, part) / size:.0f}"


def spread(values: Sequence[float | None], form: str) -> str:
    """Mean ± sd of the seeds."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return "–"
    deviation = f" ± {np.std(known, ddof=1):{form.lstrip('+')}}" if len(known) > 1 else ""
    return f"{np.mean(known):{form}}{deviation}"


def draw(rows: Sequence[Row], target: Path) -> None:
    """Reliability after five visits: a panel a task, a line an arm, with counts and intervals."""
    from matplotlib.lines import Line2D
    from scipy.stats import binomtest

    from olr_cli.analysis.figures import style
    from olr_cli.files import write_whole

    fewest, sizes = 10, []
    colours = (style.VERMILION, style.ORANGE, style.BLACK, style.GREEN, style.BLUE, style.PURPLE)
    arms = ("active-0.5", "active-0.3", "active-0.7", "frozen-0.5", "mixed-0.5", "untrained+frozen-0.5")
    looks = {
        arm: {"color": colour, **style.mark(marker)}
        for arm, colour, marker in zip(arms, colours, style.MARKERS, strict=False)
    }
    groups = grouped(rows)
    with style.applied():
        sheet = style.Sheet(len(TASKS), 3, width=style.TEXT_WIDTH, panel_height=2.1)
        for number, (axes, task) in enumerate(zip(sheet.panels, TASKS, strict=True)):
            for arm, look in looks.items():
                bins = [one for one in pooled_bins(groups.get((arm, task, 5), [])) if one[2] >= fewest]
                for mean, wrong, size in bins:
                    low, high = binomtest(round(wrong * size), size).proportion_ci(method="wilson")
                    axes.plot([mean, mean], [low, high], color=look["color"], linewidth=0.7)
                    axes.plot(mean, wrong, **look, markersize=1.2 * np.log10(size), clip_on=False, zorder=4)
                    sizes.append(size)
                axes.plot([one[0] for one in bins], [one[1] for one in bins], color=look["color"])
            # Above all lines, so that one along it does not hide it.
            axes.plot([0, 1], [0, 1], color=style.BLACK, linewidth=0.8, linestyle=style.DASHES, zorder=5)
            axes.set(xlim=(0, 1), xticks=[0, 0.5, 1], xlabel="confidence that the label is wrong")
            axes.set_title(style.lettered(number, task))
            style.percent_axis(axes, (0.0, 1.0))
            axes.xaxis.set_major_formatter(axes.yaxis.get_major_formatter())
            style.label_first(axes, number, "share of wrong labels")
        sheet.legend([Line2D([], [], label=arm, **look) for arm, look in looks.items()])
        caption = (
            f"A mark is a bin of confidences, the larger, the more labels ({min(sizes):,} to {max(sizes):,}; bins of"
            f" fewer than {fewest} are left out). Bars: Wilson's 95 % intervals, as if the labels of all seeds were"
            " independent. Dashed: confidences that are right."
        )
        figure = sheet.chart("reliability", pl.DataFrame(), caption=caption).figure
        write_whole(target, lambda path: figure.savefig(path, format="png", dpi=200))
    print(f"Wrote {target}")


if __name__ == "__main__":
    main()
