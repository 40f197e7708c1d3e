"""The verdicts on the labels of P prompts, from the votes and from the verified labels.

The verdicts are one frame, with one row per prompt in the order of the queue:

| column | |
|---|---|
| rank | position in the queue, from 1; null without a label, or if the label is verified |
| status | one of `STATUSES` |
| given_label, proposed_label | the proposal is the likeliest answer by the votes alone, if it is not the label |
| confidence | chance that the label is wrong; null without verified labels |
| proposal_confidence | chance that the proposal is right; null without verified labels |
| change | the effect of a repair on the label, one of `CHANGES` |
| answers | the other answers, the most frequent first: ``16 × 240, 1 × 150`` |
| given_count, proposed_count | number of rollouts that gave the label, and the proposal |
| rollouts, answered, visits | number of rollouts, of rollouts with an answer, and of visits |
| log_odds | log odds of the annotator model that the label is wrong: they order the queue, and are no reliable chance |
| is_verified | whether a person has verified the true answer, or that the label is wrong |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olr_cli import seeding
from olr_cli.analysis.audit import calibration
from olr_cli.analysis.audit.annotators import AnnotatorModel, Bools, Floats, Numbers
from olr_cli.analysis.audit.calibration import Verified, asked_truths, is_right
from olr_cli.analysis.audit.tally import MISSING, Tally
from olr_cli.answers import Judge
from olr_cli.data.prompts import Prompt
from olr_cli.tables import Cell

STATUSES = ("doubted", "questionable", "undecided", "fine", "missing")
"""The verdicts on a label.

