"""How good `olr audit` is, on labels that people checked and on noise that was injected.

    python benchmarks/audit_quality.py FOLDER [--gsm8k FOLDER] [--mmlu-pro FOLDER] [--out docs/figures/FILE.csv]

Writes all measurements as CSV, and prints the table of docs/results/audit-quality.md, which says what the columns mean.
FOLDER/TASK/ARM/seed-N is a run of the laptop task; those that are missing are made (half an hour on one core). The
GSM8K folder holds rollouts.parquet (prompt_id, visit, model, question, given_label, response) and truth.parquet
(prompt_id, status: consensus, verified, revised, rejected; GSM8K-Platinum, arXiv 2502.03461), that of MMLU-Pro the
same, with the letters of 29 models and what people judged of some of the keys (status: ok, wrong, defective).

Nothing was chosen on seeds 1 to 10; seed 101 of the laptop tasks served to choose the form of the annotator model.
GSM8K and these judged keys of MMLU-Pro were looked at when the models were compared.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
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
GSM8K = {
    "1 to 4": (1, 2, 3, 4),
    "all": (1, 2, 3, 4, 5),
    "4": (4,),
    "3": (3,),
    "1 and 2": (1, 2),
}
MMLU_PRO = ("4 best", "4 spread", "12 best", "12 random", "29")
"""Which of its models; the best are those that most often answer with the key."""
KEYS = {"uniform": "another letter", "attractive": "a wrong answer of a model"}
"""What is put in place of keys."""
KEY_RATIO, KEY_SEEDS = 0.05, range(1, 5)
CHECKED = (25, 50, 100)
DRAWS = 400
REPAIRS = 20
COLUMNS = (
    *("labels", "task", "visits", "answers"),
    *(
        "rule",
        "ap",
        "auroc",
        "first_10",
        "first_20",
        "first_50",
        "wrong_in_50",
        "ap_wrong",
        "auroc_wrong",
    ),
    *("kept", "right_before", "right_after"),
    *(
        "checked",
        "draws",
        "ratio_held",
        "tried",
        "repaired",
        "gain",
        "worst",
        "proposed",
        "gain_held",
    ),
)
Cells = Mapping[tuple[str, str | None, str, str | None], "list[Case]"]
"""(labels, task, visits, answers) -> a case a seed; of GSM8K one."""


def main() -> None:
    """Make what is missing, measure, write the rows, print their summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gsm8k", type=Path, default=Path("../shared/data/gsm8k"))
    parser.add_argument("--mmlu-pro", type=Path, default=Path("../shared/data/mmlupro"))
    parser.add_argument("--out", type=Path, default=Path("docs/figures/audit-quality.csv"))
    arguments = parser.parse_args()
    with Judge() as judge:
        measured = dict(
            [
                *gsm8k(arguments.gsm8k, judge),
                *mmlu_pro(arguments.mmlu_pro, judge),
                *cells(arguments.folder, judge),
            ]
        )
    rows = pl.from_dicts(
        [*ranks(measured), *repairs(measured)], infer_schema_length=None
    ).select(COLUMNS)
    rows.write_csv(arguments.out)
    print("\n".join(summary(rows)))
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
        is_judged: (P,) it is known whether the label is wrong.
    """

    def __init__(
        self,
        counted: Tally,
        last: Tally,
        wrong: np.ndarray,
        defective: np.ndarray,
        truths: Sequence[Any],
        judge: Judge,
        is_judged: np.ndarray | None = None,
    ) -> None:
        self.is_judged = np.ones(len(counted), bool) if is_judged is None else is_judged
        self.counted, self.last, self.wrong, self.defective = (
            counted,
            last,
            wrong,
            defective,
        )
        self.model = annotators.fit(counted)
        spellings = counted.answers["spelling"]
        self.has_proposal = (self.model.leaders >= 0) & (
            self.model.leaders != counted.label_answers
        )
        proposed = [
            spellings[int(leader)] if has else None
            for leader, has in zip(self.model.leaders, self.has_proposal, strict=True)
        ]
        self.mended = is_right(proposed, truths, judge)
        self.mended[self.has_proposal & np.isnan(self.mended)] = (
            0  # of a flawed question no answer is right
        )

    @property
    def is_labelled(self) -> np.ndarray:
        """(P,) whether there are a judged label and an answer."""
        has_answers = self.counted.prompts["answered"].to_numpy() > 0
        return (self.counted.label_answers != MISSING) & has_answers & self.is_judged

    def scores(self) -> dict[str, np.ndarray]:
        """(P,) by every rule: the larger, the more doubtful."""
        label, other = shares(self.counted)
        places = {prompt_id: place for place, prompt_id in enumerate(self.last.prompt_ids)}
        order = [places[prompt_id] for prompt_id in self.counted.prompt_ids]
        last_label, last_other = (values[order] for values in shares(self.last))
        return {
            "audit": self.model.odds.round(9),  # as in the queue
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


def gsm8k(folder: Path, judge: Judge) -> Iterator[tuple[Any, list[Case]]]:
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
            yield (
                ("GSM8K", None, name, kind),
                [Case(counted, last, wrong, defective, truths, judge)],
            )


def _of_table(rows: pl.DataFrame, judge: Judge) -> Tally:
    file = Path(sys.argv[1]) / "gsm8k.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    rows.write_parquet(file)
    return tally(read_history(file), judge)


def mmlu_pro(folder: Path, judge: Judge) -> Iterator[tuple[Any, list[Case]]]:
    """Each case by its models: of the keys that people judged, and of wrong ones put in place of the others."""
    rows = pl.read_parquet(folder / "rollouts.parquet")
    status = dict(pl.read_parquet(folder / "truth.parquet")["prompt_id", "status"].rows())
    whole = _of_table(rows, judge)
    agrees = (
        whole.counts["answer"].to_numpy() == whole.label_answers[whole.counts["prompt"]]
    )
    of_models = np.bincount(whole.counts["model"], agrees) / np.bincount(
        whole.counts["model"]
    )
    order = np.argsort(-of_models, kind="stable").tolist()
    spread = np.linspace(0, len(order) - 1, 4).astype(int)
    drawn = seeding.permutation(len(order), "models of MMLU-Pro")[:12]
    chosen = (order[:4], [order[place] for place in spread], order[:12], drawn, order)
    for name, models in zip(MMLU_PRO, chosen, strict=True):
        names = [whole.models[model] for model in models]
        counted = _of_table(rows.filter(pl.col("model").cast(str).is_in(names)), judge)
        said = np.array([status.get(prompt_id) for prompt_id in counted.prompt_ids])
        wrong, defective = said == "wrong", np.isin(said, ["wrong", "defective"])
        facts = (wrong, defective, counted.labels, judge)
        yield (
            ("MMLU-Pro", None, name, "models"),
            [Case(counted, counted, *facts, is_judged=said != None)],  # noqa: E711
        )
        for kind in KEYS:
            cases = []
            for seed in KEY_SEEDS:
                keys = with_wrong_keys(whole, kind, seed)
                changed = _relabelled(counted, keys, judge)
                is_changed = np.array(changed.labels) != np.array(counted.labels)
                facts = (is_changed, is_changed, counted.labels, judge)
                cases.append(Case(changed, changed, *facts, is_judged=~defective))
            yield (f"MMLU-Pro, {kind} {KEY_RATIO:g}", None, name, "models"), cases


def with_wrong_keys(whole: Tally, kind: str, seed: int) -> dict[str, str | None]:
    """prompt_id -> its key, of which a share are wrong: another letter, or an answer that one of the models gave."""
    votes = whole.counts.select(
        "prompt", letter=whole.answers["spelling"].gather(whole.counts["answer"])
    )
    given = dict(votes.group_by("prompt").agg("letter").iter_rows())
    keys = dict(zip(whole.prompt_ids, whole.labels, strict=True))
    order = seeding.permutation(len(whole), "wrong keys", seed)
    for prompt in order[: round(KEY_RATIO * len(whole))]:
        letters = given.get(prompt, []) if kind == "attractive" else "ABCDEFGHIJ"
        wrong = [letter for letter in letters if letter != whole.labels[prompt]]
        if wrong:
            place = seeding.key("wrong key", seed, prompt) % len(wrong)
            keys[whole.prompt_ids[prompt]] = wrong[place]
    return keys


def cells(folder: Path, judge: Judge) -> Iterator[tuple[Any, list[Case]]]:
    """A case a seed of every noise, task and number of visits."""
    for task in TASKS:
        for arm, seeds in (("untrained", UNTRAINED), *((arm, TRAINED) for arm in ARMS)):
            runs = {seed: make(folder, task, arm, seed) for seed in seeds}
            for visits in (1, 2, VISITS):
                if arm != "untrained":
                    cases = [
                        _case(run, visits, None, seed, judge) for seed, run in runs.items()
                    ]
                    yield (arm, task, str(visits), None), cases
                    continue
                for ratio in RATIOS:
                    cases = [
                        _case(run, visits, ratio, seed, judge) for seed, run in runs.items()
                    ]
                    yield (f"untrained {ratio:g}", task, str(visits), None), cases


def make(folder: Path, task: str, arm: str, seed: int) -> Path:
    """Train, or only sample, unless the run is there."""
    run = folder / task / arm / f"seed-{seed}"
    policy, data = TASKS[task]
    if (run / "manifest.json").exists():
        return run
    if arm == "untrained":
        options = [
            "--visits",
            VISITS,
            "--max-new-tokens",
            5,
            "--device",
            "cpu",
            "--seed",
            seed,
        ]
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
        olr(
            "inject-noise",
            *noise,
            "--rollouts",
            make(folder, task, "untrained", seed),
            "--out",
            file,
        )
        data = str(file)
    settings = [
        "method.name=grpo",
        f"seed={seed}",
        f"model.path={policy}",
        f"data.train={data}",
        *ARMS[arm],
    ]
    settings += [
        f"data.test={TASKS[task][1]}",
        f"train.epochs={VISITS}",
        "train.evaluate_every=1000",
    ]
    olr(
        "train",
        "laptop/quickstart",
        "--run-dir",
        run,
        *(word for one in settings for word in ("--set", one)),
    )
    return run


def olr(*words: object) -> None:
    """Run a command of the toolkit."""
    print("olr", *words, file=sys.stderr)
    subprocess.run(
        [sys.executable, "-m", "olr_cli", *map(str, words)],
        check=True,
        stdout=subprocess.DEVNULL,
    )


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
        steps = (
            rows.filter(pl.col("visit").is_between(first, last)) for rows in history.steps
        )
        _TALLIES[run, first, last] = tally(replace(history, steps=steps), judge)
    return _TALLIES[run, first, last]


def with_wrong_labels(
    counted: Tally,
    last: Tally,
    whole: Tally,
    truths: Sequence[Any],
    ratio: float,
    seed: int,
    judge: Judge,
) -> tuple[Tally, Tally]:
    """The tallies with the same labels, of which that share are wrong answers of the whole history."""
    spellings, prompts = (
        whole.answers["spelling"].to_list(),
        whole.answers["prompt"].to_list(),
    )
    right = is_right(spellings, [truths[p] for p in prompts], judge)
    wrong: dict[int, list[str]] = {}
    for spelling, prompt, is_true in zip(spellings, prompts, right, strict=True):
        if not is_true:
            wrong.setdefault(prompt, []).append(spelling)
    labels = list(truths)
    order = [
        p for p in seeding.permutation(len(labels), "wrong labels", seed) if p in wrong
    ]
    for prompt in order[: round(ratio * len(labels))]:
        place = seeding.key("wrong answer", seed, prompt) % len(wrong[prompt])
        labels[prompt] = wrong[prompt][place]
    by_id = dict(zip(counted.prompt_ids, labels, strict=True))
    return _relabelled(counted, by_id, judge), _relabelled(last, by_id, judge)


def _relabelled(counted: Tally, by_id: Mapping[str, str | None], judge: Judge) -> Tally:
    labels = [by_id[prompt_id] for prompt_id in counted.prompt_ids]
    prompts = counted.answers["prompt"].to_list()
    same = is_right(
        counted.answers["spelling"].to_list(), [labels[p] for p in prompts], judge
    )
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


def firsts(scores: np.ndarray, is_true: np.ndarray, size: int) -> int:
    """How many of the first rows are true."""
    return int(is_true[np.argsort(-scores, kind="stable")[:size]].sum())


def verified_draw(
    case: Case, is_true: np.ndarray, size: int, draw: int, *, from_the_top: bool = False
) -> Verified:
    """What somebody knows who checked so many labels."""
    labelled = np.flatnonzero(case.is_labelled)
    if from_the_top:
        chosen = labelled[np.argsort(-case.model.odds[labelled], kind="stable")][:size]
    else:
        chosen = np.random.default_rng([draw, size]).choice(
            labelled, min(size, len(labelled)), replace=False
        )
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


# Rows -------------------------------------------------------------------------------------------------------------


def ranks(measured: Cells) -> Iterator[dict[str, Any]]:
    """A row for every rule in every cell: how it orders the labels, and of the audit's statuses what they keep."""
    for key, cases in measured.items():
        for rule in RULES:
            if key[3] == "one policy" and rule != "audit":
                continue
            scored = [(case, case.scores()[rule]) for case in cases]
            row = {**_named(key), "rule": rule}
            row |= (
                _ranks_of_checked(*scored[0])
                if key[0] in ("GSM8K", "MMLU-Pro")
                else _ranks_of_noise(scored)
            )
            is_whole = key[2] in (*GSM8K, *MMLU_PRO, str(VISITS))
            yield row | (_kept(cases) if rule == "audit" and is_whole else {})


