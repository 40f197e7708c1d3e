"""How good `olr audit` is: on other seeds, noise ratios and tasks than those its confidence was fitted on.

    olr train laptop/audit --sweep --jobs 2          # and twice more, for the other tasks: see the recipe's header
    python benchmarks/audit_quality.py runs/audit-addition-easier runs/audit-addition-harder runs/audit-subtraction

    --untrained FOLDER ...   also runs without noise of a policy that stays as it is (`olr rollouts`), one a seed: wrong
                             labels are drawn once for each prompt from its wrong rollouts (R4), for half of the prompts
    --figure FILE            the reliability diagram as PNG
    --fit                    write the built-in maps, olr_cli/analysis/audit/calibration.json, anew

The maps are fitted on seeds 101 to 103 of the first folder, GRPO, ratio .5, 2 to 10 visits; tables are of seeds 1 to 3.
A history of fewer visits is a longer one, cut. To the audit the sentinel of inactive noise is an answer nobody gave.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from olr_cli import seeding
from olr_cli.analysis.audit.confidence import (
    BUILT_IN,
    Calibration,
    Calibrations,
    TrustedLabels,
    auroc,
    brier,
    built_in,
    calibrated_ratio,
    fitted,
    quality,
    recalibrated,
)
from olr_cli.analysis.audit.estimator import (
    IN_TRAINING,
    UNTRAINED,
    Assumptions,
    fit,
    pooled_votes,
    ratio_interval,
)
from olr_cli.analysis.audit.tally import MISSING, UNSEEN, Tally, tally
from olr_cli.analysis.audit.verdicts import judged
from olr_cli.analysis.histories import RolloutHistory, read_history
from olr_cli.answers import Judge
from olr_cli.files import write_text
from olr_cli.runs.directory import read_manifest

VISITS = (1, 2, 3, 5, 10)
FITTED_VISITS = (2, 3, 5, 10)
FITTED_SEEDS, SEEDS = (101, 102, 103), (1, 2, 3)
FITTED_ARMS = ("active-0.5", "inactive-0.5")
NOBODYS = "an answer that nobody gave"
IDENTITY = Calibrations(Calibration(), Calibration(), Calibration())


@dataclass(frozen=True)
class Case:
    """One history, cut after some visits.

    Attributes:
        task: the folder's name.
        arm: of the sweep.
        seed: of the run.
        visits: that are left.
        counted: the votes and labels.
        assumed: what the model takes for granted.
        table: `verdicts.judged`, with is_wrong, proposal_is_right, and the scores of the two simple rules.
        unlabelled: log_odds and is_right of the proposals, had there been no labels.
        noise_ratio: estimated.
        interval: of it.
        can_be_told: what the guard says.
    """

    task: str
    arm: str
    seed: int
    visits: int
    counted: Tally
    assumed: Assumptions
    table: pl.DataFrame
    unlabelled: pl.DataFrame
    noise_ratio: float
    interval: tuple[float, float]
    can_be_told: bool

    @property
    def is_wrong(self) -> np.ndarray:
        return self.table["is_wrong"].to_numpy()


def main() -> None:
    """Print Markdown tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sweeps", type=Path, nargs="+")
    parser.add_argument("--untrained", type=Path, nargs="*", default=[])
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--fit", action="store_true")
    arguments = parser.parse_args()
    with Judge() as judge:
        if arguments.fit:
            maps = fitted_maps(
                list(trained_cases(arguments.sweeps[0], judge, IDENTITY, FITTED_SEEDS, FITTED_ARMS))
            )
            target = Path(__file__).parents[1] / "olr_cli" / "analysis" / "audit" / BUILT_IN
            write_text(target, json.dumps(asdict(maps), indent=2) + "\n")
            print(f"Wrote {target}\n")
        maps = built_in()
        cases = [case for sweep in arguments.sweeps for case in trained_cases(sweep, judge, maps, SEEDS)]
        cases += [case for folder in arguments.untrained for case in untrained_cases(folder, judge, maps)]
    for title, lines in (
        ("Finding wrong labels", quality_table(cases)),
        ("Noise ratio", ratio_table(cases)),
        ("Reliability", reliability_table(cases)),
        ("Labels right before and after, by threshold", repair_table(cases)),
        ("With trusted labels", trusted_table(cases)),
    ):
        print(f"### {title}\n\n" + "\n".join(lines) + "\n")
    if arguments.figure:
        draw(cases, arguments.figure)


