"""How good `olr audit` is, on labels that people checked and on noise that was injected: makes docs/audit-quality.md.

    python benchmarks/audit_quality.py FOLDER [--gsm8k FOLDER] [--out docs/audit-quality.md]

FOLDER/TASK/ARM/seed-N is a run of the laptop task; those that are missing are made (half an hour on one core). The
GSM8K folder holds rollouts.parquet (prompt_id, visit, model, question, given_label, response) and truth.parquet
(prompt_id, status: consensus, verified, revised, rejected; GSM8K-Platinum, arXiv 2502.03461).

Nothing was chosen on seeds 1 to 10; seed 101 of the laptop tasks served to choose the form of the annotator model.
GSM8K was looked at when the models were compared.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from olr_cli import seeding
from olr_cli.analysis.audit import annotators, calibration
from olr_cli.analysis.audit.calibration import Verified, auroc, is_right
from olr_cli.analysis.audit.tally import MISSING, Tally, tally
from olr_cli.analysis.histories import RolloutHistory, read_history
from olr_cli.answers import Judge

TASKS = {
    "easier": ("builtin:addition-easier", "arithmetic"),
    "harder": ("builtin:addition-harder", "arithmetic"),
    "subtraction": ("builtin:subtraction", "arithmetic:subtraction"),
}
ARMS = {  # settings of laptop/quickstart; a frozen arm trains on a file of labels, drawn from untrained rollouts (R4)
    "active-0.5": [],
    "frozen-0.05": ["noise=null"],
    "frozen-0.5": ["noise=null"],
}
VISITS = 5
UNTRAINED, TRAINED = range(1, 11), range(1, 3)
"""Seeds."""
RATIOS = (0.01, 0.02, 0.05, 0.08, 0.12, 0.5)
RULES = ("audit", "margin", "share", "pooled", "last")
FIRSTS = (10, 20, 50)
GSM8K = {"1 to 4": (1, 2, 3, 4), "all": (1, 2, 3, 4, 5), "4": (4,), "3": (3,), "1 and 2": (1, 2)}
CHECKED = (25, 50, 100)
DRAWS = 400
REPAIRS = 20
AHEAD = 0.005
"""The lead in average precision from which on a rule counts as ahead."""


def main() -> None:
    """Make what is missing, measure, write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gsm8k", type=Path, default=Path("../shared/data/gsm8k"))
    parser.add_argument("--out", type=Path, default=Path("docs/audit-quality.md"))
    arguments = parser.parse_args()
    with Judge() as judge:
        real = dict(gsm8k(arguments.gsm8k, judge))
        injected = dict(cells(arguments.folder, judge))
    arguments.out.write_text("\n".join(page(real, injected)) + "\n", encoding="utf-8")
    print(f"Wrote {arguments.out}")


# Histories --------------------------------------------------------------------------------------------------------


class Case:
    """A history, its labels, and what is known of them.

    Attributes:
        counted: answers and labels.
        last: the same of the last visit alone.
        model: the annotator model.
        wrong: (P,) the label is wrong.
        defective: (P,) it is, or the question is flawed.
        mended: (P,) the proposal is right; NaN without one.
    """

    def __init__(
        self,
        counted: Tally,
        last: Tally,
        wrong: np.ndarray,
        defective: np.ndarray,
        truths: Sequence[Any],
        judge: Judge,
    ) -> None:
        self.counted, self.last, self.wrong, self.defective = counted, last, wrong, defective
        self.model = annotators.fit(counted)
        spellings = counted.answers["spelling"]
        self.has_proposal = (self.model.leaders >= 0) & (self.model.leaders != counted.label_answers)
        proposed = [
            spellings[int(leader)] if has else None
            for leader, has in zip(self.model.leaders, self.has_proposal, strict=True)
        ]
        self.mended = is_right(proposed, truths, judge)
        self.mended[self.has_proposal & np.isnan(self.mended)] = 0  # of a flawed question no answer is right

    @property
    def is_labelled(self) -> np.ndarray:
        """(P,) whether there is a label and an answer."""
        return (self.counted.label_answers != MISSING) & (self.counted.prompts["answered"].to_numpy() > 0)

    def scores(self) -> dict[str, np.ndarray]:
        """(P,) by every rule: the larger, the more doubtful."""
        label, other = shares(self.counted)
        places = {prompt_id: place for place, prompt_id in enumerate(self.last.prompt_ids)}
        order = [places[prompt_id] for prompt_id in self.counted.prompt_ids]
        last_label, last_other = (values[order] for values in shares(self.last))
        return {
            "audit": self.model.odds,
            "margin": other - label,
            "share": -label,
            "pooled": (other > label).astype(float),
            "last": (last_other > last_label).astype(float),
        }