def _named(key: tuple[str | None, ...]) -> dict[str, Any]:
    return dict(zip(COLUMNS[: len(key)], key, strict=True))


def _ranks_of_checked(case: Case, scores: np.ndarray) -> dict[str, Any]:
    scores, wrong, defective = (
        values[case.is_judged] for values in (scores, case.wrong, case.defective)
    )
    first = {f"first_{size}": firsts(scores, defective, size) for size in FIRSTS}
    first["wrong_in_50"] = firsts(scores, wrong, 50)
    # The first rows of those that are judged are not the first of the queue.
    return (first if case.is_judged.all() else {}) | {
        "ap": round(average_precision(scores, defective), 2),
        "auroc": round(auroc(scores, defective) or 0.0, 2),
        "ap_wrong": round(average_precision(scores, wrong), 2),
        "auroc_wrong": round(auroc(scores, wrong) or 0.0, 2),
    }


def _ranks_of_noise(scored: Sequence[tuple[Case, np.ndarray]]) -> dict[str, Any]:
    pairs = [
        (scores[case.is_labelled], case.wrong[case.is_labelled]) for case, scores in scored
    ]
    return {
        "ap": round(float(np.mean([average_precision(*pair) for pair in pairs])), 3),
        "auroc": round(float(np.mean([auroc(*pair) or 0.0 for pair in pairs])), 3),
    }


