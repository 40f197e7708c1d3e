"""An audit from a history to a queue: votes → annotator model → calibration (verified labels, or none) → verdicts.

The verdicts are one frame, one row per prompt in the order of the queue:

| column | |
|---|---|
| rank | place in the queue, from 1; null without a label, or where the label is verified |
| status | of `STATUSES` |
| given_label, proposed_label | the proposal is the likeliest answer by the votes alone, where it is not the label |
| confidence | chance that the label is wrong; null without verified labels |
| proposal_confidence | chance that the proposal is right; null without verified labels |
| change | what a repair does with the label, of `CHANGES` |
| answers | what was answered instead, the most frequent first: ``16 × 240, 1 × 150`` |
| given_count, proposed_count, rollouts, answered, visits | how many rollouts gave the label, the proposal, all, an answer |
| log_odds | that the label is wrong, of the annotator model: the order of the queue, not to be believed as a chance |
| is_verified | somebody has verified the true answer, or that the label is wrong |
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olr_cli.analysis.audit import annotators, calibration
from olr_cli.analysis.audit.annotators import AnnotatorModel, Bools, Floats, Numbers
from olr_cli.analysis.audit.calibration import Verified, asked_truths, auroc, is_right
from olr_cli.analysis.audit.tally import MISSING, Tally, tally
from olr_cli.analysis.histories import (
    RolloutHistory,
    contradictions,
    read_history,
    with_questions,
)
from olr_cli.answers import Judge, is_match
from olr_cli.data.logs import Report, silent
from olr_cli.data.prompt_files import Reading
from olr_cli.data.prompts import Prompt
from olr_cli.data.questions import question_of
from olr_cli.data.verified import VerifiedLabels
from olr_cli.errors import UserError, at
from olr_cli.runs.directory import kind_of, read_manifest
from olr_cli.tables import Cell

SETTABLE = ("data.extractor", "data.columns")

STATUSES = ("doubted", "questionable", "undecided", "fine", "missing")
"""What an audit says of a label: most answers are another one; few agree with it or with each other; no more than its
place in the queue says; most answers agree with it; there is none."""

CHANGES = ("changed", "added", "kept")
"""What a repair does with a label: replaces it, fills it in, leaves it."""

_SHOWN = 3
"""Answers that a row names."""


@dataclass(frozen=True)
class Audit:
    """The verdicts on the labels of a history.

    Attributes:
        labels, changes: how many labels there are of each of `STATUSES`, and of `CHANGES`; a label is missing, and
            a repair changes it, only where its question is in the data set.
        not_in_data: how many prompts without a label ask what the data set does not have.
        models: estimated accuracy of each model that has a name.
        policy_was_training: whether the rollouts are those of a policy in training; None where nobody knows.
        verified: labels that somebody verified; None without any.
        verified_labels: how many of them are known to be right or wrong.
        drawn_labels: how many labels that are known to be right or wrong were drawn at random.
        noise_ratio: share of wrong labels; None without a random draw.
        gain: how many more labels are right if proposals replace those that are likelier wrong, which is done only if
            it is surely above 0; None without verified labels, or such proposals.
        warnings: what makes the numbers doubtful, or the changes harmful.
        truth: None where no truth is stored, else ``labels``, ``wrong``, ``auroc``, and how many of the first 10, 20
            and 50 rows are wrong (``first_10`` …).
        prompts: the verdicts, as this module describes them.
        questions: prompt_id -> the question; none where nobody knows them.
    """

    source: Path
    labels: Mapping[str, int]
    changes: Mapping[str, int]
    not_in_data: int
    models: Mapping[str, float]
    tally: Tally = field(repr=False)
    model: AnnotatorModel = field(repr=False)
    policy_was_training: bool | None
    verified: Verified | None = field(repr=False)
    verified_labels: int
    drawn_labels: int = field(repr=False)
    noise_ratio: Cell | None
    gain: Cell | None
    warnings: Sequence[str]
    truth: dict[str, float | None] | None
    prompts: pl.DataFrame
    questions: Mapping[str, str] = field(repr=False)
    notes: Sequence[str] = field(repr=False)


def audit_history(
    source: Path | Sequence[Path],
    settings: Sequence[str],
    columns: Mapping[str, str] | None = None,
    report: Report = silent,
    *,
    keeps_responses: bool = False,
) -> RolloutHistory:
    """The history to audit, with questions where its data set can be read; arguments as of `read_history`."""
    for setting in settings:
        key = setting.partition("=")[0].strip()
        if not key.startswith(SETTABLE):
            raise UserError(
                f"an audit makes no label decisions and draws nothing; it can set {SETTABLE[0]}, how answers are read"
                f" from responses, and {SETTABLE[1]}, which columns data and verified labels have",
                f"set {key}",
            )
    history = read_history(
        source, settings, columns, keeps_responses=keeps_responses, report=report
    )
    if history.is_run and not any(prompt.messages for prompt in history.prompts.values()):
        return replace(history, prompts=with_questions(history.prompts, history.source))
    return history


def data_reading(history: RolloutHistory) -> Reading:
    """How files of the history's prompts are read: with `data.columns`, where they have those."""
    return Reading(history.recipe.data.columns, are_optional=True)