def shares(counted: Tally) -> tuple[np.ndarray, np.ndarray]:
    """(P,) of all answers: the share of the label, and of the most frequent other answer."""
    prompts = counted.answers["prompt"].to_numpy()
    votes = np.bincount(counted.counts["answer"], counted.counts["count"], len(prompts))
    votes = votes / np.maximum(np.bincount(prompts, votes, len(counted)), 1)[prompts]
    seen = counted.label_answers[counted.label_answers >= 0]
    label, other = np.zeros(len(counted)), np.zeros(len(counted))
    label[counted.label_answers >= 0] = votes[seen]
    votes[seen] = 0
    np.maximum.at(other, prompts, votes)
    return label, other


def gsm8k(folder: Path, judge: Judge) -> Iterator[tuple[tuple[str, str], Case]]:
    """Each case by its visits and by whether its models are known."""
    rows = pl.read_parquet(folder / "rollouts.parquet")
    truth = pl.read_parquet(folder / "truth.parquet")
    known = {row["prompt_id"]: row for row in truth.iter_rows(named=True)}
    for name, visits in GSM8K.items():
        for kind in ("models", "one policy"):
            answers = rows.filter(pl.col("visit").is_in(visits))
            answers = answers if kind == "models" else answers.drop("model")
            counted = _of_table(answers, judge)
            last = _of_table(answers.filter(visit=max(visits)), judge)
            status = [known[prompt_id]["status"] for prompt_id in counted.prompt_ids]
            truths = [known[prompt_id]["true_answer"] for prompt_id in counted.prompt_ids]
            wrong = np.array([one == "revised" for one in status])
            defective = np.array([one in ("revised", "rejected") for one in status])
            yield (name, kind), Case(counted, last, wrong, defective, truths, judge)


def _of_table(rows: pl.DataFrame, judge: Judge) -> Tally:
    file = Path(sys.argv[1]) / "gsm8k.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    rows.write_parquet(file)
    return tally(read_history(file), judge)


def cells(folder: Path, judge: Judge) -> Iterator[tuple[tuple[str, str, int], list[Case]]]:
    """(arm, task, visits) -> a case a seed."""
    for task in TASKS:
        for arm, seeds in (("untrained", UNTRAINED), *((arm, TRAINED) for arm in ARMS)):
            runs = {seed: make(folder, task, arm, seed) for seed in seeds}
            for visits in (1, 2, VISITS):
                if arm != "untrained":
                    yield (
                        (arm, task, visits),
                        [_case(run, visits, None, seed, judge) for seed, run in runs.items()],
                    )
                    continue
                for ratio in RATIOS:
                    cases = [_case(run, visits, ratio, seed, judge) for seed, run in runs.items()]
                    yield (f"untrained {ratio:g}", task, visits), cases


