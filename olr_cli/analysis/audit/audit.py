"""An audit from a history to a queue: votes → annotator model → calibration (verified labels, or none) → verdicts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from olr_cli.analysis.audit import annotators, calibration
from olr_cli.analysis.audit.annotators import AnnotatorModel, Bools
from olr_cli.analysis.audit.calibration import Verified, asked_truths, auroc, is_right
from olr_cli.analysis.audit.evaluations import evaluations_among, evaluations_history
from olr_cli.analysis.audit.tally import MISSING, Tally, tally
from olr_cli.analysis.audit.verdicts import CHANGES, STATUSES, ties_of, verdicts_of
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
from olr_cli.data.sets import recipe_reading
from olr_cli.data.verified import VerifiedLabels
from olr_cli.errors import UserError, at
from olr_cli.runs.directory import kind_of, read_manifest
from olr_cli.tables import Cell

SETTABLE = ("data.extractor", "data.columns", "data.decimal_comma", "data.encoding")
"""Settings that an audit accepts; the keys of `data.columns` are included."""


@dataclass(frozen=True)
class Audit:
    """Result of `audit`: verdicts on a history's given labels, counts, votes, and the share of wrong labels."""

    source: Path
    labels: Mapping[str, int]
    """Number of labels by `STATUSES`; a label counts as missing only if its question is in the data set."""

    changes: Mapping[str, int]
    """Number of labels by `CHANGES`; a repair changes a label only if its question is in the data set."""

    not_in_data: int
    """Number of prompts without a label whose question is not in the data set."""

    models: Mapping[str, float]
    """Estimated accuracy of each model that has a name."""

    voters: Sequence[str]
    """The models whose answers count; of many models only the best."""

    tally: Tally = field(repr=False)
    model: AnnotatorModel = field(repr=False)
    policy_was_training: bool | None
    """Whether a policy in training made the rollouts; None if unknown."""

    verified: Verified | None = field(repr=False)
    """Labels that people verified; None without any."""

    verified_labels: int
    """Number of them that are known to be right or wrong."""

    drawn_labels: int = field(repr=False)
    """Number of labels known to be right or wrong whose prompts were drawn at random."""

    noise_ratio: Cell | None
    """Share of wrong labels; None without a random draw."""

    gain: Cell | None
    """Number of additional right labels if proposals replace the labels that are more likely wrong.

    None without verified labels or such proposals. The replacement happens only if the interval lies above 0.
    """

    warnings: Sequence[str]
    """Reasons to doubt the numbers, or to expect harm from the changes."""

    truth: dict[str, float | None] | None
    """Comparison with the stored true answers; None if none are stored.

    The keys are ``labels``, ``wrong``, ``auroc``, and the number of wrong labels among the first 10, 20 and 50 rows
    (``first_10`` …).
    """

    ties: Sequence[tuple[int, int]]
    """First and last rank of every group of equally doubtful labels, whose order is drawn."""

    prompts: pl.DataFrame
    """The verdicts, in the columns that `olr_cli.analysis.audit.verdicts` describes."""

    questions: Mapping[str, str] = field(repr=False)
    """prompt_id -> the question; without prompts whose question is unknown."""

    notes: Sequence[str] = field(repr=False)


def audit_history(
    source: Path | Sequence[Path],
    settings: Sequence[str],
    columns: Mapping[str, str] | None = None,
    report: Report = silent,
    *,
    keeps_responses: bool = False,
    benchmark: str | None = None,
) -> RolloutHistory:
    """Read the rollouts to audit, with the questions of their prompts if the data set can be read.

    Args:
        source: a run, a log, several runs of `olr rollouts`, or evaluations.
        settings: texts ``KEY=VALUE`` on how data are read, such as ``data.extractor=boxed``. `SETTABLE` lists the
            possible keys.
        columns: for a log, olr's name of a column -> its name in the files.
        report: called with the progress.
        keeps_responses: whether the steps include the responses.
        benchmark: for evaluations, name of the benchmark whose keys (reference answers) are audited as labels; None for
            the only finished benchmark.

    Raises:
        UserError: a setting has a key that is not in `SETTABLE`, or an argument does not fit the source.
    """
    for setting in settings:
        key = setting.partition("=")[0].strip()
        if not key.startswith(SETTABLE):
            raise UserError(
                "an audit makes no label decisions and draws nothing",
                f"it can set {SETTABLE[0]}, how answers are read from responses, and"
                f" {', '.join(SETTABLE[1:])}, how files of data and verified labels are read",
                f"set {key}",
            )
    places = [source] if isinstance(source, Path) else source
    stores = evaluations_among(places, columns, benchmark)
    if stores:
        return evaluations_history(
            stores, benchmark, settings, keeps_responses=keeps_responses
        )
    history = read_history(
        source,
        settings,
        columns,
        keeps_responses=keeps_responses,
        are_models=True,
        report=report,
    )
    if history.runs and not any(prompt.messages for prompt in history.prompts.values()):
        prompts, data = with_questions(history.prompts, history.runs[0])
        return replace(history, prompts=prompts, data=data)
    return history