def _kept(cases: Sequence[Case]) -> dict[str, float]:
    kept, used = [status_kept(case) for case in cases], [case.is_labelled for case in cases]
    shares = {
        "kept": [k.sum() / u.sum() for k, u in zip(kept, used, strict=True)],
        "right_before": [
            1 - case.defective[u].mean() for case, u in zip(cases, used, strict=True)
        ],
        "right_after": [
            1 - case.defective[k].mean() for case, k in zip(cases, kept, strict=True)
        ],
    }
    return {name: round(float(np.mean(values)), 3) for name, values in shares.items()}


def status_kept(case: Case) -> np.ndarray:
    """(P,) rows that `--drop doubted,questionable` keeps, as `audit` decides it without verified labels."""
    model, labels = case.model, case.counted.label_answers
    is_questionable = ~model.is_settled & ((model.leaders != labels) | (labels < 0))
    several = (case.counted.prompts["visits"].to_numpy() > 1) | (
        len(case.counted.models) > 1
    )
    is_doubted = model.is_settled & (model.leaders != labels) & (model.odds > 0) & several
    return ~(is_questionable | is_doubted) & case.is_labelled


def repairs(measured: Cells) -> Iterator[dict[str, Any]]:
    """A row for every number of verified labels in the cells of all visits: coverage, gain and harm."""
    for key, cases in measured.items():
        # Of the keys that people found wrong nobody says which answer is right.
        if key[2] in (*GSM8K, *MMLU_PRO, str(VISITS)) and key[0] != "MMLU-Pro":
            for size in CHECKED:
                yield {
                    **_named(key),
                    "checked": str(size),
                    **_repair(cases, size, top=False),
                }
            yield {**_named(key), "checked": "first 50", **_repair(cases, 50, top=True)}