def make(folder: Path, task: str, arm: str, seed: int) -> Path:
    """Train, or only sample, unless the run is there."""
    run = folder / task / arm / f"seed-{seed}"
    policy, data = TASKS[task]
    if (run / "manifest.json").exists():
        return run
    if arm == "untrained":
        options = ["--visits", VISITS, "--max-new-tokens", 5, "--device", "cpu", "--seed", seed]
        olr("rollouts", policy, data, *options, "--run-dir", run)
        return run
    if arm.startswith("frozen"):
        file = folder / task / arm / f"labels-{seed}.parquet"
        noise = [
            "--type",
            "active",
            "--ratio",
            arm.removeprefix("frozen-"),
            "--dataset",
            data,
            "--seed",
            seed,
        ]
        olr("inject-noise", *noise, "--rollouts", make(folder, task, "untrained", seed), "--out", file)
        data = str(file)
    settings = ["method.name=grpo", f"seed={seed}", f"model.path={policy}", f"data.train={data}", *ARMS[arm]]
    settings += [f"data.test={TASKS[task][1]}", f"train.epochs={VISITS}", "train.evaluate_every=1000"]
    olr(
        "train", "laptop/quickstart", "--run-dir", run, *(word for one in settings for word in ("--set", one))
    )
    return run


def olr(*words: object) -> None:
    """Run a command of the toolkit."""
    print("olr", *words, file=sys.stderr)
    subprocess.run([sys.executable, "-m", "olr_cli", *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def _case(run: Path, visits: int, ratio: float | None, seed: int, judge: Judge) -> Case:
    """A cut history; with a ratio, so many labels are wrong answers of its rollouts, each as likely."""
    counted, last = _cut(run, 1, visits, judge), _cut(run, visits, visits, judge)
    truths = [read_truths(run)[prompt_id] for prompt_id in counted.prompt_ids]
    if ratio is not None:
        counted, last = with_wrong_labels(
            counted, last, _cut(run, 1, VISITS, judge), truths, ratio, seed, judge
        )
    wrong = is_right(counted.labels, truths, judge) == 0
    return Case(counted, last, wrong, wrong, truths, judge)


_HISTORIES: dict[Path, RolloutHistory] = {}
_TALLIES: dict[tuple[Path, int, int], Tally] = {}


def read_truths(run: Path) -> Mapping[str, str | None]:
    """prompt_id -> the true answer."""
    if run not in _HISTORIES:
        _HISTORIES[run] = read_history(run)
    return {name: prompt.true_answer for name, prompt in _HISTORIES[run].prompts.items()}


def _cut(run: Path, first: int, last: int, judge: Judge) -> Tally:
    """The tally of some visits."""
    if (run, first, last) not in _TALLIES:
        history = read_history(run)
        steps = (rows.filter(pl.col("visit").is_between(first, last)) for rows in history.steps)
        _TALLIES[run, first, last] = tally(replace(history, steps=steps), judge)
    return _TALLIES[run, first, last]


def with_wrong_labels(
    counted: Tally, last: Tally, whole: Tally, truths: Sequence[Any], ratio: float, seed: int, judge: Judge
) -> tuple[Tally, Tally]:
    """The tallies with the same labels, of which that share are wrong answers of the whole history."""
    spellings, prompts = whole.answers["spelling"].to_list(), whole.answers["prompt"].to_list()
    right = is_right(spellings, [truths[p] for p in prompts], judge)
    wrong: dict[int, list[str]] = {}
    for spelling, prompt, is_true in zip(spellings, prompts, right, strict=True):
        if not is_true:
            wrong.setdefault(prompt, []).append(spelling)
    labels = list(truths)
    order = [p for p in seeding.permutation(len(labels), "wrong labels", seed) if p in wrong]
    for prompt in order[: round(ratio * len(labels))]:
        place = seeding.key("wrong answer", seed, prompt) % len(wrong[prompt])
        labels[prompt] = wrong[prompt][place]
    by_id = dict(zip(counted.prompt_ids, labels, strict=True))
    return _relabelled(counted, by_id, judge), _relabelled(last, by_id, judge)


def _relabelled(counted: Tally, by_id: Mapping[str, str], judge: Judge) -> Tally:
    labels = [by_id[prompt_id] for prompt_id in counted.prompt_ids]
    prompts = counted.answers["prompt"].to_list()
    same = is_right(counted.answers["spelling"].to_list(), [labels[p] for p in prompts], judge)
    answers = np.full(len(counted), -1)
    answers[np.array(prompts)[same == 1]] = np.flatnonzero(same == 1)
    return replace(counted, labels=tuple(labels), label_answers=answers)


# Measures ---------------------------------------------------------------------------------------------------------


def average_precision(scores: np.ndarray, is_true: np.ndarray) -> float:
    """Mean precision at every true one; of equal scores in every order alike."""
    values, sizes = np.unique(-scores, return_counts=True)
    places = np.searchsorted(values, -scores)
    hits = np.bincount(places, is_true, len(values))
    precision = np.cumsum(hits) / np.cumsum(sizes)
    return float((hits * precision).sum() / is_true.sum())


def firsts(scores: np.ndarray, is_true: np.ndarray, sizes: Iterable[int] = FIRSTS) -> str:
    """How many of the first rows are true: ``9 / 17 / 35``."""
    order = np.argsort(-scores, kind="stable")
    return " / ".join(str(int(is_true[order[:size]].sum())) for size in sizes)


def verified_draw(
    case: Case, is_true: np.ndarray, size: int, draw: int, *, from_the_top: bool = False
) -> Verified:
    """What somebody knows who checked so many labels."""
    labelled = np.flatnonzero(case.is_labelled)
    if from_the_top:
        chosen = labelled[np.argsort(-case.model.odds[labelled], kind="stable")][:size]
    else:
        chosen = np.random.default_rng([draw, size]).choice(labelled, min(size, len(labelled)), replace=False)
    is_wrong = np.full(len(case.counted), np.nan)
    is_wrong[chosen] = is_true[chosen]
    is_drawn = np.zeros(len(is_wrong), dtype=bool)
    is_drawn[chosen] = not from_the_top
    return Verified((None,) * len(is_wrong), is_wrong, is_drawn)


def repaired(case: Case, verified: Verified) -> tuple[int, int, bool | None]:
    """Labels that verified labels change, how many more are right then, and whether the interval holds that number.

    None where no change is proposed.
    """
    is_known = ~np.isnan(verified.is_wrong)
    right = np.where(is_known, case.mended, np.nan)
    maps = calibration.calibrate(case.model.odds, verified.is_wrong, right)
    chance = maps.chances(case.model.odds)
    may_change = case.has_proposal & case.is_labelled & ~is_known
    is_better = may_change & (chance * maps.mended.mean() > 1 - chance)
    is_changed, gain = maps.changes(case.model.odds, may_change)
    outcome = np.nan_to_num(case.mended) - ~case.defective
    held = None if gain is None else bool(gain.low <= outcome[is_better].sum() <= gain.high)
    return int(is_changed.sum()), int(outcome[is_changed].sum()), held


# The page ---------------------------------------------------------------------------------------------------------

HEAD = """# How good the audit is

Made by `python benchmarks/audit_quality.py FOLDER`; what follows from it is in [audit.md](audit.md). *Margin*: the
share of the most frequent other answer minus that of the label (cleanlab's normalised margin). *Share*: that of the
label. *Pooled*, *last*: whether another answer is the majority of all visits, of the last one.

## Labels that people checked

GSM8K's test set: 1,319 questions, 18 answers each; 10 labels are wrong and 110 questions flawed (GSM8K-Platinum), and
defective are both. Visit 1 is GPT-3, 2 text-davinci-003, 3 gpt-3.5-turbo, 4 gpt-4o-mini (four models or prompts each),
5 two of ToRA. *Models*: a column of the log tells them apart, and each is an annotator; *one policy*: none does.
"""

INJECTED = f"""
## Noise that was injected

Average precision of the order (AUROC): means over seeds {UNTRAINED[0]} to {UNTRAINED[-1]} of untrained policies, with
wrong answers of their rollouts as labels, and seeds {TRAINED[0]} to {TRAINED[-1]} of policies trained with GRPO (400
prompts, K = 8). *Behind*: a simple rule is ahead by more than {AHEAD}.
"""

DROPPED = """
## What is left of the data set

`--drop doubted,questionable` without verified labels: the share of rows that are kept, and of labels that are right (on
GSM8K: not defective) before and after, in %.
"""

VERIFIED = f"""
## With verified labels

Of {DRAWS} random draws, over the seeds: how often the 95 % interval of the noise ratio holds the true one. Of {REPAIRS}
of them `--repair`: how many change labels, by how many points the share of right labels rises then (mean), the worst
draw, and in how many of those that propose changes the interval of the gain holds it. First 50: the first rows of the
queue. Flawed questions count as defective, and a label of one that is replaced as neither gained nor lost. Rows of one
noise share their draws; labels that were verified are not part of the gain.
"""


def page(
    real: Mapping[tuple[str, str], Case], injected: Mapping[tuple[str, str, int], list[Case]]
) -> Iterator[str]:
    """All lines."""
    yield from (*HEAD.splitlines(), "", *real_table(real))
    yield from (*INJECTED.splitlines(), "", *injected_table(injected))
    yield from (*DROPPED.splitlines(), "", *drop_table(real, injected))
    yield from (*VERIFIED.splitlines(), "", *verified_table(real, injected))


def real_table(real: Mapping[tuple[str, str], Case]) -> Iterator[str]:
    """GSM8K by history and rule."""
    heads = ("visits", "answers", "rule", "AP", "AUROC", "defective in the first 10 / 20 / 50")
    yield f"| {' | '.join(heads)} | wrong labels in the first 50 | AP, AUROC of wrong labels |"
    yield "|---|---|---|---|---|---|---|---|"
    for (name, kind), case in real.items():
        for rule, scores in case.scores().items():
            if kind == "one policy" and rule != "audit":
                continue
            cells = [
                name,
                kind if rule == "audit" else "",
                rule,
                f"{average_precision(scores, case.defective):.2f}",
            ]
            cells += [f"{auroc(scores, case.defective):.2f}", firsts(scores, case.defective)]
            cells += [firsts(scores, case.wrong, (50,))]
            cells += [f"{average_precision(scores, case.wrong):.2f}, {auroc(scores, case.wrong):.2f}"]
            yield f"| {' | '.join(cells)} |"


def injected_table(injected: Mapping[tuple[str, str, int], list[Case]]) -> Iterator[str]:
    """Every cell by rule."""
    yield f"| noise | task | visits | {' | '.join(RULES)} | behind |"
    yield "|---" * (len(RULES) + 4) + "|"
    for (arm, task, visits), cases in injected.items():
        found = {rule: [] for rule in RULES}  # type: dict[str, list[tuple[float, float]]]
        for case in cases:
            used = case.is_labelled
            for rule, scores in case.scores().items():
                values, is_wrong = scores[used], case.wrong[used]
                found[rule].append((average_precision(values, is_wrong), auroc(values, is_wrong) or 0.0))
        means = {rule: np.mean(values, axis=0) for rule, values in found.items()}
        best = max(RULES[1:], key=lambda rule: means[rule][0])
        behind = means[best][0] - means["audit"][0]
        mark = f"{best} {behind:.3f}" if behind > AHEAD else ""
        values = [f"{means[rule][0]:.3f} ({means[rule][1]:.3f})" for rule in RULES]
        yield f"| {arm} | {task} | {visits} | {' | '.join(values)} | {mark} |"


def status_kept(case: Case) -> np.ndarray:
    """(P,) rows that `--drop doubted,questionable` keeps, as `audit` decides it without verified labels."""
    model, labels = case.model, case.counted.label_answers
    is_questionable = ~model.is_settled & ((model.leaders != labels) | (labels < 0))
    several = (case.counted.prompts["visits"].to_numpy() > 1) | (len(case.counted.models) > 1)
    is_doubted = model.is_settled & (model.leaders != labels) & (model.odds > 0) & several
    return ~(is_questionable | is_doubted) & case.is_labelled


def drop_table(
    real: Mapping[tuple[str, str], Case], injected: Mapping[tuple[str, str, int], list[Case]]
) -> Iterator[str]:
    """Kept rows and their labels."""
    yield "| history | kept | right before | right after |"
    yield "|---|---|---|---|"
    rows = [(f"GSM8K, {name}, {kind}", [case]) for (name, kind), case in real.items()]
    rows += [
        (f"{arm}, {task}, {visits} visits", cases)
        for (arm, task, visits), cases in injected.items()
        if visits == VISITS
    ]
    for name, cases in rows:
        kept = [status_kept(case) for case in cases]
        used = [case.is_labelled for case in cases]
        values = [
            np.mean([k.sum() / u.sum() for k, u in zip(kept, used, strict=True)]),
            np.mean([1 - case.defective[u].mean() for case, u in zip(cases, used, strict=True)]),
            np.mean([1 - case.defective[k].mean() for case, k in zip(cases, kept, strict=True)]),
        ]
        yield f"| {name} | {' | '.join(f'{100 * value:.1f}' for value in values)} |"


def verified_table(
    real: Mapping[tuple[str, str], Case], injected: Mapping[tuple[str, str, int], list[Case]]
) -> Iterator[str]:
    """Coverage, gain and harm."""
    yield "| history | checked | ratio held | repaired | gain | worst | gain held |"
    yield "|---|---|---|---|---|---|---|"
    rows = [(f"GSM8K, {name}, {kind}", [case]) for (name, kind), case in real.items()]
    rows += [
        (f"{arm}, {task}, {visits} visits", cases)
        for (arm, task, visits), cases in injected.items()
        if visits == VISITS
    ]
    totals: dict[str, list[bool]] = {"ratio": [], "gain": []}
    for name, cases in rows:
        for size in CHECKED:
            yield f"| {name} | {size} | {verified_cells(cases, size, totals, top=False)} |"
        yield f"| {name} | first 50 | {verified_cells(cases, 50, totals, top=True)} |"
    yield ""
    yield (
        f"Over all rows the interval of the ratio holds the true one in {np.mean(totals['ratio']):.1%} of"
        f" {len(totals['ratio']):,} draws, that of the gain in {np.mean(totals['gain']):.1%} of"
        f" {len(totals['gain']):,}."
    )


def verified_cells(cases: Sequence[Case], size: int, totals: Mapping[str, list[bool]], *, top: bool) -> str:
    """The cells of a row: draws are spread over its cases."""
    held, changes, gains, gain_held = [], 0, [], []
    draws = len(cases) if top else DRAWS
    for draw in range(draws):
        case = cases[draw % len(cases)]
        verified = verified_draw(case, case.defective, size, draw, from_the_top=top)
        labelled = case.is_labelled
        if not top:
            found = calibration.noise_ratio(verified, labelled)
            assert found is not None
            held.append(found.low <= case.defective[labelled].mean() <= found.high)
        if draw < REPAIRS:
            changed, gain, is_held = repaired(case, verified)
            changes += changed > 0
            gains.append(100 * gain / labelled.sum())
            gain_held += [] if is_held is None else [is_held]
    totals["ratio"].extend(held)
    totals["gain"].extend(gain_held)
    made = [gain for gain in gains if gain]
    cells = ["–" if top else f"{100 * np.mean(held):.1f} %", f"{changes} of {len(gains)}"]
    cells += [f"{np.mean(made):+.1f}" if made else "–", f"{min(gains):+.1f}"]
    cells += [f"{sum(gain_held)} of {len(gain_held)}"]
    return " | ".join(cells)


if __name__ == "__main__":
    main()