def data_reading(history: RolloutHistory) -> Reading:
    """Return the settings for reading other files with prompts of this history, such as files of verified labels.

    They are the settings of the history's own data, with two changes. No system prompt is added. If a file has none of
    the columns that the recipe's `data.columns` names, its columns are found by their standard names.
    """
    return replace(recipe_reading(history.recipe), are_optional=True, system_prompt=None)


def audit(
    history: RolloutHistory,
    judge: Judge,
    *,
    verified: Sequence[Path] = (),
    in_data: Collection[str] | None = None,
) -> Audit:
    """Judge every given label of a history by the votes of its rollouts, and by verified labels if there are any.

    The rollouts are read once, so an iterator in `history.steps` is used up.

    Args:
        history: result of `audit_history`.
        judge: compares answers with labels.
        verified: files of labels that people have verified, in addition to those that the run's `data.verified` names.
        in_data: ids of the prompts in the data set. The audit proposes changes to the labels of these prompts alone.
            With None it proposes them for all prompts.

    Raises:
        UserError: no rollout answers the original wording of a prompt, a file of verified labels has no prompt of the
            history, or two such files disagree.
    """
    manifest = read_manifest(history.source) if history.is_run else None
    counted = tally(history, judge)
    model = annotators.fit(counted)
    # Labels that the run was trained on as verified (`data.verified`) count as known but must not calibrate. Votes on
    # a prompt that was trained on its true answer are right more often than votes on other prompts.
    trained = {
        name: prompt.true_answer
        for name, prompt in history.prompts.items()
        if prompt.is_verified
    }
    prompts = [history.prompts[name] for name in counted.prompt_ids]
    contradicted = contradictions(history, judge)
    answers, drawn, sources = _verified_labels(verified, prompts, data_reading(history))
    # A prompt may be in both: the run's own verified label wins, and the prompt stays out of the calibration.
    answers = {name: answer for name, answer in answers.items() if name not in trained}
    compared = (drawn, prompts, counted.labels, judge)
    # `measure` calibrates; `known` also holds the labels that the run was trained on.
    measure = Verified.of(answers, *compared) if answers else None
    known = Verified.of({**trained, **answers}, *compared)
    is_here = np.array([in_data is None or name in in_data for name in counted.prompt_ids])
    verdicts, gain = verdicts_of(
        prompts, counted, model, known, measure, judge=judge, is_here=is_here
    )
    is_labelled = counted.label_answers != MISSING
    not_in_data = int((~is_labelled & ~is_here).sum())
    labels = _counts(verdicts["status"], STATUSES)
    # A prompt that the data set does not have cannot get a label there.
    labels["missing"] -= not_in_data
    accuracies = dict(zip(counted.models, model.accuracies.tolist(), strict=True))
    answered, rollouts = counted.prompts.select(pl.col("answered", "rollouts").sum()).row(0)
    return Audit(
        source=history.source,
        labels=labels,
        changes=_counts(verdicts["change"], CHANGES),
        not_in_data=not_in_data,
        models={name: accuracy for name, accuracy in accuracies.items() if name},
        voters=[*compress(counted.models, model.is_voter)],
        tally=counted,
        model=model,
        policy_was_training=None if manifest is None else kind_of(manifest) == "training",
        verified=measure,
        verified_labels=0 if measure is None else measure.labels,
        drawn_labels=int((known.is_drawn & (known.is_wrong >= 0)).sum()),
        noise_ratio=None
        if measure is None
        else calibration.noise_ratio(known, is_labelled),
        gain=gain,
        warnings=[
            *history.warns_of_no_answers(1 - answered / rollouts),
            *_warnings(is_labelled, measure, model),
        ],
        truth=_queue_quality(history, verdicts, judge),
        ties=ties_of(verdicts),
        prompts=verdicts,
        questions={
            p.prompt_id: question_of(p.messages)
            for p in history.prompts.values()
            if p.messages
        },
        notes=[
            *history.notes,
            *contradicted,
            *sources,
            *_run_notes(history, manifest, len(trained)),
        ],
    )


def _counts(column: pl.Series, names: Sequence[str]) -> dict[str, int]:
    """Count how often each of `names` occurs in a column: name -> count, 0 if it does not occur."""
    values = column.to_list()
    return {name: values.count(name) for name in names}