- doubted: most answers are another one.
- questionable: few answers agree with the label or with each other.
- undecided: only the position in the queue says anything about it.
- fine: most answers agree with it.
- missing: there is no label.
"""

CHANGES = ("changed", "added", "kept")
"""The effects of a repair on a label: it is replaced, filled in, or left."""

_SHOWN = 3
"""Number of answers that a row names."""


@dataclass(frozen=True)
class _Doubt:
    """How doubtful the labels of P prompts are, and which of them are replaced by proposals.

    A proposal is the answer that the models prefer, if it is not the label.
    """

    chance: Floats
    """(P,) chance that the label is wrong; NaN if not calibrated."""

    proposal_chance: Floats
    """(P,) chance that the proposal is right; NaN if not calibrated."""

    is_doubted: Bools
    """(P,) whether the label is more likely wrong than right."""

    is_evidence: Bools
    """(P,) whether the answers are evidence about the label."""

    is_replaced: Bools
    """(P,) whether the proposal is surely a gain."""

    gain: Cell | None = None
    """Gain of all replacements together; None if there are none to consider."""

    @classmethod
    def by_votes(cls, counted: Tally, model: AnnotatorModel) -> _Doubt:
        """Return which labels are doubtful by the votes alone, for an audit without verified labels.

        A label is doubted if the annotator model, fitted to the votes, finds it more likely wrong than right. The votes
        are evidence about it if there are several models, or several visits of the prompt. The chances that labels are
        wrong and proposals right need verified labels, so they are NaN. No label is replaced.
        """
        unknown = np.full(len(counted), np.nan)
        # If one model gives the same answer several times at one visit, it may have made one error several times.
        is_evidence = (counted.prompts["visits"].to_numpy() > 1) | (len(counted.models) > 1)
        nothing = np.zeros(len(counted), dtype=bool)
        return cls(unknown, unknown, model.odds > 0, is_evidence, nothing)

    @classmethod
    def calibrated(
        cls, maps: calibration.Calibration, odds: Floats, may_change: Bools
    ) -> _Doubt:
        """Return the doubt with chances that are calibrated by verified labels.

        Labels are replaced by proposals if the maps show that this is a gain (`Calibration.changes`).

        Args:
            maps: the maps from log odds to chances, fitted to the verified labels.
            odds: (P,) log odds of the annotator model that the label is wrong.
            may_change: (P,) whether the label has a proposal and nobody has verified it.
        """
        chance = maps.chances(odds)
        is_evidence = np.ones(len(odds), dtype=bool)
        is_replaced, gain = maps.changes(odds, may_change)
        proposal_chance = chance * maps.mended.mean()
        return cls(chance, proposal_chance, chance >= 0.5, is_evidence, is_replaced, gain)


def verdicts_of(
    prompts: Sequence[Prompt],
    counted: Tally,
    model: AnnotatorModel,
    known: Verified,
    measure: Verified | None,
    *,
    judge: Judge,
    is_here: Bools,
) -> tuple[pl.DataFrame, Cell | None]:
    """Return the verdicts on the labels, and what replacing unverified labels would gain.

    Args:
        prompts: P prompts.
        counted: the answers to these prompts, counted by model, and their labels.
        model: the annotator model fitted to `counted`.
        known: all verified labels.
        measure: the verified labels to calibrate the chances with: `known` without those that the run was trained on.
            None if there are none.
        judge: compares proposals with verified answers.
        is_here: (P,) whether the prompt is in the data set. Labels of other prompts are neither changed nor added.

    Returns:
        A frame with one row per prompt, the most doubtful label first; the top of this module describes the columns.
        The gain: the expected number of additional right labels if the answers that the models prefer replace
            unverified labels. None if no verified labels calibrate the chances, or no replacement is worth considering.
    """
    labels, is_known = counted.label_answers, known.is_known
    is_missing = labels == MISSING
    is_other = (model.leaders >= 0) & (model.leaders != labels)
    proposals = np.where(is_other, model.leaders, -1)
    spellings = counted.answers["spelling"]
    proposed = [None if answer < 0 else spellings[int(answer)] for answer in proposals]
    doubt = _Doubt.by_votes(counted, model)
    if measure is not None and measure.labels:
        is_proposal_right = is_right(
            proposed, asked_truths(prompts, measure.answers), judge
        )
        maps = calibration.calibrate(model.odds, measure.is_wrong, is_proposal_right)
        may_change = is_other & ~is_missing & ~is_known & is_here
        doubt = _Doubt.calibrated(maps, model.odds, may_change)

    is_wrong = known.is_wrong == 1
    truths = np.array(known.answers, dtype=object)
    # Not `is not None`: numpy compares `!= None` element by element.
    has_truth = (truths != None) & (known.is_wrong != 0)  # noqa: E711
    is_added = is_missing & (model.is_settled | has_truth)
    # A label that is known to be wrong is replaced by any proposal: at worst one wrong label replaces another.
    is_changed = doubt.is_replaced | (is_wrong & (is_other | has_truth))
    proposal_or_truth = np.where(has_truth, truths, np.array(proposed, dtype=object))
    proposal_chance = np.where(is_other & ~is_known, doubt.proposal_chance, np.nan)
    totals = np.asarray(
        np.bincount(
            counted.counts["answer"], counted.counts["count"], len(counted.answers)
        ),
        dtype=float,
    )
    table = pl.DataFrame(
        {
            "prompt_id": counted.prompt_ids,
            "status": _statuses(
                known, model, doubt, is_missing=is_missing, is_other=is_other
            ),
            "given_label": pl.Series(counted.labels, dtype=pl.String),
            "proposed_label": pl.Series(proposal_or_truth.tolist(), dtype=pl.String),
            "confidence": np.where(is_known, known.is_wrong, doubt.chance),
            "proposal_confidence": np.where(has_truth, 1.0, proposal_chance),
            "change": np.select(
                # The first that holds wins: a label outside the data set never changes.
                [~is_here, is_added, is_changed],
                ["kept", "added", "changed"],
                "kept",
            ),
            "answers": _answers(counted, totals),
            "given_count": _values_of(totals, labels),
            "proposed_count": np.where(is_other, _values_of(totals, proposals), np.nan),
            "log_odds": model.odds,
            "is_verified": is_known,
        },
        # NaN marks missing values in numpy's arrays; the frame must have nulls, which JSON and Parquet can hold.
        nan_to_null=True,
    ).cast({"given_count": pl.Int64, "proposed_count": pl.Int64})
    return _ranked(
        pl.concat([table, counted.prompts.drop("prompt")], how="horizontal")
    ), doubt.gain


def _statuses(
    known: Verified,
    model: AnnotatorModel,
    doubt: _Doubt,
    *,
    is_missing: Bools,
    is_other: Bools,
) -> NDArray[np.str_]:
    """Return (P,) the status of each label, one of `STATUSES`.

    A verified label is doubted if it is wrong, and fine if it is right. The status of any other label follows from the
    votes, and from the chance that it is wrong.

    `is_missing` (P,) says whether there is no label, and `is_other` (P,) whether the likeliest answer is not the label.
    """
    cases = {
        "doubted": known.is_known & (known.is_wrong == 1),
        "fine": known.is_known & (known.is_wrong == 0),
        "missing": is_missing,
        "questionable": ~model.is_settled & (is_other | (model.leaders < 0)),
    }
    # Votes and chances must agree: another leader and a doubted label, or the label as leader and no doubt.
    is_sure = model.is_settled & doubt.is_evidence & (is_other == doubt.is_doubted)
    return np.select(
        [*cases.values(), is_sure & is_other, is_sure],
        [*cases, "doubted", "fine"],
        "undecided",
    )


def _ranked(table: pl.DataFrame) -> pl.DataFrame:
    """Sort the verdicts, the most doubtful label first, and add their ``rank`` as the first column.

    Ranks count from 1. Rows with a verified or missing label come last and have rank null. The order of equally
    doubtful labels is random, but depends on nothing except the ids of the prompts.
    """
    is_queued = ~pl.col("is_verified") & pl.col("log_odds").is_not_null()
    # Draw by id, not by position: the order of ties then depends on nothing but the prompts.
    draws = [seeding.uniform("audit tie", name) for name in table["prompt_id"]]
    order = pl.when(is_queued).then("log_odds"), pl.when(is_queued).then(pl.Series(draws))
    ranked = table.sort(order, descending=True, nulls_last=True, maintain_order=True)
    rank = pl.when(is_queued).then(pl.int_range(1, len(table) + 1))
    return ranked.select(rank.alias("rank"), pl.all())


def ties_of(verdicts: pl.DataFrame) -> list[tuple[int, int]]:
    """Return the first and the last rank of every group of two or more equally doubtful labels."""
    groups = verdicts.drop_nulls("rank").group_by("log_odds", maintain_order=True)
    ends = groups.agg(first=pl.col("rank").min(), last=pl.col("rank").max())
    return ends.select("first", "last").filter(pl.col("first") < pl.col("last")).rows()


def _values_of(values: Floats, answers: Numbers) -> Floats:
    """Return (P,) the value of one answer to each prompt.

    Args:
        values: (A,) values of all answers.
        answers: (P,) index of the answer to each prompt. `MISSING` stands for a missing label and gives NaN. Any other
            negative index stands for an answer that no rollout gave, and gives 0.
    """
    by_prompt = np.where(answers == MISSING, np.nan, 0.0)
    by_prompt[answers >= 0] = values[answers[answers >= 0]]
    return by_prompt


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
