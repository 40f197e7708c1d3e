"""An audit from a history to a table of prompts: counted, estimated, calibrated, ranked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from olr_cli.analysis.audit import confidence, estimator
from olr_cli.analysis.audit.confidence import Calibrations, CrossValidation, TrustedLabels
from olr_cli.analysis.audit.estimator import Noise, floats
from olr_cli.analysis.audit.forecast import Forecast, forecast
from olr_cli.analysis.audit.tally import Tally, tally
from olr_cli.analysis.audit.verdicts import CHANGES, STATUSES, judged, with_changes, with_trusted
from olr_cli.analysis.histories import RolloutHistory, read_history, with_questions
from olr_cli.answers import Judge
from olr_cli.data.logs import Report, silent
from olr_cli.data.prompt_files import Reading
from olr_cli.data.prompts import SENTINEL, Prompt, PromptSet, question_of, same_prompts
from olr_cli.data.verified import VerifiedLabels
from olr_cli.errors import UserError
from olr_cli.runs.directory import Status, kind_of, read_manifest

SETTABLE = ("data.extractor", "data.columns")


@dataclass(frozen=True)
class Audit:
    """The verdicts on the labels of a history; noise and forecast are None where no label can be judged.

    Attributes:
        prompts: a row a prompt (`olr_cli.analysis.audit.verdicts`), the surest to be wrong first.
        status: of the run; None for a table.
        was_training: whether the rollouts are those of a policy in training, so that slopes mean something; None where
            nobody knows.
        draws_labels: whether noisy labels were drawn at every visit (R3), so that those of the last visit are judged.
        forecast: share of wrong labels, and of right ones before and after the changes, with intervals.
        selection: `confidence.selection`; None without trusted labels.
        cross_validation: None with too few trusted labels.
        answered: share of the rollouts that have an answer.
        truth: None where no truth is stored, else `quality` and the shares of right labels as given (``right_before``)
            and with the changes made (``right_after``).
        questions: prompt_id -> the question; none where nobody knows them.
        notes: on the rollouts.
    """

    source: Path
    prompts: pl.DataFrame
    status: Status | None
    was_training: bool | None
    draws_labels: bool
    noise: Noise | None
    forecast: Forecast | None
    calibrations: Calibrations
    trusted: TrustedLabels | None
    selection: float | None
    cross_validation: CrossValidation | None
    threshold: float | None
    answered: float
    truth: dict[str, float | None] | None
    questions: Mapping[str, str]
    notes: Sequence[str]

    @property
    def changes(self) -> dict[str, int]:
        """How many labels there are of each of `CHANGES`."""
        return {name: int((self.prompts["change"] == name).sum()) for name in CHANGES}

    @property
    def statuses(self) -> dict[str, int]:
        """How many labels there are of each of `STATUSES`."""
        return {name: int((self.prompts["status"] == name).sum()) for name in STATUSES}


def audit_history(
    source: Path | Sequence[Path],
    settings: Sequence[str],
    columns: Mapping[str, str] | None = None,
    report: Report = silent,
) -> RolloutHistory:
    """The history to audit, with arguments as `read_history` takes them.

    Raises:
        UserError: there is none, or a setting means nothing to an audit.
    """
    for setting in settings:
        key, equals, _ = setting.partition("=")
        if not key.strip().startswith(SETTABLE):
            raise UserError(
                f"--set {key.strip()}: an audit makes no label decisions and draws nothing; it can set {SETTABLE[0]},"
                f" how answers are read from responses, and {SETTABLE[1]}, which columns --data and --trusted have"
            )
        if not equals:
            raise UserError(f"--set {key.strip()}: expected key=value, as in --set data.extractor=boxed")
    return read_history(source, settings, columns, also=SETTABLE[1:], report=report)


def data_reading(history: RolloutHistory) -> Reading:
    """How files of the history's prompts are read: with `data.columns`, where they have those."""
    return Reading(history.recipe.data.columns, are_optional=True)