def trained_cases(
    sweep: Path, judge: Judge, maps: Calibrations, seeds: Sequence[int], arms: Sequence[str] | None = None
) -> Iterator[Case]:
    """The cut histories of a sweep's finished runs."""
    for run in sorted(sweep.glob("*/manifest.json")):
        manifest = read_manifest(run.parent)
        arm, seed = str(manifest["arm"]), int(manifest["seed"])
        if manifest["status"] == "finished" and seed in seeds and (arms is None or arm in arms):
            for visits in VISITS:
                history = read_history(run.parent)
                truths = {p: prompt.true_answer for p, prompt in history.prompts.items()}
                cut = with_sentinels_unseen(tally(until(history, visits), judge))
                yield _case(
                    sweep.name,
                    arm,
                    seed,
                    visits,
                    cut,
                    [truths[p] for p in cut.prompt_ids],
                    maps,
                    judge,
                    IN_TRAINING,
                )


def untrained_cases(folder: Path, judge: Judge, maps: Calibrations) -> Iterator[Case]:
    """Frozen active noise of ratio .5, and none, on rollouts that no training followed."""
    for run in sorted(folder.glob("*/manifest.json")):
        seed = int(read_manifest(run.parent)["seed"])
        if seed in SEEDS:
            for visits in VISITS:
                clean = tally(until(read_history(run.parent), visits), judge)
                noisy = with_frozen_labels(clean, seed)
                truths = [label or "" for label in clean.labels]
                for arm, labelled in (("frozen-0.5", noisy), ("clean", clean)):
                    yield _case(folder.name, arm, seed, visits, labelled, truths, maps, judge, UNTRAINED)


def until(history: RolloutHistory, visits: int) -> RolloutHistory:
    """The history without later visits."""
    return replace(history, steps=(rows.filter(pl.col("visit") <= visits) for rows in history.steps))


def with_sentinels_unseen(counted: Tally) -> Tally:
    """Inactive labels as an answer that nobody gave, which they stand for."""
    missing = counted.label_answers == MISSING
    labels = tuple(NOBODYS if label is None else label for label in counted.labels)
    return replace(counted, labels=labels, label_answers=np.where(missing, UNSEEN, counted.label_answers))


