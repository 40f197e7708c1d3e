"""A measured verifier as the section of a recipe, and as a recipe that trains with and without it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from olr_cli.analysis.audit.rewards import RewardAudit
from olr_cli.analysis.audit.verifier_rules import measured_verifier, rounded
from olr_cli.analysis.histories import RolloutHistory
from olr_cli.errors import UserError
from olr_cli.recipe.layers import folder_name
from olr_cli.recipe.plain import dump_yaml
from olr_cli.recipe.sections import ExternalEngine
from olr_cli.recipe.verifier import VerifierSection
from olr_cli.tables import one_line

PRINTED = Path("-")
"""Placeholder for standard output, in place of a file."""


def verifier_of(audit: RewardAudit) -> VerifierSection:
    """Return the `verifier` section of a recipe, for a verifier that errs as often as the audited rewards.

    If people judged answers, their verdicts are the truth, and the section has error rates only. Otherwise the grader's
    verdicts are the truth, and the section also has rules for kinds of answers that are often misjudged.
    """
    section = measured_verifier(audit.known)
    if not audit.verified:
        return section
    rates = audit.verified["verifier"]
    return VerifierSection(
        draw=section.draw,
        false_negative_rate=rounded(rates.false_negative_rate.value),
        false_positive_rate=rounded(rates.false_positive_rate.value),
    )


def section_text(audit: RewardAudit, section: VerifierSection) -> str:
    """Return the verifier's section as YAML, below comments on the measured error rates and the rewards behind them."""
    rates = audit.verified.get("verifier", audit.rates)
    judge_name = "people" if audit.verified else "the grader"
    missed, accepted = (
        f"{rate.full} (95 %)" if rate.value is not None else "nothing to measure, so 0"
        for rate in (rates.false_negative_rate, rates.false_positive_rate)
    )
    return _commented(
        {"verifier": plain(section)},
        f"Measured in {audit.rewards:,} rewards of {audit.prompts:,} prompts in {audit.source}, all errors together:",
        f"Right by {judge_name}, not rewarded: {missed}; wrong, rewarded: {accepted}",
    )


def recipe_text(
    audit: RewardAudit,
    section: VerifierSection,
    history: RolloutHistory,
    data: str | None,
    target: Path,
) -> str:
    """Return a recipe with two arms, one with the verifier and one without, that trains on the data of a history.

    For a run whose recipe olr can train, the new recipe is based on the run's own recipe. For any other history it is
    based on the recipe `own-data`, with the data set `data` (a path or a name).

    Args:
        audit: result of the audit of the rewards.
        section: the `verifier` section with the measured errors.
        history: the audited history.
        data: the data set, or None if the user named none.
        target: the file to be written. The text names the run's recipe by a path relative to this file's folder.

    Raises:
        UserError: no reward was found wrong, or the data set is unknown.
    """
    if not section.brief:
        raise UserError(
            f"no reward of {audit.source} was found wrong, so there is no error to train with",
            "leave the file out",
            "as_recipe",
        )
    name = folder_name(f"verifier-{target.stem}")[:100]
    arms = {"exact": {"verifier": None}, "measured": {"verifier": plain(section)}}
    tree: dict[str, Any] = {"name": name, "sweep": {"arms": arms}}
    if can_train_again(history):
        stored = audit.source / "recipe.yaml"
        # Relative to the new file, so that the two can be moved together.
        tree["base"] = os.path.relpath(stored.resolve(), target.parent.resolve())
    elif data is None:
        raise UserError(
            f"{audit.source} does not say which data set its prompts are from",
            "name it with --data DATA",
            "as_recipe",
        )
    else:
        read = history.recipe.data.model_dump(mode="json", exclude_defaults=True)
        tree |= {"base": "own-data", "data": {**read, "train": data}}
        # A log has no recipe whose method could be repeated, so take the plainest one.
        tree["method"] = {"name": "grpo"}
    return _commented(
        tree,
        "What the measured errors of a verifier cost: the same training without them, and with them.",
        f"Then: olr analyze runs/{name} --table arms",
        "More seeds: --set 'sweep.grid.seed=[1, 2, 3]'",
    )


def can_train_again(history: RolloutHistory) -> bool:
    """Return whether a history is of a run whose recipe olr can train; False for logs and for other trainers' runs."""
    return history.is_run and not isinstance(history.recipe.engine, ExternalEngine)


def plain(section: VerifierSection) -> dict[str, Any]:
    """Return the section as plain values, with defaults written out, so that they override a base recipe's verifier."""
    return section.model_dump(mode="json", exclude_none=True)


def _commented(tree: dict[str, Any], *comments: str) -> str:
    return "".join(f"# {one_line(text)}\n" for text in comments) + dump_yaml(tree)