def audit(
    history: RolloutHistory,
    judge: Judge,
    *,
    data: PromptSet | None = None,
    trusted: Path | None = None,
    threshold: float | None = None,
) -> Audit:
    """Judge every given label of a history; its rollouts are read, once.

    Args:
        history: the rollouts.
        judge: decides which answers mean the same.
        data: the data set of the history's prompts, which says what the history does not of their labels.
        trusted: a file of verified labels (`VerifiedLabels`), besides those of the run's `data.trusted`.
        threshold: the least confidence that a label is wrong with which it is changed; by default any, as long as the
            proposal is likelier right.

    Raises:
        UserError: there is nothing to audit, or the files don't fit.
    """
    if data is not None:
        history = with_labels_of(history, data)
    manifest = read_manifest(history.source) if history.is_run else None
    was_training = None if manifest is None else kind_of(manifest) == "training"
    counted, texts = tally(history, judge), _with_texts(history)
    is_training = was_training is not False
    votes, labels = estimator.pooled_votes(counted, is_training=is_training), counted.label_answers
    # Labels that the run itself was given as verified (`data.trusted`) are known, and measure nothing: votes on prompts
    # that were trained on their true answer are right more often than those on others.
    trained = {name: prompt.true_answer for name, prompt in history.prompts.items() if prompt.is_trusted}
    answers = {**trained}
    known: TrustedLabels | None = None
    verified_notes: list[str] = []
    if trusted is not None:
        labels_file = VerifiedLabels.read(trusted, data_reading(history), "--trusted")
        asked = [texts.get(name, history.prompts[name]) for name in counted.prompt_ids]
        checked = labels_file.answers(asked)
        labels_file.require_some(asked)
        answers |= checked
        verified_notes = [f"{labels_file.note}."]
        measuring = {name: answer for name, answer in checked.items() if name not in trained}
        known = confidence.trusted_labels(measuring, counted.prompt_ids, counted.labels, judge)
    verified = (
        confidence.trusted_labels(answers, counted.prompt_ids, counted.labels, judge) if answers else None
    )
    model = estimator.fit(votes, labels, None if verified is None else verified.is_wrong)
    is_doubtful = _visits(counted) < 2 or not model.noise.can_be_told
    prior = confidence.priors(is_training=is_training, is_doubtful=is_doubtful)
    nothing = np.full(len(counted), np.nan)
    maps = confidence.calibrations(prior, None, nothing, nothing, nothing)
    validation: CrossValidation | None = None
    table = judged(counted, model, maps)
    if known is not None:
        is_decided = table["confidence"].is_not_null().to_numpy()
        odds = np.where(is_decided, floats(table["log_odds"]), np.nan)
        proposal_right = confidence.is_right(table["proposed_label"].to_list(), known.answers, judge)
        maps = confidence.calibrations(prior, known, odds, floats(table["proposal_log_odds"]), proposal_right)
        validation = confidence.cross_validated(known, model, is_decided, prior[0])
        table = judged(counted, model, maps)
    verdicts = with_changes(with_trusted(table, verified), threshold)
    answered, rollouts = counted.visits.select(pl.col("answered", "rollouts").sum()).row(0)
    return Audit(
        source=history.source,
        prompts=verdicts,
        status=None if manifest is None else manifest["status"],
        was_training=was_training,
        draws_labels=history.is_run and any(p.noise_type == "active" for p in history.prompts.values()),
        noise=model.noise if model.is_known.any() else None,
        forecast=forecast(verdicts, maps),
        calibrations=maps,
        trusted=known,
        selection=None if known is None else confidence.selection(known, floats(table["log_odds"])),
        cross_validation=validation,
        threshold=threshold,
        answered=float(answered / rollouts),
        truth=_truth(history, verdicts, judge),
        questions={p.prompt_id: question_of(p.messages) for p in texts.values() if p.messages},
        notes=[*history.notes, *verified_notes, *_trained_note(len(trained))],
    )