def with_frozen_labels(clean: Tally, seed: int) -> Tally:
    """Half of the prompts get a wrong label for good: one of their wrong answers, all equally likely (R4)."""
    labels, answers = list(clean.labels), clean.label_answers.copy()
    own = clean.answers.with_row_index("answer").group_by("prompt", maintain_order=True).agg("answer")
    of_prompt = dict(own.iter_rows())
    spellings = clean.answers["spelling"].to_list()
    order = sorted(range(len(clean)), key=lambda p: clean.prompt_ids[p])
    for row in seeding.permutation(len(clean), "noise", seed)[: len(clean) // 2]:
        prompt = order[row]
        wrong = [a for a in of_prompt.get(prompt, ()) if a != answers[prompt]]
        if wrong:
            drawn = wrong[int(seeding.uniform("frozen label", seed, clean.prompt_ids[prompt]) * len(wrong))]
            labels[prompt], answers[prompt] = spellings[drawn], drawn
        else:
            labels[prompt], answers[prompt] = NOBODYS, UNSEEN
    return replace(clean, labels=tuple(labels), label_answers=answers)


def _case(
    task: str,
    arm: str,
    seed: int,
    visits: int,
    counted: Tally,
    truths: Sequence[str | None],
    maps: Calibrations,
    judge: Judge,
    assumed: Assumptions,
) -> Case:
    votes = pooled_votes(counted, assumed.decay)
    model = fit(votes, counted.label_answers, assumed.sharpness)
    table = judged(counted, model, maps)
    last, share = majority_rules(counted)
    table = table.with_columns(
        is_wrong=~same(counted.labels, truths, judge),
        proposal_is_right=same(table["proposed_label"], truths, judge),
        last_differs=pl.Series(last),
        differs=pl.Series(share),
    )
    nothing = np.full(len(counted), MISSING)
    guesses = judged(replace(counted, label_answers=nothing), fit(votes, nothing, assumed.sharpness), maps)
    unlabelled = guesses.select(
        log_odds="proposal_log_odds", is_right=same(guesses["proposed_label"], truths, judge)
    ).drop_nulls()
    interval = ratio_interval(votes, counted.label_answers, assumed.sharpnesses)
    return Case(
        task,
        arm,
        seed,
        visits,
        counted,
        assumed,
        table,
        unlabelled,
        model.noise.ratio,
        interval,
        model.noise.can_be_told,
    )


def same(labels: Iterable[str | None], truths: Iterable[str | None], judge: Judge) -> pl.Series:
    """Whether each label means the truth; no label does not."""
    pairs = [(truth or NOBODYS, label or NOBODYS) for label, truth in zip(labels, truths, strict=True)]
    verdicts = judge.matches(pairs)
    return pl.Series([verdicts[pair] is True for pair in pairs], dtype=pl.Boolean)


def majority_rules(counted: Tally) -> tuple[np.ndarray, np.ndarray]:
    """(P,) whether the last majority is another answer than the label; in which share of the visits it is so."""
    top = pl.col("count") == pl.col("count").max()
    majorities = (
        counted.counts.group_by("prompt", "visit")
        .agg(majority=pl.col("answer").filter(top).first(), tied=top.sum() > 1)
        .filter(~pl.col("tied"))
    )
    labels = pl.DataFrame({"prompt": np.arange(len(counted), dtype=np.int32), "label": counted.label_answers})
    rows = (
        counted.visits.join(majorities, on=["prompt", "visit"], how="left")
        .join(labels, on="prompt")
        .sort("prompt", "visit")
        .with_columns(other=(pl.col("majority") != pl.col("label")).fill_null(False))
    )
    found = rows.group_by("prompt", maintain_order=True).agg(
        last=pl.col("other").last(), share=pl.col("other").mean()
    )
    return found["last"].to_numpy(), found["share"].to_numpy()


def fitted_maps(cases: Sequence[Case]) -> Calibrations:
    """The maps of largest likelihood over all cut histories together."""
    used = [case for case in cases if case.visits in FITTED_VISITS]
    rows, guesses = pl.concat([case.table for case in used]), pl.concat([case.unlabelled for case in used])
    decided = rows.filter(pl.col("confidence").is_not_null())
    proposed = rows.filter(pl.col("proposal_log_odds").is_not_null())
    return Calibrations(
        fitted(decided["log_odds"].to_numpy(), decided["is_wrong"].to_numpy()),
        fitted(proposed["proposal_log_odds"].to_numpy(), proposed["proposal_is_right"].to_numpy()),
        fitted(guesses["log_odds"].to_numpy(), guesses["is_right"].to_numpy()),
    )


def grouped(cases: Sequence[Case]) -> dict[tuple[str, str, int], list[Case]]:
    """The seeds of each task, arm and number of visits."""
    groups: defaultdict[tuple[str, str, int], list[Case]] = defaultdict(list)
    for case in cases:
        groups[case.task, case.arm, case.visits].append(case)
    return dict(groups)


def quality_table(cases: Sequence[Case]) -> Iterator[str]:
    """The audit and the simple rules, over all labels of the seeds together; AUROC as mean and sd of the seeds."""
    yield (
        "| task | arm | visits | n | AUROC | precision | recall | last majority: precision, recall |"
        " most majorities: precision, recall, AUROC |"
    )
    yield "|---" * 9 + "|"
    for (task, arm, visits), group in grouped(cases).items():
        rows = pl.concat([case.table for case in group])
        wrong = rows["is_wrong"].to_numpy()
        found = quality(rows["confidence"].fill_null(np.nan).to_numpy(), wrong)
        last = quality(rows["last_differs"].to_numpy().astype(float), wrong)
        most = quality(rows["differs"].to_numpy(), wrong, threshold=0.5 + 1e-9)
        areas = [auroc_of(case) for case in group]
        (p, r), (last_p, last_r), (most_p, most_r) = (
            [percent(measured[name]) for name in ("precision", "recall")] for measured in (found, last, most)
        )
        yield (
            f"| {task} | {arm} | {visits} | {len(rows)} | {spread(areas)} | {p} | {r} | {last_p}, {last_r} |"
            f" {most_p}, {most_r}, {number(most['auroc'])} |"
        )


def auroc_of(case: Case) -> float:
    """Of the decided prompts; not a number for clean labels."""
    decided = case.table.filter(pl.col("confidence").is_not_null())
    return auroc(decided["confidence"].to_numpy(), decided["is_wrong"].to_numpy()) or float("nan")


def ratio_table(cases: Sequence[Case]) -> Iterator[str]:
    """The estimated noise ratio, how often its interval holds the truth, and how often the guard lets it pass."""
    yield "| task | arm | visits | runs | wrong | estimate | mean interval | holds the truth | guard: can be told |"
    yield "|---" * 9 + "|"
    for (task, arm, visits), group in grouped(cases).items():
        truths = [float(case.is_wrong.mean()) for case in group]
        held = sum(case.interval[0] <= t <= case.interval[1] for case, t in zip(group, truths, strict=True))
        low, high = (np.mean([case.interval[end] for case in group]) for end in (0, 1))
        told = sum(case.can_be_told for case in group)
        yield (
            f"| {task} | {arm} | {visits} | {len(group)} | {np.mean(truths):.2f} |"
            f" {spread([case.noise_ratio for case in group])} | {low:.2f} to {high:.2f} | {held} | {told} |"
        )


def reliability_table(cases: Sequence[Case]) -> Iterator[str]:
    """Mean confidence: share of wrong labels (how many), in bins."""
    yield "| task | arm | visits | confidence that the label is wrong: share wrong (n) |"
    yield "|---" * 4 + "|"
    for (task, arm, visits), group in grouped(cases).items():
        yield (
            f"| {task} | {arm} | {visits} | "
            + ", ".join(f"{mean:.2f}: {share:.2f} ({size})" for mean, share, size in bins(group))
            + " |"
        )


def bins(group: Sequence[Case]) -> list[tuple[float, float, int]]:
    """`reliability` of all labels of the cases together."""
    rows = pl.concat([case.table for case in group]).filter(pl.col("confidence").is_not_null())
    edges = np.array([0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
    return reliability(rows["confidence"].to_numpy(), rows["is_wrong"].to_numpy(), edges)


def reliability(
    confidence: np.ndarray, is_true: np.ndarray, edges: np.ndarray
) -> list[tuple[float, float, int]]:
    """Mean confidence, share of true outcomes, and size of each bin [edge, next edge), the last one closed."""
    bins = np.clip(np.digitize(confidence, edges) - 1, 0, len(edges) - 2)
    chosen = (bins == b for b in range(len(edges) - 1))
    return [(float(confidence[c].mean()), float(is_true[c].mean()), int(c.sum())) for c in chosen if c.any()]


def repair_table(cases: Sequence[Case]) -> Iterator[str]:
    """The share of right labels as given, and after changes from several confidences on."""
    thresholds = (0.5, 0.7, 0.9, 0.95)
    yield f"| task | arm | visits | given | {' | '.join(f'from {t}' for t in thresholds)} |"
    yield "|---" * (4 + len(thresholds)) + "|"
    for (task, arm, visits), group in grouped(cases).items():
        rows = pl.concat([case.table for case in group])
        kept = ~rows["is_wrong"]
        cells = [percent(repaired(rows, threshold)) for threshold in thresholds]
        yield f"| {task} | {arm} | {visits} | {percent(kept.mean())} | {' | '.join(cells)} |"


def repaired(rows: pl.DataFrame, threshold: float) -> float:
    """The share of right labels with those changed that `olr audit --threshold` changes."""
    changes = (pl.col("confidence") >= threshold) & (pl.col("proposal_confidence") > 1 - pl.col("confidence"))
    right = pl.when(changes.fill_null(False)).then("proposal_is_right").otherwise(~pl.col("is_wrong"))
    return float(rows.select(right.mean()).item())


def trusted_table(cases: Sequence[Case]) -> Iterator[str]:
    """What trusted labels, drawn at random, do: noise ratio; of the others squared error and labels right."""
    sizes = (0, 25, 50, 100)
    yield f"| task | arm | visits | {' | '.join(f'{n} trusted' for n in sizes)} |"
    yield "|---" * (3 + len(sizes)) + "|"
    for (task, arm, visits), group in grouped(cases).items():
        if visits in (5, 10) and arm in ("active-0.5", "active-0.7", "frozen-0.5"):
            cells = [np.mean([with_trusted(case, size) for case in group], axis=0) for size in sizes]
            shown = (f"{ratio:.2f}; {error:.3f}, {100 * right:.1f}" for ratio, error, right in cells)
            yield f"| {task} | {arm} | {visits} | {' | '.join(shown)} |"


def with_trusted(case: Case, size: int) -> tuple[float, float, float]:
    """Noise ratio, and of the other decided labels: the squared error of the confidence, the share right afterwards."""
    rows = np.array(seeding.permutation(len(case.counted), "trusted", case.seed)[:size], dtype=int)
    is_wrong = np.full(len(case.counted), np.nan)
    is_wrong[rows] = case.is_wrong[rows]
    answers = tuple("known" if known else None for known in ~np.isnan(is_wrong))
    trusted = TrustedLabels(answers, is_wrong)
    votes, labels = pooled_votes(case.counted, case.assumed.decay), case.counted.label_answers
    model = fit(votes, labels, case.assumed.sharpness, is_wrong)
    table = judged(case.counted, model, IDENTITY)
    odds, proposal_odds = (
        table[name].fill_null(np.nan).to_numpy() for name in ("log_odds", "proposal_log_odds")
    )
    odds = np.where(table["confidence"].is_not_null().to_numpy(), odds, np.nan)
    right = np.where(np.isnan(is_wrong), np.nan, case.table["proposal_is_right"].to_numpy())
    maps = recalibrated(trusted, built_in(), odds, proposal_odds, right)
    truth = case.table.select("is_wrong", "proposal_is_right")
    table = pl.concat([judged(case.counted, model, maps), truth], how="horizontal")
    others = table.filter(pl.Series(np.isnan(is_wrong)) & pl.col("confidence").is_not_null())
    error = brier(others["confidence"].to_numpy(), others["is_wrong"].to_numpy())
    confidence = table["confidence"].fill_null(np.nan).to_numpy()
    return calibrated_ratio(confidence, is_wrong), error, repaired(others, 0.5)


def draw(cases: Sequence[Case], target: Path) -> None:
    """Reliability after five visits: a panel a task, a line an arm."""
    from olr_cli.analysis.style import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILION, Sheet, applied
    from olr_cli.files import write_whole

    colours = {
        "active-0.5": VERMILION,
        "active-0.3": ORANGE,
        "active-0.5+olr": PURPLE,
        "active-0.7": GREY,
        "inactive-0.5": BLUE,
        "frozen-0.5": GREEN,
    }
    tasks = list(dict.fromkeys(case.task for case in cases))
    with applied():
        sheet = Sheet(len(tasks), min(len(tasks), 3), width=5.5, panel_height=2.1)
        for panel, task in zip(sheet.panels, tasks, strict=True):
            panel.plot([0, 1], [0, 1], color=GREY, linewidth=0.6, linestyle="--")
            for arm, colour in colours.items():
                group = [c for c in cases if (c.task, c.arm, c.visits) == (task, arm, 5)]
                if group:
                    points = np.array([(mean, share) for mean, share, size in bins(group) if size >= 10])
                    panel.plot(points[:, 0], points[:, 1], marker="o", color=colour, label=arm)
            panel.set(title=task, xlabel="confidence that the label is wrong", xlim=(0, 1), ylim=(0, 1))
        sheet.panels[0].set_ylabel("share of wrong labels")
        handles, names = [], []
        for panel in sheet.panels:
            for handle, name in zip(*panel.get_legend_handles_labels(), strict=True):
                if name not in names:
                    handles.append(handle)
                    names.append(name)
        sheet.figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False)
        write_whole(target, lambda path: sheet.figure.savefig(path, format="png", dpi=200))
    print(f"Wrote {target}")


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


def number(value: float | None) -> str:
    return "–" if value is None or np.isnan(value) else f"{value:.3f}"


def spread(values: Sequence[float]) -> str:
    """Mean ± sd."""
    if np.isnan(values).any():
        return "–"
    return f"{np.mean(values):.3f}" + (f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else "")


if __name__ == "__main__":
    main()
