"""An audit from a history to a table of prompts: counted, estimated, calibrated, ranked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from olr_cli.analysis.audit import calibration
from olr_cli.analysis.audit.calibration import Calibrations
from olr_cli.analysis.audit.estimator import (
    IN_TRAINING,
    UNTRAINED,
    Assumptions,
    Floats,
    Likelihoods,
    Noise,
    Votes,
    fit,
    likelihoods,
    pooled_votes,
    ratio_interval,
)
from olr_cli.analysis.audit.evidence import judged
from olr_cli.analysis.audit.measures import Quality, quality
from olr_cli.analysis.audit.tally import MISSING, Tally, tally
from olr_cli.analysis.audit.trusted import (
    CrossValidation,
    TrustedLabels,
    calibrated_ratio,
    cross_validated,
    read_trusted,
    recalibrated_by,
)
from olr_cli.analysis.histories import RolloutHistory
from olr_cli.answers import Judge
from olr_cli.data.prompts import SENTINEL, PromptSet
from olr_cli.errors import UserError
from olr_cli.runs.directory import Status, kind_of, read_manifest

EASY, WARY = 0.5, 0.9
"""From which confidence labels are changed, and from which where it may be far too high: of a policy that was not
trained, after a single visit, or beyond the guard (`Noise.can_be_told`), all without enough trusted labels to tell
(`trusted.FEWEST`). Chosen by the share of right labels after the changes (docs/audit.md)."""

CHANGES = ("changed", "added", "kept", "undecided")
"""What becomes of a prompt's label in the repaired data set."""


@dataclass(frozen=True)
class TruthKnown:
    """How good an audit was, which is known only where the truth is stored.

    Attributes:
        quality: of the confidences.
        right_before: share of right labels as given, among those known.
        right_after: the same with the changes made.
    """

    quality: Quality
    right_before: float
    right_after: float


@dataclass(frozen=True)
class Audit:
    """What is found out about the labels of a history.

    Attributes:
        source: the history.
        prompts: a row a prompt, the surest to be wrong first: the columns of `evidence.judged`, `is_trusted` and
            `change` (`CHANGES`).
        status: of the run; None for a table.
        was_training: whether the rollouts are those of a policy in training, so that slopes mean something; None where
            nobody knows.
        draws_labels: whether noisy labels were drawn at every visit (R3), so that those of the last visit are judged.
        noise: rho and alpha; None where no label can be judged.
        ratio: share of wrong labels: rho, or with trusted labels what the recalibrated confidences add up to; None
            where no label can be judged.
        interval: of the ratio, 95 %: of rho (`ratio_interval`), or of the share of wrong ones among trusted labels.
        calibrations: in force.
        trusted: of P prompts in the order of the first visit, if there are any.
        cross_validation: of the trusted labels; None without, or with too few.
        threshold: from which confidence a label is changed.
        answered: share of the rollouts that have an answer.
        truth: None where no truth is stored.
    """

    source: Path
    prompts: pl.DataFrame
    status: Status | None
    was_training: bool | None
    draws_labels: bool
    noise: Noise | None
    ratio: float | None
    interval: tuple[float, float] | None
    calibrations: Calibrations
    trusted: TrustedLabels | None
    cross_validation: CrossValidation | None
    threshold: float
    answered: float
    truth: TruthKnown | None