def _trained_note(count: int) -> list[str]:
    if not count:
        return []
    return [
        f"The run was trained on {count} verified labels (data.trusted). They count as known here, and confidences are"
        " not calibrated on them."
    ]


def with_labels_of(history: RolloutHistory, data: PromptSet) -> RolloutHistory:
    """The history with what a data set says of the labels where the history says nothing.

    Prompts are matched by prompt_id; where none fits, and in a log without ids, by the text of the question, and then
    they have the ids of the data set.

    Raises:
        UserError: they have no prompt in common, or say different things of one.
    """
    in_data = {prompt.prompt_id: prompt for prompt in data.prompts}
    has_ids = history.log is None or history.log.has_ids
    if not has_ids or in_data.keys().isdisjoint(history.prompts):
        history = _with_ids_of(history, data)
    prompts = dict(history.prompts)
    for prompt_id in prompts.keys() & in_data.keys():
        label, other = prompts[prompt_id].given_label, in_data[prompt_id].given_label
        if label is None or not history.knows_labels:
            prompts[prompt_id] = in_data[prompt_id]
        elif other not in (None, SENTINEL, label):
            raise UserError(
                f"prompt {prompt_id} has the label {label} in {history.source} and {other} in {data.source}; name the"
                " data set that the rollouts were made on"
            )
        else:
            prompts[prompt_id] = replace(prompts[prompt_id], messages=in_data[prompt_id].messages)
    return replace(history, prompts=prompts)


def _with_ids_of(history: RolloutHistory, data: PromptSet) -> RolloutHistory:
    """The history with its prompts called as in the data set, as far as they have the same text."""
    ids, taken = dict[str, str](), set[str]()
    for name, prompt in same_prompts(history.prompts, data.prompts).items():
        if prompt.prompt_id not in taken:
            ids[name] = prompt.prompt_id
            taken.add(prompt.prompt_id)
    if not ids:
        theirs, ours = data.prompts[0].prompt_id, next(iter(history.prompts), "none")
        raise UserError(
            f"{data.source} has no prompt of {history.source} (its first prompt_id: {theirs}, in the history: {ours});"
            " prompts are matched by prompt_id, of a data set its extra_info.index, and those of a log by their text"
        )
    steps = (rows.with_columns(pl.col("prompt_id").replace(ids)) for rows in history.steps)
    prompts = {ids.get(p.prompt_id, p.prompt_id): p for p in history.prompts.values()}
    prompts = {name: replace(prompt, prompt_id=name) for name, prompt in prompts.items()}
    notes = [*history.notes]
    if history.log is not None and len(ids) < len(prompts):
        notes.append(f"{len(ids):,} of {len(prompts):,} prompts are in {data.source}, by their text.")
    return replace(history, steps=steps, prompts=prompts, notes=notes)


def _with_texts(history: RolloutHistory) -> Mapping[str, Prompt]:
    """The prompts of a history with their messages, where its data set can be read."""
    if history.is_run and not any(prompt.messages for prompt in history.prompts.values()):
        return with_questions(history.prompts, history.source)
    return history.prompts


def _visits(counted: Tally) -> float:
    """The median number of visits of a prompt."""
    return float(np.median(np.bincount(counted.visits["prompt"].to_numpy())))


def _truth(history: RolloutHistory, table: pl.DataFrame, judge: Judge) -> dict[str, float | None] | None:
    """Against the stored truth, which took no part until here."""
    estimated = table.filter(~pl.col("is_trusted"))
    truths = [history.prompts[prompt_id].true_answer for prompt_id in estimated["prompt_id"]]
    right, proposal_right = (
        confidence.is_right(estimated[name].to_list(), truths, judge)
        for name in ("given_label", "proposed_label")
    )
    known = ~np.isnan(right)
    if not known.any():
        return None
    repaired = np.where((estimated["change"] == "changed").to_numpy(), proposal_right, right)
    measured = confidence.quality(floats(estimated["confidence"])[known], right[known] == 0)
    return measured | {
        "right_before": float(right[known].mean()),
        "right_after": float(repaired[known].mean()),
    }