def _repair(cases: Sequence[Case], size: int, *, top: bool) -> dict[str, Any]:
    """Counts over draws, which are spread over the cases."""
    held, changes, gains, gain_held = [], 0, [], []
    for draw in range(len(cases) if top else DRAWS):
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
    made = [gain for gain in gains if gain]
    return {
        **({} if top else {"draws": len(held), "ratio_held": sum(held)}),
        "tried": len(gains),
        "repaired": changes,
        "gain": round(float(np.mean(made)), 1) if made else None,
        "worst": round(float(min(gains)), 1) + 0.0,
        "proposed": len(gain_held),
        "gain_held": sum(gain_held),
    }


def summary(rows: pl.DataFrame) -> Iterator[str]:
    """The table of docs/results/audit-quality.md: means over the tasks, all visits; and what all rows come to."""
    yield f"| labels | {' | '.join(RULES)} | kept | right before, after | repaired | gain |"
    yield "|---" * (len(RULES) + 5) + "|"
    whole = rows.filter((pl.col("answers") == "models") | (pl.col("visits") == str(VISITS)))
    for (labels, answered), part in whole.group_by(
        "labels", pl.when(answers="models").then("visits"), maintain_order=True
    ):
        precisions = dict(
            part.group_by("rule").agg(pl.col("ap").mean()).drop_nulls().iter_rows()
        )
        shares = part.select(
            pl.col("kept", "right_before", "right_after").mean() * 100
        ).row(0)
        of_50 = part.filter(checked="50")
        gain, tried = of_50["gain"].mean(), of_50["tried"].sum()
        visits = "visits " * (labels == "GSM8K")
        cells = [
            labels if answered is None else f"{labels}, {visits}{answered}",
            *(f"{precisions[rule]:.2f}" for rule in RULES),
            f"{shares[0]:.0f} %",
            f"{shares[1]:.1f} %, {shares[2]:.1f} %",
            f"{of_50['repaired'].sum()} of {tried}" if tried else "–",
            "–" if gain is None else f"{gain:+.1f}",
        ]
        yield f"| {' | '.join(cells)} |"
    sums = rows.select(pl.col("draws", "ratio_held", "proposed", "gain_held").sum()).row(
        0, named=True
    )
    yield ""
    yield (
        f"The interval of the ratio holds the true one in {sums['ratio_held'] / sums['draws']:.1%} of"
        f" {sums['draws']:,} draws, that of the gain in {sums['gain_held'] / sums['proposed']:.1%} of"
        f" {sums['proposed']:,}; the worst draw of `--repair` changes {rows['worst'].min():+.1f} points."
    )


if __name__ == "__main__":
    main()