def audit(
    history: RolloutHistory,
    judge: Judge,
    *,
    verified: Sequence[Path] = (),
    in_data: Collection[str] | None = None,
) -> Audit:
    """Judge every given label of a history; its rollouts are read, once.

    `verified`: files of verified labels (`VerifiedLabels`), besides those of the run's `data.verified`. `in_data`: ids
    of the data set whose labels may change, by default all.
    """
    manifest = read_manifest(history.source) if history.is_run else None
    counted = tally(history, judge)
    model = annotators.fit(counted)
    # Labels that the run was given as verified (`data.verified`) are known, and calibrate nothing: votes on prompts
    # that were trained on their true answer are right more often than those on others.
    trained = {
        name: prompt.true_answer
        for name, prompt in history.prompts.items()
        if prompt.is_verified
    }
    asked = [history.prompts[name] for name in counted.prompt_ids]
    notes = [*history.notes, *contradictions(history, judge)]
    answers, drawn = _verified(verified, asked, data_reading(history), notes)
    answers = {name: answer for name, answer in answers.items() if name not in trained}
    if trained:
        notes.append(
            f"The run was trained on {len(trained)} verified labels (data.verified). They count as known here, also in"
            " the noise ratio, and say nothing of the other labels."
        )
    if manifest is not None and (status := manifest["status"]) != "finished":
        notes.append(
            f"The run is not finished ({status}): what it has not visited yet is not in here."
        )
    if manifest is not None and any(
        prompt.noise_type == "active" for prompt in history.prompts.values()
    ):
        notes.append(
            "Active noise draws a noisy label at every visit: those of the last visit are audited."
        )
    of_prompts = (drawn, asked, counted.labels, judge)
    measure = Verified.of(answers, *of_prompts) if answers else None
    known = Verified.of({**trained, **answers}, *of_prompts)
    is_here = np.array([in_data is None or name in in_data for name in counted.prompt_ids])
    verdicts, gain = _verdicts(asked, counted, model, known, measure, judge, is_here=is_here)
    is_labelled = counted.label_answers != MISSING
    answered, rollouts = counted.prompts.select(pl.col("answered", "rollouts").sum()).row(0)
    labels = {name: verdicts["status"].to_list().count(name) for name in STATUSES}
    not_in_data = int((~is_labelled & ~is_here).sum())
    return Audit(
        source=history.source,
        labels={**labels, "missing": labels["missing"] - not_in_data},
        changes={name: verdicts["change"].to_list().count(name) for name in CHANGES},
        not_in_data=not_in_data,
        models={
            name: accuracy
            for name, accuracy in zip(counted.models, model.accuracies.tolist(), strict=True)
            if name
        },
        tally=counted,
        model=model,
        policy_was_training=None if manifest is None else kind_of(manifest) == "training",
        verified=measure,
        verified_labels=0 if measure is None else measure.labels,
        drawn_labels=int((known.is_drawn & (known.is_wrong >= 0)).sum()),
        noise_ratio=None if measure is None else calibration.noise_ratio(known, is_labelled),
        gain=gain,
        warnings=[
            *history.warns_of_no_answers(1 - answered / rollouts),
            *_warnings(is_labelled, measure, model),
        ],
        truth=_truth(history, verdicts, judge),
        prompts=verdicts,
        questions={
            p.prompt_id: question_of(p.messages) for p in history.prompts.values() if p.messages
        },
        notes=notes,
    )


