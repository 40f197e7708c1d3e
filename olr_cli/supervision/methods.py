"""A method is a composition: which label counts (R14, R15), what is rewarded (R16), which prompts train.

The fourth choice, the loss, is the engine's. To add a method, add a recipe section
(`olr_cli.recipe`) and a row to `_METHODS`; to mix methods, compose other parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from olr_cli.recipe import GrpoMethod, OlrMethod
from olr_cli.supervision.records import LabelSource


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about a prompt when its label is decided.

    Attributes:
        visit: this visit, from 1.
        majority: the majority answer of this visit, if there is one.
        slope: S_t (R12).
        is_consistent: the majority is the historical majority (R13).
        label: the label that counts unless a method decides otherwise: this visit's noisy label on a marked
            prompt, else the given label (R15).
        source: where `label` comes from.
    """

    visit: int
    majority: str | None
    slope: Fraction
    is_consistent: bool
    label: str | None
    source: LabelSource


@dataclass(frozen=True, slots=True)
class EffectiveLabel:
    """The label a visit's rewards are computed with (R15)."""

    answer: str | None
    source: LabelSource
    is_selected: bool


LabelRule = Callable[[Evidence], EffectiveLabel]
RewardRule = Callable[[Sequence[bool]], tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Method:
    """How a step's rollout groups are supervised.

    Attributes:
        name: as in reports; the ablations of OLR have names of their own.
        needs_labels: a prompt without a given label is an error.
        votes: decides by majority answers, which few rollouts make unreliable.
        label: the effective label.
        reward: rewards of one group, from whether each rollout's answer is the effective label's class.
    """

    name: str
    needs_labels: bool
    votes: bool
    label: LabelRule
    reward: RewardRule


def given_label(evidence: Evidence) -> EffectiveLabel:
    """The label as it stands."""
    return EffectiveLabel(evidence.label, evidence.source, is_selected=False)


def refined_label(section: OlrMethod) -> LabelRule:
    """The majority where it meets the criteria, else the label as it stands (Eq. effective_label, R14, R15)."""
    threshold = Fraction(section.slope_threshold)
    needs_slope, needs_consistency = "slope" in section.criteria, "consistency" in section.criteria

    def rule(evidence: Evidence) -> EffectiveLabel:
        is_selected = (
            evidence.visit > section.warmup_epochs
            and evidence.majority is not None
            and (not needs_slope or evidence.slope > threshold)
            and (not needs_consistency or evidence.is_consistent)
        )
        if is_selected:
            return EffectiveLabel(evidence.majority, "majority", is_selected=True)
        return given_label(evidence)

    return rule


def verifier_reward(hits: Sequence[bool]) -> tuple[float, ...]:
    """1 for an answer in the effective label's class, else 0 (R16)."""
    return tuple(float(hit) for hit in hits)


def _grpo(section: GrpoMethod) -> Method:
    return Method(section.name, needs_labels=True, votes=False, label=given_label, reward=verifier_reward)


def _olr(section: OlrMethod) -> Method:
    name = {
        ("slope", "consistency"): "olr",
        ("consistency",): "olr_without_slope",
        ("slope",): "olr_without_consistency",
        (): "olr_every_majority",
    }[section.criteria]
    return Method(name, needs_labels=True, votes=True, label=refined_label(section), reward=verifier_reward)


_METHODS: dict[type, Callable[..., Method]] = {GrpoMethod: _grpo, OlrMethod: _olr}


def compose(section: GrpoMethod | OlrMethod) -> Method:
    """The method a recipe's `method` section asks for."""
    return _METHODS[type(section)](section)