def _run_notes(
    history: RolloutHistory, manifest: Mapping[str, Any] | None, verified: int
) -> Iterator[str]:
    """Yield cautions about the audited run: labels verified before training, an early end, and active noise.

    Active noise draws a new noisy label at every visit.

    Args:
        history: the audited history.
        manifest: the run's manifest. None for a log, for which only verified labels can give a caution.
        verified: number of prompts whose labels were verified before training.
    """
    if verified:
        yield (
            f"The run was trained on {verified} verified labels (data.verified). They count as known here, also in"
            " the noise ratio, and say nothing of the other labels."
        )
    if manifest is None:
        return
    if (status := manifest["status"]) != "finished":
        yield f"The run is not finished ({status}): what it has not visited yet is not in here."
    if any(prompt.noise_type == "active" for prompt in history.prompts.values()):
        yield "Active noise draws a noisy label at every visit: those of the last visit are audited."


def _verified_labels(
    files: Sequence[Path], prompts: Sequence[Prompt], reading: Reading
) -> tuple[dict[str, str | None], set[str], list[str]]:
    """Read files of labels that people have verified, and return what they say about these prompts.

    Returns:
        prompt_id -> the true answer, or None if it is only known that the label is wrong.
        The ids of the prompts that were chosen for verification by a random draw.
        One note per file.

    Raises:
        UserError: a file has none of these prompts, or two files disagree on an answer.
    """
    answers: dict[str, str | None] = {}
    drawn: set[str] = set()
    notes = []
    for file in files:
        with at("verified"):
            labels = VerifiedLabels.read(file, reading)
        label_by_prompt = labels.of(prompts)
        labels.require_some(prompts)
        notes.append(f"{labels.note}.")
        drawn |= {name for name, label in label_by_prompt.items() if label.is_drawn}
        for name, label in label_by_prompt.items():
            previous = answers.setdefault(name, label.answer)
            if not _agree(previous, label.answer):
                here, elsewhere = (
                    "another than its label" if it is None else it
                    for it in (label.answer, previous)
                )
                raise UserError(
                    f"{file}: the true answer to prompt {name} is {here}, and {elsewhere} in another file of verified"
                    " labels",
                    "leave one",
                )
    return answers, drawn, notes


def _agree(before: str | None, answer: str | None) -> bool:
    """Return whether two verified answers to the same prompt match.

    None says that the label is wrong and the true answer unknown. Two None match; None and an answer do not.
    """
    return before == answer or bool(before and answer and is_match(before, answer))


def _warnings(
    is_labelled: Bools, verified: Verified | None, model: AnnotatorModel
) -> Iterator[str]:
    """Yield a warning if no prompt has a label, and one if labels are marked as a random draw but cannot be one.

    `calibration.is_no_random_draw` decides the second case.

    Args:
        is_labelled: (P,) whether the prompt has a label.
        verified: the verified labels and which of them are marked as drawn; None if there are none.
        model: the fitted annotator model, which says how doubtful each label is.
    """
    if not is_labelled.any():
        yield "no prompt has a label, so there is no queue; name the data set with the labels"
    if verified is not None and calibration.is_no_random_draw(verified, model.odds):
        yield (
            "the labels that are marked as drawn are no random draw: they are in more or less doubt than the others, so"
            " the ratio does not hold; correct their column drawn"
        )


def _queue_quality(
    history: RolloutHistory, table: pl.DataFrame, judge: Judge
) -> dict[str, float | None] | None:
    """Measure how well the audit ranks wrong labels before right ones, by the stored true answers.

    The audit itself has not used these answers. Only ranked labels whose true answer is stored count. `table` has the
    verdicts, the most doubtful label first.

    Returns:
        None if no true answer is stored. Otherwise a dict with these keys. ``labels`` is the number of labels, and
            ``wrong`` the number of wrong ones. ``first_10``, ``first_20`` and ``first_50`` are the numbers of wrong
            labels among the first 10, 20 and 50. ``auroc`` measures how well the log odds separate wrong from right
            labels; it is None if all labels are wrong or all right.
    """
    queue = table.filter(pl.col("rank").is_not_null())
    prompts = [history.prompts[prompt_id] for prompt_id in queue["prompt_id"]]
    truths = asked_truths(prompts, [prompt.true_answer for prompt in prompts])
    right = is_right(queue["given_label"].to_list(), truths, judge)
    is_known = ~np.isnan(right)
    if not is_known.any():
        return None
    is_wrong = right[is_known] == 0
    odds = queue["log_odds"].to_numpy()[is_known]
    firsts = {f"first_{size}": int(is_wrong[:size].sum()) for size in (10, 20, 50)}
    return {
        "labels": len(is_wrong),
        "wrong": int(is_wrong.sum()),
        "auroc": auroc(odds, is_wrong),
        **firsts,
    }