def _verified(
    files: Sequence[Path], prompts: Sequence[Prompt], reading: Reading, notes: list[str]
) -> tuple[dict[str, str | None], set[str]]:
    """prompt_id -> the true answer in files of verified labels, None for another than the label; and who was drawn."""
    answers: dict[str, str | None] = {}
    drawn: set[str] = set()
    for file in files:
        with at("verified"):
            labels = VerifiedLabels.read(file, reading)
        found = labels.of(prompts)
        labels.require_some(prompts)
        notes.append(f"{labels.note}.")
        drawn |= {name for name, label in found.items() if label.is_drawn}
        for name, label in found.items():
            answer, before = label.answer, answers.setdefault(name, label.answer)
            if before != answer and not (before and answer and is_match(before, answer)):
                said, other = (
                    "another than its label" if it is None else it for it in (answer, before)
                )
                raise UserError(
                    f"{file}: the true answer to prompt {name} is {said}, and {other} in another file of verified"
                    " labels; leave one"
                )
    return answers, drawn


# The verdicts -----------------------------------------------------------------------------------------------------


def _verdicts(
    prompts: Sequence[Prompt],
    counted: Tally,
    model: AnnotatorModel,
    known: Verified,
    verified: Verified | None,
    judge: Judge,
    *,
    is_here: Bools,
) -> tuple[pl.DataFrame, Cell | None]:
    """Return the frame that this module describes, and what its changes gain.

    Of what is `known`, `verified` measures. Only labels that are here, in the data set, change.
    """
    labels, is_known = counted.label_answers, known.is_known
    is_missing, is_other = labels == MISSING, (model.leaders >= 0) & (model.leaders != labels)
    proposals = np.where(is_other, model.leaders, -1)
    spellings = counted.answers["spelling"]
    proposed = [None if answer < 0 else spellings[int(answer)] for answer in proposals]
    counts = counted.counts
    totals = np.asarray(
        np.bincount(counts["answer"], counts["count"], len(counted.answers)), dtype=float
    )
    chance = proposal_chance = np.full(len(counted), np.nan)
    is_doubted = model.odds > 0
    # Answers of one model at one visit that agree may be one error.
    says_something = (counted.prompts["visits"].to_numpy() > 1) | (len(counted.models) > 1)
    is_changed, gain = np.zeros(len(counted), dtype=bool), None
    if verified is not None and verified.labels:
        proposal_right = is_right(proposed, asked_truths(prompts, verified.answers), judge)
        maps = calibration.calibrate(model.odds, verified.is_wrong, proposal_right)
        chance = maps.chances(model.odds)
        proposal_chance = chance * maps.mended.mean()
        is_doubted, says_something = chance >= 0.5, np.ones(len(counted), dtype=bool)
        is_changed, gain = maps.changes(
            model.odds, is_other & ~is_missing & ~is_known & is_here
        )
    is_changed |= is_known & (known.is_wrong == 1) & is_other  # at worst another wrong label
    is_wrong = known.is_wrong
    truths = np.array(known.answers, dtype=object)
    is_true = is_known & (truths != None) & (is_wrong != 0)  # noqa: E711 - elementwise
    is_added = is_missing & (model.is_settled | is_true)
    table = pl.DataFrame(
        {
            "prompt_id": counted.prompt_ids,
            "status": _statuses(known, model, is_missing, is_other, is_doubted, says_something),
            "given_label": pl.Series(counted.labels, dtype=pl.String),
            "proposed_label": pl.Series(
                np.where(is_true, truths, np.array(proposed, dtype=object)).tolist(),
                dtype=pl.String,
            ),
            "confidence": np.where(is_known, is_wrong, chance),
            "proposal_confidence": np.where(
                is_true, 1.0, np.where(is_other & ~is_known, proposal_chance, np.nan)
            ),
            "change": np.select(
                [~is_here, is_added, is_changed | (is_true & (is_wrong == 1))],
                ["kept", "added", "changed"],
                "kept",
            ),
            "answers": _answers(counted, totals),
            "given_count": _of(totals, labels),
            "proposed_count": np.where(is_other, _of(totals, proposals), np.nan),
            "log_odds": model.odds,
            "is_verified": is_known,
        },
        nan_to_null=True,
    ).cast({"given_count": pl.Int64, "proposed_count": pl.Int64})
    return _ranked(pl.concat([table, counted.prompts.drop("prompt")], how="horizontal")), gain


