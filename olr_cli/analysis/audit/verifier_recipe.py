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
from olr_cli.recipe.sections import DataSection, ExternalEngine
from olr_cli.recipe.verifier import VerifierSection
from olr_cli.tables import one_line

PRINTED = Path("-")
"""Stands for standard output, in place of a file."""


def verifier_of(audit: RewardAudit) -> VerifierSection:
    """Return the verifier that made the audited rewards, by people's verdicts if there are any: then without rules."""
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
    """Return the section as YAML, under comments that say what was measured."""
    rates = audit.verified.get("verifier", audit.rates)
    who = "people" if audit.verified else "the grader"
    lines = [
        f"Measured in {audit.rewards:,} rewards of {audit.prompts:,} prompts of {audit.source}, in all:",
        f"right by {who}, not rewarded: {rates.false_negative_rate.full}; wrong, rewarded:"
        f" {rates.false_positive_rate.full}",
    ]
    return "".join(f"# {one_line(line)}\n" for line in lines) + dump_yaml(
        {"verifier": _plain(section)}
    )


def recipe_text(
    audit: RewardAudit,
    section: VerifierSection,
    history: RolloutHistory,
    data: str | None,
    target: Path,
) -> str:
    """Return a recipe of two arms, with the verifier and without, that trains the data of a history.

    That of a run builds on the run's own recipe, another on `own-data` with the data set `data`.

    Raises:
        UserError: no reward contradicts the grader, or nobody knows the data set.
    """
    if section.brief == "":
        raise UserError(
            f"no reward of {audit.source} was found wrong, so both arms would be one",
            "leave the file out",
            "as_recipe",
        )
    name = folder_name(f"verifier-{target.stem}")[:100]
    tree: dict[str, Any] = {"name": name}
    if history.is_run and not isinstance(history.recipe.engine, ExternalEngine):
        stored = audit.source / "recipe.yaml"
        tree["base"] = os.path.relpath(stored.resolve(), target.parent.resolve())
    elif data is None:
        raise UserError(
            f"{audit.source} does not say which data set its prompts are from",
            "name it with --data DATA",
            "as_recipe",
        )
    else:
        defaults = DataSection().plain()
        read = history.recipe.data.plain().items()
        changed = {key: value for key, value in read if value != defaults.get(key)}
        tree |= {"base": "own-data", "data": {**changed, "train": data}}
        tree["method"] = {"name": "grpo"}
    arms = {"exact": {"verifier": None}, "measured": {"verifier": _plain(section)}}
    tree["sweep"] = {"arms": arms}
    lines = (
        "What the measured errors of a verifier cost: the same training without them, and with them.",
        f"Then: olr analyze runs/{name} --table arms",
        "More seeds: --set 'sweep.grid.seed=[1, 2, 3]'",
    )
    return "".join(f"# {line}\n" for line in lines) + dump_yaml(tree)


def _plain(section: VerifierSection) -> dict[str, Any]:
    # With the keys that are at their default, so that nothing of a base's verifier is left.
    return section.model_dump(mode="json", exclude_none=True)