def audit(
    history: RolloutHistory,
    judge: Judge,
    *,
    data: PromptSet | None = None,
    trusted: Path | None = None,
    threshold: float | None = None,
) -> Audit:
    """Judge every given label of a history.

    Args:
        history: its rollouts are read, once.
        judge: tells which answers mean the same.
        data: the data set of the history's prompts, which says what the history does not of their labels.
        trusted: a file of verified labels (`read_trusted`).
        threshold: confidence that its label is wrong, from which a label is changed if the proposal is likelier right;
            by default `EASY`, or `WARY` where the confidence itself is doubtful.

    Raises:
        UserError: there is nothing to audit, or the files don't fit.
    """
    if data is not None:
        history = with_labels_of(history, data)
    manifest = read_manifest(history.source) if history.is_run else None
    was_training = None if manifest is None else kind_of(manifest) == "training"
    assumed = UNTRAINED if was_training is False else IN_TRAINING
    counted = tally(history, judge)
    known = None if trusted is None else read_trusted(trusted, counted.prompt_ids, counted.labels, judge)
    model = _fitted(counted, assumed, None if known is None else known.is_wrong)
    maps, validation = _calibrations(model, known, judge)
    table = model.judged(maps)
    ratio, interval = _ratio(model, table, known)
    if threshold is None:
        few_visits = table["visits"].median() == 1
        is_doubtful = validation is None and (
            was_training is False or few_visits or not model.noise.can_be_told
        )
        threshold = WARY if is_doubtful else EASY
    table = _ranked(_decided(_with_trusted(table, known), threshold))
    return Audit(
        history.source,
        table,
        None if manifest is None else manifest["status"],
        was_training,
        history.is_run and any(prompt.noise_type == "active" for prompt in history.prompts.values()),
        model.noise if model.can_judge else None,
        ratio,
        interval,
        maps,
        known,
        validation,
        threshold,
        _answered(counted),
        _truth(history, table, judge),
    )


@dataclass(frozen=True)
class _Model:
    """The estimator fitted to a history."""

    counted: Tally
    assumed: Assumptions
    votes: Votes
    found: Likelihoods
    noise: Noise
    can_judge: bool

    def judged(self, maps: Calibrations) -> pl.DataFrame:
        return judged(self.counted, self.votes, self.found, self.noise, maps)


def _fitted(counted: Tally, assumed: Assumptions, is_wrong: Floats | None) -> _Model:
    votes = pooled_votes(counted, assumed.decay)
    labels = counted.label_answers
    if ((labels != MISSING) & (votes.totals > 0)).any():
        return _Model(
            counted, assumed, votes, *fit(votes, labels, assumed.sharpness, is_wrong), can_judge=True
        )
    # Without labels there are proposals still, which no noise takes part in.
    found, noise = likelihoods(votes, labels, assumed.sharpness, 1.0), Noise(0.5, 0.5, 1.0)
    return _Model(counted, assumed, votes, found, noise, can_judge=False)


def _calibrations(
    model: _Model, trusted: TrustedLabels | None, judge: Judge
) -> tuple[Calibrations, CrossValidation | None]:
    start = calibration.built_in()
    if trusted is None:
        return start, None
    table = model.judged(start)
    decided = table["confidence"].is_not_null().to_numpy()
    odds = np.where(decided, _floats(table["log_odds"]), np.nan)
    is_right = _is_right(table["proposed_label"], trusted.answers, judge)
    maps = recalibrated_by(trusted, start, odds, _floats(table["proposal_log_odds"]), is_right)
    labels, sharpness = model.counted.label_answers, model.assumed.sharpness
    return maps, cross_validated(trusted, model.votes, labels, sharpness, decided, start.wrong)


def _ratio(
    model: _Model, table: pl.DataFrame, trusted: TrustedLabels | None
) -> tuple[float | None, tuple[float, float] | None]:
    if not model.can_judge:
        return None, None
    if trusted is not None and trusted.labels:
        return calibrated_ratio(table["confidence"], trusted.is_wrong), trusted.wrong_interval
    interval = ratio_interval(model.votes, model.counted.label_answers, model.assumed.sharpnesses)
    return model.noise.ratio, interval


def with_labels_of(history: RolloutHistory, data: PromptSet) -> RolloutHistory:
    """The history with what a data set says of the labels where the history says nothing.

    Raises:
        UserError: they have no prompt in common, or say different things of one.
    """
    own = {prompt.prompt_id: prompt for prompt in data.prompts}
    common = [prompt_id for prompt_id in history.prompts if prompt_id in own]
    if not common:
        theirs, ours = next(iter(own)), next(iter(history.prompts), "none")
        raise UserError(
            f"{data.source} has no prompt of {history.source} (its first prompt_id: {theirs}, in the history: {ours});"
            " prompts are matched by prompt_id, of a data set its extra_info.index"
        )
    prompts = dict(history.prompts)
    for prompt_id in common:
        of_history, of_data = prompts[prompt_id], own[prompt_id]
        if of_history.given_label is None:
            prompts[prompt_id] = of_data
        elif of_data.given_label not in (None, SENTINEL, of_history.given_label):
            raise UserError(
                f"prompt {prompt_id} has the label {of_history.given_label} in {history.source} and"
                f" {of_data.given_label} in {data.source}; name the data set that the rollouts were made on"
            )
    return replace(history, prompts=prompts)