def _statuses(
    known: Verified,
    model: AnnotatorModel,
    is_missing: Bools,
    is_other: Bools,
    is_doubted: Bools,
    says_something: Bools,
) -> NDArray[np.str_]:
    """(P,) of `STATUSES`; the first that holds."""
    cases = {
        "doubted": known.is_known & (known.is_wrong == 1),
        "fine": known.is_known & (known.is_wrong == 0),
        "missing": is_missing,
        "questionable": ~model.is_settled & (is_other | (model.leaders < 0)),
    }
    is_sure = model.is_settled & says_something & (is_other == is_doubted)
    return np.select(
        [*cases.values(), is_sure & is_other, is_sure], [*cases, "doubted", "fine"], "undecided"
    )


def _ranked(table: pl.DataFrame) -> pl.DataFrame:
    """The verdicts in the order of the queue, with their rank."""
    is_queued = ~pl.col("is_verified") & pl.col("log_odds").is_not_null()
    # What differs by the rounding of a processor's vector units alone is a tie, and stays in the order of the prompts.
    order = pl.when(is_queued).then(pl.col("log_odds").round(9))
    ranked = table.sort(order, descending=True, nulls_last=True, maintain_order=True)
    rank = pl.when(is_queued).then(pl.int_range(1, len(table) + 1))
    return ranked.select(rank.alias("rank"), pl.all())


def _of(values: Floats, answers: Numbers) -> Floats:
    """(A,) -> (P,): the value of each answer; 0 of one that nobody gave, NaN without a label."""
    chosen = np.where(answers == MISSING, np.nan, 0.0)
    chosen[answers >= 0] = values[answers[answers >= 0]]
    return chosen


def _answers(counted: Tally, totals: Floats) -> pl.Series:
    is_label = np.zeros(len(totals), dtype=bool)
    is_label[counted.label_answers[counted.label_answers >= 0]] = True
    others = counted.answers.with_columns(count=pl.Series(totals).cast(pl.Int64)).filter(
        ~is_label
    )
    texts = (
        others.sort("prompt", "count", "spelling", descending=[False, True, False])
        .group_by("prompt", maintain_order=True)
        .agg(
            pl.format("{} × {}", "count", "spelling")
            .alias("spelling")
            .head(_SHOWN)
            .str.join(", ")
        )
    )
    prompts = pl.DataFrame(
        {"prompt": pl.Series(range(len(counted)), dtype=counted.answers["prompt"].dtype)}
    )
    return prompts.join(texts, on="prompt", how="left", maintain_order="left")["spelling"]


def _warnings(
    is_labelled: Bools, verified: Verified | None, model: AnnotatorModel
) -> Iterator[str]:
    """Sentences on what makes these numbers doubtful, beyond the doubt that every audit has."""
    if not is_labelled.any():
        yield "no prompt has a label, so there is no queue; name the data set with the labels"
    if verified is not None and calibration.is_no_random_draw(verified, model.odds):
        yield (
            "the labels that are marked as drawn are no random draw: they are in more or less doubt than the others, so"
            " the ratio does not hold; correct their column drawn"
        )


def _truth(
    history: RolloutHistory, table: pl.DataFrame, judge: Judge
) -> dict[str, float | None] | None:
    """Against the stored truth, which took no part until here."""
    queue = table.filter(pl.col("rank").is_not_null())
    prompts = [history.prompts[prompt_id] for prompt_id in queue["prompt_id"]]
    truths = asked_truths(prompts, [prompt.true_answer for prompt in prompts])
    right = is_right(queue["given_label"].to_list(), truths, judge)
    known = ~np.isnan(right)
    if not known.any():
        return None
    is_wrong = right[known] == 0
    odds = queue["log_odds"].to_numpy()[known]
    firsts = {f"first_{size}": int(is_wrong[:size].sum()) for size in (10, 20, 50)}
    return {
        "labels": len(is_wrong),
        "wrong": int(is_wrong.sum()),
        "auroc": auroc(odds, is_wrong),
        **firsts,
    }
