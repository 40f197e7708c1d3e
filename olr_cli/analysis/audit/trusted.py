"""Labels that somebody has verified: what they say of the others, and of the audit itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olr_cli import seeding
from olr_cli.analysis.audit.calibration import Calibration, Calibrations, recalibrated
from olr_cli.analysis.audit.estimator import Bools, Floats, Votes, fit, wrong_log_odds
from olr_cli.analysis.audit.measures import auroc, brier
from olr_cli.answers import Judge
from olr_cli.data.columns import texts
from olr_cli.data.files import read_table
from olr_cli.data.prompts import SENTINEL
from olr_cli.data.readers import read_prompts
from olr_cli.errors import UserError, no_path

FOLDS = 10
FEWEST = 10
"""Fewer trusted labels than this are not cross-validated."""


@dataclass(frozen=True)
class TrustedLabels:
    """What is known of N trusted prompts of P.

    Attributes:
        file: where it comes from.
        answers: (P,) the true answer; None where it is not known.
        is_wrong: (P,) 1 or 0: whether the given label is wrong; not a number where that is not known.
        strangers: trusted prompts that the history does not have.
    """

    file: Path
    answers: tuple[str | None, ...]
    is_wrong: Floats
    strangers: int

    @property
    def is_known(self) -> Bools:
        """(P,) whether a label is known to be right or wrong."""
        return ~np.isnan(self.is_wrong)

    @property
    def labels(self) -> int:
        """How many labels are known to be right or wrong."""
        return int(self.is_known.sum())

    @property
    def wrong(self) -> int:
        """How many of them are wrong."""
        return int((self.is_wrong == 1).sum())

    @property
    def wrong_interval(self) -> tuple[float, float]:
        """The 95 % interval of the share of wrong labels that trusted ones drawn at random tell, whatever the model.

        Wilson's score interval (Wilson 1927).

        Raises:
            ValueError: there are none.
        """
        from scipy.stats import binomtest

        interval = binomtest(self.wrong, self.labels).proportion_ci(0.95, method="wilson")
        return float(interval.low), float(interval.high)


@dataclass(frozen=True)
class CrossValidation:
    """How good confidences are on trusted labels that took no part in making them.

    Attributes:
        labels: how many trusted labels of decided prompts there are.
        wrong: how many of them are wrong.
        auroc: None where all are alike.
        brier: mean squared error of the confidence.
        brier_built_in: that of the built-in calibration without trusted labels.
    """

    labels: int
    wrong: int
    auroc: float | None
    brier: float
    brier_built_in: float


def read_trusted(
    file: Path, prompt_ids: Sequence[str], labels: Sequence[str | None], judge: Judge
) -> TrustedLabels:
    """Trusted labels of a history's prompts.

    Args:
        file: a Parquet or JSON table with prompt_id and true_answer, or a data set whose labels are verified.
        prompt_ids: (P,) of the history.
        labels: (P,) the given ones.
        judge: tells whether the given label means the true answer.

    Raises:
        UserError: the file can't be read or has no true answer, or none of its prompts is in the history.
    """
    answers = _answers(file)
    if not answers:
        raise UserError(f"{file} has no true answer in any row; leave --trusted out, or fill some in")
    found = tuple(answers.get(prompt_id) for prompt_id in prompt_ids)
    known = [p for p, answer in enumerate(found) if answer is not None]
    if not known:
        raise UserError(
            f"{file}: none of its prompts is in the history (its first prompt_id: {next(iter(answers))}, in the"
            f" history: {prompt_ids[0]}); trusted labels are matched by prompt_id, of a data set its extra_info.index"
        )
    is_wrong = np.full(len(found), np.nan)
    pairs = [(p, found[p], labels[p]) for p in known]
    both = [(p, answer, label) for p, answer, label in pairs if answer is not None and label is not None]
    verdicts = judge.matches((answer, label) for _, answer, label in both)
    for p, answer, label in both:
        is_wrong[p] = verdicts[answer, label] is not True
    return TrustedLabels(file, found, is_wrong, len(answers) - len(known))


def _answers(file: Path) -> Mapping[str, str]:
    if not file.is_file():
        needed = "--trusted names a Parquet or JSON table with prompt_id and true_answer"
        raise UserError(f"{file} is not a file; {needed}") if file.exists() else no_path(file, needed)
    table = read_table([file], {"prompt_id", "true_answer"})
    if not {"prompt_id", "true_answer"} <= set(table.column_names):
        prompts = read_prompts(str(file)).prompts
        return {prompt.prompt_id: prompt.gold for prompt in prompts if prompt.gold is not None}
    answers: dict[str, str] = {}
    columns = (texts(table.column(name), name, str(file)) for name in ("prompt_id", "true_answer"))
    for prompt_id, answer in zip(*columns, strict=True):
        if prompt_id is None or answer is None or answer == SENTINEL:
            continue
        if answers.setdefault(prompt_id, answer) != answer:
            raise UserError(f"{file}: prompt {prompt_id} has several true answers; leave one")
    return answers


def recalibrated_by(
    trusted: TrustedLabels, start: Calibrations, odds: Floats, proposal_odds: Floats, is_right: Floats
) -> Calibrations:
    """The built-in maps moved by trusted labels.

    Args:
        trusted: of P prompts.
        start: the built-in maps.
        odds: (P,) model log odds that the label is wrong; not a number where undecided.
        proposal_odds: (P,) that the proposal is right; not a number without one.
        is_right: (P,) 1 or 0: whether the proposal is right; not a number where that is not known.
    """
    wrong = _moved(start.wrong, odds, trusted.is_wrong)
    is_labelled = trusted.is_known
    proposal = _moved(start.proposal, np.where(is_labelled, proposal_odds, np.nan), is_right)
    unlabelled = _moved(start.unlabelled, np.where(is_labelled, np.nan, proposal_odds), is_right)
    return Calibrations(wrong, proposal, unlabelled)


def calibrated_ratio(confidence: pl.Series, is_wrong: Floats) -> float:
    """The share of wrong labels that calibrated confidences add up to, known ones counting as they are.

    Where the model is far from the data, this is nearer to the trusted labels than its rho.

    Args:
        confidence: (P,) null where undecided.
        is_wrong: (P,) as in `TrustedLabels`.
    """
    estimated = confidence.cast(pl.Float64).fill_null(np.nan).to_numpy()
    return float(np.nanmean(np.where(np.isnan(is_wrong), estimated, is_wrong)))


def _moved(start: Calibration, log_odds: Floats, outcomes: Floats) -> Calibration:
    known = ~(np.isnan(log_odds) | np.isnan(outcomes))
    return recalibrated(start, log_odds[known], outcomes[known] > 0.5)


def cross_validated(
    trusted: TrustedLabels,
    votes: Votes,
    label_answers: NDArray[np.int64],
    sharpness: float,
    is_decided: Bools,
    start: Calibration,
) -> CrossValidation | None:
    """Fit and recalibrate without a tenth of the trusted labels, and look at those; all ten times.

    Args:
        trusted: of P prompts.
        votes: of their answers.
        label_answers: (P,) as in `Tally`.
        sharpness: of the prior.
        is_decided: (P,) whether the prompt gets a confidence.
        start: the built-in map that the label is wrong.

    Returns:
        None with fewer than `FEWEST` trusted labels of decided prompts.
    """
    own = np.flatnonzero(trusted.is_known & is_decided)
    if len(own) < FEWEST:
        return None
    is_wrong = trusted.is_wrong[own] > 0.5
    order = np.array(seeding.permutation(len(own), "audit folds", len(own)))
    confidence = np.empty(len(own))
    for fold in range(FOLDS):
        held = own[order[fold::FOLDS]]
        others = trusted.is_wrong.copy()
        others[held] = np.nan
        odds = wrong_log_odds(*fit(votes, label_answers, sharpness, others))
        moved = _moved(start, np.where(is_decided, odds, np.nan), others)
        confidence[order[fold::FOLDS]] = moved.apply(odds[held])
    built_in = start.apply(wrong_log_odds(*fit(votes, label_answers, sharpness))[own])
    return CrossValidation(
        len(own),
        int(is_wrong.sum()),
        auroc(confidence, is_wrong),
        brier(confidence, is_wrong),
        brier(built_in, is_wrong),
    )