def _is_right(proposed: pl.Series, truths: Sequence[str | None], judge: Judge) -> Floats:
    """(P,) 1 or 0: whether a label means the truth; not a number where one of them is not known."""
    is_right = np.full(len(proposed), np.nan)
    pairs = [
        (p, label, truth)
        for p, (label, truth) in enumerate(zip(proposed, truths, strict=True))
        if label is not None and truth is not None
    ]
    verdicts = judge.matches((truth, label) for _, label, truth in pairs)
    for p, label, truth in pairs:
        is_right[p] = verdicts[truth, label] is True
    return is_right


def _with_trusted(table: pl.DataFrame, trusted: TrustedLabels | None) -> pl.DataFrame:
    """Where the truth is trusted, it is the proposal, and nothing is left to estimate."""
    if trusted is None:
        return table.with_columns(is_trusted=pl.lit(False))
    known = pl.DataFrame(
        {
            "truth": pl.Series(trusted.answers, dtype=pl.String),
            "wrong": pl.Series(trusted.is_wrong, nan_to_null=True),
        }
    )
    is_trusted, is_wrong = pl.col("truth").is_not_null(), pl.col("wrong")
    has_label = is_wrong.is_not_null()
    changes = {
        "status": pl.when(is_wrong == 1)
        .then(pl.lit("doubted"))
        .when(has_label)
        .then(pl.lit("fine"))
        .otherwise(pl.lit("missing")),
        "confidence": is_wrong,
        "proposed_label": pl.when(is_wrong.fill_null(1) == 1).then("truth"),
        "proposal_confidence": pl.when(is_wrong.fill_null(1) == 1).then(1.0),
    }
    told = {name: pl.when(is_trusted).then(value).otherwise(pl.col(name)) for name, value in changes.items()}
    return (
        pl.concat([table, known], how="horizontal")
        .with_columns(is_trusted=is_trusted, **told)
        .drop("truth", "wrong")
    )


def _decided(table: pl.DataFrame, threshold: float) -> pl.DataFrame:
    """Change a label that is surely enough wrong, if the proposal is likelier right; fill in a likely right one."""
    confidence, proposal = pl.col("confidence"), pl.col("proposal_confidence")
    return table.with_columns(
        change=pl.when((confidence >= threshold) & (proposal > 1 - confidence))
        .then(pl.lit("changed"))
        .when((pl.col("status") == "missing") & (proposal >= threshold))
        .then(pl.lit("added"))
        .when(pl.col("status").is_in(["undecided", "missing"]))
        .then(pl.lit("undecided"))
        .otherwise(pl.lit("kept"))
    )


def _ranked(table: pl.DataFrame) -> pl.DataFrame:
    """The surest to be wrong first; equal confidences in the order of the evidence, then as they came."""
    order = table.with_row_index("place").sort(
        "confidence", "log_odds", "place", descending=[True, True, False], nulls_last=True
    )
    return order.drop("place")


def _floats(values: pl.Series) -> Floats:
    return values.cast(pl.Float64).fill_null(np.nan).to_numpy()


def _answered(counted: Tally) -> float:
    answered, rollouts = counted.visits.select(pl.col("answered", "rollouts").sum()).row(0)
    return float(answered / rollouts)


def _truth(history: RolloutHistory, table: pl.DataFrame, judge: Judge) -> TruthKnown | None:
    """Against the stored truth, which took no part until here."""
    own = table.filter(~pl.col("is_trusted"))
    truths = [history.prompts[prompt_id].true_answer for prompt_id in own["prompt_id"]]
    right = _is_right(own["given_label"], truths, judge)
    known = ~np.isnan(right)
    if not known.any():
        return None
    is_changed = (own["change"] == "changed").to_numpy()
    repaired = np.where(is_changed, _is_right(own["proposed_label"], truths, judge), right)
    measured = quality(_floats(own["confidence"])[known], right[known] == 0)
    return TruthKnown(measured, float(right[known].mean()), float(repaired[known].mean()))
